//! A thread of an end, uperf's strand: it does the transactions of its group with blocking sockets (uperf's `execute.c`,
//! `flowops_library.c`). No thread is bound to a CPU.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::sockopt;
use rustix::thread::NanosleepRelativeResult;

use crate::order::{Flowop, Group, Kind, Transaction};
use crate::shared::{Shared, now_ns};

/// A thread before it runs.
pub struct Strand {
    pub group: Arc<Group>,
    /// Number of the thread among all of this end.
    pub index: usize,
    pub shared: Arc<Shared>,
    /// Where connections go, by the host's name in the profile.
    pub ports: HashMap<String, u16>,
    /// Where connections are accepted, and from whom.
    pub listener: Option<(Arc<TcpListener>, IpAddr)>,
    pub files: Arc<HashMap<String, Vec<(File, u64)>>>,
    pub timed: Timed,
}

/// Parts that are timed besides bytes and operations. Each costs two looks at the clock each time.
#[derive(Debug, Clone, Default)]
pub struct Timed {
    pub flowops: bool,
    pub transactions: bool,
    pub group: bool,
    /// Each flowop's time is written there.
    pub history: Option<Arc<Mutex<File>>>,
}

/// Times of a flowop, a transaction, or a group.
#[derive(Debug, Clone, Default)]
pub struct Stat {
    pub count: u64,
    pub bytes: u64,
    pub used_ns: u64,
    pub least_ns: Option<u64>,
    pub most_ns: u64,
    /// Time of the first begin and of the last end, ns since 1970.
    pub begin_ns: Option<u64>,
    pub end_ns: u64,
}

impl Stat {
    fn add(&mut self, begin_ns: u64, bytes: u64, count: u64) -> u64 {
        self.end_ns = now_ns();
        let took = self.end_ns.saturating_sub(begin_ns);
        self.begin_ns = self.begin_ns.or(Some(begin_ns));
        self.bytes += bytes;
        self.count += count;
        self.used_ns += took;
        self.most_ns = self.most_ns.max(took);
        self.least_ns = Some(self.least_ns.map_or(took, |least| least.min(took)));
        took
    }

    /// Adds another thread's.
    pub fn merge(&mut self, other: &Stat) {
        self.count += other.count;
        self.bytes += other.bytes;
        self.used_ns += other.used_ns;
        self.most_ns = self.most_ns.max(other.most_ns);
        self.end_ns = self.end_ns.max(other.end_ns);
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        self.least_ns = least(self.least_ns, other.least_ns);
        self.begin_ns = least(self.begin_ns, other.begin_ns);
    }
}

/// Times of a thread.
#[derive(Debug, Clone, Default)]
pub struct Times {
    pub thread: Stat,
    pub group: Stat,
    pub transactions: Vec<Stat>,
    /// Flowops of each transaction.
    pub flowops: Vec<Vec<Stat>>,
}

/// Why a transaction is not continued.
enum Stop {
    /// Its time is over, or the other end has closed.
    Over,
    Failed(String),
}

/// Limit on the wait for a connection (uperf's).
const ACCEPT: Duration = Duration::from_secs(10);
/// Times that a flowop's history collects before it writes them.
const HISTORY: usize = 8192;

impl Strand {
    /// Does all transactions.
    pub fn run(self) -> Times {
        let (group, shared, index) = (
            Arc::clone(&self.group),
            Arc::clone(&self.shared),
            self.index,
        );
        let mut running = Running::new(self);
        let begin = now_ns();
        let mut error = None;
        for (number, transaction) in group.transactions.iter().enumerate() {
            if !shared.wait(number) {
                break;
            }
            let counter = &shared.counters[index];
            let number_from_1 = u32::try_from(number + 1).unwrap_or(u32::MAX);
            counter.within.store(number_from_1, Ordering::Relaxed);
            running.number = number_from_1;
            let done = running.transaction(number, transaction);
            counter.within.store(0, Ordering::Relaxed);
            if let Err(Stop::Failed(why)) = done {
                error = Some(why);
                break;
            }
        }
        let mut times = std::mem::take(&mut running.times);
        running.write_history();
        shared.counters[index].add(0, 1);
        let (bytes, operations) = (
            shared.counters[index].bytes.load(Ordering::Relaxed),
            shared.counters[index].operations.load(Ordering::Relaxed),
        );
        times.thread.add(begin, bytes, operations);
        if running.strand.timed.group {
            times.group.add(begin, 0, 1);
        }
        // Connections close before others learn that the thread has ended.
        drop(running);
        shared.end(error);
        times
    }
}

