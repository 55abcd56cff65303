//! Our own TCP on both sides: modes `user` and `user-copy`. Bytes that one connection received go to
//! the send queue of the other by reference (`UserStack::forward`) or through a buffer of the worker
//! (`UserStack::forward_through`), so the stack's policy decides when ACKs are sent and when a window
//! opens.
//!
//! The rules for ends and resets are those of `kernel/exchange.rs`. PROXY headers and unix sockets
//! are not supported ([`check`] refuses them).

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use tcpcost_knobs::RelayMode;
use tcpcost_link::{Bell, Device};
use tcpcost_stack::{Stack, Stopped, UserConn, UserListener, UserStack, Wire};

use crate::StartError;
use crate::address::Address;
use crate::config::Config;
use crate::counters::{Direction, TcpTotals, WorkerCounters};
use crate::worker::{CLIENT, ConnectError, Connection, Net, Progress, SERVER, Step, Worker};

/// Refuses configurations that these modes do not support.
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
        mode: config.mode,
        why: format!("{what}: only the kernel's TCP has it"),
        instead: RelayMode::Auto,
    })
}

/// An instance of our TCP for one worker.
pub(crate) struct User<D: Device<Wire>> {
    stack: UserStack<D>,
    listeners: Vec<UserListener>,
    /// Buffer of mode `user-copy`. `None` in mode `user`.
    buffer: Option<Box<[u8]>>,
}

/// One of the two connections of a relayed connection.
pub(crate) struct UserSide {
    conn: UserConn,
    /// Error that ended the connection early.
    gone: Option<ErrorKind>,
}

impl<D: Device<Wire>> User<D> {
    /// Listens at the given addresses. Also returns the addresses, with the port that the stack
    /// chose for port 0.
    pub(crate) fn new(
        mut stack: UserStack<D>,
        listen: &[SocketAddr],
        bell: &Bell,
        config: &Config,
    ) -> io::Result<(Self, Vec<SocketAddr>)> {
        stack.wake_by(bell.as_fd().try_clone_to_owned()?);
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
        let copies = config.mode == RelayMode::UserCopy;
        let buffer = copies.then(|| vec![0; config.buffer_bytes].into());
        let user = Self {
            stack,
            listeners,
            buffer,
        };
        Ok((user, local))
    }

    /// Moves the bytes of one direction.
    fn forward(
        &mut self,
        connection: &mut Connection<Self>,
        direction: Direction,
        counters: &WorkerCounters,
        now: Instant,
    ) -> Step {
        let (own, back) = (direction as usize, 1 - direction as usize);
        let Some(server) = &mut connection.server else {
            return Step::Wait;
        };
        if !connection.flows[own] {
            return Step::Wait;
        }
        let (from, to) = match direction {
            Direction::ToServer => (&mut connection.client, server),
            Direction::ToClient => (server, &mut connection.client),
        };
        let forwarded = match &mut self.buffer {
            None => self.stack.forward(from.conn, to.conn, TURN),
            Some(buffer) => self.stack.forward_through(from.conn, to.conn, buffer),
        };
        if forwarded.bytes > 0 {
            connection.since = now;
            let moved = &connection.counters.moved[own];
            moved.copied.add(forwarded.copied as u64);
            let redirected = forwarded.bytes - forwarded.copied;
            moved.redirected.add(redirected as u64);
        }
        match forwarded.stopped {
            Stopped::Most => Step::Again,
            Stopped::Empty => Step::Wait,
            Stopped::Full => {
                counters.stalls.add(1);
                Step::Wait
            }
            Stopped::Finished => {
                connection.flows[own] = false;
                if from.gone.is_some() || !connection.flows[back] {
                    return Step::Over(connection.ending());
                }
                self.stack.finish(to.conn);
                Step::Wait
            }
            Stopped::SourceGone(error) => {
                from.gone.get_or_insert(error.kind());
                Step::Over(connection.ending())
            }
            Stopped::SinkGone(error) => {
                to.gone.get_or_insert(error.kind());
                connection.flows[own] = false;
                match connection.flows[back] {
                    // Bytes that the sink sent before must still be read.
                    true => Step::Again,
                    false => Step::Over(connection.ending()),
                }
            }
        }
    }
}

impl<D: Device<Wire>> Net for User<D> {
    type Side = UserSide;
    /// True while a flow continues, indexed by [`Direction`].
    type Flows = [bool; 2];
    type Events = ();

