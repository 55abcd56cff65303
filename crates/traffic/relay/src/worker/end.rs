//! Endings: of a connection, of all connections, and by timeout.

use std::time::Duration;

use rustix::io::Errno;

use super::{SECOND, Worker};
use crate::connection::Phase;
use crate::counters::Ending;
use crate::side::Side;

impl Worker {
    pub(super) fn end_all(&mut self) {
        self.listeners.clear();
        let indices: Vec<usize> = self.connections.iter().map(|(index, _)| index).collect();
        for index in indices {
            self.end(index, Ending::Stopped);
        }
        // Operations of the ring that are in flight complete by themselves.
        for index in self.over.drain(..) {
            self.connections.remove(index);
        }
        self.again.clear();
        self.resetting.drain(..).for_each(|(side, _)| side.reset());
    }

    /// Ends a connection: counts and reports it, and closes or resets its sockets.
    pub(super) fn end(&mut self, index: usize, ending: Ending) {
        let Some(mut connection) = self.connections[index].take() else {
            return;
        };
        for (flow, moved) in connection.flows.iter_mut().zip(&connection.counters.moved) {
            self.mover.abandon(flow, moved);
        }
        if ending == Ending::Stopped {
            connection.count_discarded();
        }
        if let Some(upstream) = connection.upstream {
            self.shared.upstreams.end(upstream);
        }
        self.shared
            .tell_end(&connection.counters, ending, self.mover.now);
        self.counters.end(index, ending);
        self.leave_gate();
        if let Some(uring) = &mut self.uring {
            match uring.close(index, connection, ending) {
                Ok(()) => return,
                Err(back) => connection = back,
            }
        }
        let connection = *connection;
        if let Some(server) = connection.server {
            self.close(server, ending);
        }
        self.close(connection.client, ending);
        self.over.push(index);
    }

    pub(super) fn close(&mut self, side: Side, ending: Ending) {
        if ending == Ending::Finished || side.gone.is_some() {
            return; // Dropping the side closes it.
        }
        // A reset discards bytes that the kernel has not sent yet. Bytes that came before the other
        // side's reset must be sent first.
        let is_prompt = ending == Ending::Stopped || side.unacknowledged() == 0;
        if is_prompt {
            side.reset();
        } else {
            self.resetting.push((side, self.mover.now + RESET_MAX));
            self.next_scan = self.next_scan.min(self.mover.now + RESET_SCAN);
        }
    }

    /// Ends connections whose timeouts are over, and resets sides that waited for acknowledgements.
    pub(super) fn scan(&mut self) {
        let now = self.mover.now;
        if now < self.next_scan {
            return;
        }
        let mut kept = Vec::new();
        for (side, until) in std::mem::take(&mut self.resetting) {
            match side.unacknowledged() == 0 || until <= now {
                true => side.reset(),
                false => kept.push((side, until)),
            }
        }
        self.resetting = kept;
        let config = &self.shared.config;
        let (connect_timeout, idle_timeout) = (config.connect_timeout, config.idle_timeout);
        let mut late = Vec::new();
        for (index, connection) in &self.connections {
            let Some(connection) = connection else {
                continue;
            };
            let quiet = now.saturating_duration_since(connection.since);
            match connection.phase {
                Phase::Header(_) if quiet >= connect_timeout => {
                    late.push((index, Ending::BadHeader))
                }
                Phase::Connecting if quiet >= connect_timeout => {
                    late.push((index, Ending::ConnectTimeout));
                }
                Phase::Open if idle_timeout.is_some_and(|most| quiet >= most) => {
                    late.push((index, Ending::Idle));
                }
                _ => {}
            }
        }
        for (index, ending) in late {
            if ending == Ending::ConnectTimeout {
                self.on_refusal(index, Errno::TIMEDOUT);
                let tried = self.connections[index].as_ref().map(|one| one.tried.len());
                if tried.is_some_and(|tried| tried < self.shared.upstreams.len()) {
                    self.connect(index);
                    continue;
                }
            }
            self.end(index, ending);
        }
        self.counters.pipes.set(self.mover.pipes.there() as u64);
        let shortest = idle_timeout.map_or(connect_timeout, |idle| idle.min(connect_timeout));
        let pause = (shortest / 8).clamp(RESET_SCAN, SECOND);
        let pause = if self.resetting.is_empty() {
            pause
        } else {
            RESET_SCAN
        };
        self.next_scan = now + pause;
    }
}

/// Time that a reset waits for the bytes before it to be acknowledged: a few round trips of a long
/// path.
const RESET_MAX: Duration = Duration::from_secs(1);
/// Interval of the checks whether they are acknowledged.
const RESET_SCAN: Duration = Duration::from_millis(10);
