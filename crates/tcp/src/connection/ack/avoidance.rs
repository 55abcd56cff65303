//! ACK avoidance of Mentat's TCP: HP-UX, Solaris and illumos (`tcp_input_data` at `update_ack`,
//! `tcp_ack_timer`, `tcp_rwnd_reopen` in illumos's usr/src/uts/common/inet/tcp).
//!
//! It does not measure the sender's window. It assumes that slow start gives the sender a segment
//! more per ACK and raises its own limit by one per ACK, so the limit trails the window; where the
//! delay is over first it has overtaken it. Not here: the larger caps for neighbours, which are
//! the caller's to choose.

use super::{Arrival, Read};

/// What is due after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    /// The limit is reached.
    ByLimit,
    /// A partial segment behind another: the end of something.
    ByLength,
}

/// illumos's `tcp_rack_cur_max` and `tcp_rack_abs_max`.
#[derive(Clone, Debug)]
pub(super) struct Avoidance {
    limit: u32,
    limit_max: u32,
    /// As it was configured: what decays does not rise again, and what falls to two does not rise
    /// above a smaller choice.
    limit_chosen: u32,
    /// Segments of the acknowledgement that is due and has not left.
    due: Option<u32>,
}

impl Avoidance {
    pub(super) fn new(limit_initial: u32, limit_max: u32) -> Self {
        let limit_max = limit_max.max(1);
        Self {
            limit: limit_initial.min(limit_max),
            limit_max,
            limit_chosen: limit_max,
            due: None,
        }
    }

    /// The limit, and the most it grows to.
    pub(super) fn limits(&self) -> (u32, u32) {
        (self.limit, self.limit_max)
    }

    pub(super) fn on_segment(&mut self, unacked_segments: u32, arrival: &Arrival) -> Due {
        let full = arrival.full_segment_bytes.max(1);
        if self.due.is_some() || self.is_due(unacked_segments, arrival.window_bytes / full) {
            return Due::ByLimit;
        }
        let before = arrival.unacked_bytes.saturating_sub(arrival.bytes);
        let partial = |bytes: u32| !bytes.is_multiple_of(full);
        if partial(arrival.bytes) && partial(before) {
            return Due::ByLength;
        }
        Due::No
    }

    /// Whether so many segments reach the limit, which then grows. Never more than half the window
    /// (`tcp_rwnd_set`), told in segments.
    pub(super) fn is_due(&mut self, segments: u32, window_segments: u32) -> bool {
        let limit = self.limit.min(window_segments / 2).max(1);
        if segments < limit {
            return false;
        }
        self.due = Some(limit);
        self.limit = (self.limit + 1).min(self.limit_max);
        true
    }

    /// Segments that the acknowledgement that is due covers, as each would have been counted when
    /// it arrived.
    pub(super) fn step(&self) -> Option<u32> {
        self.due
    }

    /// More than a segment was waiting when the delay was over: for the rest of the connection a
    /// step back, and on from two.
    pub(super) fn on_timer(&mut self) {
        self.step_back();
        self.limit = self.limit_chosen.min(2);
    }

    /// An old segment: perhaps our ACK came too late.
    pub(super) fn on_unacceptable(&mut self, any_unacked: bool) {
        if any_unacked {
            self.step_back();
        }
        self.limit = 1;
    }

    fn step_back(&mut self) {
        self.limit_max = (self.limit_max - 1).max(2).min(self.limit_chosen);
    }

    /// `tcp_rwnd_reopen`: when the peer could not send what the limit waits for.
    pub(super) fn is_due_on_read(&self, read: &Read) -> bool {
        let full = read.full_segment_bytes;
        let short = read.window_known < self.limit.saturating_mul(full);
        let growth = read.window_new.saturating_sub(read.window_known);
        (short && growth >= full) || read.has_reopened()
    }

    /// An acknowledgement left; one that data carried does not move the limit.
    pub(super) fn on_sent(&mut self) {
        self.due = None;
    }
}
