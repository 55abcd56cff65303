//! Analysis of one packet, step by step: copies, time, data, ACK, waits, limits, events.
//!
//! Each step has one caller and runs for every packet. It is inlined, so that what it returns stays
//! in registers.

use super::burst::Kind;
use super::stall::Pending;
use super::time::Ending;
use super::{Connection, Sight, sides};
use crate::direction::{Acking, Coverage, Data, Direction, Limit, Short, is_dsack};
use crate::segment::{Segment, flag};
use crate::watch::{AckEvent, PacketEvent, Watch};

/// Captured packet and its place in the connection.
#[derive(Clone, Copy)]
struct Packet<'a> {
    segment: &'a Segment,
    /// End that sent the packet: 0 or 1.
    from: usize,
    /// Timestamp, ns. Without one, the time of the packet before.
    at_ns: u64,
    /// Time since the packet before, ns.
    silence_ns: u64,
    /// True if the packet follows its sender's last packet within the burst gap.
    follows: bool,
    /// First sequence number, in 64 bits.
    seq: u64,
    /// Sequence numbers that the packet takes: payload bytes, and one each for SYN and FIN. 0 if
    /// the packet has no known sequence number.
    length: u64,
    /// ACK number, in 64 bits. `None` without the ACK flag.
    ack: Option<u64>,
}

/// Result of counting a packet in its sender's direction.
#[derive(Clone, Copy)]
struct Sent {
    /// MSS of the direction, bytes.
    mss: u32,
    /// Wire segments of the packet. 0 without payload.
    wire_segments: u32,
    short: Short,
    /// Highest sequence number that the direction had sent before.
    nxt_before: u64,
    data: Data,
}

/// Result of reading the ACK of a packet.
#[derive(Clone, Copy)]
struct Acked {
    /// True for a pure ACK.
    pure: bool,
    /// Data that the ACK covers for the first time.
    coverage: Option<Coverage>,
    /// True if the ACK shows that data are missing at the receiver.
    reports_gap: bool,
    /// True if a pure ACK covers the only outstanding segment.
    is_lone: bool,
}

impl Sent {
    /// True if the packet is one wire segment of the MSS.
    fn is_full_sized(&self, packet: &Packet<'_>) -> bool {
        self.wire_segments == 1 && packet.segment.payload >= self.mss
    }
}

impl Acked {
    /// True if the packet is a pure ACK that covers data.
    fn covers_data(&self) -> bool {
        self.pure && self.coverage.is_some_and(|coverage| !coverage.of_syn)
    }
}

