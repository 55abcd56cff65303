//! The loop of a worker: one thread with listeners and connections, over the kernel's TCP or ours.
//!
//! The loop never sleeps while bytes can be moved. Moving a byte touches no state that workers
//! share.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slab::Slab;

use crate::counters::WorkerCounters;
use crate::shared::{ENDING, RUNNING, Shared};

mod accept;
mod end;
mod net;
mod open;

pub(crate) use net::{ConnectError, Connection, Net, Phase, Progress, Step};

/// A worker before and while it runs.
pub(crate) struct Worker<N: Net> {
    pub(crate) net: N,
    pub(crate) index: usize,
    pub(crate) shared: Arc<Shared>,
    pub(crate) counters: Arc<WorkerCounters>,
    /// Connections. `None`: the connection has ended, and its index is freed after the current
    /// batch of events.
    pub(crate) connections: Slab<Option<Box<Connection<N>>>>,
    /// Time that the last wait ended.
    pub(crate) now: Instant,
    is_accepting: bool,
    /// Time to try accepting again.
    accept_at: Option<Instant>,
    /// Connections that used up their turn, in the order of their next one.
    again: VecDeque<usize>,
    /// Indices of connections that ended.
    pub(crate) over: Vec<usize>,
    /// Sides to reset as soon as the bytes sent to them are acknowledged, with a deadline.
    resetting: Vec<(N::Side, Instant)>,
    next_scan: Instant,
    is_draining: bool,
    drain_until: Option<Instant>,
}

impl<N: Net> Worker<N> {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        counters: Arc<WorkerCounters>,
        net: N,
    ) -> io::Result<Self> {
        let now = Instant::now();
        let mut worker = Worker {
            net,
            index,
            shared,
            counters,
            connections: Slab::new(),
            now,
            is_accepting: false,
            accept_at: None,
            again: VecDeque::new(),
            over: Vec::new(),
            resetting: Vec::new(),
            next_scan: now,
            is_draining: false,
            drain_until: None,
        };
        worker.accept_again()?;
        Ok(worker)
    }

    /// Runs until the relay was asked to stop and nothing is left.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events = N::Events::default();
        loop {
            let timeout = self.timeout();
            let count = N::wait(&mut self, timeout, &mut events)?;
            self.serve_queued(count);
            self.scan();
            for index in self.over.drain(..) {
                self.connections.remove(index);
            }
            let ends = self.should_end()?;
            self.net.publish(&self.counters);
            if ends {
                return Ok(());
            }
        }
    }

    /// Serves as many queued connections as there were events, so that neither kind waits for all
    /// of the other. At least [`QUEUED`] are served, because looking for events after each one
    /// costs more.
    fn serve_queued(&mut self, events: usize) {
        for _ in 0..self.again.len().min(events.max(QUEUED)) {
            let Some(index) = self.again.pop_front() else {
                return;
            };
            if let Some(Some(connection)) = self.connections.get_mut(index) {
                connection.is_queued = false;
                self.serve(index);
            }
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let until = |at: Instant| at.saturating_duration_since(self.now);
        if !self.again.is_empty() || self.net.has_work() {
            return Some(Duration::ZERO);
        }
        let busy = !self.connections.is_empty() || !self.resetting.is_empty() || self.is_draining;
        let deadlines = [
            busy.then(|| until(self.next_scan)),
            self.accept_at.map(until),
            self.drain_until.map(until),
        ];
        let wait = deadlines.into_iter().flatten().min()?;
        // Rounded up: a timeout a millisecond too early costs another round.
        Some(wait + Duration::from_micros(999))
    }

    /// Follows the state of the relay: accepts, drains or ends. True if nothing is left.
    fn should_end(&mut self) -> io::Result<bool> {
        let state = self.shared.state.load(Ordering::SeqCst);
        if state == RUNNING {
            let is_due = self.accept_at.is_none_or(|at| at <= self.now);
            if !self.is_accepting && is_due {
                self.accept_again()?;
            }
            return Ok(false);
        }
        if state != ENDING && !self.is_draining {
            self.drain();
        }
        if state == ENDING || self.drain_until.is_some_and(|at| at <= self.now) {
            self.end_all();
            return Ok(self.connections.is_empty());
        }
        let is_empty = self.connections.is_empty() && self.resetting.is_empty();
        Ok(is_empty && self.net.is_idle())
    }

    pub(crate) fn serve(&mut self, index: usize) {
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        match connection.phase {
            Phase::Header(left) => N::read_header(self, index, left),
            Phase::Connecting => self.finish_connecting(index),
            Phase::Open if connection.is_queued => {}
            Phase::Open => match self
                .net
                .exchange(index, connection, &self.counters, self.now)
            {
                Step::Wait => {}
                Step::Again => {
                    connection.is_queued = true;
                    self.again.push_back(index);
                }
                Step::Over(ending) => self.end(index, ending),
            },
        }
    }
}