    fn wait(
        worker: &mut Worker<Self>,
        timeout: Option<Duration>,
        (): &mut (),
    ) -> io::Result<usize> {
        let count = worker.net.stack.poll(timeout)?;
        worker.now = Instant::now();
        if count == 0 {
            worker.shared.bells[worker.index].hear();
        }
        for index in 0..count {
            let ready = worker.net.stack.ready(index);
            match usize::try_from(u32::MAX - ready.token) {
                Ok(listener) if listener < worker.net.listeners.len() => {
                    worker.accept(listener);
                }
                _ => worker.serve((ready.token >> 1) as usize),
            }
        }
        Ok(count)
    }

    fn listeners(&self) -> usize {
        self.listeners.len()
    }

    fn close_listeners(&mut self) {
        for listener in self.listeners.drain(..) {
            self.stack.close_listener(listener);
        }
    }

    fn set_accepting(&mut self, accepts: bool) -> io::Result<()> {
        self.stack.pause_accepting(!accepts);
        Ok(())
    }

    fn accept(
        &mut self,
        listener: usize,
        index: usize,
    ) -> io::Result<(UserSide, Option<SocketAddr>)> {
        let token = token(index, CLIENT);
        let (conn, source) = self.stack.accept(self.listeners[listener], token)?;
        Ok((UserSide { conn, gone: None }, Some(source)))
    }

    fn connect(
        &mut self,
        to: &Address,
        index: usize,
        _: &Config,
    ) -> Result<UserSide, ConnectError> {
        let Address::Tcp(to) = *to else {
            return Err(ConnectError::NoResources); // `check` refused such a configuration.
        };
        let refused = |error| ConnectError::Refused(io::Error::other(error));
        let conn = self
            .stack
            .connect(to, token(index, SERVER))
            .map_err(refused)?;
        Ok(UserSide { conn, gone: None })
    }

    fn progress(&mut self, connection: &Connection<Self>) -> Progress {
        let Some(server) = &connection.server else {
            return Progress::Waits;
        };
        match self.stack.connected(server.conn) {
            Ok(()) => Progress::Connected,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                let client = self.stack.connection(connection.client.conn);
                // `Side::has_left` has the same rule.
                match client.is_none_or(|one| one.ended().is_some() || one.is_finished()) {
                    true => Progress::ClientLeft,
                    false => Progress::Waits,
                }
            }
            Err(error) => Progress::Refused(error),
        }
    }

    fn exchange(
        &mut self,
        _: usize,
        connection: &mut Connection<Self>,
        counters: &WorkerCounters,
        now: Instant,
    ) -> Step {
        let mut step = Step::Wait;
        for direction in Direction::ALL {
            match self.forward(connection, direction, counters, now) {
                Step::Wait => {}
                Step::Again => step = Step::Again,
                over => return over,
            }
        }
        step
    }

    fn flows(&self) -> [bool; 2] {
        [true; 2]
    }

    fn gone(side: &UserSide) -> Option<ErrorKind> {
        side.gone
    }

    fn unread(&self, side: &UserSide) -> usize {
        let connection = self.stack.connection(side.conn);
        connection.map_or(0, |connection| connection.readable())
    }

    fn unacknowledged(&self, side: &UserSide) -> usize {
        let connection = self.stack.connection(side.conn);
        connection.map_or(0, |connection| connection.unacknowledged())
    }

    fn close(&mut self, side: UserSide) {
        self.stack.close(side.conn);
    }

    fn reset(&mut self, side: UserSide) {
        self.stack.abort(side.conn);
    }

    /// Closed connections may still have bytes to send, and no kernel sends them after the end.
    fn is_idle(&self) -> bool {
        self.stack.endpoint().connections() == 0
    }

    fn publish(&self, counters: &WorkerCounters) {
        let tcp = self.stack.endpoint().counters();
        counters.set_tcp(TcpTotals {
            packets_sent: tcp.packets_sent,
            octets_sent: tcp.octets_sent,
            window_advancing_acks_sent: tcp.window_advancing_acks_sent,
            only_acknowledging_acks_sent: tcp.pure_acks_sent - tcp.window_advancing_acks_sent,
        });
    }
}

fn token(index: usize, which: usize) -> u32 {
    (index << 1 | which) as u32
}

/// Backlog; the default of the kernel's somaxconn.
const BACKLOG: u32 = 4096;
/// Bytes that a flow moves by reference before other flows have their turn, as with the kernel's
/// sockets. By copy it moves a buffer, also as with those.
const TURN: usize = 1 << 20;
