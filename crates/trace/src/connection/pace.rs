//! How soon an end sends again without waiting for anything, and whether that follows a rate.

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

/// The rate that an end keeps of its own accord: the time that it waits for each byte that it had sent.
///
/// Pacing (`tcp_pacing` of Linux, fq) and a queue's shaper wait in proportion to what they let through. A
/// sender without its CPU waits for others' time slices, however much it sent before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// log2 of ns per byte, smoothed; 0 with none.
    level: f32,
    /// Whether the last wait was of that rate: by chance one in five is, two in a row seldom are.
    kept: bool,
    /// Where the data began that left in one go before the pause.
    pub(super) begin: u64,
}

impl Rate {
    /// It waited so long behind data up to `end`. Whether that is the rate of the waits before it.
    pub(super) fn keeps(&mut self, span_ns: u64, end: u64) -> bool {
        let bytes = end.saturating_sub(self.begin).max(1);
        let level = (span_ns.max(1) as f32 / bytes as f32).log2();
        if self.level == 0.0 {
            (self.level, self.kept) = (level, true);
            return true;
        }
        let apart = level - self.level;
        self.level += apart / FOLLOWS;
        let kept_before = std::mem::replace(&mut self.kept, apart.abs() <= OCTAVES);
        kept_before && self.kept
    }
}

/// Within twice the rate and half of it: BBR's gains are 0.75 and 1.25 (draft-ietf-ccwg-bbr §5.3.3).
const OCTAVES: f32 = 1.0;

/// A rate that doubles from one round trip to the next is followed within four pauses, one that is
/// far off is forgotten within three.
const FOLLOWS: f32 = 4.0;
