//! A thread and its connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tcpcost_knobs::units::nanos;
use tcpcost_stack::{BlockingConnector, BlockingListener, BlockingSocket, Stack};

use super::Shared;
use super::counts::ThreadCounts;
use crate::error::{Mismatch, WorkloadError};
use crate::group::Group;
use crate::histogram::SharedHistogram;
use crate::operation_times::OperationTimes;
use crate::pattern::Checker;
use crate::plan::Plan;
use crate::program::{Code, Instruction, Running, Timed};

/// State that the threads of a group share; only the histograms change.
pub(crate) struct OfGroup {
    plan: Plan,
    code: Code,
    source: Vec<u8>,
    read_bytes: usize,
    checker: Option<Checker>,
    pub(super) responses: Option<SharedHistogram>,
    pub(super) operations: OperationTimes,
    /// Time between two rounds of one flow at a fixed rate.
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
            responses: plan.has_responses.then(|| SharedHistogram::new(STEPS_LOG2)),
            operations: OperationTimes::new(group.code.timed()),
            period: plan.period(group.all.max(group.wanted) / plan.connections),
            plan,
        }
    }
}

/// Precision of response times: a thousandth.
const STEPS_LOG2: u32 = 10;

/// Source of a thread's connections.
pub(crate) enum Way {
    /// The connections are open already.
    Stands,
    /// The thread opens connections to this address, one after the other.
    Connects(BlockingConnector, SocketAddr),
    /// The thread accepts connections from these addresses, one after the other.
    Accepts(BlockingListener, Vec<IpAddr>),
}

/// Connections of a thread, and its place in the program.
pub(crate) struct Strand {
    pub(crate) streams: Vec<Stream>,
    pub(crate) running: Running,
}

/// State of a connection.
pub(crate) struct Stream {
    pub(crate) index: u32,
    /// `None` while it is not open.
    pub(crate) socket: Option<BlockingSocket>,
    pub(crate) send_at: u64,
    pub(crate) received: u64,
    /// Bytes received that no operation has asked for yet.
    pub(crate) ahead: u64,
}

impl Stream {
    pub(crate) fn new(index: u32, socket: Option<BlockingSocket>) -> Stream {
        Stream {
            index,
            socket,
            send_at: 0,
            received: 0,
            ahead: 0,
        }
    }

    fn socket(&self) -> Result<&BlockingSocket, Leave> {
        // Each program connects before it sends.
        self.socket.as_ref().ok_or(Leave::Ended)
    }

    /// Takes bytes that were received ahead, and `more` new ones, for a message.
    fn take(&mut self, left: &mut u32, more: u64) {
        self.ahead += more;
        let part = self.ahead.min(u64::from(*left));
        self.ahead -= part;
        *left -= part as u32;
    }
}

pub(super) struct Thread {
    pub(super) shared: Arc<Shared>,
    pub(super) group: Arc<OfGroup>,
    pub(super) counts: Arc<ThreadCounts>,
    pub(super) strand: Strand,
    pub(super) way: Way,
}

/// Reason to leave the program.
enum Leave {
    /// The thread must stop.
    Stopped,
    /// The peer has ended the connection.
    Ended,
    Failed(WorkloadError),
}

impl Thread {
    /// Executes the program until the thread must stop, or fails. Returns the connections open, so
    /// that the peer, which stops by a clock of its own, does not see their end.
    pub(super) fn run(mut self) -> Strand {
        let mut buffer = vec![0; self.group.read_bytes];
        let first = self.strand.streams[0].index;
        let mut clock = Rounds::new(self.group.period, first);
        let takes = matches!(self.way, Way::Accepts(..));
        loop {
            if takes && let Err(leave) = self.take(&clock) {
                self.fail(leave);
                return self.strand;
            }
            match self.program(&mut buffer, &mut clock) {
                // The next connection is accepted.
                Ok(()) | Err(Leave::Ended) if takes => {}
                Ok(()) => {}
                Err(leave) => {
                    self.fail(leave);
                    return self.strand;
                }
            }
        }
    }

    fn fail(&self, leave: Leave) {
        match leave {
            Leave::Stopped => {}
            Leave::Failed(error) => self.shared.fail(error),
            Leave::Ended => {
                let stream = &self.strand.streams[0];
                self.shared.fail(WorkloadError::PeerClosed {
                    connection: stream.index,
                    received_bytes: stream.received,
                });
            }
        }
    }

