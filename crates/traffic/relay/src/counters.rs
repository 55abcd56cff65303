//! Counters of bytes moved and of connection endings, readable at any time from any thread.
//!
//! Each cell has one writer, so counting is a plain load and store (2 ns a move, no locked
//! instruction). A reader may see one cell a move ahead of another; no count is lost.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A counter that one thread writes and all threads may read.
#[derive(Debug, Default)]
pub(crate) struct Cell(AtomicU64);

impl Cell {
    pub(crate) fn add(&self, more: u64) {
        self.0.store(self.get() + more, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, to: u64) {
        self.0.store(to, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Direction of bytes within a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the upstream.
    ToServer = 0,
    /// From the upstream to the client.
    ToClient = 1,
}

impl Direction {
    /// Both directions.
    pub const ALL: [Direction; 2] = [Direction::ToServer, Direction::ToClient];

    /// Name in labels and keys.
    pub fn name(self) -> &'static str {
        match self {
            Direction::ToServer => "to_server",
            Direction::ToClient => "to_client",
        }
    }
}

/// Bytes of one direction, by method. A byte counts once the kernel has accepted it for the other
/// side.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bytes {
    /// Bytes through a buffer of this process, or of io_uring.
    pub copied: u64,
    /// Bytes through a pipe, by reference.
    pub spliced: u64,
    /// Bytes by reference, from one connection's receive queue to the other's send queue: by our
    /// own TCP (mode `user`).
    pub redirected: u64,
    /// Bytes taken from one side and never accepted by the other, which was gone. For connections
    /// that the relay resets because it stops ([`Ending::Stopped`]), also the bytes that the reset
    /// discards in the kernel's queues: unread, or relayed and not yet acknowledged.
    pub abandoned: u64,
}

impl Bytes {
    /// Bytes that reached the kernel of the other side, by any method.
    pub fn relayed(self) -> u64 {
        self.copied + self.spliced + self.redirected
    }

    fn add(&mut self, other: Bytes) {
        self.copied += other.copied;
        self.spliced += other.spliced;
        self.redirected += other.redirected;
        self.abandoned += other.abandoned;
    }
}

/// Cells behind [`Bytes`].
#[derive(Debug, Default)]
pub(crate) struct ByteCounters {
    pub(crate) copied: Cell,
    pub(crate) spliced: Cell,
    pub(crate) redirected: Cell,
    pub(crate) abandoned: Cell,
}

impl ByteCounters {
    pub(crate) fn bytes(&self) -> Bytes {
        Bytes {
            copied: self.copied.get(),
            spliced: self.spliced.get(),
            redirected: self.redirected.get(),
            abandoned: self.abandoned.get(),
        }
    }

    fn add(&self, bytes: Bytes) {
        self.copied.add(bytes.copied);
        self.spliced.add(bytes.spliced);
        self.redirected.add(bytes.redirected);
        self.abandoned.add(bytes.abandoned);
    }
}

macro_rules! endings {
    ($($(#[$doc:meta])* $ending:ident = $name:literal,)+) => {
        /// Ending of a connection.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Ending { $($(#[$doc])* $ending,)+ }

        impl Ending {
            /// All endings.
            pub const ALL: &[Ending] = &[$(Ending::$ending,)+];

            /// Name in labels and keys.
            pub fn name(self) -> &'static str {
                match self { $(Ending::$ending => $name,)+ }
            }
        }
    };
}

endings! {
    /// Both sides sent all they had, and closed.
    Finished = "finished",
    /// The client reset the connection, or left without having sent anything before an upstream
    /// accepted.
    ClientReset = "client_reset",
    /// The upstream reset the connection.
    ServerReset = "server_reset",
    /// The path to the client failed otherwise: keepalive, an ICMP error.
    ClientLost = "client_lost",
    /// The path to the upstream failed otherwise: keepalive, an ICMP error.
    ServerLost = "server_lost",
    /// Nothing was moved for the idle timeout.
    Idle = "idle",
    /// No upstream accepted the connection.
    NoUpstream = "no_upstream",
    /// No upstream answered within the connect timeout.
    ConnectTimeout = "connect_timeout",
    /// The source is in none of the allowed networks.
    Denied = "denied",
    /// The first bytes are no PROXY header, or the header came too slowly.
    BadHeader = "bad_header",
    /// This host had no descriptor or memory for the connection.
    NoResources = "no_resources",
    /// The relay stopped first, and reset the connection.
    Stopped = "stopped",
}

/// Totals since the start, of one worker or of all workers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Totals {
    /// Connections accepted.
    pub accepted: u64,
    /// Connections that are open.
    pub open: u64,
    /// Bytes, indexed by [`Direction`].
    pub bytes: [Bytes; 2],
    /// Connections that ended, in the order of [`Ending::ALL`].
    pub ended: Vec<u64>,
    /// Times that accept found no descriptor or memory.
    pub accept_failures: u64,
    /// Times that accepting paused because the limit of connections was reached.
    pub accept_pauses: u64,
    /// Refusals by upstreams. After each the relay tried another upstream if there was one.
    pub connect_failures: u64,
    /// Pipes that exist, lent or idle.
    pub pipes: u64,
    /// Times that no pipe was available and a piece was copied instead.
    pub pipe_shortages: u64,
    /// Times that `auto` changed the method of a flow.
    pub switches: u64,
    /// Times that a side did not accept all bytes at once.
    pub stalls: u64,
}

impl Totals {
    /// Connections with this ending.
    pub fn ended_by(&self, ending: Ending) -> u64 {
        self.ended.get(ending as usize).copied().unwrap_or(0)
    }

