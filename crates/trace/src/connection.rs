//! One connection: both directions, and what only both together tell.

use serde::Serialize;

use crate::acks::Covered;
use crate::half::{Coverage, Data, Half, Limit, SynOptions};
use crate::mss::{Mss, MssSource, assume, infer};
use crate::segment::{Endpoint, Host, Segment, flag};
use crate::sent::Sent;
use crate::watch::{AckEvent, BurstEvent, PacketEvent, StallEvent, Watch};

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
    last_data_ns: Option<u64>,
    stall: Option<Stall>,
    /// Packets held back until the MSS is known; `None` once it is.
    held: Option<Box<Held>>,
    settings: Settings,
    /// Sequence numbers of the SYNs, for telling a new connection on the same ports.
    syn_numbers: [Option<u32>; 2],
    beyond_syn: bool,
}

#[derive(Debug, Clone, Default)]
struct Held {
    segments: Vec<Segment>,
    data: usize,
}

#[derive(Debug, Clone, Copy, Default)]
struct Burst {
    from: usize,
    data: bool,
    packets: u64,
    wire_segments: u64,
}

/// A pause that was ended by a lone ACK; it was a stall if the sender goes on at once.
#[derive(Debug, Clone, Copy)]
struct Stall {
    from: usize,
    since_ns: u64,
    until_ns: u64,
    packets: usize,
    lost_ns: u64,
}

/// Data packets that are looked at for inferring an MSS, and packets of any kind held at most.
const HELD_DATA: usize = 32;
const HELD_MOST: usize = 128;

/// A stall is a pause at least this long (the shortest delayed-ACK timer is 8 ms: Linux with 250 Hz)
/// and several RTTs: else it is the path's delay.
const STALL_NS: u64 = 5_000_000;
const STALL_RTTS: u64 = 4;

