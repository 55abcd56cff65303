//! From windows of time in which the eBPF programs counted to totals of all time.
//!
//! What the kernel counts anyway is known for all time and for the windows: what was seen is scaled by the
//! quotient of the two (a ratio estimate; its bias falls as 1 / packets seen, its error is told). Payload is scaled by
//! octets of IP, segments and skbs by TCP's own counts of segments, CPU time by the time that /proc/stat has neither as idle nor as stolen, which the
//! kernel measures at every change (NO_HZ) and gives in steps of 10 ms.

use tcpcost_counts::{Counts, Quantity, Reading, Snapshot, Whose};

/// Growth over one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// By the eBPF meter.
    pub seen: Counts,
    /// By the kernel's own counters.
    pub known: Counts,
}

/// A meter's totals; what was not seen is estimated.
#[derive(Debug)]
pub struct Estimate {
    scaled: fn(&[Window], &Reading, usize) -> Option<Counts>,
    cpus: usize,
    totals: Counts,
    /// Where the totals stand.
    base: Option<Snapshot>,
    waiting: Vec<Window>,
    /// Whether what waits is all that was.
    is_whole: bool,
}

impl Estimate {
    /// Of the meter `segments`, beside `netstat`.
    pub fn of_segments() -> Estimate {
        Estimate::new(segments, 0)
    }

    /// Of the meter `exact` on so many CPUs, beside `proc`.
    pub fn of_exact(cpus: usize) -> Estimate {
        Estimate::new(exact, cpus)
    }

    fn new(scaled: fn(&[Window], &Reading, usize) -> Option<Counts>, cpus: usize) -> Estimate {
        Estimate {
            scaled,
            cpus,
            totals: Counts::new(),
            base: None,
            waiting: Vec::new(),
            is_whole: true,
        }
    }

    /// Takes in what was seen since the last call, all there was if `is_whole`, and what the kernel's counters say
    /// now. `None`: nothing was seen of what was; the next call makes up for it.
    pub fn take(
        &mut self,
        seen: impl IntoIterator<Item = Window>,
        is_whole: bool,
        now: &Snapshot,
    ) -> Option<Counts> {
        self.waiting.extend(seen);
        self.is_whole &= is_whole;
        let grown = match (&self.base, self.is_whole) {
            (Some(base), false) => {
                let readings = now.since(base).ok()?;
                let known = readings
                    .iter()
                    .find(|reading| !matches!(reading.whose, Whose::Cpu(_) | Whose::Cpus(_)))?;
                (self.scaled)(&self.waiting, known, self.cpus)?
            }
            _ => sum(self.waiting.iter().map(|window| &window.seen)),
        };
        for (quantity, grown) in grown {
            *self.totals.entry(quantity).or_insert(0) += grown;
        }
        self.base = Some(now.clone());
        self.waiting.clear();
        self.is_whole = true;
        Some(self.totals.clone())
    }
}

fn segments(windows: &[Window], known: &Reading, _: usize) -> Option<Counts> {
    let factor = |of: &[Quantity]| {
        let all = total(&known.counts, of)?;
        let seen = sum(windows.iter().map(|window| &window.known));
        let seen = total(&seen, of)?;
        match (all, seen) {
            (0, _) => Some(1.0),
            (_, 0) => None,
            _ => Some((all as f64 / seen as f64).max(1.0)),
        }
    };
    // The factor of all that goes one way, and that of payload.
    let sent = (factor(SENT)?, factor(OCTETS_SENT)?);
    let received = (factor(RECEIVED)?, factor(OCTETS_RECEIVED)?);
    let seen = sum(windows.iter().map(|window| &window.seen));
    let scaled = seen.into_iter().map(|(quantity, count)| {
        let (packets, payload) = match OF_RECEIVED.contains(&quantity) {
            true => received,
            false => sent,
        };
        match OF_BYTES.contains(&quantity) {
            true => (quantity, times(count, payload)),
            false => (quantity, times(count, packets)),
        }
    });
    Some(scaled.collect())
}

fn exact(windows: &[Window], known: &Reading, cpus: usize) -> Option<Counts> {
    let mut counts = sum(windows.iter().map(|window| &window.seen));
    let wall_ns = known.duration_ns * cpus as u64;
    let not_busy_ns = total(&known.counts, Quantity::CPU_NOT_BUSY)?;
    let busy_ns = wall_ns.saturating_sub(not_busy_ns);
    let idle_ns = counts.insert(Quantity::ExactIdleNs, 0)?;
    let seen_ns: u64 = counts.values().sum();
    if seen_ns == 0 && idle_ns == 0 {
        return None;
    }
    let factor = busy_ns as f64 / seen_ns.max(1) as f64;
    for count in counts.values_mut() {
        *count = times(*count, factor);
    }
    let busy_ns: u64 = counts.values().sum();
    counts.insert(Quantity::ExactIdleNs, wall_ns.saturating_sub(busy_ns));
    Some(counts)
}

