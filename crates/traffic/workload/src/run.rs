//! The loop: poll, then give each ready connection its turn.
//!
//! Readiness is edge-triggered, with a run queue. A turn is bounded by [`TURN_BYTES`], and then the
//! connection goes to the tail of the queue, so that thousands of bulk connections share fairly.
//! Polls come at least every [`BATCH_BYTES`], so that connections that became ready join in, and
//! the deadline is met.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tcpcost_knobs::Side;
use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::flow::State;
use crate::io::TURN_BYTES;
use crate::io::failed;
use crate::plan::Role;
use crate::worker::{LISTENERS, Worker};

/// Limit of bytes between two polls, exceeded by at most a turn: 0.5 ms at 32 Gbit/s. A poll takes
/// 0.5 µs, a share of 0.1 %. A call counts as at least [`crate::io::CALL_LEAST`] bytes.
const BATCH_BYTES: usize = 2 << 20;

/// Limit of bytes between two polls where groups share the thread: a poll after each two turns, so
/// that requests do not wait for milliseconds of bulk.
const BATCH_BYTES_OF_GROUPS: usize = 2 * TURN_BYTES;

/// Limit of bytes of a turn where two ends alternate in one thread: a write of the default size,
/// and then the reader has its turn. With more, the reader would find several skbs at once, and the
/// cost of each by itself (GRO, another cut of the last skb) would not show.
const SHARED_TURN_BYTES: usize = 64 * 1024;

/// Bytes that a turn of a shared thread counts as at least: 256 turns between two polls.
const TURN_LEAST: usize = 1024;

/// Longest sleep, so that a worker without traffic sees `stop`: ten wake-ups a second.
const SLEEP: Duration = Duration::from_millis(100);

/// Time that a fixed rate of a stream may catch up after a stall. Less would lose rate to ordinary
/// delays of the scheduler (some ms); more would make bursts that no sender of this rate makes. A
/// fixed rate of transactions catches up completely: a dropped transaction would be missing from
/// the response times where they are worst (coordinated omission).
const BACKLOG_NS: u64 = 10_000_000;

