//! `program`: a turn of a connection that runs a program.

use std::time::Duration;

use tcpcost_knobs::{MessageSize, Side};
use tcpcost_stack::Stack;

use crate::error::WorkloadError;
use crate::flow::State;
use crate::io::{Received, TURN_BYTES};
use crate::program::{Instruction, Running, Timed, draw};
use crate::stream::peer_closed;
use crate::worker::Worker;

/// Limit of instructions in one turn: instructions that move no bytes cost little, and other
/// connections wait.
const TURN_STEPS: usize = 256;

/// Outcome of an instruction.
enum Step {
    /// Done; the next instruction follows.
    Next,
    /// The instruction at this index follows.
    To(u32),
    /// Waits for the connection or for a time.
    Waits,
    /// Has more to do, after other connections had their turns.
    Yields,
    /// The connection is closed, and this side's program with it.
    Ended,
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

    /// Starts a round that is due.
    pub(crate) fn start_round(&mut self, index: usize, at_ns: u64) {
        let running = &mut self.running[index];
        running.started_ns = at_ns;
        running.idle_ns = 0;
        running.begun = true;
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
        let mut moved = 0;
        let plan = &self.io.group.plan;
        if plan.side == Side::Listens && self.flows[index].conn.is_none() {
            return Ok(0);
        }
        // Bytes on any of the flow's connections concern the program of the first one.
        let index = self.running[index].head as usize;
        // One clock read serves as the end of a round and the start of the next one.
        let mut now_ns = None;
        for _ in 0..TURN_STEPS {
            let instruction = self.io.group.code.at(self.running[index].at);
            match self.step(index, instruction, &mut moved, &mut now_ns)? {
                Step::Next => self.go_to(index, self.running[index].at + 1),
                Step::To(at) => self.go_to(index, at),
                Step::Waits | Step::Ended => return Ok(moved),
                Step::Yields => break,
            }
        }
        self.enqueue(index as u32);
        Ok(moved)
    }

    fn go_to(&mut self, index: usize, at: u32) {
        let running = &mut self.running[index];
        running.at = at;
        running.begun = false;
    }

    fn step(
        &mut self,
        index: usize,
        instruction: Instruction,
        moved: &mut usize,
        now_ns: &mut Option<u64>,
    ) -> Result<Step, WorkloadError> {
        let running = &mut self.running[index];
        match instruction {
            Instruction::Send {
                size,
                source,
                conn,
                timed,
            } => {
                self.begin_operation(index, timed, now_ns);
                let step = self.send_step(index, conn, size, source, moved);
                self.end_operation(index, timed, now_ns, step)
            }
            Instruction::Receive {
                size,
                sink,
                conn,
                timed,
            } => {
                self.begin_operation(index, timed, now_ns);
                let step = self.receive_step(index, conn, size, sink, moved);
                self.end_operation(index, timed, now_ns, step)
            }
            Instruction::Connect { timed } => {
                self.begin_operation(index, timed, now_ns);
                let step = self.connect_step(index);
                self.end_operation(index, timed, now_ns, step)
            }
            Instruction::Close { timed } => {
                self.begin_operation(index, timed, now_ns);
                self.close_step(index);
                let step = Ok(self.after_close());
                self.end_operation(index, timed, now_ns, step)
            }
            Instruction::AwaitEnd { timed } => {
                self.begin_operation(index, timed, now_ns);
                let step = self.end_step(index);
                self.end_operation(index, timed, now_ns, step)
            }
            Instruction::Think(time_ns) => {
                *now_ns = None;
                let (is_done, bytes) = running.think(time_ns);
                *moved += bytes;
                Ok(if is_done { Step::Next } else { Step::Yields })
            }
            Instruction::Sleep(time_ns) => {
                *now_ns = None;
                let now_ns = self.clock.now_ns();
                let until_ns = match running.begun {
                    true => running.pause_ns,
                    false => now_ns.saturating_add(time_ns),
                };
                Ok(self.wait_until(index, until_ns, now_ns))
            }
            Instruction::Pace { slot, period_ns } => {
                *now_ns = None;
                let now_ns = self.clock.now_ns();
                let due_ns = match running.due_ns[usize::from(slot)] {
                    0 => now_ns,
                    due_ns => due_ns,
                };
                let step = self.wait_until(index, due_ns, now_ns);
                if let Step::Next = step {
                    self.running[index].due_ns[usize::from(slot)] =
                        due_ns.saturating_add(period_ns);
                }
                Ok(step)
            }
            Instruction::Round => {
                if self.io.group.schedule.is_none() {
                    let at_ns = *now_ns.get_or_insert_with(|| self.clock.now_ns());
                    self.start_round(index, at_ns);
                } else if !running.begun {
                    self.wait_for_due(index);
                    return Ok(Step::Waits);
                }
                Ok(Step::Next)
            }
            Instruction::Done => {
                let at_ns = *now_ns.get_or_insert_with(|| self.clock.now_ns());
                let group = &mut *self.io.group;
                if let Some(responses) = &mut group.responses {
                    let took_ns = at_ns.saturating_sub(running.started_ns);
                    responses.saturating_record(took_ns.saturating_sub(running.idle_ns));
                }
                group.tally.transactions += 1;
                Ok(Step::Next)
            }
            Instruction::Begin { slot, passes } => {
                running.passes[usize::from(slot)] = passes;
                running.due_ns[usize::from(slot)] = 0;
                Ok(Step::Next)
            }
            Instruction::BeginFor(time_ns) => {
                let at_ns = *now_ns.get_or_insert_with(|| self.clock.now_ns());
                running.until_ns = at_ns.saturating_add(time_ns);
                Ok(Step::Next)
            }
            Instruction::Again { slot, to } => {
                let left = &mut running.passes[usize::from(slot)];
                *left -= 1;
                Ok(if *left > 0 { Step::To(to) } else { Step::Next })
            }
            Instruction::AgainFor { to } => {
                let at_ns = *now_ns.get_or_insert_with(|| self.clock.now_ns());
                Ok(if at_ns < running.until_ns {
                    Step::To(to)
                } else {
                    Step::Next
                })
            }
            Instruction::Jump { to } => Ok(Step::To(to)),
        }
    }

