//! Control connections of a netserver: a place for each, and which one gives way when there is no place or no memory left.
//!
//! The connection that was idle longest gives way. A running test never does: then it is the new one that is refused.
//! One network (an IPv4 address, the /64 of an IPv6 address) gets half of everything at most, so that it shuts nobody else out.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use super::limits::{BUFFERS, BUFFERS_EACH, CONNECTIONS, CONNECTIONS_EACH};

/// All control connections.
#[derive(Debug, Default)]
pub struct Connections(Arc<Mutex<Table>>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    entries: BTreeMap<u64, Entry>,
}

#[derive(Debug)]
struct Entry {
    network: IpAddr,
    stream: Arc<TcpStream>,
    /// Bytes of its test's buffers.
    buffers: usize,
    /// `None` while a test runs.
    idle_since: Option<Instant>,
}

/// An entry of the table.
#[derive(Debug, Clone)]
struct Key {
    table: Arc<Mutex<Table>>,
    number: u64,
}

/// A control connection's place. Dropping it frees the place.
#[derive(Debug)]
pub struct Place(Key);

/// Buffers of a test. Dropping it frees them.
#[derive(Debug)]
pub struct Buffers(Key);

/// A running test. Dropping it makes the connection idle.
#[derive(Debug)]
pub struct Running(Key);

impl Connections {
    /// A place for a connection. `None` if the connection has ended, or if tests run on all that there may be.
    pub fn place(&self, stream: &Arc<TcpStream>) -> Option<Place> {
        let network = network(stream.peer_addr().ok()?.ip());
        let mut table = lock(&self.0);
        let has_room = table.make_room(1, CONNECTIONS_EACH, |_| 1, Some(network))
            && table.make_room(1, CONNECTIONS, |_| 1, None);
        if !has_room {
            return None;
        }
        let number = table.next;
        table.next += 1;
        let entry = Entry {
            network,
            stream: Arc::clone(stream),
            buffers: 0,
            idle_since: Some(Instant::now()),
        };
        table.entries.insert(number, entry);
        let table = Arc::clone(&self.0);
        Some(Place(Key { table, number }))
    }

    /// Ends the connection that was idle longest, if any is idle.
    pub fn end_idlest(&self) {
        lock(&self.0).end_idlest(|_| true);
    }
}

impl Place {
    /// Says that a message came.
    pub fn heard(&self) {
        self.0
            .change(|entry| entry.idle_since = Some(Instant::now()));
    }

    /// Room for buffers of so many bytes, which this connection has none of yet. `None` if running tests have it, or if the
    /// connection gave way.
    pub fn buffers(&self, bytes: usize) -> Option<Buffers> {
        let mut table = lock(&self.0.table);
        let network = table.entries.get(&self.0.number)?.network;
        let size = |entry: &Entry| entry.buffers;
        let has_room = table.make_room(bytes, BUFFERS_EACH, size, Some(network))
            && table.make_room(bytes, BUFFERS, size, None);
        if !has_room {
            return None;
        }
        table.entries.get_mut(&self.0.number)?.buffers = bytes;
        Some(Buffers(self.0.clone()))
    }

    /// Says that a test runs. `None` if the connection gave way.
    pub fn running(&self) -> Option<Running> {
        let mut table = lock(&self.0.table);
        table.entries.get_mut(&self.0.number)?.idle_since = None;
        Some(Running(self.0.clone()))
    }
}

impl Key {
    /// Changes the entry, if the connection did not give way.
    fn change(&self, change: impl FnOnce(&mut Entry)) {
        if let Some(entry) = lock(&self.table).entries.get_mut(&self.number) {
            change(entry);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.0.table).entries.remove(&self.0.number);
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        self.0.change(|entry| entry.buffers = 0);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0
            .change(|entry| entry.idle_since = Some(Instant::now()));
    }
}

impl Table {
    /// Ends the idlest connections, of one network or of all, until so much more is within a limit of what they have together.
    /// False if running tests have too much.
    fn make_room(
        &mut self,
        more: usize,
        limit: usize,
        size: impl Fn(&Entry) -> usize,
        network: Option<IpAddr>,
    ) -> bool {
        let counts = |entry: &Entry| network.is_none_or(|network| entry.network == network);
        loop {
            let counted = self.entries.values().filter(|entry| counts(entry));
            let have: usize = counted.map(&size).sum();
            if have.checked_add(more).is_some_and(|sum| sum <= limit) {
                return true;
            }
            if more > limit || !self.end_idlest(|entry| counts(entry) && size(entry) > 0) {
                return false;
            }
        }
    }

    /// Ends the idlest of the connections that may go. False if none of them is idle.
    fn end_idlest(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let entries = self.entries.iter().filter(|(_, entry)| may_go(entry));
        let idle = entries.filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
        let Some((_, number)) = idle.min() else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&number) {
            // Its thread sees the end, and goes.
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
        true
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The network that counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests;
