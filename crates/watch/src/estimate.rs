//! Totals of all time from windows of time in which the eBPF programs counted.
//!
//! The kernel's own counters are known for all time and for the windows. What passed between windows is estimated by the
//! regression of the programs' counts on these counters over the last [`POOL`] windows (Cochran 1977, chapter 7). The windows of
//! one interval alone would not do: the ratio of a few small counts is biased, and that bias adds up.
//!
//! TCP's arithmetic is where the regression starts: payload is octets of IP less headers, and headers are nearly alike.
//! CPU time of interrupts and softirqs is the mean time of one, times their number, which /proc/stat counts exactly. A window ends
//! with an interrupt of its own, so windows have more interrupts per time than the time between them. The time that the programs
//! add to an interrupt is subtracted. Tasks have the rest of the time that /proc/stat does not call idle, which
//! the kernel measures at every change (NO_HZ) and gives in steps of 10 ms.

use std::collections::{BTreeMap, VecDeque};

use tcpcost_counts::{Counts, MeterName, Quantity, Snapshot, Whose};

use crate::events::Events;

/// Growth over one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// By the eBPF meter.
    pub seen: Counts,
    /// By the kernel's own counters.
    pub known: Counts,
    /// Interrupts of the host.
    pub events: Events,
    /// Mean CPU time of one run of a program, ns.
    pub run_ns: f64,
}

/// What is known of the time until now.
#[derive(Debug)]
pub struct Estimated {
    /// The meter's totals.
    pub totals: Counts,
    /// Standard error of the payload bytes since the last time, over them; `None` where all was seen, or too little.
    pub error: Option<f64>,
}

/// A meter's totals; what was not seen is estimated.
#[derive(Debug)]
pub struct Estimate {
    method: Method,
    /// Estimates so far. A later interval may correct them downwards.
    sums: BTreeMap<Quantity, f64>,
    /// The highest that they were: a total never shrinks.
    totals: Counts,
    /// The kernel's counters and the host's interrupts at the last call.
    base: Option<(Vec<Snapshot>, Events)>,
    waiting: Vec<Window>,
    /// True if `waiting` is all that passed.
    is_whole: bool,
    /// The last windows, oldest first, since the programs last ran all the time.
    pool: VecDeque<Window>,
}

/// The kernel's counters that go with a meter.
#[derive(Debug, Clone, Copy)]
enum Method {
    /// The meter `segments`: those of `netstat`.
    Segments,
    /// The meter `exact` on so many CPUs: those of `proc`, `self` and `netstat`.
    Exact { cpus: usize },
}

impl Estimate {
    /// The meter `segments`.
    pub fn of_segments() -> Estimate {
        Estimate::new(Method::Segments)
    }

    /// The meter `exact` on so many CPUs.
    pub fn of_exact(cpus: usize) -> Estimate {
        Estimate::new(Method::Exact { cpus })
    }

    fn new(method: Method) -> Estimate {
        Estimate {
            method,
            sums: BTreeMap::new(),
            totals: Counts::new(),
            base: None,
            waiting: Vec::new(),
            is_whole: true,
            pool: VecDeque::new(),
        }
    }

