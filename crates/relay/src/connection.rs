//! A connection's two sides and two ways: what ends what.
//!
//! An end (FIN) is passed on when the last byte before it was taken, and the other way goes on. If a side breaks off,
//! what it said before still goes to the other, which is then reset, too: neither takes a broken stream for a whole one.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;

use crate::counters::{ConnectionCounters, Ending, Way, WorkerCounters};
use crate::mover::{Flow, FlowState, Mover, Outcome};
use crate::ring::RingFlow;
use crate::side::Side;

/// Where a connection is.
#[derive(Debug)]
pub(crate) enum Phase {
    /// The client's PROXY header has not come whole. Once it is understood: so many bytes of it are still to be passed
    /// over.
    Header(Option<usize>),
    /// An upstream has not answered.
    Connecting,
    /// Both sides are there.
    Open,
}

/// Two sockets and what goes between.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) client: Side,
    pub(crate) server: Option<Side>,
    pub(crate) phase: Phase,
    /// By [`Way`].
    pub(crate) flows: [Flow; 2],
    /// When a byte was last moved, or the phase began.
    pub(crate) since: Instant,
    /// Upstreams that refused.
    pub(crate) tried: Vec<usize>,
    pub(crate) upstream: Option<usize>,
    /// What the client called itself to, for the PROXY header.
    pub(crate) destination: Option<SocketAddr>,
    pub(crate) counters: Arc<ConnectionCounters>,
    /// In the list of those whose turn was over.
    pub(crate) is_queued: bool,
    /// By [`Way`], where io_uring moves bytes.
    pub(crate) ring: [RingFlow; 2],
}

/// What is next for a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event will tell.
    Wait,
    /// There is more, and others have their turn first.
    Again,
    /// It is over.
    Over(Ending),
}

impl Connection {
    /// Moves what can be moved in one turn.
    pub(crate) fn exchange(&mut self, mover: &mut Mover, counters: &WorkerCounters) -> Step {
        let mut step = Step::Wait;
        for way in Way::ALL {
            match self.run(way, mover, counters) {
                Step::Wait => {}
                Step::Again => step = Step::Again,
                over => return over,
            }
        }
        step
    }

    fn run(&mut self, way: Way, mover: &mut Mover, counters: &WorkerCounters) -> Step {
        let Some(server) = &mut self.server else {
            return Step::Wait;
        };
        let (from, to) = match way {
            Way::ToServer => (&mut self.client, server),
            Way::ToClient => (server, &mut self.client),
        };
        let flow = &mut self.flows[way as usize];
        let moved = &self.counters.moved[way as usize];
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
                    return self.on_outcome(way, Outcome::SinkGone(error));
                }
                outcome => return self.on_outcome(way, outcome),
            }
        }
    }

    /// What the end of a way, or of a side, means for the connection.
    pub(crate) fn on_outcome(&mut self, way: Way, outcome: Outcome) -> Step {
        let Some(server) = &mut self.server else {
            return Step::Wait;
        };
        let [to_server, to_client] = &mut self.flows;
        let (flow, back, from, to) = match way {
            Way::ToServer => (to_server, to_client, &mut self.client, server),
            Way::ToClient => (to_client, to_server, server, &mut self.client),
        };
        let is_over = |flow: &Flow| matches!(flow.state, FlowState::Ended | FlowState::Broken);
        match outcome {
            Outcome::Moved(_) | Outcome::Blocked => Step::Wait,
            Outcome::End => {
                flow.state = FlowState::Ended;
                // What a reset left to be read was read, or both ways are over: closing says it.
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
                // What it said before is still to be read.
                to.readable = true;
                flow.state = FlowState::Broken;
                match is_over(back) {
                    true => Step::Over(self.ending()),
                    // It may have had its turn before.
                    false => Step::Again,
                }
            }
        }
    }

    /// Counts what a reset of both sides throws away in the kernel's queues: bytes that were not read, and those that
    /// were given and are not acknowledged. Of unix sockets nothing is thrown away.
    pub(crate) fn count_discarded(&self) {
        let Some(server) = &self.server else {
            return;
        };
        for (way, from, to) in [
            (Way::ToServer, &self.client, server),
            (Way::ToClient, server, &self.client),
        ] {
            let given = if to.is_tcp { to.unacknowledged() } else { 0 };
            let moved = &self.counters.moved[way as usize];
            moved.abandoned.add((from.unread() + given) as u64);
        }
    }

    /// How it ended, now that it has.
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

/// Bytes of a way before others have their turn, by reference: a few of what a send queue takes at once.
const TURN: usize = 1 << 20;
/// Bytes of a way by copy before others have their turn, but one piece at least. Beside 100 flows of bulk a request waits 75 to 110 ms with 1 MiB (p99), 2 ms
/// with 64 KiB, and bulk costs the same (docs/relay.md).
const TURN_COPIED: usize = 64 << 10;
