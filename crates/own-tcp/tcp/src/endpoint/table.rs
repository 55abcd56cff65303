//! Table of connections and the search in it.

use std::cell::OnceCell;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Instant;

use crate::Config;
use crate::connection::{Connection, Dormant};
use crate::wire::FourTuple;

/// Identifier of a connection of an endpoint. After the connection is removed, it never identifies
/// another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ConnId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

impl ConnId {
    /// Small number that no other connection has at the same time, for use as an index in the
    /// application's own table.
    pub fn index(self) -> usize {
        self.index as usize
    }
}

/// Connection and its place in the endpoint's lists.
pub(super) struct Slot {
    pub connection: Connection,
    pub path: CompactPath,
    /// True while the listener counts it as half open.
    pub half_open: bool,
    /// True if it began with data (RFC 7413) and the application got it before the end of the
    /// handshake.
    pub early: bool,
    /// True if the application has it or will get it from `accept`.
    pub owned: bool,
    /// True if it is in the list of connections that may have something to send.
    pub queued: bool,
    /// True if it is in the list of ready connections.
    pub notified: bool,
    /// Deadline in the heap; [`NO_TIMER`] if there is none.
    pub timer_ns: u64,
    /// True if it was active since the last check whether it may become dormant.
    pub stirred: bool,
}

impl Slot {
    /// True if the connection is idle and on no list.
    pub(super) fn may_rest(&self) -> bool {
        let listed = self.half_open || self.early || self.queued || self.notified;
        !listed && self.connection.may_rest()
    }
}

#[derive(Default)]
enum Place {
    #[default]
    Empty,
    Awake(Box<Slot>),
    Resting(Box<Resting>),
}

/// Slot of a connection that has been idle for a while.
struct Resting {
    dormant: Dormant,
    path: CompactPath,
    owned: bool,
    timer_ns: u64,
    /// The restored slot, once it was read.
    seen: OnceCell<Box<Slot>>,
}

impl Resting {
    fn slot(&self) -> Box<Slot> {
        Box::new(Slot {
            connection: self.dormant.wake(),
            path: self.path,
            half_open: false,
            early: false,
            owned: self.owned,
            queued: false,
            notified: false,
            timer_ns: self.timer_ns,
            stirred: true,
        })
    }
}

impl Place {
    /// Returns the slot for a change, which restores a dormant connection; `None` if empty.
    #[cold]
    fn wake(&mut self) -> Option<&mut Slot> {
        if let Self::Resting(resting) = self {
            let timer_ns = resting.timer_ns;
            let mut slot = resting.seen.take().unwrap_or_else(|| resting.slot());
            slot.timer_ns = timer_ns;
            *self = Self::Awake(slot);
        }
        match self {
            Self::Awake(slot) => Some(slot),
            _ => None,
        }
    }
}

/// Compact [`FourTuple`], little more than half its size: without flow labels and scopes, which do
/// not identify a connection. Addresses are words, so that they are compared in registers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct CompactPath {
    addresses: [[u64; 2]; 2],
    ports: [u16; 2],
    v6: [bool; 2],
}

impl From<&FourTuple> for CompactPath {
    #[inline]
    fn from(path: &FourTuple) -> Self {
        let words = |end: &SocketAddr| match end {
            SocketAddr::V4(end) => [0, V4_MAPPED | u64::from(u32::from(*end.ip()))],
            SocketAddr::V6(end) => {
                let address = u128::from(*end.ip());
                [(address >> 64) as u64, address as u64]
            }
        };
        Self {
            addresses: [words(&path.local), words(&path.remote)],
            ports: [path.local.port(), path.remote.port()],
            v6: [path.local.is_ipv6(), path.remote.is_ipv6()],
        }
    }
}

impl From<CompactPath> for FourTuple {
    #[inline]
    fn from(path: CompactPath) -> Self {
        let end = |n: usize| {
            let [high, low] = path.addresses[n];
            let address = if path.v6[n] {
                IpAddr::V6(Ipv6Addr::from(u128::from(high) << 64 | u128::from(low)))
            } else {
                IpAddr::V4(Ipv4Addr::from(low as u32))
            };
            SocketAddr::new(address, path.ports[n])
        };
        Self {
            local: end(0),
            remote: end(1),
        }
    }
}

