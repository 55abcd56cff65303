//! Send queue: bytes that the application has written and the peer has not acknowledged.

use std::collections::VecDeque;
use std::convert::Infallible;

use super::checksums::{Summing, Sums};
use super::records::Records;
use crate::wire::Sum;
use crate::{Chain, Piece, Pool, SeqNum, Writer};

/// Bytes from SND.UNA on, sent or not. A range copied out of the queue shares the bytes.
#[derive(Debug)]
pub(super) struct SendQueue {
    pieces: VecDeque<Piece>,
    /// Sequence number of the first byte.
    start: SeqNum,
    len: u32,
    /// Slab for small writes. Released when the queue is empty, so that an idle connection holds no
    /// slab.
    writer: Writer,
    /// Index of the piece last cut from, and the offset of its first byte from `start`. New data is
    /// cut in order, so the search for a piece nearly always ends at its first step.
    cursor: (u32, u32),
    /// Checksum sums of copied data; `None` if they are not computed.
    sums: Option<Box<Sums>>,
    /// Record boundaries; `None` if there are none.
    records: Option<Box<Records>>,
}

impl SendQueue {
    pub(super) fn new(start: SeqNum) -> Self {
        Self {
            pieces: VecDeque::new(),
            start,
            len: 0,
            writer: Writer::default(),
            cursor: (0, 0),
            sums: None,
            records: None,
        }
    }

    /// Ends a record at `end`: no segment holds bytes from both sides of it.
    pub(super) fn end_record(&mut self, end: SeqNum, pushed: bool) {
        if self.len > 0 {
            self.records.get_or_insert_default().end(end, pushed);
        }
    }

    /// Number of the `bytes` from `seq` on that may be in one segment.
    #[inline]
    pub(super) fn share(&self, seq: SeqNum, bytes: u32) -> u32 {
        match &self.records {
            None => bytes,
            Some(records) => records.share(seq, bytes),
        }
    }

    /// True if a record ends at `seq` and its last segment has PSH.
    #[inline]
    pub(super) fn is_pushed(&self, seq: SeqNum) -> bool {
        (self.records.as_ref()).is_some_and(|records| records.is_pushed(seq))
    }

    /// Sequence number of the first byte held.
    pub(super) fn start(&self) -> SeqNum {
        self.start
    }

