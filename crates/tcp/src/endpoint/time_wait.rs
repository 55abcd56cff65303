//! TIME-WAIT of connections that nobody holds any more, in a fraction of a connection's memory.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::table::Hashed;
use crate::SeqNum;
use crate::connection::TimeWait;
use crate::wire::{Flags, FourTuple, Options, Segment, Timestamps};

/// Connections in TIME-WAIT by the hash of their path. At most [`ENTRIES_MAX`]; the oldest makes
/// room, as a peer that opens and closes must not fill our memory.
#[derive(Default)]
pub(super) struct TimeWaits {
    entries: HashMap<u64, TimeWait, Hashed>,
    /// In the order of their deadlines when they were added.
    deadlines: VecDeque<(Instant, u64)>,
}

/// What to do about a segment for a connection in TIME-WAIT.
pub(super) enum TimeWaitVerdict {
    /// Answer with this.
    Answer(Segment),
    /// A new incarnation may begin, with an ISN above this.
    Reopen(SeqNum),
    Drop,
}

impl TimeWaits {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn insert(&mut self, key: u64, entry: TimeWait) {
        while self.entries.len() >= ENTRIES_MAX
            && let Some((_, oldest)) = self.deadlines.pop_front()
        {
            self.entries.remove(&oldest);
        }
        if self.deadlines.len() > 2 * ENTRIES_MAX {
            // Those reopened early have left their deadlines behind.
            let entries = &self.entries;
            self.deadlines.retain(|(_, key)| entries.contains_key(key));
        }
        self.deadlines.push_back((entry.until, key));
        self.entries.insert(key, entry);
    }

    pub(super) fn contains(&self, key: u64, path: &FourTuple) -> bool {
        self.entries
            .get(&key)
            .is_some_and(|entry| entry.path == *path)
    }

    /// RFC 9293 §3.10.7.4 in TIME-WAIT, with RFC 6191 for SYNs and RFC 1337 for RSTs.
    pub(super) fn on_segment(
        &mut self,
        key: u64,
        path: &FourTuple,
        segment: &Segment,
        now: Instant,
    ) -> Option<TimeWaitVerdict> {
        let entry = self
            .entries
            .get_mut(&key)
            .filter(|entry| entry.path == *path)?;
        if segment.flags.contains(Flags::RST) {
            return Some(TimeWaitVerdict::Drop);
        }
        if segment.flags.contains(Flags::SYN)
            && !segment.flags.contains(Flags::ACK)
            && entry.may_reopen(segment)
        {
            let above = entry.snd_nxt;
            self.entries.remove(&key);
            return Some(TimeWaitVerdict::Reopen(above));
        }
        // The peer's FIN again, or something old: say where we stand. A pure ACK is not answered,
        // or two ends in TIME-WAIT could answer each other.
        if segment.is_empty() {
            return Some(TimeWaitVerdict::Drop);
        }
        if segment.flags.contains(Flags::FIN) {
            entry.until = now + entry.length;
        }
        Some(TimeWaitVerdict::Answer(entry.ack(now)))
    }

    /// Forgets those whose time is over.
    pub(super) fn on_timeout(&mut self, now: Instant) {
        while let Some(&(deadline, key)) = self.deadlines.front()
            && deadline <= now
        {
            self.deadlines.pop_front();
            match self.entries.get(&key).map(|entry| entry.until) {
                Some(until) if until > now => self.deadlines.push_back((until, key)),
                Some(_) => {
                    self.entries.remove(&key);
                }
                None => {}
            }
        }
    }

    pub(super) fn next_timeout(&self) -> Option<Instant> {
        self.deadlines.front().map(|(deadline, _)| *deadline)
    }
}

impl TimeWait {
    /// RFC 6191 §2: a later timestamp, or failing that a sequence number beyond the old ones.
    fn may_reopen(&self, syn: &Segment) -> bool {
        match (self.ts_recent, syn.options.timestamps) {
            (Some(recent), Some(theirs)) if theirs.value != recent => {
                (theirs.value.wrapping_sub(recent) as i32) > 0
            }
            _ => syn.seq.after(self.rcv_nxt),
        }
    }

    fn ack(&self, now: Instant) -> Segment {
        let timestamps = self.ts_recent.map(|echo| Timestamps {
            value: self.clock.at(now),
            echo,
        });
        Segment {
            seq: self.snd_nxt,
            ack: self.rcv_nxt,
            flags: Flags::ACK,
            window: 0xffff,
            options: Options {
                timestamps,
                ..Options::default()
            },
            ..Segment::default()
        }
    }
}

/// 32,768 of about 200 bytes; Linux allows more, on machines with more to lose.
const ENTRIES_MAX: usize = 1 << 15;
