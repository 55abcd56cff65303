//! A connection's two sides and two directions, and which event ends which of them.
//!
//! A FIN is passed on when the last byte before it was taken, and the other direction continues. If
//! a side resets, the bytes that it sent before still go to the other side, which is then reset,
//! too: neither side can take a broken stream for a complete one.

use super::Kernel;
use crate::counters::{Direction, WorkerCounters};
use crate::mover::{Flow, FlowState, Mover, Outcome};
use crate::worker::{Connection, Step};

impl Connection<Kernel> {
    /// Moves bytes in both directions, up to the limit of a turn.
    pub(crate) fn exchange(&mut self, mover: &mut Mover, counters: &WorkerCounters) -> Step {
        let mut step = Step::Wait;
        for direction in Direction::ALL {
            match self.run(direction, mover, counters) {
                Step::Wait => {}
                Step::Again => step = Step::Again,
                over => return over,
            }
        }
        step
    }

    fn run(&mut self, direction: Direction, mover: &mut Mover, counters: &WorkerCounters) -> Step {
        let Some(server) = &mut self.server else {
            return Step::Wait;
        };
        let (from, to) = match direction {
            Direction::ToServer => (&mut self.client, server),
            Direction::ToClient => (server, &mut self.client),
        };
        let flow = &mut self.flows.moved[direction as usize];
        let moved = &self.counters.moved[direction as usize];
        let copied_before = moved.copied.get();
        let mut turn = 0;
        loop {
            if matches!(flow.state, FlowState::Ended | FlowState::Broken) {
                return Step::Wait;
            }
            match mover.advance(flow, from, to, moved, counters) {
                Outcome::Moved(bytes) => {
                    self.since = mover.now;
                    turn += bytes;
                    let copied = (moved.copied.get() - copied_before) as usize;
                    if turn >= TURN || copied > 0 && copied + mover.piece() > TURN_COPIED {
                        return match flow.may_go_on(from, to) {
                            true => Step::Again,
                            false => Step::Wait,
                        };
                    }
                }
                Outcome::Blocked => return Step::Wait,
                Outcome::SinkGone(error) => {
                    mover.abandon(flow, moved);
                    return self.on_outcome(direction, Outcome::SinkGone(error));
                }
                outcome => return self.on_outcome(direction, outcome),
            }
        }
    }

    /// Applies the outcome of a flow to the connection.
    pub(crate) fn on_outcome(&mut self, direction: Direction, outcome: Outcome) -> Step {
        let Some(server) = &mut self.server else {
            return Step::Wait;
        };
        let [to_server, to_client] = &mut self.flows.moved;
        let (flow, back, from, to) = match direction {
            Direction::ToServer => (to_server, to_client, &mut self.client, server),
            Direction::ToClient => (to_client, to_server, server, &mut self.client),
        };
        let is_over = |flow: &Flow| matches!(flow.state, FlowState::Ended | FlowState::Broken);
        match outcome {
            Outcome::Moved(_) | Outcome::Blocked => Step::Wait,
            Outcome::End => {
                flow.state = FlowState::Ended;
                // If the source was reset, all that it left was read; otherwise both flows have
                // ended. Closing the sockets passes the end on.
                if from.gone.is_some() || is_over(back) {
                    return Step::Over(self.ending());
                }
                to.finish();
                Step::Wait
            }
            Outcome::SourceGone(error) => {
                from.gone.get_or_insert(error.kind());
                Step::Over(self.ending())
            }
            Outcome::SinkGone(error) => {
                to.gone.get_or_insert(error.kind());
                // Bytes that the sink sent before must still be read.
                to.readable = true;
                flow.state = FlowState::Broken;
                match is_over(back) {
                    true => Step::Over(self.ending()),
                    // The other flow may have had its turn before.
                    false => Step::Again,
                }
            }
        }
    }
}

/// Bytes that a flow moves by reference before other flows have their turn: a few times what a send
/// queue takes at once.
const TURN: usize = 1 << 20;
/// Bytes that a flow copies before other flows have their turn; at least one piece. Next to 100
/// bulk flows a request waits 75 to 110 ms with 1 MiB (p99) and 2 ms with 64 KiB, and bulk costs
/// the same (docs/relay.md).
const TURN_COPIED: usize = 64 << 10;