    /// Sequence number after the last byte written.
    pub(super) fn end(&self) -> SeqNum {
        self.start + self.len
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Copies up to `space` bytes, computes their checksum if `summing` is given, and returns how
    /// many.
    pub(super) fn write(
        &mut self,
        pool: &Pool,
        mut bytes: &[u8],
        space: u32,
        summing: Option<Summing>,
    ) -> usize {
        bytes = &bytes[..bytes.len().min(space as usize)];
        let total = bytes.len();
        while !bytes.is_empty() {
            if self.writer.space() == 0 {
                self.writer = pool.writer();
            }
            let writer = &mut self.writer;
            let at = self.start + self.len;
            let piece = match summing {
                None => writer.append(bytes),
                Some(summing) => {
                    let sums = self.sums.get_or_insert_default();
                    let copied: Result<Piece, Infallible> =
                        writer.fill(|space| Ok(sums.copy(space, bytes, at, summing)));
                    copied.unwrap_or_default()
                }
            };
            bytes = &bytes[piece.len()..];
            self.push(piece);
        }
        total
    }

    /// Checksum sum over `bytes` bytes from `seq` on; `None` if it was not computed with the copy.
    pub(super) fn sum_of(&self, seq: SeqNum, bytes: u32) -> Option<Sum> {
        self.sums
            .as_ref()
            .and_then(|sums| sums.of(seq, seq + bytes))
    }

    /// Appends a piece without copying.
    pub(super) fn push(&mut self, piece: Piece) {
        self.len += piece.len() as u32;
        let apart = piece.join(self.pieces.back_mut());
        self.pieces.extend(apart);
    }

    /// Drops the bytes before `una`.
    pub(super) fn acknowledge(&mut self, una: SeqNum) {
        if una.at_or_before(self.start) {
            return;
        }
        let mut bytes = una.since(self.start).min(self.len);
        self.start += bytes;
        self.len -= bytes;
        self.cursor.1 = self.cursor.1.saturating_sub(bytes);
        while let Some(first) = self.pieces.front_mut()
            && bytes > 0
        {
            let len = first.len() as u32;
            if bytes < len {
                first.trim_front(bytes as usize);
                break;
            }
            bytes -= len;
            self.pieces.pop_front();
            self.cursor.0 = self.cursor.0.saturating_sub(1);
        }
        if self.cursor.0 == 0 {
            self.cursor.1 = 0;
        }
        if self.len == 0 {
            self.writer = Writer::default();
            self.cursor = (0, 0);
        } else if self.writer.is_spent() {
            self.give_up_slab();
        }
        if let Some(sums) = &mut self.sums {
            sums.acknowledge(una);
        }
        if let Some(records) = &mut self.records {
            records.acknowledge(una);
            if records.is_empty() {
                self.records = None;
            }
        }
    }

    /// Copies a short tail out of a slab that is nearly full. Else the tails of a thousand
    /// connections that wait for an acknowledgement would pin more slabs than fit in the cache.
    fn give_up_slab(&mut self) {
        if let (1, Some(tail)) = (self.pieces.len(), self.pieces.front_mut())
            && tail.held_bytes() > SHARE * tail.len()
        {
            *tail = Piece::from(tail.as_ref());
            self.writer = Writer::default();
        }
    }

    /// Returns up to `len` bytes from `seq` on.
    pub(super) fn chain(&mut self, seq: SeqNum, len: u32) -> Chain {
        let mut chain = Chain::new();
        if seq.before(self.start) || seq.at_or_after(self.end()) {
            return chain;
        }
        let offset = seq.since(self.start);
        let (index, mut at) = if self.cursor.1 <= offset {
            self.cursor
        } else {
            (0, 0)
        };
        let mut index = index as usize;
        while let Some(piece) = self.pieces.get(index) {
            let end = at + piece.len() as u32;
            if offset < end {
                break;
            }
            (index, at) = (index + 1, end);
        }
        let (from, mut left) = (offset - at, len.min(self.end().since(seq)));
        let mut skip = from;
        while let Some(piece) = self.pieces.get(index) {
            let take = left.min(piece.len() as u32 - skip);
            chain.push(piece.slice(skip as usize..(skip + take) as usize));
            left -= take;
            if left == 0 {
                break;
            }
            (index, at, skip) = (index + 1, at + piece.len() as u32, 0);
        }
        self.cursor = (index.min(self.pieces.len().saturating_sub(1)) as u32, at);
        let end = seq + chain.len() as u32;
        chain.set_sum(self.sum_of(seq, end.since(seq)));
        chain
    }
}

/// A tail of less than a sixteenth of a slab (4 KiB of 64 KiB) is copied instead of keeping the
/// slab.
const SHARE: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_tail_does_not_keep_a_slab() {
        let pool = Pool::new(64 << 10, 2);
        let mut queue = SendQueue::new(SeqNum::new(0));
        queue.write(&pool, &[7; 64 << 10], 64 << 10, None);
        queue.acknowledge(SeqNum::new(60_000));
        assert_eq!(pool.spare(), 0, "there is too much to copy");
        queue.acknowledge(SeqNum::new(65_000));
        assert_eq!(pool.spare(), 1);
        assert_eq!(queue.chain(SeqNum::new(65_000), 1000).to_vec(), [7; 536]);
        queue.write(&pool, b"more", 100, None);
        queue.acknowledge(SeqNum::new(65_001));
        assert_eq!(pool.spare(), 0, "there is room in it");
    }

    #[derive(Clone, Debug)]
    enum Op {
        Write(Vec<u8>),
        Push(Vec<u8>),
        Acknowledge(u32),
        Cut(u32, u32),
    }

    fn ops() -> impl Strategy<Value = Op> {
        let bytes = || prop::collection::vec(any::<u8>(), 1..40);
        prop_oneof![
            bytes().prop_map(Op::Write),
            bytes().prop_map(Op::Push),
            (0u32..60).prop_map(Op::Acknowledge),
            (0u32..80, 1u32..80).prop_map(|(at, len)| Op::Cut(at, len)),
        ]
    }

    proptest! {
        #[test]
        fn equals_a_vector_of_bytes(ops in prop::collection::vec(ops(), 0..60)) {
            let pool = Pool::new(32, 2);
            let mut queue = SendQueue::new(SeqNum::new(u32::MAX - 20));
            let mut model = Vec::new();
            let mut sent = queue.start();
            for op in ops {
                match op {
                    Op::Write(bytes) => {
                        let summing = Summing { sent, mss: 11 };
                        queue.write(&pool, &bytes, 25, Some(summing)); model.extend(&bytes[..bytes.len().min(25)]); }
                    Op::Push(bytes) => { model.extend(&bytes); queue.push(bytes.into()); }
                    Op::Acknowledge(n) => { queue.acknowledge(queue.start() + n.min(queue.len())); model.drain(..(n as usize).min(model.len())); }
                    Op::Cut(at, len) => {
                        let at = at as usize;
                        let expected = if at < model.len() { &model[at..(at + len as usize).min(model.len())] } else { &[] };
                        let chain = queue.chain(queue.start() + at as u32, len);
                        prop_assert_eq!(chain.to_vec(), expected);
                        prop_assert_eq!(chain.sum().finish(), Sum::new().add_bytes(expected).finish());
                        sent = sent.max(queue.start() + (at + expected.len()).min(model.len()) as u32);
                    }
                }
                prop_assert_eq!(queue.len() as usize, model.len());
            }
        }
    }
}
