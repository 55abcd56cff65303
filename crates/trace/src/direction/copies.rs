//! Whether a packet that brings nothing new is a second capture of one before, or was sent again.
//!
//! What tells, in this order: the datagram's id, which a copy keeps and a retransmission does not;
//! TSval, which a later packet has another of; the hop limit, which a router lowers; and, where all are
//! equal or missing, whether it follows the other directly, or this capture holds every packet twice.
//! Time alone tells nothing: a copy that waited in a queue comes late, and RACK sends again sooner than
//! some captures hold the copy.

use super::acking::is_dsack;
use super::{Direction, Stamp};
use crate::segment::Segment;

/// What is known of copies in one direction.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Copies {
    /// Whether each packet was captured twice when the connection began: decides where nothing else does.
    pub(crate) doubled: bool,
    /// The interface that the first packet passed.
    pub(crate) view: Option<u64>,
    /// Packets in a row that other interfaces alone saw.
    pub(crate) elsewhere: u16,
    /// What was taken so far, another interface saw than the one now looked at.
    pub(crate) taken_elsewhere: bool,
    ids: Ids,
    /// Numbers and time of the last packet with any.
    last: (u64, u64, u64),
    /// What the last ACK with a DSACK or SACK block said.
    last_sack: u64,
}

/// The ids that passed: the last ones bit by bit, as RFC 6479 keeps them against replays.
#[derive(Debug, Clone, Copy, Default)]
struct Ids {
    newest: u16,
    /// How far they are to be trusted to count on; drawn at random they do not.
    counting: u8,
    seen: [u64; WORDS],
    /// The last ones where they do not count on.
    recent: [u16; 8],
    recent_next: u8,
}

/// Words of 64 ids: two are being left or entered.
const WORDS: usize = 16;
const WINDOW: u16 = (WORDS as u16 - 2) * 64;

/// Ids that went on in small steps so often in a row count on.
const COUNTING: u8 = 4;

/// The longest step: what other connections of the host may take in between.
const STEP_MOST: u16 = 4096;

impl Ids {
    /// A packet was taken: its id, and how many its sender used for it.
    #[inline]
    fn on_taken(&mut self, first: u16, count: u32) {
        // What most hosts do: one after the other.
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

    /// Whether a packet with this id passed before.
    fn passed(&self, id: u16) -> bool {
        let age = self.newest.wrapping_sub(id);
        if !self.count_on() {
            return self.recent.contains(&id);
        }
        match age {
            0..WINDOW => self.seen[usize::from(id >> 6) % WORDS] >> (id & 63) & 1 != 0,
            // Beyond what is kept: half of the numbers are behind the newest.
            _ => age.cast_signed() > 0,
        }
    }
}

impl Copies {
    /// A packet was taken, with `length` sequence numbers from `seq` on.
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
    /// Whether this packet, which brings nothing new, is one that was captured before.
    #[cold]
    pub(crate) fn is_copy(&mut self, segment: &Segment, seq: u64, length: u64, at_ns: u64) -> bool {
        let stamp = Stamp::of(segment);
        let end = seq + length;
        if length == 0 {
            return match stamp.ip_id {
                // Each duplicate is told of once (RFC 2883 §4).
                0 if is_dsack(segment) && self.copies.last_sack == ack_print(segment) => true,
                0 => self.copies.doubled && self.repeats_ack(segment),
                id => self.copies.ids.passed(id),
            };
        }
        // What the capture does not hold yet is no copy.
        let fills = |start: u64, stop: u64| seq < stop && end > start;
        if self.holes.iter().any(|hole| fills(hole.start, hole.end))
            || self.early.iter().any(|early| fills(early.start, early.end))
        {
            return false;
        }
        if stamp.ip_id != 0 && self.copies.ids.count_on() {
            return self.copies.ids.passed(stamp.ip_id);
        }
        let again = self
            .resent
            .iter()
            .rev()
            .filter(|resent| fills(resent.start, resent.end));
        let first = self
            .outstanding
            .iter()
            .find(|other| fills(other.start, other.end));
        let first_of = first.map(|other| (other.stamp, other.wire_segments));
        let mut originals = again
            .map(|resent| (resent.stamp, 1))
            .chain(first_of)
            .peekable();
        if stamp.ip_id != 0 {
            // Pieces of a super-segment have its id and those after it.
            let is_of = |(other, segments): (Stamp, u32)| {
                other.ip_id != 0
                    && u32::from(stamp.ip_id.wrapping_sub(other.ip_id)) < segments.max(1)
            };
            return originals.any(is_of) || self.copies.ids.passed(stamp.ip_id);
        }
        // What leaves again waits for something that comes behind it, or for a timer.
        let (last_seq, last_length, last_ns) = self.copies.last;
        let is_last = (last_seq, last_length) == (seq, length);
        if is_last && at_ns.saturating_sub(last_ns) < DIRECTLY_NS {
            return true;
        }
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

    /// Whether this ACK stands beside one that is the same in all: each has one copy.
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

    /// Keeps what an ACK says, for its copy.
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

/// Sooner than a tail loss probe, which waits 2 ms or more.
const DIRECTLY_NS: u64 = 500_000;

/// ACKs that are remembered where every packet comes twice and has no id: those of a queue's length.
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