/// The sender goes on within this time after the ACK, or within a tenth of the pause.
const AT_ONCE_NS: u64 = 1_000_000;

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

    #[cold]
    fn hold<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        if segment.any(flag::SYN) && segment.options.complete {
            let options = &segment.options;
            self.halves[from].syn = Some(SynOptions {
                mss: options.mss,
                window_scale: options.window_scale,
                sack_permitted: options.sack_permitted,
                timestamps: options.timestamps.is_some(),
                ecn: segment.any(flag::ECE),
            });
        }
        self.timestamps |= segment.options.timestamps.is_some();
        let Some(held) = &mut self.held else { return };
        held.segments.push(*segment);
        held.data += usize::from(segment.payload > 0);
        let told = self
            .halves
            .iter()
            .all(|half| half.syn.is_some_and(|syn| syn.mss.is_some()));
        let after_syn = !segment.any(flag::SYN);
        if self.settings.mss.is_some()
            || (told && after_syn)
            || held.data >= HELD_DATA
            || held.segments.len() >= HELD_MOST
        {
            self.release(watch);
        }
    }

    /// Decides the MSS and takes what was held.
    fn release<W: Watch>(&mut self, watch: &mut W) {
        let Some(held) = self.held.take() else { return };
        let syns = self.halves.each_ref().map(|half| half.syn);
        if let [Some(a), Some(b)] = syns {
            self.timestamps = a.timestamps && b.timestamps;
            // RFC 7323: both SYNs must have the option, else none scales.
            let scales = a.window_scale.zip(b.window_scale);
            self.halves[0].window_shift = Some(scales.map_or(0, |scales| scales.0));
            self.halves[1].window_shift = Some(scales.map_or(0, |scales| scales.1));
        }
        let headers = if self.ipv6 { 60 } else { 40 } + if self.timestamps { 12 } else { 0 };
        let option_bytes = if self.timestamps { 12 } else { 0 };
        let told: Vec<u32> = syns
            .iter()
            .flatten()
            .filter_map(|syn| syn.mss)
            .map(u32::from)
            .collect();
        let from_syns = told
            .iter()
            .min()
            .filter(|mss| **mss > option_bytes + 8)
            .map(|mss| Mss {
                bytes: mss - option_bytes,
                source: if told.len() == 2 {
                    MssSource::Handshake
                } else {
                    MssSource::OneSyn
                },
            });
        let sizes = |end: usize| -> Vec<u32> {
            let of_end =
                |segment: &&Segment| segment.payload > 0 && self.end_of(&segment.source) == end;
            held.segments
                .iter()
                .filter(of_end)
                .map(|segment| segment.payload)
                .collect()
        };
        let given = self.settings.mss.map(|bytes| Mss {
            bytes: bytes.max(1),
            source: MssSource::Given,
        });
        let by_size = [infer(&sizes(0), headers), infer(&sizes(1), headers)];
        for end in [0, 1] {
            // A direction of small messages says nothing of the MSS: the other's may.
            let own = by_size[end].filter(|mss| mss.bytes >= 500);
            let other = by_size[1 - end].filter(|mss| mss.bytes >= 500);
            self.halves[end].mss = given
                .or(from_syns)
                .or(own)
                .or(other)
                .unwrap_or_else(|| assume(headers, self.loopback));
        }
        for segment in &held.segments {
            let from = self.end_of(&segment.source);
            self.take(segment, from, watch);
        }
    }

    fn take<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        let at_ns = segment.at_ns.unwrap_or(self.now_ns);
        let has_ack = segment.any(flag::ACK);
        let [first, second] = &mut self.halves;
        let (here, there) = if from == 0 {
            (first, second)
        } else {
            (second, first)
        };

        let seq = here.sequence(segment.seq);
        let control = u64::from(segment.any(flag::SYN)) + u64::from(segment.any(flag::FIN));
        // Where data without a number stand is unknown.
        let length = match segment.seq {
            Some(_) => u64::from(segment.payload) + control,
            None => 0,
        };
        let ack = if has_ack && there.nxt != 0 {
            crate::sequence::extend(there.nxt.max(there.una), segment.ack)
        } else if has_ack {
            crate::sequence::first(segment.ack)
        } else {
            0
        };
        let suspicious = here.brings_nothing_new(seq, length, ack, there.una);
        if here.is_copy(segment, suspicious, at_ns) {
            here.sent.captured_twice += 1;
            return;
        }

        // Time passed since the packet before, under the limits that held then.
        let silence = at_ns.saturating_sub(self.now_ns);
        self.clock_went_back += u64::from(at_ns < self.now_ns);
        self.clock &= segment.at_ns.is_some();
        self.now_ns = self.now_ns.max(at_ns);
        if self.clock {
            self.last_ns = Some(self.now_ns);
        } else {
            (self.first_ns, self.last_ns) = (None, None);
        }
        here.pass(silence);
        there.pass(silence);
        self.longest_silence_ns = self.longest_silence_ns.max(silence);
        if here.in_flight() == 0 && there.in_flight() == 0 {
            self.idle_ns += silence;
        }

        // What it is.
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
            let directly = self.last_from == Some(from);
            tail_split = here.on_tail(seq, payload, segment.any(flag::PSH), directly);
            here.sent.tail_splits += u64::from(tail_split);
            here.sent.small_packets += u64::from(payload < mss && !tail_split);
        }
        if segment.any(flag::FIN) {
            self.first_fin.get_or_insert(from);
        }
        if segment.any(flag::RST) {
            self.reset_by.get_or_insert(from);
        }
        let mut outcome = Data::New;
        if length > 0 && !segment.any(flag::RST) {
            outcome = here.on_sequence(segment, seq, length, wire_segments, at_ns, silence);
        }

        // What it acknowledges, and the window it offers.
        let pure = segment.is_pure_ack();
        let mut coverage = None;
        let window_changed = here.on_window(segment);
        if has_ack && !segment.any(flag::RST) {
            let shift = if segment.any(flag::SYN) {
                Some(0)
            } else {
                here.window_shift
            };
            let allowed = ack + (u64::from(segment.window) << shift.unwrap_or(0));
            let opens = allowed > there.allowed + ack.saturating_sub(there.una.max(1));
            let outstanding = there.packets_outstanding();
            let was_in_flight = there.in_flight();
            coverage = there.on_acked(ack, at_ns);
            // An older ACK's window is out of date.
            if ack >= there.una {
                there.allowed = allowed;
            }
            if let Some(coverage) = &mut coverage {
                // SYN and FIN are acknowledged as one byte each.
                let of_syn = u64::from(there.syn_seen && coverage.from == there.base);
                let of_fin = u64::from(there.fin_seen && ack == there.nxt);
                coverage.bytes = coverage.bytes.saturating_sub(of_syn + of_fin);
                if there.syn_seen
                    && coverage.from == there.base
                    && from == 0
                    && self.handshake_ns.is_none()
                {
                    self.handshake_ns = segment
                        .at_ns
                        .zip(self.first_ns)
                        .map(|(at, first)| at.saturating_sub(first));
                }
            }
            let keepalive = seq + 1 == here.nxt && here.una == here.nxt && coverage.is_none();
            if pure && keepalive {
                here.sent.keepalives += 1;
            } else if pure {
                here.sent.pure_acks += 1;
                if coverage.is_none() && ack == there.una {
                    here.sent.window_updates += u64::from(window_changed);
                    here.sent.duplicate_acks += u64::from(!window_changed && was_in_flight > 0);
                }
            }
            if let Some(coverage) = coverage.filter(|coverage| coverage.bytes > 0) {
                let age_ns = coverage
                    .newest_at_ns
                    .filter(|_| self.clock)
                    .map(|newest| at_ns.saturating_sub(newest));
                here.acks.add(
                    Covered {
                        pure,
                        bytes: coverage.bytes,
                        wire_segments: coverage.wire_segments,
                        packets: coverage.packets,
                        on_boundary: coverage.on_boundary,
                        opens_window: opens,
                        age_ns,
                    },
                    there.mss.bytes,
                );
            }
            if segment.options.sack_blocks > 0 {
                there.sent.spurious_by_dsack += u64::from(is_dsack(segment));
            }
            if self.clock
                && let Some((value, echo)) = segment.options.timestamps
            {
                there.rtt.on_echo(echo, at_ns);
                if length > 0 && outcome == Data::New {
                    here.rtt.on_sent(value, at_ns);
                }
            }
            // A lone ACK after a pause: if the other now goes on at once, it had waited for this.
            if pure
                && coverage.is_some()
                && silence >= STALL_NS
                && self.last_from == Some(1 - from)
                && there.in_flight() == 0
                && let (Some(since_ns), Some(rtt)) = (self.last_data_ns, there.rtt.min_ns)
                && silence >= rtt.saturating_mul(STALL_RTTS)
            {
                self.stall = Some(Stall {
                    from: 1 - from,
                    since_ns,
                    until_ns: at_ns,
                    packets: outstanding,
                    lost_ns: silence - rtt,
                });
            }
        }
        if let Some(stall) = self.stall
            && (payload > 0 || from == stall.from)
        {
            self.stall = None;
            let at_once = AT_ONCE_NS.max((stall.until_ns - stall.since_ns) / 10);
            if from == stall.from && payload > 0 && at_ns.saturating_sub(stall.until_ns) <= at_once
            {
                here.sent.delayed_ack_stalls += 1;
                here.sent.delayed_ack_stall_ns += stall.lost_ns;
                let Stall {
                    from,
                    since_ns,
                    until_ns,
                    packets,
                    ..
                } = stall;
                watch.on_stall(
                    self.place,
                    &StallEvent {
                        from,
                        since_ns,
                        until_ns,
                        packets,
                    },
                );
            }
        }

        // What now keeps each end from sending.
        let over = here.reset || there.reset;
        let windows_known = [here.window_shift.is_some(), there.window_shift.is_some()];
        here.limit = here.limit_now(windows_known[1], there.window_closed());
        there.limit = there.limit_now(windows_known[0], here.window_closed());
        if over {
            (here.limit, there.limit) = (Limit::Application, Limit::Application);
        }

        let here_base = here.base;
        let there_base = there.base;
        let una_text = (ack as u32, ack.saturating_sub(there_base));
        self.last_from = Some(from);
        self.last_data_ns = (payload > 0 && self.clock).then_some(at_ns);
        self.on_burst(from, payload > 0, pure, wire_segments, silence, watch);
        if let Some(Coverage {
            from: previous,
            bytes,
            wire_segments,
            full_segments,
            ..
        }) = coverage.filter(|coverage| coverage.bytes > 0)
        {
            let event = AckEvent {
                from,
                previous: previous as u32,
                ack: ack as u32,
                bytes,
                wire_segments,
                full_segments,
                pure,
            };
            watch.on_ack(self.place, &event);
        }
        watch.on_packet(
            self.place,
            &PacketEvent {
                from,
                at_ns: segment.at_ns,
                seq: seq as u32,
                offset: seq.saturating_sub(here_base),
                payload_bytes: payload,
                wire_segments,
                full_segments: payload / mss,
                ack: has_ack.then_some(una_text),
                push: segment.any(flag::PSH),
                retransmission: outcome == Data::Retransmitted,
                tail_split,
            },
        );
    }

    #[inline]
    fn on_burst<W: Watch>(
        &mut self,
        from: usize,
        data: bool,
        pure: bool,
        wire_segments: u32,
        silence: u64,
        watch: &mut W,
    ) {
        let goes_on = self.burst.packets > 0
            && self.burst.from == from
            && self.burst.data == data
            && (data || pure)
            && silence <= self.settings.burst_gap_ns;
        if !goes_on {
            self.end_burst(watch);
            self.burst = Burst {
                from,
                data,
                packets: 0,
                wire_segments: 0,
            };
        }
        if data || pure {
            self.burst.packets += 1;
            self.burst.wire_segments += u64::from(wire_segments.max(1));
        }
    }

    #[inline]
    fn end_burst<W: Watch>(&mut self, watch: &mut W) {
        let Burst {
            from,
            data,
            packets,
            wire_segments,
        } = std::mem::take(&mut self.burst);
        if packets > 0 {
            let half = &mut self.halves[from];
            if data {
                half.data_burst_wire_segments.add(wire_segments);
            } else {
                half.ack_burst.add(packets);
            }
            watch.on_burst(
                self.place,
                &BurstEvent {
                    from,
                    data,
                    packets,
                    wire_segments,
                },
            );
        }
    }

    /// Counts of both directions together.
    pub fn total(&self) -> Sent {
        let mut total = self.halves[0].sent.clone();
        total.add(&self.halves[1].sent);
        total
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
