//! ACKs that an end knew when it sent: at a capture away from that end, those that passed some time
//! ago.

use super::Direction;

/// State that an ACK reported to the end that received it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Learned {
    /// Time when the ACK passed the capture, ns.
    pub(crate) at_ns: u64,
    /// Acknowledged sequence number: all before it.
    pub(crate) una: u64,
    /// Right edge of the window.
    edge: u64,
}

/// Limit of ACKs remembered. Between two there is at least a sixteenth of the way, so 32 span two
/// ways.
pub(super) const LEARNED_MOST: usize = 32;

/// Limit of the way to an end below which the end knows the newest ACK.
const NEAR_NS: u64 = 500_000;

impl Direction {
    /// Records the state after an ACK to this end. `advanced`: the ACK covers new data. `way_ns`:
    /// time from the capture to this end and back.
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

    /// Newest ACK that this end knew when it sent the packet that passes now, and the right edge of
    /// its window then.
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

    /// Calls [`Self::knew_of_ack`] without tolerance for a path that varies.
    pub(crate) fn knew(&self, now_ns: u64, way_ns: u64) -> (Learned, u64) {
        self.knew_of_ack(now_ns, way_ns, 0)
    }
}
