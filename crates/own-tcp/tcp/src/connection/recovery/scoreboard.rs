//! Scoreboard: the data sent and not acknowledged, and its state (RFC 6675, RFC 8985 §5).

use std::collections::VecDeque;
use std::time::Instant;

use crate::SeqNum;

/// Ranges from SND.UNA to SND.NXT without gaps, one per transmission of a unit. A range is split at
/// segment borders when its parts have different fates. The number of ranges is limited by the
/// number of segments in flight, whatever a peer acknowledges.
#[derive(Debug, Default)]
pub(in crate::connection) struct Scoreboard {
    sent: VecDeque<Sent>,
    /// No range before this index is lost.
    lost_from: u32,
    bytes: u32,
    sacked_bytes: u32,
    lost_bytes: u32,
}

/// Range that was sent in one transmission, and its state.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct Sent {
    pub start: SeqNum,
    pub end: SeqNum,
    /// Time of the last transmission.
    pub sent_at: Instant,
    pub fate: Fate,
    pub retransmitted: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::connection) enum Fate {
    InFlight,
    Sacked,
    Lost,
}

impl Sent {
    /// True if sent only once, and before the timeout at which SND.NXT was `timeout`.
    #[inline]
    pub(in crate::connection) fn is_original(&self, timeout: Option<SeqNum>) -> bool {
        timeout.is_some_and(|until| !self.retransmitted && self.start.before(until))
    }

    fn len(&self) -> u32 {
        self.end.since(self.start)
    }
}

impl Scoreboard {
    pub(in crate::connection) fn is_empty(&self) -> bool {
        self.sent.is_empty()
    }

    /// Number of bytes neither acknowledged, nor SACKed, nor lost.
    pub(in crate::connection) fn flight(&self) -> u32 {
        self.bytes - self.sacked_bytes - self.lost_bytes
    }

    pub(in crate::connection) fn sacked_bytes(&self) -> u32 {
        self.sacked_bytes
    }

    pub(in crate::connection) fn lost_bytes(&self) -> u32 {
        self.lost_bytes
    }

    /// Number of bytes in flight that were sent more than once. Visits every range.
    pub(in crate::connection) fn retransmitted_bytes(&self) -> u32 {
        let again = |sent: &&Sent| sent.retransmitted && sent.fate == Fate::InFlight;
        self.sent.iter().filter(again).map(Sent::len).sum()
    }

    /// Adds a unit that was sent for the first time.
    pub(in crate::connection) fn on_sent(&mut self, start: SeqNum, end: SeqNum, now: Instant) {
        let sent = Sent {
            start,
            end,
            sent_at: now,
            fate: Fate::InFlight,
            retransmitted: false,
        };
        self.bytes += sent.len();
        self.sent.push_back(sent);
    }

    /// Removes everything before `una`. Calls `delivered` for each removed range that was not
    /// SACKed before.
    pub(in crate::connection) fn on_acknowledged(
        &mut self,
        una: SeqNum,
        mut delivered: impl FnMut(&Sent),
    ) {
        while let Some(first) = self.sent.front_mut()
            && first.start.before(una)
        {
            let mut gone = *first;
            gone.end = gone.end.min(una);
            first.start = gone.end;
            if first.start == first.end {
                self.sent.pop_front();
                self.lost_from = self.lost_from.saturating_sub(1);
            }
            self.bytes -= gone.len();
            match gone.fate {
                Fate::InFlight => {}
                Fate::Sacked => self.sacked_bytes -= gone.len(),
                Fate::Lost => self.lost_bytes -= gone.len(),
            }
            if gone.fate != Fate::Sacked {
                delivered(&gone);
            }
        }
    }

