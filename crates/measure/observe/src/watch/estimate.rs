//! Estimates totals of all time from windows of time in which the eBPF programs counted.
//!
//! The kernel's own counters are known for all time and for the windows. The traffic between windows is
//! estimated by the regression of the programs' counts on these counters over the last [`POOL`] windows
//! (Cochran 1977, chapter 7). The windows of one interval alone are not enough: the ratio of a few small
//! counts is biased, and the bias adds up.
//!
//! TCP's arithmetic gives the initial slope: payload is IP octets minus headers, and headers are nearly
//! equal. CPU time of interrupts and softirqs is the mean time of one, times their number, which /proc/stat
//! counts exactly. A window ends with an interrupt of its own, so there are more interrupts per second inside
//! windows than between them. The time that the programs add to an interrupt is subtracted. Tasks have the
//! rest of the time that /proc/stat does not call idle. The kernel measures idle time at every change (NO_HZ)
//! and reports it in steps of 10 ms.

use std::collections::{BTreeMap, VecDeque};

use tcpcost_counts::{Counts, Growth, MeterName, Quantity, Snapshot};

use crate::watch::events::Events;

/// Growth over one window.
#[derive(Debug, Clone, PartialEq)]
pub struct Window {
    /// Counts of the eBPF meter.
    pub seen: Counts,
    /// Counts of the kernel's own counters.
    pub known: Counts,
    /// Interrupts of the whole host.
    pub events: Events,
    /// Mean CPU time of one run of a program, ns.
    pub run_ns: f64,
}

/// Result of an estimate of the time until now.
#[derive(Debug)]
pub struct Estimated {
    /// The meter's totals.
    pub totals: Counts,
    /// Relative standard error of the payload bytes since the last estimate. `None` if all traffic was seen,
    /// or too little of it.
    pub error: Option<f64>,
}

/// Estimator of a meter's totals, including the time in which its programs did not run.
#[derive(Debug)]
pub struct Estimate {
    method: Method,
    /// Estimates so far. A later interval may lower them.
    sums: BTreeMap<Quantity, f64>,
    /// Highest value of each of `sums`: a total never shrinks.
    totals: Counts,
    /// The kernel's counters and the host's interrupts at the last call.
    base: Option<(Vec<Snapshot>, Events)>,
    waiting: Vec<Window>,
    /// True if the windows in `waiting` cover all time since the last estimate.
    is_whole: bool,
    /// The last windows, oldest first, since the programs last ran all the time.
    pool: VecDeque<Window>,
}

/// The kernel's counters that are used for a meter.
#[derive(Debug, Clone, Copy)]
enum Method {
    /// For the meter `segments`: counters of `netstat`.
    Segments,
    /// For the meter `exact` on `cpus` CPUs: counters of `proc`, `self` and `netstat`.
    Exact { cpus: usize },
}

impl Estimate {
    /// Makes the estimator of the meter `segments`.
    pub fn of_segments() -> Estimate {
        Estimate::new(Method::Segments)
    }

    /// Makes the estimator of the meter `exact` on `cpus` CPUs.
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

    /// Estimates the totals until now. `seen` are the windows since the last call; `is_whole` is true if they
    /// cover all time since then. `now` and `events` are the current readings of the kernel's counters and
    /// the host's interrupts. `None` if a counter is missing or there is no window; the next call then covers
    /// this time, too.
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
    /// Growth inside the windows since the last call.
    seen: Counts,
    /// Interrupts since the last call.
    events: Events,
}

impl Known {
    fn between(base: &[Snapshot], now: &[Snapshot], windows: &[Window]) -> Option<Known> {
        let growth = Growth::between(base, now);
        (growth.counts.len() == now.len()).then(|| Known {
            grown: growth.counts.into_values().flatten().collect(),
            duration_ns: growth.duration_ns,
            seen: sum(windows.iter().map(|window| &window.known)),
            events: Events::default(),
        })
    }

