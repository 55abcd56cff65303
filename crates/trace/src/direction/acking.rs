//! ACKs that this end sends: their kind, the data that they cover, and the window that they offer.

use super::{Coverage, Direction};
use crate::policy::{Covered, Window};
use crate::segment::{Segment, flag};

/// Facts about a segment with the ACK flag that are not in the segment itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acking {
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    pub(crate) at_ns: u64,
    /// Time since the packet before, ns.
    pub(crate) silence_ns: u64,
    /// True if the capture has times.
    pub(crate) timed: bool,
    pub(crate) window_changed: bool,
    /// True if the segment carries sequence numbers that were not sent before.
    pub(crate) new: bool,
}

/// State of both directions before an ACK.
#[derive(Debug, Clone, Copy)]
struct Before {
    /// Lowest unacknowledged number of the data.
    una: u64,
    was_in_flight: bool,
    /// Right edge of the window that the data's sender had.
    edge: u64,
    /// Largest window that the ACK's sender had offered, bytes.
    window_most: u32,
    /// True if the ACK may answer a gap, or a duplicate ACK was the last.
    disturbed: bool,
}

/// Window that a segment offers.
#[derive(Debug, Clone, Copy)]
struct Offered {
    bytes: u64,
    /// Bytes that one unit of the window field stands for.
    unit_bytes: u64,
}

impl Direction {
    /// Handles an ACK that this end sends for data of `there`. Returns what it covers for the first
    /// time; `None` if nothing. Inlined by order: programs that watch in two ways have two callers.
    #[inline(always)]
    pub(crate) fn on_ack(
        &mut self,
        there: &mut Direction,
        segment: &Segment,
        acking: Acking,
    ) -> Option<Coverage> {
        let Acking { ack, at_ns, .. } = acking;
        let pure = segment.is_pure_ack();
        if ack > there.nxt && there.is_doubtful(ack) {
            self.sent.doubtful_segments += 1;
            self.sent.pure_acks += u64::from(pure);
            return None;
        }
        let before = Before {
            una: there.una,
            was_in_flight: there.in_flight() > 0
                || there.is_unseen() && acking.silence_ns < UNSEEN_NS,
            edge: there.allowed,
            window_most: self.window_most,
            disturbed: self.answers_disturbed || there.has_gap(),
        };
        if self.window_shift.is_none() && !segment.any(flag::SYN) {
            self.infer_scale(ack, segment.window);
        }
        let window = self.offered_window(segment);
        if !segment.any(flag::SYN) {
            self.window_most = self.window_most.max(window.bytes as u32);
        }
        let echo = segment.options.timestamps.map(|(_, echo)| echo);
        let coverage = there.on_acked(ack, at_ns, echo, segment.payload == 0);
        // The window of an older ACK is out of date.
        if ack >= there.una {
            there.allowed = ack + window.bytes;
            there.offered = window.bytes;
        }
        there.learn(at_ns, coverage.is_some(), self.rtt.min_ns.unwrap_or(0));
        if coverage.is_some() {
            self.answers_disturbed = segment.options.sack_blocks > 0;
        }
        if pure {
            self.count_pure_ack(segment, &acking, &before, coverage.is_none());
        }
        if let Some(coverage) = coverage.filter(|coverage| coverage.bytes > 0) {
            let covered = self.covered(there, segment, &acking, &before, &window, &coverage);
            self.acks.add(covered, there.mss.bytes);
        }
        if is_dsack(segment) {
            there.on_dsack(segment.options.sack[0].0);
        }
        if acking.timed
            && let Some((value, echo)) = segment.options.timestamps
        {
            there.rtt.on_echo(echo, at_ns, acking.silence_ns);
            if acking.new || pure {
                self.rtt.on_sent(value, at_ns, acking.new);
            }
        }
        coverage
    }

    /// Window that a segment of this end offers.
    #[inline(always)]
    fn offered_window(&self, segment: &Segment) -> Offered {
        let shift = if segment.any(flag::SYN) {
            0
        } else {
            self.window_shift.unwrap_or(0)
        };
        Offered {
            bytes: u64::from(segment.window) << shift,
            unit_bytes: 1 << shift,
        }
    }

