//! The loop of an instance: its connections, their services, and the totals.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use tcpcost_link::Lanes;
use tcpcost_stack::{Stack, UserConn};
use tcpcost_tcp::{Connection, Piece, Pool, State};

use super::epoll_set::EpollSet;
use super::flags::{Flags, Task as TaskFlag};
use super::forward::{Accepted, Queue};
use super::relay::Relay;
use super::reporter::Reporter;
use super::rows::{LastRow, Row};
use super::service::{self, Service, Session};
use super::stdio::Stdio;
use super::totals::Totals;
use super::turn::NextStep;
use super::web::{Client, Files};
use super::{STOPPED, TcpUnderTest, iperf3};

/// All connections of an instance and their services.
pub struct Serving<'a> {
    flags: &'a Flags,
    task: Task,
    pattern: Piece,
    pool: Pool,
    iperf3: iperf3::Server,
    listener: Option<<TcpUnderTest as Stack>::Listener>,
    /// Connections by token; `None` is free.
    sessions: Vec<Option<Entry>>,
    free: Vec<u32>,
    /// Tokens of connections that want a turn.
    queue: VecDeque<u32>,
    /// Descriptors that are waited for besides the interface; `None` without any.
    epoll_set: Option<EpollSet>,
    applications: Option<Queue>,
    stdio: Option<Stdio>,
    started: Instant,
    /// Counts of the connections that have ended.
    ended: Totals,
    reporter: &'a Reporter,
    /// Error of the last connection that ended; `None` if it ended well.
    failed: Option<io::Error>,
}

/// Service for new connections.
enum Task {
    Simple(Service),
    Iperf3,
    Web(Rc<Files>),
    /// Relay for the only connection; `None` once that connection is there.
    Stdio(Option<Relay>),
}

/// A connection.
struct Entry {
    conn: UserConn,
    work: Work,
    /// The service has ended. The connection is kept until the peer has all bytes.
    is_over: bool,
    /// The connection waits for its turn in the queue.
    queued: bool,
    last_row: LastRow,
}

/// Service of one connection, with its state.
enum Work {
    Simple(Session),
    Iperf3,
    Relay(Relay),
    Web(Box<Client>),
}

impl<'a> Serving<'a> {
    /// Starts without connections. From now on the other descriptors wake `stack`, too.
    ///
    /// # Errors
    /// The directory of `--service serve:DIR` cannot be opened; no descriptors are left.
    pub fn new(
        flags: &'a Flags,
        reporter: &'a Reporter,
        stack: &mut TcpUnderTest,
        applications: Option<Queue>,
    ) -> anyhow::Result<Self> {
        let mut epoll_set = applications
            .as_ref()
            .map(|queue| EpollSet::with_bell(queue.bell()))
            .transpose()?;
        let mut stdio = None;
        let task = match &flags.service {
            Some(TaskFlag::Simple(service)) => Task::Simple(*service),
            Some(TaskFlag::Files(path)) => {
                let files = Files::open(path).with_context(|| path.display().to_string())?;
                Task::Web(Rc::new(files))
            }
            Some(TaskFlag::Iperf3) => Task::Iperf3,
            Some(TaskFlag::Stdio) => {
                let (socket, ends) = Stdio::open()?;
                stdio = Some(ends);
                epoll_set = Some(EpollSet::new()?);
                Task::Stdio(Some(Relay::new(socket)))
            }
            None => Task::Simple(Service::Sink { check: false }),
        };
        if let Some(epoll_set) = &epoll_set {
            stack.wake_by(epoll_set.descriptor()?);
        }
        Ok(Self {
            flags,
            task,
            pattern: service::pattern(),
            pool: stack.endpoint().pool().clone(),
            iperf3: iperf3::Server::default(),
            listener: None,
            sessions: Vec::new(),
            free: Vec::new(),
            queue: VecDeque::new(),
            epoll_set,
            applications,
            stdio,
            started: reporter.started,
            ended: Totals::default(),
            reporter,
            failed: None,
        })
    }

    /// Serves the connections of this listener, whose token is [`LISTENER`].
    pub fn listen(&mut self, listener: <TcpUnderTest as Stack>::Listener) {
        self.listener = Some(listener);
    }

    /// Makes a connection and serves it.
    ///
    /// # Errors
    /// The connection cannot be started.
    pub fn connect(&mut self, stack: &mut TcpUnderTest, remote: SocketAddr) -> anyhow::Result<()> {
        let conn = stack.connect(remote, self.next_token())?;
        let work = self.new_work().context("--connect is one connection")?;
        Ok(self.add(conn, work)?)
    }

    /// Connections that are not forgotten.
    pub fn conns(&self) -> impl Iterator<Item = UserConn> {
        self.sessions.iter().flatten().map(|entry| entry.conn)
    }

    /// Makes the service of a new connection; `None` if no more connections are wanted.
    fn new_work(&mut self) -> Option<Work> {
        Some(match &mut self.task {
            Task::Simple(service) => Work::Simple(Session::new(*service)),
            Task::Iperf3 => Work::Iperf3,
            Task::Web(files) => Work::Web(Box::new(Client::new(files, &self.pool))),
            Task::Stdio(relay) => Work::Relay(relay.take()?),
        })
    }

