//! Guess of the ACK policy that fits one end's pure ACKs, and of policies that cannot be
//! distinguished from it.
//!
//! Four facts decide: how much each ACK covers; how far it moves the right edge of the window (the
//! bytes that the application read since the ACK before); whether the window is then at its maximum
//! (all was read); and when the ACK leaves. Batches that the receiver saw are missing in a capture
//! at the other end.

use serde::Serialize;

use crate::histogram::Histogram;

/// Evidence for a policy: pure ACKs that cover payload while nothing is missing. For a gap or a
/// duplicate every receiver acknowledges at once (RFC 5681 §4.2).
#[derive(Debug, Clone, Default)]
pub(crate) struct Undisturbed {
    wire_segments: Histogram,
    /// ACKs that cover exactly one captured super-segment of several wire segments.
    exactly_one_super_segment: u64,
    /// ACKs that came 5 ms or more later than the RTT explains, after a silence of that length.
    delayed: u64,
    growth: Growth,
    window: Windows,
    /// ACKs that left at a time of their own between two arrivals, as seen at the receiver.
    between_arrivals: u64,
}

/// Growth of the coverage from one pure ACK to the next.
#[derive(Debug, Clone, Copy, Default)]
struct Growth {
    last: u64,
    /// ACKs of the first ascent in steps of one, while it lasts.
    ramp: u64,
    ramp_over: bool,
    by_one: u64,
}

/// Evidence for reads in the windows of pure ACKs.
#[derive(Debug, Clone, Copy, Default)]
struct Windows {
    /// ACKs whose window is as large as any before.
    full: u64,
    /// ACKs for which the movement of the window's edge is known.
    known: u64,
    /// ACKs in `known` that left the edge within a segment of where it was: no read came before
    /// them.
    stuck: u64,
    /// Most frequent movements of the edge, bytes.
    steps: CommonestSteps,
    /// ACKs that moved the edge by the most frequent step so far, if that step differs from their
    /// coverage.
    of_step: u64,
    /// ACKs with such a step, or with a window as large as any before.
    of_reads: u64,
}

/// Most frequent of many values, if it is about a fifth of them or more (Misra and Gries 1982).
/// Each has a lower bound of its frequency.
#[derive(Debug, Clone, Copy, Default)]
struct CommonestSteps([(u32, u32); 4]);

