//! Accepting: from a listener, within the limit, to a new connection.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::io::Errno;
use tcpcost_link::Bell;

use super::{Connection, DRAIN_ACCEPTS, Net, Phase, SECOND, Worker};
use crate::counters::{ConnectionCounters, Ending};

impl<N: Net> Worker<N> {
    pub(super) fn accept_again(&mut self) -> io::Result<()> {
        self.accept_at = None;
        if !self.is_accepting && self.shared.limit.has_room() {
            self.net.set_accepting(true)?;
            self.is_accepting = true;
        }
        Ok(())
    }

    /// Stops accepting, until `until` or until a connection ends. New connections wait in the
    /// listen queue.
    fn pause_accepting(&mut self, until: Option<Instant>) {
        if std::mem::replace(&mut self.is_accepting, false) {
            let _ = self.net.set_accepting(false);
        }
        self.accept_at = until;
    }

    /// Accepts the connections that wait, and no more.
    pub(super) fn drain(&mut self) {
        self.is_draining = true;
        // Clients in the listen queue have seen the handshake complete already.
        for index in 0..self.net.listeners() {
            let _ = (0..DRAIN_ACCEPTS).find(|_| !self.accept(index));
        }
        self.net.close_listeners();
        self.accept_at = None;
        let within = self.shared.config.drain_timeout;
        self.drain_until = within.map(|within| self.now + within);
    }

    /// Accepts up to [`ACCEPTS`] connections. True if there may be more.
    pub(crate) fn accept(&mut self, listener: usize) -> bool {
        for _ in 0..ACCEPTS {
            if listener >= self.net.listeners() {
                return false;
            }
            let limit = &self.shared.limit;
            let enters = limit.enter() || limit.wait() && limit.enter();
            if !enters {
                self.counters.accept_pauses.add(1);
                let most = self.shared.config.connections_max;
                tracing::debug!("{most} connections: accepting pauses");
                // The bell rings when a place is free.
                self.pause_accepting(None);
                return false;
            }
            let index = self.connections.vacant_key();
            match self.net.accept(listener, index) {
                Ok((client, source)) => self.take_in(client, source),
                Err(error) => {
                    self.leave_gate();
                    if error.kind() == ErrorKind::WouldBlock {
                        return false;
                    }
                    // By any other error the client left before it was accepted (accept(2)).
                    if let Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM) =
                        Errno::from_io_error(&error)
                    {
                        self.counters.accept_failures.add(1);
                        tracing::warn!("accept: {error}: accepting pauses");
                        self.pause_accepting(Some(self.now + SECOND / 10));
                        return false;
                    }
                }
            }
        }
        true
    }

    pub(super) fn leave_gate(&self) {
        if self.shared.limit.leave() {
            self.shared.bells.iter().for_each(Bell::ring);
        }
    }

    pub(super) fn take_in(&mut self, client: N::Side, source: Option<SocketAddr>) {
        let config = &self.shared.config;
        if !source.is_none_or(|source| config.allows(source.ip())) {
            self.counters.accepted.add(1);
            self.counters.count_end(Ending::Denied);
            self.net.reset(client);
            return self.leave_gate();
        }
        let has_header = config.proxy_in;
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let counters = Arc::new(ConnectionCounters::new(id, source, self.now));
        let index = self.connections.insert(Some(Box::new(Connection {
            destination: config.proxy_out.and_then(|_| N::local_addr(&client)),
            client,
            server: None,
            phase: match has_header {
                true => Phase::Header(None),
                false => Phase::Connecting,
            },
            flows: self.net.flows(),
            since: self.now,
            tried: Vec::new(),
            upstream: None,
            counters: Arc::clone(&counters),
            is_queued: false,
        })));
        self.counters.begin(index, counters);
        if !has_header {
            self.connect(index);
        }
    }
}

/// Connections accepted before other events have their turn.
const ACCEPTS: usize = 64;
