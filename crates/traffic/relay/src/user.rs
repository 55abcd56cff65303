//! Mode `user`: our own TCP on both sides. Bytes that one connection received go to the send queue
//! of the other by reference (`Stack::forward`), so the stack's policy decides when ACKs are sent
//! and when a window opens.
//!
//! The rules for ends and resets are those of `connection.rs`; sockets, epoll and pipes are not
//! used. PROXY headers and unix sockets are not supported ([`check`] refuses them).

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use slab::Slab;
use tcpcost_link::{Bell, Device};
use tcpcost_stack::{Stack, Stopped, UserConn, UserListener, UserStack, Wire};

use crate::StartError;
use crate::address::Address;
use crate::config::{Config, Mode};
use crate::counters::{ConnectionCounters, Direction, Ending, TcpTotals, WorkerCounters};
use crate::shared::{ENDING, RUNNING, Shared};

/// Refuses configurations that this mode does not support.
pub(crate) fn check(config: &Config) -> Result<(), StartError> {
    let what = match config {
        Config { proxy_in: true, .. } => "a PROXY header from clients",
        Config {
            proxy_out: Some(_), ..
        } => "a PROXY header to upstreams",
        config if !config.to.iter().all(Address::is_tcp) => "a unix socket as upstream",
        _ => return Ok(()),
    };
    Err(StartError::Unavailable {
        mode: Mode::User,
        why: format!("{what}: only the kernel's TCP has it"),
        instead: Mode::Auto,
    })
}

/// A worker: an instance of our TCP, and the connections that it relays.
pub(crate) struct UserWorker<D: Device<Wire>> {
    index: usize,
    shared: Arc<Shared>,
    counters: Arc<WorkerCounters>,
    stack: UserStack<D>,
    listeners: Vec<UserListener>,
    pairs: Slab<Pair>,
    /// Pairs that used up their turn.
    again: VecDeque<usize>,
    /// Sides to reset as soon as the bytes sent to them are acknowledged, with a deadline.
    resetting: Vec<(UserConn, Instant)>,
    now: Instant,
    next_scan: Instant,
    drain_until: Option<Instant>,
    is_draining: bool,
}

/// The two connections of a relayed connection.
struct Pair {
    client: UserConn,
    server: Option<UserConn>,
    is_open: bool,
    /// True while a flow continues, indexed by [`Direction`].
    goes_on: [bool; 2],
    /// Error that ended the client's, and the server's, connection early.
    gone: [Option<ErrorKind>; 2],
    since: Instant,
    tried: Vec<usize>,
    upstream: Option<usize>,
    counters: Arc<ConnectionCounters>,
    is_queued: bool,
}

/// Next step for a pair.
enum Step {
    Wait,
    Again,
    Over(Ending),
}

impl<D: Device<Wire>> UserWorker<D> {
    /// Makes a worker that listens at the given addresses. Also returns the addresses, with the
    /// port that the stack chose for port 0.
    pub(crate) fn new(
        index: usize,
        shared: Arc<Shared>,
        counters: Arc<WorkerCounters>,
        mut stack: UserStack<D>,
        listen: &[SocketAddr],
    ) -> io::Result<(Self, Vec<SocketAddr>)> {
        let bell = shared.bells[index].as_fd().try_clone_to_owned()?;
        stack.wake_by(bell);
        let mut listeners = Vec::new();
        let mut local = Vec::new();
        for (token, address) in (0..).zip(listen) {
            let failed = |error| io::Error::other(format!("{address}: {error}"));
            let listener = stack
                .listen(*address, BACKLOG, u32::MAX - token)
                .map_err(failed)?;
            local.push(stack.local_addr(listener).map_err(failed)?);
            listeners.push(listener);
        }
        let now = Instant::now();
        let worker = Self {
            index,
            shared,
            counters,
            stack,
            listeners,
            pairs: Slab::new(),
            again: VecDeque::new(),
            resetting: Vec::new(),
            now,
            next_scan: now,
            drain_until: None,
            is_draining: false,
        };
        Ok((worker, local))
    }

