//! Relays between a connection of our TCP and a socket of the kernel, half-closes and resets included.
//!
//! Bytes that our TCP received are read when the kernel's socket takes them, so a slow application closes our window as it
//! would close the kernel's. Not here: urgent data.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Instant;

use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown};
use tcpcost_tcp::{Connection, Piece, Pool, ReadError, State};

use super::turn::{NextStep, Step, turn};

/// The application's socket, and the bytes on the way to it.
#[derive(Debug)]
pub struct Relay {
    socket: OwnedFd,
    /// False after a read that would have blocked, until the next event (edge-triggered).
    readable: bool,
    writable: bool,
    /// The application has sent its end of file.
    input_ended: bool,
    /// The application has got the end of file.
    output_shut: bool,
    /// Bytes on the way to the application.
    pending: VecDeque<Piece>,
}

impl Relay {
    /// Relays `socket`, which is non-blocking.
    pub fn new(socket: OwnedFd) -> Self {
        Self {
            socket,
            readable: true,
            writable: true,
            input_ended: false,
            output_shut: false,
            pending: VecDeque::new(),
        }
    }

    /// Socket of the application.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes an event of epoll: the socket may be readable and writable again.
    pub fn on_event(&mut self) {
        (self.readable, self.writable) = (true, true);
    }

    /// Takes a turn.
    pub fn serve(&mut self, connection: &mut Connection, pool: &Pool, now: Instant) -> NextStep {
        turn(|| {
            self.step(connection, pool, now).unwrap_or_else(|_| {
                // The application is gone, so the connection is aborted.
                connection.abort();
                Step::Over
            })
        })
    }

    /// Moves the bytes of one call in each direction.
    fn step(&mut self, connection: &mut Connection, pool: &Pool, now: Instant) -> io::Result<Step> {
        let received = self.receive_from_socket(connection, pool)?;
        let ended = self.read_connection(connection, now);
        let sent = self.send_to_socket()?;
        if received + sent > 0 {
            return Ok(Step::Moved(received + sent));
        }
        match ended {
            _ if !self.pending.is_empty() => Ok(Step::Wait),
            None | Some(ReadError::Empty) => Ok(Step::Wait),
            Some(ReadError::Finished) => {
                if !std::mem::replace(&mut self.output_shut, true) {
                    rustix::net::shutdown(&self.socket, Shutdown::Write)?;
                }
                Ok(if self.input_ended || connection.state() == State::Closed {
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

    /// Moves bytes from the application into the send queue, without a copy if they fill much of a slab. Returns their number.
    fn receive_from_socket(
        &mut self,
        connection: &mut Connection,
        pool: &Pool,
    ) -> io::Result<usize> {
        let room = connection.writable();
        if !self.readable || self.input_ended || room == 0 || connection.ended().is_some() {
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
            self.input_ended = true;
            connection.close();
        } else if bytes < WORTH_A_SLAB {
            // No more was read than fits, and an error shows at the next read. A few bytes are copied: they
            // would keep a whole slab while they wait.
            let _ = connection.write(piece.as_ref());
        } else {
            drop(connection.write_piece(piece));
        }
        Ok(bytes)
    }

    /// Once `pending` is empty, fills it with received bytes, at most those of one call of the kernel. Returns the reason if
    /// there are no more.
    fn read_connection(&mut self, connection: &mut Connection, now: Instant) -> Option<ReadError> {
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

    /// Sends pending bytes to the application by one call. Returns their number.
    fn send_to_socket(&mut self) -> io::Result<usize> {
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
        let sent = match rustix::net::sendmsg(&self.socket, &slices, &mut nothing, flags) {
            Ok(sent) => sent,
            Err(rustix::io::Errno::AGAIN) => {
                self.writable = false;
                return Ok(0);
            }
            Err(error) => return Err(error.into()),
        };
        let mut left = sent;
        while let Some(first) = self.pending.front_mut() {
            if first.len() > left {
                first.trim_front(left);
                break;
            }
            left -= first.len();
            self.pending.pop_front();
        }
        Ok(sent)
    }

    /// Makes closing the socket a reset, so that the application sees that the connection was reset.
    pub fn reset(&self) {
        // A Unix socket has no resets: the application sees an end of file.
        let _ =
            rustix::net::sockopt::set_socket_linger(&self.socket, Some(std::time::Duration::ZERO));
    }
}

/// Limit of pieces in one call: below IOV_MAX, and about a super-segment of ordinary segments.
const PIECES: usize = 64;
const CALL_BYTES: usize = 1 << 18;
/// Bytes from which a piece is queued without a copy: a quarter of a slab.
const WORTH_A_SLAB: usize = 1 << 14;
