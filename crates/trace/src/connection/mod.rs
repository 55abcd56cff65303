//! One connection: both directions, and what only both together tell.

mod burst;
mod opening;
mod stall;

use serde::Serialize;

use self::burst::{Burst, Kind};
use self::opening::Held;
use self::stall::Pending;
use crate::half::{Acking, Data, Half, Limit};
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::sent::Sent;
use crate::watch::{AckEvent, PacketEvent, Watch};

/// How a connection began, as far as the capture tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Began {
    /// Both SYNs were captured.
    Handshake,
    /// One SYN was.
    OneSyn,
    /// It was there before the capture.
    BeforeCapture,
}

/// How a connection ended, as far as the capture tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Ended {
    /// Both FINs were captured; this end's first.
    Fin {
        /// 0 or 1.
        first: usize,
    },
    /// One FIN was.
    HalfClosed {
        /// Whose, 0 or 1.
        by: usize,
    },
    /// A RST was.
    Reset {
        /// Whose, 0 or 1.
        by: usize,
    },
    /// It outlived the capture, or its end was not captured.
    NotSeen,
}

/// Choices of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// A pause that ends a burst, ns.
    pub burst_gap_ns: u64,
    /// MSS of every connection, in place of what the capture tells.
    pub mss: Option<u32>,
}

impl Default for Settings {
    /// 10 ms: longer than what a host's scheduler or GRO adds within a burst, shorter than the usual
    /// delayed-ACK timer of 40 ms.
    fn default() -> Settings {
        Settings {
            burst_gap_ns: 10_000_000,
            mss: None,
        }
    }
}

/// A connection.
#[derive(Debug, Clone)]
pub struct Connection {
    /// The ends: 0 is the client if a SYN was captured, or else who was seen first.
    pub ends: [Endpoint; 2],
    /// What each end sent.
    pub halves: [Half; 2],
    /// Time of the first packet, ns since the epoch; `None` if the capture tells no times.
    pub first_ns: Option<u64>,
    /// Time of the last packet.
    pub last_ns: Option<u64>,
    /// Time without anything outstanding in either direction, ns.
    pub idle_ns: u64,
    /// The longest time without a packet, ns.
    pub longest_silence_ns: u64,
    /// From the first SYN to the ACK of the other, ns.
    pub handshake_ns: Option<u64>,
    /// Packets stamped earlier than the one before.
    pub clock_went_back: u64,
    first_fin: Option<usize>,
    reset_by: Option<usize>,
    place: usize,
    now_ns: u64,
    clock: bool,
    timestamps: bool,
    ipv6: bool,
    loopback: bool,
    burst: Burst,
    last_from: Option<usize>,
    /// When the last packet passed, if it carried data; stamps that went back do not count.
    last_data_ns: Option<u64>,
    /// A pause that an ACK ended, until it is known what came after it.
    stall: Option<Pending>,
    /// Packets held back until the MSS is known; `None` once it is.
    held: Option<Box<Held>>,
    settings: Settings,
    /// Sequence numbers of the SYNs, for telling a new connection on the same ports.
    syn_numbers: [Option<u32>; 2],
    beyond_syn: bool,
}

impl Connection {
    pub(crate) fn new(first: &Segment, place: usize, settings: Settings) -> Connection {
        // The SYN's sender is the client, and of a SYN-ACK the receiver.
        let swapped = first.has(flag::SYN | flag::ACK);
        let ends = if swapped {
            [first.destination, first.source]
        } else {
            [first.source, first.destination]
        };
        let of_host = |test: fn(std::net::IpAddr) -> bool| matches!(ends[0].host, Host::Address(address) if test(address));
        Connection {
            ends,
            halves: [Half::new(), Half::new()],
            first_ns: first.at_ns,
            last_ns: first.at_ns,
            idle_ns: 0,
            longest_silence_ns: 0,
            handshake_ns: None,
            clock_went_back: 0,
            first_fin: None,
            reset_by: None,
            place,
            now_ns: first.at_ns.unwrap_or(0),
            clock: true,
            timestamps: false,
            ipv6: of_host(|address| address.is_ipv6()),
            loopback: of_host(|address| address.is_loopback()),
            burst: Burst::default(),
            last_from: None,
            last_data_ns: None,
            stall: None,
            held: Some(Box::default()),
            settings,
            syn_numbers: [None; 2],
            beyond_syn: false,
        }
    }

