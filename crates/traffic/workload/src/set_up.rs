//! Set-up of connections before the clock starts: connect, hello, hello back.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tcpcost_knobs::Side;
use tcpcost_stack::{Ready, Stack, StackError};

use crate::error::{SetupError, call};
use crate::flow::State;
use crate::hello::{self, HELLO_BYTES};
use crate::worker::{LISTENERS, Worker};

/// Limit of a client worker's connections that wait for the server's hello.
///
/// Such a connection is in the server's SYN queue or listen queue. The kernel drops a SYN once the
/// queue holds 3/4 of net.ipv4.tcp_max_syn_backlog, which is at least 128. With 64 a single worker
/// never reaches that, and at 4096, today's usual size, 48 workers do not. A dropped SYN would be
/// retransmitted only after a second.
pub const CONNECTS_OUTSTANDING: usize = 64;

/// Accepts in a row, so that hellos are answered between them.
const ACCEPTS: usize = 64;

/// State of a connection until its hello is complete.
#[derive(Clone, Copy, Default)]
struct Greeting {
    bytes: [u8; HELLO_BYTES],
    len: usize,
    /// Address of the client (server).
    peer: Option<IpAddr>,
}

impl<S: Stack> Worker<S> {
    /// Sets up all connections of this worker. Strangers are refused and counted; they are no
    /// failure. For `crr`, whose connections do not stay open, each flow sends its hello once and
    /// the server remembers the addresses.
    ///
    /// All workers of both ends must return from it before the first runs (a barrier): during
    /// set-up a `crr` server treats every connection as a hello. Call [`Worker::keep_up`]
    /// meanwhile.
    ///
    /// # Errors
    /// Not all connections were set up by the deadline, or a call failed.
    pub fn set_up(&mut self, deadline: Instant) -> Result<(), SetupError> {
        let mut greetings = vec![Greeting::default(); self.flows.len()];
        let (mut established, mut next) = (0, 0);
        let first = self
            .greet(deadline, &mut greetings, &mut established, &mut next)
            .err();
        if first.is_some() || established < self.wanted {
            return Err(SetupError {
                wanted: self.wanted,
                established,
                strangers: self.strangers,
                first,
            });
        }
        self.make_ready(&greetings).map_err(|error| SetupError {
            wanted: self.wanted,
            established,
            strangers: self.strangers,
            first: Some(error),
        })
    }

    /// Sends pending bytes and retransmits, for at most `timeout`. Call this repeatedly between
    /// set-up and the first run. A stack that [stands still](Stack::STANDS_STILL) between calls
    /// needs it: the last hello may have found no room on the wire, and its peer's set-up waits for
    /// it.
    ///
    /// # Errors
    /// The stack is broken.
    ///
    /// # Panics
    /// After the first run: it would consume readiness that the next run needs.
    pub fn keep_up(&mut self, timeout: Duration) -> Result<(), StackError> {
        assert!(!self.started, "runs have begun");
        // The first run takes every connection to be ready; a listener's readiness is reported
        // again.
        let polled = self.io.stack.poll(Some(timeout));
        polled.map(drop).map_err(call("epoll_wait"))
    }

    fn greet(
        &mut self,
        deadline: Instant,
        greetings: &mut Vec<Greeting>,
        established: &mut usize,
        next: &mut usize,
    ) -> Result<(), StackError> {
        while *established < self.wanted {
            // The server's flows come from accept.
            while self.io.group.plan.side == Side::Connects
                && *next < self.flows.len()
                && *next - *established < CONNECTS_OUTSTANDING
            {
                self.switch_to(self.flows[*next].group);
                let target = self.target(*next);
                self.connect_flow(*next)
                    .map_err(|error| at(target, error))?;
                *next += 1;
            }
            let now = Instant::now();
            if now >= deadline {
                return self.unanswered();
            }
            let count = self
                .io
                .stack
                .poll(Some(deadline - now))
                .map_err(call("epoll_wait"))?;
            for index in 0..count {
                let ready = self.io.stack.ready(index);
                if ready.token >= LISTENERS {
                    self.accept_strangers((ready.token - LISTENERS) as usize, greetings)?;
                } else if self.greet_one(ready, greetings)? {
                    *established += 1;
                }
            }
        }
        Ok(())
    }

