//! Compressed SACKs, the last part of Linux's `__tcp_ack_snd_check` (tcp_input.c). After a gap the
//! first three segments are acknowledged at once, because a sender that counts duplicates needs
//! them. One delayed acknowledgement then covers the following segments. It is sent when the
//! timer fires (`tcp_compressed_ack_kick`, tcp_timer.c) or any segment leaves
//! (`tcp_event_ack_sent`).
//!
//! Not here: the receiver's own estimate of the round-trip time. The sender's estimate is used
//! instead; Linux uses the smaller of the two.

use std::time::{Duration, Instant};

use super::AckDecision;
use crate::SeqNum;

/// Settings of [`AckPolicy::LinuxLike`](super::AckPolicy::LinuxLike) other than its delay, named
/// like Linux's sysctls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinuxAcks {
    /// Limit of acknowledgements omitted in a row for segments after a gap. 0: none is omitted.
    /// Default 44.
    pub comp_sack_nr: u8,
    /// Longest delay of the first omitted acknowledgement. Default 1 ms (`tcp_comp_sack_delay_ns`).
    pub comp_sack_delay: Duration,
    /// Longest delay of the first omitted acknowledgement as a share of the round-trip time, in
    /// percent; the smaller of both limits counts. Default 5, a constant in Linux before it became
    /// a sysctl.
    pub comp_sack_rtt_percent: u8,
    /// Slack of the timer, added to the delay: an hrtimer that no other timer shares fires at the
    /// end of its slack. Default 100 µs (`tcp_comp_sack_slack_ns`).
    pub comp_sack_slack: Duration,
    /// Acknowledge a batch once: all segments that are processed before the next poll (in Linux:
    /// the socket's backlog). If false, an [`Endpoint`](crate::Endpoint) answers each segment
    /// separately. Default true (Linux 6.7).
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

/// Inputs of a policy when a segment arrives after a gap, or fills a part of one, and SACK is in
/// use.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Gap {
    pub nxt: SeqNum,
    /// Payload bytes of each of its wire segments.
    pub segment_bytes: u32,
    /// True if the segment has the PSH flag.
    pub push: bool,
    /// Bytes received in order since the last acknowledgement left.
    pub unacked_bytes: u32,
    /// True if the window we could announce now is at least the window that the peer knows.
    pub reader_keeps_up: bool,
    /// Changed ranges not yet reported to the peer, including this segment's.
    pub untold_ranges: usize,
    pub srtt: Option<Duration>,
    pub now: Instant,
}

/// Linux's `compressed_ack`, `dup_ack_counter` and `compressed_ack_rcv_nxt`.
#[derive(Debug, Default)]
pub(super) struct Compressed {
    /// Acknowledgements omitted since the last one was sent.
    count: u8,
    /// Acknowledgements sent at once for the gap at `nxt`.
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

    /// True if acknowledgements were omitted since the last one was sent.
    pub(super) fn any(&self) -> bool {
        self.count > 0
    }

    /// Called when an acknowledgement was sent. True if some had been omitted before.
    pub(super) fn on_sent(&mut self) -> bool {
        std::mem::take(&mut self.count) > 0
    }
}

/// Linux's `TCP_FASTRETRANS_THRESH`.
const DUPLICATES: u8 = 3;
/// Ranges that one acknowledgement should report, since it may be lost (Linux's
/// `TCP_SACK_BLOCKS_EXPECTED`).
const SACK_BLOCKS_EXPECTED: usize = 2;
