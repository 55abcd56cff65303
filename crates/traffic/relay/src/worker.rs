//! The loop of a worker: one thread with an epoll instance, listeners and connections.
//!
//! The loop never sleeps while bytes can be moved. Moving a byte touches no state that workers
//! share.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use slab::Slab;

use crate::config::Mode;
use crate::connection::{Connection, Phase, Step};
use crate::counters::{Direction, WorkerCounters};
use crate::listener::Listener;
use crate::mover::Mover;
use crate::ring::Completion;
use crate::shared::{ENDING, RUNNING, Shared};
use crate::side::Side;
use crate::uring::{Closing, Event, Uring};

mod accept;
mod end;
mod open;

/// A worker before and while it runs.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    counters: Arc<WorkerCounters>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    is_accepting: bool,
    /// Time to try accepting again.
    accept_at: Option<Instant>,
    /// Connections. `None`: the connection has ended, and its index is freed after the current
    /// batch of events.
    connections: Slab<Option<Box<Connection>>>,
    mover: Mover,
    /// Ring, where io_uring moves bytes; made by the thread that uses it.
    uring: Option<Uring>,
    /// Connections that used up their turn, in the order of their next one.
    again: VecDeque<usize>,
    /// Indices of connections that ended.
    over: Vec<usize>,
    /// Sides to reset as soon as the bytes sent to them are acknowledged, with a deadline.
    resetting: Vec<(Side, Instant)>,
    next_scan: Instant,
    drain_until: Option<Instant>,
}