    /// Starts the connection of a flow in the current group.
    pub(crate) fn connect_flow(&mut self, index: usize) -> Result<(), StackError> {
        let conn = self.io.stack.connect(self.target(index), index as u32)?;
        self.flows[index].restart(conn, State::Connecting);
        Ok(())
    }

    /// Address that a flow of the current group connects to.
    fn target(&self, index: usize) -> SocketAddr {
        let targets = &self.io.group.targets;
        // All connections of a flow go to one worker.
        let number = self.flows[index].connection as usize / self.io.group.plan.connections;
        targets[number % targets.len()]
    }

    /// Returns an error with the first server that has not answered a connect; `Ok` if each has.
    fn unanswered(&mut self) -> Result<(), StackError> {
        let mut flows = self.flows.iter();
        let Some(index) = flows.position(|flow| flow.state == State::Connecting) else {
            return Ok(());
        };
        self.switch_to(self.flows[index].group);
        let error = io::Error::new(io::ErrorKind::TimedOut, "no answer");
        Err(at(self.target(index), call("connect")(error)))
    }

    fn accept_strangers(
        &mut self,
        listening: usize,
        greetings: &mut Vec<Greeting>,
    ) -> Result<(), StackError> {
        let Some((Some(listener), group)) = self.listeners.get(listening).copied() else {
            return Ok(());
        };
        for _ in 0..ACCEPTS {
            let place = self.free.pop().unwrap_or(self.flows.len() as u32);
            if place as usize == self.flows.len() {
                self.add_flow();
                greetings.push(Greeting::default());
            }
            self.flows[place as usize].group = group;
            match self.io.stack.accept(listener, place) {
                Ok((conn, peer)) => {
                    let flow = &mut self.flows[place as usize];
                    flow.restart(conn, State::Greeting);
                    greetings[place as usize] = Greeting {
                        peer: Some(peer.ip()),
                        ..Greeting::default()
                    };
                }
                Err(error) => {
                    self.free.push(place);
                    return if is_of_one_connection(&error) {
                        Ok(())
                    } else {
                        Err(call("accept")(error))
                    };
                }
            }
        }
        Ok(())
    }