    /// Serves until a stop is requested. True if no received byte was wrong.
    ///
    /// # Errors
    /// The interface, standard output or the only connection (`--connect`, `stdio`) failed.
    pub fn work(&mut self, stack: &mut TcpUnderTest) -> anyhow::Result<bool> {
        let mut round = 1;
        let is_once = self.flags.connect.is_some() || self.stdio.is_some();
        while !STOPPED.load(Ordering::Relaxed) {
            let next_report = self.started + REPORT * round;
            let wait = if self.queue.is_empty() {
                // A signal that comes just before the wait is seen soon after.
                let wait = next_report.saturating_duration_since(Instant::now());
                wait.min(SIGNAL_CHECK)
            } else {
                Duration::ZERO
            };
            self.queue_ready(stack, wait)?;
            self.on_kernel_events(stack)?;
            self.give_turns(stack);
            if Instant::now() >= next_report {
                let rows = if self.reporter.wants_rows() {
                    self.rows(stack)
                } else {
                    Vec::new()
                };
                self.reporter.add_second(round, self.totals(stack), rows)?;
                round += 1;
            }
            let was_there = self.ended.connections_opened > 0;
            // The connection is over once the last acknowledgements are exchanged, too.
            if is_once
                && was_there
                && self.connections() == 0
                && stack.endpoint().connections() == 0
            {
                if let Some(stdio) = self.stdio.take() {
                    stdio.finish()?;
                }
                break;
            }
        }
        // Bytes that came before the signal still count.
        self.queue_ready(stack, Duration::ZERO)?;
        self.give_turns(stack);
        match (self.failed.take(), self.flags.connect) {
            (Some(error), Some(remote)) => {
                return Err(error).context(format!("connection to {remote}"));
            }
            (Some(error), None) if is_once => return Err(error).context("connection"),
            _ => {}
        }
        Ok(self.ended.wrong_bytes == 0)
    }

    /// Waits, and queues the connections that are ready.
    fn queue_ready(&mut self, stack: &mut TcpUnderTest, wait: Duration) -> io::Result<()> {
        let ready = stack.poll(Some(wait))?;
        for index in 0..ready {
            match (stack.ready(index).token, self.listener) {
                (LISTENER, Some(listener)) => self.accept(stack, listener)?,
                (token, _) => self.enqueue(token),
            }
        }
        Ok(())
    }

    fn enqueue(&mut self, token: u32) {
        if let Some(Some(entry)) = self.sessions.get_mut(token as usize)
            && !std::mem::replace(&mut entry.queued, true)
        {
            self.queue.push_back(token);
        }
    }

    /// Gives the connections in the queue a turn each, at most [`TURNS`].
    fn give_turns(&mut self, stack: &mut TcpUnderTest) {
        for _ in 0..TURNS.min(self.queue.len()) {
            let Some(token) = self.queue.pop_front() else {
                return;
            };
            if let Some(Some(entry)) = self.sessions.get_mut(token as usize) {
                entry.queued = false;
            }
            self.serve(stack, token as usize);
        }
    }

    fn accept(
        &mut self,
        stack: &mut TcpUnderTest,
        listener: <TcpUnderTest as Stack>::Listener,
    ) -> io::Result<()> {
        while let Ok((conn, _)) = stack.accept(listener, self.next_token()) {
            match self.new_work() {
                Some(work) => self.add(conn, work)?,
                None => stack.abort(conn),
            }
            if self.stdio.is_some() && self.listener.take().is_some() {
                stack.close_listener(listener);
                break;
            }
        }
        Ok(())
    }

    /// Takes new applications, and queues the relays whose sockets are ready again.
    fn on_kernel_events(&mut self, stack: &mut TcpUnderTest) -> io::Result<()> {
        let Some(epoll_set) = &self.epoll_set else {
            return Ok(());
        };
        for change in epoll_set.changes()? {
            match change {
                None => self.connect_for_applications(stack)?,
                Some(token) => {
                    if let Some(Some(Entry {
                        work: Work::Relay(relay),
                        ..
                    })) = self.sessions.get_mut(token as usize)
                    {
                        relay.on_event();
                    }
                    self.enqueue(token);
                }
            }
        }
        Ok(())
    }

    fn connect_for_applications(&mut self, stack: &mut TcpUnderTest) -> io::Result<()> {
        let accepted: Vec<Accepted> = self.applications.iter().flat_map(Queue::take).collect();
        for Accepted { socket, remote } in accepted {
            let relay = Relay::new(socket);
            match stack.connect(remote, self.next_token()) {
                Ok(conn) => self.add(conn, Work::Relay(relay))?,
                Err(_) => relay.reset(),
            }
        }
        Ok(())
    }

