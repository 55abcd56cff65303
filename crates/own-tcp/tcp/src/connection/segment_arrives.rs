//! SEGMENT ARRIVES (RFC 9293 §3.10.7): the list of steps. Each step is a function in another file.

use std::ops::ControlFlow;
use std::time::Instant;

use super::{Connection, State};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Processes a received segment or super-segment of this connection.
    pub fn on_segment(&mut self, mut segment: Segment, now: Instant) {
        self.take_in(&mut segment, now);
    }

    /// Processes a received segment without moving it. Its payload is taken out.
    pub(crate) fn take_in(&mut self, segment: &mut Segment, now: Instant) {
        self.count_received(segment);
        match self.state {
            State::Closed => {}
            State::SynSent => self.on_segment_in_syn_sent(segment, now),
            _ => {
                // A step that returns `Break` has dropped the segment and arranged any answer.
                let _ = self.on_segment_otherwise(segment, now);
            }
        }
        self.debug_assert_invariants();
    }

    /// Follows the steps of RFC 9293 §3.10.7.4.
    fn on_segment_otherwise(&mut self, segment: &mut Segment, now: Instant) -> ControlFlow<()> {
        // First, check the sequence number; RFC 7323 §5.3 puts PAWS before it.
        self.check_repeated_syn(segment)?;
        self.check_timestamps(segment, now)?;
        self.check_sequence(segment, now)?;
        // Second, check the RST bit.
        self.check_reset(segment, now)?;
        // Third, security: not used in practice. Fourth, check the SYN bit.
        self.check_syn(segment, now)?;
        // Fifth, check the ACK field.
        self.check_ack(segment, now)?;
        self.on_heard(now);
        self.take_timestamps(segment);
        self.process_ack(segment, now)?;
        // Sixth, check the URG bit.
        if segment.flags.contains(Flags::URG) {
            self.take_urgent(segment);
        }
        // Seventh, process the segment text.
        self.process_congestion_mark(segment);
        self.note_fin(segment);
        self.process_text(segment, now)?;
        if segment.options.ack_rate.is_some() {
            self.take_ack_rate(segment);
        }
        // Eighth, check the FIN bit.
        self.process_fin(now);
        ControlFlow::Continue(())
    }

    pub(super) fn count_received(&mut self, segment: &Segment) {
        self.counters.super_segments_received += 1;
        self.counters.segments_received += u64::from(segment.wire_segments());
        self.counters.pure_acks_received += u64::from(segment.is_empty());
    }

    /// Notes that the peer is alive.
    fn on_heard(&mut self, now: Instant) {
        self.heard_ns = self.timers.ns(now);
        self.unanswered = 0;
        self.soft_error = None;
    }
}