    /// Counts a pure ACK by its kind: keepalive, window update, duplicate or none of these.
    #[inline(always)]
    fn count_pure_ack(
        &mut self,
        segment: &Segment,
        acking: &Acking,
        before: &Before,
        covers_nothing: bool,
    ) {
        let sent = &mut self.sent;
        if covers_nothing && acking.seq + 1 == self.nxt && self.una == self.nxt {
            sent.keepalives += 1;
            return;
        }
        sent.pure_acks += 1;
        // In a capture of one direction ACKs advance but cover no data.
        if covers_nothing && before.una > 0 && acking.ack == before.una {
            sent.window_updates += u64::from(acking.window_changed);
            // A closed window is repeated for each probe: nothing was lost.
            let duplicate = !acking.window_changed && before.was_in_flight && segment.window > 0;
            sent.duplicate_acks += u64::from(duplicate);
            self.answers_disturbed |= duplicate;
        }
    }

    /// Facts about an ACK that covers payload, for guessing the ACK policy.
    #[inline(always)]
    fn covered(
        &self,
        there: &Direction,
        segment: &Segment,
        acking: &Acking,
        before: &Before,
        window: &Offered,
        coverage: &Coverage,
    ) -> Covered {
        let edge = acking.ack + window.bytes;
        let least_full = window.unit_bytes.max(u64::from(there.mss.bytes));
        let rtt_min_ns = there.rtt.min_ns.unwrap_or(0);
        let is_near_here = rtt_min_ns.saturating_mul(NEAR) < self.rtt.min_ns.unwrap_or(0);
        let newest_at_ns = coverage.newest_at_ns.filter(|_| acking.timed);
        Covered {
            pure: segment.is_pure_ack(),
            bytes: coverage.bytes,
            wire_segments: coverage.wire_segments,
            packets: coverage.packets,
            on_boundary: coverage.on_boundary,
            window: Window {
                edge_bytes: self.window_shift.map(|_| edge.saturating_sub(before.edge)),
                unit_bytes: window.unit_bytes,
                is_full: window.bytes + least_full > u64::from(before.window_most),
            },
            between_arrivals: acking.timed
                && is_near_here
                && coverage.is_between_arrivals(acking.at_ns),
            late_ns: newest_at_ns.map(|newest| {
                let age_ns = acking.at_ns.saturating_sub(newest).min(acking.silence_ns);
                age_ns.saturating_sub(rtt_min_ns)
            }),
            disturbed: before.disturbed || segment.options.sack_blocks > 0,
        }
    }
}

impl Coverage {
    /// True if an ACK at this time left neither with the newest packet that it covers nor after a
    /// pause. ACKs that a reader triggers have no fixed relation to arrivals.
    fn is_between_arrivals(&self, at_ns: u64) -> bool {
        let (Some(oldest), Some(newest)) = (self.oldest_at_ns, self.newest_at_ns) else {
            return false;
        };
        let after_ns = at_ns.saturating_sub(newest);
        let spacing_ns = newest.saturating_sub(oldest) / self.packets.max(2).saturating_sub(1);
        self.packets > 1 && after_ns >= WITH_IT_NS.max(spacing_ns / 4) && after_ns / 4 <= spacing_ns
    }
}

/// Ratio of the two round trips from which the point of capture is taken to be at the end that
/// acknowledges. Only there are the times of ACKs those at which they were sent.
const NEAR: u64 = 4;

/// Silence after which an ACK that repeats another, of data that the capture does not hold, is taken for the answer to a
/// keepalive.
const UNSEEN_NS: u64 = 1_000_000_000;

/// Limit of the delay of an ACK that an arrival triggered. Linux acknowledges within some µs, in
/// the softirq that brings the segment; a later ACK waited for something else.
const WITH_IT_NS: u64 = 20_000;

/// True if the segment has a DSACK block. RFC 2883: the first block is below the ACK, or within the
/// second block.
pub(crate) fn is_dsack(segment: &Segment) -> bool {
    if segment.options.sack_blocks == 0 {
        return false;
    }
    let [(left, right), (outer_left, outer_right)] = segment.options.sack;
    let before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
    before(left, segment.ack)
        || (segment.options.sack_blocks > 1
            && !before(left, outer_left)
            && !before(outer_right, right))
}
