//! Handshakes that nothing followed yet: kept as their few packets, in bounded memory, since a scan or a
//! flood makes more of them than there are connections.

use std::collections::{HashMap, VecDeque};

use crate::segment::{Endpoint, Segment, flag};

/// Both ends, in an order that is the same for both directions.
pub(crate) type Key = (Endpoint, Endpoint);

/// Handshakes whose packets are held at a time: some 6 MiB. Beyond, the oldest is given up.
const OPEN_MOST: usize = 16_384;

/// Packets held of one: SYNs are sent again six times by default (net.ipv4.tcp_syn_retries), their
/// answers five times.
const PACKETS_MOST: usize = 16;

/// A handshake so far.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Its number among all connections.
    pub(crate) place: usize,
    pub(crate) segments: Vec<Segment>,
}

impl Attempt {
    /// Whether this SYN begins another one: the same end sends another number.
    fn is_followed_by(&self, segment: &Segment) -> bool {
        let of_end =
            |earlier: &&Segment| earlier.source == segment.source && earlier.any(flag::SYN);
        let earlier = self.segments.iter().find(of_end);
        segment.any(flag::SYN) && earlier.is_some_and(|earlier| earlier.seq != segment.seq)
    }
}

/// What became of a segment that belongs to no connection.
pub(crate) enum Begun {
    /// Held; an older handshake has to make room, or is over.
    Held(Option<Attempt>),
    /// More than a handshake: what was held of it, with this segment.
    Connection(Attempt),
}

/// The handshakes that are open.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts {
    open: HashMap<Key, Attempt, foldhash::fast::RandomState>,
    /// In the order of their first packets; some are no more open.
    order: VecDeque<(usize, Key)>,
}

impl Attempts {
    /// A segment of no connection; `place` is the number of the one that it may begin, and it tells
    /// whether that was used.
    pub(crate) fn on_segment(
        &mut self,
        key: Key,
        segment: &Segment,
        place: usize,
    ) -> (Begun, bool) {
        let is_handshake = segment.any(flag::SYN | flag::RST) && segment.payload == 0;
        let mut over = None;
        if let Some(attempt) = self.open.get_mut(&key) {
            if !attempt.is_followed_by(segment) {
                if !is_handshake {
                    let mut attempt = self.open.remove(&key).expect("it was found");
                    attempt.segments.push(*segment);
                    return (Begun::Connection(attempt), false);
                }
                if attempt.segments.len() < PACKETS_MOST {
                    attempt.segments.push(*segment);
                }
                return (Begun::Held(None), false);
            }
            over = self.open.remove(&key);
        }
        let attempt = Attempt {
            place,
            segments: vec![*segment],
        };
        if !segment.any(flag::SYN) {
            return (Begun::Connection(attempt), true);
        }
        self.open.insert(key, attempt);
        self.order.push_back((place, key));
        if over.is_none() && self.open.len() > OPEN_MOST {
            over = self.oldest();
        }
        if self.order.len() > 2 * OPEN_MOST {
            let open = &self.open;
            self.order
                .retain(|(place, key)| open.get(key).is_some_and(|held| held.place == *place));
        }
        (Begun::Held(over), true)
    }

    /// Whether one between these ends is open.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    fn oldest(&mut self) -> Option<Attempt> {
        while let Some((place, key)) = self.order.pop_front() {
            if self.open.get(&key).is_some_and(|held| held.place == place) {
                return self.open.remove(&key);
            }
        }
        None
    }

    /// Those that are open, in the order of their first packets.
    pub(crate) fn open(&self) -> Vec<&Attempt> {
        let mut open: Vec<&Attempt> = self.open.values().collect();
        open.sort_unstable_by_key(|attempt| attempt.place);
        open
    }
}
