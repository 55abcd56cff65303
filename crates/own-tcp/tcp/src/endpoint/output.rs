//! Output: which connection sends next, and answers that belong to no connection.

use std::time::Instant;

use super::{Endpoint, EndpointCounters};
use crate::Chain;
use crate::wire::{Cut, Flags, FourTuple, Packet, Segment};

impl Endpoint {
    /// Returns the next packet to send; `None` if there is nothing to send now.
    #[inline]
    pub fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let mut packet = Some(Packet::default());
        if !self.poll_packet_into(packet.as_mut()?, now) {
            packet = None;
        }
        packet
    }

    /// Writes the next packet into `packet`, whatever was in it. False if there is nothing to send
    /// now. 10 to 20 ns cheaper than [`poll_packet`](Self::poll_packet), whose copy of the packet
    /// waits until the packet is stored.
    pub fn poll_packet_into(&mut self, packet: &mut Packet, now: Instant) -> bool {
        if !packet.payload.is_empty() {
            packet.payload = Chain::new();
        }
        packet.segment_size = 0;
        if !(self.parts.is_empty() && self.answers.is_empty()) {
            let waiting = self.parts.pop_front().or_else(|| self.answers.pop_front());
            *packet = waiting.unwrap_or_default();
        } else if self.cutting.is_some() {
            self.write_part(packet);
        } else if !self.next_of_connections(packet, now) {
            return false;
        }
        self.counters.packets_sent += 1;
        self.counters.octets_sent += packet.len() as u64;
        true
    }

    fn next_of_connections(&mut self, packet: &mut Packet, now: Instant) -> bool {
        while let Some(&index) = self.work.front() {
            let Some(slot) = self.table.at_mut(index) else {
                self.work.pop_front();
                self.turn = 0;
                continue;
            };
            let edge = slot.connection.window_edge();
            // Used by reference, to avoid a move.
            let mut segment = slot.connection.poll_segment(now);
            let advances = slot.connection.window_edge() != edge;
            let Some(segment) = &mut segment else {
                self.work.pop_front();
                self.turn = 0;
                self.rest(index, now);
                continue;
            };
            let path = slot.path.into();
            self.counters.count_sent(segment, advances);
            self.turn += 1;
            if self.turn >= TURN_UNITS {
                self.work.rotate_left(1);
                self.turn = 0;
            }
            if self.cut && segment.segment_size > 0 {
                let cut = Cut::new(path, segment, self.checksum);
                self.cutting = Some((self.table.id(index), cut));
                self.write_part(packet);
            } else {
                packet.write(&path, segment, self.checksum);
            }
            return true;
        }
        false
    }

    /// Writes the next part of the super-segment that is being cut.
    fn write_part(&mut self, packet: &mut Packet) {
        let Some((id, cut)) = &mut self.cutting else {
            return;
        };
        let table = &self.table;
        let sum_of = |seq, bytes| table.get(*id)?.connection.sum_of(seq, bytes);
        if !cut.write_next(packet, sum_of) {
            self.cutting = None;
        }
    }

    fn cut(&mut self, path: &FourTuple, segment: Segment) {
        let checksum = self.checksum;
        let parts = segment.split();
        self.parts
            .extend(parts.map(|part| Packet::emit(path, part, checksum)));
    }

    /// Collects all segments that a connection sends in answer to the one just received.
    #[cold]
    pub(super) fn answer_before_its_turn(&mut self, index: u32, now: Instant) {
        while self.parts.len() < ANSWERS_MAX {
            let Some(slot) = self.table.at_mut(index) else {
                return;
            };
            let (path, edge) = (slot.path.into(), slot.connection.window_edge());
            let Some(segment) = slot.connection.poll_segment(now) else {
                return;
            };
            let advances = slot.connection.window_edge() != edge;
            self.counters.count_sent(&segment, advances);
            if self.cut && segment.segment_size > 0 {
                self.cut(&path, segment);
            } else {
                self.parts
                    .push_back(Packet::emit(&path, segment, self.checksum));
            }
        }
    }

    /// Sends a reset for `segment` (RFC 9293 §3.10.7.1).
    pub(super) fn reset(&mut self, path: &FourTuple, segment: &Segment) {
        let answer = if segment.flags.contains(Flags::ACK) {
            Segment {
                seq: segment.ack,
                flags: Flags::RST,
                ..Segment::default()
            }
        } else {
            Segment {
                ack: segment.end(),
                flags: Flags::RST | Flags::ACK,
                ..Segment::default()
            }
        };
        self.answer(path, answer);
    }

    pub(super) fn answer(&mut self, path: &FourTuple, segment: Segment) {
        if self.answers.len() >= ANSWERS_MAX {
            self.counters.answers_suppressed += 1;
            return;
        }
        self.answers
            .push_back(Packet::emit(path, segment, self.checksum));
    }
}

impl EndpointCounters {
    #[inline]
    fn count_sent(&mut self, segment: &Segment, advances: bool) {
        if segment.is_pure_ack() {
            self.pure_acks_sent += 1;
            self.window_advancing_acks_sent += u64::from(advances);
        }
    }
}

/// Units that a connection sends before the next connection has its turn.
const TURN_UNITS: u32 = 16;
/// Limit of waiting resets and cookies, and of immediate answers.
const ANSWERS_MAX: usize = 1024;
