//! The slave: it does the opposite of what each master sends (uperf's `slave.c`).
//!
//! It reads from the network, so it is careful: it listens on the given addresses, or only on loopback, connects only to its master's
//! host, accepts data only from there, and sends no files. Numbers have limits ([`crate::wire::limit`]).

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Failure;
use crate::control::listeners;
use crate::order::{Group, Kind};
use crate::shared::{Shared, now_ns};
use crate::strand::{Strand, Timed, Times};
use crate::wake;
use crate::wire::{self, Command, Goodbye, Hello};

/// Sessions at the same time: a master has one for each group and host.
const SESSIONS: usize = 256;
/// Threads of all sessions.
const THREADS: usize = 30_000;
/// Bytes of the buffers of all threads of all sessions.
const BUFFERS: usize = 1 << 30;
/// Limit on a message of the handshake.
const PATIENCE: Duration = Duration::from_secs(60);
/// Limit on the time between two commands: the longest transaction and some more.
const COMMAND: Duration = Duration::from_secs(2 * 3600);
/// How long threads may go on reading after the master has gone on: data may be in flight.
const GRACE: Duration = Duration::from_millis(200);
/// Limit on the wait for threads that must end (uperf's).
const END: Duration = Duration::from_secs(5);
/// Pause between two signals to a thread that is still in a call.
const AGAIN: Duration = Duration::from_millis(5);
/// Stack of a thread, bytes.
const STACK: usize = 256 << 10;

/// Listens at these hosts, or on loopback without any.
///
/// # Errors
/// An address cannot be had.
pub fn listen(hosts: &[String], port: u16) -> Result<Vec<TcpListener>, Failure> {
    let mut listeners = Vec::new();
    for host in hosts {
        let failed = |error: io::Error| Failure::of(&format!("listen at {host}"), &error);
        for address in (host.as_str(), port).to_socket_addrs().map_err(failed)? {
            listeners.push(TcpListener::bind(address).map_err(failed)?);
        }
    }
    if hosts.is_empty() {
        let v4 = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listener = TcpListener::bind(v4);
        let listener = listener.map_err(|error| Failure::of(&format!("listen at {v4}"), &error))?;
        let bound = listener.local_addr().map_or(port, |bound| bound.port());
        listeners.push(listener);
        // A host may have no IPv6.
        listeners.extend(TcpListener::bind((Ipv6Addr::LOCALHOST, bound)));
    }
    Ok(listeners)
}

/// Serves masters until the process ends.
///
/// # Errors
/// The listeners fail.
pub fn serve(listeners: Vec<TcpListener>) -> Result<(), Failure> {
    wake::prepare().map_err(|error| Failure::of("sigaction", &error))?;
    let all = Arc::new(All::default());
    let threads = listeners.into_iter().map(|listener| {
        let all = Arc::clone(&all);
        std::thread::spawn(move || accept(&listener, &all))
    });
    for thread in threads.collect::<Vec<_>>() {
        let _ = thread.join();
    }
    Ok(())
}

/// Sums over all sessions.
#[derive(Debug, Default)]
struct All {
    sessions: AtomicUsize,
    threads: AtomicUsize,
    bytes: AtomicUsize,
}

/// A part of a limit, until it is dropped.
struct Share<'a> {
    of: &'a AtomicUsize,
    size: usize,
}

