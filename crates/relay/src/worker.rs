//! The loop of a worker: one epoll instance, its listeners and connections, on one thread.
//!
//! It never sleeps while something can be moved, and shares nothing with other workers on the way of a byte.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::Timespec;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendFlags, SocketFlags, acceptfrom_with, getsockname, recv, send, sockopt,
};
use slab::Slab;

use crate::config::{Config, Mode};
use crate::connection::{Connection, Phase, Step};
use crate::counters::{ConnectionCounters, Ending, Way, WorkerCounters};
use crate::gate::{Bell, Gate};
use crate::listener::Listener;
use crate::mover::Mover;
use crate::proxy::{self, Ends, HEADER_MAX, Parsed};
use crate::ring::Completion;
use crate::side::{self, Side};
use crate::upstreams::Upstreams;
use crate::uring::{Closing, Event, Uring};

/// What all workers share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) upstreams: Upstreams,
    pub(crate) gate: Gate,
    /// One of each worker.
    pub(crate) bells: Vec<Bell>,
    /// [`RUNNING`], [`DRAINING`] or [`ENDING`].
    pub(crate) state: AtomicU8,
    pub(crate) next_id: AtomicU64,
}

impl Shared {
    /// Notes that an upstream did not take a connection, and tells of it if it is news.
    pub(crate) fn refused(&self, upstream: usize, error: &dyn fmt::Display, now: Instant) {
        let upstreams = &self.upstreams;
        upstreams.end(upstream);
        if upstreams.leave_out(upstream, now) {
            let address = upstreams.address(upstream);
            let pause = self.config.retry_after;
            match upstreams.len() {
                1 => tracing::warn!("upstream {address}: {error}"),
                _ => tracing::warn!("upstream {address}: {error}: left out for {pause:?}"),
            }
        }
    }

    /// Notes that an upstream took a connection.
    pub(crate) fn taken(&self, upstream: usize) {
        if self.upstreams.take_back(upstream) {
            let address = self.upstreams.address(upstream);
            tracing::warn!("upstream {address} takes connections again");
        }
    }

    /// Tells of a connection that is over.
    pub(crate) fn tell_end(&self, counters: &ConnectionCounters, ending: Ending, now: Instant) {
        let report = || counters.report(now, Some(ending));
        if tracing::enabled!(tracing::Level::DEBUG) {
            let report = report();
            let [to_server, to_client] = report.bytes.map(|bytes| bytes.relayed());
            let (id, ending) = (report.id, ending.name());
            tracing::debug!(id, to_server, to_client, ending, "connection ended");
        }
        if let Some(ended) = &self.config.ended {
            // Who is told must not make the others wait.
            let _ = ended.try_send(report());
        }
    }

    /// Moves on to a later state and wakes everybody.
    pub(crate) fn set_state(&self, state: u8) {
        self.state.fetch_max(state, Ordering::SeqCst);
        self.bells.iter().for_each(Bell::ring);
    }
}

/// Connections are taken.
pub(crate) const RUNNING: u8 = 0;
/// None is taken, those that are there go on.
pub(crate) const DRAINING: u8 = 1;
/// All end now.
pub(crate) const ENDING: u8 = 2;