    /// Marks `[start, end)` as SACKed. Calls `delivered` for each range of whole segments of `mss`
    /// bytes that is newly SACKed. Parts of segments are ignored, as in Linux, so that a peer that
    /// reports single bytes does not cause a range for each.
    pub(in crate::connection) fn on_sacked(
        &mut self,
        start: SeqNum,
        end: SeqNum,
        mss: u32,
        mut delivered: impl FnMut(&Sent),
    ) {
        let mut index = self
            .sent
            .partition_point(|sent| sent.end.at_or_before(start));
        while let Some(&sent) = self.sent.get(index)
            && sent.start.before(end)
        {
            let begins = whole_segments(start.max(sent.start).since(sent.start), mss, Round::Up);
            let ends = if end.at_or_after(sent.end) {
                sent.len()
            } else {
                whole_segments(end.since(sent.start), mss, Round::Down)
            };
            if sent.fate == Fate::Sacked || begins >= ends {
                index += 1;
                continue;
            }
            if begins > 0 {
                self.split(index, sent.start + begins);
                index += 1;
            }
            if ends < sent.len() {
                self.split(index, sent.start + ends);
            }
            delivered(&self.sent[index]);
            self.set_fate(index, Fate::Sacked);
            index = self.join(index) + 1;
        }
    }

    /// Marks the ranges in flight for which `is_lost` returns `Lost`.
    pub(in crate::connection) fn mark_lost(
        &mut self,
        mut is_lost: impl FnMut(&Sent) -> RangeState,
    ) {
        for index in 0..self.sent.len() {
            if self.sent[index].fate != Fate::InFlight {
                continue;
            }
            match is_lost(&self.sent[index]) {
                RangeState::Lost => self.set_fate(index, Fate::Lost),
                RangeState::InFlight => {}
                RangeState::AllLaterInFlight => break,
            }
        }
    }

    /// Marks the first `bytes` as lost if they are in flight. Without SACK, duplicate and partial
    /// ACKs say no more.
    pub(in crate::connection) fn mark_head_lost(&mut self, bytes: u32) {
        let Some(first) = self.sent.front() else {
            return;
        };
        if first.fate != Fate::InFlight {
            return;
        }
        if first.len() > bytes {
            self.split(0, first.start + bytes);
        }
        self.set_fate(0, Fate::Lost);
    }

    /// Marks everything in flight as lost, at a timeout. If the first range was SACKed, the peer
    /// has reneged (RFC 2018 §8), and all SACKed ranges count as lost too.
    pub(in crate::connection) fn mark_all_lost(&mut self) {
        let reneged = self
            .sent
            .front()
            .is_some_and(|first| first.fate == Fate::Sacked);
        for index in 0..self.sent.len() {
            if reneged || self.sent[index].fate != Fate::Sacked {
                self.set_fate(index, Fate::Lost);
            }
        }
    }

    /// Marks all lost ranges as in flight again.
    pub(in crate::connection) fn mark_none_lost(&mut self) {
        for index in 0..self.sent.len() {
            if self.sent[index].fate == Fate::Lost {
                self.set_fate(index, Fate::InFlight);
            }
        }
    }

    /// True if any byte is lost outside of `[start, end)`, or lost inside after a retransmission.
    /// Visits every range.
    pub(in crate::connection) fn is_lost_beside(&self, start: SeqNum, end: SeqNum) -> bool {
        self.sent.iter().any(|sent| {
            let inside = sent.start.at_or_after(start) && sent.end.at_or_before(end);
            sent.fate == Fate::Lost && (sent.retransmitted || !inside)
        })
    }

    /// Returns the first lost range; `None` if nothing is lost.
    pub(in crate::connection) fn next_lost(&mut self) -> Option<Sent> {
        if self.lost_bytes == 0 {
            return None;
        }
        let is_lost = |sent: &Sent| sent.fate == Fate::Lost;
        let skip = self.lost_from as usize;
        let index = self.sent.iter().skip(skip).position(is_lost)? + skip;
        self.lost_from = index as u32;
        self.sent.get(index).copied()
    }

    /// Notes a retransmission of `[start, end)`, which lies inside one range.
    pub(in crate::connection) fn on_retransmitted(
        &mut self,
        start: SeqNum,
        end: SeqNum,
        now: Instant,
    ) {
        let mut index = self
            .sent
            .partition_point(|sent| sent.end.at_or_before(start));
        let Some(&sent) = self.sent.get(index) else {
            return;
        };
        if sent.start.before(start) {
            self.split(index, start);
            index += 1;
        }
        if self.sent[index].end.after(end) {
            self.split(index, end);
        }
        self.set_fate(index, Fate::InFlight);
        self.sent[index].sent_at = now;
        self.sent[index].retransmitted = true;
    }

