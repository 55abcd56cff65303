//! A connection of our TCP on one side, a socket of the kernel on the other: whatever one brings goes
//! to the other, half-closes and resets included.
//!
//! What our side receives is read when the kernel's socket takes it, so a slow application shuts our
//! window as it would shut the kernel's. Not here: urgent data.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tcpcost_tcp::{Connection, Piece, Pool, ReadError, State};

use super::turn::{NextStep, Step, turn};

/// One of each.
#[derive(Debug)]
pub struct Relay {
    socket: OwnedFd,
    /// As far as is known: the kernel says when that changes, not that it still is so.
    readable: bool,
    writable: bool,
    /// The application's last byte was taken.
    heard_all: bool,
    /// The application was told that no more comes.
    told_all: bool,
    /// On its way to the application.
    pending: VecDeque<Piece>,
}

impl Relay {
    /// Relays `socket`, which is non-blocking.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            readable: true,
            writable: true,
            heard_all: false,
            told_all: false,
            pending: VecDeque::new(),
        }
    }

    /// The kernel's side.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The kernel says that the socket may be read or written again.
    pub fn on_event(&mut self) {
        (self.readable, self.writable) = (true, true);
    }

    /// Takes a turn.
    pub fn serve(&mut self, connection: &mut Connection, pool: &Pool, now: Instant) -> NextStep {
        turn(|| {
            self.step(connection, pool, now).unwrap_or_else(|_| {
                // The application is gone: so is the connection.
                connection.abort();
                Step::Over
            })
        })
    }

    /// Moves one call's worth each way.
    fn step(&mut self, connection: &mut Connection, pool: &Pool, now: Instant) -> io::Result<Step> {
        let heard = self.hear(connection, pool)?;
        let ended = self.collect(connection, now);
        let given = self.give()?;
        if heard + given > 0 {
            return Ok(Step::Moved(heard + given));
        }
        match ended {
            _ if !self.pending.is_empty() => Ok(Step::Wait),
            None | Some(ReadError::Empty) => Ok(Step::Wait),
            Some(ReadError::Finished) => {
                if !std::mem::replace(&mut self.told_all, true) {
                    rustix::net::shutdown(&self.socket, Shutdown::Write)?;
                }
                Ok(if self.heard_all || connection.state() == State::Closed {
                    Step::Over
                } else {
                    Step::Wait
                })
            }
            Some(ReadError::Ended(_)) => {
                self.reset();
                Ok(Step::Over)
            }
        }
    }

    /// From the application into the send queue, one piece of memory that stays there; how many bytes.
    fn hear(&mut self, connection: &mut Connection, pool: &Pool) -> io::Result<usize> {
        let room = connection.writable();
        if !self.readable || self.heard_all || room == 0 || connection.ended().is_some() {
            return Ok(0);
        }
        let piece = pool.fill(|buffer| {
            let room = buffer.len().min(room);
            let flags = RecvFlags::DONTWAIT;
            let (bytes, _) = rustix::net::recv(&self.socket, &mut buffer[..room], flags)?;
            io::Result::Ok(bytes)
        });
        let piece = match piece {
            Ok(piece) => piece,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(0);
            }
            Err(error) => return Err(error),
        };
        let bytes = piece.len();
        if bytes == 0 {
            self.heard_all = true;
            connection.close();
        } else if bytes < WORTH_A_SLAB {
            // No more was taken than fits; an error shows at the next read. A few bytes are not
            // worth a slab of their own for as long as they wait.
            let _ = connection.write(piece.as_ref());
        } else {
            drop(connection.write_piece(piece));
        }
        Ok(bytes)
    }

    /// Takes what has arrived, as much as one call of the kernel takes, if the last was taken; why there
    /// is no more, if so.
    fn collect(&mut self, connection: &mut Connection, now: Instant) -> Option<ReadError> {
        if !self.pending.is_empty() {
            return None;
        }
        let mut bytes = 0;
        while self.pending.len() < PIECES && bytes < CALL_BYTES {
            match connection.read_piece(CALL_BYTES - bytes, now) {
                Ok(piece) => {
                    bytes += piece.len();
                    self.pending.push_back(piece);
                }
                Err(error) => return Some(error),
            }
        }
        None
    }

    /// To the application, by one call; how many bytes.
    fn give(&mut self) -> io::Result<usize> {
        if !self.writable || self.pending.is_empty() {
            return Ok(0);
        }
        let slices: Vec<IoSlice<'_>> = self
            .pending
            .iter()
            .map(|piece| IoSlice::new(piece.as_ref()))
            .collect();
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let mut nothing = SendAncillaryBuffer::default();
        let given = match rustix::net::sendmsg(&self.socket, &slices, &mut nothing, flags) {
            Ok(given) => given,
            Err(rustix::io::Errno::AGAIN) => {
                self.writable = false;
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        let mut left = given;
        while let Some(first) = self.pending.front_mut() {
            if first.len() > left {
                first.trim_front(left);
                break;
            }
            left -= first.len();
            self.pending.pop_front();
        }
        Ok(given)
    }

    /// Makes closing the socket a reset: the application sees what became of the connection.
    pub fn reset(&self) {
        // Of a socket that has no such thing the end is an end.
        let _ =
            rustix::net::sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
    }
}

/// Pieces of one call: fewer than IOV_MAX, and about a super-segment of ordinary segments.
const PIECES: usize = 64;
const CALL_BYTES: usize = 1 << 18;
/// A quarter of one.
const WORTH_A_SLAB: usize = 1 << 14;