impl<'a> Share<'a> {
    /// Takes a share. `None` if less is left.
    fn take(of: &'a AtomicUsize, size: usize, limit: usize) -> Option<Share<'a>> {
        let before = of.fetch_add(size, Ordering::Relaxed);
        let share = Share { of, size };
        before
            .checked_add(size)
            .filter(|sum| *sum <= limit)
            .map(|_| share)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.size, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, all: &Arc<All>) {
    loop {
        let Ok((stream, _)) = listener.accept() else {
            // No descriptors: sessions may end.
            std::thread::sleep(Duration::from_millis(50));
            continue;
        };
        let all = Arc::clone(all);
        let thread = std::thread::Builder::new();
        // Without a thread the connection is closed.
        let _ = thread.spawn(move || {
            let Some(_share) = Share::take(&all.sessions, 1, SESSIONS) else {
                return;
            };
            if let Err(error) = session(stream, &all) {
                eprintln!("uperf: {error}");
            }
        });
    }
}

/// Serves a master to its end.
fn session(mut stream: TcpStream, all: &All) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let peer = stream.peer_addr()?;
    let ports = loop {
        let hello = match Hello::receive(&mut stream) {
            Ok(hello) => hello,
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                return wire::send_ack(&mut stream, &Err(error.to_string()));
            }
            // A look whether anything listens.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(error) => return Err(error),
        };
        let mut others = hello.protocols.iter().enumerate();
        if others.any(|(number, is_used)| number != wire::TCP && *is_used != 0) {
            let why = "only TCP is supported".to_string();
            return wire::send_ack(&mut stream, &Err(why));
        }
        if hello.phase == 2 {
            break hello.ports;
        }
        wire::send_welcome(&mut stream)?;
    };
    let made = Session::new(&mut stream, ports, peer.ip(), all);
    let (mut session, ports) = match made {
        Ok(made) => made,
        Err(error) => return wire::send_group_ack(&mut stream, &Err(error.to_string())),
    };
    let count = u32::try_from(ports.len()).unwrap_or(u32::MAX);
    let said = wire::send_group_ack(&mut stream, &Ok(count))
        .and_then(|()| wire::send_ports(&mut stream, &ports))
        .and_then(|()| wire::receive_ack(&mut stream))
        .and_then(|_| wire::send_ack(&mut stream, &Ok(())))
        .and_then(|()| stream.set_read_timeout(Some(COMMAND)));
    let begin = now_ns();
    let done = said.and_then(|()| session.commands(&mut stream));
    let goodbye = session.end(begin, done.is_ok());
    done.and_then(|()| goodbye.send(&mut stream))
}

/// Threads of a session.
struct Session<'a> {
    _shares: [Share<'a>; 2],
    /// Transactions that have begun.
    begun: usize,
    group: Arc<Group>,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Times>>,
}

impl<'a> Session<'a> {
    /// Receives a group and starts its threads. Also returns the ports at which they accept.
    fn new(
        stream: &mut TcpStream,
        ports: u32,
        peer: IpAddr,
        all: &'a All,
    ) -> io::Result<(Session<'a>, Vec<u16>)> {
        let refused = |why: &str| Err(io::Error::new(io::ErrorKind::InvalidData, why));
        let mut group = wire::receive_group(stream)?;
        if ports > group.threads {
            return refused("more ports than threads");
        }
        let theirs = wire::receive_ports(stream, ports)?;
        // A slave knows its master by the address from which it came.
        let host = peer.to_string();
        for transaction in &mut group.transactions {
            for flowop in &mut transaction.flowops {
                if matches!(flowop.kind, Kind::Sendfile | Kind::Sendfilev) {
                    return refused("a slave sends no files");
                }
                flowop.host.clone_from(&host);
            }
        }
        let threads = group.threads as usize;
        let bytes = group.buffer().saturating_mul(threads);
        let shares = (
            Share::take(&all.threads, threads, THREADS),
            Share::take(&all.bytes, bytes.min(BUFFERS + 1), BUFFERS),
        );
        let (Some(threads), Some(bytes)) = shares else {
            return refused("all masters together have 30000 threads and 1 GiB of buffers at most");
        };
        let (listeners, ours) = listeners(&group, stream.local_addr()?)?;
        let group = Arc::new(group);
        let mut session = Session {
            _shares: [threads, bytes],
            begun: 0,
            shared: Arc::new(Shared::new(
                group.threads as usize,
                group.transactions.len(),
            )),
            group,
            threads: Vec::new(),
        };
        for index in 0..session.group.threads as usize {
            let port = theirs.get(index).copied();
            let strand = Strand {
                group: Arc::clone(&session.group),
                index,
                shared: Arc::clone(&session.shared),
                ports: HashMap::from_iter(port.map(|port| (host.clone(), port))),
                listener: listeners
                    .get(index)
                    .map(|listener| (Arc::clone(listener), peer)),
                files: Arc::default(),
                timed: Timed::default(),
            };
            let thread = std::thread::Builder::new().stack_size(STACK);
            session.threads.push(thread.spawn(move || strand.run())?);
        }
        Ok((session, ours))
    }

