//! Input: finds the connection of a packet and handles the consequences.

use std::borrow::BorrowMut;
use std::time::Instant;

use super::Endpoint;
use super::time_wait::TimeWaitVerdict;
use crate::SeqNum;
use crate::connection::{Connection, State};
use crate::wire::{self, DropReason, Flags, FourTuple, IcmpSays, Packet, Segment, Train};

impl Endpoint {
    /// Processes a received packet.
    #[inline]
    pub fn on_packet(&mut self, mut packet: Packet, now: Instant) {
        self.on_new(&mut packet, now);
    }

    /// Processes received packets in order. Consecutive segments of one connection are joined and
    /// processed together, as by a device with receive offload. It takes the payload out of
    /// packets that are lent (`&mut Packet`), and may leave the rest.
    pub fn on_packets(
        &mut self,
        packets: impl IntoIterator<Item = impl BorrowMut<Packet>>,
        now: Instant,
    ) {
        let mut packets = packets.into_iter();
        let (mut first, mut second): (Option<Train>, Option<Train>) = (None, None);
        let (mut train, mut next) = (&mut first, &mut second);
        loop {
            // Used in place: a move costs more than the comparison of the headers.
            let mut packet = packets.next();
            let Some(packet) = &mut packet else { break };
            let packet = packet.borrow_mut();
            if self.answers_each {
                self.on_new(packet, now);
                continue;
            }
            self.counters.packets_received += 1;
            if train.as_mut().is_some_and(|train| train.follow(packet)) {
                continue;
            }
            if !packet.is_tcp() {
                self.let_in(train, now);
                self.take_in(packet, now);
                continue;
            }
            match Train::begin(next, packet) {
                Ok(begun) => {
                    if train.as_mut().is_some_and(|train| train.couple(begun)) {
                        continue;
                    }
                    self.let_in(train, now);
                    std::mem::swap(&mut train, &mut next);
                }
                Err(DropReason::Fragment) => {
                    self.let_in(train, now);
                    self.on_fragment(packet, now);
                }
                Err(reason) => self.count_drop(reason),
            }
        }
        self.let_in(train, now);
    }

    fn let_in(&mut self, train: &mut Option<Train>, now: Instant) {
        if let Some(whole) = train {
            self.on_segment(whole.path, &mut whole.segment, now);
            *train = None;
        }
    }

    fn on_new(&mut self, packet: &mut Packet, now: Instant) {
        self.counters.packets_received += 1;
        self.take_in(packet, now);
    }

    pub(super) fn take_in(&mut self, packet: &mut Packet, now: Instant) {
        let mut segment = Segment::default();
        match packet.take_apart(&mut segment) {
            Ok(path) => self.on_segment(path, &mut segment, now),
            Err(DropReason::NotTcp) => self.on_other_packet(packet),
            Err(DropReason::Fragment) => self.on_fragment(packet, now),
            Err(reason) => self.count_drop(reason),
        }
    }

    fn on_segment(&mut self, path: FourTuple, segment: &mut Segment, now: Instant) {
        if self.table.is_at(self.recent, &path) && self.reopens(self.recent, segment).is_none() {
            self.deliver(self.recent, segment, now);
            return;
        }
        let key = self.key(&path);
        if let Some(index) = self.table.find(key, &path) {
            self.recent = index;
            if let Some(above) = self.reopens(index, segment) {
                self.table.remove(index, key);
                self.on_segment_for_none(path, key, segment, Some(above), now);
            } else {
                self.deliver(index, segment, now);
            }
            return;
        }
        match self.time_waits.on_segment(key, &path, segment, now) {
            Some(TimeWaitVerdict::Answer(answer)) => self.answer(&path, answer),
            Some(TimeWaitVerdict::Reopen(above)) => {
                self.on_segment_for_none(path, key, segment, Some(above), now)
            }
            Some(TimeWaitVerdict::Drop) => {}
            None => self.on_segment_for_none(path, key, segment, None, now),
        }
    }