impl CommonestSteps {
    /// Counts a value. It equals an earlier value if their distance is at most `within`.
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
        // A window scale of a segment or more hides the bytes read.
        let mss = u64::from(mss);
        if let Some(edge) = window.edge_bytes.filter(|_| window.unit_bytes * 2 <= mss) {
            seen.known += 1;
            seen.stuck += u64::from(edge + window.unit_bytes < mss.min(covered.bytes));
            let (edge, unit) = (
                edge.min(u64::from(u32::MAX)) as u32,
                window.unit_bytes as u32,
            );
            // Both edges are rounded down.
            seen.steps.add(edge, 2 * unit);
            let apart = u64::from(edge).abs_diff(covered.bytes) > window.unit_bytes;
            of_step = apart && seen.steps.most().0.abs_diff(edge) <= 2 * unit;
            seen.of_step += u64::from(of_step);
        }
        seen.of_reads += u64::from(of_step || window.is_full);
    }

    /// Policy that fits these ACKs.
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
        if let Some(guess) = self.grows(mode, max) {
            return guess;
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
        // A few ACKs that cover many segments would decide the policy of most segments.
        let covers_most = mode * of_mode * 2 >= self.wire_segments.sum();
        if most(of_mode) && mode > 0 && covers_most {
            let about = if mode < 64 { "exactly" } else { "about" };
            let text = format!("{} cover {about} {mode} wire segments", of(of_mode));
            return self.or_on_read(Policy::EverySegments { segments: mode }, text, mode);
        }
        self.mixed(mode, of_mode, max)
    }

    /// Guesses a growing limit if the first ACKs ascend one by one.
    fn grows(&self, mode: u64, max: u64) -> Option<PolicyGuess> {
        let ramp = self.growth.ramp;
        // Short ascents come by chance if the sizes of reads and segments differ.
        let stays = mode == max || (mode == ramp && ramp >= 5);
        let by_one = self.growth.by_one * 2 >= self.wire_segments.n() - 1;
        (ramp >= 3 && (stays || by_one)).then(|| {
            let most = if stays { mode } else { max };
            PolicyGuess::sure(
                Policy::GrowingAvoidance { most },
                format!(
                    "the first {ramp} pure ACKs cover 1 to {ramp} wire segments, each one more than before; most then {most}"
                ),
            )
        })
    }

    /// Guess if no single policy fits.
    fn mixed(&self, mode: u64, of_mode: u64, max: u64) -> PolicyGuess {
        let n = self.wire_segments.n();
        let of = |count: u64| format!("{count} of {n} pure ACKs");
        let varies = format!("coverage varies up to {max} wire segments");
        let of_reads = self.window.of_reads;
        if of_reads as f64 >= MOST * n as f64 && !self.window.refutes_reads() {
            let evidence = format!(
                "{varies}, and {} leave the window as a read would: by batches that the receiver made and this capture does not show, or on read; undecided here",
                of(of_reads)
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

    /// Guesses "on read" if only that policy fits.
    fn reads(&self, of_mode: u64) -> Option<PolicyGuess> {
        let n = self.wire_segments.n();
        let seen = &self.window;
        if n < FEWEST_OF_READS || seen.stuck * 10 > seen.known {
            return None;
        }
        let part = |share: f64, of: u64| (share * of as f64).ceil() as u64;
        let (step, of_step) = seen.steps.most();
        let of_step = u64::from(of_step).min(seen.of_step);
        // Each ACK moves the edge by one read, while its coverage varies with the data that came
        // until then.
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

    /// Guesses `policy`, or a reader that reads at the same moments, unless ACKs left data unread.
    fn or_on_read(&self, policy: Policy, evidence: String, mode: u64) -> PolicyGuess {
        // 4.4BSD's tcp_output sends an ACK if a read opens the window by two segments.
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
    /// True if too many ACKs left without a read before them: more than a reader explains that is
    /// no longer waited for.
    fn refutes_reads(&self) -> bool {
        self.stuck * 4 > self.known
    }
}

/// ACK policy, as guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Policy {
    /// Too little evidence.
    Unknown,
    /// One ACK for a fixed number of wire segments; RFC 5681's is 2.
    EverySegments {
        /// Wire segments for each ACK.
        segments: u64,
    },
    /// ACK avoidance: each ACK covers one segment more than the one before (HP-UX, Solaris).
    GrowingAvoidance {
        /// Limit of wire segments that one ACK covers.
        most: u64,
    },
    /// One ACK for each batch made by GRO or by the sender's segmentation offload.
    PerBatch,
    /// ACKs when the delayed-ACK timer fires.
    ByTimer,
    /// ACKs when the application reads and so opens the window.
    OnRead,
    /// No single policy fits most ACKs.
    Mixed,
}

/// Coverage of one ACK of payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covered {
    pub(crate) pure: bool,
    pub(crate) bytes: u64,
    pub(crate) wire_segments: u64,
    pub(crate) packets: u64,
    pub(crate) on_boundary: bool,
    pub(crate) window: Window,
    /// Time after the newest covered packet, minus the RTT, ns; only time in which no other packet
    /// passed counts. `None` if the capture has no times.
    pub(crate) late_ns: Option<u64>,
    /// True if the ACK left at a time of its own between two arrivals.
    pub(crate) between_arrivals: bool,
    /// True if a gap or a duplicate triggered the ACK.
    pub(crate) disturbed: bool,
}

/// Window that an ACK offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// Movement of the right edge since the ACK before: bytes read in between, if the receiver
    /// offers all free space of its buffer. `None` if the window's scale is unknown.
    pub(crate) edge_bytes: Option<u64>,
    /// Unit of the window's scale, bytes: edges are known to this precision.
    pub(crate) unit_bytes: u64,
    /// True if the window is as large as any before, to a segment: probably no data are left to
    /// read.
    pub(crate) is_full: bool,
}

/// Guessed policy, with its evidence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyGuess {
    /// Guessed policy.
    pub policy: Policy,
    /// Other policies that would look the same in this capture.
    pub or: Vec<Policy>,
    /// Pure ACKs that the guess is based on: those that cover payload while nothing is missing.
    pub acks: u64,
    /// Evidence for the guess, as text.
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

/// Least delay of an ACK that a timer sent: more than a receiver needs to answer at once, and less
/// than the shortest delayed ACK of Linux (12 ms; connection/stall.rs describes the measurement).
const DELAYED_NS: u64 = 5_000_000;

/// Least number of pure ACKs for a guess. "On read" needs more, because a few reads at the right
/// moments would look like it.
const FEWEST: u64 = 4;
const FEWEST_OF_READS: u64 = 8;

/// Share of ACKs that counts as most.
const MOST: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks the guess for ACKs of the given coverage: wire segments, and movement of the window's
    /// edge, bytes. `packets`: packets that each ACK covers; 0 for one packet for each wire
    /// segment.
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

    /// ACKs of a receiver whose reader keeps up.
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
        // An ACK that a busy receiver sent late sets no new limit.
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
        // A read of 4096 bytes before each ACK, whatever arrived until then.
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
        // ACKs that leave data unread are not a reader's.
        let unread = [(2, 0), (2, 0), (2, 0), (2, 8192)].repeat(3);
        check(&unread, 0, TWO, &[]);
        let unread = [(2, 0), (5, 0), (3, 0), (4, 16_384)].repeat(3);
        check(&unread, 0, Policy::Mixed, &[]);
    }
}
