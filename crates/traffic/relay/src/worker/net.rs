//! TCP of a worker: what the kernel's TCP and our own do differently. The loop calls the rest.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Worker;
use crate::address::Address;
use crate::config::Config;
use crate::counters::{ConnectionCounters, Ending, WorkerCounters};

/// TCP of a worker: its sockets, how it waits, and how it moves bytes.
pub(crate) trait Net: Sized {
    /// One of the two sockets of a connection.
    type Side;
    /// State of a connection's two flows.
    type Flows;
    /// Room for the events of a wait, which stays on the worker's thread.
    type Events: Default;

    /// Waits for events, at most for `timeout`, and calls [`Worker::accept`] and
    /// [`Worker::serve`] for each. Returns their number.
    fn wait(
        worker: &mut Worker<Self>,
        timeout: Option<Duration>,
        events: &mut Self::Events,
    ) -> io::Result<usize>;

    /// True if there is work that needs no event.
    fn has_work(&self) -> bool {
        false
    }

    /// Number of listeners.
    fn listeners(&self) -> usize;

    fn close_listeners(&mut self);

    /// Reports connections that wait to be accepted, or reports them no longer.
    fn set_accepting(&mut self, accepts: bool) -> io::Result<()>;

    /// Accepts a connection, and reports its events with this index.
    fn accept(
        &mut self,
        listener: usize,
        index: usize,
    ) -> io::Result<(Self::Side, Option<SocketAddr>)>;

    /// Begins to connect, and reports events with this index.
    fn connect(
        &mut self,
        to: &Address,
        index: usize,
        config: &Config,
    ) -> Result<Self::Side, ConnectError>;

    /// Progress of a connect.
    fn progress(&mut self, connection: &Connection<Self>) -> Progress;

    /// Begins to relay: both sides are connected.
    fn open(
        &mut self,
        _index: usize,
        _connection: &mut Connection<Self>,
        _config: &Config,
    ) -> Result<(), Ending> {
        Ok(())
    }

    /// Moves bytes in both directions, up to the limit of a turn.
    fn exchange(
        &mut self,
        index: usize,
        connection: &mut Connection<Self>,
        counters: &WorkerCounters,
        now: Instant,
    ) -> Step;

    /// Reads the client's PROXY header. `left`: bytes of it that are known to follow.
    fn read_header(worker: &mut Worker<Self>, index: usize, _left: Option<usize>) {
        worker.end(index, Ending::BadHeader);
    }

    /// State of the flows of a new connection.
    fn flows(&self) -> Self::Flows;

    /// Address that a client connected to.
    fn local_addr(_side: &Self::Side) -> Option<SocketAddr> {
        None
    }

    /// Error of a call that showed that the side is gone.
    fn gone(side: &Self::Side) -> Option<ErrorKind>;

    /// Bytes in the receive queue that were not read.
    fn unread(&self, side: &Self::Side) -> usize;

    /// Bytes that a reset of the side would discard: sent and not acknowledged.
    fn unacknowledged(&self, side: &Self::Side) -> usize;

    /// Drops bytes that were read and not sent, and counts them as abandoned.
    fn abandon(&mut self, _connection: &mut Connection<Self>) {}

    /// Releases an ended connection. `None` if it is kept until its operations in flight are over.
    fn release(
        &mut self,
        _index: usize,
        connection: Box<Connection<Self>>,
        _ending: Ending,
    ) -> Option<Box<Connection<Self>>> {
        Some(connection)
    }

    fn close(&mut self, side: Self::Side);

    /// Closes with a RST.
    fn reset(&mut self, side: Self::Side);

    /// True if nothing is left to send of connections that were closed.
    fn is_idle(&self) -> bool {
        true
    }

    /// Sets the counters that only the TCP knows.
    fn publish(&self, counters: &WorkerCounters);
}

/// Reason why a connect did not begin.
pub(crate) enum ConnectError {
    Refused(io::Error),
    /// No socket could be made.
    NoResources,
}

/// Progress of a connect.
pub(crate) enum Progress {
    Waits,
    Connected,
    Refused(io::Error),
    /// The client has left.
    ClientLeft,
}

/// Phase of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Reads the client's PROXY header; with a number, its remaining bytes.
    Header(Option<usize>),
    /// Waits for the upstream to accept.
    Connecting,
    Open,
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

/// A relayed connection: a client's, and one to an upstream.
pub(crate) struct Connection<N: Net> {
    pub(crate) client: N::Side,
    pub(crate) server: Option<N::Side>,
    pub(crate) phase: Phase,
    pub(crate) flows: N::Flows,
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
}

impl<N: Net> Connection<N> {
    /// Ending of the connection, by the errors of its sides.
    pub(crate) fn ending(&self) -> Ending {
        let is_reset = |kind| matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe);
        let server = self.server.as_ref().and_then(N::gone);
        match (N::gone(&self.client), server) {
            (Some(kind), _) if is_reset(kind) => Ending::ClientReset,
            (Some(_), _) => Ending::ClientLost,
            (None, Some(kind)) if is_reset(kind) => Ending::ServerReset,
            (None, Some(_)) => Ending::ServerLost,
            (None, None) => Ending::Finished,
        }
    }
}
