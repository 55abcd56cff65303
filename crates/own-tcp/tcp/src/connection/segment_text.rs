//! Seventh and eighth steps: the segment text and the FIN bit (RFC 9293 §3.10.7.4).

use std::ops::ControlFlow;
use std::time::Instant;

use super::ack::{AckDecision, Arrival, Gap, Unacceptable};
use super::reassembly::Inserted;
use super::timers::Timer;
use super::{Connection, Ended, State};
use crate::wire::{Ecn, Flags, Segment};
use crate::{Chain, SeqNum};

impl Connection {
    /// Processes the ECN field (RFC 3168 §6.1.3): a mark is echoed in every ACK until the peer
    /// sends CWR.
    pub(super) fn process_congestion_mark(&mut self, segment: &Segment) {
        if !self.ecn.on || segment.payload.is_empty() {
            return;
        }
        let before = self.ecn.echo;
        if segment.flags.contains(Flags::CWR) {
            self.ecn.echo = false;
        }
        // Quick ACKs, because the peer's window may be tiny: at a first mark, and (as in Linux) for
        // a segment without ECN among others with ECN, which is probably a retransmission.
        let hurry = match segment.ecn {
            Ecn::Congested => !std::mem::replace(&mut self.ecn.echo, true),
            Ecn::NotCapable => self.ecn.seen,
            _ => false,
        };
        self.ecn.seen |= segment.ecn != Ecn::NotCapable;
        if self.ecn.echo != before {
            self.owe_ack();
        }
        if hurry {
            self.ack
                .on_congestion_mark(&self.config.ack, self.rcv.acked_window);
        }
    }

    pub(super) fn process_text(&mut self, segment: &mut Segment, now: Instant) -> ControlFlow<()> {
        let bytes = segment.payload.len() as u32;
        if bytes == 0 {
            return ControlFlow::Continue(());
        }
        if !self.state.may_receive() {
            // After the peer's FIN nothing can follow.
            self.counters.dropped_payload += 1;
            return ControlFlow::Continue(());
        }
        let (start, end) = (segment.seq, segment.seq + bytes);
        if end.at_or_before(self.rcv.nxt) {
            self.counters.duplicates_received += 1;
            self.report_duplicate(start, end);
            self.owe_ack();
            self.note_unacceptable(Unacceptable::OldData);
            return ControlFlow::Continue(());
        }
        if self.rcv.abandoned {
            self.abort_for_text(segment.ack);
            return ControlFlow::Break(());
        }
        // `heard_ns` was set for this segment.
        self.rcv.data_ns = self.heard_ns;
        self.learn_full_segment(segment, bytes);
        let border = self
            .rcv
            .fin
            .map_or(self.rcv.edge, |fin| fin.min(self.rcv.edge));
        let (from, to) = (start.max(self.rcv.nxt), end.min(border));
        if from.at_or_after(to) {
            // The segment is a probe of a closed window.
            self.counters.dropped_payload += 1;
            self.owe_ack();
            self.note_unacceptable(Unacceptable::BeyondWindow);
            return ControlFlow::Continue(());
        }
        self.report_overlap(start, from, to);
        let unit = Unit {
            wire_segments: segment.wire_segments(),
            segment_bytes: segment_bytes(segment, bytes),
            push: segment.flags.contains(Flags::PSH),
        };
        let text = &mut segment.payload;
        if (from, to) != (start, end) {
            *text = text.slice(from.since(start) as usize..to.since(start) as usize);
        }
        if from == self.rcv.nxt {
            self.take_in_order(text, unit, now);
        } else {
            self.take_ahead(from, text, &unit, now);
        }
        ControlFlow::Continue(())
    }

    /// Ends the connection because of data that no application will read: it is lost, and the peer
    /// must know (RFC 9293 §3.6.1, SHLD-3).
    fn abort_for_text(&mut self, expected: SeqNum) {
        self.counters.dropped_payload += 1;
        self.end(Some(Ended::Aborted));
        // The reset has the sequence number that the peer expects. A later one would only be
        // challenged (RFC 5961 §3).
        self.owed.reset = Some((expected, false));
    }

    /// Reports the part of a segment that was received before. `from..to`: its part in the window.
    #[inline]
    fn report_overlap(&mut self, start: SeqNum, from: SeqNum, to: SeqNum) {
        if start.before(self.rcv.nxt) {
            self.report_duplicate(start, self.rcv.nxt);
            if self.sack {
                self.owe_ack();
            }
        } else if let Some((start, end)) = self.rcv.queue.reassembly.overlap(from, to) {
            self.report_duplicate(start, end);
        }
    }

    fn take_in_order(&mut self, text: &mut Chain, unit: Unit, now: Instant) {
        let gap = !self.rcv.queue.reassembly.is_empty();
        let before = self.rcv.nxt;
        let held = self.rcv.queue.reassembly.bytes();
        self.rcv.nxt = self
            .rcv
            .queue
            .push(&self.pool, before, text, self.rcv.buffer);
        let taken = held - self.rcv.queue.reassembly.bytes();
        self.counters.payload_bytes_received +=
            u64::from(self.rcv.nxt.since(before).saturating_sub(taken));
        if gap {
            if self.rcv.discarded {
                self.discard(now);
            }
            // RFC 5681 §4.2: the segment fills all or part of a gap.
            if self.rcv.queue.reassembly.is_empty() || !self.sack {
                self.owe_ack();
            } else {
                self.acknowledge_gap(&unit, now);
            }
            return;
        }
        let arrival = Arrival {
            wire_segments: unit.wire_segments,
            bytes: self.rcv.nxt.since(before),
            segment_bytes: unit.segment_bytes,
            push: unit.push,
            full_segment_bytes: self.rcv.full_segment,
            unacked_bytes: self.rcv.nxt.since(self.rcv.acked),
            window_bytes: self.rcv.acked_window,
            window_new: self.window_free().min(self.window_max()),
            srtt: if self.config.ack.wants_rtt() {
                self.rtt.srtt()
            } else {
                None
            },
            now,
        };
        let decision = self.ack.on_segment(&self.config.ack, &arrival);
        self.follow(decision);
        if self.rcv.discarded {
            self.discard(now);
        }
    }

