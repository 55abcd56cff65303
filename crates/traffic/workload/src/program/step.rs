//! One instruction of a program, for every executor: a worker's turn, which never waits in a call,
//! and a thread with a flow of its own, which does.

use tcpcost_knobs::MessageSize;

use super::{Instruction, Running, Timed};
use crate::operation_times::OperationTimes;

/// Outcome of an instruction.
pub(crate) enum Step {
    /// Done; the next instruction follows.
    Next,
    /// The instruction at this index follows.
    To(u32),
    /// Waits for the connection or for a time. The instruction is then executed again.
    Waits,
    /// Has more to do, after other connections had their turns.
    Yields,
    /// The operation failed and is allowed to: the program begins again with a new connection.
    BeginsAgain,
    /// The connection is closed, and this side's program with it.
    Ended,
}

/// Executor of the program of one flow.
pub(crate) trait Executor {
    type Error;

    /// State of the flow in its program.
    fn running(&mut self) -> &mut Running;

    fn now_ns(&self) -> u64;

    /// Durations of the group's operations.
    fn operations(&self) -> &OperationTimes;

    /// Handles the error of an operation.
    fn failed(&mut self, error: Self::Error) -> Result<Step, Self::Error>;

    fn send(&mut self, size: MessageSize, source: u8, conn: u8) -> Result<Step, Self::Error>;

    fn receive(&mut self, size: MessageSize, sink: u8, conn: u8) -> Result<Step, Self::Error>;

    fn connect(&mut self) -> Result<Step, Self::Error>;

    fn close(&mut self) -> Result<Step, Self::Error>;

    /// Waits for the end of the stream, and closes.
    fn await_end(&mut self) -> Result<Step, Self::Error>;

    /// Keeps the CPU busy.
    fn think(&mut self, time_ns: u64) -> Result<Step, Self::Error>;

    fn wait_until(&mut self, until_ns: u64, now_ns: u64) -> Result<Step, Self::Error>;

    /// True if rounds begin at a fixed rate.
    fn has_schedule(&self) -> bool;

    /// Waits until the next round is due, and starts it.
    fn wait_for_round(&mut self) -> Result<Step, Self::Error>;

    /// Counts a round that took so long, without thinking and sleeping.
    fn end_round(&mut self, took_ns: u64);

    /// Executes an instruction. `now_ns`: a clock read that serves as the end of an operation or
    /// round and as the start of the next one.
    #[inline]
    fn step(
        &mut self,
        instruction: Instruction,
        now_ns: &mut Option<u64>,
    ) -> Result<Step, Self::Error> {
        match instruction {
            Instruction::Send {
                size,
                source,
                conn,
                timed,
            } => self.timed(timed, now_ns, |flow| flow.send(size, source, conn)),
            Instruction::Receive {
                size,
                sink,
                conn,
                timed,
            } => self.timed(timed, now_ns, |flow| flow.receive(size, sink, conn)),
            Instruction::Connect { timed } => self.timed(timed, now_ns, Self::connect),
            Instruction::Close { timed } => self.timed(timed, now_ns, Self::close),
            Instruction::AwaitEnd { timed } => self.timed(timed, now_ns, Self::await_end),
            Instruction::Think(time_ns) => {
                *now_ns = None;
                self.think(time_ns)
            }
            Instruction::Sleep(time_ns) => {
                *now_ns = None;
                self.sleep(time_ns)
            }
            Instruction::Pace { slot, period_ns } => {
                *now_ns = None;
                self.pace(usize::from(slot), period_ns)
            }
            Instruction::Round => self.begin_round(now_ns),
            Instruction::Done => {
                let at_ns = *now_ns.get_or_insert_with(|| self.now_ns());
                let running = self.running();
                let took_ns = at_ns.saturating_sub(running.started_ns);
                let took_ns = took_ns.saturating_sub(running.idle_ns);
                self.end_round(took_ns);
                Ok(Step::Next)
            }
            Instruction::Begin { slot, passes } => {
                let running = self.running();
                running.passes[usize::from(slot)] = passes;
                running.due_ns[usize::from(slot)] = 0;
                Ok(Step::Next)
            }
            Instruction::BeginFor(time_ns) => {
                let at_ns = *now_ns.get_or_insert_with(|| self.now_ns());
                self.running().until_ns = at_ns.saturating_add(time_ns);
                Ok(Step::Next)
            }
            Instruction::Again { slot, to } => {
                let left = &mut self.running().passes[usize::from(slot)];
                *left -= 1;
                Ok(if *left > 0 { Step::To(to) } else { Step::Next })
            }
            Instruction::AgainFor { to } => {
                let at_ns = *now_ns.get_or_insert_with(|| self.now_ns());
                let has_time = at_ns < self.running().until_ns;
                Ok(if has_time { Step::To(to) } else { Step::Next })
            }
            Instruction::Jump { to } => Ok(Step::To(to)),
        }
    }

    /// Executes an operation, and records how long it took if it is timed.
    #[inline]
    fn timed(
        &mut self,
        timed: Timed,
        now_ns: &mut Option<u64>,
        operation: impl FnOnce(&mut Self) -> Result<Step, Self::Error>,
    ) -> Result<Step, Self::Error> {
        let at_ns = now_ns.take();
        if timed.is_some() && self.running().operation_ns == 0 {
            let at_ns = at_ns.unwrap_or_else(|| self.now_ns());
            // 0 means no operation.
            self.running().operation_ns = at_ns.max(1);
        }
        let step = match operation(self) {
            Ok(step) => step,
            Err(error) => self.failed(error)?,
        };
        match (&step, timed) {
            (Step::Next | Step::Ended, Some(number)) => {
                let at_ns = self.now_ns();
                let began_ns = std::mem::take(&mut self.running().operation_ns);
                let took_ns = at_ns.saturating_sub(began_ns);
                self.operations().record(number, took_ns);
                *now_ns = Some(at_ns);
            }
            (Step::BeginsAgain, _) => {
                self.operations().fail(timed);
                self.running().operation_ns = 0;
            }
            _ => {}
        }
        Ok(step)
    }

    fn sleep(&mut self, time_ns: u64) -> Result<Step, Self::Error> {
        let now_ns = self.now_ns();
        let running = self.running();
        let until_ns = match running.begun {
            true => running.pause_ns,
            false => now_ns.saturating_add(time_ns),
        };
        self.wait_until(until_ns, now_ns)
    }

    /// Waits until the pass of a loop is due.
    fn pace(&mut self, slot: usize, period_ns: u64) -> Result<Step, Self::Error> {
        let now_ns = self.now_ns();
        let due_ns = match self.running().due_ns[slot] {
            0 => now_ns,
            due_ns => due_ns,
        };
        let step = self.wait_until(due_ns, now_ns)?;
        if let Step::Next = step {
            self.running().due_ns[slot] = due_ns.saturating_add(period_ns);
        }
        Ok(step)
    }

    #[inline]
    fn begin_round(&mut self, now_ns: &mut Option<u64>) -> Result<Step, Self::Error> {
        if self.has_schedule() {
            *now_ns = None;
            return match self.running().begun {
                true => Ok(Step::Next),
                false => self.wait_for_round(),
            };
        }
        let at_ns = *now_ns.get_or_insert_with(|| self.now_ns());
        self.running().start_round(at_ns);
        Ok(Step::Next)
    }
}
