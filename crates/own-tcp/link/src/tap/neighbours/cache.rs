//! Neighbour cache: link-layer addresses learned from answers, requests and announcements.
//!
//! Not here: NUD's probes of an address that has been silent (RFC 4861 §7.3). An entry older than
//! [`REACHABLE`] remains in use while it is requested again.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::messages::Mac;

/// Neighbours by IP address.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<IpAddr, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mac: Option<Mac>,
    /// Time at which the address was last learned; `None` before.
    told: Option<Instant>,
    /// Requests sent since the address was last learned.
    asked: u32,
    /// Earliest time of the next request.
    ask_at: Instant,
    /// Frames that wait for the address, the newest last. Their destination is not filled in yet.
    waiting: Vec<Vec<u8>>,
}

impl Cache {
    /// Returns the link-layer address, if known, and true if a request must be sent now. `None` if
    /// the cache is full.
    pub(super) fn look(&mut self, address: IpAddr, now: Instant) -> Option<(Option<Mac>, bool)> {
        if !self.entries.contains_key(&address) && self.entries.len() >= ENTRIES_MAX {
            // Entries that no frame waits for are removed.
            self.entries
                .retain(|_, entry| entry.mac.is_none() && !entry.waiting.is_empty());
            if self.entries.len() >= ENTRIES_MAX {
                return None;
            }
        }
        let entry = self.entries.entry(address).or_insert_with(|| Entry {
            mac: None,
            told: None,
            asked: 0,
            ask_at: now,
            waiting: Vec::new(),
        });
        let fresh = entry.told.is_some_and(|told| now - told < REACHABLE);
        Some((entry.mac, !fresh && entry.ask(now)))
    }

    /// Keeps a frame until its neighbour is known. True if a frame was dropped for it.
    pub(super) fn keep(&mut self, address: IpAddr, frame: Vec<u8>) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else {
            return true;
        };
        // RFC 1122 §2.3.2.2: keep at least the latest packet.
        let full = entry.waiting.len() >= WAITING_MAX;
        if full {
            entry.waiting.remove(0);
        }
        entry.waiting.push(frame);
        full
    }

    /// Notes that `address` is at `mac` and returns the frames that waited for it. `asks_us`: the
    /// message was a request for one of our addresses, which adds an entry; other messages only
    /// update entries (RFC 4861 §7.2.5, RFC 826). A known address is changed only if the message
    /// `replaces` it.
    pub(super) fn tell(
        &mut self,
        address: IpAddr,
        mac: Mac,
        asks_us: bool,
        replaces: bool,
        now: Instant,
    ) -> Vec<Vec<u8>> {
        if asks_us {
            let _ = self.look(address, now);
        }
        let Some(entry) = self.entries.get_mut(&address) else {
            return Vec::new();
        };
        if entry.mac.is_some_and(|known| known != mac) && !replaces {
            return Vec::new();
        }
        (entry.mac, entry.told, entry.asked) = (Some(mac), Some(now), 0);
        entry.ask_at = now;
        std::mem::take(&mut entry.waiting)
    }

    /// Returns the neighbours to request again now because frames wait for them, and the number of
    /// frames given up. After three requests the frames are dropped (RFC 4861 §7.2.2), and the next
    /// request is sent for a new frame.
    pub(super) fn due(&mut self, now: Instant) -> (Vec<IpAddr>, usize) {
        let (mut due, mut in_vain) = (Vec::new(), 0);
        for (address, entry) in &mut self.entries {
            if !entry.is_wanted() || now < entry.ask_at {
                continue;
            }
            if entry.asked >= QUESTIONS {
                in_vain += std::mem::take(&mut entry.waiting).len();
            } else if entry.ask(now) {
                due.push(*address);
            }
        }
        (due, in_vain)
    }

    /// Time at which [`due`](Self::due) has work; `None` if no frame waits.
    pub(super) fn next(&self) -> Option<Instant> {
        let wanted = self.entries.values().filter(|entry| entry.is_wanted());
        wanted.map(|entry| entry.ask_at).min()
    }
}

impl Entry {
    fn is_wanted(&self) -> bool {
        self.mac.is_none() && !self.waiting.is_empty()
    }

    /// True if a request may be sent now. Then sets the time of the next one: each interval is
    /// three times the previous (RFC 7048 §3), and at least a second (RFC 1122 §2.3.2.1).
    fn ask(&mut self, now: Instant) -> bool {
        if now < self.ask_at {
            return false;
        }
        let after = RETRANSMIT * 3u32.saturating_pow(self.asked.min(9));
        self.ask_at = now + after.min(RETRANSMIT_MAX);
        self.asked += 1;
        true
    }
}

/// RFC 4861 §10: RETRANS_TIMER; RFC 7048 §3: MAX_RETRANS_TIMER.
const RETRANSMIT: Duration = Duration::from_secs(1);
const RETRANSMIT_MAX: Duration = Duration::from_secs(60);
/// RFC 4861 §10: MAX_MULTICAST_SOLICIT.
const QUESTIONS: u32 = 3;
/// RFC 4861 §10: REACHABLE_TIME.
const REACHABLE: Duration = Duration::from_secs(30);
/// Limit of frames that wait for one neighbour. Kept small because super-segments may be among
/// them, and TCP retransmits.
const WAITING_MAX: usize = 4;
/// Limit of entries (Linux's gc_thresh3).
const ENTRIES_MAX: usize = 1024;