    /// Takes one connection a step further. True if it is set up.
    fn greet_one(&mut self, ready: Ready, greetings: &mut [Greeting]) -> Result<bool, StackError> {
        let Some(group) = self.flows.get(ready.token as usize).map(|flow| flow.group) else {
            return Ok(false);
        };
        self.switch_to(group);
        let flow = &mut self.flows[ready.token as usize];
        let Some(conn) = flow.conn else {
            return Ok(false);
        };
        let plan = &self.io.group.plan;
        let stack = &mut self.io.stack;
        if flow.state == State::Connecting && ready.writable {
            if let Err(error) = stack.connected(conn) {
                let target = self.target(ready.token as usize);
                return Err(at(target, call("connect")(error)));
            }
            let hello = hello::encode(&plan.token, flow.connection);
            // A new socket's buffer takes all 20 bytes.
            stack.write(conn, &hello).map_err(call("send hello"))?;
            flow.state = State::Greeting;
        }
        if flow.state != State::Greeting || !ready.readable {
            return Ok(false);
        }
        let greeting = &mut greetings[ready.token as usize];
        let is_server = plan.side == Side::Listens;
        match stack.read(conn, &mut greeting.bytes[greeting.len..]) {
            Ok(0) if is_server => {
                self.refuse(ready.token);
                return Ok(false);
            }
            Ok(0) => {
                let closed = io::Error::new(
                    io::ErrorKind::ConnectionAborted,
                    "the server closed the connection without a hello (another trial's server?)",
                );
                return Err(call("read hello")(closed));
            }
            Ok(bytes) => greeting.len += bytes,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) if is_server => {
                self.refuse(ready.token);
                return Ok(false);
            }
            Err(error) => return Err(call("read hello")(error)),
        }
        if greeting.len < HELLO_BYTES {
            return Ok(false);
        }
        let index = hello::decode(&plan.token, &greeting.bytes);
        if !is_server {
            if index != Some(flow.connection) {
                let wrong = io::Error::new(io::ErrorKind::InvalidData, "hello of another trial");
                return Err(call("read hello")(wrong));
            }
            flow.state = State::Open;
            return Ok(true);
        }
        // The index may exceed the flows of this worker: a client numbers its connections to all
        // servers.
        let Some(index) = index else {
            self.refuse(ready.token);
            return Ok(false);
        };
        stack
            .write(conn, &greeting.bytes)
            .map_err(call("send hello"))?;
        flow.connection = index;
        flow.state = State::Open;
        if let Some(peer) = greeting.peer.filter(|peer| !self.peers.contains(peer)) {
            self.peers.push(peer);
        }
        Ok(true)
    }

    /// Resets a connection that is not of this trial.
    pub(crate) fn refuse(&mut self, place: u32) {
        if let Some(conn) = self.flows[place as usize].conn.take() {
            self.io.stack.abort(conn);
            self.free.push(place);
            self.strangers += 1;
        }
        self.flows[place as usize].state = State::Idle;
    }

    /// Prepares connections for traffic. Edges that came with the hello are not reported again, so
    /// every connection is taken to be ready.
    fn make_ready(&mut self, greetings: &[Greeting]) -> Result<(), StackError> {
        // Connections that never sent a hello.
        for place in 0..self.flows.len() {
            if self.flows[place].state == State::Greeting {
                self.refuse(place as u32);
            }
        }
        for index in 0..self.listeners.len() {
            self.switch_to(self.listeners[index].1);
            if self.io.group.plan.stands
                && let Some(listener) = self.listeners[index].0.take()
            {
                self.io.stack.close_listener(listener);
            }
        }
        for index in 0..self.flows.len() {
            self.switch_to(self.flows[index].group);
            let flow = &mut self.flows[index];
            let Some(conn) = flow.conn else {
                continue;
            };
            let plan = &self.io.group.plan;
            if !plan.stands {
                flow.conn = None;
                flow.state = State::Idle;
                if plan.side == Side::Listens {
                    // Closed, not reset, because the hello back may still be in flight.
                    self.io.stack.close(conn);
                    self.free.push(index as u32);
                } else {
                    // Reset, so that TIME_WAIT does not take the client's ports.
                    self.io.stack.abort(conn);
                }
                continue;
            }
            (flow.readable, flow.writable) = (true, true);
            flow.send_at = plan.send_phase(flow.connection).into();
            flow.receive_left = plan.receive_message;
            if plan.is_stream() && plan.sends && plan.corks() {
                self.io
                    .stack
                    .cork(conn, true)
                    .map_err(call("setsockopt TCP_CORK"))?;
            }
            self.begin_program(index);
        }
        self.join(|index| greetings.get(index).and_then(|greeting| greeting.peer))?;
        match self.on_start.clone() {
            Some(on_start) => self.start_threads(&on_start),
            None => self.io.stack.flush().map_err(call("hand over closes")),
        }
    }
}

/// Puts the server's address before the text of an error.
fn at(target: SocketAddr, error: StackError) -> StackError {
    match error {
        StackError::Call { what, error } => {
            let text = format!("{target}: {error}");
            call(what)(io::Error::new(error.kind(), text))
        }
        error => error,
    }
}

/// True for errors of accept that concern a connection that has gone, or say that there is none.
pub(crate) fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
    )
}
