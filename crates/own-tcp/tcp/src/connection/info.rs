//! Snapshot of a connection and its path: what Linux returns for `TCP_INFO`.

use std::time::{Duration, Instant};

use super::Connection;
use super::ack::AckState;
use super::mtu_search::MtuProbes;
use super::recovery::Phase;
use crate::wire::Unreachable;

/// Snapshot of a connection. Sizes are in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// State of loss recovery.
    pub loss: LossState,
    /// Options that both ends agreed on.
    pub agreed: Agreed,
    /// Retransmission timeout, including its doublings.
    pub rto: Duration,
    /// Smoothed round-trip time; `None` before the first measurement.
    pub srtt: Option<Duration>,
    /// Mean deviation of the round-trip time; `None` before the first measurement.
    pub rttvar: Option<Duration>,
    /// Smallest round-trip time; `None` before the first measurement.
    pub rtt_min: Option<Duration>,
    /// Congestion window.
    pub cwnd_bytes: u32,
    /// Slow-start threshold; `None` before the first congestion.
    pub ssthresh_bytes: Option<u32>,
    /// Payload of a full-sized segment to the peer.
    pub mss: u32,
    /// Payload of a full-sized segment from the peer, estimated from segments seen.
    pub mss_received: u32,
    /// Result of path MTU probing.
    pub mtu_probes: MtuProbes,
    /// Value of our MSS option.
    pub mss_announced: u32,
    /// Bytes sent and not acknowledged, including lost and SACKed ones.
    pub unacked_bytes: u32,
    /// Bytes in `unacked_bytes` that the peer reported by SACK.
    pub sacked_bytes: u32,
    /// Bytes in `unacked_bytes` marked as lost and not yet retransmitted.
    pub lost_bytes: u32,
    /// Bytes in `unacked_bytes` that were retransmitted and are in the network.
    pub retransmitted_bytes: u32,
    /// Bytes written and never sent.
    pub unsent_bytes: u32,
    /// The peer's window.
    pub send_window_bytes: u32,
    /// Largest window that the peer ever offered.
    pub send_window_bytes_max: u32,
    /// Our window as last announced to the peer.
    pub receive_window_bytes: u32,
    /// Size of our receive buffer.
    pub receive_buffer_bytes: u32,
    /// Consecutive retransmission timeouts.
    pub timeouts_in_a_row: u8,
    /// Consecutive unanswered probes (zero window or keepalive).
    pub probes_unanswered: u8,
    /// Time since the last segment from the peer.
    pub since_received: Option<Duration>,
    /// Time since payload last arrived, or since the establishment if none did; `None` before the
    /// connection is established.
    pub since_data_received: Option<Duration>,
    /// Last ICMP error about our segments; `None` if there was none or the peer was heard since.
    pub soft_error: Option<Unreachable>,
    /// Largest reordering seen: bytes from the start of a late segment to the highest byte that had
    /// arrived. 0 if there was none.
    pub reordering_bytes: u32,
    /// Time for which each limit held the sender up since the connection was opened.
    pub limits: Limits,
    /// State of the acknowledgement policy.
    pub ack: AckState,
}

/// State of loss recovery (Linux's `tcpi_ca_state`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossState {
    /// No loss is known.
    Open,
    /// Data is missing and may be lost or late.
    Disorder,
    /// The window was reduced because of an ECN congestion mark.
    Reduced,
    /// Lost data is being retransmitted.
    Recovery,
    /// A timeout marked all data in flight as lost.
    Loss,
}

/// Options that both ends agreed on when the connection was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// Window shifts of the peer and of us; `None` if windows are not scaled.
    pub window_shifts: Option<(u8, u8)>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// The data of the SYN was accepted (RFC 7413).
    pub data_in_syn: bool,
}

/// Time for which a sender waited, by reason, since the connection was opened: `tcpi_busy_time`,
/// `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Time with unacknowledged data, including the two below.
    pub busy: Duration,
    /// Time limited by the peer's window.
    pub by_window: Duration,
    /// Time limited by the send buffer: the application had more data.
    pub by_buffer: Duration,
}

/// Reason for which a sender waits now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Limit {
    /// All data is acknowledged.
    #[default]
    Idle,
    /// Waits for acknowledgements, pacing or the congestion window.
    Busy,
    /// Waits for the peer's window.
    Window,
    /// The application has more data than the send buffer holds.
    Buffer,
}

/// Running sums of [`Limits`], in nanoseconds. `busy_ns` excludes the two limited times.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chronograph {
    limit: Limit,
    since_ns: u64,
    busy_ns: u64,
    window_ns: u64,
    buffer_ns: u64,
}