/// The standard error of payload bytes as [`segments`] scales them, over them: of windows as clusters drawn
/// without replacement (Cochran 1977, 6.13). `None` for less than two.
pub fn error(windows: &[Window]) -> Option<f64> {
    if windows.len() < 2 {
        return None;
    }
    let of = |window: &Window| {
        let octets = total(&window.known, OCTETS_SENT)? + total(&window.known, OCTETS_RECEIVED)?;
        let bytes = total(&window.seen, BYTES)?;
        Some((octets as f64, bytes as f64))
    };
    let pairs: Vec<(f64, f64)> = windows.iter().map(of).collect::<Option<_>>()?;
    let (octets, bytes) = pairs
        .iter()
        .fold((0.0, 0.0), |(x, y), pair| (x + pair.0, y + pair.1));
    let ratio = bytes / octets;
    let residues: f64 = pairs.iter().map(|(x, y)| (y - ratio * x).powi(2)).sum();
    let n = pairs.len() as f64;
    let error = (residues * n / (n - 1.0)).sqrt() / bytes;
    error.is_finite().then_some(error)
}

/// Sums by quantity, of those that all have.
fn sum<'a>(mut all: impl Iterator<Item = &'a Counts>) -> Counts {
    let mut sums = all.next().cloned().unwrap_or_default();
    for counts in all {
        sums.retain(|quantity, sum| {
            counts.get(quantity).is_some_and(|count| {
                *sum += count;
                true
            })
        });
    }
    sums
}

fn total(counts: &Counts, of: &[Quantity]) -> Option<u64> {
    of.iter().map(|quantity| counts.get(quantity)).sum()
}

fn times(count: u64, factor: f64) -> u64 {
    (count as f64 * factor).round() as u64
}

/// What `netstat` knows of segments sent, and of skbs received.
const SENT: &[Quantity] = &[Quantity::SegmentsSent, Quantity::SegmentsRetransmitted];
const RECEIVED: &[Quantity] = &[Quantity::SuperSegmentsReceived];

const OCTETS_SENT: &[Quantity] = &[Quantity::IpOctetsSent];
const OCTETS_RECEIVED: &[Quantity] = &[Quantity::IpOctetsReceived];

/// What `segments` counts of payload.
const OF_BYTES: &[Quantity] = &[
    Quantity::DataSkbBytesSent,
    Quantity::DataSkbSquaredBytesSent,
    Quantity::DataSkbBytesReceived,
    Quantity::DataSkbSquaredBytesReceived,
    Quantity::DrainedSystemCallBytes,
    Quantity::DrainedNetRxBytes,
    Quantity::DrainedTaskletBytes,
    Quantity::DrainedTimerBytes,
    Quantity::DrainedOthersBytes,
];

/// What `segments` counts of packets received.
const OF_RECEIVED: &[Quantity] = &[
    Quantity::DataSkbsReceived,
    Quantity::DataSkbBytesReceived,
    Quantity::DataWireSegmentsReceived,
    Quantity::DataSkbSquaredBytesReceived,
    Quantity::PureAcksReceived,
    Quantity::DataBurstsReceived,
    Quantity::AckBurstsReceived,
];

