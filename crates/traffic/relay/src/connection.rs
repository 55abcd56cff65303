//! A connection's two sides and two directions, and which event ends which of them.
//!
//! A FIN is passed on when the last byte before it was taken, and the other direction continues. If
//! a side resets, the bytes that it sent before still go to the other side, which is then reset,
//! too: neither side can take a broken stream for a complete one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::counters::{ConnectionCounters, Direction, Ending, WorkerCounters};
use crate::mover::{Flow, FlowState, Mover, Outcome};
use crate::ring::RingFlow;
use crate::side::Side;

/// Phase of a connection.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The client's PROXY header is incomplete. `Some`: the header is parsed, and this number of
    /// its bytes must still be read and dropped.
    Header(Option<usize>),
    /// The upstream has not answered.
    Connecting,
    /// Both sides are connected.
    Open,
}

/// Two sockets and the two flows between them.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Side,
    pub(crate) server: Option<Side>,
    pub(crate) phase: Phase,
    /// Flows, indexed by [`Direction`].
    pub(crate) flows: [Flow; 2],
    /// Time of the last byte moved, or of the start of the phase.
    pub(crate) since: Instant,
    /// Upstreams that refused this connection.
    pub(crate) tried: Vec<usize>,
    pub(crate) upstream: Option<usize>,
    /// Address that the client connected to, for the PROXY header.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) counters: Arc<ConnectionCounters>,
    /// True while the connection is in the worker's `again` queue.
    pub(crate) is_queued: bool,
    /// State of each flow where io_uring moves bytes, indexed by [`Direction`].
    pub(crate) ring: [RingFlow; 2],
}

/// Next step for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// Wait for an event.
    Wait,
    /// There is more to move, after other connections had their turn.
    Again,
    /// The connection has ended.
    Over(Ending),
}

impl Connection {
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
        let flow = &mut self.flows[direction as usize];
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
        let [to_server, to_client] = &mut self.flows;
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
                from.gone.get_or_insert(error);
                Step::Over(self.ending())
            }
            Outcome::SinkGone(error) => {
                to.gone.get_or_insert(error);
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

    /// Counts the bytes in the kernel's queues that a reset of both sides discards: unread bytes,
    /// and sent bytes that are not acknowledged. A unix socket discards none of the sent bytes.
    pub(crate) fn count_discarded(&self) {
        let Some(server) = &self.server else {
            return;
        };
        for (direction, from, to) in [
            (Direction::ToServer, &self.client, server),
            (Direction::ToClient, server, &self.client),
        ] {
            let given = if to.is_tcp { to.unacknowledged() } else { 0 };
            let moved = &self.counters.moved[direction as usize];
            moved.abandoned.add((from.unread() + given) as u64);
        }
    }

    /// Ending of the connection, by the errors of its sides.
    fn ending(&self) -> Ending {
        let is_reset = |error| matches!(error, Errno::CONNRESET | Errno::PIPE);
        let server = self.server.as_ref().and_then(|server| server.gone);
        match (self.client.gone, server) {
            (Some(error), _) if is_reset(error) => Ending::ClientReset,
            (Some(_), _) => Ending::ClientLost,
            (None, Some(error)) if is_reset(error) => Ending::ServerReset,
            (None, Some(_)) => Ending::ServerLost,
            (None, None) => Ending::Finished,
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