    /// Returns the last sequence number used if `segment` is a SYN that may replace a connection in
    /// TIME-WAIT that the application has not released; else `None`.
    fn reopens(&self, index: u32, segment: &Segment) -> Option<SeqNum> {
        let slot = self.table.at(index)?;
        let reopens = slot.connection.state() == State::TimeWait
            && segment.flags.contains(Flags::SYN)
            && !segment.flags.contains(Flags::ACK)
            && self
                .listeners
                .at(FourTuple::from(slot.path).local)
                .is_some()
            && segment.seq.after(slot.connection.sequence().2);
        reopens.then(|| slot.connection.sequence().1)
    }

    /// Passes a segment to its connection and handles the consequences.
    pub(super) fn deliver(&mut self, index: u32, segment: &mut Segment, now: Instant) {
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let before = ReadinessSnapshot::at(&slot.connection);
        slot.connection.take_in(segment, now);
        if slot.connection.config().answers_each() {
            self.answer_before_its_turn(index, now);
        }
        if before.state == State::SynSent {
            self.learn_cookie(index);
        }
        self.follow_up(index, before);
    }

    /// Puts a connection on the lists it belongs on after an event.
    pub(super) fn follow_up(&mut self, index: u32, before: ReadinessSnapshot) {
        if self.table.at(index).is_some_and(|slot| slot.half_open) {
            self.settle_half_open(index);
        }
        self.enqueue(index);
        let Some(slot) = self.table.at(index) else {
            return;
        };
        if slot.owned && ReadinessSnapshot::at(&slot.connection).is_news(&before) {
            self.notify(index);
        }
    }

    /// Processes a packet that is not TCP. Only ICMP errors about our segments have an effect.
    fn on_other_packet(&mut self, packet: &Packet) {
        let Some(message) = wire::parse_icmp(packet) else {
            self.counters.dropped_protocol += 1;
            return;
        };
        match message.says {
            IcmpSays::TooBig(_) => self.counters.too_big_received += 1,
            IcmpSays::Unreachable(_) => self.counters.unreachable_received += 1,
        }
        let key = self.key(&message.path);
        let Some(index) = self.table.find(key, &message.path) else {
            return;
        };
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let before = ReadinessSnapshot::at(&slot.connection);
        match message.says {
            IcmpSays::TooBig(mtu) => {
                let headers = if message.path.remote.is_ipv4() {
                    40
                } else {
                    60
                };
                slot.connection
                    .on_mtu(message.seq, mtu.saturating_sub(headers));
            }
            IcmpSays::Unreachable(why) => slot.connection.on_unreachable(message.seq, why),
        }
        self.follow_up(index, before);
    }

    pub(super) fn count_drop(&mut self, reason: DropReason) {
        let counters = &mut self.counters;
        let counter = match reason {
            DropReason::NotIp | DropReason::NotTcp => &mut counters.dropped_protocol,
            DropReason::Truncated | DropReason::BadIp | DropReason::BadTcp => {
                &mut counters.dropped_malformed
            }
            DropReason::BadIpChecksum | DropReason::BadTcpChecksum => {
                &mut counters.dropped_checksum
            }
            DropReason::Fragment => &mut counters.dropped_fragment,
        };
        *counter += 1;
    }
}

/// State of a connection that matters to the application.
pub(super) struct ReadinessSnapshot {
    state: State,
    readable: usize,
    finished: bool,
    writable: bool,
    urgent: bool,
}

impl ReadinessSnapshot {
    pub(super) fn at(connection: &Connection) -> Self {
        Self {
            state: connection.state(),
            readable: connection.readable(),
            finished: connection.is_finished(),
            // Linux's rule (sk_stream_is_writeable): writable from a third of the buffer on, so that
            // a writer that filled the buffer is not woken by every acknowledgement.
            writable: connection.writable()
                >= (connection.config().send_buffer as usize / 3).max(1),
            urgent: connection.urgent() > 0,
        }
    }

    fn is_news(&self, before: &Self) -> bool {
        self.readable > before.readable
            || self.state != before.state
            || self.finished != before.finished
            || (self.writable && !before.writable)
            || (self.urgent && !before.urgent)
    }
}
