//! `tcpcost peer`: our TCP as a live endpoint on a TAP or TUN of this host, so that anybody's
//! ordinary client can talk to it and any policy can be tried.
//!
//! One thread an instance (`--instances`), each with a queue of the interface. An interface that it made
//! goes when the process does, also by kill -9, as does the address that the kernel's side was given; one
//! that was there before gets its MTU, addresses and state back (`kernel_side.rs`). It changes nothing
//! else on this host.

mod board;
mod flags;
mod iperf3;
mod kernel_side;
mod policy;
mod report;
mod service;

use std::fs::File;
use std::io::{self, BufWriter};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use tcpcost_link::{Captured, Device, Impaired, Lanes, Tap};
use tcpcost_signals::Interrupt;
use tcpcost_stack::{SocketOptions, Stack, UserConn, UserStack, Wire};
use tcpcost_tcp::{Connection, Piece, Ports, State};

use crate::exit::Exit;
use crate::output::say;

use board::Board;
use kernel_side::KernelSide;
use report::Totals;
use service::{NextStep, Service, Session};

use flags::Network;

pub use flags::Flags;

/// Set by a signal, or by the first instance that ends.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Runs until Ctrl-C, or until the one connection of `--connect` has ended.
pub fn run(flags: &Flags) -> anyhow::Result<Exit> {
    flags.check()?;
    // The work ends, not the process: the capture is written out and peers are told.
    Interrupt::watch(ENDS_AT_ONCE)?.on_each(|| STOPPED.store(true, Ordering::Relaxed));
    let (name, layer) = flags.interface();
    let count = usize::from(flags.instances);
    let mut taps = Tap::open_queues(name, layer, flags.offloads(), count)
        .with_context(|| format!("open interface {name}"))?;
    for tap in &mut taps {
        for network in &flags.address {
            tap.answer_for(network.address);
            if flags.resolve {
                tap.resolve_in(network.address, network.prefix);
            }
        }
    }
    // Dropped after the interface is let go of.
    let kernel_side = KernelSide::set_up(taps[0].name(), flags)?;
    let mtu = kernel_side.mtu();
    flags.check_mtu(mtu)?;
    say!(
        "tcpcost: our TCP is on {} (MTU {mtu}); Ctrl-C ends it",
        taps[0].name()
    );
    let board = Board::new(count, flags.json);
    let mut instances = (0u16..).zip(taps).map(|(index, tap)| Instance {
        index,
        tap,
        mtu,
        flags,
        board: &board,
    });
    let first = instances.next().context("there is a queue")?;
    let outcomes: Vec<anyhow::Result<bool>> = std::thread::scope(|scope| {
        let others: Vec<_> = instances
            .map(|instance| scope.spawn(|| instance.run()))
            .collect();
        let first = first.run();
        let panicked = |_| Err(anyhow::anyhow!("an instance panicked"));
        let others = others.into_iter();
        std::iter::once(first)
            .chain(others.map(|other| other.join().unwrap_or_else(panicked)))
            .collect()
    });
    let ended_well: Result<Vec<bool>, _> = outcomes.into_iter().collect();
    let unread = |error: &anyhow::Error| {
        let source = error.downcast_ref::<io::Error>();
        source.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
    };
    let ended_well = match ended_well {
        // `tcpcost peer | head` is no error.
        Err(error) if unread(&error) => return Ok(Exit::Ok),
        other => other?,
    };
    Ok(if ended_well.into_iter().all(|well| well) {
        Exit::Ok
    } else {
        Exit::Failed
    })
}

/// One of several that share the interface's addresses: packets are steered by port.
struct Instance<'a> {
    index: u16,
    tap: Tap,
    mtu: u32,
    flags: &'a Flags,
    board: &'a Board,
}

