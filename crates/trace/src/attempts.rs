//! Handshakes that nothing followed yet. Their few packets are kept in bounded memory, because a
//! scan or a flood makes more handshakes than there are connections.

use std::collections::{HashMap, VecDeque};

use crate::segment::{Endpoint, Segment, flag};

/// Both ends, in an order that is the same for both directions.
pub(crate) type Key = (Endpoint, Endpoint);

/// Limit of handshakes whose packets are held: about 6 MiB. Beyond it the oldest handshake is
/// settled as failed.
const OPEN_MOST: usize = 16_384;

/// Limit of packets held for each handshake. By default a SYN is sent again six times
/// (net.ipv4.tcp_syn_retries), a SYN-ACK five times.
const PACKETS_MOST: usize = 16;

/// Handshake so far.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Index of the connection among all connections.
    pub(crate) place: usize,
    pub(crate) segments: Vec<Segment>,
}

impl Attempt {
    /// True if this SYN begins another handshake: the same end sends another sequence number.
    fn is_followed_by(&self, segment: &Segment) -> bool {
        let of_end =
            |earlier: &&Segment| earlier.source == segment.source && earlier.any(flag::SYN);
        let earlier = self.segments.iter().find(of_end);
        segment.any(flag::SYN) && earlier.is_some_and(|earlier| earlier.seq != segment.seq)
    }
}

/// Result for a segment that belongs to no connection.
pub(crate) enum AttemptResult {
    /// The segment is held. `Some` is another handshake that failed: an older one between the same
    /// ends, or the oldest, which had to make room.
    Held(Option<Attempt>),
    /// A connection begins: its packets held so far, with this segment.
    Connection(Attempt),
}

/// Open handshakes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts {
    open: HashMap<Key, Attempt, foldhash::fast::RandomState>,
    /// Handshakes in the order of their first packets. Some entries are no longer open.
    order: VecDeque<(usize, Key)>,
}

impl Attempts {
    /// Handles a segment of no connection. `place` is the index of the connection that it may
    /// begin; the `bool` is true if that index was used.
    pub(crate) fn on_segment(
        &mut self,
        key: Key,
        segment: &Segment,
        place: usize,
    ) -> (AttemptResult, bool) {
        let is_handshake = segment.any(flag::SYN | flag::RST) && segment.payload == 0;
        let mut over = None;
        if let Some(attempt) = self.open.get_mut(&key) {
            if !attempt.is_followed_by(segment) {
                if !is_handshake {
                    let mut attempt = self.open.remove(&key).expect("it was found");
                    attempt.segments.push(*segment);
                    return (AttemptResult::Connection(attempt), false);
                }
                if attempt.segments.len() < PACKETS_MOST {
                    attempt.segments.push(*segment);
                }
                return (AttemptResult::Held(None), false);
            }
            over = self.open.remove(&key);
        }
        let attempt = Attempt {
            place,
            segments: vec![*segment],
        };
        if !segment.any(flag::SYN) {
            return (AttemptResult::Connection(attempt), true);
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
        (AttemptResult::Held(over), true)
    }

    /// True if a handshake between these ends is open.
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

    /// Open handshakes in the order of their first packets.
    pub(crate) fn open(&self) -> Vec<&Attempt> {
        let mut open: Vec<&Attempt> = self.open.values().collect();
        open.sort_unstable_by_key(|attempt| attempt.place);
        open
    }
}
