//! `program`: a turn of a connection that runs a program.

use std::time::Duration;

use tcpcost_knobs::{MessageSize, Side};
use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::flow::State;
use crate::io::{Received, TURN_BYTES, failed};
use crate::operation_times::OperationTimes;
use crate::program::{Executor, Running, Step, draw};
use crate::stream::peer_closed;
use crate::worker::Worker;

/// Limit of instructions in one turn: instructions that move no bytes cost little, and other
/// connections wait.
const TURN_STEPS: usize = 256;

/// One turn of a flow.
struct Turn<'a, S: Stack> {
    worker: &'a mut Worker<S>,
    /// Index of the flow's first connection.
    index: usize,
    /// Bytes moved, and what thinking counts as.
    moved: usize,
}

impl<S: Stack> Worker<S> {
    /// Begins the program of a new connection of the current group.
    pub(crate) fn begin_program(&mut self, index: usize) {
        if self.io.group.code.is_empty() {
            return;
        }
        if self.running.len() < self.flows.len() {
            let room = self.flows.capacity() - self.running.len();
            self.running.reserve(room);
            self.running.resize(self.flows.len(), Running::default());
            self.sleepers.reserve(room);
        }
        let mut seed = self.sizes_seed ^ (u64::from(self.group) << 32);
        seed = draw(&mut seed) ^ u64::from(self.flows[index].connection);
        self.running[index] = Running::new(index, draw(&mut seed));
    }

    /// Wakes connections whose time has come. Returns the time until the next one's.
    pub(crate) fn wake(&mut self, now_ns: u64) -> Duration {
        while let Some(index) = self.sleepers.wake(now_ns) {
            self.enqueue(index);
        }
        match self.sleepers.next_ns() {
            Some(next_ns) => Duration::from_nanos(next_ns.saturating_sub(now_ns)),
            None => Duration::MAX,
        }
    }

    #[inline(never)]
    pub(crate) fn program_turn(&mut self, index: usize) -> Result<usize, WorkloadError> {
        let plan = &self.io.group.plan;
        if plan.side == Side::Listens && self.flows[index].conn.is_none() {
            return Ok(0);
        }
        // Bytes on any of the flow's connections concern the program of the first one.
        let index = self.running[index].head as usize;
        let mut turn = Turn {
            worker: self,
            index,
            moved: 0,
        };
        let is_over = turn.run()?;
        let moved = turn.moved;
        if !is_over {
            self.enqueue(index as u32);
        }
        Ok(moved)
    }
}

impl<S: Stack> Turn<'_, S> {
    /// Executes instructions up to the limit of a turn. True if the program waits or has ended.
    fn run(&mut self) -> Result<bool, WorkloadError> {
        let mut now_ns = None;
        for _ in 0..TURN_STEPS {
            let at = self.running().at;
            let instruction = self.worker.io.group.code.at(at);
            match self.step(instruction, &mut now_ns)? {
                Step::Next => self.running().go_to(at + 1),
                Step::To(at) => self.running().go_to(at),
                Step::BeginsAgain => self.running().go_to(0),
                Step::Waits | Step::Ended => return Ok(true),
                Step::Yields => break,
            }
        }
        Ok(false)
    }
}