impl Instance<'_> {
    /// As of [`run`]; the end of one, whatever it ended by, is the end of all.
    fn run(self) -> anyhow::Result<bool> {
        struct End;
        impl Drop for End {
            fn drop(&mut self) {
                STOPPED.store(true, Ordering::Relaxed);
            }
        }
        let _end = End;
        let flags = self.flags;
        let device: Box<dyn Device<Wire>> = match &flags.pcap {
            None => Box::new(self.tap),
            Some(path) => {
                let file = File::create(path).with_context(|| path.display().to_string())?;
                let epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let to = BufWriter::new(file);
                let captured = Captured::new(self.tap, to, Instant::now(), epoch);
                Box::new(captured.with_context(|| path.display().to_string())?)
            }
        };
        let (bad, seed) = (
            flags.impairment(),
            flags.seed.wrapping_add(u64::from(self.index)),
        );
        let device = Impaired::new(device, bad, bad, seed);
        let addresses: Vec<_> = flags.address.iter().map(|own| own.address).collect();
        let settings = flags.settings(self.mtu);
        let networks: Vec<_> = flags.address.iter().map(Network::pair).collect();
        let mut stack =
            UserStack::with_settings(device, &addresses, &settings, &SocketOptions::default())?
                .with_networks(&networks);
        let mut peer = Peer::new(flags, self.board);
        if let Some(first) = flags.listen {
            // Of as many ports in a row as there are instances each has one.
            let every = flags.instances;
            let port = (first..=u16::MAX)
                .find(|port| port % every == self.index)
                .context("no port is left for each instance behind --listen")?;
            stack = stack.with_ports(Ports {
                every,
                offset: self.index,
            });
            let any = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
            peer.listener = Some(stack.listen(any, BACKLOG, LISTENER)?);
        }
        if let Some(remote) = flags.connect {
            let conn = stack.connect(remote, 0)?;
            peer.add(conn);
        }
        if self.board.is_ready() {
            say!("tcpcost: ready");
        }
        let outcome = peer.work(&mut stack);
        // Also after an error: whoever is still connected is told.
        let conns: Vec<UserConn> = peer
            .sessions
            .iter()
            .flatten()
            .map(|(conn, _)| *conn)
            .collect();
        self.board.end(peer.totals(&stack))?;
        conns.into_iter().for_each(|conn| stack.abort(conn));
        outcome
    }
}

/// All connections and what is done with them.
struct Peer<'a> {
    flags: &'a Flags,
    service: Service,
    pattern: Piece,
    iperf3: iperf3::Server,
    listener: Option<<UserStack<WireUnderTest> as Stack>::Listener>,
    /// By token.
    sessions: Vec<Option<(UserConn, Session)>>,
    free: Vec<u32>,
    started: Instant,
    /// What connections counted that are no more.
    ended: Totals,
    board: &'a Board,
    /// Why the connection of `--connect` failed.
    failed: Option<io::Error>,
}

type WireUnderTest = Impaired<Box<dyn Device<Wire>>, Wire>;

impl<'a> Peer<'a> {
    fn new(flags: &'a Flags, board: &'a Board) -> Self {
        let service = match flags.service {
            flags::ServiceFlags {
                serve: Some(bytes), ..
            } => Service::Serve(bytes),
            flags::ServiceFlags { echo: true, .. } => Service::Echo,
            flags::ServiceFlags { iperf3: true, .. } => Service::Iperf3,
            flags::ServiceFlags { source: true, .. } => Service::Source(flags.bytes),
            _ => Service::Sink { check: flags.check },
        };
        Self {
            flags,
            service,
            pattern: service::pattern(),
            iperf3: iperf3::Server::default(),
            listener: None,
            sessions: Vec::new(),
            free: Vec::new(),
            started: board.started,
            ended: Totals::default(),
            board,
            failed: None,
        }
    }

