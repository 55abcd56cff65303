//! Accepting: from a listener, within the limit, to a new connection.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, getsockname};
use tcpcost_link::Bell;

use super::{CLIENT, LISTENERS, SECOND, Worker};
use crate::connection::{Connection, Phase};
use crate::counters::{ConnectionCounters, Ending};
use crate::side::Side;

impl Worker {
    pub(super) fn accept_again(&mut self) -> io::Result<()> {
        self.accept_at = None;
        if self.is_accepting || !self.shared.limit.has_room() {
            return Ok(());
        }
        for (index, listener) in self.listeners.iter().enumerate() {
            let data = EventData::new_u64(LISTENERS + index as u64);
            // EXCLUSIVE: of the workers that share a listener one is woken.
            epoll::add(
                &self.epoll,
                listener,
                data,
                EventFlags::IN | EventFlags::EXCLUSIVE,
            )?;
        }
        self.is_accepting = true;
        Ok(())
    }

    /// Stops accepting, until `until` or until a connection ends. New connections wait in the
    /// listen queue.
    pub(super) fn pause_accepting(&mut self, until: Option<Instant>) {
        if std::mem::replace(&mut self.is_accepting, false) {
            for listener in &self.listeners {
                let _ = epoll::delete(&self.epoll, listener);
            }
        }
        self.accept_at = until;
    }

    /// Accepts up to [`ACCEPTS`] connections. True if there may be more.
    pub(super) fn accept(&mut self, listener: usize) -> bool {
        for _ in 0..ACCEPTS {
            let Some(socket) = self.listeners.get(listener) else {
                return false;
            };
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
            let is_tcp = socket.is_tcp();
            match acceptfrom_with(socket, SocketFlags::NONBLOCK | SocketFlags::CLOEXEC) {
                Ok((socket, source)) => {
                    let source = source.and_then(|source| SocketAddr::try_from(source).ok());
                    self.take_in(Side::new(socket, is_tcp), source);
                }
                Err(error) => {
                    self.leave_gate();
                    match error {
                        Errno::AGAIN => return false,
                        Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM => {
                            self.counters.accept_failures.add(1);
                            tracing::warn!("accept: {error}: accepting pauses");
                            self.pause_accepting(Some(self.mover.now + SECOND / 10));
                            return false;
                        }
                        // The client left before it was accepted (accept(2)).
                        _ => {}
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

    pub(super) fn take_in(&mut self, client: Side, source: Option<SocketAddr>) {
        let config = &self.shared.config;
        if !source.is_none_or(|source| config.allows(source.ip())) {
            self.counters.accepted.add(1);
            self.counters.count_end(Ending::Denied);
            client.reset();
            return self.leave_gate();
        }
        let destination = config.proxy_out.and_then(|_| {
            let local = getsockname(&client.socket).ok()?;
            SocketAddr::try_from(local).ok()
        });
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        let now = self.mover.now;
        let phase = match config.proxy_in {
            true => Phase::Header(None),
            false => Phase::Connecting,
        };
        let has_header = config.proxy_in;
        let counters = Arc::new(ConnectionCounters::new(id, source, now));
        let index = self.connections.insert(Some(Box::new(Connection {
            client,
            server: None,
            phase,
            flows: [self.mover.flow(), self.mover.flow()],
            since: now,
            tried: Vec::new(),
            upstream: None,
            destination,
            counters: Arc::clone(&counters),
            is_queued: false,
            ring: Default::default(),
        })));
        self.counters.begin(index, counters);
        // Watched from now on, so that no upstream is tried for a client that has left.
        if self.watch(index, CLIENT).is_err() {
            return self.end(index, Ending::NoResources);
        }
        if !has_header {
            self.connect(index);
        }
    }
}

/// Connections accepted before other events have their turn.
const ACCEPTS: usize = 64;