    /// Takes what was seen since the last call, all there was if `is_whole`, and what the kernel's counters and the host's
    /// interrupts are now. `None`: the counters are missing, or nothing was seen; the next call makes up for it.
    pub fn take(
        &mut self,
        seen: impl IntoIterator<Item = Window>,
        is_whole: bool,
        now: &[Snapshot],
        events: &Events,
    ) -> Option<Estimated> {
        self.waiting.extend(seen);
        self.is_whole &= is_whole;
        let meters: &[MeterName] = match self.method {
            Method::Segments => &[MeterName::Netstat],
            Method::Exact { .. } => &[MeterName::Proc, MeterName::SelfCost, MeterName::Netstat],
        };
        let of = |meter: &MeterName| now.iter().find(|now| now.meter == *meter).cloned();
        let now: Vec<Snapshot> = meters.iter().map(of).collect::<Option<_>>()?;
        let mut grown: BTreeMap<Quantity, f64> =
            sum(self.waiting.iter().map(|window| &window.seen))
                .into_iter()
                .map(|(quantity, count)| (quantity, count as f64))
                .collect();
        let mut error = None;
        match &self.base {
            Some(_) if !self.is_whole && self.waiting.is_empty() => return None,
            Some((base, before)) if !self.is_whole => {
                let windows = self.waiting.len();
                self.pool.extend(self.waiting.iter().cloned());
                let excess = self.pool.len().saturating_sub(POOL.max(windows));
                self.pool.drain(..excess);
                let mut known = Known::between(base, &now, &self.waiting)?;
                known.events = events.since(before);
                match self.method {
                    Method::Segments => error = segments(&self.pool, &known, &mut grown)?,
                    Method::Exact { cpus } => {
                        let seen = &self.waiting;
                        exact(&self.pool, seen, &known, cpus, &mut grown)?;
                    }
                }
            }
            _ => self.pool.clear(),
        }
        for (quantity, grown) in grown {
            let sum = self.sums.entry(quantity).or_insert(0.0);
            *sum += grown;
            let total = self.totals.entry(quantity).or_insert(0);
            *total = (*total).max(sum.round() as u64);
        }
        self.base = Some((now, events.clone()));
        self.waiting.clear();
        self.is_whole = true;
        Some(Estimated {
            totals: self.totals.clone(),
            error,
        })
    }
}

/// Growth of the kernel's counters since the last call.
struct Known {
    grown: Counts,
    duration_ns: u64,
    /// The same over the windows in it.
    seen: Counts,
    /// Interrupts since the last call.
    events: Events,
}

impl Known {
    fn between(base: &[Snapshot], now: &[Snapshot], windows: &[Window]) -> Option<Known> {
        let mut known = Known {
            grown: Counts::new(),
            duration_ns: 0,
            seen: sum(windows.iter().map(|window| &window.known)),
            events: Events::default(),
        };
        for (base, now) in base.iter().zip(now) {
            let readings = now.since(base).ok()?;
            let mut readings = readings.into_iter();
            let whole = readings
                .find(|reading| !matches!(reading.whose, Whose::Cpu(_) | Whose::Cpus(_)))?;
            known.duration_ns = known.duration_ns.max(whole.duration_ns);
            known.grown.extend(whole.counts);
        }
        Some(known)
    }

    fn total(&self, of: &[Quantity]) -> Option<f64> {
        let counts = of.iter().map(|quantity| self.grown.get(quantity));
        Some(counts.sum::<Option<u64>>()? as f64)
    }

    /// What passed between windows. Counters are read one after the other, so it may be a little below 0.
    fn unseen(&self, mix: Mix) -> Option<f64> {
        Some(mixed(mix, &self.grown)? - mixed(mix, &self.seen)?)
    }
}

/// Adds what passed between windows to what was seen. The error of payload may be unknown.
fn segments(
    pool: &VecDeque<Window>,
    known: &Known,
    grown: &mut BTreeMap<Quantity, f64>,
) -> Option<Option<f64>> {
    let mut payload = Vec::new();
    for (&quantity, grown) in grown.iter_mut() {
        let model = model(quantity);
        let points = pool.iter().map(|window| {
            Some(Point {
                base: mixed(model.base, &window.known)?,
                control: mixed(model.control, &window.known).unwrap_or(0.0),
                count: *window.seen.get(&quantity)? as f64,
            })
        });
        let points: Vec<Point> = points.collect::<Option<_>>()?;
        let control = known.unseen(model.control).unwrap_or(0.0);
        let fit = Fit::new(&points, known.unseen(model.base)?, control, model.slope)?;
        *grown += fit.estimate;
        if PAYLOAD.contains(&quantity) {
            payload.push((fit, *grown));
        }
    }
    let total = payload.iter().map(|(_, grown)| grown).sum();
    let fits: Vec<&Fit> = payload.iter().map(|(fit, _)| fit).collect();
    Some(error(&fits, total))
}

