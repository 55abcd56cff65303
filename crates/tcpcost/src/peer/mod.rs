//! `tcpcost peer`: our TCP as a live endpoint on a TAP or TUN of this host, so that anybody's
//! ordinary client can talk to it and any policy can be tried.
//!
//! One thread. The interface goes when the process does, also by kill -9, as does the address that
//! the kernel's side was given. It changes nothing else on this host.

mod flags;
mod iperf3;
mod policy;
mod report;
mod service;

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context;
use tcpcost_link::{Captured, Device, Impaired, Lanes, Tap};
use tcpcost_stack::{SocketOptions, Stack, UserConn, UserStack, Wire};
use tcpcost_tcp::Piece;

use crate::exit::Exit;
use crate::host::link;

use report::Totals;
use service::{Next, Service, Session};

pub use flags::Flags;

/// Set by Ctrl-C and SIGTERM.
static STOPPED: AtomicBool = AtomicBool::new(false);

/// Runs until Ctrl-C, or until the one connection of `--connect` has ended.
pub fn run(flags: &Flags) -> anyhow::Result<Exit> {
    stop_by_signal();
    let (name, layer) = flags.interface();
    let mut tap = Tap::open(name, layer, flags.offloads())
        .with_context(|| format!("open interface {name}"))?;
    let addresses: Vec<_> = flags
        .address
        .iter()
        .map(|network| network.address)
        .collect();
    addresses
        .iter()
        .for_each(|&address| tap.answer_for(address));
    let name = tap.name().to_string();
    let mtu = attach(&name, flags)?;
    eprintln!("tcpcost: our TCP is on {name} (MTU {mtu}); Ctrl-C ends it");

    let device: Box<dyn Device<Wire>> = match &flags.pcap {
        None => Box::new(tap),
        Some(path) => {
            let file = File::create(path).with_context(|| path.display().to_string())?;
            let epoch = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let captured = Captured::new(tap, BufWriter::new(file), Instant::now(), epoch);
            Box::new(captured.with_context(|| path.display().to_string())?)
        }
    };
    let device = Impaired::new(device, flags.impairment(), flags.impairment(), flags.seed);
    let config = flags.config(mtu);
    let mut stack = UserStack::new(device, &addresses, &config, &SocketOptions::default())?
        .with_busy_poll(Duration::from_micros(flags.busy_poll_us));
    if let Some(packets) = flags.receive_batch {
        stack = stack.with_batch(packets.into());
    }

    let mut peer = Peer::new(flags);
    if let Some(port) = flags.listen {
        let any = (std::net::Ipv6Addr::UNSPECIFIED, port).into();
        peer.listener = Some(stack.listen(any, BACKLOG, LISTENER)?);
    }
    if let Some(remote) = flags.connect {
        let conn = stack.connect(remote, 0)?;
        peer.add(conn);
    }
    eprintln!("tcpcost: ready");
    let outcome = peer.work(&mut stack);
    // Also after an error: whoever is still connected is told.
    let conns: Vec<UserConn> = peer
        .sessions
        .iter()
        .flatten()
        .map(|(conn, _)| *conn)
        .collect();
    peer.report(&stack)?;
    conns.into_iter().for_each(|conn| stack.abort(conn));
    let ended_well = outcome?;
    Ok(if ended_well { Exit::Ok } else { Exit::Failed })
}

/// Sets the kernel's side up as the flags ask; gives the interface's MTU.
fn attach(name: &str, flags: &Flags) -> anyhow::Result<u32> {
    if let Some(mtu) = flags.mtu {
        link::set_mtu(name, mtu)?;
    }
    if !flags.host_address.is_empty() {
        for network in &flags.host_address {
            link::add_address(name, network.address, network.prefix)?;
        }
        link::set_up(name)?;
    }
    Ok(link::read(name)?.mtu)
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
    /// The last report.
    before: Totals,
    /// Why the connection of `--connect` failed.
    failed: Option<io::Error>,
}

type WireUnderTest = Impaired<Box<dyn Device<Wire>>, Wire>;

impl<'a> Peer<'a> {
    fn new(flags: &'a Flags) -> Self {
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
            started: Instant::now(),
            ended: Totals::default(),
            before: Totals::default(),
            failed: None,
        }
    }

    /// Serves until it is told to stop; whether all went well.
    fn work(&mut self, stack: &mut UserStack<WireUnderTest>) -> anyhow::Result<bool> {
        let mut next_report = self.started + REPORT;
        while !STOPPED.load(Ordering::Relaxed) {
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
                next_report += REPORT;
                self.report(stack)?;
            }
            let is_alone = self.flags.connect.is_some() && self.connections() == 0;
            // It is over when the last acknowledgements are exchanged, too.
            if is_alone && stack.endpoint().connections() == 0 {
                break;
            }
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
        if next != Some(Next::Wait) {
            self.end(stack, token);
        }
    }

    /// A connection is over.
    fn end(&mut self, stack: &mut UserStack<WireUnderTest>, token: usize) {
        let Some((conn, session)) = self.sessions.get_mut(token).and_then(Option::take) else {
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

    fn report(&mut self, stack: &UserStack<WireUnderTest>) -> io::Result<()> {
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
        let mut stdout = io::stdout().lock();
        if self.flags.json {
            serde_json::to_writer(&mut stdout, &totals)?;
            writeln!(stdout)?;
        } else {
            writeln!(stdout, "{}", totals.line(&self.before))?;
        }
        self.before = totals;
        stdout.flush()
    }
}

/// Ctrl-C and SIGTERM end the work, not the process: the capture is written out and peers are told.
fn stop_by_signal() {
    extern "C" fn stop(_: libc::c_int) {
        STOPPED.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: the handler only stores into an atomic, which is safe at any moment.
        unsafe { libc::signal(signal, stop as *const () as libc::sighandler_t) };
    }
}

/// Between two reports.
const REPORT: Duration = Duration::from_secs(1);
const LOOK_FOR_SIGNALS: Duration = Duration::from_millis(250);
/// As the kernel's somaxconn.
const BACKLOG: u32 = 4096;
const LISTENER: u32 = u32::MAX;