struct Running {
    strand: Strand,
    connections: Vec<(u32, TcpStream)>,
    addresses: HashMap<(String, u16), SocketAddr>,
    buffer: Vec<u8>,
    /// State of the random numbers.
    random: u64,
    /// Number of the transaction, from 1.
    number: u32,
    times: Times,
    history: Vec<(u64, u64)>,
}

impl Running {
    fn new(strand: Strand) -> Running {
        let transactions = &strand.group.transactions;
        let flowops = transactions
            .iter()
            .map(|transaction| vec![Stat::default(); transaction.flowops.len()]);
        let times = Times {
            transactions: vec![Stat::default(); transactions.len()],
            flowops: flowops.collect(),
            ..Times::default()
        };
        Running {
            connections: Vec::new(),
            addresses: HashMap::new(),
            buffer: vec![0; strand.group.buffer()],
            random: now_ns() ^ (strand.index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            number: 0,
            times,
            history: Vec::new(),
            strand,
        }
    }

    fn is_over(&self) -> bool {
        self.strand.shared.counters[self.strand.index].is_over(self.number)
    }

    fn transaction(&mut self, number: usize, transaction: &Transaction) -> Result<(), Stop> {
        if transaction.duration_ns == 0 {
            for _ in 0..transaction.iterations {
                self.once(number, transaction)?;
            }
            return Ok(());
        }
        loop {
            match transaction.rate {
                0 => self.once(number, transaction)?,
                rate => self.half_a_second(number, transaction, rate)?,
            }
        }
    }

    /// Half of the passes of a second, and a sleep for the rest of the half.
    fn half_a_second(
        &mut self,
        number: usize,
        transaction: &Transaction,
        rate: u32,
    ) -> Result<(), Stop> {
        let end = Instant::now() + Duration::from_millis(500);
        for _ in 0..(rate / 2).max(1) {
            if Instant::now() >= end {
                break;
            }
            self.once(number, transaction)?;
        }
        self.sleep(end.saturating_duration_since(Instant::now()))
    }

    fn once(&mut self, number: usize, transaction: &Transaction) -> Result<(), Stop> {
        let begin = if self.strand.timed.transactions {
            now_ns()
        } else {
            0
        };
        let mut done = Ok(());
        for (place, flowop) in transaction.flowops.iter().enumerate() {
            done = self.flowop(number, place, flowop);
            if done.is_err() {
                break;
            }
        }
        if self.strand.timed.transactions {
            self.times.transactions[number].add(begin, 0, 1);
        }
        done
    }

    /// Does a flowop as often as it says, and counts what was done.
    fn flowop(&mut self, number: usize, place: usize, flowop: &Flowop) -> Result<(), Stop> {
        let is_timed = self.strand.timed.flowops;
        let begin = if is_timed { now_ns() } else { 0 };
        let (mut bytes, mut count) = (0, 0);
        let mut done = Ok(());
        while count < u64::from(flowop.count) {
            if self.is_over() {
                done = Err(Stop::Over);
                break;
            }
            match self.act(flowop) {
                Ok(moved) => bytes += moved,
                Err(Stop::Failed(_)) if flowop.can_fail => {}
                Err(stop) => {
                    done = Err(stop);
                    break;
                }
            }
            count += 1;
        }
        self.strand.shared.counters[self.strand.index].add(bytes, count);
        if is_timed && count > 0 {
            let took = self.times.flowops[number][place].add(begin, bytes, count);
            if self.strand.timed.history.is_some() {
                self.history.push((begin + took, took));
                if self.history.len() >= HISTORY {
                    self.write_history();
                }
            }
        }
        match done {
            Ok(()) if self.is_over() => Err(Stop::Over),
            done => done,
        }
    }

    fn write_history(&mut self) {
        let Some(file) = &self.strand.timed.history else {
            return;
        };
        let mut lines = String::new();
        for (end, took) in self.history.drain(..) {
            let (pid, tid) = (std::process::id(), rustix::thread::gettid());
            let tid = tid.as_raw_nonzero();
            lines += &format!("{pid:>6} {tid:>6}  0 {end:>15} {took:>15}\n");
        }
        let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
        // The file is extra: a full disk does not end the run.
        let _ = file.write_all(lines.as_bytes());
    }

    fn act(&mut self, flowop: &Flowop) -> Result<u64, Stop> {
        match flowop.kind {
            Kind::Read | Kind::Receive => self.read(flowop),
            Kind::Write | Kind::Send => self.write(flowop),
            Kind::Connect => self.connect(flowop).map(|()| 0),
            Kind::Accept => self.accept(flowop).map(|()| 0),
            Kind::Disconnect => {
                let place = self.place(flowop)?;
                self.connections.remove(place);
                Ok(0)
            }
            Kind::Think if flowop.is_busy => self.spin(flowop.duration_ns),
            Kind::Think => self
                .sleep(Duration::from_nanos(flowop.duration_ns))
                .map(|()| 0),
            Kind::Sendfile | Kind::Sendfilev => self.send_files(flowop),
            Kind::Nop => Ok(0),
        }
    }

    /// Place of the newest connection of this number.
    fn place(&self, flowop: &Flowop) -> Result<usize, Stop> {
        let mut connections = self.connections.iter();
        connections
            .rposition(|(conn, _)| *conn == flowop.conn)
            .ok_or_else(|| Stop::Failed(format!("No such connection {}", flowop.conn)))
    }

    /// Error of a call: the end of the time if a signal has interrupted it.
    fn stop(&self, what: &str, error: &io::Error) -> Stop {
        match self.is_over() {
            true => Stop::Over,
            false => Stop::Failed(format!("{what}: {error}")),
        }
    }

    fn read(&mut self, flowop: &Flowop) -> Result<u64, Stop> {
        let place = self.place(flowop)?;
        // A message of a drawn size is what one read gives.
        let (size, is_whole) = (flowop.largest() as usize, flowop.random.is_none());
        let mut have = 0;
        while have < size {
            if flowop.timeout_ns > 0 {
                let fd = self.connections[place].1.as_fd();
                let time = Duration::from_nanos(flowop.timeout_ns);
                let is_ready = ready(fd, time).map_err(|error| self.stop("poll", &error))?;
                if !is_ready {
                    return Err(Stop::Failed("read: timed out".to_string()));
                }
            }
            match self.connections[place].1.read(&mut self.buffer[have..size]) {
                Ok(0) => return Err(Stop::Over),
                Ok(bytes) => have += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !self.is_over() => {}
                Err(error) => return Err(self.stop("Error for flowop read", &error)),
            }
            if !is_whole {
                break;
            }
        }
        Ok(have as u64)
    }

    fn write(&mut self, flowop: &Flowop) -> Result<u64, Stop> {
        let place = self.place(flowop)?;
        let size = match flowop.random {
            Some((least, most)) => self.drawn(least, most) as usize,
            None => flowop.size as usize,
        };
        let mut done = 0;
        while done < size {
            match self.connections[place].1.write(&self.buffer[done..size]) {
                Ok(0) => return Err(Stop::Over),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !self.is_over() => {}
                Err(error) => return Err(self.stop("Error for flowop write", &error)),
            }
        }
        Ok(done as u64)
    }

    /// Number from `least` to `most`.
    fn drawn(&mut self, least: u32, most: u32) -> u32 {
        // Marsaglia's xorshift64.
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        let range = u64::from(most - least) + 1;
        least + ((self.random >> 16) % range) as u32
    }

    fn connect(&mut self, flowop: &Flowop) -> Result<(), Stop> {
        let host = &flowop.host;
        let port = self.strand.ports.get(host).copied();
        let port = port.ok_or_else(|| Stop::Failed(format!("Cannot lookup host {host}")))?;
        let key = (host.clone(), port);
        let address = match self.addresses.get(&key) {
            Some(address) => *address,
            None => {
                let found = (host.as_str(), port).to_socket_addrs();
                let found = found.map_err(|error| self.stop(host, &error))?.next();
                let found = found.ok_or_else(|| Stop::Failed(format!("{host}: no address")))?;
                self.addresses.insert(key, found);
                found
            }
        };
        let connected = connect(address, flowop);
        let stream = connected
            .map_err(|error| self.stop(&format!("TCP: Cannot connect to {host}:{port}"), &error))?;
        self.connections.push((flowop.conn, stream));
        Ok(())
    }

    fn accept(&mut self, flowop: &Flowop) -> Result<(), Stop> {
        let Some((listener, peer)) = self.strand.listener.clone() else {
            return Err(Stop::Failed("accept: nothing listens".to_string()));
        };
        let until = Instant::now() + ACCEPT;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let is_ready =
                ready(listener.as_fd(), left).map_err(|error| self.stop("accept", &error))?;
            if !is_ready {
                return Err(Stop::Failed(
                    "accept: no connection within 10 s".to_string(),
                ));
            }
            match listener.accept() {
                Ok((stream, from)) if from.ip() == peer => {
                    let set = stream
                        .set_nonblocking(false)
                        .and_then(|()| apply(stream.as_fd(), flowop));
                    set.map_err(|error| self.stop("accept", &error))?;
                    self.connections.push((flowop.conn, stream));
                    return Ok(());
                }
                // Another thread was faster, or it is a stranger.
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted && !self.is_over() => {}
                Err(error) => return Err(self.stop("accept", &error)),
            }
        }
    }

