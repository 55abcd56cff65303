//! Steps from a client to a connection with two sides: PROXY header, choice of an upstream, header
//! to the upstream.

use rustix::event::{PollFlags, epoll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use super::{SERVER, Worker};
use crate::connection::Phase;
use crate::counters::Ending;
use crate::mover::Outcome;
use crate::proxy::{self, Ends, Parsed, SEEN_MAX};
use crate::side::{self, Side};

impl Worker {
    /// Reads the client's PROXY header. The header is peeked at until it is complete, so that no
    /// byte after it is taken.
    pub(super) fn read_header(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        if !connection.client.readable {
            return;
        }
        let mut buffer = [0; SEEN_MAX];
        let socket = &connection.client.socket;
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        let seen = match recv(socket, &mut buffer[..], flags) {
            Err(Errno::AGAIN) => {
                connection.client.readable = false;
                return;
            }
            Ok((_, seen)) if seen > 0 => seen,
            _ => return self.end(index, Ending::BadHeader),
        };
        match proxy::parse(&buffer[..seen]) {
            Parsed::Incomplete => connection.client.readable = false,
            Parsed::Malformed => self.end(index, Ending::BadHeader),
            Parsed::Header { length, ends } => {
                if let Some(Ends {
                    source,
                    destination,
                }) = ends
                {
                    connection.counters.set_source(source);
                    connection.destination = Some(destination);
                }
                self.pass_over_header(index, length);
            }
        }
    }

    /// Reads and drops the remaining `left` bytes of the header as they come: with 64 KiB of fields
    /// the header may not fit the receive queue.
    pub(super) fn pass_over_header(&mut self, index: usize, mut left: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        while left > 0 && connection.client.readable {
            match self.mover.discard(&mut connection.client, left) {
                Outcome::Moved(bytes) => left -= bytes,
                Outcome::Blocked => {}
                _ => return self.end(index, Ending::BadHeader),
            }
        }
        if left > 0 {
            connection.phase = Phase::Header(Some(left));
            return;
        }
        connection.phase = Phase::Connecting;
        connection.since = self.mover.now;
        self.connect(index);
    }

    /// Tries upstreams until one accepts the connection or may still do so.
    pub(super) fn connect(&mut self, index: usize) {
        loop {
            let now = self.mover.now;
            let Some(connection) = &mut self.connections[index] else {
                return;
            };
            let Some(upstream) = self.shared.upstreams.choose(&connection.tried, now) else {
                return self.end(index, Ending::NoUpstream);
            };
            let address = self.shared.upstreams.address(upstream);
            let config = &self.shared.config;
            let socket = address.socket().and_then(|socket| {
                if address.is_tcp() {
                    side::set_options(&socket, config)?;
                }
                side::set_buffers(&socket, config)?;
                Ok(socket)
            });
            let Ok(socket) = socket else {
                return self.end(index, Ending::NoResources);
            };
            let outcome = address.connect(&socket);
            connection.upstream = Some(upstream);
            connection.since = now;
            self.shared.upstreams.begin(upstream);
            let is_tcp = address.is_tcp();
            match outcome {
                Ok(()) | Err(Errno::INPROGRESS) => {
                    connection.server = Some(Side::new(socket, is_tcp));
                    if self.watch(index, SERVER).is_err() {
                        return self.end(index, Ending::NoResources);
                    }
                    if outcome.is_ok() {
                        self.open(index);
                    }
                    return;
                }
                Err(error) => self.on_refusal(index, error),
            }
        }
    }

    /// Notes that the upstream did not accept the connection.
    pub(super) fn on_refusal(&mut self, index: usize, error: Errno) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        connection.server = None;
        self.counters.connect_failures.add(1);
        if let Some(upstream) = connection.upstream.take() {
            connection.tried.push(upstream);
            self.shared.refused(upstream, &error, self.mover.now);
        }
    }

    pub(super) fn finish_connecting(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let Some(server) = &connection.server else {
            return;
        };
        if !server.writable && !server.readable {
            let client = &connection.client;
            let has_left = client.may_have_more && client.has_left();
            // An answer that arrived already is reported by the next event.
            if has_left && !server.is_ready(PollFlags::OUT) {
                self.end(index, Ending::ClientReset);
            }
            return;
        }
        match sockopt::socket_error(&server.socket) {
            Ok(Ok(())) => self.open(index),
            Ok(Err(error)) | Err(error) => {
                self.on_refusal(index, error);
                self.connect(index);
            }
        }
    }

    /// Begins to relay: both sides are connected.
    pub(super) fn open(&mut self, index: usize) {
        let Some(connection) = &mut self.connections[index] else {
            return;
        };
        let upstream = connection.upstream.expect("it is the one that took it");
        self.shared.taken(upstream);
        connection.counters.set_upstream(upstream);
        connection.phase = Phase::Open;
        connection.since = self.mover.now;
        let config = &self.shared.config;
        if let (Some(version), Some(server)) = (config.proxy_out, &connection.server) {
            let ends = connection
                .counters
                .source()
                .zip(connection.destination)
                .map(|(source, destination)| Ends {
                    source,
                    destination,
                });
            let header = proxy::header(version, ends);
            // A new socket has room for so few bytes.
            let sent = send(
                &server.socket,
                &header,
                SendFlags::NOSIGNAL | SendFlags::DONTWAIT,
            );
            if sent != Ok(header.len()) {
                return self.end(index, Ending::ServerLost);
            }
        }
        if let Some(server) = &mut connection.server {
            server.writable = true;
        }
        if let Some(uring) = &mut self.uring {
            let server = connection.server.as_ref().map(|server| &server.socket);
            for socket in server.into_iter().chain([&connection.client.socket]) {
                let _ = epoll::delete(&self.epoll, socket);
            }
            return uring.begin(index, connection);
        }
        connection.client.writable = true;
        self.serve(index);
    }
}
