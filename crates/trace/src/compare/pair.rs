//! One transfer captured at two places, packet by packet: what passed the first place and what
//! arrived at the second.
//!
//! Memory grows with packets: 64 bytes each. The clocks of two hosts differ. Delays are therefore
//! reported above the shortest of their direction, and the clock difference on the assumption that
//! both ways take equally long.

use std::collections::{BTreeSet, HashMap};
use std::fmt::Write as _;

use serde::Serialize;

use crate::histogram::Histogram;
use crate::read::{Names, Sink};
use crate::report::Distribution;
use crate::segment::endpoint_name;
use crate::segment::{Endpoint, Segment, flag};
use crate::text::wrapped;

/// Packets of one capture, for comparison with another capture.
#[derive(Debug, Default)]
pub struct Passed {
    connections: HashMap<(Endpoint, Endpoint), usize, foldhash::fast::RandomState>,
    /// Index of a connection by the sequence number of its client's SYN: the first connection with
    /// that number.
    by_number: HashMap<u32, usize>,
    all: Vec<SeenConnection>,
}

#[derive(Debug)]
struct SeenConnection {
    ends: [Endpoint; 2],
    syns: [Option<Segment>; 2],
    packets: [Vec<SeenPacket>; 2],
}

/// A packet with payload, or a pure ACK.
#[derive(Debug, Clone, Copy)]
struct SeenPacket {
    at_ns: u64,
    seq: u32,
    payload: u32,
    ack: u32,
    timestamp: Option<u32>,
    ip_id: u16,
    hop_limit: u8,
    window: u16,
    frame: u64,
}

impl Sink for Passed {
    fn segment(&mut self, segment: &Segment) {
        let (source, destination) = (segment.source, segment.destination);
        let known = self.connections.get(&(source, destination)).copied();
        let place = known.unwrap_or_else(|| {
            let place = self.all.len();
            let is_answer = segment.has(flag::SYN | flag::ACK);
            let ends = if is_answer {
                [destination, source]
            } else {
                [source, destination]
            };
            self.connections.insert((source, destination), place);
            self.connections.insert((destination, source), place);
            self.all.push(SeenConnection {
                ends,
                syns: [None; 2],
                packets: Default::default(),
            });
            place
        });
        let connection = &mut self.all[place];
        let from = usize::from(connection.ends[0] != source);
        if segment.any(flag::SYN) {
            connection.syns[from].get_or_insert(*segment);
            if let (0, Some(number)) = (from, segment.seq) {
                self.by_number.entry(number).or_insert(place);
            }
            return;
        }
        let (Some(at_ns), Some(seq)) = (segment.at_ns, segment.seq) else {
            return;
        };
        if segment.payload > 0 || segment.is_pure_ack() {
            connection.packets[from].push(SeenPacket {
                at_ns,
                seq,
                payload: segment.payload,
                ack: segment.ack,
                timestamp: segment.options.timestamps.map(|(value, _)| value),
                ip_id: segment.ip_id,
                hop_limit: segment.hop_limit,
                window: segment.window,
                frame: segment.frame,
            });
        }
    }
}

/// Connections that two captures have in common.
#[derive(Debug, Clone, Serialize)]
pub struct Pair {
    /// Names of the two captures.
    pub files: [String; 2],
    /// Connections that are in both captures and carry data.
    pub connections: Vec<PairedConnection>,
}

/// Connection that is in both captures.
#[derive(Debug, Clone, Serialize)]
pub struct PairedConnection {
    /// Ends in the first capture: the client, or the end seen first, then the other end.
    pub ends: [String; 2],
    /// Packets that each end sent.
    pub directions: [PairedDirection; 2],
    /// Clock of the second capture minus that of the first, ns, if both ways take equally long.
    /// `None` if delays are known in only one direction.
    pub clock_difference_ns: Option<i64>,
    /// Differences between the two places that a middlebox made.
    pub changed: Vec<String>,
}

