//! The states of a connection and the steps between them (RFC 9293 §3.3.2, figure 5).

/// A connection's state. LISTEN is missing: a listener is not a connection but makes them
/// ([`Endpoint::listen`](crate::Endpoint::listen)).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Our SYN is out, the peer's has not come.
    SynSent,
    /// Both SYNs were seen, ours is not acknowledged.
    SynReceived,
    /// Data flows.
    Established,
    /// We closed; our FIN is not acknowledged.
    FinWait1,
    /// We closed and the peer knows; it may still send.
    FinWait2,
    /// The peer closed; we may still send.
    CloseWait,
    /// Both closed at once; our FIN is not acknowledged.
    Closing,
    /// The peer closed, then we; our FIN is not acknowledged.
    LastAck,
    /// All is said; waits until nothing old can arrive.
    TimeWait,
    /// There is no connection.
    Closed,
}

impl State {
    /// Whether the figure has an arrow from `self` to `next`. CLOSED can be reached from anywhere
    /// (RST, timeout, abort).
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

    /// Both SYNs were exchanged: sequence numbers of both sides are known.
    pub(super) fn is_synchronized(self) -> bool {
        !matches!(self, Self::SynSent | Self::SynReceived | Self::Closed)
    }

    /// Our FIN is not yet due: the application may write.
    pub(super) fn may_write(self) -> bool {
        matches!(
            self,
            Self::SynSent | Self::SynReceived | Self::Established | Self::CloseWait
        )
    }

    /// The peer's FIN has not come: payload may.
    pub(super) fn may_receive(self) -> bool {
        matches!(
            self,
            Self::SynReceived | Self::Established | Self::FinWait1 | Self::FinWait2
        )
    }
}
