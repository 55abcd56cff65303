//! A thread and its connection.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tcpcost_stack::{BlockingConnector, BlockingListener, BlockingSocket, Stack};

use super::Shared;
use super::counts::ThreadCounts;
use super::histogram::SharedHistogram;
use crate::error::{Mismatch, WorkloadError};
use crate::group::Group;
use crate::pattern::Checker;
use crate::plan::Plan;
use crate::program::{Code, Instruction, Running};

/// What the threads of a group share, and only read but for the histogram.
pub(crate) struct OfGroup {
    plan: Plan,
    code: Code,
    source: Vec<u8>,
    read_bytes: usize,
    checker: Option<Checker>,
    pub(super) responses: Option<SharedHistogram>,
    /// Time between two rounds of one connection at a fixed rate.
    period: Option<Duration>,
}

impl OfGroup {
    pub(crate) fn new<S: Stack>(group: &Group<S>) -> OfGroup {
        let plan = group.plan.clone();
        let mut source = vec![0; plan.pattern_bytes as usize];
        plan.fill(0, &mut source);
        OfGroup {
            code: group.code.clone(),
            source,
            read_bytes: group.read_bytes,
            checker: plan.checks.then(|| Checker::new(group.read_bytes)),
            responses: plan.has_responses.then(SharedHistogram::new),
            period: plan.period(group.all.max(group.wanted)),
            plan,
        }
    }
}

/// How a thread comes by its connection.
pub(crate) enum Way {
    /// It is there.
    Stands(BlockingSocket),
    /// It opens one after the other, to here.
    Connects(BlockingConnector, SocketAddr),
    /// It takes one after the other, from these addresses.
    Accepts(BlockingListener, Vec<IpAddr>),
}

/// Where a connection is.
pub(crate) struct Connection {
    pub(crate) index: u32,
    pub(crate) send_at: u64,
    pub(crate) received: u64,
    pub(crate) running: Running,
}

impl Connection {
    pub(crate) fn new(index: u32) -> Connection {
        Connection {
            index,
            send_at: 0,
            received: 0,
            running: Running::new(0),
        }
    }
}

pub(super) struct Thread {
    pub(super) shared: Arc<Shared>,
    pub(super) group: Arc<OfGroup>,
    pub(super) counts: Arc<ThreadCounts>,
    pub(super) connection: Connection,
    pub(super) way: Way,
}

/// Why a thread leaves its program.
enum Leave {
    /// It is to stop.
    Stopped,
    /// The peer has ended the connection.
    Ended,
    Failed(WorkloadError),
}

impl Thread {
    pub(super) fn run(mut self) {
        let mut buffer = vec![0; self.group.read_bytes];
        let mut clock = Rounds::new(self.group.period, self.connection.index);
        loop {
            let (socket, takes) = match &self.way {
                Way::Stands(_) => (None, false),
                Way::Connects(..) => (None, false),
                Way::Accepts(listener, peers) => match self.accept(listener, peers) {
                    Ok(socket) => (Some(socket), true),
                    Err(Leave::Failed(error)) => return self.shared.fail(error),
                    Err(_) => return,
                },
            };
            if takes {
                let index = self.connection.index;
                self.connection = Connection::new(index);
            }
            match self.program(socket, &mut buffer, &mut clock) {
                Err(Leave::Failed(error)) => return self.shared.fail(error),
                Err(Leave::Stopped) => return,
                // The next one, where others come.
                Ok(()) | Err(Leave::Ended) if takes => {}
                Ok(()) | Err(Leave::Ended) => {
                    return self.shared.fail(WorkloadError::PeerClosed {
                        connection: self.connection.index,
                        received_bytes: self.connection.received,
                    });
                }
            }
        }
    }

    fn is_stopped(&self) -> bool {
        self.shared.stop.load(Ordering::Relaxed)
    }

    fn accept(
        &self,
        listener: &BlockingListener,
        peers: &[IpAddr],
    ) -> Result<BlockingSocket, Leave> {
        loop {
            if self.is_stopped() {
                return Err(Leave::Stopped);
            }
            match listener.accept() {
                Ok((socket, peer)) if peers.contains(&peer.ip()) => return Ok(socket),
                Ok((stranger, _)) => stranger.abort(),
                Err(error) if waits(&error) || error.kind() == io::ErrorKind::ConnectionAborted => {
                }
                Err(error) => {
                    let doing = "accept";
                    return Err(Leave::Failed(WorkloadError::Wait { doing, error }));
                }
            }
        }
    }