    /// Runs until the relay was asked to stop and nothing is left.
    pub(crate) fn run(mut self) -> io::Result<()> {
        loop {
            let timeout = self.timeout();
            let count = self.stack.poll(timeout)?;
            self.now = Instant::now();
            if count == 0 {
                self.bell().hear();
            }
            for index in 0..count {
                let ready = self.stack.ready(index);
                match usize::try_from(u32::MAX - ready.token) {
                    Ok(listener) if listener < self.listeners.len() => self.accept(listener),
                    _ => self.serve((ready.token >> 1) as usize),
                }
            }
            for _ in 0..self.again.len() {
                let Some(index) = self.again.pop_front() else {
                    break;
                };
                if let Some(pair) = self.pairs.get_mut(index) {
                    pair.is_queued = false;
                    self.serve(index);
                }
            }
            self.scan();
            self.publish();
            if self.should_end() {
                // Dropping the stack sends pending resets.
                return Ok(());
            }
        }
    }

    fn bell(&self) -> &Bell {
        &self.shared.bells[self.index]
    }

    fn publish(&self) {
        let counters = self.stack.endpoint().counters();
        self.counters.set_tcp(TcpTotals {
            packets_sent: counters.packets_sent,
            octets_sent: counters.octets_sent,
            window_advancing_acks_sent: counters.window_advancing_acks_sent,
            only_acknowledging_acks_sent: counters.pure_acks_sent
                - counters.window_advancing_acks_sent,
        });
    }

    fn timeout(&self) -> Option<Duration> {
        if !self.again.is_empty() {
            return Some(Duration::ZERO);
        }
        let busy = !self.pairs.is_empty() || !self.resetting.is_empty() || self.is_draining;
        let deadlines = [busy.then_some(self.next_scan), self.drain_until];
        let next = deadlines.into_iter().flatten().min()?;
        Some(next.saturating_duration_since(self.now))
    }

    /// Follows the state of the relay: accepts, drains or ends. True if nothing is left.
    fn should_end(&mut self) -> bool {
        match self.shared.state.load(Ordering::SeqCst) {
            RUNNING => {
                let has_room = self.shared.limit.has_room();
                self.stack.pause_accepting(!has_room);
                return false;
            }
            ENDING => return self.end_all(),
            _ if !self.is_draining => {
                self.is_draining = true;
                self.stack.pause_accepting(false);
                // Clients in the listen queue have seen the handshake complete already.
                for index in 0..self.listeners.len() {
                    self.accept(index);
                }
                for listener in self.listeners.drain(..) {
                    self.stack.close_listener(listener);
                }
                let within = self.shared.config.drain_timeout;
                self.drain_until = within.map(|within| self.now + within);
            }
            _ => {}
        }
        if self.drain_until.is_some_and(|at| at <= self.now) {
            return self.end_all();
        }
        // Closed connections may still have bytes to send, and no kernel sends them after the end.
        self.pairs.is_empty()
            && self.resetting.is_empty()
            && self.stack.endpoint().connections() == 0
    }

