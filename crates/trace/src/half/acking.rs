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
        let allowed = ack + (u64::from(segment.window) << shift);
        let opens_window = allowed > there.allowed + ack.saturating_sub(there.una.max(1));
        let was_in_flight = there.in_flight();
        let coverage = there.on_acked(ack, at_ns);
        // An older ACK's window is out of date.
        if ack >= there.una {
            there.allowed = allowed;
        }
        let pure = segment.is_pure_ack();
        if pure {
            let repeats = coverage.is_none();
            let sent = &mut self.sent;
            if repeats && seq + 1 == self.nxt && self.una == self.nxt {
                sent.keepalives += 1;
            } else {
                sent.pure_acks += 1;
                if repeats && ack == there.una {
                    sent.window_updates += u64::from(acking.window_changed);
                    sent.duplicate_acks += u64::from(!acking.window_changed && was_in_flight > 0);
                }
            }
        }
        if let Some(coverage) = coverage.filter(|coverage| coverage.bytes > 0) {
            let newest_at_ns = coverage.newest_at_ns.filter(|_| acking.timed);
            let covered = Covered {
                pure,
                bytes: coverage.bytes,
                wire_segments: coverage.wire_segments,
                packets: coverage.packets,
                on_boundary: coverage.on_boundary,
                opens_window,
                age_ns: newest_at_ns.map(|newest| at_ns.saturating_sub(newest)),
            };
            self.acks.add(covered, there.mss.bytes);
        }
        if segment.options.sack_blocks > 0 {
            there.sent.spurious_by_dsack += u64::from(is_dsack(segment));
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