impl Worker {
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        counters: Arc<WorkerCounters>,
        listeners: Vec<Listener>,
    ) -> io::Result<Worker> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &shared.bells[index],
            EventData::new_u64(BELL),
            EventFlags::IN,
        )?;
        let now = Instant::now();
        let mut worker = Worker {
            index,
            mover: Mover::new(&shared.config, now),
            shared,
            counters,
            epoll,
            listeners,
            is_accepting: false,
            accept_at: None,
            connections: Slab::new(),
            uring: None,
            again: VecDeque::new(),
            over: Vec::new(),
            resetting: Vec::new(),
            next_scan: now,
            drain_until: None,
        };
        worker.accept_again()?;
        Ok(worker)
    }

    /// Runs until the relay was asked to stop and nothing is left.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        self.make_ring()?;
        loop {
            let timeout = self.timeout();
            match self.uring.is_some() {
                true => self.wait_for_ring(timeout, &mut events)?,
                false => self.wait_for_events(timeout, &mut events)?,
            }
            self.serve_queued(events.len());
            self.scan();
            for index in self.over.drain(..) {
                self.connections.remove(index);
            }
            if self.should_end()? {
                return Ok(());
            }
        }
    }

    fn make_ring(&mut self) -> io::Result<()> {
        if self.shared.config.mode == Mode::IoUring {
            let mut uring = Uring::new(&self.shared.config)?;
            uring.poll(&self.epoll);
            self.uring = Some(uring);
        }
        Ok(())
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

    fn wait_for_events(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<()> {
        events.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: timeout.as_secs() as i64,
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, spare_capacity(events), timeout.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        self.mover.now = Instant::now();
        for event in &*events {
            let flags = event.flags;
            match event.data.u64() {
                BELL => self.shared.bells[self.index].hear(),
                token if token >= LISTENERS => {
                    self.accept((token - LISTENERS) as usize);
                }
                token => self.on_event(token, flags),
            }
        }
        Ok(())
    }

    /// Waits for completions of the ring, which moves the bytes. All other events come by epoll,
    /// whose descriptor the ring polls, too.
    fn wait_for_ring(
        &mut self,
        timeout: Option<Duration>,
        events: &mut Vec<epoll::Event>,
    ) -> io::Result<()> {
        let Some(uring) = &mut self.uring else {
            return Ok(());
        };
        let completions = uring.wait(timeout)?;
        self.mover.now = Instant::now();
        for &completion in &completions {
            match self
                .uring
                .as_mut()
                .and_then(|uring| uring.event(completion))
            {
                None => {}
                Some(Event::Readable) => {
                    self.wait_for_events(Some(Duration::ZERO), events)?;
                    if let Some(uring) = &mut self.uring {
                        uring.poll(&self.epoll);
                    }
                }
                Some(Event::Direction(index, direction, completion)) => {
                    self.on_completion(index, direction, completion);
                }
                Some(Event::Closed(index, closing)) => {
                    let Closing {
                        client,
                        server,
                        ending,
                        ..
                    } = closing;
                    server.into_iter().for_each(|one| self.close(one, ending));
                    self.close(client, ending);
                    self.over.push(index);
                }
            }
        }
        if let Some(uring) = &mut self.uring {
            uring.reuse(completions);
            // Only flows for which a buffer is free. Asking for all starved flows at each turn was
            // 48 failed operations for each that received.
            for (index, direction) in uring.fed() {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    uring.ask(index, direction, connection, false);
                }
            }
        }
        Ok(())
    }

    fn on_completion(&mut self, index: usize, direction: Direction, completion: Completion) {
        let (Some(Some(connection)), Some(uring)) =
            (self.connections.get_mut(index), &mut self.uring)
        else {
            return;
        };
        if completion.result > 0 {
            connection.since = self.mover.now;
        }
        if let Step::Over(ending) =
            uring.advance(index, direction, completion, connection, &self.counters)
        {
            self.end(index, ending);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = self.mover.now;
        let until = |at: Instant| at.saturating_duration_since(now);
        let can_feed = self.uring.as_ref().is_some_and(Uring::can_feed);
        if !self.again.is_empty() || can_feed {
            return Some(Duration::ZERO);
        }
        let busy = !self.connections.is_empty() || !self.resetting.is_empty();
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
        match self.shared.state.load(Ordering::SeqCst) {
            RUNNING => {
                let is_due = self.accept_at.is_some_and(|at| at <= self.mover.now);
                if !self.is_accepting && (is_due || self.accept_at.is_none()) {
                    self.accept_again()?;
                }
                return Ok(false);
            }
            ENDING => self.end_all(),
            _ => {
                if !self.listeners.is_empty() {
                    // Clients in the listen queue have seen the handshake complete already.
                    for index in 0..self.listeners.len() {
                        let _ = (0..DRAIN_ACCEPTS).find(|_| !self.accept(index));
                    }
                    self.listeners.clear();
                    self.accept_at = None;
                    let within = self.shared.config.drain_timeout;
                    self.drain_until = within.map(|within| self.mover.now + within);
                }
                if self.drain_until.is_some_and(|at| at <= self.mover.now) {
                    self.end_all();
                }
            }
        }
        Ok(self.connections.is_empty() && self.resetting.is_empty())
    }

    /// Adds a side to epoll.
    fn watch(&self, index: usize, side: u64) -> Result<(), Errno> {
        let Some(connection) = &self.connections[index] else {
            return Ok(());
        };
        let socket = match side {
            CLIENT => connection.client.socket.as_fd(),
            _ => match &connection.server {
                Some(server) => server.socket.as_fd(),
                None => return Ok(()),
            },
        };
        let data = EventData::new_u64((index as u64) << 1 | side);
        epoll::add(&self.epoll, socket, data, Side::interest())
    }

    fn on_event(&mut self, token: u64, flags: EventFlags) {
        let index = (token >> 1) as usize;
        let Some(Some(connection)) = self.connections.get_mut(index) else {
            return;
        };
        match token & 1 {
            CLIENT => connection.client.on_event(flags),
            _ => {
                if let Some(server) = &mut connection.server {
                    server.on_event(flags);
                }
            }
        }
        self.serve(index);
    }

    fn serve(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let is_rings = self.uring.is_some() && matches!(connection.phase, Phase::Open);
        if connection.is_queued || is_rings {
            return;
        }
        match connection.phase {
            Phase::Header(None) => self.read_header(index),
            Phase::Header(Some(left)) => self.pass_over_header(index, left),
            Phase::Connecting => self.finish_connecting(index),
            Phase::Open => match connection.exchange(&mut self.mover, &self.counters) {
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

const BELL: u64 = u64::MAX;
/// First token of listeners; tokens of connections are below.
const LISTENERS: u64 = 1 << 48;
const CLIENT: u64 = 0;
const SERVER: u64 = 1;
/// Limit of events that one call of epoll_wait returns.
const EVENTS: usize = 256;
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

    use super::*;
    use crate::{Address, Config, Relay};

    /// A worker without a thread, whose steps the test calls, and a server behind it.
    struct Bench {
        worker: Worker,
        server: UnixListener,
        _place: tempfile::TempDir,
    }

    impl Bench {
        fn new(mode: Mode) -> Bench {
            let place = tempfile::tempdir().unwrap();
            let path = place.path().join("server");
            let server = UnixListener::bind(&path).unwrap();
            let config = Config {
                mode,
                ..Config::new(Address::Unix(path))
            };
            let relay = Relay::without_workers(config, 1).unwrap();
            let counters = Arc::clone(&relay.counters.0[0]);
            let worker = Worker::new(0, Arc::clone(&relay.shared), counters, Vec::new());
            Bench {
                worker: worker.unwrap(),
                server,
                _place: place,
            }
        }

        /// Opens a connection. Returns the client's and the server's end.
        fn connect(&mut self) -> [UnixStream; 2] {
            let (client, near) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            assert!(self.worker.shared.limit.enter());
            self.worker.take_in(Side::new(near.into(), false), None);
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
        let mut bench = Bench::new(Mode::Copy);
        let flows: Vec<_> = (0..FLOWS).map(|_| bench.connect()).collect();
        let mut small = bench.connect();
        let mut events = Vec::with_capacity(EVENTS);
        for [client, _] in &flows {
            assert!(fill(client) > 2 * SHARE);
        }
        let now = Some(Duration::ZERO);
        bench.worker.wait_for_events(now, &mut events).unwrap();
        assert_eq!(bench.moved(), [&[SHARE; FLOWS][..], &[0]].concat());

        small[0].write_all(&[1; 4096]).unwrap();
        bench.worker.wait_for_events(now, &mut events).unwrap();
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
    fn io_uring_asks_in_vain_for_few_though_many_have_bytes() {
        const FLOWS: usize = 200;
        let mut bench = Bench::new(Mode::IoUring);
        if let Err(error) = bench.worker.make_ring() {
            return tcpcost_testbed::skip(&format!("io_uring: {error}"));
        }
        let flows: Vec<_> = (0..FLOWS).map(|_| bench.connect()).collect();
        let sent: usize = flows.iter().map(|[client, _]| fill(client)).sum();
        // No server reads, so traffic stops.
        let mut events = Vec::with_capacity(EVENTS);
        let mut moved = (usize::MAX, 0);
        loop {
            let timeout = Some(Duration::from_millis(10));
            bench.worker.wait_for_ring(timeout, &mut events).unwrap();
            let operations = bench.worker.uring.as_ref().unwrap().ring.operations;
            let now = (operations, bench.moved().iter().sum());
            if now == moved && !bench.worker.uring.as_ref().unwrap().can_feed() {
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
            operations < 4 * pieces,
            "{operations} operations, {pieces} pieces"
        );
    }
}
