//! Decision whether a packet without new data is a second capture or a retransmission.
//!
//! These fields decide, in this order: the IP id, which a copy keeps and a retransmission does not;
//! TSval, which differs in a later packet; the hop limit, which a router lowers. If all are equal
//! or missing, the packet is a copy if it directly follows the other, or if this capture holds
//! every packet twice.
//!
//! Time alone does not decide: a copy that waited in a queue comes late, and RACK retransmits
//! sooner than some captures hold the copy.

use std::ops::Range;

use super::acking::is_dsack;
use super::{Direction, Stamp};
use crate::segment::Segment;

/// State for recognising copies in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Copies {
    /// True if each packet was captured twice when the connection began. Decides if nothing else
    /// does.
    pub(crate) doubled: bool,
    /// Interface of the first packet.
    pub(crate) view: Option<u64>,
    /// Successive packets that only other interfaces saw.
    pub(crate) elsewhere: u16,
    /// True if the packets analysed so far were seen by another interface than the one now chosen.
    pub(crate) taken_elsewhere: bool,
    ids: Ids,
    /// First sequence number, length and time of the last packet with data.
    last: (u64, u64, u64),
    /// Fingerprint of the last ACK with a DSACK or SACK block.
    last_sack: u64,
}

/// IP ids that passed: the last ones in a bitmap, like that of RFC 6479 against replays.
#[derive(Debug, Clone, Copy, Default)]
struct Ids {
    newest: u16,
    /// Confidence, 0 to `2 * COUNTING`, that the ids count up. Random ids do not.
    counting: u8,
    seen: [u64; WORDS],
    /// Last ids, for hosts whose ids do not count up.
    recent: [u16; 8],
    recent_next: u8,
}

/// Size of the bitmap in words of 64 ids. Two words are being left or entered.
const WORDS: usize = 16;
const WINDOW: u16 = (WORDS as u16 - 2) * 64;

/// Confidence from which the ids are taken to count up: this many small steps in a row.
const COUNTING: u8 = 4;

/// Longest small step: ids that other connections of the host may use in between.
const STEP_MOST: u16 = 4096;

impl Ids {
    /// Records a packet: its id, and the number of ids that its sender used for it.
    #[inline]
    fn on_taken(&mut self, first: u16, count: u32) {
        // Most hosts use one id after the other.
        if count == 1 && self.counting == 2 * COUNTING && first == self.newest.wrapping_add(1) {
            let word = &mut self.seen[usize::from(first >> 6) % WORDS];
            let before = if first & 63 == 0 { 0 } else { *word };
            *word = before | 1 << (first & 63);
            self.newest = first;
        } else {
            self.on_any_taken(first, count);
        }
    }

    #[cold]
    fn on_any_taken(&mut self, first: u16, count: u32) {
        let last = first.wrapping_add(count.saturating_sub(1).min(u32::from(WINDOW)) as u16);
        let step = last.wrapping_sub(self.newest);
        if (1..=STEP_MOST).contains(&step) {
            self.counting = (self.counting + 1).min(2 * COUNTING);
        } else if step.wrapping_neg() > WINDOW {
            self.counting /= 2;
            self.seen = [0; WORDS];
            self.newest = last;
        }
        if step.cast_signed() > 0 {
            let words = (last >> 6).wrapping_sub(self.newest >> 6) & 1023;
            for word in 1..=usize::from(words).min(WORDS) {
                self.seen[(usize::from(self.newest >> 6) + word) % WORDS] = 0;
            }
            self.newest = last;
        }
        let mut id = first;
        loop {
            self.seen[usize::from(id >> 6) % WORDS] |= 1 << (id & 63);
            if id == last {
                break;
            }
            id = id.wrapping_add(1);
        }
        if self.counting < COUNTING {
            self.recent[usize::from(self.recent_next)] = first;
            self.recent_next = (self.recent_next + 1) % self.recent.len() as u8;
        }
    }

    fn count_on(&self) -> bool {
        self.counting >= COUNTING
    }

    /// True if a packet with this id passed before.
    fn passed(&self, id: u16) -> bool {
        let age = self.newest.wrapping_sub(id);
        if !self.count_on() {
            return self.recent.contains(&id);
        }
        match age {
            0..WINDOW => self.seen[usize::from(id >> 6) % WORDS] >> (id & 63) & 1 != 0,
            // Beyond the bitmap: half of the numbers are older than the newest.
            _ => age.cast_signed() > 0,
        }
    }
}

impl Copies {
    /// Records a packet with `length` sequence numbers from `seq` on.
    #[inline]
    pub(crate) fn on_taken(
        &mut self,
        ip_id: u16,
        wire_segments: u32,
        seq: u64,
        length: u64,
        at_ns: u64,
    ) {
        if ip_id != 0 {
            self.ids.on_taken(ip_id, wire_segments.max(1));
        } else if length > 0 {
            self.last = (seq, length, at_ns);
        }
    }
}

