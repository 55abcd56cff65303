//! Before the MSS is known packets are held back: until both SYNs told it, or enough payload sizes.

use super::Connection;
use crate::half::SynOptions;
use crate::mss::{Mss, MssSource, assume, infer, is_of_ethernet};
use crate::segment::{Segment, flag};
use crate::watch::Watch;

/// What is held back.
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
        let sure = held.data == HELD_DATA / 4 && {
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

    /// Decides the MSS and takes what was held.
    pub(super) fn release<W: Watch>(&mut self, watch: &mut W) {
        let Some(held) = self.held.take() else { return };
        let syns = self.halves.each_ref().map(|half| half.syn);
        if let [Some(a), Some(b)] = syns {
            self.timestamps = a.timestamps && b.timestamps;
            // RFC 7323: both SYNs must have the option, else none scales.
            let scales = a.window_scale.zip(b.window_scale);
            self.halves[0].window_shift = Some(scales.map_or(0, |scales| scales.0));
            self.halves[1].window_shift = Some(scales.map_or(0, |scales| scales.1));
        }
        let headers = header_bytes(self.ipv6, self.timestamps);
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
}

fn header_bytes(ipv6: bool, timestamps: bool) -> u32 {
    let ip_and_tcp = if ipv6 { 60 } else { 40 };
    ip_and_tcp + if timestamps { 12 } else { 0 }
}

/// Data packets that are looked at for inferring an MSS (a quarter of them where those are Ethernet's),
/// and packets of any kind held at most: 8 KiB a connection.
const HELD_DATA: usize = 32;
const HELD_MOST: usize = 64;