    /// Notes the start of a timed operation. The clock read at the end of the operation before is
    /// used if there is one.
    fn begin_operation(&mut self, index: usize, timed: Timed, now_ns: &mut Option<u64>) {
        let running = &mut self.running[index];
        if timed.is_some() && running.operation_ns == 0 {
            let at_ns = now_ns.unwrap_or_else(|| self.clock.now_ns());
            // 0 means no operation.
            running.operation_ns = at_ns.max(1);
        }
        *now_ns = None;
    }

    fn end_operation(
        &mut self,
        index: usize,
        timed: Timed,
        now_ns: &mut Option<u64>,
        step: Result<Step, WorkloadError>,
    ) -> Result<Step, WorkloadError> {
        let group = &*self.io.group;
        let began_ns = &mut self.running[index].operation_ns;
        match (&step, timed) {
            (Ok(Step::Next | Step::Ended), Some(operation)) => {
                let at_ns = self.clock.now_ns();
                group
                    .operations
                    .record(operation, at_ns.saturating_sub(*began_ns));
                *began_ns = 0;
                *now_ns = Some(at_ns);
            }
            (Ok(Step::To(_)), _) => {
                // The operation failed and is allowed to.
                group.operations.fail(timed);
                *began_ns = 0;
            }
            _ => {}
        }
        step
    }

