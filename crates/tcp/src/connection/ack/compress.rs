//! Compressed SACKs, the last part of Linux's `__tcp_ack_snd_check` (tcp_input.c): behind a gap the
//! first three segments are acknowledged at once, as a sender that counts duplicates needs them; of
//! the rest one acknowledgement after a moment tells all. Flushed by the timer
//! (`tcp_compressed_ack_kick`, tcp_timer.c) or by any segment that leaves (`tcp_event_ack_sent`).
//!
//! Not here: the receiver's own estimate of the round trip; the sender's, which is the smaller of
//! the two wherever Linux has both, stands for it.

use std::time::{Duration, Instant};

use super::AckDecision;
use crate::SeqNum;

/// What [`AckPolicy::LinuxLike`](super::AckPolicy::LinuxLike) has beside its delay: sysctls of the
/// same names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxAcks {
    /// Acknowledgements of segments behind a gap that are left out in a row before one leaves all
    /// the same. 0: none is left out. Default 44.
    pub comp_sack_nr: u8,
    /// How long the first one left out waits at most. Default 1 ms (`tcp_comp_sack_delay_ns`).
    pub comp_sack_delay: Duration,
    /// The same as a share of the round-trip time, in percent; the smaller counts. Default 5, which
    /// Linux had fixed before it made it a sysctl.
    pub comp_sack_rtt_percent: u8,
    /// How much later the timer may fire, so that timers can fire together: an hrtimer by itself
    /// fires at the end. Default 100 µs (`tcp_comp_sack_slack_ns`).
    pub comp_sack_slack: Duration,
    /// Whether segments that came while the application had its turn (the kernel's backlog; here,
    /// all that are taken in before the next poll) are acknowledged once. If not, an
    /// [`Endpoint`](crate::Endpoint) answers each by itself. Default yes (Linux 6.7).
    pub backlog_ack_defer: bool,
}

impl Default for LinuxAcks {
    fn default() -> Self {
        Self {
            comp_sack_nr: 44,
            comp_sack_delay: Duration::from_millis(1),
            comp_sack_rtt_percent: 5,
            comp_sack_slack: Duration::from_micros(100),
            backlog_ack_defer: true,
        }
    }
}

/// A segment came behind a gap, or filled a part of one, and the peer understands SACK: what a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Gap {
    /// RCV.NXT.
    pub nxt: SeqNum,
    /// Payload of one of its wire segments.
    pub segment_bytes: u32,
    /// It has the PSH flag.
    pub push: bool,
    /// Bytes received in order since the last acknowledgement left.
    pub unacked_bytes: u32,
    /// The window we could announce now is no smaller than the one the peer knows.
    pub reader_keeps_up: bool,
    /// Ranges that changed and of which the peer has not been told, this one included.
    pub untold_ranges: usize,
    /// Smoothed round-trip time.
    pub srtt: Option<Duration>,
    pub now: Instant,
}

/// `compressed_ack`, `dup_ack_counter` and `compressed_ack_rcv_nxt` of a socket.
#[derive(Debug, Default)]
pub(super) struct Compressed {
    /// Acknowledgements left out since one left.
    count: u8,
    /// Of those for `nxt`, how many left at once.
    duplicates: u8,
    nxt: SeqNum,
}

impl Compressed {
    pub(super) fn on_gap(&mut self, gap: &Gap, settings: &LinuxAcks) -> AckDecision {
        if self.count >= settings.comp_sack_nr || gap.untold_ranges > SACK_BLOCKS_EXPECTED {
            return AckDecision::Now;
        }
        if self.nxt != gap.nxt {
            (self.nxt, self.duplicates) = (gap.nxt, 0);
        }
        if self.duplicates < DUPLICATES {
            self.duplicates += 1;
            return AckDecision::Now;
        }
        self.count += 1;
        if self.count > 1 {
            return AckDecision::Nothing;
        }
        let share = gap.srtt.unwrap_or_default() * u32::from(settings.comp_sack_rtt_percent) / 100;
        let delay = share.min(settings.comp_sack_delay);
        AckDecision::By(gap.now + delay + settings.comp_sack_slack)
    }

    /// Some have been left out.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// An acknowledgement left. Whether some had been left out.
    pub(super) fn on_sent(&mut self) -> bool {
        std::mem::take(&mut self.count) > 0
    }
}

/// `TCP_FASTRETRANS_THRESH`.
const DUPLICATES: u8 = 3;
/// `TCP_SACK_BLOCKS_EXPECTED`: what one acknowledgement is to tell, since it may be lost.
const SACK_BLOCKS_EXPECTED: usize = 2;
