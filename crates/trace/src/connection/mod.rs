//! One connection: both directions, and results that need both.

mod burst;
mod held;
mod pace;
mod stall;
mod time;
mod view;

use serde::Serialize;

use self::burst::{Burst, Kind};
use self::held::Held;
use self::stall::Pending;
use self::time::{Ending, Time};
use crate::counts::DirectionCounts;
use crate::direction::{Acking, Data, Direction, Limit, is_dsack};
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::tunnels::Tunnel;
use crate::watch::{AckEvent, PacketEvent, Watch};

/// Start of a connection, as far as the capture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionStart {
    /// Both SYNs were captured.
    Handshake,
    /// One SYN was captured.
    OneSyn,
    /// No SYN was captured: the connection is older than the capture.
    BeforeCapture,
}

/// End of a connection, as far as the capture shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionEnd {
    /// Both FINs were captured.
    Fin {
        /// End that sent the first FIN: 0 or 1.
        first: usize,
    },
    /// One FIN was captured.
    HalfClosed {
        /// End that sent the FIN: 0 or 1.
        by: usize,
    },
    /// A RST was captured.
    Reset {
        /// End that sent the RST: 0 or 1.
        by: usize,
    },
    /// No FIN or RST was captured: the connection outlived the capture, or its end was not
    /// captured.
    NotSeen,
}

/// Result of a handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Handshake {
    /// An end sent a packet other than SYN or RST.
    Completed,
    /// The client's SYN was answered, and the client sent nothing more: a scan, a flood with
    /// spoofed addresses, or a lost answer.
    HalfOpen,
    /// The server answered with a RST.
    Refused,
    /// No packet answered the SYN.
    Unanswered,
}

/// Settings of an analysis.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Pause that ends a burst, ns.
    pub burst_gap_ns: u64,
    /// MSS of every connection, bytes. `None`: the MSS that the capture shows.
    pub mss: Option<u32>,
}

impl Default for Settings {
    /// Burst gap of 10 ms: longer than the delay that a host's scheduler or GRO adds within a
    /// burst, and shorter than the usual delayed-ACK timer of 40 ms.
    fn default() -> Settings {
        Settings {
            burst_gap_ns: 10_000_000,
            mss: None,
        }
    }
}

/// TCP connection of a capture.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Ends: 0 is the client if a SYN was captured, else the end that was seen first.
    pub ends: [Endpoint; 2],
    /// Packets that each end sent.
    pub directions: [Direction; 2],
    /// Time of the first packet, ns since the epoch. `None` if the capture has no times.
    pub first_ns: Option<u64>,
    /// Time of the last packet, ns since the epoch. `None` if the capture has no times.
    pub last_ns: Option<u64>,
    /// Time without anything outstanding in either direction, ns.
    pub idle_ns: u64,
    /// Longest time without a packet, ns.
    pub longest_silence_ns: u64,
    /// Time from the client's SYN to its ACK of the server's SYN, ns. `None` if either was not
    /// captured.
    pub handshake_ns: Option<u64>,
    /// Innermost tunnel that carried the first packet. `None` if there was no tunnel.
    pub tunnel: Option<Tunnel>,
    /// Packets whose timestamp is earlier than that of the packet before.
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
    /// Time of the last packet, ns, if it carried data. Timestamps that went back do not count.
    last_data_ns: Option<u64>,
    /// Pause that an ACK ended, until the next packet shows whether it was a stall.
    stall: Option<Pending>,
    /// Packets held back until the MSS is known; `None` once it is.
    held: Option<Box<Held>>,
    settings: Settings,
    /// True if several interfaces see each packet: then only the first packet seen is analysed.
    has_views: bool,
    /// Sequence numbers of the SYNs, for recognising a new connection on the same ports.
    syn_numbers: [Option<u32>; 2],
    beyond_syn: bool,
    /// True for each end that sent a packet other than SYN or RST.
    spoke: [bool; 2],
    time: Time,
}