    /// Carries out the policy's decision.
    pub(super) fn follow(&mut self, decision: AckDecision) {
        match decision {
            AckDecision::Now => self.owed.acks = self.owed.acks.max(1),
            // Linux and policies of other crates move the deadline earlier; for the others the
            // oldest segment sets it.
            AckDecision::By(deadline) if self.config.ack.moves_deadline() => {
                self.timers.advance(Timer::Ack, deadline);
            }
            AckDecision::By(deadline) => self.timers.start(Timer::Ack, deadline),
            AckDecision::Nothing => {}
        }
    }

    fn take_ahead(&mut self, start: SeqNum, text: &mut Chain, unit: &Unit, now: Instant) {
        self.counters.out_of_order_received += 1;
        let before = self.rcv.queue.reassembly.bytes();
        match self.rcv.queue.keep(&self.pool, start, text) {
            Inserted::New => {
                let new = self.rcv.queue.reassembly.bytes() - before;
                self.counters.payload_bytes_received += u64::from(new);
            }
            Inserted::Duplicate => self.counters.duplicates_received += 1,
            Inserted::TooMany => self.counters.dropped_payload += 1,
        }
        if self.sack {
            self.acknowledge_gap(unit, now);
        } else {
            // One ACK per segment, because a peer without SACK counts duplicates.
            self.ack.on_mandatory();
            self.owed.acks = self.owed.acks.saturating_add(1);
        }
    }

    /// Asks the policy for an ACK while a gap remains and SACK is in use.
    fn acknowledge_gap(&mut self, unit: &Unit, now: Instant) {
        let gap = Gap {
            nxt: self.rcv.nxt,
            segment_bytes: unit.segment_bytes,
            push: unit.push,
            unacked_bytes: self.rcv.nxt.since(self.rcv.acked),
            reader_keeps_up: self.window_free().min(self.window_max()) >= self.rcv.acked_window,
            untold_ranges: self.rcv.queue.reassembly.news(),
            srtt: self.rtt.srtt(),
            now,
        };
        let config = &self.config;
        let decision = self.ack.on_gap(&config.ack, &config.linux_acks, &gap);
        self.follow(decision);
    }

    /// Stores the sequence number of the peer's FIN, which may be after a gap.
    pub(super) fn note_fin(&mut self, segment: &Segment) {
        if !segment.flags.contains(Flags::FIN) || self.rcv.fin.is_some() {
            return;
        }
        let fin = segment.end() - 1;
        if self
            .rcv
            .queue
            .reassembly
            .end()
            .is_some_and(|end| end.after(fin))
        {
            // The peer has sent data beyond this FIN, so one of the two segments is forged.
            self.counters.dropped_unacceptable += 1;
            return;
        }
        // A FIN may lie one beyond the window, because it needs no buffer.
        if fin.at_or_after(self.rcv.nxt) && fin.at_or_before(self.rcv.edge) {
            self.rcv.fin = Some(fin);
            if segment.payload.is_empty() {
                self.owe_ack();
            }
        }
    }

    /// Processes the FIN once all data before it is here.
    pub(super) fn process_fin(&mut self, now: Instant) {
        if self.rcv.fin != Some(self.rcv.nxt) || self.rcv.finished {
            return;
        }
        self.rcv.finished = true;
        self.rcv.nxt += 1;
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt);
        self.owe_ack();
        match self.state {
            State::SynReceived | State::Established => self.become_state(State::CloseWait),
            State::FinWait1 => self.become_state(State::Closing),
            State::FinWait2 => self.enter_time_wait(now),
            _ => {}
        }
    }

    /// Makes the next ACK report a duplicate range (RFC 2883).
    pub(super) fn report_duplicate(&mut self, start: SeqNum, end: SeqNum) {
        self.rcv.duplicate = Some((start, end));
    }

    /// Learns the peer's full segment size (RMSS): the longest segment seen, at most the MSS that
    /// we announced.
    fn learn_full_segment(&mut self, segment: &Segment, bytes: u32) {
        let size = segment_bytes(segment, bytes).min(u32::from(self.config.mss));
        self.rcv.full_segment = self.rcv.full_segment.max(size);
    }

    /// Tells the ACK policy of an unacceptable segment.
    pub(super) fn note_unacceptable(&mut self, unacceptable: Unacceptable) {
        self.ack
            .on_unacceptable(&self.config.ack, unacceptable, self.rcv.acked_window);
    }

    /// Owes an acknowledgement that no policy may delay.
    pub(super) fn owe_ack(&mut self) {
        self.owed.acks = self.owed.acks.max(1);
        self.ack.on_mandatory();
    }
}

/// Properties of a received segment that the ACK policy sees.
struct Unit {
    wire_segments: u32,
    segment_bytes: u32,
    push: bool,
}

/// Payload of one wire segment of the unit.
fn segment_bytes(segment: &Segment, bytes: u32) -> u32 {
    if segment.segment_size > 0 {
        u32::from(segment.segment_size)
    } else {
        bytes
    }
}