    /// First range; `None` if nothing was sent.
    pub(in crate::connection) fn first(&self) -> Option<&Sent> {
        self.sent.front()
    }

    /// Last range; `None` if nothing was sent.
    pub(in crate::connection) fn last(&self) -> Option<&Sent> {
        self.sent.back()
    }

    fn split(&mut self, index: usize, at: SeqNum) {
        let mut second = self.sent[index];
        self.sent[index].end = at;
        second.start = at;
        self.sent.insert(index + 1, second);
    }

    /// Joins adjacent SACKed ranges, so that a later ACK visits a long run in one step. Returns the
    /// index of the joined range.
    fn join(&mut self, mut index: usize) -> usize {
        if self
            .sent
            .get(index + 1)
            .is_some_and(|next| next.fate == Fate::Sacked)
        {
            self.sent[index].end = self.sent[index + 1].end;
            self.sent.remove(index + 1);
        }
        if index > 0 && self.sent[index - 1].fate == Fate::Sacked {
            self.sent[index - 1].end = self.sent[index].end;
            self.sent.remove(index);
            index -= 1;
        }
        // Later indices moved down by at most two.
        self.lost_from = self.lost_from.min(index as u32);
        index
    }

    fn set_fate(&mut self, index: usize, fate: Fate) {
        let sent = &mut self.sent[index];
        let len = sent.len();
        match sent.fate {
            Fate::InFlight => {}
            Fate::Sacked => self.sacked_bytes -= len,
            Fate::Lost => self.lost_bytes -= len,
        }
        sent.fate = fate;
        match fate {
            Fate::InFlight => {}
            Fate::Sacked => self.sacked_bytes += len,
            Fate::Lost => {
                self.lost_bytes += len;
                self.lost_from = self.lost_from.min(index as u32);
            }
        }
    }

    pub(in crate::connection) fn debug_assert_invariants(&self, una: SeqNum, nxt: SeqNum) {
        let mut at = una;
        let mut sums = [0; 3];
        for (index, sent) in self.sent.iter().enumerate() {
            debug_assert_eq!(sent.start, at, "no gaps");
            debug_assert!(sent.end.after(sent.start));
            debug_assert!(sent.fate != Fate::Lost || index >= self.lost_from as usize);
            sums[sent.fate as usize] += sent.len();
            at = sent.end;
        }
        debug_assert_eq!(at, nxt, "covers what was sent");
        debug_assert_eq!(sums, [self.flight(), self.sacked_bytes, self.lost_bytes]);
    }
}

/// Result of the loss check of a range in flight.
pub(in crate::connection) enum RangeState {
    Lost,
    InFlight,
    /// In flight, and so are all later ranges: no need to check them.
    AllLaterInFlight,
}

enum Round {
    Up,
    Down,
}

