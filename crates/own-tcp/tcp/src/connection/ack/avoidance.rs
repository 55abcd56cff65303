//! ACK avoidance of Mentat's TCP: HP-UX, Solaris and illumos (`tcp_input_data` at `update_ack`,
//! `tcp_ack_timer`, `tcp_rwnd_reopen` in illumos's usr/src/uts/common/inet/tcp).
//!
//! The policy does not measure the sender's window. It assumes that slow start adds one segment to
//! the window per ACK, and raises its own limit by one per ACK. If the delay expires first, the
//! limit has overtaken the window. Not here: the larger limits that illumos uses for neighbours;
//! the caller chooses `limit_max`.

use super::{Arrival, Read};

/// Reason why an acknowledgement is due after a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    No,
    /// The limit of segments is reached.
    ByLimit,
    /// Two partial segments in a row: probably the end of a message.
    ByLength,
}

/// State of illumos's `tcp_rack_cur_max` and `tcp_rack_abs_max`.
#[derive(Clone, Debug)]
pub(super) struct Avoidance {
    limit: u32,
    limit_max: u32,
    /// Configured `limit_max`. `limit_max` never rises again after it falls, and its minimum of 2
    /// does not exceed a smaller configured value.
    limit_chosen: u32,
    /// Segments covered by the acknowledgement that is due and not yet sent; `None` if none is due.
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

    /// Returns the current limit and its maximum, in segments.
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

    /// True if `segments` reach the limit; the limit then grows by one. The limit is at most half
    /// of `window_segments` (`tcp_rwnd_set`).
    pub(super) fn is_due(&mut self, segments: u32, window_segments: u32) -> bool {
        let limit = self.limit.min(window_segments / 2).max(1);
        if segments < limit {
            return false;
        }
        self.due = Some(limit);
        self.limit = (self.limit + 1).min(self.limit_max);
        true
    }

    /// Segments that the due acknowledgement covers: as many as if each segment had arrived alone.
    /// `None` if none is due.
    pub(super) fn step(&self) -> Option<u32> {
        self.due
    }

    /// Called when more than a segment waited until the delay expired. Lowers the maximum by one
    /// for the rest of the connection and restarts the limit at two.
    pub(super) fn on_timer(&mut self) {
        self.step_back();
        self.limit = self.limit_chosen.min(2);
    }

    /// Called for an old segment, which may mean that our ACK came too late.
    pub(super) fn on_unacceptable(&mut self, any_unacked: bool) {
        if any_unacked {
            self.step_back();
        }
        self.limit = 1;
    }

    fn step_back(&mut self) {
        self.limit_max = (self.limit_max - 1).max(2).min(self.limit_chosen);
    }

    /// True if a read makes an acknowledgement due (`tcp_rwnd_reopen`): the window that the peer
    /// knows is smaller than the limit and has grown by a segment, or the window has reopened.
    pub(super) fn is_due_on_read(&self, read: &Read) -> bool {
        let full = read.full_segment_bytes;
        let short = read.window_known < self.limit.saturating_mul(full);
        let growth = read.window_new.saturating_sub(read.window_known);
        (short && growth >= full) || read.has_reopened()
    }

    /// Called when an acknowledgement was sent. An ACK sent with data does not change the limit.
    pub(super) fn on_sent(&mut self) {
        self.due = None;
    }
}