    fn total(&self, of: &[Quantity]) -> Option<f64> {
        let counts = of.iter().map(|quantity| self.grown.get(quantity));
        Some(counts.sum::<Option<u64>>()? as f64)
    }

    /// Growth between windows. Counters are read one after the other, so the result may be slightly below 0.
    fn unseen(&self, mix: Mix) -> Option<f64> {
        Some(mixed(mix, &self.grown)? - mixed(mix, &self.seen)?)
    }
}

/// Adds estimates of the traffic between windows to the counts of the windows. Returns the error of the
/// payload, which may be unknown.
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

/// Time in windows in which the CPUs were not idle, ns. The kernel counts the way into and out of idle as not idle, `exact` as
/// idle: on a virtual machine whose CPUs were a tenth to a half busy a third more.
#[derive(Default)]
struct Active {
    /// By `exact`.
    busy_ns: f64,
    /// By /proc/stat, in steps of 10 ms of all CPUs together.
    not_idle_ns: f64,
}

impl Active {
    fn add(mut self, window: &Window) -> Active {
        const IDLE: Quantity = Quantity::ExactIdleNs;
        let all_ns = of(&window.seen, Quantity::EXACT_CONTEXTS) as f64;
        let idle_ns = of(&window.seen, &[IDLE]) as f64;
        let known_idle_ns = window.events.0.get(&IDLE).map_or(idle_ns, |&ns| ns as f64);
        self.busy_ns += all_ns - idle_ns;
        self.not_idle_ns += all_ns - known_idle_ns;
        self
    }

    /// Share of the time that was not idle in which the CPUs were busy. Two steps that were busy are added, so that windows with
    /// little work do not decide.
    fn busy_share(&self) -> f64 {
        const STEPS_NS: f64 = 2e7;
        (self.busy_ns + STEPS_NS) / (self.not_idle_ns + STEPS_NS).max(STEPS_NS)
    }
}

fn sum_of<'a>(windows: impl IntoIterator<Item = &'a Window>) -> Active {
    windows.into_iter().fold(Active::default(), Active::add)
}

/// Adds estimates of the time between windows to the time in windows.
///
/// Softirqs and hard interrupts are estimated from their number and the octets received, or from time if the
/// kernel does not count them. The octets are those of this namespace, but the time is that of the host.
/// Tasks have the rest of the busy time, in the proportions of the pool. This process is an exception: its
/// own time is known.
///
/// Stolen time is part of the context that it hit, so it counts as busy. The hypervisor also counts time that
/// it takes from an idle CPU as stolen, and that time is idle.
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
    let active = sum_of(windows);
    let unseen_active_ns = wall_ns - known.total(&idle)? - active.not_idle_ns;
    let mut tasks_ns = active.busy_ns + unseen_active_ns * sum_of(pool).busy_share() - own_ns;
    let contexts = grown.iter().filter(|(of, _)| !is_event(**of));
    let unseen_ns = wall_ns - contexts.map(|(_, ns)| ns).sum::<f64>();
    let packets = known.unseen(RECEIVED).unwrap_or(0.0);
    let octets = known.unseen(OCTETS_RECEIVED).unwrap_or(0.0);
    let events = events(pool, windows, known, unseen_ns, grown);
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
    grown.extend(events);
    Some(())
}

