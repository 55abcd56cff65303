//! A connection's turn: steps that each move bytes, until one has nothing to do or the turn's budget is used up.
//!
//! No service has its own loop, which could run for ever. A step that moves nothing ends the turn, and so does a used-up
//! budget, so that other connections, statistics and signals have their turns.

/// Result of one step of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// The step moved this number of bytes. With 0 the turn ends as with [`Step::Wait`].
    Moved(usize),
    /// There is nothing to do until something happens to the connection.
    Wait,
    /// The connection is over.
    Over,
}

/// How a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The connection waits until something happens to it.
    Wait,
    /// The budget is used up: the connection wants another turn, after the turns of other connections.
    Again,
    /// The connection is over: release it.
    Over,
}

/// Takes steps until one moves nothing, or until at least [`TURN_BYTES`] are moved.
pub fn turn(mut step: impl FnMut() -> Step) -> NextStep {
    let mut left = TURN_BYTES;
    while left > 0 {
        match step() {
            Step::Moved(0) | Step::Wait => return NextStep::Wait,
            Step::Moved(bytes) => left = left.saturating_sub(bytes.max(STEP_LEAST)),
            Step::Over => return NextStep::Over,
        }
    }
    NextStep::Again
}

/// Budget of a turn: about 0.1 ms of a sink's work, like a turn of the study's workloads.
const TURN_BYTES: usize = 256 << 10;
/// Minimum that a step counts, so that a turn has at most 256 steps.
const STEP_LEAST: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks how a turn of equal steps ends, and after how many.
    fn check(step: Step, ends: NextStep, steps: usize) {
        let mut count = 0;
        let ended = turn(|| {
            count += 1;
            step
        });
        assert_eq!((ended, count), (ends, steps), "{step:?}");
    }

    #[test]
    fn a_turn_ends_whatever_its_steps_say() {
        check(Step::Wait, NextStep::Wait, 1);
        check(Step::Over, NextStep::Over, 1);
        check(Step::Moved(0), NextStep::Wait, 1);
        check(Step::Moved(1), NextStep::Again, 256);
        check(Step::Moved(100 << 10), NextStep::Again, 3);
        check(Step::Moved(usize::MAX), NextStep::Again, 1);
    }
}
