//! States of a connection and the transitions between them (RFC 9293 §3.3.2, figure 5).

/// State of a connection. LISTEN is missing, because a listener is not a connection
/// ([`Endpoint::listen`](crate::Endpoint::listen)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// We sent a SYN; no SYN of the peer arrived.
    SynSent,
    /// Both SYNs were exchanged; ours is not acknowledged.
    SynReceived,
    /// Both directions are open for data.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed and our FIN is acknowledged; the peer may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both sides closed at the same time; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we closed; our FIN is not acknowledged.
    LastAck,
    /// Both sides closed; waits until no old segment can arrive.
    TimeWait,
    /// The connection has ended.
    Closed,
}

impl State {
    /// True if RFC 9293 figure 5 has an arrow from `self` to `next`. CLOSED is reachable from every
    /// state (RST, timeout, abort).
    pub(super) fn may_become(self, next: Self) -> bool {
        use State::{
            CloseWait, Closed, Closing, Established, FinWait1, FinWait2, LastAck, SynReceived,
            SynSent, TimeWait,
        };
        match next {
            Closed => true,
            SynSent => false,
            SynReceived => self == SynSent,
            Established => matches!(self, SynSent | SynReceived),
            FinWait1 => matches!(self, SynReceived | Established),
            FinWait2 => self == FinWait1,
            CloseWait => matches!(self, SynReceived | Established),
            Closing => self == FinWait1,
            LastAck => self == CloseWait,
            TimeWait => matches!(self, FinWait1 | FinWait2 | Closing),
        }
    }

    /// True if both SYNs were exchanged and ours is acknowledged.
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// True if the application may still write.
    pub(super) fn may_write(self) -> bool {
        matches!(
            self,
            Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait
        )
    }

    /// True if payload may still arrive: the peer's FIN has not.
    pub(super) fn may_receive(self) -> bool {
        matches!(
            self,
            Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2
        )
    }
}