/// Takes the events out of the counts of the windows, and estimates those of all time. Runs of NET_RX are known, all others are as
/// many per ns and packet between windows as inside.
fn events(
    pool: &VecDeque<Window>,
    windows: &[Window],
    known: &Known,
    unseen_ns: f64,
    grown: &mut BTreeMap<Quantity, f64>,
) -> Vec<(Quantity, f64)> {
    let packets = known.unseen(RECEIVED).unwrap_or(0.0);
    let seen: Vec<(Quantity, f64)> = Quantity::EXACT_EVENTS
        .into_iter()
        .filter_map(|event| grown.remove_entry(&event))
        .collect();
    let estimated = seen.into_iter().map(|(event, seen)| {
        let kind = Quantity::ExactSoftirqNetRxNs;
        let all = known.events.0.get(&kind);
        if event == Quantity::ExactNetRxRuns
            && let Some(&all) = all
            && windows
                .iter()
                .all(|window| window.events.0.contains_key(&kind))
        {
            return (event, seen.max(all as f64));
        }
        let point = |window: &Window| Point {
            base: of(&window.seen, Quantity::EXACT_CONTEXTS) as f64,
            control: mixed(RECEIVED, &window.known).unwrap_or(0.0),
            count: of(&window.seen, &[event]) as f64,
        };
        let points: Vec<Point> = pool.iter().map(point).collect();
        let unseen = Fit::new(&points, unseen_ns, packets, 0.0).map_or(0.0, |fit| fit.estimate);
        (event, seen + unseen.max(0.0))
    });
    estimated.collect()
}