/// Packets that one end sent, at both places.
#[derive(Debug, Clone, Default, Serialize)]
pub struct PairedDirection {
    /// Capture that this direction passes first: 0 or 1.
    pub first: usize,
    /// Captured packets with payload at the first place.
    pub packets_first: u64,
    /// Payload bytes at the first place.
    pub bytes_first: u64,
    /// Captured packets with payload at the other place.
    pub packets_second: u64,
    /// Payload bytes at the other place.
    pub bytes_second: u64,
    /// Payload bytes that passed the first place and not the second, so were lost between.
    pub bytes_lost: u64,
    /// Packets at the second place whose origin was not fully searched, because too many packets at
    /// the first place hold the same bytes. The loss is then an estimate.
    pub not_followed: u64,
    /// Frame numbers in the first capture of packets with lost bytes: the first 20.
    pub frames_lost: Vec<u64>,
    /// Pure ACKs at the first place and at the second.
    pub pure_acks: [u64; 2],
    /// Delay above the shortest of this direction, µs.
    pub delay_above_min_us: Distribution,
}

impl Pair {
    /// Pairs two captures. `None` if no connection with data is in both.
    pub fn of(files: [String; 2], a: &Passed, b: &Passed, names: &Names) -> Option<Pair> {
        let connections: Vec<PairedConnection> = a
            .all
            .iter()
            .filter_map(|one| Some(paired(one, b.same_as(one)?, names)))
            .filter(|paired| paired.directions.iter().any(|of| of.packets_first > 0))
            .collect();
        (!connections.is_empty()).then_some(Pair { files, connections })
    }

    /// Renders the pair as text.
    pub fn text(&self) -> String {
        let [a, b] = &self.files;
        let mut out = String::new();
        let head = format!("{a} and {b}: the same connections at two places");
        wrapped(&mut out, "", 2, &head);
        for connection in &self.connections {
            let [client, server] = &connection.ends;
            let _ = writeln!(out, "\n{client} and {server}");
            if let Some(ns) = connection.clock_difference_ns {
                let ms = ns as f64 / 1e6;
                let _ = writeln!(
                    out,
                    "  the second clock is {ms:+.3} ms from the first, if both ways take equally long"
                );
            }
            for (end, direction) in connection.ends.iter().zip(&connection.directions) {
                if direction.packets_first + direction.pure_acks[0] > 0 {
                    direction.write(&mut out, end, &self.files[direction.first]);
                }
            }
            for changed in &connection.changed {
                wrapped(&mut out, "  changed between: ", 4, changed);
            }
        }
        out
    }
}

impl PairedDirection {
    /// Appends what `end` sent: losses and delays between the two places. `file`: the capture that
    /// the packets passed first.
    fn write(&self, out: &mut String, end: &str, file: &str) {
        let [first, second] = self.pure_acks;
        if self.bytes_first == 0 {
            let _ = writeln!(out, "  {end}: pure ACKs alone, {first}, then {second}");
        } else {
            let lost = self.bytes_lost as f64 / self.bytes_first as f64 * 100.0;
            let sent = format!(
                "{end}: {lost:.2} % of its data were lost between, {} of {} bytes; {} packets in {file}, then {}",
                self.bytes_lost, self.bytes_first, self.packets_first, self.packets_second,
            );
            wrapped(out, "  ", 4, &sent);
            let _ = writeln!(out, "    pure ACKs: {first}, then {second}");
            if self.not_followed > 0 {
                let _ = writeln!(
                    out,
                    "    {} packets were not followed: too many hold the same bytes, so losses are estimates",
                    self.not_followed
                );
            }
        }
        let delay = &self.delay_above_min_us;
        if let (Some(p50), Some(p99), Some(max)) = (delay.p50, delay.p99, delay.max) {
            let _ = writeln!(
                out,
                "    delay above the shortest: median {p50} µs, p99 {p99}, most {max} ({} packets)",
                delay.n
            );
        }
        if let Some(frame) = self.frames_lost.first() {
            let _ = writeln!(
                out,
                "    first lost: tshark -r {file} -Y frame.number=={frame}"
            );
        }
    }
}

impl Passed {
    /// Finds a connection of the other capture here: between the same ends, or, behind NAT, with
    /// the same initial sequence number of the client.
    fn same_as(&self, one: &SeenConnection) -> Option<&SeenConnection> {
        if let Some(place) = self.connections.get(&(one.ends[0], one.ends[1])) {
            return self.all.get(*place);
        }
        let number = one.syns[0].and_then(|syn| syn.seq)?;
        self.all.get(*self.by_number.get(&number)?)
    }
}

