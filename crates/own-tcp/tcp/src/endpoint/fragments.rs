//! Reassembly of IP fragments (RFC 791 §3.2, RFC 8200 §4.5). Our packets are never fragmented, and
//! a host with path MTU discovery sends no fragments, so few are kept, and for a short time only.
//!
//! Overlapping fragments drop the whole packet (RFC 5722), for IPv4 too.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Endpoint;
use crate::wire::{self, Ecn, Fragment, FragmentKey, Packet};

/// Incomplete packets, oldest first.
#[derive(Default)]
pub(super) struct Fragments {
    waiting: VecDeque<Datagram>,
    bytes: usize,
}

struct Datagram {
    key: FragmentKey,
    since: Instant,
    /// Offset and bytes of each fragment, in order.
    parts: Vec<(usize, Vec<u8>)>,
    /// Number of bytes in the packet; `None` until the last fragment has come.
    end: Option<usize>,
    ecn: Ecn,
}

/// Error: the fragments cannot form a packet.
struct Impossible;

impl Endpoint {
    /// Processes a fragment of a TCP packet; other fragments are counted as dropped.
    #[cold]
    pub(super) fn on_fragment(&mut self, packet: &Packet, now: Instant) {
        let fragment = match Fragment::parse(packet) {
            Ok(fragment) => fragment,
            Err(reason) => return self.count_drop(reason),
        };
        if !self.local_addresses.is_ours(fragment.key.dest) {
            self.counters.dropped_foreign += 1;
            return;
        }
        let dropped = &mut self.counters.dropped_fragment;
        if let Some(mut whole) = self.fragments.add(fragment, now, dropped) {
            self.counters.packets_reassembled += 1;
            self.take_in(&mut whole, now);
        }
    }
}

impl Fragments {
    /// Adds a fragment and returns the packet if it is complete now. Adds to `dropped` the
    /// fragments that are discarded.
    fn add(&mut self, fragment: Fragment, now: Instant, dropped: &mut u64) -> Option<Packet> {
        while self.waiting.front().is_some_and(|oldest| {
            now.saturating_duration_since(oldest.since) >= LIFE
                || self.waiting.len() > DATAGRAMS_MAX
                || self.bytes > BYTES_MAX
        }) {
            *dropped += self.remove(0).parts.len() as u64;
        }
        let is_its = |waiting: &Datagram| waiting.key == fragment.key;
        let index = match self.waiting.iter().position(is_its) {
            Some(index) => index,
            None => {
                self.waiting.push_back(Datagram::new(&fragment, now));
                self.waiting.len() - 1
            }
        };
        let datagram = &mut self.waiting[index];
        let bytes = fragment.bytes.len();
        match datagram.add(fragment) {
            Ok(true) => self.bytes += bytes,
            Ok(false) => {
                *dropped += 1;
                return None;
            }
            Err(Impossible) => {
                *dropped += 1 + self.remove(index).parts.len() as u64;
                return None;
            }
        }
        if !self.waiting[index].is_whole() {
            return None;
        }
        let whole = self.remove(index);
        let body: Vec<u8> = whole
            .parts
            .iter()
            .flat_map(|(_, part)| part)
            .copied()
            .collect();
        Some(wire::rebuild(&whole.key, whole.ecn, &body))
    }

    fn remove(&mut self, index: usize) -> Datagram {
        let gone = self
            .waiting
            .remove(index)
            .expect("an index that was just found");
        self.bytes -= gone.bytes();
        gone
    }
}

impl Datagram {
    fn new(fragment: &Fragment, now: Instant) -> Self {
        Self {
            key: fragment.key,
            since: now,
            parts: Vec::new(),
            end: None,
            ecn: fragment.ecn,
        }
    }

    fn bytes(&self) -> usize {
        self.parts.iter().map(|(_, part)| part.len()).sum()
    }

    /// Adds a fragment. False if it is a duplicate.
    fn add(&mut self, fragment: Fragment) -> Result<bool, Impossible> {
        let (at, end) = (fragment.at, fragment.at + fragment.bytes.len());
        let index = self.parts.partition_point(|(from, _)| *from < at);
        if self
            .parts
            .get(index)
            .is_some_and(|(from, part)| (*from, part.len()) == (at, end - at))
        {
            return Ok(false);
        }
        let before = index.checked_sub(1).map(|index| &self.parts[index]);
        let overlaps = before.is_some_and(|(from, part)| from + part.len() > at)
            || self.parts.get(index).is_some_and(|(from, _)| *from < end);
        let last = if fragment.more { self.end } else { Some(end) };
        let reaches = self
            .parts
            .last()
            .map_or(end, |(from, part)| end.max(from + part.len()));
        let contradicts = last.is_some_and(|last| last < reaches)
            || (!fragment.more && self.end.is_some_and(|known| known != end));
        if overlaps || contradicts || self.parts.len() >= PARTS_MAX {
            return Err(Impossible);
        }
        self.end = last;
        // RFC 3168 §5.3: a mark on one fragment marks the packet.
        if fragment.ecn == Ecn::Congested {
            self.ecn = Ecn::Congested;
        }
        self.parts.insert(index, (at, fragment.bytes));
        Ok(true)
    }

    fn is_whole(&self) -> bool {
        self.end == Some(self.bytes())
    }
}

/// Longest wait for missing fragments (RFC 8200 §4.5; the minimum of RFC 1122 §3.3.2).
const LIFE: Duration = Duration::from_secs(60);
const DATAGRAMS_MAX: usize = 64;
/// Limit of bytes held: sixteen packets of the largest size.
const BYTES_MAX: usize = 1 << 20;
/// Limit of fragments in a packet. The largest packet has 52 fragments of IPv6's minimum MTU.
const PARTS_MAX: usize = 64;
