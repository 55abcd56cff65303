//! Reassembly of payload that arrived after a gap.

use std::ops;

use crate::wire::SackBlocks;
use crate::{Chain, Piece, SeqNum};

/// Disjoint, non-adjacent ranges above RCV.NXT, in order. At most [`RANGES_MAX`], so that a peer
/// that scatters its data slows only itself.
#[derive(Debug, Default)]
pub(super) struct Reassembly {
    ranges: Vec<Range>,
    /// Incremented by every insertion; the range with the highest stamp changed last.
    stamp: u32,
    /// Ranges up to this stamp were reported to the peer after their last change.
    reported: u32,
}

#[derive(Debug)]
struct Range {
    start: SeqNum,
    end: SeqNum,
    pieces: Vec<Piece>,
    stamp: u32,
}

/// Result of an insertion.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Inserted {
    /// Some bytes were new.
    New,
    /// All bytes were present already.
    Duplicate,
    /// Dropped, because it would need one range too many.
    TooMany,
}

impl Reassembly {
    pub(super) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Number of bytes held.
    pub(super) fn bytes(&self) -> u32 {
        self.ranges
            .iter()
            .map(|range| range.end.since(range.start))
            .sum()
    }

    /// Sequence number after the last byte held; `None` if empty.
    pub(super) fn end(&self) -> Option<SeqNum> {
        self.ranges.last().map(|range| range.end)
    }

    /// Inserts `chain`, which begins at `start`. Bytes present already are kept, so that no segment
    /// can change bytes already reported by SACK.
    pub(super) fn insert(&mut self, start: SeqNum, chain: &Chain) -> Inserted {
        let end = start + chain.len() as u32;
        self.stamp += 1;
        let stamp = self.stamp;
        // Ranges first..last are adjacent to the new range or overlap it.
        let first = self.ranges.partition_point(|range| range.end.before(start));
        let last = self
            .ranges
            .partition_point(|range| range.start.at_or_before(end));
        if first >= last {
            if self.ranges.len() >= RANGES_MAX {
                return Inserted::TooMany;
            }
            let pieces = chain.iter().cloned().collect();
            self.ranges.insert(
                first,
                Range {
                    start,
                    end,
                    pieces,
                    stamp,
                },
            );
            return Inserted::New;
        }
        self.merge(first..last, start, chain)
    }

    /// Merges `chain`, which begins at `start`, with the ranges that it touches.
    fn merge(&mut self, touched: ops::Range<usize>, start: SeqNum, chain: &Chain) -> Inserted {
        let end = start + chain.len() as u32;
        let stamp = self.stamp;
        let part = |from: SeqNum, to: SeqNum, into: &mut Vec<Piece>| {
            let part = chain.slice(from.since(start) as usize..to.since(start) as usize);
            part.into_pieces()
                .filter(|piece| !piece.is_empty())
                .for_each(|piece| add(into, piece));
        };
        let mut merged = Range {
            start,
            end: start,
            pieces: Vec::new(),
            stamp,
        };
        let mut new = false;
        for (index, range) in self.ranges.drain(touched.clone()).enumerate() {
            if index == 0 && range.start.at_or_before(start) {
                merged = Range { stamp, ..range };
                continue;
            }
            if range.start.after(merged.end) {
                new = true;
                part(merged.end, range.start, &mut merged.pieces);
            }
            range
                .pieces
                .into_iter()
                .for_each(|piece| add(&mut merged.pieces, piece));
            merged.end = range.end;
        }
        if end.after(merged.end) {
            new = true;
            part(merged.end, end, &mut merged.pieces);
            merged.end = end;
        }
        self.ranges.insert(touched.start, merged);
        if new {
            Inserted::New
        } else {
            Inserted::Duplicate
        }
    }

    /// Removes the first range if it begins at or before `next`, and returns its bytes from `next`
    /// on.
    pub(super) fn take(&mut self, next: SeqNum) -> Option<Chain> {
        let first = self.ranges.first()?;
        if first.start.after(next) {
            return None;
        }
        let range = self.ranges.remove(0);
        let mut skip = next.since(range.start) as usize;
        let mut chain = Chain::new();
        for mut piece in range.pieces {
            let skipped = skip.min(piece.len());
            piece.trim_front(skipped);
            skip -= skipped;
            chain.push(piece);
        }
        Some(chain)
    }

    /// Appends at most `room` blocks to `blocks`, the range that changed last first (RFC 2018 §4).
    /// If more ranges changed since the last report than fit, because many segments were
    /// processed together, the oldest changes are reported first and [`news`](Self::news) stays above 0: the
    /// peer would treat a range that is never reported as lost. A range that is already in `blocks`
    /// is not repeated.
    pub(super) fn sack_blocks(&mut self, blocks: &mut SackBlocks, room: usize) {
        let reported = self.reported;
        let told = *blocks;
        let is_told = |range: &&Range| told.as_slice().contains(&(range.start, range.end));
        let mut chosen: Vec<(u32, SeqNum, SeqNum)> = Vec::new();
        let mut news: Vec<_> = self
            .ranges
            .iter()
            .filter(|range| range.stamp > reported && !is_told(range))
            .collect();
        news.sort_unstable_by_key(|range| range.stamp);
        chosen.extend(
            news.iter()
                .take(room)
                .map(|range| (range.stamp, range.start, range.end)),
        );
        while chosen.len() < room {
            let before = chosen
                .iter()
                .map(|(stamp, ..)| *stamp)
                .min()
                .unwrap_or(u32::MAX);
            let older = self.ranges.iter().filter(|range| range.stamp < before);
            let older = older.filter(|range| !is_told(range));
            let Some(range) = older.max_by_key(|range| range.stamp) else {
                break;
            };
            chosen.push((range.stamp, range.start, range.end));
        }
        chosen.sort_unstable_by_key(|(stamp, ..)| std::cmp::Reverse(*stamp));
        let all_news = news.len() <= room;
        for &(stamp, start, end) in &chosen {
            blocks.push(start, end);
            self.reported = self.reported.max(stamp);
        }
        if all_news {
            self.reported = self.stamp;
        }
    }

