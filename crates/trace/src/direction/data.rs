//! Data, SYN and FIN that pass: new, late, or sent again.

use super::{
    Data, Direction, EARLY_MOST, Early, HOLES_MOST, Hole, LATE_NS, OUTSTANDING_MOST, Outstanding,
    RESENT_MOST, Resent, Stamp,
};
use crate::segment::{Segment, flag};

/// Time after a late packet within which a retransmission of acknowledged data is taken for its replacement.
const REPLACED_NS: u64 = 1_000_000_000;

impl Direction {
    /// Counts a captured packet of any kind.
    #[inline]
    pub(crate) fn on_packet(&mut self, segment: &Segment, wire_segments: u32) {
        let sent = &mut self.sent;
        sent.captured_packets += 1;
        sent.ip_octets += u64::from(segment.ip_octets);
        sent.wire_segments += u64::from(wire_segments.max(1));
        sent.sack_segments += u64::from(segment.options.sack_blocks > 0);
        sent.options_cut += u64::from(!segment.options.complete);
        if segment.payload > 0 {
            sent.captured_data_packets += 1;
            sent.data_wire_segments += u64::from(wire_segments);
            sent.super_segments += u64::from(wire_segments > 1);
            sent.payload_bytes += u64::from(segment.payload);
            self.packet_bytes.add(u64::from(segment.payload));
            self.wire_segments_per_packet.add(u64::from(wire_segments));
        }
    }

    /// Counts payload, SYN or FIN by its kind. `silence_ns` is the connection's silence before the
    /// packet.
    #[inline]
    pub(crate) fn on_sequence(
        &mut self,
        segment: &Segment,
        seq: u64,
        length: u64,
        wire_segments: u32,
        at_ns: u64,
        silence_ns: u64,
    ) -> Data {
        if self.una == 0 {
            self.una = seq;
        }
        // A closure, so that the usual packet is written straight into the queue: a copy on the stack took 3 % of all time.
        let packet = || Outstanding {
            start: seq,
            end: seq + length,
            at_ns,
            wire_segments,
            stamp: Stamp::of(segment),
            vague: false,
        };
        if seq == self.nxt {
            self.nxt = seq + length;
            self.count_initial(segment);
            self.push(packet());
            return Data::New;
        }
        self.on_out_of_order(segment, packet(), silence_ns)
    }

    #[inline]
    fn count_initial(&mut self, segment: &Segment) {
        if !self.initial_over {
            self.initial_bytes += u64::from(segment.payload);
        }
    }

    #[cold]
    fn on_out_of_order(&mut self, segment: &Segment, packet: Outstanding, silence_ns: u64) -> Data {
        let outcome = self.on_data_out_of_order(packet);
        if outcome == Data::New {
            self.count_initial(segment);
        }
        match outcome {
            Data::New | Data::Behind => return outcome,
            Data::Doubtful => {
                self.sent.doubtful_segments += 1;
                return outcome;
            }
            Data::Late => {
                self.sent.reordered_packets += 1;
                return outcome;
            }
            Data::Keepalive if segment.payload <= 1 && !segment.any(flag::SYN | flag::FIN) => {
                self.sent.keepalives += 1;
                return outcome;
            }
            Data::Keepalive => self.remember_resent(packet.start, packet.end, packet.stamp, None),
            Data::Retransmitted => {}
        }
        self.syns_retransmitted += u64::from(segment.any(flag::SYN));
        let sent = &mut self.sent;
        sent.retransmitted_packets += 1;
        sent.retransmitted_wire_segments += u64::from(packet.wire_segments.max(1));
        sent.retransmitted_bytes += u64::from(segment.payload);
        let is_delivered = packet.end <= self.una;
        sent.retransmitted_after_ack += u64::from(is_delivered);
        // The original came late, and this is what its sender sent meanwhile.
        let is_late = packet.at_ns.saturating_sub(self.late_ns) < REPLACED_NS;
        let is_needless = is_delivered && self.late_ns > 0 && is_late;
        sent.retransmitted_needlessly += u64::from(is_needless);
        self.is_needless |= is_needless;
        sent.silence_before_retransmission_ns += silence_ns;
        Data::Retransmitted
    }