/// Adds the time between windows to what was seen. Softirqs and hard interrupts go by how many there were and by octets
/// received; where the kernel does not count them, by time. The octets are this namespace's, while the time is the host's. The rest of
/// what the kernel calls busy is tasks', which share it as they did in the pool, but for this process, which knows its own
/// time.
///
/// Stolen time is in the context that it hit, so it is busy; the hypervisor counts what it takes of an idle CPU as
/// stolen, too, and that is idle.
fn exact(
    pool: &VecDeque<Window>,
    windows: &[Window],
    known: &Known,
    cpus: usize,
    grown: &mut BTreeMap<Quantity, f64>,
) -> Option<()> {
    let wall_ns = known.duration_ns as f64 * cpus as f64;
    let own_ns = known.total(&[Quantity::SelfCpuNs])?;
    let idle = [Quantity::CpuIdleNs, Quantity::CpuIowaitNs];
    let mut tasks_ns = wall_ns - known.total(&idle)? - own_ns;
    let unseen_ns = wall_ns - grown.values().sum::<f64>();
    let packets = known.unseen(RECEIVED).unwrap_or(0.0);
    let octets = known.unseen(OCTETS_RECEIVED).unwrap_or(0.0);
    grown.remove(&Quantity::ExactIdleNs)?;
    grown.remove(&Quantity::ExactTaskOwnNs);
    let (tasks, interrupts): (Vec<Quantity>, Vec<Quantity>) =
        grown.keys().copied().partition(|&context| is_task(context));
    for context in interrupts {
        let in_windows = windows.iter().map(|window| window.events.0.get(&context));
        let in_windows = in_windows.sum::<Option<u64>>();
        let events = known.events.0.get(&context).zip(in_windows);
        let unseen = events.map(|(all, seen)| all.saturating_sub(seen) as f64);
        let points: Vec<Point> = pool
            .iter()
            .map(|window| interrupt_point(window, context, unseen.is_some()))
            .collect();
        let ahead = unseen.unwrap_or(unseen_ns);
        let fit = Fit::new(&points, ahead, octets, 0.0);
        let grown = grown.entry(context).or_default();
        *grown += fit.map_or(0.0, |fit| fit.estimate);
        tasks_ns -= *grown;
    }
    for task in &tasks {
        tasks_ns -= grown[task];
    }
    for &task in &tasks {
        let point = |window: &Window| Point {
            base: of(&window.seen, &tasks) as f64,
            control: mixed(RECEIVED, &window.known).unwrap_or(0.0),
            count: of(&window.seen, &[task]) as f64,
        };
        let points: Vec<Point> = pool.iter().map(point).collect();
        let fit = Fit::new(&points, tasks_ns, packets, 0.0);
        *grown.entry(task).or_default() += fit.map_or(0.0, |fit| fit.estimate);
    }
    grown.insert(Quantity::ExactTaskOwnNs, own_ns);
    let idle_ns = wall_ns - grown.values().sum::<f64>();
    grown.insert(Quantity::ExactIdleNs, idle_ns);
    Some(())
}

/// Point of a regression: a window's time in hard interrupts or in one kind of softirq, without the programs' time. The base is
/// their number if it is counted, else the window's time.
///
/// `exact` runs at an interrupt's start and end and reads the clock in the middle of each run, so the interrupt includes the time
/// of one run. `segments` runs once for each received packet.
fn interrupt_point(window: &Window, context: Quantity, is_counted: bool) -> Point {
    let packets = mixed(RECEIVED, &window.known).unwrap_or(0.0);
    let events = window.events.0.get(&context).copied().unwrap_or(0) as f64;
    let runs = match context {
        Quantity::ExactSoftirqNetRxNs => events + packets,
        _ => events,
    };
    let seen = of(&window.seen, &[context]) as f64;
    Point {
        base: match is_counted {
            true => events,
            false => of(&window.seen, Quantity::EXACT_CONTEXTS) as f64,
        },
        control: mixed(OCTETS_RECEIVED, &window.known).unwrap_or(0.0),
        // Not all counted interrupts pass the tracepoints, so at most half of the time is subtracted.
        count: (seen - runs * window.run_ns).max(seen / 2.0),
    }
}

/// Those of some quantities that are there, together.
fn of(counts: &Counts, some: &[Quantity]) -> u64 {
    some.iter()
        .filter_map(|quantity| counts.get(quantity))
        .sum()
}

fn is_task(context: Quantity) -> bool {
    context != Quantity::ExactHardirqNs && !Quantity::EXACT_SOFTIRQS.contains(&context)
}

/// One window's counts for a regression.
struct Point {
    base: f64,
    control: f64,
    count: f64,
}