    /// Number of ranges that changed since they were last reported.
    pub(super) fn news(&self) -> usize {
        let news = |range: &&Range| range.stamp > self.reported;
        self.ranges.iter().filter(news).count()
    }

    /// Returns the range that contains `seq`; `None` if no range does.
    pub(super) fn range_around(&self, seq: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let index = self
            .ranges
            .partition_point(|range| range.end.at_or_before(seq));
        let range = self.ranges.get(index)?;
        range
            .start
            .at_or_before(seq)
            .then_some((range.start, range.end))
    }

    /// First part of `[start, end)` that is present; `None` if no byte is.
    pub(super) fn overlap(&self, start: SeqNum, end: SeqNum) -> Option<(SeqNum, SeqNum)> {
        let first = self
            .ranges
            .partition_point(|range| range.end.at_or_before(start));
        let range = self.ranges.get(first)?;
        let (from, to) = (range.start.max(start), range.end.min(end));
        from.before(to).then_some((from, to))
    }

    pub(super) fn debug_assert_invariants(&self, next: SeqNum) {
        let mut at = next;
        for range in &self.ranges {
            debug_assert!(
                range.start.after(at) && range.end.after(range.start),
                "{self:?} at {at:?}"
            );
            let bytes: usize = range.pieces.iter().map(Piece::len).sum();
            debug_assert_eq!(bytes as u32, range.end.since(range.start));
            at = range.end;
        }
        debug_assert!(self.ranges.len() <= RANGES_MAX);
    }
}

fn add(pieces: &mut Vec<Piece>, piece: Piece) {
    let apart = piece.join(pieces.last_mut());
    pieces.extend(apart);
}

/// Limit of ranges: enough for a window of 2500 segments with one in ten lost. A peer that needs
/// more becomes slow, not broken: dropped data is retransmitted.
pub(super) const RANGES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn equals_a_naive_map_of_bytes(
            segments in prop::collection::vec((0usize..200, 1usize..40), 1..40),
            base: u32,
        ) {
            let base = SeqNum::new(base);
            let mut reassembly = Reassembly::default();
            let mut model = vec![false; 300];
            for (at, len) in segments {
                // The byte at offset n has value n, so overlapping segments agree.
                let bytes: Vec<u8> = (at..at + len).map(|n| n as u8).collect();
                let new = model[at..at + len].iter().any(|here| !here);
                model[at..at + len].fill(true);
                // Offset 0 is RCV.NXT + 1, so a gap stays in front.
                let inserted = reassembly.insert(base + 1 + at as u32, &Piece::from(bytes).into());
                prop_assert_eq!(inserted == Inserted::New, new);
                reassembly.debug_assert_invariants(base);
            }
            prop_assert_eq!(reassembly.bytes() as usize, model.iter().filter(|here| **here).count());
            let mut taken = vec![false; 300];
            while let Some((start, _)) = reassembly.ranges.first().map(|range| (range.start, range.end)) {
                let at = start.since(base + 1) as usize;
                for (n, byte) in reassembly.take(start).unwrap().to_vec().into_iter().enumerate() {
                    prop_assert_eq!(byte, (at + n) as u8);
                    taken[at + n] = true;
                }
            }
            prop_assert_eq!(taken, model);
        }
    }

    #[test]
    fn the_range_touched_last_is_reported_first() {
        let mut reassembly = Reassembly::default();
        let byte = Chain::from(Piece::from(vec![0]));
        for at in [10, 20, 30, 40, 50, 21] {
            reassembly.insert(SeqNum::new(at), &byte);
        }
        let mut report = |room| {
            let mut blocks = SackBlocks::default();
            reassembly.sack_blocks(&mut blocks, room);
            blocks
                .as_slice()
                .iter()
                .map(|block| block.0.value())
                .collect::<Vec<u32>>()
        };
        // Five ranges changed: first the three oldest changes, then the others and the latest of
        // the reported ones.
        assert_eq!(report(3), [40, 30, 10]);
        assert_eq!(report(3), [20, 50, 40]);
        assert_eq!(report(4), [20, 50, 40, 30]);
        assert!(!reassembly.news() > 0);
    }

    #[test]
    fn a_range_too_many_is_dropped() {
        let mut reassembly = Reassembly::default();
        let byte = Chain::from(Piece::from(vec![0]));
        for n in 0..RANGES_MAX as u32 {
            assert_eq!(reassembly.insert(SeqNum::new(n * 2), &byte), Inserted::New);
        }
        assert_eq!(
            reassembly.insert(SeqNum::new(9999), &byte),
            Inserted::TooMany
        );
        assert_eq!(
            reassembly.insert(SeqNum::new(1), &byte),
            Inserted::New,
            "filling a gap is no new range"
        );
    }
}