    /// Handles payload, SYN or FIN that does not begin where the last ended.
    fn on_data_out_of_order(&mut self, packet: Outstanding) -> Data {
        let Outstanding {
            start,
            end,
            at_ns,
            stamp,
            ..
        } = packet;
        if start > self.nxt {
            return self.open_hole(packet);
        }
        if !self.early.is_empty() && self.is_behind_its_ack(start, end, at_ns, stamp) {
            if end <= self.nxt {
                return Data::Behind;
            }
            // An acknowledged part of a super-segment: its rest is new.
            self.push_rest(packet);
            return Data::New;
        }
        if end <= self.nxt && start + 1 == self.nxt && self.una == self.nxt {
            return Data::Keepalive;
        }
        let is_in = |hole: &Hole| start < hole.end && end > hole.start;
        if let Some(place) = self.holes.iter().position(is_in) {
            return self.fill_hole(place, packet);
        }
        if self.was_overtaken(start, end, stamp, at_ns) {
            return Data::Late;
        }
        for outstanding in &mut self.outstanding {
            outstanding.vague |= outstanding.start < end && outstanding.end > start;
        }
        if end > self.nxt {
            // Old and new data in one packet.
            self.push_rest(packet);
        }
        self.remember_resent(start, end, stamp, None);
        Data::Retransmitted
    }

    /// Handles data beyond the next number: the data in between are late, lost or not captured.
    fn open_hole(&mut self, packet: Outstanding) -> Data {
        if self.is_doubtful(packet.end) {
            return Data::Doubtful;
        }
        self.holes.push(Hole {
            start: self.nxt,
            end: packet.start,
            at_ns: packet.at_ns,
            stamp: packet.stamp,
            packets: self.sent.captured_data_packets,
        });
        self.bound_holes();
        self.push(packet);
        self.nxt = packet.end;
        Data::New
    }

    /// Handles data in the gap at `place`. They are late, or sent again.
    fn fill_hole(&mut self, place: usize, packet: Outstanding) -> Data {
        let Outstanding { start, end, .. } = packet;
        let hole = self.holes[place];
        let pieces = [Hole { end: start, ..hole }, Hole { start: end, ..hole }];
        let open = pieces.into_iter().filter(|piece| piece.start < piece.end);
        self.holes.splice(place..=place, open);
        self.bound_holes();
        let next = self.outstanding.iter().position(|other| other.start >= end);
        if let Some(next) = next
            && self.outstanding.len() < OUTSTANDING_MOST
        {
            let filler = Outstanding {
                vague: true,
                ..packet
            };
            self.outstanding.insert(next, filler);
        }
        let late_ns = LATE_NS.max(self.rtt.min_ns.unwrap_or(0));
        let by_time = || packet.at_ns.saturating_sub(hole.at_ns) > late_ns;
        // A retransmission waits for a round trip or a timer, so it has a later timestamp.
        let same_tick = packet
            .stamp
            .timestamp
            .is_some_and(|value| hole.stamp.timestamp == Some(value));
        let by_time = || !same_tick && by_time();
        if packet.stamp.is_after(hole.stamp).unwrap_or_else(by_time) {
            self.remember_resent(start, end, packet.stamp, Some(hole));
            Data::Retransmitted
        } else {
            self.note_late(packet.at_ns, hole.at_ns, hole.packets);
            Data::Late
        }
    }

    /// Forgets the lowest gap if there are too many.
    fn bound_holes(&mut self) {
        if self.holes.len() > HOLES_MOST {
            self.holes.remove(0);
            self.sent.gaps_not_followed += 1;
        }
    }

    /// Remembers bytes that were acknowledged before the capture held them. Beyond the limit the
    /// oldest are forgotten; they count in `gaps_not_followed` unless they were out of date anyway.
    pub(super) fn remember_early(&mut self, early: Early, now_ns: u64) {
        if self.early.len() == EARLY_MOST
            && let Some(oldest) = self.early.pop_front()
        {
            let is_recent = now_ns.saturating_sub(oldest.at_ns) <= LATE_NS;
            self.sent.gaps_not_followed += u64::from(is_recent);
        }
        self.early.push_back(early);
    }

    /// Notes how far behind its place a packet came.
    fn note_late(&mut self, at_ns: u64, opened_ns: u64, opened_packets: u64) {
        self.late_ns = at_ns;
        let late = &mut self.sent;
        let positions = late.captured_data_packets.saturating_sub(opened_packets);
        late.reordered_positions_most = late.reordered_positions_most.max(positions);
        let ns = at_ns.saturating_sub(opened_ns);
        late.reordered_most_ns = late.reordered_most_ns.max(ns);
    }