/// A worker before and while it runs.
pub(crate) struct Worker {
    index: usize,
    shared: Arc<Shared>,
    counters: Arc<WorkerCounters>,
    epoll: OwnedFd,
    listeners: Vec<Listener>,
    is_accepting: bool,
    /// Accepting is tried again then.
    accept_at: Option<Instant>,
    /// None: it is over, and its place is free after the events that were taken together.
    connections: Slab<Option<Box<Connection>>>,
    mover: Mover,
    /// Where io_uring moves bytes; made by the thread that uses it.
    uring: Option<Uring>,
    /// Whose turn was over.
    again: Vec<usize>,
    /// Places of those that are over.
    over: Vec<usize>,
    /// Sides that are reset as soon as what they were given is acknowledged.
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
            again: Vec::new(),
            over: Vec::new(),
            resetting: Vec::new(),
            next_scan: now,
            drain_until: None,
        };
        worker.accept_again()?;
        Ok(worker)
    }

    /// Works until it was asked to stop and nothing is left.
    pub(crate) fn run(mut self) -> io::Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS);
        if self.shared.config.mode == Mode::IoUring {
            let mut uring = Uring::new(&self.shared.config)?;
            uring.poll(&self.epoll);
            self.uring = Some(uring);
        }
        loop {
            let timeout = self.timeout();
            match self.uring.is_some() {
                true => self.wait_for_ring(timeout, &mut events)?,
                false => self.wait_for_events(timeout, &mut events)?,
            }
            for index in std::mem::take(&mut self.again) {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    connection.is_queued = false;
                    self.serve(index);
                }
            }
            self.scan();
            for index in self.over.drain(..) {
                self.connections.remove(index);
            }
            if self.should_end()? {
                return Ok(());
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
                BELL => self.shared.bells[self.index].hush(),
                token if token >= LISTENERS => {
                    self.accept((token - LISTENERS) as usize);
                }
                token => self.on_event(token, flags),
            }
        }
        Ok(())
    }

    /// The ring moves bytes; all else comes by epoll, which the ring waits for, too.
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
                Some(Event::Way(index, way, completion)) => {
                    self.on_completion(index, way, completion);
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
            // A turn gave some back, perhaps; who finds none is asked again at the next.
            for (index, way) in uring.starved() {
                if let Some(Some(connection)) = self.connections.get_mut(index) {
                    uring.receive(index, way, connection, false);
                }
            }
        }
        Ok(())
    }

    fn on_completion(&mut self, index: usize, way: Way, completion: Completion) {
        let (Some(Some(connection)), Some(uring)) =
            (self.connections.get_mut(index), &mut self.uring)
        else {
            return;
        };
        if completion.result > 0 {
            connection.since = self.mover.now;
        }
        if let Step::Over(ending) =
            uring.advance(index, way, completion, connection, &self.counters)
        {
            self.end(index, ending);
        }
    }

    fn timeout(&self) -> Option<Duration> {
        let now = self.mover.now;
        let until = |at: Instant| at.saturating_duration_since(now);
        let wait = if !self.again.is_empty() {
            Duration::ZERO
        } else {
            let busy = !self.connections.is_empty() || !self.resetting.is_empty();
            let deadlines = [
                busy.then(|| until(self.next_scan)),
                self.accept_at.map(until),
                self.drain_until.map(until),
            ];
            deadlines.into_iter().flatten().min()?
        };
        // Rounded up: a millisecond too early is another round.
        let wait = wait + Duration::from_micros(999);
        let wait = if self.again.is_empty() {
            wait
        } else {
            Duration::ZERO
        };
        Some(wait)
    }

    /// Stops where it was asked to; whether nothing is left.
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
                    // Who is in the queue already was told that it is connected.
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

    fn end_all(&mut self) {
        self.listeners.clear();
        let indices: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.end(index, Ending::Stopped);
        }
        // What the ring still has in flight completes by itself.
        for index in self.over.drain(..) {
            self.connections.remove(index);
        }
        self.again.clear();
        self.resetting.drain(..).for_each(|(side, _)| side.reset());
    }

    fn accept_again(&mut self) -> io::Result<()> {
        self.accept_at = None;
        if self.is_accepting || !self.shared.gate.has_room() {
            return Ok(());
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + index as u64);
            // Of workers that share a listener one is woken.
            epoll::add(
                &self.epoll,
                listener,
                data,
                EventFlags::IN | EventFlags::EXCLUSIVE,
            )?;
        }
        self.is_accepting = true;
        Ok(())
    }

    /// Who comes waits in the listen queue. Until a connection ends, or until then.
    fn pause_accepting(&mut self, until: Option<Instant>) {
        if std::mem::replace(&mut self.is_accepting, false) {
            for listener in &self.listeners {
                let _ = epoll::delete(&self.epoll, listener);
            }
        }
        self.accept_at = until;
    }

    /// Takes connections; whether there may be more.
    fn accept(&mut self, listener: usize) -> bool {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.listeners.get(listener) else {
                return false;
            };
            let gate = &self.shared.gate;
            let enters = gate.enter() || gate.wait() && gate.enter();
            if !enters {
                self.counters.accept_pauses.add(1);
                let most = self.shared.config.connections_max;
                tracing::debug!("{most} connections: accepting pauses");
                // The bell tells when it goes on.
                self.pause_accepting(None);
                return false;
            }
            let is_tcp = socket.is_tcp();
            match acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, source)) => {
                    let source = source.and_then(|source| SocketAddr::try_from(source).ok());
                    self.take_in(Side::new(socket, is_tcp), source);
                }
                Err(error) => {
                    self.leave_gate();
                    match error {
                        Errno::AGAIN => return false,
                        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                            self.counters.accept_failures.add(1);
                            tracing::warn!("accept: {error}: accepting pauses");
                            self.pause_accepting(Some(self.mover.now + SECOND / 10));
                            return false;
                        }
                        // It went away before it was taken (accept(2)).
                        _ => {}
                    }
                }
            }
        }
        true
    }

    fn leave_gate(&self) {
        if self.shared.gate.leave() {
            self.shared.bells.iter().for_each(Bell::ring);
        }
    }

    fn take_in(&mut self, client: Side, source: Option<SocketAddr>) {
        let config = &self.shared.config;
        if !source.is_none_or(|source| config.allows(source.ip())) {
            self.counters.accepted.add(1);
            self.counters.count_end(Ending::Denied);
            client.reset();
            return self.leave_gate();
        }
        let destination = config.proxy_out.and_then(|_| {
            let local = getsockname(&client.socket).ok()?;
            SocketAddr::try_from(local).ok()
        });
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let now = self.mover.now;
        let phase = match config.proxy_in {
            true => Phase::Header,
            false => Phase::Connecting,
        };
        let has_header = config.proxy_in;
        let counters = Arc::new(ConnectionCounters::new(id, source, now));
        let index = self.connections.insert(Some(Box::new(Connection {
            client,
            server: None,
            phase,
            flows: [self.mover.flow(), self.mover.flow()],
            since: now,
            tried: Vec::new(),
            upstream: None,
            destination,
            counters: Arc::clone(&counters),
            is_queued: false,
            ring: Default::default(),
        })));
        self.counters.begin(index, counters);
        if has_header {
            match self.watch(index, CLIENT) {
                Ok(()) => self.serve(index),
                Err(_) => self.end(index, Ending::NoResources),
            }
        } else {
            self.connect(index);
        }
    }

    /// From now on events of this side are told.
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
            Phase::Header => self.read_header(index),
            Phase::Connecting => self.finish_connecting(index),
            Phase::Open => match connection.exchange(&mut self.mover, &self.counters) {
                Step::Wait => {}
                Step::Again => {
                    connection.is_queued = true;
                    self.again.push(index);
                }
                Step::Over(ending) => self.end(index, ending),
            },
        }
    }

    /// The client's PROXY header: looked at until it is whole, so that not one byte behind it is taken.
    fn read_header(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        if !connection.client.readable {
            return;
        }
        let mut buffer = [0; HEADER_MAX];
        let socket = &connection.client.socket;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = match recv(socket, &mut buffer[..], flags) {
            Err(Errno::AGAIN) => {
                connection.client.readable = false;
                return;
            }
            Ok((_, seen)) if seen > 0 => seen,
            _ => return self.end(index, Ending::BadHeader),
        };
        match proxy::parse(&buffer[..seen]) {
            Parsed::Incomplete => connection.client.readable = false,
            Parsed::Malformed => self.end(index, Ending::BadHeader),
            Parsed::Header { length, ends } => {
                let taken = recv(socket, &mut buffer[..length], RecvFlags::DONTWAIT);
                if taken.is_ok_and(|(_, taken)| taken == length) {
                    if let Some(Ends {
                        source,
                        destination,
                    }) = ends
                    {
                        connection.counters.set_source(source);
                        connection.destination = Some(destination);
                    }
                    connection.phase = Phase::Connecting;
                    connection.since = self.mover.now;
                    self.connect(index);
                } else {
                    self.end(index, Ending::BadHeader);
                }
            }
        }
    }

    /// Tries upstreams until one takes the connection or may yet do so.
    fn connect(&mut self, index: usize) {
        loop {
            let now = self.mover.now;
            let Some(connection) = &mut self.connections[index] else {
                return;
            };
            let Some(upstream) = self.shared.upstreams.choose(&connection.tried, now) else {
                return self.end(index, Ending::NoUpstream);
            };
            let address = self.shared.upstreams.address(upstream);
            let config = &self.shared.config;
            let socket = address.socket().and_then(|socket| {
                if address.is_tcp() {
                    side::set_options(&socket, config)?;
                }
                side::set_buffers(&socket, config)?;
                Ok(socket)
            });
            let Ok(socket) = socket else {
                return self.end(index, Ending::NoResources);
            };
            let outcome = address.connect(&socket);
            connection.upstream = Some(upstream);
            connection.since = now;
            self.shared.upstreams.begin(upstream);
            let is_tcp = address.is_tcp();
            match outcome {
                Ok(()) | Err(Errno::INPROGRESS) => {
                    connection.server = Some(Side::new(socket, is_tcp));
                    if self.watch(index, SERVER).is_err() {
                        return self.end(index, Ending::NoResources);
                    }
                    if outcome.is_ok() {
                        self.open(index);
                    }
                    return;
                }
                Err(error) => self.on_refusal(index, error),
            }
        }
    }

    /// Notes that the upstream did not take the connection.
    fn on_refusal(&mut self, index: usize, error: Errno) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        connection.server = None;
        self.counters.connect_failures.add(1);
        if let Some(upstream) = connection.upstream.take() {
            connection.tried.push(upstream);
            self.shared.refused(upstream, &error, self.mover.now);
        }
    }

    fn finish_connecting(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let Some(server) = &connection.server else {
            return;
        };
        if !server.writable && !server.readable {
            return;
        }
        match sockopt::socket_error(&server.socket) {
            Ok(Ok(())) => self.open(index),
            Ok(Err(error)) | Err(error) => {
                self.on_refusal(index, error);
                self.connect(index);
            }
        }
    }

    /// Both sides are there.
    fn open(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let upstream = connection.upstream.expect("it is the one that took it");
        self.shared.taken(upstream);
        connection.counters.set_upstream(upstream);
        connection.phase = Phase::Open;
        connection.since = self.mover.now;
        let config = &self.shared.config;
        if let (Some(version), Some(server)) = (config.proxy_out, &connection.server) {
            let ends = connection
                .counters
                .source()
                .zip(connection.destination)
                .map(|(source, destination)| Ends {
                    source,
                    destination,
                });
            let header = proxy::header(version, ends);
            // A fresh socket has room for so little.
            let sent = send(
                &server.socket,
                &header,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
            if sent != Ok(header.len()) {
                return self.end(index, Ending::ServerLost);
            }
        }
        if let Some(server) = &mut connection.server {
            server.writable = true;
        }
        // With a PROXY header it is watched already, and may have more to read.
        let is_watched = config.proxy_in;
        if let Some(uring) = &mut self.uring {
            let server = connection.server.as_ref().map(|server| &server.socket);
            let client = is_watched.then_some(&connection.client.socket);
            for socket in server.into_iter().chain(client) {
                let _ = epoll::delete(&self.epoll, socket);
            }
            return uring.begin(index, connection);
        }
        if !is_watched && self.watch(index, CLIENT).is_err() {
            return self.end(index, Ending::NoResources);
        }
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        connection.client.readable |= is_watched;
        connection.client.writable = true;
        self.serve(index);
    }

    /// A connection is over: counted, told, its sockets closed or reset.
    fn end(&mut self, index: usize, ending: Ending) {
        let Some(mut connection) = self.connections[index].take() else {
            return;
        };
        for (flow, moved) in connection.flows.iter_mut().zip(&connection.counters.moved) {
            self.mover.abandon(flow, moved);
        }
        if let Some(upstream) = connection.upstream {
            self.shared.upstreams.end(upstream);
        }
        self.shared
            .tell_end(&connection.counters, ending, self.mover.now);
        self.counters.end(index, ending);
        self.leave_gate();
        if let Some(uring) = &mut self.uring {
            match uring.close(index, connection, ending) {
                Ok(()) => return,
                Err(back) => connection = back,
            }
        }
        let connection = *connection;
        if let Some(server) = connection.server {
            self.close(server, ending);
        }
        self.close(connection.client, ending);
        self.over.push(index);
    }

    fn close(&mut self, side: Side, ending: Ending) {
        if ending == Ending::Finished || side.gone.is_some() {
            return; // By dropping it.
        }
        // A reset throws away what the kernel has not sent yet: what came before the other side's reset is to be
        // sent first.
        let is_prompt = ending == Ending::Stopped || side.unacknowledged() == 0;
        if is_prompt {
            side.reset();
        } else {
            self.resetting.push((side, self.mover.now + RESET_MAX));
            self.next_scan = self.next_scan.min(self.mover.now + RESET_SCAN);
        }
    }

    /// What ends by time.
    fn scan(&mut self) {
        let now = self.mover.now;
        if now < self.next_scan {
            return;
        }
        let mut kept = Vec::new();
        for (side, until) in std::mem::take(&mut self.resetting) {
            match side.unacknowledged() == 0 || until <= now {
                true => side.reset(),
                false => kept.push((side, until)),
            }
        }
        self.resetting = kept;
        let config = &self.shared.config;
        let (connect_timeout, idle_timeout) = (config.connect_timeout, config.idle_timeout);
        let mut late = Vec::new();
        for (index, connection) in &self.connections {
            let Some(connection) = connection else {
                continue;
            };
            let quiet = now.saturating_duration_since(connection.since);
            match connection.phase {
                Phase::Header if quiet >= connect_timeout => late.push((index, Ending::BadHeader)),
                Phase::Connecting if quiet >= connect_timeout => {
                    late.push((index, Ending::ConnectTimeout));
                }
                Phase::Open if idle_timeout.is_some_and(|most| quiet >= most) => {
                    late.push((index, Ending::Idle));
                }
                _ => {}
            }
        }
        for (index, ending) in late {
            if ending == Ending::ConnectTimeout {
                self.on_refusal(index, Errno::TIMEDOUT);
                let tried = self.connections[index].as_ref().map(|one| one.tried.len());
                if tried.is_some_and(|tried| tried < self.shared.upstreams.len()) {
                    self.connect(index);
                    continue;
                }
            }
            self.end(index, ending);
        }
        self.counters.pipes.set(self.mover.pipes.there() as u64);
        let shortest = idle_timeout.map_or(connect_timeout, |idle| idle.min(connect_timeout));
        let pause = (shortest / 8).clamp(RESET_SCAN, SECOND);
        let pause = if self.resetting.is_empty() {
            pause
        } else {
            RESET_SCAN
        };
        self.next_scan = now + pause;
    }
}

const BELL: u64 = u64::MAX;
/// Tokens of listeners begin here; those of connections are below.
const LISTENERS: u64 = 1 << 48;
const CLIENT: u64 = 0;
const SERVER: u64 = 1;
/// Events that are taken together.
const EVENTS: usize = 256;
/// Connections that are taken before others have their turn.
const ACCEPTS: usize = 64;
/// Times that, of those who wait when the relay is asked to stop: more than any listen queue has.
const DRAIN_ACCEPTS: usize = 1024;
const SECOND: Duration = Duration::from_secs(1);
/// How long a reset waits for what came before it to be acknowledged: a few round trips of a long way.
const RESET_MAX: Duration = Duration::from_secs(1);
/// How often it looks.
const RESET_SCAN: Duration = Duration::from_millis(10);
