//! The loop: poll, then give each ready connection its turn.
//!
//! Edge-triggered with a run queue. A turn is bounded by [`TURN_BYTES`] and then goes to the tail,
//! so that thousands of bulk connections share fairly; polls come at least every [`BATCH_BYTES`],
//! so that connections that became ready join in, and the deadline is met.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tcpcost_stack::Stack;
use tcpcost_study::Side;

use crate::error::WorkloadError;
use crate::flow::State;
use crate::io::TURN_BYTES;
use crate::io::failed;
use crate::plan::Role;
use crate::worker::{LISTENERS, Worker};

/// Bytes between two polls, at most, and one turn more: 1 ms at 32 Gbit/s, at 0.5 us per poll a
/// share of 0.05 %. A call counts as [`crate::io::CALL_LEAST`] bytes at least.
const BATCH_BYTES: usize = 4 << 20;

/// The same where groups share the thread, so that requests do not wait for milliseconds of bulk: a poll after each turn.
const BATCH_BYTES_OF_GROUPS: usize = TURN_BYTES;

/// The same where two ends take turns in one thread: a write of the default size, and then whoever reads it has its turn. Of more the
/// reader would find several skbs at once, and what each costs by itself (GRO, another cut of the last skb) would be lost among them.
const SHARED_TURN_BYTES: usize = 64 * 1024;

/// Bytes that a turn of a shared thread counts at least: 256 turns between two polls.
const TURN_LEAST: usize = 1024;

/// Longest sleep, so that `stop` is seen by a worker without traffic: ten wake-ups a second.
const SLEEP: Duration = Duration::from_millis(100);

/// How far a fixed rate of a stream may catch up after a stall. Less would lose rate to ordinary
/// delays of the scheduler (some ms); more would make bursts that no sender of this rate makes. A
/// fixed rate of transactions catches up with all: what is given up would be left out of the
/// response times just where they are worst (coordinated omission).
const BACKLOG_NS: u64 = 10_000_000;

impl<S: Stack> Worker<S> {
    /// Drives traffic until the deadline, or until `stop` is set (seen within 100 ms). It may be
    /// called again and goes on where it was; the time between calls counts in no response time
    /// and no schedule. Allocates nothing, takes no lock.
    ///
    /// # Errors
    /// A connection that broke or was closed by the peer; bytes that are not as sent (`check`).
    pub fn run_until(&mut self, deadline: Instant, stop: &AtomicBool) -> Result<(), WorkloadError> {
        self.run_until_moved(deadline, u64::MAX, stop)
    }

    /// The same until it has moved so many bytes in all ([`Worker::bytes_moved`]), and a turn more at most; with a thread for each
    /// connection until the deadline.
    ///
    /// # Errors
    /// As of [`Worker::run_until`].
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

    /// Begins a stretch in which this worker shares its thread with another: [`Worker::turns`] as often as wanted, then
    /// [`Worker::pause`]. Not of one with a thread for each connection.
    pub fn resume(&mut self, now: Instant) {
        self.send_turn_bytes = SHARED_TURN_BYTES;
        // Calls of every size fill a turn of 64 KiB: how much the reader finds must not depend on the size.
        self.call_least = 0;
        self.clock.resume(now);
    }

    /// Gives connections that are ready their turns, without waiting: of those that send until 64 KiB are on their way, and a call
    /// more at most, of others until 256 KiB are moved. Whether there was anything to do.
    ///
    /// # Errors
    /// As of [`Worker::run_until`].
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

    /// Waits until a connection is ready, or something is due, for so long at most.
    ///
    /// # Errors
    /// Only of a broken stack.
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
    /// Only of a broken stack.
    pub fn stand_by(&mut self) -> Result<(), WorkloadError> {
        self.poll(Duration::ZERO)
    }

    /// Ends a stretch.
    ///
    /// # Errors
    /// Only of a broken stack.
    pub fn pause(&mut self, now: Instant) -> Result<(), WorkloadError> {
        self.clock.stop(now);
        self.flush()
    }

    /// On the first call: every connection gets a turn, or queues for its due time.
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
            self.io.stack.use_precise_timeouts();
        }
        if self.io.group.plan.visits {
            for conn in self.flows.iter().filter_map(|flow| flow.conn) {
                self.io.stack.stop_telling(conn);
            }
        }
        for index in 0..self.flows.len() as u32 {
            self.switch_to(self.flows[index as usize].group);
            let plan = &self.io.group.plan;
            // Who opens connections itself begins with that.
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
            // Or it would go on for megabytes.
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

    /// Turns of those that are ready, until so many bytes are moved; how many were.
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

    /// Hands over what a stack has gathered: the next run may be long to come.
    fn flush(&mut self) -> Result<(), WorkloadError> {
        self.io.stack.flush().map_err(|error| WorkloadError::Wait {
            doing: "hand over sends",
            error,
        })
    }

    /// Starts what is due in any group; gives the time until the next is.
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

    /// Starts what is due in the group whose turn it is.
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
            // All are busy: it stays due, and the first to be free takes it.
            let Some(index) = self.io.group.waiting.pop_front() else {
                return Ok(Duration::MAX);
            };
            schedule.advance();
            self.flows[index as usize].waiting = false;
            self.start_message(index as usize, due_ns)?;
            self.enqueue(index);
        }
    }

    /// Starts a stream's write, a request, or a `crr` transaction.
    fn start_message(&mut self, index: usize, at_ns: u64) -> Result<(), WorkloadError> {
        match self.io.group.plan.role {
            Role::Stream => {
                self.flows[index].send_left = self.io.group.plan.send_message;
                Ok(())
            }
            Role::RrClient => self.start_request(index, at_ns),
            Role::CrrClient => self.start_transaction(index, at_ns),
            Role::Program => {
                self.start_round(index, at_ns);
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

    /// What a program does that asks nobody: each connection may have something to do, and its call will tell.
    fn visit(&mut self, sleep: Duration) {
        // Two ends in one thread that both wait for a timer; alone a visitor never sleeps.
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

    /// Puts a connection that could start a message to those that wait for a due time.
    #[inline]
    pub(crate) fn wait_for_due(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        if !flow.waiting {
            flow.waiting = true;
            self.io.group.waiting.push_back(index as u32);
        }
    }

    /// One turn; gives the bytes it moved. Inlined by order, as calls of the data path are: with programs beside the five kinds
    /// the compiler would make calls of them, a sixth more instructions for each transaction.
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
            // A connect's own error is told by `connected`, a crr server ignores its peers'.
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