    /// Remembers a retransmission. `gap`: the gap that it filled, if the capture misses the original, which was sent before
    /// the packet that opened the gap.
    fn remember_resent(&mut self, start: u64, end: u64, stamp: Stamp, gap: Option<Hole>) {
        if self.resent.len() == RESENT_MOST {
            self.resent.pop_front();
        }
        self.resent.push_back(Resent {
            start,
            end,
            stamp,
            before: gap.map(|gap| gap.stamp),
            opened: gap.map(|gap| (gap.at_ns, gap.packets)),
            is_needless: false,
        });
    }

    /// True if these data are the original of a known retransmission and arrived after it: their time stamp is older than
    /// that of the packet that was sent directly after the original.
    fn was_overtaken(&mut self, start: u64, end: u64, stamp: Stamp, at_ns: u64) -> bool {
        let is_before = |other| stamp.is_after(other) == Some(false);
        let mut resent = self.resent.iter_mut().filter(|resent| {
            resent.start < end && start < resent.end && resent.before.is_some_and(is_before)
        });
        let Some(resent) = resent.next() else {
            return false;
        };
        let is_new = !std::mem::replace(&mut resent.is_needless, true);
        let opened = resent.opened;
        self.sent.retransmitted_needlessly += u64::from(is_new);
        self.is_needless |= is_new;
        if let Some((opened_ns, packets)) = opened {
            self.note_late(at_ns, opened_ns, packets);
        }
        true
    }

    /// Recognises retransmissions in `from..to` that this ACK proves needless: it echoes a timestamp from before they were
    /// sent (Eifel, RFC 3522 §3.2).
    #[cold]
    pub(super) fn on_echo_of_original(&mut self, from: u64, to: u64, echo: u32) {
        for resent in &mut self.resent {
            let is_covered = (from..to).contains(&resent.start) && !resent.is_needless;
            let is_later = |value: u32| value.wrapping_sub(echo).cast_signed() > 0;
            if is_covered && resent.stamp.timestamp.is_some_and(is_later) {
                resent.is_needless = true;
                self.is_needless = true;
                self.sent.retransmitted_needlessly += 1;
            }
        }
    }

    /// True if the capture holds these data after their ACK, as far as they are old. That happens
    /// if several CPUs capture. The bytes are then no longer counted as missing.
    #[cold]
    fn is_behind_its_ack(&mut self, seq: u64, end: u64, at_ns: u64, stamp: Stamp) -> bool {
        let end = end.min(self.nxt);
        let comes_behind = |early: &Early| {
            let was_echoed = stamp
                .timestamp
                .zip(early.echo)
                .map(|(value, echo)| echo.wrapping_sub(value).cast_signed() >= 0);
            was_echoed.unwrap_or(at_ns.saturating_sub(early.at_ns) <= LATE_NS)
        };
        let overlap = |early: &Early| early.end.min(end).saturating_sub(early.start.max(seq));
        let those = self.early.iter().filter(|early| comes_behind(early));
        if those.map(overlap).sum::<u64>() != end - seq {
            return false;
        }
        let mut rest = Vec::new();
        self.early.retain_mut(|early| {
            if overlap(early) == 0 {
                return true;
            }
            if end < early.end && early.start < seq {
                rest.push(Early {
                    start: end,
                    ..*early
                });
            }
            // Bytes before and after stay missing.
            if early.start < seq {
                early.end = seq;
            } else {
                early.start = end.min(early.end);
            }
            early.start < early.end
        });
        for early in rest {
            self.remember_early(early, at_ns);
        }
        let missing = &mut self.sent.bytes_missing_from_capture;
        *missing = missing.saturating_sub(end - seq);
        true
    }

    /// Appends the new bytes of a packet that holds old data as well.
    fn push_rest(&mut self, packet: Outstanding) {
        self.push(Outstanding {
            start: self.nxt,
            vague: true,
            ..packet
        });
        self.nxt = packet.end;
    }

    #[inline]
    fn push(&mut self, packet: Outstanding) {
        if self.outstanding.len() == OUTSTANDING_MOST {
            self.join_two();
        }
        self.outstanding.push_back(packet);
    }

    #[cold]
    fn join_two(&mut self) {
        let oldest = self.outstanding.pop_front();
        if let (Some(oldest), Some(next)) = (oldest, self.outstanding.front_mut()) {
            next.start = oldest.start;
            next.wire_segments = next.wire_segments.saturating_add(oldest.wire_segments);
            next.vague = true;
        }
    }
}