    /// Its number, from 1 on in the order of first packets.
    pub fn number(&self) -> usize {
        self.place + 1
    }

    /// How it began.
    pub fn began(&self) -> Began {
        match self.halves.each_ref().map(|half| half.syn_seen) {
            [true, true] => Began::Handshake,
            [false, false] => Began::BeforeCapture,
            _ => Began::OneSyn,
        }
    }

    /// How it ended.
    pub fn ended(&self) -> Ended {
        match (self.reset_by, self.first_fin) {
            (Some(by), _) => Ended::Reset { by },
            (None, Some(first)) if self.halves[1 - first].fin_seen => Ended::Fin { first },
            (None, Some(by)) => Ended::HalfClosed { by },
            (None, None) => Ended::NotSeen,
        }
    }

    /// From the first packet to the last, ns; `None` if the capture tells no times.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns?.saturating_sub(self.first_ns?))
    }

    /// Whether only one direction was captured, though the other must have sent.
    pub fn is_one_sided(&self) -> bool {
        let packets = self
            .halves
            .each_ref()
            .map(|half| half.sent.captured_packets);
        packets.contains(&0) && packets.iter().sum::<u64>() > 3
    }

    /// Whether this segment opens another connection between the same ports.
    #[inline]
    pub(crate) fn is_followed_by(&self, segment: &Segment, from: usize) -> bool {
        if !segment.any(flag::SYN) {
            return false;
        }
        match self.syn_numbers[from] {
            Some(number) => segment.seq != Some(number),
            None => self.beyond_syn,
        }
    }

    /// Which end sends from here to there.
    #[inline]
    pub(crate) fn end_of(&self, source: &Endpoint) -> usize {
        usize::from(*source != self.ends[0])
    }

    #[inline]
    pub(crate) fn on_segment<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        if segment.any(flag::SYN) {
            self.syn_numbers[from] = segment.seq;
        } else {
            self.beyond_syn = true;
        }
        if self.held.is_some() {
            self.hold(segment, from, watch);
        } else {
            self.take(segment, from, watch);
        }
    }

    /// Ends what is still open: the capture did.
    pub(crate) fn finish<W: Watch>(&mut self, watch: &mut W) {
        self.release(watch);
        self.end_burst(watch);
    }

    /// Takes a segment whose end's MSS is known.
    fn take<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        let at_ns = segment.at_ns.unwrap_or(self.now_ns);
        let (here, there) = sides(&mut self.halves, from);
        let seq = here.sequence(segment.seq);
        let ack = there.acknowledged_by(segment);
        let control = u64::from(segment.any(flag::SYN)) + u64::from(segment.any(flag::FIN));
        // Where data without a number stand is unknown.
        let length = match segment.seq {
            Some(_) => u64::from(segment.payload) + control,
            None => 0,
        };
        let suspicious = here.brings_nothing_new(seq, length, ack.unwrap_or(0), there.una);
        if here.is_copy(segment, suspicious, at_ns) {
            here.sent.captured_twice += 1;
            return;
        }
        let silence_ns = self.pass(segment.at_ns, at_ns);
        let directly = self.is_data_burst(from, silence_ns);

        // What it is.
        let (here, there) = sides(&mut self.halves, from);
        let payload = segment.payload;
        let mss = here.mss.bytes;
        let wire_segments = match payload {
            0 => 0,
            payload if payload <= mss => 1,
            payload => payload.div_ceil(mss),
        };
        here.on_packet(segment, wire_segments);
        let mut tail_split = false;
        if payload > 0 {
            tail_split = here.on_tail(seq, payload, segment.any(flag::PSH), directly);
        }
        if segment.any(flag::FIN) {
            self.first_fin.get_or_insert(from);
        }
        if segment.any(flag::RST) {
            self.reset_by.get_or_insert(from);
        }
        let mut outcome = Data::New;
        if length > 0 && !segment.any(flag::RST) {
            outcome = here.on_sequence(segment, seq, length, wire_segments, at_ns, silence_ns);
        }

        // What it acknowledges, and the window it offers.
        let pure = segment.is_pure_ack();
        let one_outstanding = there.has_one_segment_outstanding();
        let window_changed = here.on_window(segment);
        let mut coverage = None;
        if let Some(ack) = ack.filter(|_| !segment.any(flag::RST)) {
            let acking = Acking {
                seq,
                ack,
                at_ns,
                silence_ns,
                timed: self.clock,
                window_changed,
                new: length > 0 && outcome == Data::New,
            };
            coverage = here.on_ack(there, segment, acking);
            if from == 0 && coverage.is_some_and(|coverage| coverage.of_syn) {
                let since_first = segment.at_ns.zip(self.first_ns);
                let handshake_ns = since_first.map(|(at, first)| at.saturating_sub(first));
                self.handshake_ns = self.handshake_ns.or(handshake_ns);
            }
        }

        // Whether an end waited for it.
        let alone = pure && coverage.is_some() && one_outstanding && there.in_flight() == 0;
        if let Some(stall) = self.stall.take() {
            let rtt_ns = self.halves[1 - stall.from].rtt.min_ns.unwrap_or(0);
            if stall.ends_with(from, payload, self.now_ns, rtt_ns) {
                stall.count(&mut self.halves[from]);
                watch.on_stall(self.place, &stall.event());
            } else if payload == 0 && from != stall.from {
                self.stall = Some(stall);
            }
        }
        let (here, there) = sides(&mut self.halves, from);
        if alone && self.last_from == Some(1 - from) {
            let since_ns = self.last_data_ns;
            self.stall = Pending::of(1 - from, since_ns, self.now_ns, there).or(self.stall);
        }

        // What now keeps each end from sending.
        let windows_known = [here.window_shift.is_some(), there.window_shift.is_some()];
        here.limit = here.limit_now(windows_known[1], there.window_closed());
        there.limit = there.limit_now(windows_known[0], here.window_closed());
        if here.reset || there.reset {
            (here.limit, there.limit) = (Limit::Application, Limit::Application);
        }

        let ack = segment.any(flag::ACK).then(|| ack.unwrap_or(0));
        let packet = PacketEvent {
            from,
            at_ns: segment.at_ns,
            seq: seq as u32,
            offset: seq.saturating_sub(here.base),
            payload_bytes: payload,
            wire_segments,
            full_segments: payload / mss,
            ack: ack.map(|ack| (ack as u32, ack.saturating_sub(there.base))),
            push: segment.any(flag::PSH),
            retransmission: outcome == Data::Retransmitted,
            tail_split,
        };
        self.last_from = Some(from);
        self.last_data_ns = (payload > 0 && self.clock).then_some(self.now_ns);
        let kind = match (payload > 0, pure) {
            (true, _) => Kind::Data,
            (false, true) => Kind::PureAck,
            (false, false) => Kind::Other,
        };
        self.on_burst(from, kind, wire_segments, silence_ns, watch);
        if let Some(coverage) = coverage.filter(|coverage| coverage.bytes > 0) {
            let event = AckEvent {
                from,
                previous: coverage.from as u32,
                ack: coverage.to as u32,
                bytes: coverage.bytes,
                wire_segments: coverage.wire_segments,
                full_segments: coverage.full_segments,
                pure,
            };
            watch.on_ack(self.place, &event);
        }
        watch.on_packet(self.place, &packet);
    }

    /// Time passes until a packet with this stamp, under the limits that held; tells how much.
    #[inline]
    fn pass(&mut self, stamp: Option<u64>, at_ns: u64) -> u64 {
        let silence_ns = at_ns.saturating_sub(self.now_ns);
        self.clock_went_back += u64::from(at_ns < self.now_ns);
        self.clock &= stamp.is_some();
        self.now_ns = self.now_ns.max(at_ns);
        if self.clock {
            self.last_ns = Some(self.now_ns);
        } else {
            (self.first_ns, self.last_ns) = (None, None);
        }
        let [client, server] = &mut self.halves;
        client.pass(silence_ns);
        server.pass(silence_ns);
        self.longest_silence_ns = self.longest_silence_ns.max(silence_ns);
        if client.in_flight() == 0 && server.in_flight() == 0 {
            self.idle_ns += silence_ns;
        }
        silence_ns
    }

    /// Counts of both directions together.
    pub fn total(&self) -> Sent {
        let mut total = self.halves[0].sent.clone();
        total.add(&self.halves[1].sent);
        total
    }
}

/// The half of who sends, and the other one.
#[inline]
fn sides(halves: &mut [Half; 2], from: usize) -> (&mut Half, &mut Half) {
    let [first, second] = halves;
    if from == 0 {
        (first, second)
    } else {
        (second, first)
    }
}
