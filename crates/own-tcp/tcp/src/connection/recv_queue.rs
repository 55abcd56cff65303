//! Receive queue: bytes in order that the application has not read, and bytes that wait for a gap
//! to fill.

use std::collections::VecDeque;

use super::reassembly::{Inserted, Reassembly};
use crate::{Chain, Piece, Pool, SeqNum, Writer};

/// Received payload until the application reads it.
#[derive(Debug, Default)]
pub(super) struct RecvQueue {
    pieces: VecDeque<Piece>,
    bytes: u32,
    pub(super) reassembly: Reassembly,
    /// Sum of the memory that each queued piece keeps allocated. A shared slab counts once per
    /// piece.
    held_bytes: u32,
    writer: Writer,
}

impl RecvQueue {
    /// Number of bytes that can be read.
    pub(super) fn bytes(&self) -> u32 {
        self.bytes
    }

    /// True if the queue holds no byte at all.
    pub(super) fn is_quiet(&self) -> bool {
        self.bytes == 0 && self.reassembly.is_empty()
    }

    /// Appends `chain`, which begins at RCV.NXT, and the out-of-order data that now follows it.
    /// Returns the new RCV.NXT. `budget` is the receive buffer in bytes.
    pub(super) fn push(
        &mut self,
        pool: &Pool,
        next: SeqNum,
        chain: &mut Chain,
        budget: u32,
    ) -> SeqNum {
        let mut next = next + chain.len() as u32;
        self.push_pieces(pool, chain, budget);
        while let Some(mut chain) = self.reassembly.take(next) {
            next += chain.len() as u32;
            self.push_pieces(pool, &mut chain, budget);
        }
        next
    }

    /// Stores `chain`, which begins at `start` above RCV.NXT. Small pieces are always copied
    /// together, so that a peer that scatters single bytes does not pin a slab with each.
    pub(super) fn keep(&mut self, pool: &Pool, start: SeqNum, chain: &mut Chain) -> Inserted {
        let wasteful = chain
            .iter()
            .any(|piece| piece.held_bytes() > 4 * piece.len() + SMALL_BYTES);
        if !wasteful {
            return self.reassembly.insert(start, chain);
        }
        let compact = std::mem::take(chain)
            .into_pieces()
            .flat_map(|piece| self.compact(pool, piece))
            .collect();
        self.reassembly.insert(start, &compact)
    }

    /// Copies up to `to.len()` bytes out and returns how many.
    pub(super) fn read(&mut self, to: &mut [u8]) -> usize {
        let mut done = 0;
        while done < to.len() {
            let Some(piece) = self.take_piece(to.len() - done) else {
                break;
            };
            to[done..done + piece.len()].copy_from_slice(piece.as_ref());
            done += piece.len();
        }
        done
    }

    /// Copies up to `to.len()` bytes without removing them and returns how many.
    pub(super) fn peek(&self, to: &mut [u8]) -> usize {
        let mut done = 0;
        for piece in &self.pieces {
            let len = piece.len().min(to.len() - done);
            to[done..done + len].copy_from_slice(&piece.as_ref()[..len]);
            done += len;
        }
        done
    }

    /// Drops all bytes that can be read and returns how many.
    pub(super) fn discard(&mut self) -> usize {
        let bytes = std::mem::take(&mut self.bytes);
        self.pieces.clear();
        (self.held_bytes, self.writer) = (0, Writer::default());
        bytes as usize
    }

    /// Takes the next piece, or its first `max` bytes; `None` if nothing can be read.
    pub(super) fn take_piece(&mut self, max: usize) -> Option<Piece> {
        let first = self.pieces.front_mut()?;
        let piece = if first.len() <= max {
            let piece = self.pieces.pop_front()?;
            self.held_bytes = self.held_bytes.saturating_sub(piece.held_bytes() as u32);
            piece
        } else {
            first.split_front(max)
        };
        self.bytes -= piece.len() as u32;
        if self.bytes == 0 {
            (self.held_bytes, self.writer) = (0, Writer::default());
        }
        Some(piece)
    }

    fn push_pieces(&mut self, pool: &Pool, chain: &mut Chain, budget: u32) {
        self.bytes += chain.len() as u32;
        chain.drain(|piece| {
            if piece.is_empty() {
                return;
            }
            // Small pieces are copied only if unread data pins four times the buffer. An
            // application that reads fast enough never pays for this copy.
            let full = self.held_bytes > budget.saturating_mul(4);
            if full && piece.held_bytes() > 4 * piece.len() + SMALL_BYTES {
                self.compact(pool, piece)
                    .into_iter()
                    .for_each(|piece| self.push_piece(piece));
            } else {
                self.push_piece(piece);
            }
        });
    }

    fn push_piece(&mut self, piece: Piece) {
        if let Some(piece) = piece.join(self.pieces.back_mut()) {
            self.held_bytes = self.held_bytes.saturating_add(piece.held_bytes() as u32);
            self.pieces.push_back(piece);
        }
    }

    /// Copies `piece` into the slab of earlier copies, and into new slabs if it is full.
    fn compact(&mut self, pool: &Pool, piece: Piece) -> Vec<Piece> {
        let mut copies = Vec::with_capacity(2);
        let mut bytes = piece.as_ref();
        while !bytes.is_empty() {
            if self.writer.space() == 0 {
                self.writer = pool.writer();
            }
            let copy = self.writer.append(bytes);
            bytes = &bytes[copy.len()..];
            copies.push(copy);
        }
        copies
    }
}

/// A piece that pins at most this many more bytes is not worth copying.
pub(super) const SMALL_BYTES: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_waited_for_the_gap_follows_it() {
        let pool = Pool::new(64, 4);
        let mut queue = RecvQueue::default();
        let chain = |bytes: &[u8]| Chain::from(Piece::from(bytes));
        queue.keep(&pool, SeqNum::new(3), &mut chain(b"def"));
        queue.keep(&pool, SeqNum::new(8), &mut chain(b"i"));
        assert_eq!(
            queue.push(&pool, SeqNum::new(0), &mut chain(b"abcd"), 100),
            SeqNum::new(6)
        );
        let mut read = [0; 10];
        assert_eq!(queue.read(&mut read[..4]), 4);
        assert_eq!(queue.read(&mut read[4..]), 2);
        assert_eq!(&read[..6], b"abcdef");
        assert_eq!(queue.bytes(), 0);
        assert_eq!(queue.reassembly.bytes(), 1);
    }

    #[test]
    fn scattered_bytes_do_not_pin_a_slab_each() {
        let pool = Pool::new(65536, 4);
        let mut queue = RecvQueue::default();
        for n in 0..200 {
            let piece = pool.writer().append(b"x");
            queue.keep(&pool, SeqNum::new(n * 2), &mut piece.into());
        }
        assert_eq!(pool.spare(), 1, "all two hundred share one slab");
    }
}
