//! An ACK that this end sends: what it is, what it covers, and the window that it offers.

use super::{Coverage, Half};
use crate::acks::Covered;
use crate::segment::{Segment, flag};

/// What is known of a segment with the ACK flag beside itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Acking {
    pub(crate) seq: u64,
    pub(crate) ack: u64,
    pub(crate) at_ns: u64,
    /// Since the packet before.
    pub(crate) silence_ns: u64,
    /// Whether the capture tells times.
    pub(crate) timed: bool,
    pub(crate) window_changed: bool,
    /// Whether it carries sequence numbers that were not sent before.
    pub(crate) new: bool,
}

impl Half {
    /// This end acknowledges what `there` sent; what that covers for the first time.
    #[inline]
    pub(crate) fn on_ack(
        &mut self,
        there: &mut Half,
        segment: &Segment,
        acking: Acking,
    ) -> Option<Coverage> {
        let Acking {
            seq, ack, at_ns, ..
        } = acking;
        let shift = if segment.any(flag::SYN) {
            0
        } else {
            self.window_shift.unwrap_or(0)
        };
        let pure = segment.is_pure_ack();
        if ack > there.nxt && there.is_doubtful(ack) {
            self.sent.doubtful_segments += 1;
            self.sent.pure_acks += u64::from(pure);
            return None;
        }
        let allowed = ack + (u64::from(segment.window) << shift);
        let opens_window = allowed > there.allowed + ack.saturating_sub(there.una.max(1));
        let was_in_flight = there.in_flight();
        let was_gap = there.has_gap();
        let coverage = there.on_acked(ack, at_ns);
        // An older ACK's window is out of date.
        if ack >= there.una {
            there.allowed = allowed;
        }
        let disturbed = self.answers_disturbed || segment.options.sack_blocks > 0 || was_gap;
        if coverage.is_some() {
            self.answers_disturbed = segment.options.sack_blocks > 0;
        }
        if pure {
            let repeats = coverage.is_none();
            let sent = &mut self.sent;
            if repeats && seq + 1 == self.nxt && self.una == self.nxt {
                sent.keepalives += 1;
            } else {
                sent.pure_acks += 1;
                if repeats && ack == there.una {
                    sent.window_updates += u64::from(acking.window_changed);
                    self.acks.on_repeated(opens_window);
                    let duplicate = !acking.window_changed && was_in_flight > 0;
                    sent.duplicate_acks += u64::from(duplicate);
                    self.answers_disturbed |= duplicate;
                }
            }
        }
        if let Some(coverage) = coverage.filter(|coverage| coverage.bytes > 0) {
            let rtt_min_ns = there.rtt.min_ns.unwrap_or(0);
            let newest_at_ns = coverage.newest_at_ns.filter(|_| acking.timed);
            let covered = Covered {
                pure,
                bytes: coverage.bytes,
                wire_segments: coverage.wire_segments,
                packets: coverage.packets,
                on_boundary: coverage.on_boundary,
                opens_window,
                late_ns: newest_at_ns.map(|newest| {
                    let age_ns = at_ns.saturating_sub(newest).min(acking.silence_ns);
                    age_ns.saturating_sub(rtt_min_ns)
                }),
                disturbed,
            };
            self.acks.add(covered, there.mss.bytes);
        }
        if segment.options.sack_blocks > 0 && is_dsack(segment) {
            there.on_dsack(segment.options.sack[0].0);
        }
        if acking.timed
            && let Some((value, echo)) = segment.options.timestamps
        {
            there.rtt.on_echo(echo, at_ns);
            if acking.new {
                self.rtt.on_sent(value, at_ns);
            }
        }
        coverage
    }
}

/// RFC 2883: the first block is below the ACK, or within the second block.
fn is_dsack(segment: &Segment) -> bool {
    let [(left, right), (outer_left, outer_right)] = segment.options.sack;
    let before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
    before(left, segment.ack)
        || (segment.options.sack_blocks > 1
            && !before(left, outer_left)
            && !before(outer_right, right))
}
