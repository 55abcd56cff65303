//! The two halves of a forward: received pieces are taken out, and put into the send queue of another connection.

use std::time::Instant;

use super::checksums::Summing;
use super::recv_queue::SMALL_BYTES;
use super::{Connection, ReadError, WriteError};
use crate::Piece;

impl Connection {
    /// Takes out received bytes as pieces, at most `max` of them, as one read: how many, and why there is no more.
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
        if taken > 0 {
            self.on_read(taken, now);
        }
        (taken, self.check_read().err())
    }

    /// Bytes that the send queue takes.
    pub(crate) fn room(&self) -> Result<usize, WriteError> {
        self.check_write().map(|()| self.writable())
    }

    /// Says that the application has more than there was room for, so that what limits the sender is known.
    pub(crate) fn want_room(&mut self) {
        self.snd.wanted = true;
    }

    /// Puts pieces into the send queue, which has room for them; how many bytes had to be copied.
    pub(crate) fn give_pieces(&mut self, pieces: impl Iterator<Item = Piece>) -> usize {
        (self.snd.more, self.snd.wanted) = (false, false);
        let mut copied = 0;
        for piece in pieces {
            // As the receive queue has it: what waits must not pin many times its buffer in slabs that hold a few bytes
            // each.
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

    /// Copies bytes into the send queue, which has room for them.
    fn append(&mut self, bytes: &[u8]) -> usize {
        let summing = self.config.sum_on_write.then_some(Summing {
            sent: self.snd.nxt.max(self.snd.queue.start()),
            mss: self.snd.mss,
        });
        self.snd.queue.write(&self.pool, bytes, u32::MAX, summing)
    }
}