/// The client's side of a connection, in tokens.
pub(crate) const CLIENT: usize = 0;
/// The upstream's side of a connection, in tokens.
pub(crate) const SERVER: usize = 1;
/// Queued connections that are served at least before events are looked for again: 1 MiB if all
/// copy, 0.3 ms.
const QUEUED: usize = 16;
/// Limit of calls of `accept` for each listener when the relay is asked to stop: together they
/// accept more connections than any listen queue holds.
const DRAIN_ACCEPTS: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use tcpcost_knobs::RelayMode;

    use super::*;
    use crate::kernel::Kernel;
    use crate::side::Side;
    use crate::{Address, Config, Relay};

    /// A worker without a thread, whose steps the test calls, and a server behind it.
    struct Bench {
        worker: Worker<Kernel>,
        server: UnixListener,
        _place: tempfile::TempDir,
    }

    impl Bench {
        fn new(mode: RelayMode) -> Bench {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("server");
            let server = UnixListener::bind(&path).unwrap();
            let config = Config {
                mode,
                ..Config::new(Address::Unix(path))
            };
            let relay = Relay::without_workers(config, 1).unwrap();
            let shared = &relay.shared;
            let kernel = Kernel::new(Vec::new(), &shared.bells[0], &shared.config).unwrap();
            Bench {
                worker: relay.worker(0, kernel).unwrap(),
                server,
                _place: place,
            }
        }

        /// Opens a connection. Returns the client's and the server's end.
        fn connect(&mut self) -> [UnixStream; 2] {
            let (client, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            assert!(self.worker.shared.limit.enter());
            let (side, index) = (
                Side::new(near.into(), false),
                self.worker.connections.vacant_key(),
            );
            self.worker.net.watch(&side, index, CLIENT).unwrap();
            self.worker.take_in(side, None);
            [client, self.server.accept().unwrap().0]
        }

        /// Bytes that each connection relayed to the server, in the order of the connections'
        /// indices.
        fn moved(&self) -> Vec<usize> {
            let all = self.worker.connections.iter();
            let all = all.filter_map(|(_, connection)| connection.as_ref());
            all.map(|one| one.counters.moved[0].bytes().relayed() as usize)
                .collect()
        }
    }

    /// Sends until the socket accepts no more. Returns the bytes sent.
    fn fill(mut client: &UnixStream) -> usize {
        client.set_nonblocking(true).unwrap();
        let mut sent = 0;
        loop {
            match client.write(&[7; 1 << 16]) {
                Ok(bytes) => sent += bytes,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return sent,
                Err(error) => panic!("{error}"),
            }
        }
    }

    #[test]
    fn a_way_copies_its_share_of_a_turn_and_small_ones_are_served_between() {
        const FLOWS: usize = QUEUED + 4;
        const SHARE: usize = 64 << 10;
        let mut bench = Bench::new(RelayMode::Copy);
        let flows: Vec<_> = (0..FLOWS).map(|_| bench.connect()).collect();
        let mut small = bench.connect();
        let mut events = Vec::new();
        for [client, _] in &flows {
            assert!(fill(client) > 2 * SHARE);
        }
        let now = Some(Duration::ZERO);
        Kernel::wait(&mut bench.worker, now, &mut events).unwrap();
        assert_eq!(bench.moved(), [&[SHARE; FLOWS][..], &[0]].concat());

        small[0].write_all(&[1; 4096]).unwrap();
        Kernel::wait(&mut bench.worker, now, &mut events).unwrap();
        assert_eq!(bench.moved()[FLOWS], 4096, "it has not waited for them");
        assert_eq!(bench.moved()[..FLOWS], [SHARE; FLOWS]);
        small[1].read_exact(&mut [0; 4096]).unwrap();

        // Events first, then some of the queued connections, the longest waiting first.
        bench.worker.serve_queued(1);
        let moved = bench.moved();
        assert_eq!(moved[..QUEUED], [2 * SHARE; QUEUED]);
        assert_eq!(moved[QUEUED..FLOWS], [SHARE; FLOWS - QUEUED]);
        bench.worker.serve_queued(1);
        assert_eq!(bench.moved()[QUEUED..FLOWS], [2 * SHARE; FLOWS - QUEUED]);
    }

    #[test]
    fn new_bytes_wake_nobody_up_while_the_receiver_takes_none() {
        for mode in [RelayMode::Copy, RelayMode::Splice] {
            let mut bench = Bench::new(mode);
            let [mut client, mut server] = bench.connect();
            client.set_nonblocking(true).unwrap();
            server.set_nonblocking(true).unwrap();
            let (now, mut events) = (Some(Duration::ZERO), Vec::new());
            let mut sent = 0;
            let mut send = |bench: &mut Bench, bytes: &[u8]| {
                client.write_all(bytes).unwrap();
                sent += bytes.len();
                let woken = Kernel::wait(&mut bench.worker, now, &mut events).unwrap();
                (woken, bench.moved()[0] < sent)
            };
            while !send(&mut bench, &[7; 4096]).1 {}
            // The first are read or reported: by copy, three.
            let woken: Vec<usize> = (0..5).map(|_| send(&mut bench, &[7; 16]).0).collect();
            assert_eq!(woken[3..], [0; 2], "{mode:?}: {woken:?}");
            let (mut taken, mut buffer) = (0, [0; 4096]);
            let until = Instant::now() + SECOND * 20;
            while taken < sent {
                match server.read(&mut buffer) {
                    Ok(bytes) => taken += bytes,
                    Err(_) => {
                        Kernel::wait(&mut bench.worker, now, &mut events).unwrap();
                        bench.worker.serve_queued(1);
                        assert!(Instant::now() < until, "{mode:?}: {taken} of {sent}");
                    }
                }
            }
            // It is heard again.
            client.write_all(b"more").unwrap();
            Kernel::wait(&mut bench.worker, now, &mut events).unwrap();
            assert_eq!(server.read(&mut buffer).unwrap(), 4, "{mode:?}");
        }
    }

    #[test]
    fn io_uring_asks_in_vain_for_few_though_many_have_bytes() {
        const FLOWS: usize = 200;
        if let Some(why) = tcpcost_stack::uring_refusal() {
            return tcpcost_testbed::skip(&why);
        }
        let mut bench = Bench::new(RelayMode::IoUring);
        let flows: Vec<_> = (0..FLOWS).map(|_| bench.connect()).collect();
        let sent: usize = flows.iter().map(|[client, _]| fill(client)).sum();
        // No server reads, so traffic stops.
        let mut events = Vec::new();
        let mut moved = (u64::MAX, 0);
        loop {
            let timeout = Some(Duration::from_millis(10));
            Kernel::wait(&mut bench.worker, timeout, &mut events).unwrap();
            let operations = bench.worker.net.operations();
            let now = (operations, bench.moved().iter().sum());
            if now == moved && !bench.worker.net.has_work() {
                break;
            }
            moved = now;
        }
        let (operations, moved) = moved;
        assert!(moved > FLOWS * (64 << 10), "{moved} of {sent} bytes");
        // A receive and a send for each piece, a few of them small, and some waiting operations for
        // each flow.
        let pieces = sent / (64 << 10) + FLOWS;
        assert!(
            operations < 4 * pieces as u64,
            "{operations} operations, {pieces} pieces"
        );
    }
}