impl<S: Stack> Executor for Turn<'_, S> {
    type Error = WorkloadError;

    #[inline]
    fn running(&mut self) -> &mut Running {
        &mut self.worker.running[self.index]
    }

    #[inline]
    fn now_ns(&self) -> u64 {
        self.worker.clock.now_ns()
    }

    #[inline]
    fn operations(&self) -> &OperationTimes {
        &self.worker.io.group.operations
    }

    /// At the listening side, a connection that need not stay open ends when its peer has gone, as
    /// at the end of a `for` loop and of a trial; if that was wrong, the peer reports the error.
    fn failed(&mut self, error: WorkloadError) -> Result<Step, WorkloadError> {
        let plan = &self.worker.io.group.plan;
        let is_ours = matches!(
            error,
            WorkloadError::Mismatch { .. } | WorkloadError::Unasked { .. }
        );
        if plan.can_fail && !is_ours {
            let flow = &mut self.worker.flows[self.index];
            flow.state = State::Idle;
            if let Some(conn) = flow.conn.take() {
                self.worker.io.stack.abort(conn);
            }
            return Ok(Step::BeginsAgain);
        }
        if plan.stands || plan.side == Side::Connects || is_ours {
            return Err(error);
        }
        self.close()?;
        Ok(Step::Ended)
    }

    fn send(&mut self, size: MessageSize, source: u8, conn: u8) -> Result<Step, WorkloadError> {
        let worker = &mut *self.worker;
        let (io, running) = (&mut worker.io, &mut worker.running[self.index]);
        let flow = &mut worker.flows[running.place(conn)];
        io.group.use_source(source);
        if !running.begun {
            running.begun = true;
            flow.send_left = running.size(size);
            io.cork(flow, true)?;
        }
        while flow.send_left > 0 && flow.writable && self.moved < TURN_BYTES {
            self.moved += io.send_by_call(flow)?;
        }
        if flow.send_left > 0 {
            return Ok(match flow.writable {
                true => Step::Yields,
                false => Step::Waits,
            });
        }
        io.cork(flow, false)?;
        Ok(Step::Next)
    }

    fn receive(&mut self, size: MessageSize, sink: u8, conn: u8) -> Result<Step, WorkloadError> {
        let worker = &mut *self.worker;
        let running = &mut worker.running[self.index];
        let at = running.place(conn);
        let (io, flow) = (&mut worker.io, &mut worker.flows[at]);
        io.group.use_sink(sink);
        if !running.begun {
            running.begun = true;
            flow.receive_left = running.size(size);
        }
        // Bytes received ahead belong to the connection that they came on.
        let running = &mut worker.running[at];
        running.take(&mut flow.receive_left, 0);
        while flow.receive_left > 0 && flow.readable && self.moved < TURN_BYTES {
            match io.receive_by_call(flow)? {
                Received::Bytes(bytes) => {
                    self.moved += bytes;
                    running.take(&mut flow.receive_left, bytes as u64);
                }
                Received::Nothing => {}
                Received::End | Received::Stranger => return Err(peer_closed(flow)),
            }
        }
        Ok(match flow.receive_left {
            0 => Step::Next,
            _ if flow.readable => Step::Yields,
            _ => Step::Waits,
        })
    }

    fn connect(&mut self) -> Result<Step, WorkloadError> {
        let (worker, index) = (&mut *self.worker, self.index);
        let flow = &mut worker.flows[index];
        let connection = flow.connection;
        let Some(conn) = flow.conn else {
            let begun = worker.connect_flow(index);
            begun.map_err(|error| WorkloadError::Connect { connection, error })?;
            return Ok(Step::Waits);
        };
        if !flow.writable {
            return Ok(Step::Waits);
        }
        // Otherwise the first call on the connection returns the error.
        if worker.io.group.plan.can_fail {
            let connected = worker.io.stack.connected(conn);
            connected.map_err(failed(flow, "connect"))?;
        }
        flow.state = State::Open;
        worker.running[index].ahead = 0;
        worker.io.group.tally.connections_opened += 1;
        Ok(Step::Next)
    }

    /// Closes. The connecting side then continues and connects again; the listening side is done
    /// with this connection.
    fn close(&mut self) -> Result<Step, WorkloadError> {
        let (worker, index) = (&mut *self.worker, self.index);
        let side = worker.io.group.plan.side;
        let flow = &mut worker.flows[index];
        if let Some(conn) = flow.conn {
            if side == Side::Listens {
                worker.end_transaction(index, conn);
            } else {
                flow.conn = None;
                flow.state = State::Idle;
                worker.io.stack.close(conn);
            }
        }
        Ok(match side {
            Side::Connects => Step::Next,
            Side::Listens => Step::Ended,
        })
    }

    fn await_end(&mut self) -> Result<Step, WorkloadError> {
        let (io, flow) = (&mut self.worker.io, &mut self.worker.flows[self.index]);
        flow.state = State::Closing;
        while flow.readable {
            match io.receive_by_call(flow)? {
                Received::Bytes(_) => {
                    let connection = flow.connection;
                    return Err(WorkloadError::Unasked { connection });
                }
                Received::Nothing => {}
                Received::End | Received::Stranger => return self.close(),
            }
        }
        Ok(Step::Waits)
    }

    fn think(&mut self, time_ns: u64) -> Result<Step, WorkloadError> {
        let (is_done, bytes) = self.running().think(time_ns);
        self.moved += bytes;
        Ok(if is_done { Step::Next } else { Step::Yields })
    }

    fn wait_until(&mut self, until_ns: u64, now_ns: u64) -> Result<Step, WorkloadError> {
        let running = &mut self.worker.running[self.index];
        if !running.begun {
            if now_ns >= until_ns {
                return Ok(Step::Next);
            }
            running.begun = true;
            running.pause_ns = until_ns;
            running.paused_at_ns = now_ns;
            self.worker.sleepers.sleep(self.index as u32, until_ns);
        }
        if now_ns < until_ns {
            return Ok(Step::Waits);
        }
        running.idle_ns += now_ns.saturating_sub(running.paused_at_ns);
        Ok(Step::Next)
    }

    fn has_schedule(&self) -> bool {
        self.worker.io.group.schedule.is_some()
    }

    fn wait_for_round(&mut self) -> Result<Step, WorkloadError> {
        self.worker.wait_for_due(self.index);
        Ok(Step::Waits)
    }

    #[inline]
    fn end_round(&mut self, took_ns: u64) {
        let group = &mut *self.worker.io.group;
        if let Some(responses) = &mut group.responses {
            responses.saturating_record(took_ns);
        }
        group.tally.transactions += 1;
    }
}