    fn end_all(&mut self) -> bool {
        let indices: Vec<usize> = self.pairs.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.end(index, Ending::Stopped);
        }
        for (conn, _) in self.resetting.drain(..) {
            self.stack.abort(conn);
        }
        self.publish();
        true
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let limit = &self.shared.limit;
            if !(limit.enter() || limit.wait() && limit.enter()) {
                self.counters.accept_pauses.add(1);
                // The bell rings when a place is free.
                return self.stack.pause_accepting(true);
            }
            let index = self.pairs.vacant_key();
            let token = (index as u32) << 1 | CLIENT;
            match self.stack.accept(self.listeners[listener], token) {
                Ok((client, source)) => self.take_in(client, source),
                Err(_) => return self.leave_gate(),
            }
        }
    }

    fn leave_gate(&self) {
        if self.shared.limit.leave() {
            self.shared.bells.iter().for_each(Bell::ring);
        }
    }

    fn take_in(&mut self, client: UserConn, source: SocketAddr) {
        if !self.shared.config.allows(source.ip()) {
            self.counters.accepted.add(1);
            self.counters.count_end(Ending::Denied);
            self.stack.abort(client);
            return self.leave_gate();
        }
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let counters = Arc::new(ConnectionCounters::new(id, Some(source), self.now));
        let index = self.pairs.insert(Pair {
            client,
            server: None,
            is_open: false,
            goes_on: [true; 2],
            gone: [None; 2],
            since: self.now,
            tried: Vec::new(),
            upstream: None,
            counters: Arc::clone(&counters),
            is_queued: false,
        });
        self.counters.begin(index, counters);
        self.connect(index);
    }

    /// Tries upstreams until one may accept the connection.
    fn connect(&mut self, index: usize) {
        loop {
            let upstreams = &self.shared.upstreams;
            let pair = &mut self.pairs[index];
            let Some(upstream) = upstreams.choose(&pair.tried, self.now) else {
                return self.end(index, Ending::NoUpstream);
            };
            let Address::Tcp(address) = *upstreams.address(upstream) else {
                return self.end(index, Ending::NoUpstream); // `check` refused such a configuration.
            };
            pair.upstream = Some(upstream);
            pair.since = self.now;
            upstreams.begin(upstream);
            match self.stack.connect(address, (index as u32) << 1 | SERVER) {
                Ok(server) => {
                    pair.server = Some(server);
                    return;
                }
                Err(error) => self.on_refusal(index, &error.to_string()),
            }
        }
    }

    /// Notes that the upstream did not accept the connection.
    fn on_refusal(&mut self, index: usize, error: &str) {
        let pair = &mut self.pairs[index];
        if let Some(server) = pair.server.take() {
            self.stack.abort(server);
        }
        self.counters.connect_failures.add(1);
        if let Some(upstream) = pair.upstream.take() {
            pair.tried.push(upstream);
            self.shared.refused(upstream, &error, self.now);
        }
    }

    fn serve(&mut self, index: usize) {
        let Some(pair) = self.pairs.get_mut(index) else {
            return;
        };
        let Some(server) = pair.server else {
            return;
        };
        if !pair.is_open {
            match self.stack.connected(server) {
                Ok(()) => {
                    let upstream = pair.upstream.expect("it is the one that took it");
                    self.shared.taken(upstream);
                    pair.counters.set_upstream(upstream);
                    (pair.is_open, pair.since) = (true, self.now);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let client = self.stack.connection(pair.client);
                    // `Side::has_left` has the same rule.
                    if client.is_none_or(|one| one.ended().is_some() || one.is_finished()) {
                        self.end(index, Ending::ClientReset);
                    }
                    return;
                }
                Err(error) => {
                    self.on_refusal(index, &error.to_string());
                    return self.connect(index);
                }
            }
        }
        if pair.is_queued {
            return;
        }
        match pair.exchange(server, &mut self.stack, &self.counters, self.now) {
            Step::Wait => {}
            Step::Again => {
                pair.is_queued = true;
                self.again.push_back(index);
            }
            Step::Over(ending) => self.end(index, ending),
        }
    }

    /// Ends a pair: counts and reports it, and closes or resets its connections.
    fn end(&mut self, index: usize, ending: Ending) {
        let pair = self.pairs.remove(index);
        if ending == Ending::Stopped {
            self.count_discarded(&pair);
        }
        if let Some(upstream) = pair.upstream {
            self.shared.upstreams.end(upstream);
        }
        self.shared.tell_end(&pair.counters, ending, self.now);
        self.counters.end(index, ending);
        self.leave_gate();
        let sides = [
            (Some(pair.client), pair.gone[0]),
            (pair.server, pair.gone[1]),
        ];
        for (conn, gone) in sides {
            let Some(conn) = conn else { continue };
            if ending == Ending::Finished || gone.is_some() {
                self.stack.close(conn);
            } else if ending == Ending::Stopped || self.unacknowledged(conn) == 0 {
                self.stack.abort(conn);
            } else {
                // A reset discards unsent bytes. Bytes that came before the other side's reset must
                // be sent first.
                self.resetting.push((conn, self.now + RESET_MAX));
                self.next_scan = self.next_scan.min(self.now + RESET_SCAN);
            }
        }
    }

    /// Counts the bytes that a reset of both sides discards, like `Connection::count_discarded`.
    fn count_discarded(&self, pair: &Pair) {
        let Some(server) = pair.server else { return };
        for (direction, from, to) in [
            (Direction::ToServer, pair.client, server),
            (Direction::ToClient, server, pair.client),
        ] {
            let unread = self.stack.connection(from).map_or(0, |one| one.readable());
            let moved = &pair.counters.moved[direction as usize];
            moved
                .abandoned
                .add((unread + self.unacknowledged(to)) as u64);
        }
    }

    fn unacknowledged(&self, conn: UserConn) -> usize {
        let connection = self.stack.connection(conn);
        connection.map_or(0, |connection| connection.unacknowledged())
    }

    /// Ends pairs whose timeouts are over, and resets sides that waited for acknowledgements.
    fn scan(&mut self) {
        let now = self.now;
        if now < self.next_scan {
            return;
        }
        for (conn, until) in std::mem::take(&mut self.resetting) {
            match self.unacknowledged(conn) == 0 || until <= now {
                true => self.stack.abort(conn),
                false => self.resetting.push((conn, until)),
            }
        }
        let config = &self.shared.config;
        let (connect_timeout, idle_timeout) = (config.connect_timeout, config.idle_timeout);
        let late = |pair: &Pair| {
            let quiet = now.saturating_duration_since(pair.since);
            match pair.is_open {
                false => quiet >= connect_timeout,
                true => idle_timeout.is_some_and(|most| quiet >= most),
            }
        };
        let all = self.pairs.iter();
        let late: Vec<usize> = all
            .filter(|(_, pair)| late(pair))
            .map(|(index, _)| index)
            .collect();
        for index in late {
            if self.pairs[index].is_open {
                self.end(index, Ending::Idle);
                continue;
            }
            self.on_refusal(index, "timed out");
            match self.pairs[index].tried.len() < self.shared.upstreams.len() {
                true => self.connect(index),
                false => self.end(index, Ending::ConnectTimeout),
            }
        }
        let shortest = idle_timeout.map_or(connect_timeout, |idle| idle.min(connect_timeout));
        self.next_scan = now
            + match self.resetting.is_empty() && !self.is_draining {
                true => (shortest / 8).clamp(RESET_SCAN, Duration::from_secs(1)),
                false => RESET_SCAN,
            };
    }
}

