//! Released connections in TIME-WAIT, in a fraction of a connection's memory.

use std::collections::{HashMap, VecDeque};
use std::time::Instant;

use super::table::Hashed;
use crate::SeqNum;
use crate::connection::TimeWait;
use crate::wire::{Flags, FourTuple, Options, Segment, Timestamps};

/// Connections in TIME-WAIT by the hash of their path. At most [`ENTRIES_MAX`], so that a peer that
/// opens and closes cannot fill our memory; the oldest is dropped.
#[derive(Default)]
pub(super) struct TimeWaits {
    entries: HashMap<u64, TimeWait, Hashed>,
    /// Deadlines at the time of insertion, in order.
    deadlines: VecDeque<(Instant, u64)>,
}

/// Decision about a segment for a connection in TIME-WAIT.
pub(super) enum TimeWaitVerdict {
    /// Send this answer.
    Answer(Segment),
    /// Open a new connection with an ISN above this number.
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
            // Connections that were reopened early have left their deadlines.
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

    /// Processes a segment in TIME-WAIT (RFC 9293 §3.10.7.4), with RFC 6191 for SYNs and RFC 1337
    /// for RSTs.
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
        // Answer a repeated FIN or old data with our state. A pure ACK gets no answer, or two ends
        // in TIME-WAIT could answer each other for ever.
        if segment.is_empty() {
            return Some(TimeWaitVerdict::Drop);
        }
        if segment.flags.contains(Flags::FIN) {
            entry.until = now + entry.length;
        }
        Some(TimeWaitVerdict::Answer(entry.ack(now)))
    }

    /// Removes the connections whose time is over.
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
    /// True if the SYN has a later timestamp or, failing that, a sequence number beyond the old
    /// ones (RFC 6191 §2).
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

/// Limit of connections in TIME-WAIT: 32,768, about 200 bytes each. Linux allows more on machines
/// with more memory.
const ENTRIES_MAX: usize = 1 << 15;