fn paired(a: &SeenConnection, b: &SeenConnection, names: &Names) -> PairedConnection {
    // The end that was seen first may be the other one in the second capture.
    let is_turned = a.ends[0] == b.ends[1] && a.ends[1] == b.ends[0];
    let of_b = |from: usize| if is_turned { 1 - from } else { from };
    let mut delays = [None; 2];
    let directions = [0, 1].map(|from| {
        let sides = [&a.packets[from], &b.packets[of_b(from)]];
        let first = first_of(sides, from);
        let (direction, min_ns) = compared(sides[first], sides[1 - first]);
        // Delay from the first capture's clock to the second's, whichever place comes first.
        delays[from] = min_ns.map(|ns| if first == 0 { ns } else { -ns });
        PairedDirection { first, ..direction }
    });
    let clock_difference_ns = match (delays, directions[0].first, directions[1].first) {
        ([Some(there), Some(back)], there_first, back_first) if there_first != back_first => {
            Some((there + back) / 2)
        }
        _ => None,
    };
    PairedConnection {
        ends: a.ends.map(|end| endpoint_name(end, names)),
        directions,
        clock_difference_ns,
        changed: changes(a, b, of_b),
    }
}

/// Capture that a direction passes first. Hop limits only go down; if they are equal, the capture
/// that holds more bytes of the direction; else the first capture for what the client sent.
fn first_of(sides: [&Vec<SeenPacket>; 2], from: usize) -> usize {
    let hops = sides.map(|packets| packets.first().map_or(0, |packet| packet.hop_limit));
    let bytes = sides.map(|packets| packets.iter().map(|of| u64::from(of.payload)).sum::<u64>());
    match (hops[0].cmp(&hops[1]), bytes[0].cmp(&bytes[1])) {
        (std::cmp::Ordering::Greater, _) => 0,
        (std::cmp::Ordering::Less, _) => 1,
        (_, std::cmp::Ordering::Greater) => 0,
        (_, std::cmp::Ordering::Less) => 1,
        _ => from,
    }
}

/// Matches the packets of the second place with those of the first. Returns the shortest delay by
/// both clocks, too.
fn compared(first: &[SeenPacket], second: &[SeenPacket]) -> (PairedDirection, Option<i64>) {
    let data = |packets: &[SeenPacket]| {
        let with: Vec<SeenPacket> = packets
            .iter()
            .filter(|of| of.payload > 0)
            .copied()
            .collect();
        with
    };
    let (sent, come) = (data(first), data(second));
    let bytes = |packets: &[SeenPacket]| packets.iter().map(|of| u64::from(of.payload)).sum();
    let mut unmatched = Unmatched::new(&sent);
    let delays: Vec<i64> = come
        .iter()
        .filter_map(|packet| unmatched.arrive(packet))
        .collect();
    let min = delays.iter().copied().min();
    let mut above = Histogram::default();
    for delay in &delays {
        above.add((delay - min.unwrap_or(0)) as u64 / 1000);
    }
    let acks = |packets: &[SeenPacket]| packets.iter().filter(|of| of.payload == 0).count() as u64;
    let left = unmatched.left;
    let lost = |at: &usize| left[*at] > 0;
    let direction = PairedDirection {
        first: 0,
        packets_first: sent.len() as u64,
        bytes_first: bytes(&sent),
        packets_second: come.len() as u64,
        bytes_second: bytes(&come),
        not_followed: unmatched.not_followed,
        bytes_lost: left.iter().map(|bytes| u64::from(*bytes)).sum(),
        frames_lost: (0..sent.len())
            .filter(lost)
            .map(|at| sent[at].frame)
            .take(20)
            .collect(),
        pure_acks: [acks(first), acks(second)],
        delay_above_min_us: (&above).into(),
    };
    (direction, min.or_else(|| ack_delay(first, second)))
}

