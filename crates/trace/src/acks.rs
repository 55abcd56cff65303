//! What one end's ACKs cover, and the policy that this looks like.

use serde::Serialize;

use crate::histogram::Histogram;

/// ACKs of one end that acknowledged payload for the first time.
#[derive(Debug, Clone, Default)]
pub struct AckCoverage {
    /// Wire segments that each pure ACK covers; a segment covered in part counts with the later ACK.
    pub wire_segments_per_pure_ack: Histogram,
    /// Payload bytes that each pure ACK covers.
    pub bytes_per_pure_ack: Histogram,
    /// Pure ACKs that cover more than two full-sized segments (RFC 2525 §2.13).
    pub stretch_acks: u64,
    /// ACKs that came with data, a SYN or a FIN.
    pub piggybacked_acks: u64,
    /// Payload bytes covered by either.
    pub bytes_acked: u64,
    undisturbed: Undisturbed,
}

/// What a policy shows in: pure ACKs that cover payload while nothing is missing. With a gap, or for a
/// duplicate, every receiver acknowledges at once (RFC 5681 §4.2).
#[derive(Debug, Clone, Default)]
struct Undisturbed {
    wire_segments: Histogram,
    /// Those that cover exactly one captured super-segment of several wire segments.
    exactly_one_super_segment: u64,
    /// Those that end within a captured packet.
    within_a_packet: u64,
    /// Those that opened the window beyond what they acknowledged, and pure ACKs that did nothing else.
    window_opening: u64,
    window_opening_alone: u64,
    /// Those that came 5 ms or more later than the RTT explains, after a silence as long.
    delayed: u64,
    growth: Growth,
}

/// How the coverage grows from one pure ACK to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    last: u64,
    /// ACKs of the first ascent by one, while it lasts.
    ramp: u64,
    ramp_over: bool,
    by_one: u64,
}

/// One ACK that covered payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covered {
    pub(crate) pure: bool,
    pub(crate) bytes: u64,
    pub(crate) wire_segments: u64,
    pub(crate) packets: u64,
    pub(crate) on_boundary: bool,
    pub(crate) opens_window: bool,
    /// Time since the last packet covered in which nothing else passed, less the RTT, ns.
    pub(crate) late_ns: Option<u64>,
    /// Whether a gap or a duplicate made it leave.
    pub(crate) disturbed: bool,
}

impl Undisturbed {
    #[inline]
    fn add(&mut self, covered: Covered) {
        let wire = covered.wire_segments;
        self.wire_segments.add(wire);
        self.exactly_one_super_segment +=
            u64::from(covered.on_boundary && covered.packets == 1 && wire > 1);
        self.within_a_packet += u64::from(!covered.on_boundary);
        self.window_opening += u64::from(covered.opens_window);
        self.delayed += u64::from(covered.late_ns.is_some_and(|ns| ns >= DELAYED_NS));
        let growth = &mut self.growth;
        let by_one = wire == growth.last + 1;
        growth.by_one += u64::from(by_one && growth.last > 0);
        growth.ramp_over |= !by_one;
        growth.ramp += u64::from(!growth.ramp_over);
        growth.last = wire;
    }

    /// Pure ACKs that look as if a read made them leave.
    fn reads(&self) -> u64 {
        self.window_opening.max(self.within_a_packet) + self.window_opening_alone
    }
}

impl AckCoverage {
    #[inline]
    pub(crate) fn add(&mut self, covered: Covered, mss: u32) {
        self.bytes_acked += covered.bytes;
        if !covered.pure {
            self.piggybacked_acks += 1;
            return;
        }
        let wire = covered.wire_segments;
        self.wire_segments_per_pure_ack.add(wire);
        self.bytes_per_pure_ack.add(covered.bytes);
        self.stretch_acks += u64::from(covered.bytes > 2 * u64::from(mss));
        if !covered.disturbed {
            self.undisturbed.add(covered);
        }
    }

    /// A pure ACK acknowledged nothing new; whether it opened the window.
    #[inline]
    pub(crate) fn on_repeated(&mut self, opens_window: bool) {
        self.undisturbed.window_opening_alone += u64::from(opens_window);
    }

