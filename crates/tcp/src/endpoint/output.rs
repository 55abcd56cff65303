//! Packets out: whose turn it is, and answers that belong to no connection.

use std::time::Instant;

use super::table::Slot;
use super::{ConnId, Endpoint, EndpointCounters};
use crate::wire::{Checksum, Flags, FourTuple, Packet, Segment};

impl Endpoint {
    /// The next packet to send, or `None` when there is nothing to send now.
    #[inline]
    pub fn poll_packet(&mut self, now: Instant) -> Option<Packet> {
        let mut packet = Some(Packet::default());
        if !self.next_packet(packet.as_mut()?, now) {
            packet = None;
        }
        packet
    }

    /// Writes it where it is to be, for the reason at [`Packet::write`]; whether there was one.
    fn next_packet(&mut self, packet: &mut Packet, now: Instant) -> bool {
        if let Some(waiting) = self.parts.pop_front().or_else(|| self.answers.pop_front()) {
            *packet = waiting;
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
            let counters = &mut self.counters;
            let slot = self.table.at_mut(index);
            // By reference, for the same reason.
            let mut segment = slot.and_then(|slot| next_segment(slot, counters, now));
            let Some(segment) = &mut segment else {
                self.work.pop_front();
                self.turn = 0;
                self.rest(index, now);
                continue;
            };
            self.turn += 1;
            if self.turn >= TURN_UNITS {
                self.work.rotate_left(1);
                self.turn = 0;
            }
            let Some(path) = self.table.path(index) else {
                continue;
            };
            if self.cut && segment.segment_size > 0 {
                self.cutting = Some(Cutting {
                    id: self.table.id(index),
                    path,
                    rest: std::mem::take(segment),
                });
                self.write_part(packet);
            } else {
                packet.write(&path, segment, self.checksum);
            }
            return true;
        }
        false
    }

    /// The next part of what is being cut.
    fn write_part(&mut self, packet: &mut Packet) {
        let Some(cutting) = &mut self.cutting else {
            return;
        };
        let (path, first) = (cutting.path, cutting.rest.cut_first());
        let is_last = first.is_none();
        let mut part = first.unwrap_or_else(|| std::mem::take(&mut cutting.rest));
        if self.checksum == Checksum::Complete
            && let Some(slot) = self.table.get(cutting.id)
        {
            // Taken as it was copied in, for just this part.
            let sum = slot.connection.sum_of(part.seq, part.payload.len());
            part.payload.set_sum(sum);
        }
        packet.write(&path, &mut part, self.checksum);
        if is_last {
            self.cutting = None;
        }
    }

    fn cut(&mut self, path: &FourTuple, segment: Segment) {
        let checksum = self.checksum;
        let parts = segment.split();
        self.parts
            .extend(parts.map(|part| Packet::emit(path, part, checksum)));
    }

    /// Lets a connection say all it has to say about the segment it has just taken in.
    #[cold]
    pub(super) fn answer_before_its_turn(&mut self, index: u32, now: Instant) {
        while self.parts.len() < ANSWERS_MAX {
            let Some(slot) = self.table.at_mut(index) else {
                return;
            };
            let Some(segment) = next_segment(slot, &mut self.counters, now) else {
                return;
            };
            let path = slot.path.into();
            if self.cut && segment.segment_size > 0 {
                self.cut(&path, segment);
            } else {
                self.parts
                    .push_back(Packet::emit(&path, segment, self.checksum));
            }
        }
    }

    /// RFC 9293 §3.10.7.1.
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

/// What a connection sends next, counted.
#[inline]
fn next_segment(slot: &mut Slot, counters: &mut EndpointCounters, now: Instant) -> Option<Segment> {
    let edge = slot.connection.window_edge();
    let segment = slot.connection.poll_segment(now);
    if segment.as_ref().is_some_and(Segment::is_pure_ack) {
        counters.pure_acks_sent += 1;
        counters.window_advancing_acks_sent += u64::from(slot.connection.window_edge() != edge);
    }
    segment
}

/// A super-segment on its way through a device that does not cut.
pub(super) struct Cutting {
    id: ConnId,
    path: FourTuple,
    /// What has not left.
    rest: Segment,
}

/// Units a connection sends before the next has its turn.
const TURN_UNITS: u32 = 16;
/// Resets and cookies waiting for the device; answers before their turn.
const ANSWERS_MAX: usize = 1024;
