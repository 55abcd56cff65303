//! Short packets: split tails of super-segments, and packets that larger writes would save.

use super::Direction;

/// Kind of a short packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Short {
    /// Not short, or of no interest.
    No,
    /// Tail that was split off a super-segment.
    Tail,
    /// Packet that a larger write would save.
    Joinable,
}

impl Direction {
    /// Handles a packet with payload for the detector of tail splits and of packets that larger writes would save.
    ///
    /// A split tail is a short packet with PSH that directly follows a packet of whole segments,
    /// while no other small packet is unacknowledged (which Nagle's and Minshall's rules would wait
    /// for). The direction must have super-segments: without them every tail is a packet of its
    /// own.
    #[inline]
    pub(crate) fn on_tail(&mut self, seq: u64, payload: u32, push: bool, directly: bool) -> Short {
        let mss = self.mss.bytes;
        let small_unacked = self.small_end > self.una;
        let tail = payload < mss
            && push
            && directly
            && self.last_data_full
            && seq == self.nxt
            && self.sent.super_segments > 0
            && !small_unacked;
        let short = payload != mss && !payload.is_multiple_of(mss);
        self.last_data_full = !short && !push;
        if short {
            self.small_end = seq + u64::from(payload);
        }
        self.ran_out = short && push;
        self.sent.tail_splits += u64::from(tail);
        if payload < mss && !tail {
            self.sent.small_packets += 1;
            let before = if directly && seq == self.nxt {
                self.small_run_bytes
            } else {
                0
            };
            let after = before + u64::from(payload);
            let mss = u64::from(mss);
            // The joined bytes need no more packets than the bytes before.
            let saved = before > 0 && after.div_ceil(mss) == before.div_ceil(mss);
            self.sent.joinable_packets += u64::from(saved);
            self.small_run_bytes = after;
            if saved { Short::Joinable } else { Short::No }
        } else {
            self.small_run_bytes = 0;
            if tail { Short::Tail } else { Short::No }
        }
    }
}
