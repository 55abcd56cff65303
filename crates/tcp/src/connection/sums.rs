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

impl Sums {
    /// How many bytes from `at`, where the queue ends, belong into one cell, if everything before
    /// `sent` has left in segments of at most `mss`.
    pub(super) fn room(&mut self, at: SeqNum, sent: SeqNum, mss: u32) -> usize {
        let goes_on = |last: &&Cell| last.end == at && last.start.at_or_after(sent);
        let filled = self.cells.back().filter(goes_on);
        let filled = filled.map_or(0, |last| last.end.since(last.start));
        match mss.saturating_sub(filled) {
            // Full, or the segments became shorter meanwhile.
            0 => mss.max(1) as usize,
            room => room as usize,
        }
    }

    /// `bytes` bytes with this sum were added at `at`: no more than [`room`](Self::room) said.
    pub(super) fn add(&mut self, at: SeqNum, sent: SeqNum, mss: u32, bytes: u32, sum: Sum) {
        if let Some(last) = self.cells.back_mut()
            && last.end == at
            && last.start.at_or_after(sent)
            && last.end.since(last.start) + bytes <= mss
        {
            last.sum = last.sum.followed_by(last.end.since(last.start), sum);
            last.end += bytes;
            return;
        }
        self.cells.push_back(Cell {
            start: at,
            end: at + bytes,
            sum,
        });
    }

    /// The sum over `[start, end)`, if whole cells are just that.
    pub(super) fn of(&self, start: SeqNum, end: SeqNum) -> Option<Sum> {
        let first = self.cells.partition_point(|cell| cell.start.before(start));
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
