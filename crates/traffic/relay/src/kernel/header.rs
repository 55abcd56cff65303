//! The client's PROXY header.

use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use super::Kernel;
use crate::counters::Ending;
use crate::mover::Outcome;
use crate::proxy::{self, Ends, Parsed, SEEN_MAX};
use crate::worker::{Phase, Worker};

impl Worker<Kernel> {
    /// Reads the client's PROXY header. The header is peeked at until it is complete, so that no
    /// byte after it is taken.
    pub(super) fn parse_header(&mut self, index: usize) {
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
            match self.net.mover.discard(&mut connection.client, left) {
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
        connection.since = self.now;
        self.connect(index);
    }
}
