//! Pace of an end that sends without waiting for ACKs, and whether it follows a rate.

/// Time between two packets of an end that received no new ACK in between, smoothed like an RTT
/// (RFC 6298 §2.3).
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Pace {
    gap_ns: u64,
}

impl Pace {
    /// Adds a span after which the end sent again with no ACK in between.
    pub(super) fn add(&mut self, span_ns: u64) {
        self.gap_ns = match self.gap_ns {
            0 => span_ns,
            gap_ns => gap_ns - gap_ns / 8 + span_ns / 8,
        };
    }

    /// True if this span was far longer than the end's own pace, and ended soon after an ACK. The
    /// end then waited for the ACK, and the rest is the time that it needs to answer one.
    pub(super) fn is_faster(self, span_ns: u64, since_ack_ns: u64) -> bool {
        self.gap_ns > 0
            && span_ns / 4 > self.gap_ns.max(since_ack_ns)
            && since_ack_ns / 4 <= self.gap_ns
    }
}

/// Rate that an end keeps without waiting for ACKs: waiting time for each byte sent before.
///
/// Pacing (`tcp_pacing` of Linux, fq) and a shaper wait in proportion to the bytes that they let
/// through. A sender without its CPU waits for the time slices of other threads, however much it
/// sent before.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Rate {
    /// log2 of ns per byte, smoothed. 0 if there was no wait yet.
    level: f32,
    /// True if the last wait fitted the rate. One wait in five fits by chance; two in a row rarely
    /// do.
    kept: bool,
    /// Start of the data that were sent at once before the pause.
    pub(super) begin: u64,
}

impl Rate {
    /// Adds a wait of `span_ns` after data up to `end`. True if this wait and the one before fit
    /// the rate.
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

/// Tolerance: from half the rate to twice the rate. BBR's gains are 0.75 and 1.25
/// (draft-ietf-ccwg-bbr §5.3.3).
const OCTAVES: f32 = 1.0;

/// Smoothing: a rate that doubles from one round trip to the next is followed within four pauses; a
/// rate that is far off is forgotten within three.
const FOLLOWS: f32 = 4.0;