    fn add(&mut self, other: &Totals) {
        self.accepted += other.accepted;
        self.open += other.open;
        for (own, other) in self.bytes.iter_mut().zip(other.bytes) {
            own.add(other);
        }
        self.ended.resize(Ending::ALL.len(), 0);
        for (own, other) in self.ended.iter_mut().zip(&other.ended) {
            *own += other;
        }
        self.accept_failures += other.accept_failures;
        self.accept_pauses += other.accept_pauses;
        self.connect_failures += other.connect_failures;
        self.pipes += other.pipes;
        self.pipe_shortages += other.pipe_shortages;
        self.switches += other.switches;
        self.stalls += other.stalls;
    }
}

/// Report of an open or ended connection.
#[derive(Debug, Clone, PartialEq)]
pub struct ConnectionReport {
    /// Number of the connection, from 1; unique in a relay.
    pub id: u64,
    /// Address of the client, from the PROXY header if `proxy_in` is set. `None` for a unix socket.
    pub source: Option<SocketAddr>,
    /// Index of the upstream in the configuration's list. `None` if none has accepted.
    pub upstream: Option<usize>,
    /// Time since the connection was accepted.
    pub age: Duration,
    /// Bytes, indexed by [`Direction`].
    pub bytes: [Bytes; 2],
    /// `None` if the connection is open.
    pub ending: Option<Ending>,
}

/// Counters of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionCounters {
    pub(crate) id: u64,
    started: Instant,
    facts: Mutex<Facts>,
    pub(crate) moved: [ByteCounters; 2],
}

#[derive(Debug, Clone, Copy)]
struct Facts {
    source: Option<SocketAddr>,
    upstream: Option<u32>,
}

impl ConnectionCounters {
    pub(crate) fn new(id: u64, source: Option<SocketAddr>, started: Instant) -> Self {
        Self {
            id,
            started,
            facts: Mutex::new(Facts {
                source,
                upstream: None,
            }),
            moved: Default::default(),
        }
    }

    pub(crate) fn source(&self) -> Option<SocketAddr> {
        lock(&self.facts).source
    }

    pub(crate) fn set_source(&self, source: SocketAddr) {
        lock(&self.facts).source = Some(source);
    }

    pub(crate) fn set_upstream(&self, upstream: usize) {
        lock(&self.facts).upstream = Some(upstream as u32);
    }

    pub(crate) fn report(&self, now: Instant, ending: Option<Ending>) -> ConnectionReport {
        let Facts { source, upstream } = *lock(&self.facts);
        ConnectionReport {
            id: self.id,
            source,
            upstream: upstream.map(|index| index as usize),
            age: now.saturating_duration_since(self.started),
            bytes: [self.moved[0].bytes(), self.moved[1].bytes()],
            ending,
        }
    }
}

/// Counters of our own TCP in modes `user` and `user-copy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TcpTotals {
    /// IP packets sent; a super-segment counts as one.
    pub packets_sent: u64,
    /// Bytes of the packets sent, IP headers included.
    pub octets_sent: u64,
    /// Pure acknowledgements sent that moved the right edge of the receive window.
    pub window_advancing_acks_sent: u64,
    /// Pure acknowledgements sent that did not move the right edge of the receive window.
    pub only_acknowledging_acks_sent: u64,
}

/// Cells behind [`TcpTotals`].
#[derive(Debug, Default)]
struct TcpCells([Cell; 4]);

impl TcpCells {
    fn set(&self, totals: TcpTotals) {
        let counts = [
            totals.packets_sent,
            totals.octets_sent,
            totals.window_advancing_acks_sent,
            totals.only_acknowledging_acks_sent,
        ];
        for (cell, count) in self.0.iter().zip(counts) {
            cell.set(count);
        }
    }

    fn add_to(&self, all: &mut TcpTotals) {
        let counts = self.0.each_ref().map(Cell::get);
        all.packets_sent += counts[0];
        all.octets_sent += counts[1];
        all.window_advancing_acks_sent += counts[2];
        all.only_acknowledging_acks_sent += counts[3];
    }
}