    fn serve(&mut self, stack: &mut TcpUnderTest, token: usize) {
        let Some(Some(entry)) = self.sessions.get_mut(token) else {
            return;
        };
        let conn = entry.conn;
        if entry.is_over {
            self.settle(stack, token);
            return;
        }
        let (pattern, pool) = (&self.pattern, &self.pool);
        let next = match &mut entry.work {
            Work::Iperf3 => {
                let outcome = self.iperf3.serve(stack, token as u32, conn, pattern);
                for token in outcome.over {
                    self.end(stack, token as usize);
                }
                outcome
                    .again
                    .into_iter()
                    .for_each(|token| self.enqueue(token));
                return;
            }
            Work::Simple(session) => stack.with(conn, |connection, now| {
                session.serve(connection, pattern, now)
            }),
            Work::Relay(relay) => {
                stack.with(conn, |connection, now| relay.serve(connection, pool, now))
            }
            Work::Web(client) => stack.with(conn, |connection, now| client.serve(connection, now)),
        };
        match next {
            Some(NextStep::Wait) => {}
            Some(NextStep::Again) => self.enqueue(token as u32),
            Some(NextStep::Over) | None => self.end(stack, token),
        }
    }

    /// Closes a connection whose service has ended. It is kept until the peer has all queued bytes, because they are counted.
    fn end(&mut self, stack: &mut TcpUnderTest, token: usize) {
        let Some(Some(entry)) = self.sessions.get_mut(token) else {
            return;
        };
        entry.is_over = true;
        stack.with(entry.conn, |connection, _| connection.close());
        self.settle(stack, token);
    }

    /// Forgets a connection that was served once the peer has all that was sent.
    fn settle(&mut self, stack: &mut TcpUnderTest, token: usize) {
        let has_all = |connection: &Connection| {
            matches!(
                connection.state(),
                State::FinWait2 | State::TimeWait | State::Closed
            )
        };
        let Some(entry) = self.sessions.get_mut(token) else {
            return;
        };
        let Some(entry) = entry.take_if(|entry| stack.connection(entry.conn).is_none_or(has_all))
        else {
            return;
        };
        self.ended.wrong_bytes += entry.work.wrong_bytes();
        if let Some(connection) = stack.connection(entry.conn) {
            self.ended.add(connection.counters());
        }
        self.failed = stack.reap(entry.conn).err();
        stack.close(entry.conn);
        self.free.push(token as u32);
    }

    fn next_token(&self) -> u32 {
        self.free
            .last()
            .copied()
            .unwrap_or(self.sessions.len() as u32)
    }

    /// Stores a connection under [`next_token`](Self::next_token).
    fn add(&mut self, conn: UserConn, work: Work) -> io::Result<()> {
        let token = self.next_token();
        if let (Work::Relay(relay), Some(epoll_set)) = (&work, &self.epoll_set) {
            epoll_set.add(relay.socket(), token)?;
        }
        self.ended.connections_opened += 1;
        let entry = Some(Entry {
            conn,
            work,
            is_over: false,
            queued: false,
            last_row: LastRow::new(Instant::now()),
        });
        match self.free.pop() {
            Some(token) => self.sessions[token as usize] = entry,
            None => self.sessions.push(entry),
        }
        Ok(())
    }

    fn connections(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    fn rows(&mut self, stack: &TcpUnderTest) -> Vec<Row> {
        let now = Instant::now();
        let row = |entry: &mut Entry| {
            let connection = stack.connection(entry.conn)?;
            let path = stack.path(entry.conn)?;
            let settings = stack.settings(Some(connection));
            Some(Row::read(
                connection,
                &path,
                &settings,
                &mut entry.last_row,
                now,
            ))
        };
        self.sessions.iter_mut().flatten().filter_map(row).collect()
    }

    /// Totals since the start, of ended and open connections.
    pub fn totals(&self, stack: &TcpUnderTest) -> Totals {
        let mut totals = self.ended;
        totals.elapsed_ns = self.started.elapsed().as_nanos() as u64;
        totals.connections = self.connections() as u64;
        for entry in self.sessions.iter().flatten() {
            totals.wrong_bytes += entry.work.wrong_bytes();
            if let Some(connection) = stack.connection(entry.conn) {
                totals.add(connection.counters());
            }
        }
        let lanes: Lanes = stack.device().counters();
        totals.set_endpoint(stack.endpoint().counters(), &lanes);
        totals
    }
}

impl Work {
    fn wrong_bytes(&self) -> u64 {
        match self {
            Self::Simple(session) => session.wrong_bytes,
            Self::Iperf3 | Self::Relay(_) | Self::Web(_) => 0,
        }
    }
}

/// Time between two reports.
const REPORT: Duration = Duration::from_secs(1);
const SIGNAL_CHECK: Duration = Duration::from_millis(250);
/// Limit of turns between two polls. It equals the packets of a batch, so that new connections do not wait long for busy ones.
const TURNS: usize = 64;
/// Listen backlog: the kernel's default of somaxconn.
pub const BACKLOG: u32 = 4096;
/// Token of the listener of [`Serving::listen`].
pub const LISTENER: u32 = u32::MAX;