const BYTES: &[Quantity] = &[Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::{MeterName, Totals};

    fn now(at_ns: u64, counts: &[(Quantity, u64)]) -> Snapshot {
        Snapshot {
            meter: MeterName::Netstat,
            at_ns,
            totals: vec![Totals {
                whose: Whose::Namespace,
                counts: counts.iter().copied().collect(),
            }],
        }
    }

    fn segments_now(sent: u64, received: u64, octets: [u64; 2]) -> Snapshot {
        now(
            0,
            &[
                (Quantity::SegmentsSent, sent),
                (Quantity::SegmentsRetransmitted, 0),
                (Quantity::SuperSegmentsReceived, received),
                (Quantity::IpOctetsSent, octets[0]),
                (Quantity::IpOctetsReceived, octets[1]),
            ],
        )
    }

    /// So many segments sent, of 100 bytes, and received, of 10; the kernel counted as many, and 10 octets more each.
    fn window(sent: u64, received: u64) -> Window {
        Window {
            seen: Counts::from([
                (Quantity::DataSkbsSent, sent),
                (Quantity::DataSkbBytesSent, sent * 100),
                (Quantity::DataSkbBytesReceived, received * 10),
            ]),
            known: segments_now(sent, received, [sent * 110, received * 20]).totals[0]
                .counts
                .clone(),
        }
    }

    fn counts(counts: &Counts) -> [u64; 3] {
        [
            Quantity::DataSkbsSent,
            Quantity::DataSkbBytesSent,
            Quantity::DataSkbBytesReceived,
        ]
        .map(|of| counts[&of])
    }

    #[test]
    fn what_was_seen_whole_is_not_scaled() {
        let mut estimate = Estimate::of_segments();
        let first = estimate.take([window(0, 0)], true, &segments_now(5, 5, [5, 5]));
        assert_eq!(counts(&first.unwrap()), [0, 0, 0]);
        // Read a moment apart, the kernel's counts are a little ahead.
        let second = estimate.take([window(10, 10)], true, &segments_now(16, 16, [2000, 300]));
        assert_eq!(counts(&second.unwrap()), [10, 1000, 100]);
    }

    #[test]
    fn what_was_not_seen_is_scaled_by_what_the_kernel_counted_each_way() {
        let mut estimate = Estimate::of_segments();
        estimate.take([], true, &segments_now(0, 0, [0, 0]));
        let windows = [window(10, 20), window(30, 0)];
        // Ten times the segments sent, eleven times the octets; three times both received.
        let now = segments_now(400, 60, [40 * 110 * 11, 20 * 20 * 3]);
        let totals = estimate.take(windows, false, &now);
        assert_eq!(counts(&totals.unwrap()), [400, 44_000, 600]);
    }

    #[test]
    fn what_nothing_was_seen_of_waits() {
        let mut estimate = Estimate::of_segments();
        let known =
            |segments: u64| segments_now(segments, segments, [segments * 110, segments * 20]);
        estimate.take([], true, &known(0));
        assert_eq!(estimate.take([], false, &known(50)), None);
        let totals = estimate.take([window(10, 10)], true, &known(100));
        assert_eq!(counts(&totals.unwrap()), [100, 10_000, 1_000]);
        // No traffic is known without a look.
        let totals = estimate.take([window(0, 0)], false, &known(100));
        assert_eq!(counts(&totals.unwrap()), [100, 10_000, 1_000]);
    }

    #[test]
    fn contexts_share_the_busy_time_and_add_up_to_wall_time() {
        let proc = |at_ns, idle, steal| {
            now(
                at_ns,
                &[
                    (Quantity::CpuIdleNs, idle),
                    (Quantity::CpuIowaitNs, 0),
                    (Quantity::CpuStealNs, steal),
                ],
            )
        };
        let mut seen: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        seen.insert(Quantity::ExactIdleNs, 10);
        seen.insert(Quantity::ExactTaskOthersNs, 30);
        seen.insert(Quantity::ExactSoftirqNetRxNs, 10);
        let known = Counts::new();
        let mut estimate = Estimate::of_exact(2);
        estimate.take([], true, &proc(0, 0, 0));
        let counts = estimate.take([Window { seen, known }], false, &proc(1000, 1100, 100));
        let counts = counts.unwrap();
        assert_eq!(counts[&Quantity::ExactTaskOthersNs], 600);
        assert_eq!(counts[&Quantity::ExactSoftirqNetRxNs], 200);
        assert_eq!(counts[&Quantity::ExactIdleNs], 1200);
    }

    /// The error that is told is that of estimates that are really made: windows on traffic of two kinds.
    #[test]
    fn the_error_told_is_the_scatter_of_estimates() {
        let mut state = 1_u64;
        let mut random = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            state >> 33
        };
        let (mut squares, mut told, rounds) = (0.0, 0.0, 4000);
        for _ in 0..rounds {
            // Bytes per segment differ by window: 100 or 300.
            let windows: Vec<Window> = (0..8)
                .map(|_| {
                    let mut window = window(50 + random() % 50, 10);
                    let scale = 1 + 2 * (random() % 2);
                    let bytes = window.seen.get_mut(&Quantity::DataSkbBytesSent).unwrap();
                    *bytes *= scale;
                    window
                })
                .collect();
            told += error(&windows).unwrap();
            let seen = sum(windows.iter().map(|window| &window.seen));
            let known = sum(windows.iter().map(|window| &window.known));
            let octets =
                total(&known, OCTETS_SENT).unwrap() + total(&known, OCTETS_RECEIVED).unwrap();
            let share = total(&seen, BYTES).unwrap() as f64 / octets as f64;
            let truth = (200.0 * 74.5 + 100.0) / (110.0 * 74.5 + 200.0);
            squares += (share / truth - 1.0).powi(2);
        }
        let scatter = (squares / f64::from(rounds)).sqrt();
        let told = told / f64::from(rounds);
        assert!((told / scatter - 1.0).abs() < 0.1, "{told} {scatter}");
        assert_eq!(error(&[window(1, 1)]), None);
    }
}
