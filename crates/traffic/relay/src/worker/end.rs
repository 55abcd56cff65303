//! Endings: of a connection, of all connections, and by timeout.

use std::time::Duration;

use rustix::io::Errno;

use super::{Connection, Net, Phase, SECOND, Worker};
use crate::counters::{Direction, Ending};

impl<N: Net> Worker<N> {
    pub(super) fn end_all(&mut self) {
        self.net.close_listeners();
        let indices: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.end(index, Ending::Stopped);
        }
        // Operations of the ring that are in flight complete by themselves.
        for index in self.over.drain(..) {
            self.connections.remove(index);
        }
        self.again.clear();
        for (side, _) in self.resetting.drain(..) {
            self.net.reset(side);
        }
    }

    /// Ends a connection: counts and reports it, and closes or resets its sockets.
    pub(crate) fn end(&mut self, index: usize, ending: Ending) {
        let Some(mut connection) = self.connections[index].take() else {
            return;
        };
        self.net.abandon(&mut connection);
        if ending == Ending::Stopped {
            self.count_discarded(&connection);
        }
        if let Some(upstream) = connection.upstream {
            self.shared.upstreams.end(upstream);
        }
        self.shared.tell_end(&connection.counters, ending, self.now);
        self.counters.end(index, ending);
        self.leave_gate();
        if let Some(connection) = self.net.release(index, connection, ending) {
            let Connection { client, server, .. } = *connection;
            self.close(index, client, server, ending);
        }
    }

    /// Closes or resets the sockets of an ended connection, and frees its index.
    pub(crate) fn close(
        &mut self,
        index: usize,
        client: N::Side,
        server: Option<N::Side>,
        ending: Ending,
    ) {
        for side in server.into_iter().chain([client]) {
            if ending == Ending::Finished || N::gone(&side).is_some() {
                self.net.close(side);
            } else if ending == Ending::Stopped || self.net.unacknowledged(&side) == 0 {
                self.net.reset(side);
            } else {
                // A reset discards bytes that were not sent yet. Bytes that came before the other
                // side's reset must be sent first.
                self.resetting.push((side, self.now + RESET_MAX));
                self.next_scan = self.next_scan.min(self.now + RESET_SCAN);
            }
        }
        self.over.push(index);
    }

    /// Counts the bytes that a reset of both sides discards: unread bytes, and sent bytes that are
    /// not acknowledged.
    fn count_discarded(&self, connection: &Connection<N>) {
        let Some(server) = &connection.server else {
            return;
        };
        for (direction, from, to) in [
            (Direction::ToServer, &connection.client, server),
            (Direction::ToClient, server, &connection.client),
        ] {
            let bytes = self.net.unread(from) + self.net.unacknowledged(to);
            let moved = &connection.counters.moved[direction as usize];
            moved.abandoned.add(bytes as u64);
        }
    }

    /// Ends connections whose timeouts are over, and resets sides that waited for acknowledgements.
    pub(super) fn scan(&mut self) {
        let now = self.now;
        if now < self.next_scan {
            return;
        }
        for (side, until) in std::mem::take(&mut self.resetting) {
            match self.net.unacknowledged(&side) == 0 || until <= now {
                true => self.net.reset(side),
                false => self.resetting.push((side, until)),
            }
        }
        for (index, ending) in self.late() {
            if ending == Ending::ConnectTimeout {
                self.on_refusal(index, &Errno::TIMEDOUT);
                let tried = self.connections[index].as_ref().map(|one| one.tried.len());
                if tried.is_some_and(|tried| tried < self.shared.upstreams.len()) {
                    self.connect(index);
                    continue;
                }
            }
            self.end(index, ending);
        }
        // Connections that were closed may still have bytes to send, of which no event reports.
        let waits_for_rest = self.is_draining && self.connections.is_empty();
        let pause = match self.resetting.is_empty() && !waits_for_rest {
            true => (self.timeout_min() / 8).clamp(RESET_SCAN, SECOND),
            false => RESET_SCAN,
        };
        self.next_scan = now + pause;
    }

    /// Connections whose timeouts are over, each with its ending.
    fn late(&self) -> Vec<(usize, Ending)> {
        let config = &self.shared.config;
        let late = |connection: &Connection<N>| {
            let quiet = self.now.saturating_duration_since(connection.since);
            let (ending, limit) = match connection.phase {
                Phase::Header(_) => (Ending::BadHeader, Some(config.connect_timeout)),
                Phase::Connecting => (Ending::ConnectTimeout, Some(config.connect_timeout)),
                Phase::Open => (Ending::Idle, config.idle_timeout),
            };
            limit.is_some_and(|limit| quiet >= limit).then_some(ending)
        };
        let all = self.connections.iter();
        all.filter_map(|(index, one)| Some((index, late(one.as_ref()?)?)))
            .collect()
    }

    fn timeout_min(&self) -> Duration {
        let config = &self.shared.config;
        let connect = config.connect_timeout;
        config
            .idle_timeout
            .map_or(connect, |idle| idle.min(connect))
    }
}

/// Time that a reset waits for the bytes before it to be acknowledged: a few round trips of a long
/// path.
const RESET_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks whether they are acknowledged.
const RESET_SCAN: Duration = Duration::from_millis(10);