fn whole_segments(bytes: u32, mss: u32, round: Round) -> u32 {
    let mss = mss.max(1);
    match round {
        Round::Down => bytes / mss * mss,
        Round::Up => bytes.div_ceil(mss) * mss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;
    use proptest::prelude::*;

    #[derive(Clone, Debug)]
    enum Op {
        Send(u32),
        Acknowledge(u32),
        Sack(u32, u32),
        LoseOlder(u32),
        LoseAll,
        Retransmit(u32),
    }

    fn ops() -> impl Strategy<Value = Op> {
        prop_oneof![
            (1u32..5).prop_map(Op::Send),
            (0u32..6).prop_map(Op::Acknowledge),
            (0u32..30, 1u32..6).prop_map(|(at, len)| Op::Sack(at, len)),
            (0u32..30).prop_map(Op::LoseOlder),
            Just(Op::LoseAll),
            (1u32..4).prop_map(Op::Retransmit),
        ]
    }

    const MSS: u32 = 10;

    proptest! {
        /// The model keeps the fate of each segment separately.
        #[test]
        fn equals_a_naive_list_of_segments(base: u32, ops in prop::collection::vec(ops(), 1..80)) {
            let (mut una, mut nxt) = (SeqNum::new(base), SeqNum::new(base));
            let mut board = Scoreboard::default();
            let mut model: VecDeque<Fate> = VecDeque::new();
            for op in ops {
                match op {
                    Op::Send(n) => {
                        board.on_sent(nxt, nxt + n * MSS, ms(0));
                        nxt += n * MSS;
                        model.extend((0..n).map(|_| Fate::InFlight));
                    }
                    Op::Acknowledge(n) => {
                        let n = n.min(model.len() as u32);
                        una += n * MSS;
                        let mut delivered = 0;
                        board.on_acknowledged(una, |sent| delivered += sent.len());
                        let expected = model.drain(..n as usize).filter(|fate| *fate != Fate::Sacked).count();
                        prop_assert_eq!(delivered, expected as u32 * MSS);
                    }
                    Op::Sack(at, n) => {
                        let (at, end) = (at.min(model.len() as u32), (at + n).min(model.len() as u32));
                        let mut delivered = 0;
                        // Ends inside a segment are rounded to whole segments.
                        board.on_sacked(una + at * MSS - 3, una + end * MSS + 3, MSS, |sent| delivered += sent.len());
                        let mut expected = 0;
                        for fate in model.range_mut(at as usize..end as usize).filter(|fate| **fate != Fate::Sacked) {
                            *fate = Fate::Sacked;
                            expected += MSS;
                        }
                        prop_assert_eq!(delivered, expected);
                    }
                    Op::LoseOlder(n) => {
                        let border = una + n * MSS;
                        // A range that reaches over the border is not lost as a whole.
                        let mut lost = Vec::new();
                        board.mark_lost(|sent| if sent.end.at_or_before(border) { lost.push(*sent); RangeState::Lost } else { RangeState::InFlight });
                        for sent in lost {
                            for index in sent.start.since(una) / MSS..sent.end.since(una) / MSS {
                                model[index as usize] = Fate::Lost;
                            }
                        }
                    }
                    Op::LoseAll => {
                        board.mark_all_lost();
                        let reneged = model.front() == Some(&Fate::Sacked);
                        model.iter_mut().filter(|fate| reneged || **fate != Fate::Sacked).for_each(|fate| *fate = Fate::Lost);
                    }
                    Op::Retransmit(n) => {
                        let first = model.iter().position(|fate| *fate == Fate::Lost);
                        let lost = board.next_lost();
                        prop_assert_eq!(lost.map(|sent| sent.start.since(una) / MSS), first.map(|at| at as u32));
                        if let Some(sent) = lost {
                            let end = sent.end.min(sent.start + n * MSS);
                            board.on_retransmitted(sent.start, end, ms(1));
                            for index in sent.start.since(una) / MSS..end.since(una) / MSS {
                                model[index as usize] = Fate::InFlight;
                            }
                        }
                    }
                }
                board.debug_assert_invariants(una, nxt);
                let count = |wanted| model.iter().filter(|fate| **fate == wanted).count() as u32 * MSS;
                prop_assert_eq!([board.flight(), board.sacked_bytes(), board.lost_bytes()],
                    [count(Fate::InFlight), count(Fate::Sacked), count(Fate::Lost)]);
            }
        }
    }

    #[test]
    fn parts_of_segments_are_not_worth_a_range() {
        let mut board = Scoreboard::default();
        board.on_sent(SeqNum::new(0), SeqNum::new(35), ms(0));
        board.on_sacked(SeqNum::new(11), SeqNum::new(19), 10, |_| {
            panic!("no whole segment")
        });
        board.on_sacked(SeqNum::new(12), SeqNum::new(35), 10, |sent| {
            assert_eq!(sent.start, SeqNum::new(20))
        });
        assert_eq!(board.sacked_bytes(), 15, "the short last segment is whole");
    }
}
