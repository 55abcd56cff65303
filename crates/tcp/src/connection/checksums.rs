//! Checksums of what was copied into the send queue, taken in the same pass as the copy: bytes that
//! a device leaves to us to sum are then read once, not twice.
//!
//! A sum is of a cell of the stream, at most a segment long, so it serves only a segment whose ends
//! are ends of cells. Those of bulk data are: cells are cut as full segments will be. Any other
//! segment is summed when it leaves, as is payload that was never copied.

use std::collections::VecDeque;

use crate::SeqNum;
use crate::wire::Sum;

/// Sums of cells that have not been acknowledged, in order.
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

/// What the segments will be like.
#[derive(Clone, Copy, Debug)]
pub(super) struct Summing {
    /// SND.NXT: what lies before has left.
    pub sent: SeqNum,
    /// Payload of a full segment.
    pub mss: u32,
}

impl Sums {
    /// Copies as much of `from` into `to` as fits and sums it, in cells that end where full segments
    /// will; the queue ends at `at`. Returns how many bytes.
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
            // The last cell goes on if no part of it has left and it has not got too long meanwhile.
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

    /// The sum over `[start, end)`, if whole cells are just that.
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

    /// The first cell that begins at `start` or behind it.
    fn find(&self, start: SeqNum) -> usize {
        // Where it is if all before are as long as the first, as those of bulk data are: a search costs
        // more than the segment's header.
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

    /// Everything before `una` is acknowledged.
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

/// Room for so many stays with an idle connection: requests and responses then allocate nothing.
const IDLE_CELLS: usize = 16;