impl Connection {
    /// Analyses a segment. The MSS must be known.
    pub(super) fn analyse<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        // `from` is 0 or 1; the mask tells the compiler, so that indexing needs no bounds checks.
        let packet = self.place(segment, from & 1);
        if self.is_repeated(&packet) {
            return;
        }
        self.pass(&packet);
        let sent = self.count_sent(&packet);
        let acked = self.read_ack(&packet, &sent);
        if self.is_worth_noting(&packet, &sent, &acked) {
            self.see(&packet, &sent, &acked);
        }
        if self.directions[1 - packet.from].has_news() {
            self.on_news(&packet);
        }
        if acked.reports_gap || (acked.coverage.is_some() && self.time.is_recovering()) {
            self.on_recovery(packet.from, acked.reports_gap);
        }
        let stalled_ns = self.end_pause(&packet, watch);
        self.begin_pause(&packet, &acked);
        self.charge_span(&packet, &sent, stalled_ns);
        self.update_limits(packet.from);
        self.emit(&packet, &sent, &acked, watch);
        debug_assert!(self.directions.iter().all(Direction::is_bounded));
    }

    /// Finds the place of a segment in time and in both byte streams.
    #[inline(always)]
    fn place<'a>(&mut self, segment: &'a Segment, from: usize) -> Packet<'a> {
        let at_ns = segment.at_ns.unwrap_or(self.now_ns);
        let silence_ns = at_ns.saturating_sub(self.now_ns);
        let follows = self.follows(from, silence_ns);
        let control = u64::from(segment.any(flag::SYN)) + u64::from(segment.any(flag::FIN));
        let (here, there) = sides(&mut self.directions, from);
        Packet {
            segment,
            from,
            at_ns,
            silence_ns,
            follows,
            seq: here.sequence(segment.seq),
            // Data without a sequence number have no known place.
            length: match segment.seq {
                Some(_) => u64::from(segment.payload) + control,
                None => 0,
            },
            ack: there.acknowledged_by(segment),
        }
    }

    /// True if the packet was captured before. It counts as captured twice, and is not analysed.
    #[inline(always)]
    fn is_repeated(&mut self, packet: &Packet<'_>) -> bool {
        let &Packet {
            segment,
            from,
            at_ns,
            seq,
            length,
            ack,
            ..
        } = packet;
        let (here, there) = sides(&mut self.directions, from);
        let nothing_new = here.brings_nothing_new(seq, length, ack.unwrap_or(0), there.una);
        let is_second_view = self.is_second_view(segment, from, nothing_new);
        let here = &mut self.directions[from];
        if is_second_view || (nothing_new && here.is_copy(segment, seq, length, at_ns)) {
            here.sent.captured_twice += 1;
            return true;
        }
        if length == 0 && (segment.options.sack_blocks > 0 || here.copies.doubled) {
            here.remember_ack(segment);
        }
        false
    }

    /// Charges the time before a packet to the limits in force.
    #[inline]
    fn pass(&mut self, packet: &Packet<'_>) {
        self.clock_went_back += u64::from(packet.at_ns < self.now_ns);
        self.pass_time(packet.at_ns);
        if packet.segment.at_ns.is_some() && self.clock {
            self.last_ns = Some(self.now_ns);
        } else {
            self.clock = false;
            (self.first_ns, self.last_ns) = (None, None);
        }
    }

    /// Charges the time until `at_ns` to the limits in force.
    #[inline]
    pub(super) fn pass_time(&mut self, at_ns: u64) {
        let silence_ns = at_ns.saturating_sub(self.now_ns);
        self.now_ns = self.now_ns.max(at_ns);
        let [client, server] = &mut self.directions;
        client.pass(silence_ns);
        server.pass(silence_ns);
        self.longest_silence_ns = self.longest_silence_ns.max(silence_ns);
        if client.in_flight() == 0 && server.in_flight() == 0 {
            self.idle_ns += silence_ns;
        }
    }

    /// Counts the packet and its data in its sender's direction.
    #[inline(always)]
    fn count_sent(&mut self, packet: &Packet<'_>) -> Sent {
        let &Packet {
            segment,
            from,
            at_ns,
            silence_ns,
            seq,
            length,
            ..
        } = packet;
        if segment.any(flag::SYN | flag::FIN | flag::RST) {
            self.on_control(segment, from);
        }
        let follows_data = packet.follows && self.burst.data;
        let here = &mut self.directions[from];
        let payload = segment.payload;
        let push = segment.any(flag::PSH);
        if payload > here.mss.bytes && !push {
            here.on_oversized(payload);
        }
        let mss = here.mss.bytes;
        let wire_segments = match payload {
            0 => 0,
            payload if payload <= mss => 1,
            payload => payload.div_ceil(mss),
        };
        here.on_packet(segment, wire_segments);
        here.copies
            .on_taken(segment.ip_id, wire_segments, seq, length, at_ns);
        let short = match payload {
            0 => Short::No,
            _ => here.on_tail(seq, payload, push, follows_data),
        };
        let nxt_before = here.nxt;
        let data = if length > 0 && !segment.any(flag::RST) {
            here.on_sequence(segment, seq, length, wire_segments, at_ns, silence_ns)
        } else {
            Data::New
        };
        if length > 0 {
            let (here, there) = sides(&mut self.directions, from);
            if there.window_shift.is_none() {
                there.bound_scale(here.in_flight());
            }
        }
        Sent {
            mss,
            wire_segments,
            short,
            nxt_before,
            data,
        }
    }

    /// Handles a SYN, FIN or RST.
    #[cold]
    fn on_control(&mut self, segment: &Segment, from: usize) {
        let here = &mut self.directions[from];
        here.syn_seen |= segment.any(flag::SYN);
        here.fin_seen |= segment.any(flag::FIN);
        here.reset |= segment.any(flag::RST);
        if segment.any(flag::SYN) {
            self.time.spots.see(Sight::Syn, segment.frame);
        }
        if segment.any(flag::FIN) {
            self.first_fin.get_or_insert(from);
        }
        if segment.any(flag::RST) {
            self.reset_by.get_or_insert(from);
            self.time.spots.see(Sight::Reset, segment.frame);
        }
    }

    /// True if a packet may be the first that costs more than necessary for its reason.
    #[inline(always)]
    fn is_worth_noting(&self, packet: &Packet<'_>, sent: &Sent, acked: &Acked) -> bool {
        let spots = &self.time.spots;
        sent.short != Short::No
            || sent.data == Data::Retransmitted
            || spots.lacks(Sight::PureAck) && acked.covers_data()
            || spots.lacks(Sight::FullSized) && sent.is_full_sized(packet)
    }

    /// Notes the frame of a packet that costs more than necessary.
    #[cold]
    fn see(&mut self, packet: &Packet<'_>, sent: &Sent, acked: &Acked) {
        let spots = &mut self.time.spots;
        let frame = packet.segment.frame;
        match sent.short {
            Short::Tail => spots.see(Sight::TailSplit, frame),
            Short::Joinable => spots.see(Sight::Joinable, frame),
            Short::No => {}
        }
        if sent.data == Data::Retransmitted {
            spots.see(Sight::Retransmission, frame);
        }
        if acked.covers_data() {
            spots.see(Sight::PureAck, frame);
        }
        if sent.is_full_sized(packet) {
            spots.see(Sight::FullSized, frame);
        }
    }

    /// Reads the window and the ACK of a packet.
    #[inline(always)]
    fn read_ack(&mut self, packet: &Packet<'_>, sent: &Sent) -> Acked {
        let segment = packet.segment;
        let pure = segment.is_pure_ack();
        let (here, there) = sides(&mut self.directions, packet.from);
        let one_outstanding = there.has_one_segment_outstanding();
        let window_changed = here.on_window(segment);
        let duplicates = here.sent.duplicate_acks;
        let mut coverage = None;
        if let Some(ack) = packet.ack.filter(|_| !segment.any(flag::RST)) {
            let acking = Acking {
                seq: packet.seq,
                ack,
                at_ns: packet.at_ns,
                silence_ns: packet.silence_ns,
                timed: self.clock,
                window_changed,
                new: packet.length > 0 && sent.data == Data::New,
            };
            coverage = here.on_ack(there, segment, acking);
        }
        // Without SACK only a duplicate ACK shows a gap.
        let is_duplicate = here.sent.duplicate_acks > duplicates && here.sent.sack_segments == 0;
        let reports_gap = segment.options.sack_blocks > 0 && !is_dsack(segment) || is_duplicate;
        if reports_gap {
            there.told_of_gap_ns = self.now_ns;
        }
        let is_lone = pure && coverage.is_some() && one_outstanding && there.in_flight() == 0;
        if packet.from == 0 && coverage.is_some_and(|coverage| coverage.of_syn) {
            let since_first = segment.at_ns.zip(self.first_ns);
            let handshake_ns = since_first.map(|(at, first)| at.saturating_sub(first));
            self.handshake_ns = self.handshake_ns.or(handshake_ns);
        }
        Acked {
            pure,
            coverage,
            reports_gap,
            is_lone,
        }
    }

    /// Handles what an ACK shows of data: that they were sent again needlessly, or went on though the capture lacks them.
    #[cold]
    fn on_news(&mut self, packet: &Packet<'_>) {
        let there = &mut self.directions[1 - packet.from];
        let is_needless = std::mem::take(&mut there.is_needless);
        let unseen_from = std::mem::take(&mut there.unseen_from);
        if is_needless {
            self.on_needless(1 - packet.from);
        }
        if unseen_from > 0 {
            self.on_unseen_data(packet, unseen_from);
        }
    }

    /// Charges the time since the last progress of data that the capture does not hold: only their
    /// ACKs are in it.
    #[cold]
    fn on_unseen_data(&mut self, packet: &Packet<'_>, before: u64) {
        let from = 1 - packet.from;
        self.on_span_end(Ending {
            from,
            nxt_before: before,
            seq: before,
            end: self.directions[from].una,
            outcome: Data::New,
            is_syn: false,
            is_reset: false,
            is_needless: false,
            frame: packet.segment.frame,
            ran_out: false,
            push: false,
            has_data: true,
            is_message: false,
            stalled_ns: None,
        });
        self.on_recovery(packet.from, false);
    }

    /// Decides on the pause that an ACK ended before this packet. Returns the time lost if the
    /// pause was a delayed-ACK stall, ns.
    #[inline(always)]
    fn end_pause<W: Watch>(&mut self, packet: &Packet<'_>, watch: &mut W) -> Option<u64> {
        let from = packet.from;
        let payload = packet.segment.payload;
        let stall = self.stall.take()?;
        let rtt_ns = self.directions[1 - stall.from].rtt.min_ns.unwrap_or(0);
        if stall.ends_with(from, payload, self.now_ns, rtt_ns) {
            stall.count(&mut self.directions[from]);
            watch.on_stall(self.place, &stall.event());
            return Some(stall.lost_ns);
        }
        if payload == 0 && from != stall.from {
            self.stall = Some(stall);
        }
        None
    }

    /// Remembers the pause that a lone ACK ends: the next packet shows if it was a stall.
    #[inline(always)]
    fn begin_pause(&mut self, packet: &Packet<'_>, acked: &Acked) {
        let waiting = 1 - packet.from;
        if acked.is_lone && self.last_from == Some(waiting) {
            let waited = &self.directions[waiting];
            let frame = packet.segment.frame;
            self.stall =
                Pending::of(waiting, self.last_data_ns, self.now_ns, waited, frame).or(self.stall);
        }
    }

    /// Charges the time since the last data, if the packet has data, SYN, FIN or RST.
    #[inline(always)]
    fn charge_span(&mut self, packet: &Packet<'_>, sent: &Sent, stalled_ns: Option<u64>) {
        let segment = packet.segment;
        let is_reset = segment.any(flag::RST);
        if is_reset || (packet.length > 0 && sent.data != Data::Doubtful) {
            let push = segment.any(flag::PSH);
            self.on_span_end(Ending {
                from: packet.from,
                nxt_before: sent.nxt_before,
                seq: packet.seq,
                end: packet.seq + packet.length,
                outcome: sent.data,
                is_syn: segment.any(flag::SYN),
                is_reset,
                is_needless: self.directions[packet.from].is_needless,
                frame: segment.frame,
                ran_out: push && !segment.payload.is_multiple_of(sent.mss),
                push,
                has_data: segment.payload > 0,
                is_message: push && segment.payload <= sent.mss,
                stalled_ns,
            });
        }
    }

    /// Updates the limits that now keep each end from sending.
    #[inline(always)]
    fn update_limits(&mut self, from: usize) {
        let (here, there) = sides(&mut self.directions, from);
        let windows_known = [here.window_shift.is_some(), there.window_shift.is_some()];
        here.limit = here.limit_now(windows_known[1], there.window_closed());
        there.limit = there.limit_now(windows_known[0], here.window_closed());
        if here.reset || there.reset {
            (here.limit, there.limit) = (Limit::Application, Limit::Application);
        }
    }

    /// Reports the events of a packet, and prepares for the next packet.
    #[inline(always)]
    fn emit<W: Watch>(&mut self, packet: &Packet<'_>, sent: &Sent, acked: &Acked, watch: &mut W) {
        let &Packet { segment, from, .. } = packet;
        self.last_from = Some(from);
        self.last_data_ns = (segment.payload > 0 && self.clock).then_some(self.now_ns);
        let kind = if segment.payload > 0 {
            Kind::Data
        } else if acked.pure {
            Kind::PureAck
        } else {
            Kind::Other
        };
        self.on_burst(from, kind, sent.wire_segments, packet.follows, watch);
        if let Some(coverage) = acked.coverage.filter(|coverage| coverage.bytes > 0) {
            let event = AckEvent {
                from,
                previous: coverage.from as u32,
                ack: coverage.to as u32,
                bytes: coverage.bytes,
                wire_segments: coverage.wire_segments,
                full_segments: coverage.full_segments,
                pure: acked.pure,
            };
            watch.on_ack(self.place, &event);
        }
        if watch.wants(self.place) {
            watch.on_packet(self.place, &self.packet_event(packet, sent, acked.coverage));
        }
    }

    #[inline(always)]
    fn packet_event(
        &self,
        packet: &Packet<'_>,
        sent: &Sent,
        coverage: Option<Coverage>,
    ) -> PacketEvent {
        let &Packet {
            segment,
            from,
            seq,
            ack,
            ..
        } = packet;
        let (here, there) = (&self.directions[from], &self.directions[1 - from]);
        let is_reset = segment.any(flag::RST);
        // The window of a SYN is not scaled.
        let shift = |scale: u8| if segment.any(flag::SYN) { 0 } else { scale };
        let window_shift = ack.and(here.window_shift).filter(|_| !is_reset);
        PacketEvent {
            from,
            at_ns: segment.at_ns,
            seq: seq as u32,
            offset: seq.saturating_sub(here.base),
            payload_bytes: segment.payload,
            wire_segments: sent.wire_segments,
            full_segments: segment.payload / sent.mss,
            ack: ack.map(|ack| (ack as u32, ack.saturating_sub(there.base))),
            push: segment.any(flag::PSH),
            retransmission: sent.data == Data::Retransmitted,
            tail_split: sent.short == Short::Tail,
            frame: segment.frame,
            in_flight_bytes: here.in_flight(),
            newly_acked_bytes: coverage.map_or(0, |coverage| coverage.bytes),
            window_bytes: window_shift.map(|scale| u64::from(segment.window) << shift(scale)),
            rtt_ns: coverage.and_then(|coverage| coverage.rtt_ns),
            sacked: (segment.options.sack_blocks > 0)
                .then(|| there.place_of(segment.options.sack[0].1)),
            dsack: is_dsack(segment),
            reset: is_reset,
        }
    }
}