impl Pair {
    /// Moves bytes in both directions, up to the limit of a turn.
    fn exchange<D: Device<Wire>>(
        &mut self,
        server: UserConn,
        stack: &mut UserStack<D>,
        counters: &WorkerCounters,
        now: Instant,
    ) -> Step {
        let mut step = Step::Wait;
        for direction in Direction::ALL {
            match self.run(direction, server, stack, counters, now) {
                Step::Wait => {}
                Step::Again => step = Step::Again,
                over => return over,
            }
        }
        step
    }

    fn run<D: Device<Wire>>(
        &mut self,
        direction: Direction,
        server: UserConn,
        stack: &mut UserStack<D>,
        counters: &WorkerCounters,
        now: Instant,
    ) -> Step {
        let (own, back) = (direction as usize, 1 - direction as usize);
        if !self.goes_on[own] {
            return Step::Wait;
        }
        // Source and sink: `sides[direction]` is the source.
        let sides = [self.client, server];
        let (from, to) = (sides[own], sides[back]);
        let forwarded = match stack.forward(from, to, TURN) {
            Ok(forwarded) => forwarded,
            Err(_) => return Step::Over(Ending::NoResources), // Our own stack supports `forward`.
        };
        if forwarded.bytes > 0 {
            self.since = now;
            let moved = &self.counters.moved[own];
            moved.copied.add(forwarded.copied as u64);
            moved
                .redirected
                .add((forwarded.bytes - forwarded.copied) as u64);
        }
        match forwarded.stopped {
            Stopped::Most => Step::Again,
            Stopped::Empty => Step::Wait,
            Stopped::Full => {
                counters.stalls.add(1);
                Step::Wait
            }
            Stopped::Finished => {
                self.goes_on[own] = false;
                if self.gone[own].is_some() || !self.goes_on[back] {
                    return Step::Over(self.ending());
                }
                stack.finish(to);
                Step::Wait
            }
            Stopped::SourceGone(error) => {
                self.gone[own].get_or_insert(error.kind());
                Step::Over(self.ending())
            }
            Stopped::SinkGone(error) => {
                self.gone[back].get_or_insert(error.kind());
                self.goes_on[own] = false;
                match self.goes_on[back] {
                    // Bytes that the sink sent before must still be read.
                    true => Step::Again,
                    false => Step::Over(self.ending()),
                }
            }
        }
    }

    /// Ending of the pair, by the errors of its connections.
    fn ending(&self) -> Ending {
        let is_reset = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        match self.gone {
            [Some(kind), _] if is_reset(kind) => Ending::ClientReset,
            [Some(_), _] => Ending::ClientLost,
            [None, Some(kind)] if is_reset(kind) => Ending::ServerReset,
            [None, Some(_)] => Ending::ServerLost,
            [None, None] => Ending::Finished,
        }
    }
}

const CLIENT: u32 = 0;
const SERVER: u32 = 1;
/// Backlog; the default of the kernel's somaxconn.
const BACKLOG: u32 = 4096;
/// Bytes that a flow moves before other flows have their turn, as with the kernel's sockets.
const TURN: usize = 1 << 20;
/// Time that a reset waits for the bytes before it to be acknowledged: a few round trips of a long
/// path.
const RESET_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks whether they are acknowledged.
const RESET_SCAN: Duration = Duration::from_millis(10);