impl Chronograph {
    pub(super) fn new() -> Self {
        Self {
            limit: Limit::Idle,
            since_ns: 0,
            busy_ns: 0,
            window_ns: 0,
            buffer_ns: 0,
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.limit == Limit::Idle
    }

    /// Returns the sums of an idle chronograph: busy, window, buffer.
    pub(super) fn sums_ns(&self) -> [u64; 3] {
        [self.busy_ns, self.window_ns, self.buffer_ns]
    }

    pub(super) fn with_sums_ns([busy_ns, window_ns, buffer_ns]: [u64; 3]) -> Self {
        Self {
            busy_ns,
            window_ns,
            buffer_ns,
            ..Self::new()
        }
    }

    fn note(&mut self, limit: Limit, now_ns: u64) {
        let passed = now_ns.saturating_sub(self.since_ns);
        match self.limit {
            Limit::Idle => {}
            Limit::Busy => self.busy_ns += passed,
            Limit::Window => self.window_ns += passed,
            Limit::Buffer => self.buffer_ns += passed,
        }
        (self.limit, self.since_ns) = (limit, now_ns);
    }

    fn until(&self, now_ns: u64) -> Limits {
        let mut sums = Self { ..*self };
        sums.note(Limit::Idle, now_ns);
        let limited_ns = sums.window_ns + sums.buffer_ns;
        Limits {
            busy: Duration::from_nanos(sums.busy_ns + limited_ns),
            by_window: Duration::from_nanos(sums.window_ns),
            by_buffer: Duration::from_nanos(sums.buffer_ns),
        }
    }
}

impl Connection {
    /// Takes a snapshot. Times that still run are counted up to `now`.
    pub fn info(&self, now: Instant) -> Info {
        let (snd, rcv, recovery) = (&self.snd, &self.rcv, &self.recovery);
        let board = &recovery.scoreboard;
        let loss = match recovery.phase {
            Phase::Open if board.sacked_bytes() > 0 || recovery.duplicate_acks > 0 => {
                LossState::Disorder
            }
            Phase::Open => LossState::Open,
            Phase::Reduced { .. } => LossState::Reduced,
            Phase::Recovery { .. } => LossState::Recovery,
            Phase::Loss { .. } => LossState::Loss,
        };
        let scaled = self.config.window_scaling && (snd.shift > 0 || rcv.shift > 0);
        Info {
            loss,
            agreed: Agreed {
                timestamps: self.timestamps,
                sack: self.sack,
                window_shifts: scaled.then_some((snd.shift, rcv.shift)),
                ecn: self.ecn.on,
                data_in_syn: self.has_early_data(),
            },
            rto: self.rtt.rto(),
            srtt: self.rtt.srtt(),
            rttvar: self.rtt.rttvar(),
            rtt_min: self.rtt.rtt_min(),
            cwnd_bytes: self.congestion.cwnd(),
            ssthresh_bytes: Some(self.congestion.ssthresh()).filter(|bytes| *bytes < u32::MAX),
            mss: snd.mss,
            mss_received: rcv.full_segment,
            mtu_probes: self.mtu_probes(),
            mss_announced: self.config.mss.into(),
            unacked_bytes: snd.nxt.since(snd.una),
            sacked_bytes: board.sacked_bytes(),
            lost_bytes: board.lost_bytes(),
            retransmitted_bytes: board.retransmitted_bytes(),
            unsent_bytes: self.unsent(),
            send_window_bytes: snd.wnd,
            send_window_bytes_max: snd.wnd_max,
            receive_window_bytes: rcv.acked_window,
            receive_buffer_bytes: rcv.buffer,
            timeouts_in_a_row: self.retries,
            probes_unanswered: self.unanswered,
            since_received: Some(self.since_heard(now)),
            since_data_received: (rcv.data_ns > 0)
                .then(|| Duration::from_nanos(self.timers.ns(now).saturating_sub(rcv.data_ns))),
            soft_error: self.soft_error,
            reordering_bytes: recovery.rack.reordering(),
            limits: self.limits.until(self.timers.ns(now)),
            ack: self.ack.state(),
        }
    }

    /// Notes what limits the sender after it has sent what it could.
    #[inline]
    pub(super) fn note_limit(&mut self, now: Instant) {
        let unsent = self.unsent();
        let limit = if unsent > 0 {
            let short = self.window_left() < unsent.min(self.snd.mss);
            let cwnd_left = self
                .congestion
                .cwnd()
                .saturating_sub(self.recovery.flight(self.snd.mss));
            // Not counted as the peer's window if the congestion window limits too, as in Linux.
            if short && cwnd_left >= self.snd.mss {
                Limit::Window
            } else {
                Limit::Busy
            }
        } else if self.recovery.scoreboard.is_empty() {
            Limit::Idle
        } else if self.snd.wanted {
            Limit::Buffer
        } else {
            Limit::Busy
        };
        if limit != self.limits.limit {
            self.limits.note(limit, self.timers.ns(now));
        }
    }
}