/// A count's regression on two others: `count = a * base + slope * control`, through the sums of all points.
struct Fit {
    /// What passed between windows.
    estimate: f64,
    /// Of each point: its count less what the regression says.
    residuals: Vec<f64>,
    /// `base` between windows over that of the points.
    scale: f64,
    /// Variance of `estimate` that comes of the slope's.
    slope_variance: f64,
}

impl Fit {
    /// What `base` and `control` between windows stand for. The slope is `start` until points say otherwise, which they
    /// can as far as their mixes of the two are as various as that which is asked for. `None`: no base in any point.
    fn new(points: &[Point], base: f64, control: f64, start: f64) -> Option<Fit> {
        let over = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>();
        let all = over(|point| point.base);
        if all <= 0.0 {
            let nothing = Fit {
                estimate: 0.0,
                residuals: vec![0.0; points.len()],
                scale: 0.0,
                slope_variance: 0.0,
            };
            return (base <= 0.0).then_some(nothing);
        }
        let count_per = over(|point| point.count) / all;
        let control_per = over(|point| point.control) / all;
        // Distances from the mean mix, the larger the more base: so their squares are divided by that.
        let distances: Vec<[f64; 3]> = points
            .iter()
            .map(|point| {
                let x = point.control - control_per * point.base;
                let y = point.count - count_per * point.base - start * x;
                [x, y, point.base.max(1.0)]
            })
            .collect();
        let ahead = control - control_per * base;
        let n = points.len() as f64;
        let squares: f64 = distances.iter().map(|[x, _, weight]| x * x / weight).sum();
        let products: f64 = distances.iter().map(|[x, y, weight]| x * y / weight).sum();
        let squares_ahead = all * (ahead / base.max(1.0)).powi(2);
        let weight = squares + (squares + squares_ahead) * START_POINTS / n;
        let more = if weight > 0.0 { products / weight } else { 0.0 };
        let residuals: Vec<f64> = distances.iter().map(|[x, y, _]| y - more * x).collect();
        let per_base = residuals.iter().zip(&distances);
        let per_base: f64 = per_base.map(|(e, [_, _, weight])| e * e / weight).sum();
        let slope_variance = match weight > 0.0 {
            true => ahead * ahead * per_base / (n - 2.0).max(1.0) / weight,
            false => 0.0,
        };
        Some(Fit {
            estimate: count_per * base + (start + more) * ahead,
            residuals,
            scale: base / all,
            slope_variance,
        })
    }
}