impl Connection {
    pub(crate) fn new(first: &Segment, place: usize, settings: Settings) -> Connection {
        // The client sends the SYN and receives the SYN-ACK.
        let swapped = first.has(flag::SYN | flag::ACK);
        let ends = if swapped {
            [first.destination, first.source]
        } else {
            [first.source, first.destination]
        };
        let of_host = |test: fn(std::net::IpAddr) -> bool| matches!(ends[0].host, Host::Address(address) if test(address));
        Connection {
            ends,
            directions: [Direction::new(), Direction::new()],
            first_ns: first.at_ns,
            last_ns: first.at_ns,
            idle_ns: 0,
            longest_silence_ns: 0,
            handshake_ns: None,
            tunnel: first.tunnel,
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
            has_views: false,
            syn_numbers: [None; 2],
            beyond_syn: false,
            spoke: [false; 2],
            time: Time::since(first.at_ns.unwrap_or(0)),
        }
    }

    /// Number of the connection: from 1, in the order of first packets.
    pub fn number(&self) -> usize {
        self.place + 1
    }

    /// Start of the connection.
    pub fn began(&self) -> ConnectionStart {
        match self
            .directions
            .each_ref()
            .map(|direction| direction.syn_seen)
        {
            [true, true] => ConnectionStart::Handshake,
            [false, false] => ConnectionStart::BeforeCapture,
            _ => ConnectionStart::OneSyn,
        }
    }

    /// End of the connection.
    pub fn ended(&self) -> ConnectionEnd {
        match (self.reset_by, self.first_fin) {
            (Some(by), _) => ConnectionEnd::Reset { by },
            (None, Some(first)) if self.directions[1 - first].fin_seen => {
                ConnectionEnd::Fin { first }
            }
            (None, Some(by)) => ConnectionEnd::HalfClosed { by },
            (None, None) => ConnectionEnd::NotSeen,
        }
    }

    /// Result of the handshake. `None` if the client's SYN was not captured.
    pub fn handshake(&self) -> Option<Handshake> {
        let [client, server] = &self.directions;
        if !client.syn_seen {
            return None;
        }
        Some(if self.spoke[0] || self.spoke[1] {
            Handshake::Completed
        } else if server.syn_seen {
            Handshake::HalfOpen
        } else if server.reset {
            Handshake::Refused
        } else {
            Handshake::Unanswered
        })
    }

    /// Time from the first packet to the last, ns. `None` if the capture has no times.
    pub fn duration_ns(&self) -> Option<u64> {
        Some(self.last_ns?.saturating_sub(self.first_ns?))
    }

    /// True if only one direction was captured, though the other end must have sent packets.
    pub fn is_one_sided(&self) -> bool {
        let packets = self
            .directions
            .each_ref()
            .map(|direction| direction.sent.captured_packets);
        packets.contains(&0) && packets.iter().sum::<u64>() > 3
    }

    /// True if this SYN opens another connection between the same ports.
    #[cold]
    pub(crate) fn is_followed_by(&self, syn: &Segment, from: usize) -> bool {
        match self.syn_numbers[from] {
            Some(number) => syn.seq != Some(number),
            None => self.beyond_syn,
        }
    }

    /// Number of the end that sends from `source`: 0 or 1.
    #[inline]
    pub(crate) fn end_of(&self, source: &Endpoint) -> usize {
        usize::from(*source != self.ends[0])
    }

    /// Number of the end that sent `segment`. `None` if it is not of this connection.
    #[inline(always)]
    pub(crate) fn sender_of(&self, segment: &Segment) -> Option<usize> {
        let [first, second] = &self.ends;
        if segment.source == *first && segment.destination == *second {
            Some(0)
        } else if segment.source == *second && segment.destination == *first {
            Some(1)
        } else {
            None
        }
    }

