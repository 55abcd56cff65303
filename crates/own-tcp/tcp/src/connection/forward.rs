//! Forwarding inside the endpoint: takes received pieces out of one connection and queues them on
//! another.

use std::time::Instant;

use super::checksums::Summing;
use super::recv_queue::SMALL_BYTES;
use super::{Connection, ReadError, WriteError};
use crate::Piece;

impl Connection {
    /// Takes up to `max` received bytes as pieces, as one read. Returns the number of bytes, and
    /// why there is no more (`None` if more can be read).
    pub(crate) fn take_pieces(
        &mut self,
        max: usize,
        pieces: &mut Vec<Piece>,
        now: Instant,
    ) -> (usize, Option<ReadError>) {
        let mut taken = 0;
        while taken < max
            && let Some(piece) = self.rcv.queue.take_piece(max - taken)
        {
            taken += piece.len();
            pieces.push(piece);
        }
        self.after_read(taken, now)
    }

    /// Copies up to `to.len()` received bytes, as one read. Returns as
    /// [`take_pieces`](Self::take_pieces).
    pub(crate) fn take_bytes(&mut self, to: &mut [u8], now: Instant) -> (usize, Option<ReadError>) {
        let taken = self.rcv.queue.read(to);
        self.after_read(taken, now)
    }

    fn after_read(&mut self, taken: usize, now: Instant) -> (usize, Option<ReadError>) {
        if taken > 0 {
            self.on_read(taken, now);
        }
        (taken, self.check_read().err())
    }

    /// Returns the free bytes of the send queue.
    pub(crate) fn room(&self) -> Result<usize, WriteError> {
        self.check_write().map(|()| self.writable())
    }

    /// Notes that the application has more data than fits, for the accounting of limits.
    pub(crate) fn want_room(&mut self) {
        self.snd.wanted = true;
    }

    /// Queues a copy of bytes; the caller checked that they fit. Returns how many were copied.
    pub(crate) fn give_bytes(&mut self, bytes: &[u8]) -> usize {
        (self.snd.more, self.snd.wanted) = (false, false);
        self.append(bytes)
    }

    /// Queues pieces; the caller checked that they fit. Returns how many bytes were copied.
    pub(crate) fn give_pieces(&mut self, pieces: impl Iterator<Item = Piece>) -> usize {
        (self.snd.more, self.snd.wanted) = (false, false);
        let mut copied = 0;
        for piece in pieces {
            // Same rule as in the receive queue: waiting data must not pin many times its size in
            // slabs that hold a few bytes each. Such pieces are copied.
            let wasteful = piece.held_bytes() > 4 * piece.len() + SMALL_BYTES;
            let held = self.snd.queue.pieces() * piece.held_bytes();
            if wasteful && held > 4 * self.config.send_buffer as usize {
                copied += self.append(piece.as_ref());
            } else {
                self.snd.queue.push(piece);
            }
        }
        copied
    }

    fn append(&mut self, bytes: &[u8]) -> usize {
        let summing = self.config.sum_on_write.then_some(Summing {
            sent: self.snd.nxt.max(self.snd.queue.start()),
            mss: self.snd.mss,
        });
        self.snd.queue.write(&self.pool, bytes, u32::MAX, summing)
    }
}
