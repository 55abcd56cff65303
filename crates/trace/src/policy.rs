//! The ACK policy that one end's pure ACKs look like, and what cannot be told apart from it.
//!
//! Four things tell: how much each ACK covers, how far it moves the right edge of the window (what
//! the application read since the ACK before), whether that leaves the window as wide as ever (all
//! was read), and when it leaves. What its receiver saw of batches, a capture at the other end lacks.

use serde::Serialize;

use crate::histogram::Histogram;

/// What a policy shows in: pure ACKs that cover payload while nothing is missing. With a gap, or for a
/// duplicate, every receiver acknowledges at once (RFC 5681 §4.2).
#[derive(Debug, Clone, Default)]
pub(crate) struct Undisturbed {
    wire_segments: Histogram,
    /// Those that cover exactly one captured super-segment of several wire segments.
    exactly_one_super_segment: u64,
    /// Those that came 5 ms or more later than the RTT explains, after a silence as long.
    delayed: u64,
    growth: Growth,
    window: Windows,
    /// Those that left at a time of their own between two arrivals, as seen at the receiver.
    between_arrivals: u64,
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

/// What pure ACKs tell of reads.
#[derive(Debug, Clone, Copy, Default)]
struct Windows {
    /// ACKs whose window is as wide as any before.
    full: u64,
    /// ACKs of which it is known how far they moved the edge.
    known: u64,
    /// Of these, such as left it within a segment of where it was: no read came before them.
    stuck: u64,
    /// How far they moved it.
    steps: CommonestSteps,
    /// Those that moved it by the commonest step so far, which is not what they cover.
    of_step: u64,
    /// Those of either kind: with a step, or as wide as any before.
    of_reads: u64,
}

/// The commonest of many values, if it is about a fifth of them or more (Misra and Gries 1982): each
/// with how often it came, or less.
#[derive(Debug, Clone, Copy, Default)]
struct CommonestSteps([(u32, u32); 4]);

impl CommonestSteps {
    /// Another value, which is one of those before if it is this near.
    #[inline]
    fn add(&mut self, value: u32, within: u32) {
        let places = &mut self.0;
        let same = |place: &&mut (u32, u32)| place.1 > 0 && place.0.abs_diff(value) <= within;
        if let Some(place) = places.iter_mut().find(same) {
            place.1 = place.1.saturating_add(1);
        } else if let Some(place) = places.iter_mut().find(|place| place.1 == 0) {
            *place = (value, 1);
        } else {
            places.iter_mut().for_each(|place| place.1 -= 1);
        }
    }

    fn most(&self) -> (u32, u32) {
        let order = |place: &(u32, u32)| place.1;
        self.0.into_iter().max_by_key(order).unwrap_or_default()
    }
}

impl Undisturbed {
    #[inline]
    pub(crate) fn add(&mut self, covered: Covered, mss: u32) {
        let wire = covered.wire_segments;
        self.wire_segments.add(wire);
        self.exactly_one_super_segment +=
            u64::from(covered.on_boundary && covered.packets == 1 && wire > 1);
        self.delayed += u64::from(covered.late_ns.is_some_and(|ns| ns >= DELAYED_NS));
        self.between_arrivals += u64::from(covered.between_arrivals);
        let growth = &mut self.growth;
        let by_one = wire == growth.last + 1;
        growth.by_one += u64::from(by_one && growth.last > 0);
        growth.ramp_over |= !by_one;
        growth.ramp += u64::from(!growth.ramp_over);
        growth.last = wire;

        let (seen, window) = (&mut self.window, covered.window);
        let mut of_step = false;
        seen.full += u64::from(window.is_full);
        // Scales of a segment and more hide what was read.
        let mss = u64::from(mss);
        if let Some(edge) = window.edge_bytes.filter(|_| window.unit_bytes * 2 <= mss) {
            seen.known += 1;
            seen.stuck += u64::from(edge + window.unit_bytes < mss.min(covered.bytes));
            let (edge, unit) = (
                edge.min(u64::from(u32::MAX)) as u32,
                window.unit_bytes as u32,
            );
            // Both edges are cut off.
            seen.steps.add(edge, 2 * unit);
            let apart = u64::from(edge).abs_diff(covered.bytes) > window.unit_bytes;
            of_step = apart && seen.steps.most().0.abs_diff(edge) <= 2 * unit;
            seen.of_step += u64::from(of_step);
        }
        seen.of_reads += u64::from(of_step || window.is_full);
    }

    /// The policy that they look like.
    pub(crate) fn guess(&self) -> PolicyGuess {
        PolicyGuess {
            acks: self.wire_segments.n(),
            ..self.looks_like()
        }
    }