    #[inline(always)]
    pub(crate) fn on_segment<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        if segment.any(flag::SYN) {
            self.syn_numbers[from] = segment.seq;
        } else {
            self.beyond_syn = true;
            self.spoke[from] |= !segment.any(flag::RST);
        }
        if self.held.is_some() {
            self.hold(segment, from, watch);
        } else {
            self.take(segment, from, watch);
        }
    }

    /// Ends what is still open, at the end of the capture.
    pub(crate) fn finish<W: Watch>(&mut self, watch: &mut W) {
        self.release(watch);
        self.end_burst(watch);
        self.end_span();
    }

    /// Analyses a segment after the MSS is known.
    fn take<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        // `from` is 0 or 1; the mask tells the compiler, so that indexing needs no bounds checks.
        let from = from & 1;
        let at_ns = segment.at_ns.unwrap_or(self.now_ns);
        let (here, there) = sides(&mut self.directions, from);
        let seq = here.sequence(segment.seq);
        let ack = there.acknowledged_by(segment);
        let control = u64::from(segment.any(flag::SYN)) + u64::from(segment.any(flag::FIN));
        // Data without a sequence number have no known place.
        let length = match segment.seq {
            Some(_) => u64::from(segment.payload) + control,
            None => 0,
        };
        let nothing_new = here.brings_nothing_new(seq, length, ack.unwrap_or(0), there.una);
        if self.is_second_view(segment, from, nothing_new) {
            self.directions[from].sent.captured_twice += 1;
            return;
        }
        let (here, _) = sides(&mut self.directions, from);
        if nothing_new && here.is_copy(segment, seq, length, at_ns) {
            here.sent.captured_twice += 1;
            return;
        }
        if length == 0 && (segment.options.sack_blocks > 0 || here.copies.doubled) {
            here.remember_ack(segment);
        }
        let silence_ns = self.pass(segment.at_ns, at_ns);
        let follows = self.follows(from, silence_ns);
        let directly = follows && self.burst.data;

        // Kind and size of the packet.
        let (here, _) = sides(&mut self.directions, from);
        let payload = segment.payload;
        if payload > here.mss.bytes && !segment.any(flag::PSH) {
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
        let mut tail_split = false;
        if payload > 0 {
            tail_split = here.on_tail(seq, payload, segment.any(flag::PSH), directly);
        }
        if segment.any(flag::SYN | flag::FIN | flag::RST) {
            self.on_control(segment, from);
        }
        let mut outcome = Data::New;
        let (here, there) = sides(&mut self.directions, from);
        let nxt_before = here.nxt;
        if length > 0 && !segment.any(flag::RST) {
            outcome = here.on_sequence(segment, seq, length, wire_segments, at_ns, silence_ns);
        }

        // Data that it acknowledges, and the window that it offers.
        let pure = segment.is_pure_ack();
        let one_outstanding = there.has_one_segment_outstanding();
        let window_changed = here.on_window(segment);
        let duplicates = here.sent.duplicate_acks;
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

        // Check whether an end waited for this packet.
        let gained = coverage.is_some();
        // Without SACK only a duplicate ACK shows a gap.
        let is_duplicate = here.sent.duplicate_acks > duplicates && here.sent.sack_segments == 0;
        let tells_of_gap = segment.options.sack_blocks > 0 && !is_dsack(segment) || is_duplicate;
        if tells_of_gap {
            there.told_of_gap_ns = self.now_ns;
        }
        if tells_of_gap || (gained && self.time.is_recovering()) {
            self.on_recovery(from, tells_of_gap);
        }
        let (_, there) = sides(&mut self.directions, from);
        let alone = pure && coverage.is_some() && one_outstanding && there.in_flight() == 0;
        let mut stalled_ns = None;
        if let Some(stall) = self.stall {
            self.stall = None;
            let rtt_ns = self.directions[1 - stall.from].rtt.min_ns.unwrap_or(0);
            if stall.ends_with(from, payload, self.now_ns, rtt_ns) {
                stall.count(&mut self.directions[from]);
                stalled_ns = Some(stall.lost_ns);
                watch.on_stall(self.place, &stall.event());
            } else if payload == 0 && from != stall.from {
                self.stall = Some(stall);
            }
        }
        let (_, there) = sides(&mut self.directions, from);
        if alone && self.last_from == Some(1 - from) {
            let since_ns = self.last_data_ns;
            self.stall =
                Pending::of(1 - from, since_ns, self.now_ns, there, segment.frame).or(self.stall);
        }

        if (length > 0 && !matches!(outcome, Data::Doubtful)) || segment.any(flag::RST) {
            self.on_span_end(Ending {
                from,
                nxt_before,
                seq,
                end: seq + length,
                outcome,
                is_syn: segment.any(flag::SYN),
                is_reset: segment.any(flag::RST),
                ran_out: segment.any(flag::PSH) && !payload.is_multiple_of(mss),
                is_message: segment.any(flag::PSH) && payload <= mss,
                stalled_ns,
            });
        }

        // Limits that now keep each end from sending.
        let (here, there) = sides(&mut self.directions, from);
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
            frame: segment.frame,
            in_flight_bytes: here.in_flight(),
            newly_acked_bytes: coverage.map_or(0, |coverage| coverage.bytes),
            window_bytes: ack
                .and(here.window_shift)
                .map(|shift| {
                    u64::from(segment.window) << if segment.any(flag::SYN) { 0 } else { shift }
                })
                .filter(|_| !segment.any(flag::RST)),
            rtt_ns: coverage.and_then(|coverage| coverage.rtt_ns),
            sacked: (segment.options.sack_blocks > 0)
                .then(|| there.place_of(segment.options.sack[0].1)),
            dsack: is_dsack(segment),
            reset: segment.any(flag::RST),
        };
        self.last_from = Some(from);
        self.last_data_ns = (payload > 0 && self.clock).then_some(self.now_ns);
        let kind = match (payload > 0, pure) {
            (true, _) => Kind::Data,
            (false, true) => Kind::PureAck,
            (false, false) => Kind::Other,
        };
        self.on_burst(from, kind, wire_segments, follows, watch);
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
        debug_assert!(self.directions.iter().all(Direction::is_bounded));
    }

    /// Handles a SYN, FIN or RST.
    #[cold]
    fn on_control(&mut self, segment: &Segment, from: usize) {
        let here = &mut self.directions[from];
        here.syn_seen |= segment.any(flag::SYN);
        here.fin_seen |= segment.any(flag::FIN);
        here.reset |= segment.any(flag::RST);
        if segment.any(flag::FIN) {
            self.first_fin.get_or_insert(from);
        }
        if segment.any(flag::RST) {
            self.reset_by.get_or_insert(from);
        }
    }

    /// Accounts the time until a packet with this timestamp to the limits in force. Returns that
    /// time, ns.
    #[inline]
    fn pass(&mut self, stamp: Option<u64>, at_ns: u64) -> u64 {
        let silence_ns = at_ns.saturating_sub(self.now_ns);
        self.clock_went_back += u64::from(at_ns < self.now_ns);
        self.now_ns = self.now_ns.max(at_ns);
        if stamp.is_some() && self.clock {
            self.last_ns = Some(self.now_ns);
        } else {
            self.clock = false;
            (self.first_ns, self.last_ns) = (None, None);
        }
        let [client, server] = &mut self.directions;
        client.pass(silence_ns);
        server.pass(silence_ns);
        self.longest_silence_ns = self.longest_silence_ns.max(silence_ns);
        if client.in_flight() == 0 && server.in_flight() == 0 {
            self.idle_ns += silence_ns;
        }
        silence_ns
    }

    /// Counts of both directions together.
    pub fn total(&self) -> DirectionCounts {
        let mut total = self.directions[0].sent.clone();
        total.add(&self.directions[1].sent);
        total
    }
}

/// Returns the sender's direction and the other one.
#[inline]
fn sides(directions: &mut [Direction; 2], from: usize) -> (&mut Direction, &mut Direction) {
    let [first, second] = directions;
    if from == 0 {
        (first, second)
    } else {
        (second, first)
    }
}