    /// Does what the master commands, until it asks for the results.
    fn commands(&mut self, stream: &mut TcpStream) -> io::Result<()> {
        loop {
            match Command::receive(stream)? {
                Command::Begin(number) => {
                    let number = number as usize;
                    // Groups of a profile may have different numbers of transactions.
                    if number >= self.group.transactions.len() || number < self.begun {
                        continue;
                    }
                    self.begun = number + 1;
                    if !self.gather(number) {
                        return Ok(());
                    }
                    self.shared.begin(number);
                    self.end_in_time(number);
                }
                Command::SendStats => return Ok(()),
                Command::Abort => {
                    let why = "the master aborted the run";
                    return Err(io::Error::new(io::ErrorKind::ConnectionAborted, why));
                }
            }
        }
    }

    /// Waits until all threads are at a transaction. Those that are not are interrupted, since the master has gone on: at once if
    /// their time is over, else after a while.
    fn gather(&self, number: usize) -> bool {
        let begin = Instant::now();
        loop {
            let now = Instant::now();
            if self
                .shared
                .wait_for(number, self.threads.len(), now + AGAIN)
            {
                return true;
            }
            if !self.shared.errors().is_empty() || now >= begin + END {
                return false;
            }
            for (thread, counter) in self.threads.iter().zip(&self.shared.counters) {
                let within = counter.within.load(Ordering::Relaxed);
                if within == 0 || within as usize > number {
                    continue;
                }
                if now >= begin + GRACE {
                    counter.over.store(within, Ordering::Relaxed);
                }
                if counter.is_over(within) {
                    wake::wake(thread);
                }
            }
        }
    }

    /// Ends a transaction of a duration at its time, by a thread of its own, since this one waits for the master.
    fn end_in_time(&self, number: usize) {
        let duration = self.group.transactions[number].duration_ns;
        if duration == 0 {
            return;
        }
        let shared = Arc::clone(&self.shared);
        let end = Instant::now() + Duration::from_nanos(duration);
        let thread = std::thread::Builder::new().stack_size(STACK);
        // Without a thread the next command ends the transaction.
        let _ = thread.spawn(move || {
            shared.wait_for_end(end);
            let number = u32::try_from(number + 1).unwrap_or(u32::MAX);
            for counter in &shared.counters {
                if counter.within.load(Ordering::Relaxed) == number {
                    counter.over.store(number, Ordering::Relaxed);
                }
            }
        });
    }

    /// Waits for all threads and returns what they did.
    fn end(&mut self, begin_ns: u64, is_good: bool) -> Goodbye {
        let grace = if is_good { GRACE } else { Duration::ZERO };
        self.shared.wait_for_end(Instant::now() + grace);
        let limit = Instant::now() + END;
        while self.threads.iter().any(|thread| !thread.is_finished()) && Instant::now() < limit {
            self.shared.abort();
            self.threads.iter().for_each(wake::wake);
            std::thread::sleep(AGAIN);
        }
        let (bytes, count) = self.shared.total();
        Goodbye {
            error: self.shared.errors().join("; "),
            elapsed_ns: now_ns().saturating_sub(begin_ns),
            bytes,
            count,
        }
    }
}