    /// Executes until the connection ends; `Ok` where this side has closed what it had taken.
    fn program(
        &mut self,
        mut taken: Option<BlockingSocket>,
        buffer: &mut [u8],
        rounds: &mut Rounds,
    ) -> Result<(), Leave> {
        let group = Arc::clone(&self.group);
        loop {
            if self.is_stopped() {
                return Err(Leave::Stopped);
            }
            let running = &mut self.connection.running;
            let instruction = group.code.at(running.at);
            running.at += 1;
            match instruction {
                Instruction::Send { size, .. } => {
                    let bytes = running.size(size);
                    self.send(&taken, bytes)?;
                }
                Instruction::Receive { size, .. } => {
                    let bytes = running.size(size);
                    self.receive(&taken, bytes, buffer)?;
                }
                Instruction::Connect => {
                    let Way::Connects(connector, target) = &self.way else {
                        continue;
                    };
                    let connection = self.connection.index;
                    let socket = connector.connect(*target).map_err(|error| {
                        Leave::Failed(WorkloadError::Connect { connection, error })
                    })?;
                    taken = Some(socket);
                    self.connection.send_at = 0;
                    self.connection.received = 0;
                    self.connection.running.ahead = 0;
                    self.counts.connections_opened.add(1);
                }
                Instruction::Close | Instruction::AwaitEnd => {
                    if instruction == Instruction::AwaitEnd {
                        self.await_end(&taken, buffer)?;
                    }
                    taken = None;
                    if let Way::Accepts(..) = self.way {
                        return Ok(());
                    }
                }
                Instruction::Think(time_ns) => {
                    let begun = Instant::now();
                    let time = Duration::from_nanos(time_ns);
                    while begun.elapsed() < time && !self.is_stopped() {
                        std::hint::spin_loop();
                    }
                    self.connection.running.idle_ns += nanos(begun.elapsed());
                }
                Instruction::Sleep(time_ns) => {
                    let until = Instant::now() + Duration::from_nanos(time_ns);
                    self.sleep_until(until)?;
                }
                Instruction::Pace { slot, period_ns } => {
                    let slot = usize::from(slot);
                    let due_ns = match running.due_ns[slot] {
                        0 => rounds.now_ns(),
                        due_ns => due_ns,
                    };
                    running.due_ns[slot] = due_ns.saturating_add(period_ns);
                    self.sleep_until(rounds.zero + Duration::from_nanos(due_ns))?;
                }
                Instruction::Round => {
                    if let Some(due) = rounds.next() {
                        self.sleep_until(due)?;
                        self.connection.running.started_ns =
                            nanos(due.saturating_duration_since(rounds.zero));
                    } else {
                        running.started_ns = rounds.now_ns();
                    }
                    self.connection.running.idle_ns = 0;
                }
                Instruction::Done => {
                    if let Some(responses) = &group.responses {
                        let took_ns = rounds.now_ns().saturating_sub(running.started_ns);
                        responses.record(took_ns.saturating_sub(running.idle_ns));
                    }
                    self.counts.transactions.add(1);
                }
                Instruction::Begin { slot, passes } => {
                    running.passes[usize::from(slot)] = passes;
                    running.due_ns[usize::from(slot)] = 0;
                }
                Instruction::BeginFor(time_ns) => {
                    running.until_ns = rounds.now_ns().saturating_add(time_ns);
                }
                Instruction::Again { slot, to } => {
                    let left = &mut running.passes[usize::from(slot)];
                    *left -= 1;
                    if *left > 0 {
                        running.at = to;
                    }
                }
                Instruction::AgainFor { to } => {
                    if rounds.now_ns() < running.until_ns {
                        running.at = to;
                    }
                }
                Instruction::Jump { to } => running.at = to,
            }
        }
    }

