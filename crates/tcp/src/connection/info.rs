//! What a connection knows of itself and of its path: what Linux tells by `TCP_INFO`.

use std::time::{Duration, Instant};

use super::Connection;
use super::ack::AckState;
use super::mtu_search::MtuProbes;
use super::recovery::Phase;
use crate::wire::Unreachable;

/// A look at a connection. Sizes are in bytes of payload.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Info {
    /// What the sender is busy with.
    pub loss: LossState,
    /// What both ends agreed on.
    pub agreed: Agreed,
    /// Retransmission timeout, with its doublings.
    pub rto: Duration,
    /// Smoothed round-trip time, once measured.
    pub srtt: Option<Duration>,
    /// Its mean deviation.
    pub rttvar: Option<Duration>,
    /// The shortest.
    pub rtt_min: Option<Duration>,
    /// Congestion window.
    pub cwnd_bytes: u32,
    /// Slow-start threshold, once there was congestion.
    pub ssthresh_bytes: Option<u32>,
    /// Payload of a full segment to the peer.
    pub mss: u32,
    /// Payload of a full segment of the peer's, by what was seen.
    pub mss_received: u32,
    /// What probes found out of the path.
    pub mtu_probes: MtuProbes,
    /// What our MSS option said.
    pub mss_announced: u32,
    /// Sent and not acknowledged, whatever its fate.
    pub unacked_bytes: u32,
    /// Of these, reported as received.
    pub sacked_bytes: u32,
    /// Of these, taken for lost and not yet sent again.
    pub lost_bytes: u32,
    /// Of these, in the network for the second time or more.
    pub retransmitted_bytes: u32,
    /// Written and never sent.
    pub unsent_bytes: u32,
    /// The peer's window.
    pub send_window_bytes: u32,
    /// The largest that it ever offered.
    pub send_window_bytes_max: u32,
    /// Our window, as the peer knows it.
    pub receive_window_bytes: u32,
    /// Size of our receive buffer.
    pub receive_buffer_bytes: u32,
    /// Timeouts in a row.
    pub timeouts_in_a_row: u8,
    /// Probes of a shut window or of an idle peer without an answer.
    pub probes_unanswered: u8,
    /// Time since the peer was last heard.
    pub since_received: Option<Duration>,
    /// Time since payload last came.
    pub since_data_received: Option<Duration>,
    /// What a router said last of segments that did not get there, if the peer was not heard since.
    pub soft_error: Option<Unreachable>,
    /// By how much segments arrived in another order than they were sent in, at most: from the first
    /// byte of a late one to the end of what had arrived. 0: they did not.
    pub reordering_bytes: u32,
    /// What held the sender up since it began, and for how long.
    pub limits: Limits,
    /// How it acknowledges.
    pub ack: AckState,
}

/// What the sender is busy with: Linux's `tcpi_ca_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LossState {
    /// Nothing is known to be lost.
    Open,
    /// Something is missing and may merely be late.
    Disorder,
    /// The window was reduced for a congestion mark.
    Reduced,
    /// What was lost is repaired.
    Recovery,
    /// A timeout said that all was lost.
    Loss,
}

/// What both ends agreed on when they opened the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Agreed {
    /// Timestamps (RFC 7323).
    pub timestamps: bool,
    /// Selective acknowledgements (RFC 2018).
    pub sack: bool,
    /// The peer's shift and ours, if windows are scaled.
    pub window_shifts: Option<(u8, u8)>,
    /// Explicit congestion notification (RFC 3168).
    pub ecn: bool,
    /// The data of the SYN was taken (RFC 7413).
    pub data_in_syn: bool,
}

/// What a sender waited for, and how long since the connection began: `tcpi_busy_time`,
/// `tcpi_rwnd_limited`, `tcpi_sndbuf_limited`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Something was written and not acknowledged, for whatever reason.
    pub busy: Duration,
    /// For the peer's window.
    pub by_window: Duration,
    /// For room in the send buffer: the application had more.
    pub by_buffer: Duration,
}

/// What a sender waits for now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Limit {
    /// Nothing: all is acknowledged.
    #[default]
    Idle,
    /// Acknowledgements, or its turn.
    Busy,
    /// The peer's window.
    Window,
    /// The application has more than the send buffer holds.
    Buffer,
}

/// The running count of [`Limits`], in nanoseconds: a third of the memory of what they are told in.
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

    /// What an idle one has told so far.
    pub(super) fn sums_ns(&self) -> [u64; 3] {
        [self.busy_ns, self.window_ns, self.buffer_ns]
    }

    /// An idle one that has told this much.
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
    /// Looks at everything; `now` is for what is still going on.
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

    /// What it waits for when it has sent what it could.
    #[inline]
    pub(super) fn note_limit(&mut self, now: Instant) {
        let unsent = self.unsent();
        let limit = if unsent > 0 {
            let short = self.window_left() < unsent.min(self.snd.mss);
            let cwnd_left = self
                .congestion
                .cwnd()
                .saturating_sub(self.recovery.flight(self.snd.mss));
            // As Linux: what the congestion window holds back as well is not the peer's to blame.
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
