//! A thread and its connections.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use tcpcost_knobs::MessageSize;
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
use crate::program::{Code, Executor, Running, Step};

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
    shared: Arc<Shared>,
    group: Arc<OfGroup>,
    counts: Arc<ThreadCounts>,
    strand: Strand,
    way: Way,
    buffer: Vec<u8>,
    rounds: Rounds,
}

/// Reason to leave the program.
pub(super) enum Leave {
    /// The thread must stop.
    Stopped,
    /// The peer has ended the connection.
    Ended,
    Failed(WorkloadError),
}

impl Thread {
    pub(super) fn new(
        shared: Arc<Shared>,
        group: Arc<OfGroup>,
        counts: Arc<ThreadCounts>,
        strand: Strand,
        way: Way,
    ) -> Thread {
        Thread {
            buffer: vec![0; group.read_bytes],
            rounds: Rounds::new(group.period, strand.streams[0].index),
            shared,
            group,
            counts,
            strand,
            way,
        }
    }

    /// Executes the program until the thread must stop, or fails. Returns the connections open, so
    /// that the peer, which stops by a clock of its own, does not see their end.
    pub(super) fn run(mut self) -> Strand {
        let takes = matches!(self.way, Way::Accepts(..));
        loop {
            if takes && let Err(leave) = self.take() {
                self.fail(leave);
                return self.strand;
            }
            match self.program() {
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
    fn take(&mut self) -> Result<(), Leave> {
        let Way::Accepts(listener, peers) = &self.way else {
            return Ok(());
        };
        let begun_ns = self.rounds.now_ns();
        let socket = self.accept(listener, peers)?;
        if let Some(operation) = self.group.code.accepts() {
            let took_ns = self.rounds.now_ns().saturating_sub(begun_ns);
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
    fn program(&mut self) -> Result<(), Leave> {
        let group = Arc::clone(&self.group);
        let mut now_ns = None;
        loop {
            if self.is_stopped() {
                return Err(Leave::Stopped);
            }
            let at = self.strand.running.at;
            match self.step(group.code.at(at), &mut now_ns)? {
                Step::Next => self.strand.running.go_to(at + 1),
                Step::To(at) => self.strand.running.go_to(at),
                Step::Waits | Step::Yields => {}
                Step::Ended | Step::BeginsAgain => return Ok(()),
            }
        }
    }

    /// Bytes received by one call; 0 at the end of the stream.
    fn receive_once(&mut self, conn: usize) -> Result<usize, Leave> {
        loop {
            self.counts.receive_calls.add(1);
            let socket = self.strand.streams[conn].socket()?;
            let received = match socket.receive(&mut self.buffer) {
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
                    .compare(phase + stream.received, &self.buffer[..received])
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

impl Executor for Thread {
    type Error = Leave;

    #[inline]
    fn running(&mut self) -> &mut Running {
        &mut self.strand.running
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.rounds.now_ns()
    }

    #[inline]
    fn operations(&self) -> &OperationTimes {
        &self.group.operations
    }

    /// An operation that is allowed to fail begins the program again.
    fn failed(&mut self, leave: Leave) -> Result<Step, Leave> {
        let may_fail = matches!(
            leave,
            Leave::Ended
                | Leave::Failed(
                    WorkloadError::Connection { .. }
                        | WorkloadError::Connect { .. }
                        | WorkloadError::PeerClosed { .. },
                )
        );
        if !(may_fail && self.group.plan.can_fail) {
            return Err(leave);
        }
        if let Some(socket) = self.strand.streams[0].socket.take() {
            socket.abort();
        }
        self.strand.running = Running::default();
        Ok(Step::BeginsAgain)
    }

    fn send(&mut self, size: MessageSize, _: u8, conn: u8) -> Result<Step, Leave> {
        let conn = usize::from(conn);
        let bytes = self.strand.running.size(size);
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
        Ok(Step::Next)
    }

    fn receive(&mut self, size: MessageSize, _: u8, conn: u8) -> Result<Step, Leave> {
        let conn = usize::from(conn);
        let mut left = self.strand.running.size(size);
        self.strand.streams[conn].take(&mut left, 0);
        while left > 0 {
            let received = self.receive_once(conn)?;
            if received == 0 {
                return Err(Leave::Ended);
            }
            self.strand.streams[conn].take(&mut left, received as u64);
        }
        Ok(Step::Next)
    }

    fn connect(&mut self) -> Result<Step, Leave> {
        let Way::Connects(connector, target) = &self.way else {
            return Ok(Step::Next);
        };
        let connection = self.strand.streams[0].index;
        let socket = connector
            .connect(*target)
            .map_err(|error| Leave::Failed(WorkloadError::Connect { connection, error }))?;
        self.strand.streams[0] = Stream::new(connection, Some(socket));
        self.counts.connections_opened.add(1);
        Ok(Step::Next)
    }

    /// Closes. A thread that accepts is then done with this connection.
    fn close(&mut self) -> Result<Step, Leave> {
        self.strand.streams[0].socket = None;
        Ok(match self.way {
            Way::Accepts(..) => Step::Ended,
            Way::Stands | Way::Connects(..) => Step::Next,
        })
    }

    fn await_end(&mut self) -> Result<Step, Leave> {
        match self.receive_once(0)? {
            0 => self.close(),
            _ => Err(Leave::Failed(WorkloadError::Unasked {
                connection: self.strand.streams[0].index,
            })),
        }
    }

    fn think(&mut self, time_ns: u64) -> Result<Step, Leave> {
        let (is_done, _) = self.strand.running.think(time_ns);
        Ok(if is_done { Step::Next } else { Step::Yields })
    }

    fn wait_until(&mut self, until_ns: u64, _: u64) -> Result<Step, Leave> {
        self.sleep_until(self.rounds.zero + Duration::from_nanos(until_ns))?;
        Ok(Step::Next)
    }

    fn has_schedule(&self) -> bool {
        self.rounds.period.is_some()
    }

    fn wait_for_round(&mut self) -> Result<Step, Leave> {
        let due = self.rounds.next();
        self.sleep_until(due)?;
        let due_ns = nanos(due.saturating_duration_since(self.rounds.zero));
        self.strand.running.start_round(due_ns);
        Ok(Step::Next)
    }

    fn end_round(&mut self, took_ns: u64) {
        if let Some(responses) = &self.group.responses {
            responses.record(took_ns);
        }
        self.counts.transactions.add(1);
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

    /// Due time of the next round.
    fn next(&mut self) -> Instant {
        let due = self.due;
        self.due += self.period.unwrap_or_default();
        due
    }
}

fn waits(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