    fn socket<'a>(
        &'a self,
        taken: &'a Option<BlockingSocket>,
    ) -> Result<&'a BlockingSocket, Leave> {
        match (&self.way, taken) {
            (Way::Stands(socket), _) | (_, Some(socket)) => Ok(socket),
            // Each program connects before it sends.
            _ => Err(Leave::Ended),
        }
    }

    fn send(&mut self, taken: &Option<BlockingSocket>, bytes: u32) -> Result<(), Leave> {
        let group = Arc::clone(&self.group);
        let plan = &group.plan;
        let (mut left, mut send_at) = (bytes, self.connection.send_at);
        while left > 0 {
            let (at, len) = plan.place(send_at, left);
            self.counts.send_calls.add(1);
            let source = &group.source[at as usize..at as usize + len];
            match self.socket(taken)?.send(source) {
                Ok(sent) => {
                    left -= sent as u32;
                    if plan.advances {
                        send_at = plan.wrap(send_at) + sent as u64;
                    }
                    self.counts.bytes_sent.add(sent as u64);
                }
                Err(error) => self.waited(error, "send")?,
            }
        }
        self.connection.send_at = send_at;
        Ok(())
    }

    fn receive(
        &mut self,
        taken: &Option<BlockingSocket>,
        bytes: u32,
        buffer: &mut [u8],
    ) -> Result<(), Leave> {
        let mut left = bytes;
        self.connection.running.take(&mut left, 0);
        while left > 0 {
            let received = self.receive_once(taken, buffer)?;
            if received == 0 {
                return Err(Leave::Ended);
            }
            self.connection.running.take(&mut left, received as u64);
        }
        Ok(())
    }

    /// 0 at the end of the stream.
    fn receive_once(
        &mut self,
        taken: &Option<BlockingSocket>,
        buffer: &mut [u8],
    ) -> Result<usize, Leave> {
        loop {
            self.counts.receive_calls.add(1);
            let received = match self.socket(taken)?.receive(buffer) {
                Ok(received) => received,
                Err(error) => {
                    self.waited(error, "receive")?;
                    continue;
                }
            };
            let connection = &mut self.connection;
            if let Some(checker) = &self.group.checker {
                let phase = u64::from(self.group.plan.receive_phase(connection.index));
                checker
                    .compare(phase + connection.received, &buffer[..received])
                    .map_err(|mismatch: Mismatch| {
                        Leave::Failed(WorkloadError::Mismatch {
                            connection: connection.index,
                            offset: connection.received + mismatch.after,
                            expected: mismatch.expected,
                            found: mismatch.found,
                        })
                    })?;
                self.counts.bytes_checked.add(received as u64);
            }
            connection.received += received as u64;
            self.counts.bytes_received.add(received as u64);
            return Ok(received);
        }
    }

    fn await_end(
        &mut self,
        taken: &Option<BlockingSocket>,
        buffer: &mut [u8],
    ) -> Result<(), Leave> {
        match self.receive_once(taken, buffer)? {
            0 => Ok(()),
            _ => Err(Leave::Failed(WorkloadError::Unasked {
                connection: self.connection.index,
            })),
        }
    }

    /// After a call that failed: goes on if it only waited.
    fn waited(&self, error: io::Error, doing: &'static str) -> Result<(), Leave> {
        if self.is_stopped() {
            return Err(Leave::Stopped);
        }
        if waits(&error) {
            self.counts.would_block_calls.add(1);
            return Ok(());
        }
        // As of crr: who came and is gone may have been stopped.
        if let Way::Accepts(..) = self.way {
            return Err(Leave::Ended);
        }
        let connection = self.connection.index;
        Err(Leave::Failed(WorkloadError::Connection {
            connection,
            doing,
            error,
        }))
    }

    fn sleep_until(&mut self, until: Instant) -> Result<(), Leave> {
        let begun = Instant::now();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            if self.is_stopped() {
                return Err(Leave::Stopped);
            }
            std::thread::sleep(left.min(super::SLEEP));
        }
        self.connection.running.idle_ns += nanos(begun.elapsed());
        Ok(())
    }
}

/// When rounds begin.
struct Rounds {
    zero: Instant,
    period: Option<Duration>,
    due: Instant,
}

impl Rounds {
    /// Connections begin at different places of the first period.
    fn new(period: Option<Duration>, connection: u32) -> Rounds {
        let zero = Instant::now();
        // The top bits of a multiplicative hash: neighbours are far from each other.
        let hash = connection.wrapping_add(1).wrapping_mul(0x9E37_79B9);
        let share = f64::from(hash) / f64::from(u32::MAX);
        let due = zero + period.unwrap_or_default().mul_f64(share);
        Rounds { zero, period, due }
    }

    fn now_ns(&self) -> u64 {
        nanos(self.zero.elapsed())
    }

    /// The next one's due time; `None` where it begins at once.
    fn next(&mut self) -> Option<Instant> {
        let due = self.due;
        self.due += self.period?;
        Some(due)
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