    /// Accepts the next connection, for which the program begins again.
    fn take(&mut self, clock: &Rounds) -> Result<(), Leave> {
        let Way::Accepts(listener, peers) = &self.way else {
            return Ok(());
        };
        let begun_ns = clock.now_ns();
        let socket = self.accept(listener, peers)?;
        if let Some(operation) = self.group.code.accepts() {
            let took_ns = clock.now_ns().saturating_sub(begun_ns);
            self.group.operations.record(operation, took_ns);
        }
        let index = self.strand.streams[0].index;
        self.strand.streams[0] = Stream::new(index, Some(socket));
        self.strand.running = Running::default();
        Ok(())
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

    /// Executes until the connection ends. `Ok` if this side closed an accepted connection, or if
    /// the program begins again.
    fn program(&mut self, buffer: &mut [u8], rounds: &mut Rounds) -> Result<(), Leave> {
        let group = Arc::clone(&self.group);
        // One clock read serves as the end of an operation and the start of the next one.
        let mut now_ns = None;
        loop {
            if self.is_stopped() {
                return Err(Leave::Stopped);
            }
            let running = &mut self.strand.running;
            let instruction = group.code.at(running.at);
            running.at += 1;
            match instruction {
                Instruction::Send {
                    size, conn, timed, ..
                } => {
                    let bytes = running.size(size);
                    let begun = rounds.begin(timed, &mut now_ns);
                    let done = self.send(usize::from(conn), bytes);
                    if !self.end(timed, begun, done, rounds, &mut now_ns)? {
                        return Ok(());
                    }
                }
                Instruction::Receive {
                    size, conn, timed, ..
                } => {
                    let bytes = running.size(size);
                    let begun = rounds.begin(timed, &mut now_ns);
                    let done = self.receive(usize::from(conn), bytes, buffer);
                    if !self.end(timed, begun, done, rounds, &mut now_ns)? {
                        return Ok(());
                    }
                }
                Instruction::Connect { timed } => {
                    let begun = rounds.begin(timed, &mut now_ns);
                    let done = self.connect();
                    if !self.end(timed, begun, done, rounds, &mut now_ns)? {
                        return Ok(());
                    }
                }
                Instruction::Close { timed } | Instruction::AwaitEnd { timed } => {
                    let begun = rounds.begin(timed, &mut now_ns);
                    let done = match instruction {
                        Instruction::AwaitEnd { .. } => self.await_end(buffer),
                        _ => Ok(()),
                    };
                    self.strand.streams[0].socket = None;
                    if !self.end(timed, begun, done, rounds, &mut now_ns)? {
                        return Ok(());
                    }
                    if let Way::Accepts(..) = self.way {
                        return Ok(());
                    }
                }
                Instruction::Think(time_ns) => {
                    now_ns = None;
                    let begun = Instant::now();
                    let time = Duration::from_nanos(time_ns);
                    while begun.elapsed() < time && !self.is_stopped() {
                        std::hint::spin_loop();
                    }
                    self.strand.running.idle_ns += nanos(begun.elapsed());
                }
                Instruction::Sleep(time_ns) => {
                    now_ns = None;
                    let until = Instant::now() + Duration::from_nanos(time_ns);
                    self.sleep_until(until)?;
                }
                Instruction::Pace { slot, period_ns } => {
                    now_ns = None;
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
                        now_ns = None;
                        self.sleep_until(due)?;
                        self.strand.running.started_ns =
                            nanos(due.saturating_duration_since(rounds.zero));
                    } else {
                        running.started_ns = *now_ns.get_or_insert_with(|| rounds.now_ns());
                    }
                    self.strand.running.idle_ns = 0;
                }
                Instruction::Done => {
                    if let Some(responses) = &group.responses {
                        let at_ns = *now_ns.get_or_insert_with(|| rounds.now_ns());
                        let took_ns = at_ns.saturating_sub(running.started_ns);
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

    /// Handles the end of an operation. False if it failed and is allowed to: then the program
    /// begins again.
    fn end(
        &mut self,
        timed: Timed,
        begun_ns: u64,
        done: Result<(), Leave>,
        rounds: &Rounds,
        now_ns: &mut Option<u64>,
    ) -> Result<bool, Leave> {
        match done {
            Ok(()) => {
                if let Some(operation) = timed {
                    let at_ns = rounds.now_ns();
                    let took_ns = at_ns.saturating_sub(begun_ns);
                    self.group.operations.record(operation, took_ns);
                    *now_ns = Some(at_ns);
                }
                Ok(true)
            }
            Err(
                Leave::Ended
                | Leave::Failed(
                    WorkloadError::Connection { .. }
                    | WorkloadError::Connect { .. }
                    | WorkloadError::PeerClosed { .. },
                ),
            ) if self.group.plan.can_fail => {
                self.group.operations.fail(timed);
                if let Some(socket) = self.strand.streams[0].socket.take() {
                    socket.abort();
                }
                self.strand.running = Running::default();
                Ok(false)
            }
            Err(leave) => Err(leave),
        }
    }

    fn connect(&mut self) -> Result<(), Leave> {
        let Way::Connects(connector, target) = &self.way else {
            return Ok(());
        };
        let connection = self.strand.streams[0].index;
        let socket = connector
            .connect(*target)
            .map_err(|error| Leave::Failed(WorkloadError::Connect { connection, error }))?;
        self.strand.streams[0] = Stream::new(connection, Some(socket));
        self.counts.connections_opened.add(1);
        Ok(())
    }

    fn send(&mut self, conn: usize, bytes: u32) -> Result<(), Leave> {
        let group = Arc::clone(&self.group);
        let plan = &group.plan;
        let (mut left, mut send_at) = (bytes, self.strand.streams[conn].send_at);
        while left > 0 {
            let (at, len) = plan.place(send_at, left);
            self.counts.send_calls.add(1);
            let source = &group.source[at as usize..at as usize + len];
            match self.strand.streams[conn].socket()?.send(source) {
                Ok(sent) => {
                    left -= sent as u32;
                    if plan.advances {
                        send_at = plan.wrap(send_at) + sent as u64;
                    }
                    self.counts.bytes_sent.add(sent as u64);
                }
                Err(error) => self.waited(conn, error, "send")?,
            }
        }
        self.strand.streams[conn].send_at = send_at;
        Ok(())
    }

    fn receive(&mut self, conn: usize, bytes: u32, buffer: &mut [u8]) -> Result<(), Leave> {
        let mut left = bytes;
        self.strand.streams[conn].take(&mut left, 0);
        while left > 0 {
            let received = self.receive_once(conn, buffer)?;
            if received == 0 {
                return Err(Leave::Ended);
            }
            self.strand.streams[conn].take(&mut left, received as u64);
        }
        Ok(())
    }

    /// Bytes received by one call; 0 at the end of the stream.
    fn receive_once(&mut self, conn: usize, buffer: &mut [u8]) -> Result<usize, Leave> {
        loop {
            self.counts.receive_calls.add(1);
            let received = match self.strand.streams[conn].socket()?.receive(buffer) {
                Ok(received) => received,
                Err(error) => {
                    self.waited(conn, error, "receive")?;
                    continue;
                }
            };
            let stream = &mut self.strand.streams[conn];
            if let Some(checker) = &self.group.checker {
                let phase = u64::from(self.group.plan.receive_phase(stream.index));
                checker
                    .compare(phase + stream.received, &buffer[..received])
                    .map_err(|mismatch: Mismatch| {
                        Leave::Failed(WorkloadError::Mismatch {
                            connection: stream.index,
                            offset: stream.received + mismatch.after,
                            expected: mismatch.expected,
                            found: mismatch.found,
                        })
                    })?;
                self.counts.bytes_checked.add(received as u64);
            }
            stream.received += received as u64;
            self.counts.bytes_received.add(received as u64);
            return Ok(received);
        }
    }

    fn await_end(&mut self, buffer: &mut [u8]) -> Result<(), Leave> {
        match self.receive_once(0, buffer)? {
            0 => Ok(()),
            _ => Err(Leave::Failed(WorkloadError::Unasked {
                connection: self.strand.streams[0].index,
            })),
        }
    }

    /// Handles an error of a call: `Ok` if the call must be repeated.
    fn waited(&self, conn: usize, error: io::Error, doing: &'static str) -> Result<(), Leave> {
        if self.is_stopped() {
            return Err(Leave::Stopped);
        }
        if waits(&error) {
            self.counts.would_block_calls.add(1);
            return Ok(());
        }
        // A client that has gone may have been stopped, as with `crr`.
        if let Way::Accepts(..) = self.way {
            return Err(Leave::Ended);
        }
        let connection = self.strand.streams[conn].index;
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
        self.strand.running.idle_ns += nanos(begun.elapsed());
        Ok(())
    }
}

/// Times at which rounds begin.
struct Rounds {
    zero: Instant,
    period: Option<Duration>,
    due: Instant,
}

impl Rounds {
    /// Connections begin at different points of the first period.
    fn new(period: Option<Duration>, connection: u32) -> Rounds {
        let zero = Instant::now();
        // The top bits of a multiplicative hash: neighbours get distant points.
        let hash = connection.wrapping_add(1).wrapping_mul(0x9E37_79B9);
        let share = f64::from(hash) / f64::from(u32::MAX);
        let due = zero + period.unwrap_or_default().mul_f64(share);
        Rounds { zero, period, due }
    }

    fn now_ns(&self) -> u64 {
        nanos(self.zero.elapsed())
    }

    /// Time at which an operation begins; 0 if the operation is not timed.
    fn begin(&self, timed: Timed, now_ns: &mut Option<u64>) -> u64 {
        let at_ns = now_ns.take();
        match timed {
            Some(_) => at_ns.unwrap_or_else(|| self.now_ns()),
            None => 0,
        }
    }

    /// Due time of the next round; `None` if it begins at once.
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
