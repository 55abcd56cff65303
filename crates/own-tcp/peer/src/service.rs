//! Services for one connection: sink, echo, source, or a minimal web server.
//!
//! The web server has just enough HTTP for a client: it ignores the request, and answers in HTTP/1.0 with a length.

use std::time::Instant;

use tcpcost_tcp::{Connection, Piece, ReadError};

use super::turn::{NextStep, Step, turn};

/// Service for connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Receive and drop; `check` compares with [`pattern`] first.
    Sink {
        /// True if received bytes are compared with the pattern.
        check: bool,
    },
    /// Send back.
    Echo,
    /// Send the pattern: this number of bytes, or without end.
    Source(Option<u64>),
    /// Send the pattern after an HTTP header, once a request is complete.
    Serve(u64),
}

/// A connection that is being served.
#[derive(Debug, Clone)]
pub struct Session {
    service: Service,
    /// Bytes of the pattern received or sent so far.
    at: u64,
    /// Bytes seen of the empty line that ends a request's head; `None` once the head is complete.
    head: Option<usize>,
    /// Received bytes that differ from the pattern.
    pub wrong_bytes: u64,
}

impl Session {
    /// Starts a service for a new connection.
    pub fn new(service: Service) -> Self {
        Self {
            service,
            at: 0,
            head: Some(0),
            wrong_bytes: 0,
        }
    }

    /// Takes a turn. `pattern` is the result of [`pattern`].
    pub fn serve(
        &mut self,
        connection: &mut Connection,
        pattern: &Piece,
        now: Instant,
    ) -> NextStep {
        turn(|| self.step(connection, pattern, now))
    }

    /// Sends a piece, or else receives one.
    fn step(&mut self, connection: &mut Connection, pattern: &Piece, now: Instant) -> Step {
        let sent = self.send(connection, pattern);
        if sent > 0 {
            return Step::Moved(sent);
        }
        let space = match self.service {
            // After a reset nothing can be echoed: the rest is read to find the end after it.
            Service::Echo if connection.ended().is_none() => connection.writable(),
            _ => usize::MAX,
        };
        if space == 0 {
            return Step::Wait;
        }
        match connection.read_piece(space, now) {
            Ok(piece) => {
                let bytes = piece.len();
                self.receive(connection, piece);
                Step::Moved(bytes)
            }
            Err(ReadError::Empty) => Step::Wait,
            Err(ReadError::Ended(_)) => Step::Over,
            Err(ReadError::Finished) => self.on_finished(connection),
        }
    }

    fn receive(&mut self, connection: &mut Connection, piece: Piece) {
        match self.service {
            Service::Sink { check: true } => {
                let expected = (self.at..).map(|n| (n % PERIOD) as u8);
                let pairs = piece.as_ref().iter().zip(expected);
                self.wrong_bytes += pairs.filter(|(found, wanted)| *found != wanted).count() as u64;
                self.at += piece.len() as u64;
            }
            // No more was read than fits, so no bytes are left; an error shows at the next read.
            Service::Echo => drop(connection.write_piece(piece)),
            Service::Serve(bytes) => {
                let before = self.head;
                self.head = head_after(self.head, piece.as_ref());
                if before.is_some() && self.head.is_none() {
                    let head = format!(
                        "HTTP/1.0 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
                    );
                    // The send queue is empty, and larger than this.
                    let _ = connection.write_more(head.as_bytes(), bytes > 0);
                }
            }
            Service::Sink { check: false } | Service::Source(_) => {}
        }
    }

    /// Writes one piece, if the service sends and there is room; closes after the last byte. Returns the piece's bytes.
    fn send(&mut self, connection: &mut Connection, pattern: &Piece) -> usize {
        let bytes = match self.service {
            Service::Source(bytes) => bytes.unwrap_or(u64::MAX),
            Service::Serve(bytes) if self.head.is_none() => bytes,
            _ => return 0,
        };
        if self.at >= bytes {
            connection.close();
            return 0;
        }
        // Any offset within the first period continues the pattern, because the pattern repeats.
        let from = (self.at % PERIOD) as usize;
        let left = usize::try_from(bytes - self.at).unwrap_or(usize::MAX);
        let len = (pattern.len() - from).min(left).min(connection.writable());
        // An error shows at the next read.
        if len == 0
            || connection
                .write_piece(pattern.slice(from..from + len))
                .is_err()
        {
            return 0;
        }
        self.at += len as u64;
        len
    }

    /// Continues or ends after the peer's end of file.
    fn on_finished(&mut self, connection: &mut Connection) -> Step {
        let goes_on = match self.service {
            Service::Source(bytes) => bytes.is_none_or(|bytes| self.at < bytes),
            Service::Serve(bytes) => self.head.is_none() && self.at < bytes,
            Service::Sink { .. } | Service::Echo => false,
        };
        if goes_on && connection.ended().is_none() {
            Step::Wait
        } else {
            Step::Over
        }
    }
}

/// Number of bytes of an empty line at the end of `bytes`, with `seen` bytes of it before; `None` once the line is
/// complete.
fn head_after(mut seen: Option<usize>, bytes: &[u8]) -> Option<usize> {
    const END: &[u8] = b"\r\n\r\n";
    for &byte in bytes {
        let count = seen?;
        let next = match byte {
            byte if byte == END[count] => count + 1,
            b'\r' => 1,
            _ => 0,
        };
        seen = (next < END.len()).then_some(next);
    }
    seen
}

/// Returns [`SHARED_PERIODS`] periods of the bytes n modulo 251: memory that all connections send from.
pub fn pattern() -> Piece {
    let bytes: Vec<u8> = (0..PERIOD * SHARED_PERIODS)
        .map(|n| (n % PERIOD) as u8)
        .collect();
    bytes.into()
}

/// Period of the pattern. It is a prime, so that a lost, doubled or moved piece is noticed.
const PERIOD: u64 = 251;
/// Periods in memory: about 256 KiB, which is four super-segments a call, and fits a cache.
const SHARED_PERIODS: u64 = 1044;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_head_is_found_wherever_it_is_cut() {
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        for cut in 0..request.len() {
            let seen = head_after(Some(0), &request[..cut]);
            assert!(seen.is_some(), "{cut}");
            assert_eq!(head_after(seen, &request[cut..]), None, "{cut}");
        }
        assert_eq!(head_after(Some(0), b"\r\n\r\r\n\r"), Some(3));
    }
}
