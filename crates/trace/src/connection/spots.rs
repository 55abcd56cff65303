//! Frames at which waits of each cause ended: the first and the worst.

use serde::Serialize;

use crate::waits::Wait;

/// Frames at which a cause shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Number of the first packet that ended such a wait, from 1; 0 for none.
    pub first_frame: u32,
    /// Number of the packet that ended the longest such wait.
    pub worst_frame: u32,
    /// Length of that wait, ns.
    pub worst_ns: u64,
}

impl Spot {
    fn note(&mut self, frame: u32, ns: u64) {
        if self.first_frame == 0 {
            self.first_frame = frame;
        }
        if ns > self.worst_ns || self.worst_frame == 0 {
            (self.worst_frame, self.worst_ns) = (frame, ns);
        }
    }

    /// Joins the spots of two connections or causes.
    pub(crate) fn join(&mut self, other: Spot) {
        if other.first_frame == 0 {
            return;
        }
        if self.first_frame == 0 || other.first_frame < self.first_frame {
            self.first_frame = other.first_frame;
        }
        let order = |of: &Spot| (of.worst_ns, std::cmp::Reverse(of.worst_frame));
        if self.worst_frame == 0 || order(&other) > order(self) {
            (self.worst_frame, self.worst_ns) = (other.worst_frame, other.worst_ns);
        }
    }
}

/// Spots of all causes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spots([Spot; Wait::ALL.len()]);

impl Spots {
    /// Notes a wait of `ns` that ended with this frame. Frames beyond 2^32 are not told apart.
    pub(crate) fn note(&mut self, wait: Wait, frame: u64, ns: u64) {
        if ns > 0 {
            self.0[wait as usize].note(u32::try_from(frame).unwrap_or(u32::MAX), ns);
        }
    }

    pub(crate) fn add_all(&mut self, other: &Spots) {
        for (own, other) in self.0.iter_mut().zip(other.0) {
            own.join(other);
        }
    }

    /// Spot of several causes together.
    pub(crate) fn of(&self, waits: &[Wait]) -> Spot {
        let mut joined = Spot::default();
        for wait in waits {
            joined.join(self.0[*wait as usize]);
        }
        joined
    }
}
