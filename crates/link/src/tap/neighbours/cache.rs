//! Who is at which link-layer address: asked for, answered, told unasked.
//!
//! Not here: NUD's probes of an address that has been silent (RFC 4861 §7.3); an entry that is older
//! than [`REACHABLE`] is used on while it is asked for anew.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::messages::Mac;

/// Neighbours by address.
#[derive(Clone, Debug, Default)]
pub(super) struct Cache {
    entries: HashMap<IpAddr, Entry>,
}

#[derive(Clone, Debug)]
struct Entry {
    mac: Option<Mac>,
    /// When it was last told.
    told: Option<Instant>,
    /// How often it was asked for since.
    asked: u32,
    /// When it may be asked for again.
    ask_at: Instant,
    /// Frames that wait for it, the newest at the end; their destination is still to be written.
    waiting: Vec<Vec<u8>>,
}

impl Cache {
    /// Where it is, as far as is known, and whether it is to be asked for now. None: there are too
    /// many.
    pub(super) fn look(&mut self, address: IpAddr, now: Instant) -> Option<(Option<Mac>, bool)> {
        if !self.entries.contains_key(&address) && self.entries.len() >= ENTRIES_MAX {
            // What nobody waits for makes room.
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

    /// Keeps a frame until its neighbour is known. Says whether an older one had to go for it.
    pub(super) fn keep(&mut self, address: IpAddr, frame: Vec<u8>) -> bool {
        let Some(entry) = self.entries.get_mut(&address) else {
            return true;
        };
        // RFC 1122 §2.3.2.2: the latest one at least.
        let full = entry.waiting.len() >= WAITING_MAX;
        if full {
            entry.waiting.remove(0);
        }
        entry.waiting.push(frame);
        full
    }

    /// `address` is at `mac`: the frames that waited for that. `asked`: by an answer to a question,
    /// or by a question for us. Nobody is taken in who only told of himself (RFC 4861 §7.2.5,
    /// RFC 826), and what is known is not replaced by one who does not say that he does.
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

    /// The neighbours that frames wait for and that are to be asked for again now; and how many
    /// frames have waited in vain: three questions are enough (RFC 4861 §7.2.2), the next is asked
    /// when there is something new to send.
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

    /// When [`due`](Self::due) will have something.
    pub(super) fn next(&self) -> Option<Instant> {
        let wanted = self.entries.values().filter(|entry| entry.is_wanted());
        wanted.map(|entry| entry.ask_at).min()
    }
}

impl Entry {
    fn is_wanted(&self) -> bool {
        self.mac.is_none() && !self.waiting.is_empty()
    }

    /// Whether to ask now; if so the next time is set, each three times later than the one before
    /// (RFC 7048 §3; no more than one a second: RFC 1122 §2.3.2.1).
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
/// Frames that wait for one neighbour: super-segments may be among them, and TCP sends again.
const WAITING_MAX: usize = 4;
/// Linux's gc_thresh3.
const ENTRIES_MAX: usize = 1024;
