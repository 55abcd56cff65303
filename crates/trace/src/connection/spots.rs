//! Frames at which causes show: the first and the worst.

use serde::Serialize;

use crate::waits::Wait;

/// Frames at which a cause shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Spot {
    /// Number of the first packet that ended such a wait, or is of such packets, from 1; 0 for none.
    pub first_frame: u32,
    /// Number of the packet that ended the longest such wait; 0 if the cause is not one of time.
    #[serde(skip_serializing_if = "is_zero")]
    pub worst_frame: u32,
    /// Length of that wait, ns; 0 if the cause is not one of time.
    #[serde(skip_serializing_if = "is_zero")]
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

    /// This, or another if this has no frame.
    pub(crate) fn or(self, other: Spot) -> Spot {
        if self.first_frame == 0 { other } else { self }
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

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

/// Kind of packets whose first frame shows a cause that is not one of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sight {
    /// SYN; of many connections only those of failed handshakes.
    Syn,
    /// RST; of many connections only those that a RST cut off.
    Reset,
    Retransmission,
    TailSplit,
    Joinable,
    /// Pure ACK that covers data.
    PureAck,
    /// Packet of one full-sized segment; of many connections only those with a direction without super-segments.
    FullSized,
}

/// Spots of all causes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Spots {
    waits: [Spot; Wait::ALL.len()],
    /// First frames of packets, by [`Sight`]; 0 for none.
    sights: [u32; 7],
}

impl Spots {
    /// Notes a wait of `ns` that ended with this frame.
    pub(crate) fn note(&mut self, wait: Wait, frame: u64, ns: u64) {
        if ns > 0 {
            self.waits[wait as usize].note(numbered(frame), ns);
        }
    }

    /// True if no such packet was noted.
    #[inline(always)]
    pub(crate) fn lacks(&self, sight: Sight) -> bool {
        self.sights[sight as usize] == 0
    }

    /// Notes a packet.
    pub(crate) fn see(&mut self, sight: Sight, frame: u64) {
        let first = &mut self.sights[sight as usize];
        if *first == 0 {
            *first = numbered(frame);
        }
    }

    pub(crate) fn add_waits(&mut self, other: &Spots) {
        for (own, other) in self.waits.iter_mut().zip(other.waits) {
            own.join(other);
        }
    }

    /// Adds what another connection shows of these packets.
    pub(crate) fn add_sight(&mut self, sight: Sight, other: &Spots) {
        let frames = [self.sights, other.sights].map(|of| of[sight as usize]);
        let seen = frames.into_iter().filter(|frame| *frame > 0);
        self.sights[sight as usize] = seen.min().unwrap_or(0);
    }

    /// First of these packets.
    pub(crate) fn at(&self, sight: Sight) -> Spot {
        Spot {
            first_frame: self.sights[sight as usize],
            ..Spot::default()
        }
    }

    /// Spot of several causes together.
    pub(crate) fn of(&self, waits: &[Wait]) -> Spot {
        let mut joined = Spot::default();
        for wait in waits {
            joined.join(self.waits[*wait as usize]);
        }
        joined
    }
}

/// Number of a frame. Frames beyond 2^32 are not told apart.
fn numbered(frame: u64) -> u32 {
    u32::try_from(frame).unwrap_or(u32::MAX)
}