    /// Serves until it is told to stop; whether all went well.
    fn work(&mut self, stack: &mut UserStack<WireUnderTest>) -> anyhow::Result<bool> {
        let mut round = 1;
        while !STOPPED.load(Ordering::Relaxed) {
            let next_report = self.started + REPORT * round;
            let wait = next_report.saturating_duration_since(Instant::now());
            // A signal that comes just before the wait is seen soon after.
            let ready = stack.poll(Some(wait.min(LOOK_FOR_SIGNALS)))?;
            for index in 0..ready {
                let ready = stack.ready(index);
                match (ready.token, self.listener) {
                    (LISTENER, Some(listener)) => {
                        while let Ok((conn, _)) = stack.accept(listener, self.next_token()) {
                            self.add(conn);
                        }
                    }
                    (token, _) => self.serve(stack, token as usize),
                }
            }
            if Instant::now() >= next_report {
                self.board.post(round, self.totals(stack))?;
                round += 1;
            }
            let is_alone = self.flags.connect.is_some() && self.connections() == 0;
            // It is over when the last acknowledgements are exchanged, too.
            if is_alone && stack.endpoint().connections() == 0 {
                break;
            }
        }
        // What came before the signal still counts.
        let ready = stack.poll(Some(Duration::ZERO))?;
        for index in 0..ready {
            self.serve(stack, stack.ready(index).token as usize);
        }
        if let (Some(error), Some(remote)) = (self.failed.take(), self.flags.connect) {
            return Err(error).context(format!("connection to {remote}"));
        }
        Ok(self.ended.wrong_bytes == 0)
    }

    fn serve(&mut self, stack: &mut UserStack<WireUnderTest>, token: usize) {
        let Some(Some((conn, session))) = self.sessions.get_mut(token) else {
            return;
        };
        let conn = *conn;
        if session.is_over {
            self.settle(stack, token);
            return;
        }
        let pattern = &self.pattern;
        if self.service == Service::Iperf3 {
            for token in self.iperf3.serve(stack, token as u32, conn, pattern) {
                self.end(stack, token as usize);
            }
            return;
        }
        let next = stack.with(conn, |connection, now| {
            session.serve(connection, pattern, now)
        });
        if next != Some(NextStep::Wait) {
            self.end(stack, token);
        }
    }

    /// A connection has been served. What is queued still leaves, and is counted: it is kept until
    /// the peer has all of it.
    fn end(&mut self, stack: &mut UserStack<WireUnderTest>, token: usize) {
        let Some(Some((conn, session))) = self.sessions.get_mut(token) else {
            return;
        };
        session.is_over = true;
        stack.with(*conn, |connection, _| connection.close());
        self.settle(stack, token);
    }

    /// Forgets a connection that was served once the peer has all that was sent.
    fn settle(&mut self, stack: &mut UserStack<WireUnderTest>, token: usize) {
        let has_all = |connection: &Connection| {
            matches!(
                connection.state(),
                State::FinWait2 | State::TimeWait | State::Closed
            )
        };
        let Some(place) = self.sessions.get_mut(token) else {
            return;
        };
        let Some((conn, session)) =
            place.take_if(|(conn, _)| stack.connection(*conn).is_none_or(has_all))
        else {
            return;
        };
        self.ended.wrong_bytes += session.wrong_bytes;
        if let Some(connection) = stack.connection(conn) {
            self.ended.add(connection.counters());
        }
        self.failed = stack.reap(conn).err();
        stack.close(conn);
        self.free.push(token as u32);
    }

    fn next_token(&self) -> u32 {
        self.free
            .last()
            .copied()
            .unwrap_or(self.sessions.len() as u32)
    }

    /// Takes a connection under [`next_token`](Self::next_token).
    fn add(&mut self, conn: UserConn) {
        self.ended.connections_opened += 1;
        let session = Some((conn, Session::new(self.service)));
        match self.free.pop() {
            Some(token) => self.sessions[token as usize] = session,
            None => self.sessions.push(session),
        }
    }

    fn connections(&self) -> usize {
        self.sessions.len() - self.free.len()
    }

    fn totals(&self, stack: &UserStack<WireUnderTest>) -> Totals {
        let mut totals = self.ended;
        totals.elapsed_ns = self.started.elapsed().as_nanos() as u64;
        totals.connections = self.connections() as u64;
        for (conn, session) in self.sessions.iter().flatten() {
            totals.wrong_bytes += session.wrong_bytes;
            if let Some(connection) = stack.connection(*conn) {
                totals.add(connection.counters());
            }
        }
        let lanes: Lanes = stack.device().counters();
        totals.of_all(stack.endpoint().counters(), &lanes);
        totals
    }
}

/// Between two reports.
const REPORT: Duration = Duration::from_secs(1);
/// The second signal.
const ENDS_AT_ONCE: u32 = 2;
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(250);
/// As the kernel's somaxconn.
const BACKLOG: u32 = 4096;
const LISTENER: u32 = u32::MAX;