/// Packets of the first place whose bytes have not all arrived at the second.
struct Unmatched<'a> {
    sent: &'a [SeenPacket],
    /// Bytes of each packet that have not arrived.
    left: Vec<u32>,
    /// Packets with bytes left: offset of the first byte, time of passing, and index in `sent`.
    open: BTreeSet<(i64, u64, usize)>,
    longest: i64,
    not_followed: u64,
    /// Packets examined in all.
    looked_at: u64,
}

impl Unmatched<'_> {
    fn new(sent: &[SeenPacket]) -> Unmatched<'_> {
        let mut unmatched = Unmatched {
            sent,
            left: sent.iter().map(|of| of.payload).collect(),
            open: BTreeSet::new(),
            longest: sent.iter().map(|of| of.payload.into()).max().unwrap_or(0),
            not_followed: 0,
            looked_at: 0,
        };
        unmatched.open = (0..sent.len()).map(|at| unmatched.key(at)).collect();
        unmatched
    }

    fn offset(&self, seq: u32) -> i64 {
        let base = self.sent.first().map_or(0, |of| of.seq);
        i64::from(seq.wrapping_sub(base).cast_signed())
    }

    fn key(&self, at: usize) -> (i64, u64, usize) {
        let of = &self.sent[at];
        (self.offset(of.seq), of.at_ns, at)
    }

    /// Handles a packet at the second place. Returns its delay, or `None` if no packet at the first
    /// place holds its first byte.
    fn arrive(&mut self, packet: &SeenPacket) -> Option<i64> {
        let mut delay = None;
        let (mut rest, mut seq) = (packet.payload, packet.seq);
        // Super-segments are split and merged on the way, so a packet may hold pieces of several.
        for _ in 0..PIECES_MOST {
            let start = self.offset(seq);
            let Some(at) = self.origin(packet, start) else {
                return delay;
            };
            let of = self.sent[at];
            let ends = self.offset(of.seq) + i64::from(of.payload);
            let part = (ends - start).min(i64::from(rest)).max(1) as u32;
            self.left[at] = self.left[at].saturating_sub(part);
            if self.left[at] == 0 {
                self.open.remove(&self.key(at));
            }
            delay.get_or_insert(packet.at_ns as i64 - of.at_ns as i64);
            rest -= part;
            if rest == 0 {
                return delay;
            }
            seq = seq.wrapping_add(part);
        }
        self.not_followed += 1;
        delay
    }

    /// Index of the packet at the first place that carried the byte at `start`. If it was sent
    /// several times: the transmission with the same TCP timestamp, then with the same IP id, then
    /// the earliest, among those with bytes left.
    fn origin(&mut self, packet: &SeenPacket, start: i64) -> Option<usize> {
        let around = (start - self.longest, 0, 0)..=(start, u64::MAX, usize::MAX);
        let nearest = self.open.range(around).rev().take(CANDIDATES_MOST);
        let order = |&(offset, at_ns, at): &(i64, u64, usize)| {
            let of = &self.sent[at];
            let other_stamp = of.timestamp != packet.timestamp;
            let other_id = of.ip_id != packet.ip_id;
            let covers = offset + i64::from(of.payload) > start;
            covers.then_some((other_stamp, other_id, at_ns, at))
        };
        let mut looked_at = 0;
        let best = nearest
            .inspect(|_| looked_at += 1)
            .filter_map(order)
            .min()
            .map(|(.., at)| at);
        self.looked_at += looked_at as u64;
        self.not_followed += u64::from(best.is_none() && looked_at == CANDIDATES_MOST);
        best
    }
}

/// Limits: packets at the first place examined for each piece of a packet at the second, and pieces
/// of one packet (as a super-segment of 256 KiB has).
const CANDIDATES_MOST: usize = 64;
const PIECES_MOST: usize = 512;

/// Shortest delay of pure ACKs, matched by ACK number, timestamp, window and IP id.
fn ack_delay(first: &[SeenPacket], second: &[SeenPacket]) -> Option<i64> {
    let key = |of: &SeenPacket| (of.ack, of.timestamp, of.window, of.ip_id);
    let mut sent = HashMap::new();
    for packet in first.iter().filter(|of| of.payload == 0) {
        sent.entry(key(packet)).or_insert(packet.at_ns);
    }
    let delays = second
        .iter()
        .filter(|of| of.payload == 0)
        .filter_map(|packet| {
            let at_ns = sent.get(&key(packet))?;
            Some(packet.at_ns as i64 - *at_ns as i64)
        });
    delays.min()
}