    /// The policy that the pure ACKs look like.
    pub fn policy(&self) -> PolicyGuess {
        let seen = &self.undisturbed;
        let acks = &seen.wire_segments;
        let n = acks.n();
        let (Some((mode, of_mode)), Some(max)) = (acks.mode(), acks.max()) else {
            return PolicyGuess::unknown("no pure ACK covers payload".into());
        };
        if n < FEWEST {
            return PolicyGuess::unknown(format!("{n} pure ACKs that cover payload are too few"));
        }
        let share = |count: u64| count as f64 / n as f64;
        let of = |count: u64| format!("{count} of {n} pure ACKs");
        let ramp = seen.growth.ramp;
        let (policy, evidence) = if ramp >= 3 && (mode == max || seen.growth.by_one * 2 >= n - 1) {
            (
                Policy::GrowingAvoidance { most: max },
                format!(
                    "the first {ramp} pure ACKs cover 1 to {ramp} wire segments, each one more than before; at most {max}"
                ),
            )
        } else if share(seen.delayed) >= MOST {
            (
                Policy::ByTimer,
                format!(
                    "{} come after a silence of 5 ms more than the RTT",
                    of(seen.delayed)
                ),
            )
        } else if share(seen.exactly_one_super_segment) >= MOST {
            (
                Policy::PerBatch,
                format!(
                    "{} cover exactly one captured super-segment",
                    of(seen.exactly_one_super_segment)
                ),
            )
        } else if share(of_mode) >= MOST {
            let policy = match mode {
                0 => Policy::Mixed,
                segments => Policy::EverySegments { segments },
            };
            (
                policy,
                format!("{} cover exactly {mode} wire segments", of(of_mode)),
            )
        } else if seen.reads() * 2 >= n + seen.window_opening_alone {
            (
                Policy::OnRead,
                format!(
                    "coverage varies up to {max} wire segments; {} open the window further or end within a captured packet, {} more do nothing but open it",
                    of(seen.window_opening.max(seen.within_a_packet)),
                    seen.window_opening_alone
                ),
            )
        } else {
            (
                Policy::Mixed,
                format!(
                    "coverage varies up to {max} wire segments; {} cover {mode}",
                    of(of_mode)
                ),
            )
        };
        PolicyGuess { policy, evidence }
    }
}

/// An ACK policy, guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Policy {
    /// Too little to tell.
    Unknown,
    /// One ACK for every so many wire segments; RFC 5681's is 2.
    EverySegments {
        /// How many.
        segments: u64,
    },
    /// ACK avoidance that covers one segment more each time (HP-UX, Solaris).
    GrowingAvoidance {
        /// The most that one ACK covers.
        most: u64,
    },
    /// One for each batch that GRO, or the sender's segmentation offload, hands over.
    PerBatch,
    /// When the delayed-ACK timer fires.
    ByTimer,
    /// When the application reads and so opens the window.
    OnRead,
    /// None of these for most.
    Mixed,
}

/// A policy and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyGuess {
    /// The policy.
    pub policy: Policy,
    /// What it was guessed from.
    pub evidence: String,
}

impl PolicyGuess {
    fn unknown(evidence: String) -> PolicyGuess {
        PolicyGuess {
            policy: Policy::Unknown,
            evidence,
        }
    }
}

/// Above what a receiver needs to answer at once, below the shortest delayed ACK of Linux (12 ms, where
/// connection/stall.rs tells how it was measured).
const DELAYED_NS: u64 = 5_000_000;

/// Pure ACKs that a guess needs.
const FEWEST: u64 = 4;

/// The share that is called most.
const MOST: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    fn check(wire_segments: &[u64], packets: u64, expected: Policy) {
        let mut acks = AckCoverage::default();
        for &wire_segments in wire_segments {
            let bytes = wire_segments * 1460;
            let covered = Covered {
                pure: true,
                bytes,
                wire_segments,
                packets: if packets == 0 { wire_segments } else { packets },
                on_boundary: true,
                opens_window: packets == 9,
                late_ns: None,
                disturbed: false,
            };
            acks.add(covered, 1460);
        }
        assert_eq!(acks.policy().policy, expected, "{wire_segments:?}");
    }

    #[test]
    fn the_guess_follows_what_the_acks_cover() {
        check(&[2, 2, 2], 0, Policy::Unknown);
        check(&[2, 2, 2, 1, 2], 0, Policy::EverySegments { segments: 2 });
        check(
            &[8, 8, 8, 8, 8, 3],
            0,
            Policy::EverySegments { segments: 8 },
        );
        check(
            &[1, 2, 3, 4, 5, 6, 7, 8],
            0,
            Policy::GrowingAvoidance { most: 8 },
        );
        check(
            &[1, 2, 3, 4, 4, 4, 4, 4, 4],
            0,
            Policy::GrowingAvoidance { most: 4 },
        );
        check(&[3, 44, 12, 7, 45], 1, Policy::PerBatch);
        check(&[3, 44, 12, 7, 45], 9, Policy::OnRead);
        check(&[3, 44, 12, 7, 45], 0, Policy::Mixed);
    }
}