    fn sleep(&self, time: Duration) -> Result<(), Stop> {
        let mut left = Timespec::try_from(time).unwrap_or_default();
        loop {
            if self.is_over() {
                return Err(Stop::Over);
            }
            match rustix::thread::nanosleep(&left) {
                NanosleepRelativeResult::Ok => return Ok(()),
                NanosleepRelativeResult::Interrupted(rest) => left = rest,
                NanosleepRelativeResult::Err(error) => {
                    return Err(self.stop("sleep", &error.into()));
                }
            }
        }
    }

    fn spin(&self, time_ns: u64) -> Result<u64, Stop> {
        let end = Instant::now() + Duration::from_nanos(time_ns);
        while Instant::now() < end {
            if self.is_over() {
                return Err(Stop::Over);
            }
        }
        Ok(0)
    }

    fn send_files(&mut self, flowop: &Flowop) -> Result<u64, Stop> {
        let files = Arc::clone(&self.strand.files);
        let files = files.get(&flowop.folder).filter(|files| !files.is_empty());
        let files = files.ok_or_else(|| Stop::Failed(format!("{}: no files", flowop.folder)))?;
        let place = self.place(flowop)?;
        let times = if flowop.kind == Kind::Sendfilev {
            flowop.files
        } else {
            1
        };
        let mut sent = 0;
        for _ in 0..times {
            let last = u32::try_from(files.len() - 1).unwrap_or(u32::MAX);
            let (file, length) = &files[self.drawn(0, last) as usize];
            let mut offset = 0;
            while offset < *length {
                let most = if flowop.size == 0 {
                    u64::MAX
                } else {
                    flowop.size.into()
                };
                let part = usize::try_from((*length - offset).min(most)).unwrap_or(usize::MAX);
                let stream = &self.connections[place].1;
                match rustix::fs::sendfile(stream, file, Some(&mut offset), part) {
                    Ok(0) => break,
                    Ok(bytes) => sent += bytes as u64,
                    Err(Errno::INTR) if !self.is_over() => {}
                    Err(error) => return Err(self.stop("Error for flowop sendfile", &error.into())),
                }
            }
        }
        Ok(sent)
    }
}

