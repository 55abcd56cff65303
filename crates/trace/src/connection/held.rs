//! Packets held until the MSS is known from both SYNs or from enough payload sizes.

use super::Connection;
use crate::direction::SynOptions;
use crate::mss::{Mss, MssSource, assume, by_syns, infer, is_of_ethernet};
use crate::segment::{Segment, flag};
use crate::watch::Watch;

/// Packets held so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Held {
    segments: Vec<Segment>,
    data: usize,
}

impl Connection {
    #[cold]
    pub(super) fn hold<W: Watch>(&mut self, segment: &Segment, from: usize, watch: &mut W) {
        if segment.any(flag::SYN) && segment.options.complete {
            let options = &segment.options;
            self.directions[from].syn = Some(SynOptions {
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
        let syns = self.directions.each_ref().map(|direction| direction.syn);
        let told = match syns.map(|syn| syn.and_then(|syn| syn.mss)) {
            // If the options of the SYNs differ, payload sizes decide, too.
            [Some(client), Some(server)] => client == server || held.data >= HELD_DATA_FEW,
            _ => false,
        };
        let after_syn = !segment.any(flag::SYN);
        let sure = held.data == HELD_DATA_FEW && {
            let sizes = held.segments.iter().map(|segment| segment.payload);
            let headers = header_bytes(self.ipv6, self.timestamps);
            is_of_ethernet(&sizes.collect::<Vec<_>>(), headers)
        };
        if self.settings.mss.is_some()
            || (told && after_syn)
            || sure
            || held.data >= HELD_DATA
            || held.segments.len() >= HELD_MOST
        {
            self.release(watch);
        }
    }

    /// Decides the MSS and analyses the packets that were held.
    pub(super) fn release<W: Watch>(&mut self, watch: &mut W) {
        let Some(held) = self.held.take() else { return };
        self.infer_server(&held.segments);
        self.read_both_syns();
        self.decide_mss(&held);
        let twins = twins(&held.segments);
        let pairs = held.segments.iter().zip(&twins);
        let is_syn_doubled = pairs
            .into_iter()
            .any(|(of, is_twin)| *is_twin && of.any(flag::SYN));
        for direction in &mut self.directions {
            direction.copies.doubled = is_doubled(&twins) || is_syn_doubled;
        }
        for segment in &held.segments {
            let from = self.end_of(&segment.source);
            self.analyse(segment, from, watch);
        }
    }

    /// Enables what both SYNs allow: timestamps and window scales.
    fn read_both_syns(&mut self) {
        let [Some(a), Some(b)] = self.directions.each_ref().map(|direction| direction.syn) else {
            return;
        };
        self.timestamps = a.timestamps && b.timestamps;
        // RFC 7323: windows are scaled only if both SYNs have the option.
        let scales = a.window_scale.zip(b.window_scale);
        self.directions[0].window_shift = Some(scales.map_or(0, |scales| scales.0));
        self.directions[1].window_shift = Some(scales.map_or(0, |scales| scales.1));
    }

    /// Sets the MSS of both directions: as given, by the SYNs, by payload sizes, or assumed.
    fn decide_mss(&mut self, held: &Held) {
        let headers = header_bytes(self.ipv6, self.timestamps);
        let given = self.settings.mss.map(|bytes| Mss {
            bytes: bytes.max(1),
            source: MssSource::Given,
        });
        let sizes = [0, 1].map(|end| self.payload_sizes(held, end));
        let by_size = [infer(&sizes[0], headers), infer(&sizes[1], headers)];
        for end in [0, 1] {
            let by_syns = self.mss_by_syns(held, end, &sizes[end]);
            // A direction of small messages shows no MSS; the other direction may.
            let is_large = |mss: &Mss| mss.bytes >= LEAST_INFERRED;
            let by_size = by_size[end]
                .filter(is_large)
                .or(by_size[1 - end].filter(is_large));
            self.directions[end].mss = given
                .or(by_syns)
                .or(by_size)
                .unwrap_or_else(|| assume(headers, self.loopback));
        }
    }

    /// Payload sizes of the held data packets that `end` sent.
    fn payload_sizes(&self, held: &Held, end: usize) -> Vec<u32> {
        let has_data =
            |segment: &&Segment| segment.payload > 0 && self.end_of(&segment.source) == end;
        let data = held.segments.iter().filter(has_data);
        data.map(|segment| segment.payload).collect()
    }

    /// MSS of the data that `end` sends, by the options of the SYNs. An end's segments are limited
    /// by the other end's MSS option, less the option bytes that the sender itself uses.
    fn mss_by_syns(&self, held: &Held, end: usize, sizes: &[u32]) -> Option<Mss> {
        let used = held.segments.iter().find(|segment| {
            !segment.any(flag::SYN | flag::RST) && self.end_of(&segment.source) == end
        });
        let timestamps = used.map_or(self.timestamps, |segment| {
            segment.options.timestamps.is_some() || !segment.options.complete && self.timestamps
        });
        let option_bytes = if timestamps { TIMESTAMP_BYTES } else { 0 };
        let option = |of: usize| {
            let mss = u32::from(self.directions[of].syn?.mss?);
            (mss > option_bytes + 8).then(|| mss - option_bytes)
        };
        by_syns(option(1 - end), option(end), sizes)
    }
}

/// True if every packet seems to be captured twice: half of the held packets are copies of others. Two of five are
/// enough, because in a handshake the last packet has no copy yet.
fn is_doubled(twins: &[bool]) -> bool {
    let copies = twins.iter().filter(|is_twin| **is_twin).count();
    copies * 5 >= twins.len().max(1) * 2
}

/// Tells of each held packet whether it is a copy of one before it: equal in all fields within 50 ms. Of SYNs the limit is
/// 900 ms, because a retransmission comes after 1 s or later (RFC 6298): so one SYN shows that packets are captured twice.
fn twins(held: &[Segment]) -> Vec<bool> {
    let same = |a: &Segment, b: &Segment| {
        let most_ns = if a.any(flag::SYN) {
            900_000_000
        } else {
            50_000_000
        };
        let is_near = match (a.at_ns, b.at_ns) {
            (Some(a), Some(b)) => b.saturating_sub(a) <= most_ns,
            _ => true,
        };
        is_near
            && a.seq == b.seq
            && a.ack == b.ack
            && a.source == b.source
            && (a.flags, a.payload, a.window, a.ip_id) == (b.flags, b.payload, b.window, b.ip_id)
            && a.options.timestamps == b.options.timestamps
    };
    let mut is_twin = vec![false; held.len()];
    for (at, segment) in held.iter().enumerate() {
        let second =
            (at + 1..held.len()).find(|other| !is_twin[*other] && same(segment, &held[*other]));
        if let Some(second) = second.filter(|_| !is_twin[at]) {
            is_twin[second] = true;
        }
    }
    is_twin
}

fn header_bytes(ipv6: bool, timestamps: bool) -> u32 {
    let ip_and_tcp = if ipv6 { 60 } else { 40 };
    ip_and_tcp + if timestamps { TIMESTAMP_BYTES } else { 0 }
}

/// Bytes that timestamps take in each segment, padding included (RFC 7323 appendix A).
const TIMESTAMP_BYTES: u32 = 12;

/// Smallest MSS that payload sizes show, bytes. Smaller sizes are those of messages.
const LEAST_INFERRED: u32 = 500;

/// Limits of what is held for each connection: data packets for inferring an MSS, fewer if their
/// sizes are Ethernet's or the SYNs have MSS options, and packets of any kind (8 KiB).
const HELD_DATA: usize = 32;
const HELD_DATA_FEW: usize = HELD_DATA / 4;
const HELD_MOST: usize = 64;