fn is_event(quantity: Quantity) -> bool {
    Quantity::EXACT_EVENTS.contains(&quantity)
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

/// Sum of the given quantities, ignoring absent ones.
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

/// Regression of a count on two other counts, `count = a * base + slope * control`, through the sums of all
/// points.
struct Fit {
    /// Estimated count between windows.
    estimate: f64,
    /// Residual of each point: its count minus the regression's value.
    residuals: Vec<f64>,
    /// Ratio of `base` between windows to `base` of the points.
    scale: f64,
    /// Variance of `estimate` that is due to the slope.
    slope_variance: f64,
}

impl Fit {
    /// Fits the points and estimates the count for `base` and `control` between windows. The slope is `start`
    /// at first. Points outweigh it as far as their ratios of control to base vary as much as the ratio that
    /// is asked for. `None` if no point has a base.
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
        // Deviations from the mean ratio. They grow with the base, so their squares are divided by it.
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

/// Relative standard error of payload bytes, from the scatter of the windows: the error of the regression,
/// and the scatter of the traffic between windows around it. `None` for too few windows.
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

/// Sums by quantity. A quantity that is absent in one of them is omitted.
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

/// Linear combination of the kernel's counters.
type Mix = &'static [(Quantity, f64)];

/// Value of a combination. `None` if a counter is missing.
fn mixed(mix: Mix, counts: &Counts) -> Option<f64> {
    let terms = mix
        .iter()
        .map(|(of, factor)| Some(*counts.get(of)? as f64 * factor));
    terms.sum()
}

/// Counters of the kernel that predict a count.
struct Model {
    base: Mix,
    control: Mix,
    /// Initial slope: how much the count grows with the control by TCP's arithmetic.
    slope: f64,
}

/// Model of each count of `segments`. Counts of data skbs that are not named here have the same model.
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
/// Also counts SYN, FIN and RST, as it counts all segments without data.
const ACKS_SENT: Mix = &[
    (Quantity::SegmentsSent, 1.0),
    (Quantity::NewDataSegmentsSent, -1.0),
];
/// Packets without data are one ACK each, the rest are data skbs: a super-segment is one packet.
const DATA_SKBS_SENT: Mix = &[
    (Quantity::IpPacketsSent, 1.0),
    (Quantity::SegmentsSent, -1.0),
    (Quantity::NewDataSegmentsSent, 1.0),
];
/// Data segments that acknowledge are counted in both the second and the third counter.
const ACKS_RECEIVED: Mix = &[
    (Quantity::SlowPureAcks, 1.0),
    (Quantity::HeaderPredictedAcks, 1.0),
    (Quantity::HeaderPredictedData, -1.0),
];

const PAYLOAD: &[Quantity] = &[Quantity::DataSkbBytesSent, Quantity::DataSkbBytesReceived];

/// Number of windows in a regression, about half a minute. Fewer windows are biased if a few of them see most
/// of the traffic. More windows adapt too slowly.
const POOL: usize = 64;

/// Weight of the initial slope, as a number of windows.
const START_POINTS: f64 = 4.0;

/// Fewest windows for an error: with fewer the scatter is too uncertain.
const ERROR_WINDOWS: usize = 6;

/// Smallest error that is shown: meters are read some microseconds apart, and headers vary a little.
const ERROR_MIN: f64 = 0.001;

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::{CountOwner, Totals};

    const NO_EVENTS: Events = Events(BTreeMap::new());

    fn now(meter: MeterName, at_ns: u64, counts: &[(Quantity, u64)]) -> Snapshot {
        Snapshot {
            meter,
            at_ns,
            totals: vec![Totals {
                whose: CountOwner::Namespace,
                counts: counts.iter().copied().collect(),
            }],
        }
    }

    /// A snapshot with `packets` each way, of which `data` were sent with new data, and `octets` each way.
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

    /// A window in which `skbs` data skbs of `bytes` bytes left and as many ACKs came in, with 50 bytes of
    /// headers each.
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
        // The kernel's counters are read a moment later, so they are slightly ahead.
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
        // The windows saw small skbs, but 100 skbs of 30,000 bytes passed between them.
        let octets = 15 * (100 + 50) + 100 * (30_000 + 50);
        let now = known([115, 115], 115, [octets, 115 * 50]);
        let totals = estimate.take([window(10, 100), window(5, 100)], false, &now, &NO_EVENTS);
        assert_eq!(counts(totals), [115, 1500 + 3_000_000, 0, 115]);
    }

    /// A packet that passes a VLAN's device and the device below is seen twice.
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
        // An interval whose window has no packet uses the earlier windows.
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
        // The counters already had the octets of the next window.
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
        // Our own reads take a larger share of windows than of other time.
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
        // The time is 20 times that of the window, so there are 20 times as many timers. No packet came in.
        assert_eq!(counts[&Quantity::ExactSoftirqTimerNs], 200);
        // Stolen time is part of the context that it hit.
        assert_eq!(counts[&Quantity::ExactTaskOthersNs], 525);
        assert_eq!(counts[&Quantity::ExactKworkerNs], 175);
        assert_eq!(counts[&Quantity::ExactTaskOwnNs], 40);
        assert_eq!(counts[&Quantity::ExactIdleNs], 1060);
    }

    /// Events are no time: runs of NET_RX are the kernel's count, sleeps as many per ns as in the window.
    #[test]
    fn events_are_estimated_and_no_part_of_the_time() {
        let mut seen: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        seen.insert(Quantity::ExactIdleNs, 60);
        seen.insert(Quantity::ExactTaskOthersNs, 40);
        seen.insert(Quantity::ExactNetRxRuns, 2);
        seen.insert(Quantity::ExactTaskOwnSleeps, 3);
        let net_rx = |count| Events(BTreeMap::from([(Quantity::ExactSoftirqNetRxNs, count)]));
        let mut estimate = Estimate::of_exact(2);
        estimate.take([], true, &kernel(0, 0, 0, 0), &net_rx(100));
        let window = Window {
            seen,
            known: Counts::new(),
            events: net_rx(2),
            run_ns: 0.0,
        };
        let estimated = estimate.take([window], false, &kernel(1000, 1200, 0, 0), &net_rx(150));
        let counts = estimated.unwrap().totals;
        assert_eq!(counts[&Quantity::ExactNetRxRuns], 50);
        assert_eq!(counts[&Quantity::ExactTaskOwnSleeps], 60);
        assert_eq!(counts[&Quantity::ExactTaskOthersNs], 800);
        assert_eq!(counts[&Quantity::ExactIdleNs], 1200);
    }

    #[test]
    fn interrupts_that_end_windows_are_not_taken_for_the_loads() {
        let hardirqs = |count| Events(BTreeMap::from([(Quantity::ExactHardirqNs, count)]));
        let mut seen: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        // The window is a twentieth of the time. Two of its four interrupts are its own; 19 more ran outside
        // it.
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