    fn looks_like(&self) -> PolicyGuess {
        let n = self.wire_segments.n();
        let (Some((mode, of_mode)), Some(max)) =
            (self.wire_segments.mode(), self.wire_segments.max())
        else {
            return PolicyGuess::unknown("no pure ACK covers payload".into());
        };
        if n < FEWEST {
            return PolicyGuess::unknown(format!("{n} pure ACKs that cover payload are too few"));
        }
        let most = |count: u64| count as f64 >= MOST * n as f64;
        let of = |count: u64| format!("{count} of {n} pure ACKs");
        let ramp = self.growth.ramp;
        // Short ascents come by chance where sizes of reads and segments differ.
        let stays = mode == max || (mode == ramp && ramp >= 5);
        if ramp >= 3 && (stays || self.growth.by_one * 2 >= n - 1) {
            let most = if stays { mode } else { max };
            return PolicyGuess::sure(
                Policy::GrowingAvoidance { most },
                format!(
                    "the first {ramp} pure ACKs cover 1 to {ramp} wire segments, each one more than before; most then {most}"
                ),
            );
        }
        if let Some(guess) = self.reads(of_mode) {
            return guess;
        }
        if most(self.delayed) {
            let text = format!(
                "{} come after a silence of 5 ms more than the RTT",
                of(self.delayed)
            );
            return self.or_on_read(Policy::ByTimer, text, mode);
        }
        if most(self.exactly_one_super_segment) {
            let text = format!(
                "{} cover exactly one captured super-segment",
                of(self.exactly_one_super_segment)
            );
            return self.or_on_read(Policy::PerBatch, text, mode);
        }
        // A few that cover many would be the policy of most segments.
        let covers_most = mode * of_mode * 2 >= self.wire_segments.sum();
        if most(of_mode) && mode > 0 && covers_most {
            let about = if mode < 64 { "exactly" } else { "about" };
            let text = format!("{} cover {about} {mode} wire segments", of(of_mode));
            return self.or_on_read(Policy::EverySegments { segments: mode }, text, mode);
        }
        let varies = format!("coverage varies up to {max} wire segments");
        if most(self.window.of_reads) && !self.window.refutes_reads() {
            let evidence = format!(
                "{varies}, and {} leave the window as a read would: by batches that the receiver made and this capture does not show, or on read; not to be told apart here",
                of(self.window.of_reads)
            );
            return PolicyGuess {
                or: vec![Policy::PerBatch, Policy::OnRead],
                ..PolicyGuess::sure(Policy::Mixed, evidence)
            };
        }
        PolicyGuess::sure(
            Policy::Mixed,
            format!("{varies}; {} cover {mode}", of(of_mode)),
        )
    }

    /// On read, where nothing else looks like it.
    fn reads(&self, of_mode: u64) -> Option<PolicyGuess> {
        let n = self.wire_segments.n();
        let seen = &self.window;
        if n < FEWEST_OF_READS || seen.stuck * 10 > seen.known {
            return None;
        }
        let part = |share: f64, of: u64| (share * of as f64).ceil() as u64;
        let (step, of_step) = seen.steps.most();
        let of_step = u64::from(of_step).min(seen.of_step);
        // Each ACK moves the edge by one read, while what it covers varies with what came until then.
        if seen.known > 0 && of_step >= part(0.6, seen.known) && of_step > of_mode + n / 20 {
            return Some(PolicyGuess::sure(
                Policy::OnRead,
                format!(
                    "{of_step} of {} pure ACKs move the right edge of the window by about {step} bytes, one read, whatever they cover; {} move it by less than a segment",
                    seen.known, seen.stuck
                ),
            ));
        }
        let by_time = of_mode < part(MOST, n)
            && seen.full >= part(MOST, n)
            && self.between_arrivals >= part(0.5, n);
        by_time.then(|| {
            PolicyGuess::sure(
                Policy::OnRead,
                format!(
                    "{} of {n} pure ACKs leave the window as wide as ever, and {} leave at a time of their own between two arrivals",
                    seen.full, self.between_arrivals
                ),
            )
        })
    }

    /// This policy, or that of a reader that comes at the same moments, unless ACKs left unread data.
    fn or_on_read(&self, policy: Policy, evidence: String, mode: u64) -> PolicyGuess {
        // 4.4BSD's tcp_output: a read that opens the window by two segments is worth an ACK.
        if mode < 2 || self.window.refutes_reads() {
            return PolicyGuess::sure(policy, evidence);
        }
        let evidence =
            format!("{evidence}; a reader that reads as much each time would look the same");
        PolicyGuess {
            or: vec![Policy::OnRead],
            ..PolicyGuess::sure(policy, evidence)
        }
    }
}

impl Windows {
    /// Whether too many ACKs left that no read had come before: more than what a reader that is not
    /// waited for any longer explains.
    fn refutes_reads(&self) -> bool {
        self.stuck * 4 > self.known
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

/// One ACK that covered payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covered {
    pub(crate) pure: bool,
    pub(crate) bytes: u64,
    pub(crate) wire_segments: u64,
    pub(crate) packets: u64,
    pub(crate) on_boundary: bool,
    pub(crate) window: Window,
    /// Time since the last packet covered in which nothing else passed, less the RTT, ns.
    pub(crate) late_ns: Option<u64>,
    /// Whether it left at a time of its own between two arrivals.
    pub(crate) between_arrivals: bool,
    /// Whether a gap or a duplicate made it leave.
    pub(crate) disturbed: bool,
}

/// The window that an ACK offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// How far its right edge moved since the ACK before: what was read in between, as far as the
    /// receiver offers what its buffer has room for. `None` if the window's scale is unknown.
    pub(crate) edge_bytes: Option<u64>,
    /// What the scale cuts off: edges are known to this much.
    pub(crate) unit_bytes: u64,
    /// Whether it is as wide as any before, to a segment: as far as it tells, nothing is left to be read.
    pub(crate) is_full: bool,
}

/// A policy and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyGuess {
    /// The policy.
    pub policy: Policy,
    /// What would look the same in this capture.
    pub or: Vec<Policy>,
    /// How many pure ACKs it was guessed from: those that cover payload while nothing is missing.
    pub acks: u64,
    /// What it was guessed from.
    pub evidence: String,
}