impl Direction {
    /// True if this packet, which has no new data, was captured before.
    #[cold]
    pub(crate) fn is_copy(&mut self, segment: &Segment, seq: u64, length: u64, at_ns: u64) -> bool {
        if length == 0 {
            return match segment.ip_id {
                // Each duplicate is reported once (RFC 2883 §4).
                0 if is_dsack(segment) && self.copies.last_sack == ack_print(segment) => true,
                0 => self.copies.doubled && self.repeats_ack(segment),
                id => self.copies.ids.passed(id),
            };
        }
        let data = seq..seq + length;
        // Data that the capture does not hold yet are no copy.
        if self
            .holes
            .iter()
            .any(|hole| overlap(&data, hole.start, hole.end))
            || self
                .early
                .iter()
                .any(|early| overlap(&data, early.start, early.end))
        {
            return false;
        }
        let stamp = Stamp::of(segment);
        if stamp.ip_id == 0 {
            self.is_copy_by_fields(stamp, &data, at_ns)
        } else {
            self.is_copy_by_id(stamp.ip_id, &data)
        }
    }

    /// True if data with this IP id were captured before.
    fn is_copy_by_id(&self, id: u16, data: &Range<u64>) -> bool {
        // Pieces of a super-segment have its id and the following ids.
        let is_of = |(other, segments): (Stamp, u32)| {
            other.ip_id != 0 && u32::from(id.wrapping_sub(other.ip_id)) < segments.max(1)
        };
        let by_original = !self.copies.ids.count_on() && self.originals(data).any(is_of);
        by_original || self.copies.ids.passed(id)
    }

    /// True if data without an IP id were captured before, by time, TSval and hop limit.
    fn is_copy_by_fields(&mut self, stamp: Stamp, data: &Range<u64>, at_ns: u64) -> bool {
        // A retransmission waits for a later packet, or for a timer.
        let (last_seq, last_length, last_ns) = self.copies.last;
        let is_last = (last_seq, last_length) == (data.start, data.end - data.start);
        if is_last && at_ns.saturating_sub(last_ns) < DIRECTLY_NS {
            return true;
        }
        let mut originals = self.originals(data).peekable();
        if originals.peek().is_none() {
            return self.copies.doubled;
        }
        let (mut is_lower, mut is_unclear) = (false, false);
        for (other, _) in originals {
            if other.timestamp.is_some() && other.timestamp != stamp.timestamp {
                continue;
            }
            is_lower |= other.hop_limit != stamp.hop_limit;
            is_unclear = true;
        }
        if is_unclear && !is_lower && !self.copies.doubled {
            self.sent.repeats_unclear += 1;
        }
        is_unclear && (is_lower || self.copies.doubled)
    }

    /// Packets that may be the original of these data, with their wire segments: retransmissions,
    /// the newest first, then what is outstanding.
    fn originals(&self, data: &Range<u64>) -> impl Iterator<Item = (Stamp, u32)> {
        let again = self.resent.iter().rev();
        let again = again.filter(move |resent| overlap(data, resent.start, resent.end));
        let mut first = self.outstanding.iter();
        let first = first.find(|other| overlap(data, other.start, other.end));
        let again = again.map(|resent| (resent.stamp, 1));
        again.chain(first.map(|other| (other.stamp, other.wire_segments)))
    }

    /// True if an equal ACK was remembered. That ACK is forgotten, because each has one copy.
    fn repeats_ack(&mut self, segment: &Segment) -> bool {
        let print = ack_print(segment);
        match self.acks_seen.iter().position(|seen| *seen == print) {
            Some(at) => {
                self.acks_seen.remove(at);
                true
            }
            None => false,
        }
    }

    /// Remembers an ACK, to recognise its copy.
    #[cold]
    pub(crate) fn remember_ack(&mut self, segment: &Segment) {
        self.copies.last_sack = ack_print(segment);
        if !self.copies.doubled {
            return;
        }
        if self.acks_seen.len() == ACKS_SEEN_MOST {
            self.acks_seen.pop_front();
        }
        self.acks_seen.push_back(ack_print(segment));
    }
}

fn overlap(data: &Range<u64>, start: u64, end: u64) -> bool {
    data.start < end && data.end > start
}

/// Limit of the time between a packet and its copy: shorter than a tail loss probe, which waits 2
/// ms or more.
const DIRECTLY_NS: u64 = 500_000;

/// Limit of ACKs remembered if every packet comes twice and has no id: the length of a queue.
pub(super) const ACKS_SEEN_MOST: usize = 256;

fn ack_print(segment: &Segment) -> u64 {
    let timestamp = segment.options.timestamps.map_or(0, |(value, _)| value);
    let sack = segment.options.sack[0];
    let numbers =
        u64::from(segment.ack) << 32 | u64::from(segment.window) << 8 | u64::from(segment.flags);
    numbers
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_add(u64::from(timestamp) << 32 | u64::from(sack.1))
        .wrapping_mul(0xbf58_476d_1ce4_e5b9)
}
