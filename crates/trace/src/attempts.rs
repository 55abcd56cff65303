//! Handshakes that nothing followed yet. Their few packets are kept in bounded memory, because a
//! scan or a flood makes more handshakes than there are connections.

use std::collections::HashMap;

use crate::segment::{Endpoint, Options, PacketDirection, Segment, flag};
use crate::tunnels::Tunnel;

/// Both ends, in an order that is the same for both directions.
pub(crate) type Key = (Endpoint, Endpoint);

/// Limit of handshakes whose packets are held: about 40 MiB of them, 160 bytes each. Beyond it the oldest eighth is let go,
/// and counts as not analysed.
const OPEN_MOST: usize = 1 << 18;

/// Limit of packets held for each handshake. By default a SYN is sent again six times
/// (net.ipv4.tcp_syn_retries), a SYN-ACK five times.
const PACKETS_MOST: usize = 16;

/// Packets of a handshake, taken out of the table.
#[derive(Debug, Clone)]
pub(crate) struct Attempt {
    /// Index of the connection among all connections.
    pub(crate) place: usize,
    pub(crate) segments: Vec<Segment>,
}

/// Handshake so far, in the table. Most have one packet.
#[derive(Debug, Clone)]
struct Open {
    place: u32,
    first: Kept,
    /// Boxed: a vector in place takes 16 bytes more in each of many handshakes.
    #[allow(clippy::box_collection, reason = "the vector is seldom there")]
    more: Option<Box<Vec<Kept>>>,
}

/// A packet of a handshake: what a [`Segment`] has, without its ends and SACK blocks.
#[derive(Debug, Clone, Copy)]
struct Kept {
    /// `u64::MAX` without a time.
    at_ns: u64,
    frame: u64,
    seq: u32,
    ack: u32,
    timestamps: (u32, u32),
    interface: u32,
    payload: u32,
    ip_octets: u32,
    window: u16,
    ip_id: u16,
    mss: u16,
    flags: u8,
    hop_limit: u8,
    window_scale: u8,
    tunnel: Option<Tunnel>,
    direction: PacketDirection,
    has: u8,
}

/// Bits of [`Kept::has`].
mod has {
    pub const SEQ: u8 = 1;
    pub const TIMESTAMPS: u8 = 2;
    pub const MSS: u8 = 4;
    pub const WINDOW_SCALE: u8 = 8;
    pub const SACK_PERMITTED: u8 = 16;
    pub const COMPLETE: u8 = 32;
    /// The sender is the second end of the key.
    pub const TURNED: u8 = 64;
}

impl Kept {
    fn new(key: &Key, segment: &Segment) -> Kept {
        let options = &segment.options;
        let bits = [
            (has::SEQ, segment.seq.is_some()),
            (has::TIMESTAMPS, options.timestamps.is_some()),
            (has::MSS, options.mss.is_some()),
            (has::WINDOW_SCALE, options.window_scale.is_some()),
            (has::SACK_PERMITTED, options.sack_permitted),
            (has::COMPLETE, options.complete),
            (has::TURNED, segment.source != key.0),
        ];
        let set = bits.into_iter().filter(|(_, is_set)| *is_set);
        Kept {
            at_ns: segment.at_ns.unwrap_or(u64::MAX),
            frame: segment.frame,
            seq: segment.seq.unwrap_or(0),
            ack: segment.ack,
            timestamps: options.timestamps.unwrap_or_default(),
            interface: segment.interface,
            payload: segment.payload,
            ip_octets: segment.ip_octets,
            window: segment.window,
            ip_id: segment.ip_id,
            mss: options.mss.unwrap_or(0),
            flags: segment.flags,
            hop_limit: segment.hop_limit,
            window_scale: options.window_scale.unwrap_or(0),
            tunnel: segment.tunnel,
            direction: segment.direction,
            has: set.map(|(bit, _)| bit).sum(),
        }
    }

    fn has(&self, bit: u8) -> bool {
        self.has & bit != 0
    }