/// Connections by index and by the hash of their path.
#[derive(Default)]
pub(super) struct Table {
    slots: Vec<(u32, Place)>,
    free: Vec<u32>,
    by_key: HashMap<u64, u32, Hashed>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.by_key.len()
    }

    /// Changes the settings of all connections, without restoring dormant ones.
    pub(super) fn configure(&mut self, change: impl Fn(&mut Config)) {
        for (_, place) in &mut self.slots {
            match place {
                Place::Empty => {}
                Place::Awake(slot) => slot.connection.configure(&change),
                Place::Resting(resting) => {
                    resting.dormant.configure(&change);
                    resting.seen.take();
                }
            }
        }
    }

    /// Number of dormant connections.
    #[cfg(test)]
    pub(super) fn resting(&self) -> usize {
        let rests = |(_, place): &&(u32, Place)| matches!(place, Place::Resting(_));
        self.slots.iter().filter(rests).count()
    }

    /// Finds the connection with this path. The key is a keyed 64-bit hash, so no one can construct
    /// collisions; one comparison of the path suffices and there is no chain.
    pub(super) fn find(&self, key: u64, path: &FourTuple) -> Option<u32> {
        let index = *self.by_key.get(&key)?;
        self.is_at(index, path).then_some(index)
    }

    /// True if the connection at `index` has this path.
    #[inline]
    pub(super) fn is_at(&self, index: u32, path: &FourTuple) -> bool {
        let path = CompactPath::from(path);
        match self.slots.get(index as usize) {
            Some((_, Place::Awake(slot))) => slot.path == path,
            Some((_, Place::Resting(resting))) => resting.path == path,
            _ => false,
        }
    }

    pub(super) fn insert(&mut self, slot: Slot, key: u64) -> ConnId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push((0, Place::Empty));
            (self.slots.len() - 1) as u32
        });
        self.by_key.insert(key, index);
        let (generation, place) = &mut self.slots[index as usize];
        *place = Place::Awake(Box::new(slot));
        ConnId {
            index,
            generation: *generation,
        }
    }

    pub(super) fn remove(&mut self, index: u32, key: u64) -> Option<Box<Slot>> {
        let (generation, place) = self.slots.get_mut(index as usize)?;
        place.wake()?;
        let Place::Awake(slot) = std::mem::take(place) else {
            return None;
        };
        *generation = generation.wrapping_add(1);
        self.by_key.remove(&key);
        self.free.push(index);
        Some(slot)
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> Option<&Slot> {
        match &self.slots.get(index as usize)?.1 {
            Place::Empty => None,
            Place::Awake(slot) => Some(slot),
            Place::Resting(resting) => Some(resting.seen.get_or_init(|| resting.slot())),
        }
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> Option<&mut Slot> {
        match &mut self.slots.get_mut(index as usize)?.1 {
            Place::Awake(slot) => Some(slot),
            place => place.wake(),
        }
    }

    /// Converts the connection to its dormant form. Returns its next deadline, if any; `None` if
    /// the connection is not idle.
    pub(super) fn rest(&mut self, index: u32) -> Option<Option<Instant>> {
        let (_, place) = self.slots.get_mut(index as usize)?;
        match place {
            Place::Awake(slot) if slot.may_rest() => {}
            _ => return None,
        }
        let Place::Awake(slot) = std::mem::take(place) else {
            return None;
        };
        let (path, owned) = (slot.path, slot.owned);
        let dormant = slot.connection.rest();
        let due = dormant.next_timeout();
        *place = Place::Resting(Box::new(Resting {
            dormant,
            path,
            owned,
            timer_ns: NO_TIMER,
            seen: OnceCell::new(),
        }));
        Some(due)
    }

    /// Deadline of a connection in the heap; `None` if the connection does not exist.
    pub(super) fn timer_ns(&self, id: ConnId) -> Option<u64> {
        match &self.slots.get(id.index as usize)? {
            (generation, Place::Awake(slot)) if *generation == id.generation => Some(slot.timer_ns),
            (generation, Place::Resting(resting)) if *generation == id.generation => {
                Some(resting.timer_ns)
            }
            _ => None,
        }
    }

    /// Sets the deadline of a dormant connection.
    pub(super) fn set_timer_of_resting(&mut self, index: u32, timer_ns: u64) {
        if let Some((_, Place::Resting(resting))) = self.slots.get_mut(index as usize) {
            resting.timer_ns = timer_ns;
        }
    }

    pub(super) fn get(&self, id: ConnId) -> Option<&Slot> {
        self.is_current(id).then(|| self.at(id.index))?
    }

    pub(super) fn is_current(&self, id: ConnId) -> bool {
        self.slots
            .get(id.index as usize)
            .is_some_and(|(generation, _)| *generation == id.generation)
    }

    pub(super) fn id(&self, index: u32) -> ConnId {
        let generation = self
            .slots
            .get(index as usize)
            .map_or(0, |(generation, _)| *generation);
        ConnId { index, generation }
    }
}

/// Later than any deadline: no timer.
pub(super) const NO_TIMER: u64 = u64::MAX;
/// Lower half of ::ffff:0:0/96.
const V4_MAPPED: u64 = 0xffff << 32;

/// Hasher for keys that are hashes already.
pub(super) type Hashed = BuildHasherDefault<AlreadyHashed>;

#[derive(Default)]
pub(super) struct AlreadyHashed(u64);

impl Hasher for AlreadyHashed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_rests_takes_less_than_half_a_kibibyte() {
        // 60 is the size of the counts of a busy connection. The share of the maps and of malloc is
        // 64 more.
        let bytes = size_of::<Resting>() + size_of::<(u32, Place)>() + 60;
        assert!(bytes <= 448, "{bytes} bytes");
    }

    #[test]
    fn a_compact_path_is_the_same_path() {
        for (local, remote) in [
            ("10.0.0.1:80", "1.2.3.4:5"),
            ("[fd00::1]:80", "[::ffff:1.2.3.4]:5"),
        ] {
            let path = FourTuple {
                local: local.parse().unwrap(),
                remote: remote.parse().unwrap(),
            };
            assert_eq!(FourTuple::from(CompactPath::from(&path)), path);
        }
    }
}