    fn send_step(
        &mut self,
        index: usize,
        conn: u8,
        size: MessageSize,
        source: u8,
        moved: &mut usize,
    ) -> Result<Step, WorkloadError> {
        let running = &mut self.running[index];
        let (io, flow) = (&mut self.io, &mut self.flows[running.place(conn)]);
        io.group.use_source(source);
        if !running.begun {
            running.begun = true;
            flow.send_left = running.size(size);
            io.cork(flow, true)?;
        }
        while flow.send_left > 0 && flow.writable && *moved < TURN_BYTES {
            *moved += match io.send_by_call(flow) {
                Ok(bytes) => bytes,
                Err(error) => return self.broken(index, error),
            };
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

    fn receive_step(
        &mut self,
        index: usize,
        conn: u8,
        size: MessageSize,
        sink: u8,
        moved: &mut usize,
    ) -> Result<Step, WorkloadError> {
        let running = &mut self.running[index];
        let at = running.place(conn);
        let (io, flow) = (&mut self.io, &mut self.flows[at]);
        io.group.use_sink(sink);
        if !running.begun {
            running.begun = true;
            flow.receive_left = running.size(size);
        }
        // Bytes received ahead belong to the connection that they came on.
        let running = &mut self.running[at];
        running.take(&mut flow.receive_left, 0);
        while flow.receive_left > 0 && flow.readable && *moved < TURN_BYTES {
            match io.receive_by_call(flow) {
                Ok(Received::Bytes(bytes)) => {
                    *moved += bytes;
                    running.take(&mut flow.receive_left, bytes as u64);
                }
                Ok(Received::Nothing) => {}
                Ok(Received::End | Received::Stranger) => {
                    let error = peer_closed(flow);
                    return self.broken(index, error);
                }
                Err(error) => return self.broken(index, error),
            }
        }
        Ok(match flow.receive_left {
            0 => Step::Next,
            _ if flow.readable => Step::Yields,
            _ => Step::Waits,
        })
    }

    /// Handles an error. At the listening side, a connection that need not stay open ends when its
    /// peer has gone, as at the end of a `for` loop and of a trial; if that was wrong, the peer
    /// reports the error.
    fn broken(&mut self, index: usize, error: WorkloadError) -> Result<Step, WorkloadError> {
        let plan = &self.io.group.plan;
        let is_ours = matches!(
            error,
            WorkloadError::Mismatch { .. } | WorkloadError::Unasked { .. }
        );
        if plan.can_fail && !is_ours {
            return Ok(self.begin_again(index));
        }
        if plan.stands || plan.side == Side::Connects || is_ours {
            return Err(error);
        }
        self.close_step(index);
        Ok(Step::Ended)
    }

    /// Begins the program again with a new connection, after a failure that is allowed.
    fn begin_again(&mut self, index: usize) -> Step {
        let flow = &mut self.flows[index];
        flow.state = State::Idle;
        if let Some(conn) = flow.conn.take() {
            self.io.stack.abort(conn);
        }
        Step::To(0)
    }

    fn connect_step(&mut self, index: usize) -> Result<Step, WorkloadError> {
        let flow = &mut self.flows[index];
        if flow.conn.is_none() {
            let connection = flow.connection;
            return match self.connect_flow(index) {
                Ok(()) => Ok(Step::Waits),
                Err(_) if self.io.group.plan.can_fail => Ok(self.begin_again(index)),
                Err(error) => Err(WorkloadError::Connect { connection, error }),
            };
        }
        if !flow.writable {
            return Ok(Step::Waits);
        }
        if self.io.group.plan.can_fail
            && let Some(conn) = flow.conn
            && self.io.stack.connected(conn).is_err()
        {
            return Ok(self.begin_again(index));
        }
        let flow = &mut self.flows[index];
        // If the connect failed, the first call on the connection returns its error.
        flow.state = State::Open;
        self.running[index].ahead = 0;
        self.io.group.tally.connections_opened += 1;
        Ok(Step::Next)
    }

    /// Waits for the end of the stream, and closes.
    fn end_step(&mut self, index: usize) -> Result<Step, WorkloadError> {
        let (io, flow) = (&mut self.io, &mut self.flows[index]);
        flow.state = State::Closing;
        while flow.readable {
            match io.receive_by_call(flow) {
                Ok(Received::Bytes(_)) => {
                    return Err(WorkloadError::Unasked {
                        connection: flow.connection,
                    });
                }
                Ok(Received::Nothing) => {}
                Ok(Received::End | Received::Stranger) => {
                    self.close_step(index);
                    return Ok(self.after_close());
                }
                Err(error) => return self.broken(index, error),
            }
        }
        Ok(Step::Waits)
    }

    fn close_step(&mut self, index: usize) {
        let flow = &mut self.flows[index];
        let Some(conn) = flow.conn else {
            return;
        };
        if self.io.group.plan.side == Side::Listens {
            self.end_transaction(index, conn);
        } else {
            flow.conn = None;
            flow.state = State::Idle;
            self.io.stack.close(conn);
        }
    }

    /// After a close the connecting side continues and connects again; the listening side is done
    /// with this connection.
    fn after_close(&self) -> Step {
        match self.io.group.plan.side {
            Side::Connects => Step::Next,
            Side::Listens => Step::Ended,
        }
    }

    fn wait_until(&mut self, index: usize, until_ns: u64, now_ns: u64) -> Step {
        let running = &mut self.running[index];
        if !running.begun {
            if now_ns >= until_ns {
                return Step::Next;
            }
            running.begun = true;
            running.pause_ns = until_ns;
            running.paused_at_ns = now_ns;
            self.sleepers.sleep(index as u32, until_ns);
        }
        if now_ns < until_ns {
            return Step::Waits;
        }
        running.idle_ns += now_ns.saturating_sub(running.paused_at_ns);
        Step::Next
    }
}