/// Waits until a descriptor can be read. False after the time.
fn ready(fd: BorrowedFd<'_>, time: Duration) -> io::Result<bool> {
    let mut polled = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let time = Timespec::try_from(time).map_err(io::Error::other)?;
    match rustix::event::poll(&mut polled, Some(&time)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Err(io::ErrorKind::Interrupted.into()),
        Err(error) => Err(error.into()),
    }
}

fn connect(to: SocketAddr, flowop: &Flowop) -> io::Result<TcpStream> {
    let family = match to {
        SocketAddr::V4(_) => rustix::net::AddressFamily::INET,
        SocketAddr::V6(_) => rustix::net::AddressFamily::INET6,
    };
    let flags = rustix::net::SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, rustix::net::SocketType::STREAM, flags, None)?;
    apply(socket.as_fd(), flowop)?;
    rustix::net::connect(&socket, &to)?;
    Ok(socket.into())
}

/// Sets the options of a data socket. A size that the kernel does not take is no error in uperf, and none here.
pub fn apply(fd: BorrowedFd<'_>, flowop: &Flowop) -> io::Result<()> {
    if flowop.window > 0 {
        let _ = sockopt::set_socket_send_buffer_size(fd, flowop.window as usize);
        let _ = sockopt::set_socket_recv_buffer_size(fd, flowop.window as usize);
    }
    if flowop.nodelay {
        sockopt::set_tcp_nodelay(fd, true)?;
    }
    if !flowop.congestion_control.is_empty() {
        sockopt::set_tcp_congestion(fd, &flowop.congestion_control)?;
    }
    Ok(())
}
