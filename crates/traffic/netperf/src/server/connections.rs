//! Control connections of a netserver: a place for each, and the choice of a connection to end when there is
//! no place or no memory left.
//!
//! The connection that has been idle longest is ended. The connection of a running test is never ended; then
//! the new connection is refused. One network (an IPv4 address, the /64 of an IPv6 address) gets at most half
//! of everything, so that it cannot lock others out.

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
    /// Bytes of the buffers of its test.
    buffers: usize,
    /// `None` while a test runs.
    idle_since: Option<Instant>,
}

/// Key of an entry of the table.
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
    /// Takes a place for a connection. `None` if the connection has ended, or if all places have running
    /// tests.
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
    /// Notes that a message has arrived.
    pub fn heard(&self) {
        self.0
            .change(|entry| entry.idle_since = Some(Instant::now()));
    }

    /// Reserves `bytes` for buffers. The connection must not have any yet. `None` if running tests use the
    /// memory, or if the connection was ended.
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

    /// Marks a running test. `None` if the connection was ended.
    pub fn running(&self) -> Option<Running> {
        let mut table = lock(&self.0.table);
        table.entries.get_mut(&self.0.number)?.idle_since = None;
        Some(Running(self.0.clone()))
    }
}

impl Key {
    /// Changes the entry, unless the connection was ended.
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
    /// Ends idle connections, of one network or of all, until `more` fits into the limit on their sum. False
    /// if running tests use too much.
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

    /// Ends the connection that has been idle longest, among those that may be ended. False if none of them
    /// is idle.
    fn end_idlest(&mut self, may_go: impl Fn(&Entry) -> bool) -> bool {
        let entries = self.entries.iter().filter(|(_, entry)| may_go(entry));
        let idle = entries.filter_map(|(number, entry)| Some((entry.idle_since?, *number)));
        let Some((_, number)) = idle.min() else {
            return false;
        };
        if let Some(entry) = self.entries.remove(&number) {
            // The connection's thread notices the shutdown and ends.
            let _ = entry.stream.shutdown(Shutdown::Both);
        }
        true
    }
}

fn lock(table: &Mutex<Table>) -> MutexGuard<'_, Table> {
    table.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Network that counts as one client.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        v4 => v4,
    }
}

#[cfg(test)]
mod tests;