impl<S: Stack> Worker<S> {
    /// Drives traffic until the deadline, or until `stop` is set (seen within 100 ms). Another call
    /// continues where the last one ended; the time between calls counts in no response time and no
    /// schedule. Allocates nothing, takes no lock.
    ///
    /// # Errors
    /// A connection that broke or was closed by the peer; received bytes that differ from those
    /// sent (`check`).
    pub fn run_until(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<(), WorkloadError> {
        self.run_until_moved(deadline, u64::MAX, stop)
    }

    /// Drives traffic like [`Worker::run_until`], and ends early once `bytes` in all were moved
    /// ([`Worker::bytes_moved`]), exceeded by at most a turn. With a thread for each connection
    /// `bytes` is ignored.
    ///
    /// # Errors
    /// See [`Worker::run_until`].
    pub fn run_until_moved(
        &mut self,
        deadline: Instant,
        bytes: u64,
        stop: &AtomicBool,
    ) -> Result<(), WorkloadError> {
        self.clock.resume(Instant::now());
        let result = self.start().and_then(|()| match &self.threads {
            Some(threads) => threads.run_until(deadline, stop),
            None => self.run(deadline, bytes, stop),
        });
        self.clock.stop(Instant::now());
        result
    }

    /// Begins a stretch in which this worker shares its thread with another: call [`Worker::turns`]
    /// any number of times, then [`Worker::pause`]. Not for a worker with a thread for each
    /// connection.
    pub fn resume(&mut self, now: Instant) {
        self.send_turn_bytes = SHARED_TURN_BYTES;
        // Calls of every size fill a turn of 64 KiB: how much the reader finds must not depend on
        // the size.
        self.call_least = 0;
        self.clock.resume(now);
    }

    /// Gives ready connections their turns, without waiting. A batch of sending streams ends after
    /// 64 KiB, exceeded by at most a call; other batches end after 256 KiB. True if there was
    /// anything to do.
    ///
    /// # Errors
    /// See [`Worker::run_until`].
    pub fn turns(&mut self, now: Instant) -> Result<bool, WorkloadError> {
        self.start()?;
        self.start_all_due(self.clock.at_ns(now))?;
        self.poll(Duration::ZERO)?;
        let plan = &self.io.group.plan;
        let most = match plan.is_stream() && plan.sends {
            true => SHARED_TURN_BYTES,
            false => BATCH_BYTES_OF_GROUPS,
        };
        let visits = plan.visits;
        let worked = !self.queue.is_empty();
        let moved = self.batch(most)?;
        self.flush()?;
        // Each visit is a turn, also one that finds nothing.
        Ok(if visits { moved > 0 } else { worked })
    }

    /// Waits until a connection is ready or an event is due, at most for `most`.
    ///
    /// # Errors
    /// The stack is broken.
    pub fn rest(&mut self, most: Duration) -> Result<(), WorkloadError> {
        let due = self.start_all_due(self.clock.now_ns())?;
        match self.queue.is_empty() {
            true => self.poll(most.min(due)),
            false => Ok(()),
        }
    }

    /// Lets the stack send and receive, and begins nothing.
    ///
    /// # Errors
    /// The stack is broken.
    pub fn stand_by(&mut self) -> Result<(), WorkloadError> {
        self.poll(Duration::ZERO)
    }

    /// Ends a stretch.
    ///
    /// # Errors
    /// The stack is broken.
    pub fn pause(&mut self, now: Instant) -> Result<(), WorkloadError> {
        self.clock.stop(now);
        self.flush()
    }

    /// On the first call: gives every connection a turn, or queues it for its due time.
    fn start(&mut self) -> Result<(), WorkloadError> {
        if self.started {
            return Ok(());
        }
        self.started = true;
        if let Some(threads) = &self.threads {
            threads.begin();
            return Ok(());
        }
        self.queue.reserve(self.flows.len());
        let mut is_precise = false;
        for index in 0..self.groups.len() as u16 {
            self.switch_to(index);
            let group = &mut *self.io.group;
            let all = group.all.max(group.wanted);
            group.schedule = match group.wanted {
                0 => None,
                mine => group.plan.schedule(mine, all, group.seed),
            };
            is_precise |= group.schedule.is_some() || group.code.waits();
        }
        if is_precise {
            tcpcost_stack::use_precise_timeouts();
        }
        if self.io.group.plan.visits {
            for conn in self.flows.iter().filter_map(|flow| flow.conn) {
                self.io.stack.stop_telling(conn);
            }
        }
        for index in 0..self.flows.len() as u32 {
            self.switch_to(self.flows[index as usize].group);
            let plan = &self.io.group.plan;
            // A side that opens connections begins with that.
            let begins = !plan.stands && plan.side == Side::Connects;
            if begins {
                self.begin_program(index as usize);
            }
            if self.flows[index as usize].conn.is_some() || begins {
                self.enqueue(index);
            }
        }
        Ok(())
    }

    fn run(
        &mut self,
        deadline: Instant,
        bytes: u64,
        stop: &AtomicBool,
    ) -> Result<(), WorkloadError> {
        let batch = match self.groups.len() {
            1 if bytes == u64::MAX => BATCH_BYTES,
            // With larger batches a run would exceed `bytes` by megabytes.
            _ => BATCH_BYTES_OF_GROUPS,
        };
        loop {
            let now = Instant::now();
            let is_done = bytes != u64::MAX && self.bytes_moved() >= bytes;
            if is_done || now >= deadline || stop.load(Ordering::Relaxed) {
                return self.flush();
            }
            let due = self.start_all_due(self.clock.at_ns(now))?;
            let sleep = if self.queue.is_empty() {
                (deadline - now).min(SLEEP).min(due)
            } else {
                Duration::ZERO
            };
            self.poll(sleep)?;
            self.batch(batch)?;
        }
    }

    /// Gives ready connections their turns until `bytes` are moved. Returns the bytes moved.
    #[inline(always)]
    fn batch(&mut self, bytes: usize) -> Result<usize, WorkloadError> {
        let (mut left, mut all) = (bytes, 0);
        while left > 0
            && let Some(index) = self.queue.pop_front()
        {
            let moved = self.turn(index as usize)?;
            left = left.saturating_sub(moved.max(self.call_least).max(TURN_LEAST));
            all += moved;
        }
        Ok(all)
    }

    /// Submits the sends that the stack has gathered, because the next run may be much later.
    fn flush(&mut self) -> Result<(), WorkloadError> {
        self.io.stack.flush().map_err(|error| WorkloadError::Wait {
            doing: "hand over sends",
            error,
        })
    }

    /// Starts events that are due in any group. Returns the time until the next one.
    fn start_all_due(&mut self, now_ns: u64) -> Result<Duration, WorkloadError> {
        let mut due = self.wake(now_ns);
        if self.groups.len() == 1 {
            return Ok(self.start_due(now_ns)?.min(due));
        }
        for group in 0..self.groups.len() as u16 {
            self.switch_to(group);
            due = due.min(self.start_due(now_ns)?);
        }
        Ok(due)
    }

    /// Starts events that are due in the current group. Returns the time until the next one.
    fn start_due(&mut self, now_ns: u64) -> Result<Duration, WorkloadError> {
        loop {
            let Some(schedule) = &mut self.io.group.schedule else {
                return Ok(Duration::MAX);
            };
            if self.io.group.plan.is_stream() {
                schedule.forget_before(now_ns, BACKLOG_NS);
            }
            let due_ns = schedule.due_ns();
            if due_ns > now_ns {
                return Ok(Duration::from_nanos(due_ns - now_ns));
            }
            // No connection is free: the event stays due, and the first free connection takes it.
            let Some(index) = self.io.group.waiting.pop_front() else {
                return Ok(Duration::MAX);
            };
            schedule.advance();
            self.flows[index as usize].waiting = false;
            self.start_message(index as usize, due_ns)?;
            self.enqueue(index);
        }
    }

    /// Starts a stream's write, a request, a `crr` transaction, or a round.
    fn start_message(&mut self, index: usize, at_ns: u64) -> Result<(), WorkloadError> {
        match self.io.group.plan.role {
            Role::Stream => {
                self.flows[index].send_left = self.io.group.plan.send_message;
                Ok(())
            }
            Role::RrClient => self.start_request(index, at_ns),
            Role::CrrClient => self.start_transaction(index, at_ns),
            Role::Program => {
                self.running[index].start_round(at_ns);
                Ok(())
            }
            Role::RrServer | Role::CrrServer => Ok(()),
        }
    }

    #[inline(always)]
    fn poll(&mut self, sleep: Duration) -> Result<(), WorkloadError> {
        if self.io.group.plan.visits && self.started {
            self.visit(sleep);
            return Ok(());
        }
        self.io.group.tally.poll_calls += 1;
        let count = self
            .io
            .stack
            .poll(Some(sleep))
            .map_err(|error| WorkloadError::Wait {
                doing: "epoll_wait",
                error,
            })?;
        for index in 0..count {
            let ready = self.io.stack.ready(index);
            if ready.token >= LISTENERS {
                self.accept((ready.token - LISTENERS) as usize)?;
                continue;
            }
            let Some(flow) = self.flows.get_mut(ready.token as usize) else {
                continue;
            };
            flow.readable |= ready.readable;
            flow.writable |= ready.writable;
            flow.peer_closed |= ready.peer_closed;
            flow.error |= ready.error;
            self.enqueue(ready.token);
        }
        Ok(())
    }

    /// Makes each connection ready, for a program that never polls (`io = "visits"`): its call will
    /// show whether there is anything to do.
    fn visit(&mut self, sleep: Duration) {
        // Two ends in one thread that both wait for a timer; a single visiting worker never sleeps.
        if self.send_turn_bytes == SHARED_TURN_BYTES && !sleep.is_zero() {
            std::thread::sleep(sleep);
        }
        for index in 0..self.flows.len() as u32 {
            let flow = &mut self.flows[index as usize];
            (flow.readable, flow.writable) = (true, true);
            self.enqueue(index);
        }
    }

    #[inline]
    pub(crate) fn enqueue(&mut self, index: u32) {
        let flow = &mut self.flows[index as usize];
        if !flow.queued {
            flow.queued = true;
            self.queue.push_back(index);
        }
    }

    /// Queues a connection that could start a message until an event is due.
    #[inline]
    pub(crate) fn wait_for_due(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if !flow.waiting {
            flow.waiting = true;
            self.io.group.waiting.push_back(index as u32);
        }
    }

    /// Runs one turn; returns the bytes moved. Always inlined, like the calls of the data path:
    /// with programs next to the five kinds the compiler would not inline them, which costs a sixth
    /// more instructions for each transaction.
    #[inline(always)]
    fn turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let flow = &mut self.flows[index];
        flow.queued = false;
        if flow.group != self.group {
            let group = flow.group;
            self.switch_to(group);
        }
        let flow = &mut self.flows[index];
        if flow.error {
            flow.error = false;
            // `connected` returns a connect's own error; a `crr` server ignores its peers' errors.
            if flow.state == State::Open
                && self.io.group.plan.completes
                && let Some(conn) = flow.conn
            {
                self.io
                    .stack
                    .reap(conn)
                    .map_err(failed(flow, "error queue"))?;
            }
        }
        match self.io.group.plan.role {
            Role::Stream => self.stream_turn(index),
            Role::RrClient => self.rr_client_turn(index),
            Role::RrServer => self.rr_server_turn(index),
            Role::CrrClient => self.crr_client_turn(index),
            Role::CrrServer => self.crr_server_turn(index),
            Role::Program => self.program_turn(index),
        }
    }
}