/// Counters of a worker, which is their only writer.
#[derive(Debug, Default)]
pub(crate) struct WorkerCounters {
    pub(crate) accepted: Cell,
    ended: [Cell; Ending::ALL.len()],
    /// Bytes of ended connections, indexed by [`Direction`]; each open connection has counters of its
    /// own.
    moved: [ByteCounters; 2],
    pub(crate) accept_failures: Cell,
    pub(crate) accept_pauses: Cell,
    pub(crate) connect_failures: Cell,
    pub(crate) pipes: Cell,
    pub(crate) pipe_shortages: Cell,
    pub(crate) switches: Cell,
    pub(crate) stalls: Cell,
    /// Counters of the worker's instance of our own TCP.
    tcp: TcpCells,
    /// Open connections, by the worker's index. Locked when a connection begins or ends, and by
    /// readers.
    live: Mutex<Vec<Option<Arc<ConnectionCounters>>>>,
}

impl WorkerCounters {
    pub(crate) fn begin(&self, index: usize, connection: Arc<ConnectionCounters>) {
        self.accepted.add(1);
        let mut live = lock(&self.live);
        if live.len() <= index {
            live.resize(index + 1, None);
        }
        live[index] = Some(connection);
    }

    pub(crate) fn end(&self, index: usize, ending: Ending) {
        // Readers hold the same lock, so they count the bytes of a connection exactly once.
        let mut live = lock(&self.live);
        if let Some(connection) = live[index].take() {
            for (own, ended) in self.moved.iter().zip(&connection.moved) {
                own.add(ended.bytes());
            }
        }
        self.count_end(ending);
    }

    pub(crate) fn set_tcp(&self, totals: TcpTotals) {
        self.tcp.set(totals);
    }

    /// Counts the ending of a connection.
    pub(crate) fn count_end(&self, ending: Ending) {
        self.ended[ending as usize].add(1);
    }

    fn totals(&self) -> Totals {
        let live = lock(&self.live);
        let mut bytes = [self.moved[0].bytes(), self.moved[1].bytes()];
        for connection in live.iter().flatten() {
            for (own, more) in bytes.iter_mut().zip(&connection.moved) {
                own.add(more.bytes());
            }
        }
        let ended: Vec<u64> = self.ended.iter().map(Cell::get).collect();
        let accepted = self.accepted.get();
        Totals {
            accepted,
            open: live.iter().flatten().count() as u64,
            bytes,
            ended,
            accept_failures: self.accept_failures.get(),
            accept_pauses: self.accept_pauses.get(),
            connect_failures: self.connect_failures.get(),
            pipes: self.pipes.get(),
            pipe_shortages: self.pipe_shortages.get(),
            switches: self.switches.get(),
            stalls: self.stalls.get(),
        }
    }
}

/// Counters of a relay. Clones refer to the same counters.
#[derive(Debug, Clone, Default)]
pub struct Counters(pub(crate) Arc<Vec<Arc<WorkerCounters>>>);

impl Counters {
    /// Totals of all workers.
    pub fn totals(&self) -> Totals {
        let mut totals = Totals::default();
        self.0.iter().for_each(|one| totals.add(&one.totals()));
        totals
    }

    /// Counters of our own TCP, summed over all workers, each as of its last turn; 0 except in mode
    /// `user`.
    pub fn tcp(&self) -> TcpTotals {
        let mut all = TcpTotals::default();
        self.0.iter().for_each(|worker| worker.tcp.add_to(&mut all));
        all
    }

    /// Open connections, in no order. Workers that begin or end a connection wait meanwhile.
    pub fn connections(&self) -> Vec<ConnectionReport> {
        let now = Instant::now();
        let workers = self.0.iter();
        workers
            .flat_map(|worker| {
                let live = lock(&worker.live);
                let reports = live.iter().flatten().map(|one| one.report(now, None));
                reports.collect::<Vec<_>>()
            })
            .collect()
    }
}

/// Locks; a poisoned lock is used, because no holder leaves a value half written.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_connection_stay_in_the_totals_when_it_ends() {
        let worker = Arc::new(WorkerCounters::default());
        let counters = Counters(Arc::new(vec![Arc::clone(&worker)]));
        let connection = Arc::new(ConnectionCounters::new(1, None, Instant::now()));
        worker.begin(3, Arc::clone(&connection));
        connection.moved[Direction::ToServer as usize].copied.add(5);
        connection.moved[Direction::ToClient as usize]
            .spliced
            .add(7);
        let before = counters.totals();
        assert_eq!((before.accepted, before.open), (1, 1));
        assert_eq!(before.bytes.map(Bytes::relayed), [5, 7]);
        assert_eq!(counters.connections()[0].id, 1);
        worker.end(3, Ending::Idle);
        let after = counters.totals();
        assert_eq!((after.open, after.ended_by(Ending::Idle)), (0, 1));
        assert_eq!(after.bytes, before.bytes);
    }
}