/// The standard error of payload bytes over `total`, from the scatter of the windows: the error of the regression, and the
/// scatter of what passed between windows around it. `None` for too few windows.
fn error(payload: &[&Fit], total: f64) -> Option<f64> {
    let n = payload.first()?.residuals.len();
    if n < ERROR_WINDOWS || total <= 0.0 {
        return None;
    }
    let squares = |scale: fn(f64) -> f64| -> f64 {
        let of = |window| -> f64 {
            let both = payload.iter();
            both.map(|fit| scale(fit.scale.abs()) * fit.residuals[window])
                .sum()
        };
        (0..n).map(|window| of(window).powi(2)).sum()
    };
    let freedom = n as f64 / (n as f64 - 2.0);
    let slopes: f64 = payload.iter().map(|fit| fit.slope_variance).sum();
    let variance = freedom * (squares(|scale| scale) + squares(f64::sqrt)) + slopes;
    Some((variance.sqrt() / total).max(ERROR_MIN)).filter(|error| error.is_finite())
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

/// Counters of the kernel's, some of them subtracted.
type Mix = &'static [(Quantity, f64)];

/// `None` if a counter is missing.
fn mixed(mix: Mix, counts: &Counts) -> Option<f64> {
    let terms = mix
        .iter()
        .map(|(of, factor)| Some(*counts.get(of)? as f64 * factor));
    terms.sum()
}

/// Which counters of the kernel's a count goes with.
struct Model {
    base: Mix,
    control: Mix,
    /// How much of the control the count is by TCP's arithmetic.
    slope: f64,
}

/// A row for each count of `segments`; those of ways and drainers that are not named here are data skbs.
fn model(quantity: Quantity) -> Model {
    use Quantity as Q;
    let (base, control, slope): (Mix, Mix, f64) = match quantity {
        Q::DataSkbBytesSent => (SENT, OCTETS_SENT, 1.0),
        Q::DataSkbBytesReceived => (RECEIVED, OCTETS_RECEIVED, 1.0),
        Q::DataSkbSquaredBytesReceived => (RECEIVED, OCTETS_RECEIVED, 0.0),
        Q::DataSkbSquaredBytesSent
        | Q::DrainedSystemCallBytes
        | Q::DrainedNetRxBytes
        | Q::DrainedTaskletBytes
        | Q::DrainedTimerBytes
        | Q::DrainedOthersBytes => (SENT, OCTETS_SENT, 0.0),
        Q::DataWireSegmentsSent => (SENT, DATA_SEGMENTS_SENT, 1.0),
        Q::PureAcksSent => (SENT, ACKS_SENT, 1.0),
        Q::WindowAdvancingAcksSent
        | Q::OnlyAcknowledgingAcksSent
        | Q::DuplicateAcksSent
        | Q::AckBurstsSent => (SENT, ACKS_SENT, 0.0),
        Q::DataSkbsReceived
        | Q::DataWireSegmentsReceived
        | Q::PureAcksReceived
        | Q::DataBurstsReceived
        | Q::AckBurstsReceived => (RECEIVED, ACKS_RECEIVED, 0.0),
        Q::DataSkbsSent => (SENT, DATA_SKBS_SENT, 1.0),
        _ => (SENT, DATA_SKBS_SENT, 0.0),
    };
    Model {
        base,
        control,
        slope,
    }
}

const SENT: Mix = &[(Quantity::IpPacketsSent, 1.0)];
const RECEIVED: Mix = &[(Quantity::IpPacketsReceived, 1.0)];
const OCTETS_SENT: Mix = &[(Quantity::IpOctetsSent, 1.0)];
const OCTETS_RECEIVED: Mix = &[(Quantity::IpOctetsReceived, 1.0)];
const DATA_SEGMENTS_SENT: Mix = &[
    (Quantity::NewDataSegmentsSent, 1.0),
    (Quantity::SegmentsRetransmitted, 1.0),
];
/// And SYN, FIN and RST, as all that is not data.
const ACKS_SENT: Mix = &[
    (Quantity::SegmentsSent, 1.0),
    (Quantity::NewDataSegmentsSent, -1.0),
];
/// A super-segment is one packet, and an ACK is one, too.
const DATA_SKBS_SENT: Mix = &[
    (Quantity::IpPacketsSent, 1.0),
    (Quantity::SegmentsSent, -1.0),
    (Quantity::NewDataSegmentsSent, 1.0),
];
/// Data that acknowledges is in the second and in the third.
const ACKS_RECEIVED: Mix = &[
    (Quantity::SlowPureAcks, 1.0),
    (Quantity::HeaderPredictedAcks, 1.0),
    (Quantity::HeaderPredictedData, -1.0),
];

const PAYLOAD: &[Quantity] = &[Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];

/// Windows of a regression, half a minute of them: fewer are biased where few of them see most of the traffic, more lag behind it.
const POOL: usize = 64;

/// The start of a slope weighs as much as so many windows.
const START_POINTS: f64 = 4.0;

/// With fewer the scatter itself is too uncertain.
const ERROR_WINDOWS: usize = 6;

/// Meters are read some microseconds after each other, and headers are not all alike: no smaller error is told.
const ERROR_MIN: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::Totals;

    const NO_EVENTS: Events = Events(BTreeMap::new());

    fn now(meter: MeterName, at_ns: u64, counts: &[(Quantity, u64)]) -> Snapshot {
        Snapshot {
            meter,
            at_ns,
            totals: vec![Totals {
                whose: Whose::Namespace,
                counts: counts.iter().copied().collect(),
            }],
        }
    }

    /// So many packets each way, of which as many segments with new data left, and octets.
    fn known(packets: [u64; 2], data: u64, octets: [u64; 2]) -> [Snapshot; 1] {
        let counts = [
            (Quantity::IpPacketsSent, packets[0]),
            (Quantity::IpPacketsReceived, packets[1]),
            (Quantity::SegmentsSent, packets[0]),
            (Quantity::NewDataSegmentsSent, data),
            (Quantity::IpOctetsSent, octets[0]),
            (Quantity::IpOctetsReceived, octets[1]),
        ];
        [now(MeterName::Netstat, 0, &counts)]
    }

    /// So many data skbs of so many bytes left and as many ACKs came in, with 50 bytes of headers each.
    fn window(skbs: u64, bytes: u64) -> Window {
        let [known] = known([skbs; 2], skbs, [skbs * (bytes + 50), skbs * 50]);
        Window {
            seen: Counts::from([
                (Quantity::DataSkbsSent, skbs),
                (Quantity::DataSkbBytesSent, skbs * bytes),
                (Quantity::DataSkbBytesReceived, 0),
                (Quantity::PureAcksReceived, skbs),
            ]),
            known: known.totals[0].counts.clone(),
            events: NO_EVENTS,
            run_ns: 0.0,
        }
    }

    fn counts(estimated: Option<Estimated>) -> [u64; 4] {
        let totals = estimated.unwrap().totals;
        [
            Quantity::DataSkbsSent,
            Quantity::DataSkbBytesSent,
            Quantity::DataSkbBytesReceived,
            Quantity::PureAcksReceived,
        ]
        .map(|of| totals[&of])
    }

    #[test]
    fn what_was_seen_whole_is_not_estimated() {
        let mut estimate = Estimate::of_segments();
        let first = estimate.take([window(0, 0)], true, &known([5, 5], 5, [5, 5]), &NO_EVENTS);
        assert_eq!(counts(first), [0; 4]);
        // Read a moment later, the kernel's counts are a little ahead.
        let second = estimate.take(
            [window(10, 100)],
            true,
            &known([16, 16], 16, [2000, 900]),
            &NO_EVENTS,
        );
        assert_eq!(counts(second), [10, 1000, 0, 10]);
    }

    #[test]
    fn payload_is_octets_less_headers_whatever_sizes_the_windows_saw() {
        let mut estimate = Estimate::of_segments();
        estimate.take([], true, &known([0, 0], 0, [0, 0]), &NO_EVENTS);
        // The windows saw small skbs; 100 of 30,000 bytes passed between them.
        let octets = 15 * (100 + 50) + 100 * (30_000 + 50);
        let now = known([115, 115], 115, [octets, 115 * 50]);
        let totals = estimate.take([window(10, 100), window(5, 100)], false, &now, &NO_EVENTS);
        assert_eq!(counts(totals), [115, 1500 + 3_000_000, 0, 115]);
    }

    /// A packet that passes a VLAN's device and the one below is seen twice.
    #[test]
    fn the_windows_overrule_arithmetic() {
        let mut estimate = Estimate::of_segments();
        estimate.take([], true, &known([0, 0], 0, [0, 0]), &NO_EVENTS);
        let twice = |skbs: u64, bytes: u64| {
            let mut window = window(skbs, bytes);
            window.seen.values_mut().for_each(|count| *count *= 2);
            window
        };
        let windows: Vec<Window> = (0..60).map(|n| twice(10, 100 + 100 * (n % 3))).collect();
        let octets = 600 * (200 + 50) + 1000 * (280 + 50);
        let now = known([1600, 1600], 1600, [octets, 1600 * 50]);
        let bytes = counts(estimate.take(windows, false, &now, &NO_EVENTS))[1];
        let truth = 2 * (600 * 200 + 1000 * 280);
        assert!(bytes.abs_diff(truth) * 50 < truth, "{bytes} of {truth}");
    }

    #[test]
    fn nothing_is_estimated_of_nothing_and_the_next_call_makes_up_for_it() {
        let mut estimate = Estimate::of_segments();
        let passed = |skbs: u64| known([skbs; 2], skbs, [skbs * 150, skbs * 50]);
        estimate.take([], true, &passed(0), &NO_EVENTS);
        assert!(estimate.take([], false, &passed(50), &NO_EVENTS).is_none());
        let totals = estimate.take([window(10, 100)], true, &passed(100), &NO_EVENTS);
        assert_eq!(counts(totals), [100, 10_000, 0, 100]);
        // An interval without a packet in its window goes by the windows before.
        let totals = estimate.take([window(0, 0)], false, &passed(150), &NO_EVENTS);
        assert_eq!(counts(totals), [150, 15_000, 0, 150]);
    }

    #[test]
    fn a_total_never_shrinks_and_its_errors_do_not_add_up() {
        let mut estimate = Estimate::of_segments();
        estimate.take([], true, &known([0, 0], 0, [0, 0]), &NO_EVENTS);
        estimate.take(
            [window(10, 100)],
            false,
            &known([10, 10], 10, [1500, 500]),
            &NO_EVENTS,
        );
        // Octets of the window after were in the counters already.
        let ahead = known([10, 10], 10, [1700, 500]);
        let high = counts(estimate.take([window(0, 0)], false, &ahead, &NO_EVENTS))[1];
        assert_eq!(high, 1200);
        let windows = [window(10, 100)];
        let same = counts(estimate.take(
            windows,
            false,
            &known([18, 18], 18, [2700, 900]),
            &NO_EVENTS,
        ));
        assert_eq!(same[1], 1800);
        let low = counts(estimate.take(
            [window(1, 100)],
            false,
            &known([18, 18], 18, [2700, 900]),
            &NO_EVENTS,
        ));
        assert_eq!(low[1], 1800);
    }

    /// Snapshots of the meters `netstat`, `proc` and `self`.
    fn kernel(at_ns: u64, idle: u64, steal: u64, own: u64) -> [Snapshot; 3] {
        let proc = [
            (Quantity::CpuIdleNs, idle),
            (Quantity::CpuIowaitNs, 0),
            (Quantity::CpuStealNs, steal),
        ];
        let own = [(Quantity::SelfCpuNs, own)];
        [
            now(MeterName::Netstat, at_ns, &[]),
            now(MeterName::Proc, at_ns, &proc),
            now(MeterName::SelfCost, at_ns, &own),
        ]
    }

    #[test]
    fn contexts_share_the_busy_time_and_add_up_to_wall_time() {
        let mut seen: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        seen.insert(Quantity::ExactIdleNs, 10);
        seen.insert(Quantity::ExactTaskOthersNs, 30);
        seen.insert(Quantity::ExactKworkerNs, 10);
        seen.insert(Quantity::ExactSoftirqTimerNs, 10);
        // Our own reads are in windows more than elsewhere.
        seen.insert(Quantity::ExactTaskOwnNs, 40);
        let mut estimate = Estimate::of_exact(2);
        estimate.take([], true, &kernel(0, 0, 0, 0), &NO_EVENTS);
        let window = Window {
            seen,
            known: Counts::new(),
            events: NO_EVENTS,
            run_ns: 0.0,
        };
        let estimated = estimate.take([window], false, &kernel(1000, 1060, 100, 40), &NO_EVENTS);
        let counts = estimated.unwrap().totals;
        // 20 times the time of the window has 20 times its timers; no packet came in.
        assert_eq!(counts[&Quantity::ExactSoftirqTimerNs], 200);
        // Stolen time is in the context that it hit.
        assert_eq!(counts[&Quantity::ExactTaskOthersNs], 525);
        assert_eq!(counts[&Quantity::ExactKworkerNs], 175);
        assert_eq!(counts[&Quantity::ExactTaskOwnNs], 40);
        assert_eq!(counts[&Quantity::ExactIdleNs], 1060);
    }

    #[test]
    fn interrupts_that_end_windows_are_not_taken_for_the_loads() {
        let hardirqs = |count| Events(BTreeMap::from([(Quantity::ExactHardirqNs, count)]));
        let mut seen: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        // The window is a twentieth of the time. Two of its four interrupts are its own; 19 more ran outside of it.
        seen.insert(Quantity::ExactHardirqNs, 40);
        seen.insert(Quantity::ExactIdleNs, 60);
        let mut estimate = Estimate::of_exact(2);
        estimate.take([], true, &kernel(0, 0, 0, 0), &hardirqs(1000));
        let window = Window {
            seen,
            known: Counts::new(),
            events: hardirqs(4),
            run_ns: 0.0,
        };
        let now = kernel(1000, 1700, 0, 0);
        let estimated = estimate.take([window], false, &now, &hardirqs(1023));
        let counts = estimated.unwrap().totals;
        assert_eq!(counts[&Quantity::ExactHardirqNs], 230);
        assert_eq!(counts[&Quantity::ExactIdleNs], 1770);
    }
}
