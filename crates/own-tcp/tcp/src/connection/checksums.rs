//! Checksums of data that is copied into the send queue, computed during the copy. If the device
//! does not compute checksums, the bytes are then read once, not twice.
//!
//! A sum covers a cell of the stream, at most a segment long, so it serves only a segment that
//! consists of whole cells. Segments of bulk data do: cells are cut where full-sized segments will
//! be. Any other segment is summed when it is sent, as is payload that was not copied.

use std::collections::VecDeque;

use crate::SeqNum;
use crate::wire::Sum;

/// Sums of the cells that are not acknowledged, in order.
#[derive(Debug, Default)]
pub(super) struct Sums {
    cells: VecDeque<Cell>,
}

#[derive(Debug)]
struct Cell {
    start: SeqNum,
    end: SeqNum,
    sum: Sum,
}

/// Parameters for predicting the segments.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summing {
    /// SND.NXT: bytes before it were sent.
    pub sent: SeqNum,
    /// Payload of a full-sized segment.
    pub mss: u32,
}

impl Sums {
    /// Copies as much of `from` into `to` as fits and sums it, in cells that end where full
    /// segments will end. `at` is the sequence number of the first byte. Returns the number of
    /// bytes copied.
    pub(super) fn copy(
        &mut self,
        to: &mut [u8],
        from: &[u8],
        mut at: SeqNum,
        summing: Summing,
    ) -> usize {
        let (mss, total) = (summing.mss.max(1), to.len().min(from.len()));
        let mut done = 0;
        while done < total {
            // Extend the last cell if no part of it was sent and it is shorter than `mss`.
            let last = self.cells.back_mut().filter(|last| {
                last.end == at
                    && last.start.at_or_after(summing.sent)
                    && last.end.since(last.start) < mss
            });
            let filled = last.as_ref().map_or(0, |last| last.end.since(last.start));
            let next = (total - done).min((mss - filled) as usize) + done;
            let sum = Sum::new().add_copied(&mut to[done..next], &from[done..next]);
            let start = at;
            at += (next - done) as u32;
            done = next;
            match last {
                Some(last) => {
                    last.sum = last.sum.followed_by(filled, sum);
                    last.end = at;
                }
                None => self.cells.push_back(Cell {
                    start,
                    end: at,
                    sum,
                }),
            }
        }
        total
    }

    /// Returns the sum over `[start, end)`; `None` unless whole cells cover exactly that range.
    pub(super) fn of(&self, start: SeqNum, end: SeqNum) -> Option<Sum> {
        let first = self.find(start);
        let (mut at, mut all) = (start, Sum::new());
        for cell in self.cells.range(first..) {
            if cell.start != at || cell.end.after(end) {
                return None;
            }
            all = all.followed_by(at.since(start), cell.sum);
            at = cell.end;
            if at == end {
                return Some(all);
            }
        }
        None
    }

    /// Index of the first cell that begins at or after `start`.
    fn find(&self, start: SeqNum) -> usize {
        // Guess the index from the length of the first cell, which is right for bulk data. A binary
        // search costs more than the segment's header.
        if let Some(first) = self.cells.front()
            && start.at_or_after(first.start)
        {
            let likely = start.since(first.start) / first.end.since(first.start).max(1);
            let likely = likely as usize;
            if (self.cells.get(likely)).is_some_and(|cell| cell.start == start) {
                return likely;
            }
        }
        self.cells.partition_point(|cell| cell.start.before(start))
    }

    /// Drops the cells before `una`, which are acknowledged.
    pub(super) fn acknowledge(&mut self, una: SeqNum) {
        while self
            .cells
            .front()
            .is_some_and(|cell| cell.end.at_or_before(una))
        {
            self.cells.pop_front();
        }
        if self.cells.is_empty() && self.cells.capacity() > IDLE_CELLS {
            self.cells = VecDeque::new();
        }
    }
}

/// Capacity that an idle connection keeps, so that requests and responses do not allocate.
const IDLE_CELLS: usize = 16;
