//! What an end knew of ACKs when it sent: seen elsewhere than at that end, what passed a while ago.

use super::Direction;

/// What an ACK told the end that it went to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Learned {
    /// When it passed the capture, ns.
    pub(crate) at_ns: u64,
    /// All before was acknowledged.
    pub(crate) una: u64,
    /// The edge of the window.
    edge: u64,
}

/// ACKs that are remembered, a sixteenth of the way apart or more: two ways.
pub(super) const LEARNED_MOST: usize = 32;

/// Where the way to the end is shorter the newest ACK is what it knows.
const NEAR_NS: u64 = 500_000;

impl Direction {
    /// An ACK told this end something new; the way to it and back is so long.
    #[inline]
    pub(crate) fn learn(&mut self, at_ns: u64, advanced: bool, way_ns: u64) {
        let now = Learned {
            at_ns: if advanced { at_ns } else { self.newest.at_ns },
            una: self.una,
            edge: self.allowed,
        };
        if advanced && self.una < self.nxt {
            self.part_acked_ns = at_ns;
        }
        self.newest = now;
        if way_ns > NEAR_NS {
            self.keep(Learned { at_ns, ..now }, way_ns);
        }
    }

    #[cold]
    fn keep(&mut self, now: Learned, way_ns: u64) {
        let apart_ns = way_ns / 16;
        let before_last = self
            .learned
            .len()
            .checked_sub(2)
            .map(|at| self.learned[at].at_ns);
        if before_last.is_some_and(|before| now.at_ns.saturating_sub(before) < apart_ns) {
            self.learned.pop_back();
        } else if self.learned.len() == LEARNED_MOST {
            self.learned.pop_front();
        }
        self.learned.push_back(now);
    }

    /// The newest ACK that this end knew of when it sent what passes now, and the edge of its window then.
    pub(crate) fn knew_of_ack(
        &self,
        now_ns: u64,
        way_ns: u64,
        tolerance_ns: u64,
    ) -> (Learned, u64) {
        if way_ns <= NEAR_NS {
            return (self.newest, self.newest.edge);
        }
        let until_ns = now_ns.saturating_sub(way_ns).saturating_add(tolerance_ns);
        let known = self.learned.iter().rev().find(|of| of.at_ns <= until_ns);
        let known = known.or(self.learned.front()).copied().unwrap_or_default();
        (known, known.edge)
    }

    /// The same without leave for a path that varies.
    pub(crate) fn knew(&self, now_ns: u64, way_ns: u64) -> (Learned, u64) {
        self.knew_of_ack(now_ns, way_ns, 0)
    }
}