    fn segment(&self, key: &Key) -> Segment {
        let (source, destination) = match self.has(has::TURNED) {
            false => (key.0, key.1),
            true => (key.1, key.0),
        };
        Segment {
            at_ns: (self.at_ns != u64::MAX).then_some(self.at_ns),
            source,
            destination,
            seq: self.has(has::SEQ).then_some(self.seq),
            ack: self.ack,
            window: self.window,
            flags: self.flags,
            ip_id: self.ip_id,
            hop_limit: self.hop_limit,
            interface: self.interface,
            direction: self.direction,
            tunnel: self.tunnel,
            frame: self.frame,
            payload: self.payload,
            ip_octets: self.ip_octets,
            options: Options {
                timestamps: self.has(has::TIMESTAMPS).then_some(self.timestamps),
                mss: self.has(has::MSS).then_some(self.mss),
                window_scale: self.has(has::WINDOW_SCALE).then_some(self.window_scale),
                sack_permitted: self.has(has::SACK_PERMITTED),
                complete: self.has(has::COMPLETE),
                ..Options::default()
            },
        }
    }
}

impl Open {
    fn packets(&self) -> impl Iterator<Item = &Kept> {
        let more = self.more.iter().flat_map(|more| more.iter());
        std::iter::once(&self.first).chain(more)
    }

    fn push(&mut self, packet: Kept) {
        let more = self.more.get_or_insert_default();
        if more.len() + 1 < PACKETS_MOST {
            more.push(packet);
        }
    }

    /// True if this SYN begins another handshake: the same end sends another sequence number.
    fn is_followed_by(&self, packet: &Kept) -> bool {
        let of_end = |earlier: &&Kept| {
            earlier.has(has::TURNED) == packet.has(has::TURNED) && earlier.flags & flag::SYN != 0
        };
        let earlier = self.packets().find(of_end);
        packet.flags & flag::SYN != 0 && earlier.is_some_and(|earlier| earlier.seq != packet.seq)
    }

    fn attempt(&self, key: &Key) -> Attempt {
        Attempt {
            place: self.place as usize,
            segments: self.packets().map(|packet| packet.segment(key)).collect(),
        }
    }
}

/// Result for a segment that belongs to no connection.
pub(crate) enum AttemptResult {
    /// The segment is held. `Some` is an older handshake between the same ends, which failed.
    Held(Option<Attempt>),
    /// A connection begins: its packets held so far, with this segment.
    Connection(Attempt),
}

/// Open handshakes.
#[derive(Debug, Clone, Default)]
pub(crate) struct Attempts {
    open: HashMap<Key, Open, foldhash::fast::RandomState>,
    /// Handshakes that were let go.
    not_analysed: u64,
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
        let packet = Kept::new(&key, segment);
        let mut over = None;
        if let Some(open) = self.open.get_mut(&key) {
            if !open.is_followed_by(&packet) {
                if is_handshake {
                    open.push(packet);
                    return (AttemptResult::Held(None), false);
                }
                let mut attempt = open.attempt(&key);
                attempt.segments.push(*segment);
                self.open.remove(&key);
                return (AttemptResult::Connection(attempt), false);
            }
            over = Some(open.attempt(&key));
            self.open.remove(&key);
        }
        if !segment.any(flag::SYN) {
            let attempt = Attempt {
                place,
                segments: vec![*segment],
            };
            return (AttemptResult::Connection(attempt), true);
        }
        if self.open.len() >= OPEN_MOST {
            self.let_go();
        }
        let open = Open {
            place: place as u32,
            first: packet,
            more: None,
        };
        self.open.insert(key, open);
        (AttemptResult::Held(over), true)
    }

    /// True if a handshake between these ends is open.
    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.open.contains_key(key)
    }

    /// Handshakes that were let go: whether something followed them is unknown.
    pub(crate) fn not_analysed(&self) -> u64 {
        self.not_analysed
    }

    /// Lets the oldest eighth go.
    #[cold]
    fn let_go(&mut self) {
        let mut places: Vec<u32> = self.open.values().map(|open| open.place).collect();
        let (_, limit, _) = places.select_nth_unstable(OPEN_MOST / 8);
        let limit = *limit;
        let before = self.open.len();
        self.open.retain(|_, open| open.place >= limit);
        self.not_analysed += (before - self.open.len()) as u64;
    }

    /// Open handshakes in the order of their first packets, one by one.
    pub(crate) fn open(&self) -> impl Iterator<Item = Attempt> {
        let mut open: Vec<(&Key, &Open)> = self.open.iter().collect();
        open.sort_unstable_by_key(|(_, open)| open.place);
        open.into_iter().map(|(key, open)| open.attempt(key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_open_handshake_takes_less_than_200_bytes() {
        // One more byte is hashbrown's, and at worst 7 of 16 places are used; at 100,000 it is 3 of 4.
        let bytes = size_of::<(Key, Open)>() + 1;
        let places = (100_000usize * 8 / 7).next_power_of_two();
        assert!(bytes * places / 100_000 < 200, "{bytes}");
    }
}