/// Changes that a middlebox made, as far as SYNs and the first packets show them.
fn changes(a: &SeenConnection, b: &SeenConnection, of_b: impl Fn(usize) -> usize) -> Vec<String> {
    let mut changed = Vec::new();
    for from in [0, 1] {
        let who = ["the client's", "the server's"][from];
        let other = of_b(from);
        if a.ends[from] != b.ends[other] {
            changed.push(format!("{who} address or port"));
        }
        if let (Some(one), Some(two)) = (a.syns[from], b.syns[other]) {
            let (x, y) = (one.options, two.options);
            let mut differs = |what: &str, before: String, after: String| {
                if before != after {
                    changed.push(format!("{who} SYN, {what}: {before} and {after}"));
                }
            };
            differs("MSS", format!("{:?}", x.mss), format!("{:?}", y.mss));
            let scales = [x.window_scale, y.window_scale];
            differs(
                "window scale",
                format!("{:?}", scales[0]),
                format!("{:?}", scales[1]),
            );
            let sack = [x.sack_permitted, y.sack_permitted];
            differs("SACK permitted", sack[0].to_string(), sack[1].to_string());
            let stamps = [x.timestamps.is_some(), y.timestamps.is_some()];
            differs("timestamps", stamps[0].to_string(), stamps[1].to_string());
            differs(
                "sequence number",
                format!("{:?}", one.seq),
                format!("{:?}", two.seq),
            );
        }
        let (one, two) = (a.packets[from].first(), b.packets[other].first());
        if let (Some(one), Some(two)) = (one, two) {
            let hops = i16::from(one.hop_limit) - i16::from(two.hop_limit);
            if hops != 0 {
                changed.push(format!("{who} hop limit, by {}", hops.abs()));
            }
        }
        let by_key = |packets: &[SeenPacket]| -> HashMap<(u32, u32, u32, Option<u32>), u16> {
            let key = |of: &SeenPacket| (of.seq, of.payload, of.ack, of.timestamp);
            packets.iter().map(|of| (key(of), of.ip_id)).collect()
        };
        let (ids, others) = (by_key(&a.packets[from]), by_key(&b.packets[other]));
        let same = ids
            .iter()
            .filter_map(|(key, id)| Some((id, others.get(key)?)));
        let (mut both, mut changed_ids) = (0u64, 0u64);
        for (one, two) in same {
            both += 1;
            changed_ids += u64::from(one != two);
        }
        if changed_ids * 2 > both {
            changed.push(format!("{who} datagram ids: {changed_ids} of {both}"));
        }
    }
    changed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(number: u64, seq: u32, payload: u32) -> SeenPacket {
        SeenPacket {
            at_ns: number,
            seq,
            payload,
            ack: 1,
            timestamp: Some(number as u32),
            ip_id: 0,
            hop_limit: 64,
            window: 9,
            frame: number,
        }
    }

    /// Packets examined when as many arrive at the second place as left the first.
    fn looked_at(count: u64, seq: fn(u64) -> u32, come: u32) -> u64 {
        let sent = (0..count).map(|number| match number {
            0 => packet(0, 0, 65_000),
            _ => packet(number, seq(number), 1),
        });
        let sent: Vec<SeenPacket> = sent.collect();
        let mut unmatched = Unmatched::new(&sent);
        for number in 0..count {
            unmatched.arrive(&packet(count + number, come, 1));
        }
        unmatched.looked_at
    }

    #[test]
    fn packets_that_hold_the_same_bytes_cost_no_more_each_for_being_many() {
        type Place = fn(u64) -> u32;
        let cases: [(Place, u32); 2] =
            [(|_| 500, 500), (|number| (number % 60_000) as u32, 60_001)];
        for (seq, come) in cases {
            let few = looked_at(2_000, seq, come);
            assert!(
                few > 2_000 && looked_at(8_000, seq, come) <= 5 * few,
                "{come}"
            );
        }
    }
}
