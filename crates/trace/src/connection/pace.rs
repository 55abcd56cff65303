//! How soon an end sends again without waiting for anything.

/// The time between packets between which it was told nothing new, smoothed as an RTT is (RFC 6298 §2.3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    gap_ns: u64,
}

impl Pace {
    /// It sent again after this long, with no ACK in between.
    pub(super) fn add(&mut self, span_ns: u64) {
        self.gap_ns = match self.gap_ns {
            0 => span_ns,
            gap_ns => gap_ns - gap_ns / 8 + span_ns / 8,
        };
    }

    /// Whether this span was far longer than its own doing takes, and ended soon after an ACK: then it
    /// waited for the ACK, and the rest is the time that it needs to answer one.
    pub(super) fn is_faster(self, span_ns: u64, since_ack_ns: u64) -> bool {
        self.gap_ns > 0
            && span_ns / 4 > self.gap_ns.max(since_ack_ns)
            && since_ack_ns / 4 <= self.gap_ns
    }
}