impl PolicyGuess {
    fn sure(policy: Policy, evidence: String) -> PolicyGuess {
        PolicyGuess {
            policy,
            or: Vec::new(),
            acks: 0,
            evidence,
        }
    }

    pub(crate) fn unknown(evidence: String) -> PolicyGuess {
        PolicyGuess::sure(Policy::Unknown, evidence)
    }
}

/// Above what a receiver needs to answer at once, below the shortest delayed ACK of Linux (12 ms, where
/// connection/stall.rs tells how it was measured).
const DELAYED_NS: u64 = 5_000_000;

/// Pure ACKs that a guess needs; one of reads, which a few reads at the right moments would look like,
/// needs more.
const FEWEST: u64 = 4;
const FEWEST_OF_READS: u64 = 8;

/// The share that is called most.
const MOST: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    /// ACKs that cover so many wire segments in so many packets each (0: in one each) and move the
    /// edge so far (0: as far as they cover).
    fn check(covered: &[(u64, u64)], packets: u64, expected: Policy, or: &[Policy]) {
        let mut acks = Undisturbed::default();
        for &(wire_segments, edge) in covered {
            let bytes = wire_segments * 1460;
            let covered = Covered {
                pure: true,
                bytes,
                wire_segments,
                packets: if packets == 0 { wire_segments } else { packets },
                on_boundary: true,
                window: Window {
                    edge_bytes: Some(edge),
                    unit_bytes: 1,
                    is_full: edge == bytes,
                },
                late_ns: None,
                between_arrivals: false,
                disturbed: false,
            };
            acks.add(covered, 1460);
        }
        let guess = acks.guess();
        assert_eq!((guess.policy, &guess.or[..]), (expected, or), "{covered:?}");
    }

    /// With a reader that keeps up.
    fn kept(wire_segments: &[u64]) -> Vec<(u64, u64)> {
        wire_segments
            .iter()
            .map(|&wire| (wire, wire * 1460))
            .collect()
    }

    const TWO: Policy = Policy::EverySegments { segments: 2 };
    const EIGHT: Policy = Policy::EverySegments { segments: 8 };
    const READ: [Policy; 1] = [Policy::OnRead];
    const BATCH_OR_READ: [Policy; 2] = [Policy::PerBatch, Policy::OnRead];

    #[test]
    fn the_guess_follows_what_the_acks_cover() {
        check(&kept(&[2, 2, 2]), 0, Policy::Unknown, &[]);
        check(&kept(&[2, 2, 2, 1, 2]), 0, TWO, &READ);
        check(&kept(&[8, 8, 8, 8, 8, 3]), 0, EIGHT, &READ);
        let growing = |most| Policy::GrowingAvoidance { most };
        check(&kept(&[1, 2, 3, 4, 5, 6, 7, 8]), 0, growing(8), &[]);
        check(&kept(&[1, 2, 3, 4, 4, 4, 4, 4, 4]), 0, growing(4), &[]);
        // One that a busy receiver sent late is no other limit.
        let late = [1, 2, 3, 4, 5, 5, 5, 5, 11, 5, 5];
        check(&kept(&late), 0, growing(5), &[]);
        check(&kept(&[3, 44, 12, 7, 45]), 1, Policy::PerBatch, &READ);
        check(&kept(&[3, 44, 12, 7, 45]), 0, Policy::Mixed, &BATCH_OR_READ);
    }

    #[test]
    fn a_policy_of_most_acks_is_none_if_a_few_cover_most_segments() {
        let mut covered = kept(&[1; 20]);
        covered.extend(kept(&[90, 120]));
        check(&covered, 0, Policy::Mixed, &BATCH_OR_READ);
    }

    #[test]
    fn the_right_edge_tells_reads() {
        // A read of 4096 bytes before each ACK, whatever came until then.
        let of_reads = [
            (3, 4096),
            (2, 4096),
            (3, 4096),
            (4, 4096),
            (2, 4096),
            (3, 4096),
            (3, 4096),
        ];
        check(&[&of_reads[..], &of_reads].concat(), 0, Policy::OnRead, &[]);
        // ACKs that leave unread data are no reader's.
        let unread = [(2, 0), (2, 0), (2, 0), (2, 8192)].repeat(3);
        check(&unread, 0, TWO, &[]);
        let unread = [(2, 0), (5, 0), (3, 0), (4, 16_384)].repeat(3);
        check(&unread, 0, Policy::Mixed, &[]);
    }
}
