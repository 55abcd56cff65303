//! Runs the eBPF meters within their limit of CPU time. Their programs run all the time if that is cheap
//! enough. Else they run in windows at random instants, three in two seconds, as long as the limit allows.
//!
//! A thread opens and closes the windows; the main loop takes the counts of closed windows.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use tcpcost_counts::{CountOwner, Counts, Growth, MeterName, Quantity, Snapshot, Totals};
use tcpcost_meter::bpf::{Idle, Pausable};
use tcpcost_meter::holder::ByHolder;
use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::{Meter, MeterError, Observer, self_cost};

use crate::watch::connections::Skbs;
use crate::watch::duty_cycle;
use crate::watch::estimate::{Estimate, Window};
use crate::watch::events::Events;
use crate::watch::holder_totals::{ByClass, HolderTotals};

/// eBPF meters and their estimates.
#[derive(Debug)]
pub struct Sampler {
    shared: Arc<Mutex<Shared>>,
    estimates: Vec<Estimate>,
    /// CPU time by process. `None` if it is not counted.
    holders: Option<HolderTotals>,
    /// Time of the last `take`.
    taken: Instant,
    idle: Duration,
    cost_ns: Option<u64>,
}

/// Readings and estimates until now.
#[derive(Debug, Default)]
pub struct Taken {
    /// Totals of the meters, and of the cost of their programs.
    pub snapshots: Vec<Snapshot>,
    /// Meters without an estimate of this interval.
    pub unseen: Vec<MeterName>,
    /// Relative standard error of payload bytes since the last call. `None` if all traffic was seen, or too
    /// little of it.
    pub error: Option<f64>,
}

impl Taken {
    fn of(&self, meter: MeterName) -> Option<&Counts> {
        let mut all = self.snapshots.iter();
        let snapshot = all.find(|snapshot| snapshot.meter == meter)?;
        Some(&snapshot.totals.first()?.counts)
    }
}

impl Sampler {
    /// Keeps the CPU time of the programs and their windows below `cost_max` of one CPU, if there is a limit.
    /// There is at least one window in each interval.
    pub fn new(
        mut meters: Observer<dyn Pausable + Send>,
        cpus: usize,
        statistics: Option<Box<dyn Pausable + Send>>,
        cost_max: Option<f64>,
        interval: Duration,
    ) -> anyhow::Result<Sampler> {
        let estimates = meters.meters().map(|meter| match meter.name() {
            MeterName::Exact => Estimate::of_exact(cpus),
            _ => Estimate::of_segments(),
        });
        let estimates = estimates.collect();
        let mut shared = Shared {
            meters,
            statistics,
            netstat: Netstat::default(),
            cpus,
            runs_per_s: 0.0,
            beside: Duration::ZERO,
            idle_since: None,
            open: None,
            closed: Vec::new(),
            is_whole: true,
            failure: None,
        };
        shared.open()?;
        let shared = Arc::new(Mutex::new(shared));
        if let Some(cost_max) = cost_max {
            let shared = Arc::clone(&shared);
            let name = "windows".to_string();
            let pace = Pace::new(cost_max, interval, std::process::id().into());
            thread::Builder::new()
                .name(name)
                .spawn(move || keep_below(pace, &shared))?;
        }
        Ok(Sampler {
            shared,
            estimates,
            holders: None,
            taken: Instant::now(),
            idle: Duration::ZERO,
            cost_ns: None,
        })
    }

    /// Estimates the totals until now. `beside` are the current readings of the meters `proc`, `self` and
    /// `netstat`.
    pub fn take(&mut self, beside: &[Snapshot], warnings: &mut Vec<String>) -> Taken {
        // Read before the lock, for which this thread may have to wait: `beside` was read just now.
        let events = Events::now();
        let mut shared = lock(&self.shared);
        shared.close(After::GoOn);
        let closed = std::mem::take(&mut shared.closed);
        let is_whole = shared.is_whole;
        shared.is_whole = shared.open.is_some();
        let names: Vec<MeterName> = shared.meters.meters().map(|meter| meter.name()).collect();
        warnings.extend(shared.failure.take());
        let held = shared.meters.meters().find_map(|meter| meter.by_holder());
        drop(shared);

        let mut taken = Taken::default();
        let seen: Duration = closed.iter().map(|window| window.duration).sum();
        let passed = std::mem::replace(&mut self.taken, Instant::now()).elapsed();
        if !is_whole {
            self.idle += passed.saturating_sub(seen);
        }
        for window in &closed {
            self.cost_ns = window.programs_ns.or(self.cost_ns);
        }
        for (&name, estimate) in names.iter().zip(&mut self.estimates) {
            let all = closed.iter();
            let windows = all.filter_map(|window| window.by_meter.get(&name).cloned());
            let estimated = estimate.take(windows, is_whole, beside, &events);
            let (Some(now), Some(estimated)) = (beside.first(), estimated) else {
                taken.unseen.push(name);
                continue;
            };
            taken.error = taken.error.or(estimated.error);
            taken.snapshots.push(snapshot(
                name,
                now.at_ns,
                CountOwner::Host,
                estimated.totals,
            ));
        }
        if let Some(held) = held {
            let all = closed.iter();
            let windows = all.filter_map(|window| window.by_meter.get(&MeterName::Exact));
            let seen = ByClass::sum(windows.map(|window| &window.seen));
            let all = taken.of(MeterName::Exact).map(|all| ByClass::sum([all]));
            let holders = self.holders.get_or_insert_default();
            holders.take(held, seen, all);
        }
        if let Some(now) = beside.first() {
            let idle_ns = self.idle.as_nanos() as u64;
            let mut counts = Counts::from([(Quantity::SelfProgramsIdleNs, idle_ns)]);
            counts.extend(self.cost_ns.map(|ns| (Quantity::SelfProgramsNs, ns)));
            let programs = snapshot(MeterName::Programs, now.at_ns, CountOwner::Tcpcost, counts);
            taken.snapshots.push(programs);
        }
        taken
    }

    /// CPU time of each process with sockets until the last `take`. `None` if it is not counted.
    pub fn by_holder(&self) -> Option<&ByHolder> {
        Some(self.holders.as_ref()?.totals())
    }

    /// Totals of each connection in the windows, not scaled. Adds a warning if a connection found no room in
    /// a map.
    pub fn by_connection(&self, warnings: &mut Vec<String>) -> Skbs {
        let mut shared = lock(&self.shared);
        let mut all = Skbs::new();
        for meter in shared.meters.meters() {
            all.extend(meter.by_connection());
            warnings.extend(meter.overflow());
        }
        all
    }
}

fn snapshot(meter: MeterName, at_ns: u64, whose: CountOwner, counts: Counts) -> Snapshot {
    Snapshot {
        meter,
        at_ns,
        totals: vec![Totals { whose, counts }],
    }
}

/// State shared by the thread of the windows and the main loop.
struct Shared {
    meters: Observer<dyn Pausable + Send>,
    statistics: Option<Box<dyn Pausable + Send>>,
    netstat: Netstat,
    cpus: usize,
    /// Runs of the programs per second in the last window.
    runs_per_s: f64,
    /// CPU time of the windows in addition to the programs' runs and this thread.
    beside: Duration,
    /// Start and kind of the current idle time. `None` while a window is open.
    idle_since: Option<(Instant, Idle)>,
    /// Start of the open window.
    open: Option<Edge>,
    closed: Vec<ClosedWindow>,
    /// True if the programs have run all the time since the last `take`.
    is_whole: bool,
    failure: Option<String>,
}

/// Readings at the start or the end of a window.
struct Edge {
    at: Instant,
    /// Totals of the eBPF meters, and of `netstat` last.
    snapshots: Vec<Snapshot>,
    events: Events,
    programs: Option<Counts>,
}

impl Edge {
    fn programs(&self, of: Quantity) -> Option<u64> {
        self.programs.as_ref()?.get(&of).copied()
    }

    /// Mean CPU time of a program's run since an earlier edge; 0 if it is unknown.
    fn run_ns(&self, before: &Edge) -> f64 {
        let grown = |of| Some(self.programs(of)?.saturating_sub(before.programs(of)?) as f64);
        let runs = grown(Quantity::SelfProgramRuns).filter(|runs| *runs > 0.0);
        let ns = grown(Quantity::SelfProgramsNs).zip(runs);
        ns.map_or(0.0, |(ns, runs)| {
            ns / runs + duty_cycle::RUN.as_nanos() as f64
        })
    }
}

/// Growth over a closed window.
struct ClosedWindow {
    duration: Duration,
    /// Growth by meter.
    by_meter: BTreeMap<MeterName, Window>,
    /// CPU time of the programs until the window's end.
    programs_ns: Option<u64>,
}

/// State of the programs after a window.
enum After {
    GoOn,
    Idle,
}

impl Shared {
    /// Starts the programs and opens a window.
    fn open(&mut self) -> Result<(), MeterError> {
        if let Some((since, Idle::Attached)) = self.idle_since.take() {
            self.beside += duty_cycle::attached(self.runs_per_s, since.elapsed());
        }
        for meter in self.meters.meters() {
            meter.resume()?;
        }
        if let Some(statistics) = &mut self.statistics {
            statistics.resume()?;
        }
        self.open = Some(self.edge());
        Ok(())
    }

    /// Closes the window, if one is open.
    fn close(&mut self, after: After) {
        let Some(begin) = self.open.take() else {
            return;
        };
        let end = match after {
            // This interval needs no estimate, so a quick reading is enough.
            After::GoOn if self.is_whole => self.read_edge().0,
            _ => self.edge(),
        };
        let mut grown = Growth::between(&begin.snapshots, &end.snapshots).counts;
        let known = grown.remove(&MeterName::Netstat).unwrap_or_default();
        let events = end.events.since(&begin.events);
        let run_ns = end.run_ns(&begin);
        let windows = grown.into_iter().map(|(meter, seen)| {
            let window = Window {
                seen,
                known: known.clone(),
                events: events.clone(),
                run_ns,
            };
            (meter, window)
        });
        let duration = end.at.duration_since(begin.at);
        let runs = |edge: &Edge| edge.programs(Quantity::SelfProgramRuns);
        if let (Some(before), Some(after)) = (runs(&begin), runs(&end))
            && !duration.is_zero()
        {
            self.runs_per_s = after.saturating_sub(before) as f64 / duration.as_secs_f64();
        }
        self.closed.push(ClosedWindow {
            duration,
            by_meter: windows.collect(),
            programs_ns: end.programs(Quantity::SelfProgramsNs),
        });
        match after {
            After::GoOn => self.open = Some(end),
            After::Idle => {
                self.is_whole = false;
                let idle = duty_cycle::cheaper(self.runs_per_s, PERIOD, self.cpus);
                self.meters.meters().for_each(|meter| meter.pause(idle));
                if let Some(statistics) = &mut self.statistics {
                    statistics.pause(idle);
                }
                if idle == Idle::Detached {
                    self.beside += duty_cycle::detached(self.cpus);
                }
                self.idle_since = Some((Instant::now(), idle));
            }
        }
    }

    /// CPU time of the programs, their windows and this thread so far, ns.
    fn spent_ns(&mut self) -> u64 {
        let programs = self.programs().unwrap_or_default();
        let ran_ns = programs.get(&Quantity::SelfProgramsNs);
        ran_ns.unwrap_or(&0) + self_cost::thread_cpu_ns() + self.beside.as_nanos() as u64
    }

    fn programs(&mut self) -> Option<Counts> {
        let totals = self.statistics.as_mut()?.snapshot().ok()?.totals;
        Some(totals.into_iter().next()?.counts)
    }

    /// Reads the eBPF meters and `netstat` with no packet in between, or with as few as possible. In a short
    /// window, a large packet that one of them lacks can be a tenth of the bytes.
    fn edge(&mut self) -> Edge {
        let (mut edge, mut fewest) = self.read_edge();
        for _ in 1..EDGE_TRIES {
            // If many packets pass in so short a time, windows have many packets, and another try would not
            // be better.
            if fewest == 0 || fewest > EDGE_PACKETS && edge.at.elapsed() < EDGE_TIME {
                break;
            }
            let (again, passed) = self.read_edge();
            if passed <= fewest {
                (edge, fewest) = (again, passed);
            }
        }
        edge
    }

    /// Reads an edge, and counts the packets that passed meanwhile.
    fn read_edge(&mut self) -> (Edge, u64) {
        let mut edge = Edge {
            programs: self.programs(),
            at: Instant::now(),
            snapshots: self.snapshots(),
            events: Events::now(),
        };
        edge.snapshots.extend(self.netstat.snapshot());
        let passed = passed(&edge.snapshots, &self.snapshots());
        (edge, passed)
    }

    fn snapshots(&mut self) -> Vec<Snapshot> {
        self.meters.read().flat_map(|(_, read)| read).collect()
    }
}

/// Packets that the meter `segments` saw between two readings.
fn passed(before: &[Snapshot], after: &[Snapshot]) -> u64 {
    let packets = |all: &[Snapshot]| -> u64 {
        let counts = all.iter().flat_map(|snapshot| &snapshot.totals);
        let packets =
            counts.flat_map(|totals| PACKETS.iter().filter_map(|of| totals.counts.get(of)));
        packets.sum()
    };
    packets(after).saturating_sub(packets(before))
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").finish_non_exhaustive()
    }
}

fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    // A panic with the lock held leaves whole windows.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Opens and closes windows until that fails.
fn keep_below(mut pace: Pace, shared: &Mutex<Shared>) {
    if let Err(error) = pace.keep(shared) {
        let mut shared = lock(shared);
        let meters = shared.meters.meters();
        meters.for_each(|meter| meter.pause(Idle::Detached));
        shared.failure = Some(format!("eBPF programs are idle from now on: {error}"));
    }
}

/// Decides how long the programs run.
#[derive(Debug)]
pub struct Pace {
    cost_max: f64,
    /// Mean time between the starts of two windows.
    distance: Duration,
    /// Limit of `distance`, for the case that even the shortest windows cost too much.
    distance_max: Duration,
    /// Length of the next window; `None` if the programs run all the time.
    window: Option<Duration>,
    /// State of a random number generator.
    random: u64,
}

impl Pace {
    pub fn new(cost_max: f64, interval: Duration, seed: u64) -> Pace {
        Pace {
            cost_max,
            distance: PERIOD,
            distance_max: interval.mul_f64(INTERVAL_SHARE).max(PERIOD),
            window: None,
            random: seed,
        }
    }

    fn keep(&mut self, shared: &Mutex<Shared>) -> Result<(), MeterError> {
        let mut spent_ns = lock(shared).spent_ns();
        loop {
            let window = self.window();
            match window {
                None => thread::sleep(PERIOD),
                Some(window) => {
                    thread::sleep(self.gap());
                    lock(shared).open()?;
                    thread::sleep(window);
                    lock(shared).close(After::Idle);
                }
            }
            let now_ns = lock(shared).spent_ns();
            let spent = Duration::from_nanos(now_ns.saturating_sub(spent_ns));
            spent_ns = now_ns;
            self.spent(spent);
            match (window, self.window) {
                (None, Some(_)) => lock(shared).close(After::Idle),
                (Some(_), None) => lock(shared).open()?,
                _ => {}
            }
        }
    }

    /// Length of the next window; `None` if the programs run all the time.
    pub fn window(&self) -> Option<Duration> {
        self.window
    }

    /// Time until the next window opens: half to one and a half times the mean, so that windows do not
    /// synchronize with a load.
    pub fn gap(&mut self) -> Duration {
        let mean = self
            .distance
            .saturating_sub(self.window.unwrap_or_default());
        mean.mul_f64(0.5 + self.random())
    }

    /// Adjusts the windows to the cost of the last window and the time before it.
    pub fn spent(&mut self, spent: Duration) {
        let affordable = PERIOD.mul_f64(self.cost_max);
        let distance = spent.div_f64(self.cost_max);
        self.distance = distance.clamp(PERIOD, self.distance_max);
        // Ratio of affordable to actual cost. The length moves half of the way, and at most to twice its
        // value.
        let factor = affordable
            .div_duration_f64(spent.max(Duration::from_nanos(1)))
            .min(3.0);
        let longer = |window: Duration| window.mul_f64((1.0 + factor) / 2.0).max(WINDOW_MIN);
        self.window = match self.window {
            None => (factor < 1.0).then(|| longer(PERIOD).mul_f64(factor).max(WINDOW_MIN)),
            Some(window) => Some(longer(window)).filter(|window| *window < PERIOD),
        };
    }

    /// Random number from 0 to 1 (Knuth's MMIX).
    fn random(&mut self) -> f64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) as f64 / (1_u64 << 31) as f64
    }
}

/// Largest mean time between windows, in intervals: with gaps of up to 1.5 times the mean, each interval has a
/// window.
const INTERVAL_SHARE: f64 = 0.65;

/// Mean time between windows if their cost allows it: [`INTERVAL_SHARE`] of a second. More windows would slow
/// traffic: beside a bulk flow on 2 CPUs, a window takes 3 ms of this thread's CPU time and some 7 ms of the
/// flow's, because the receiver waits and what is queued leaves its caches.
pub const PERIOD: Duration = Duration::from_millis(650);

/// Limit on the readings of an edge until no packet comes in between. One takes about 0.1 ms, more if another
/// task runs meanwhile.
const EDGE_TRIES: u32 = 5;
const EDGE_PACKETS: u64 = 4;
const EDGE_TIME: Duration = Duration::from_micros(300);

/// Quantities of the meter `segments` that add up to packets.
const PACKETS: &[Quantity] = &[
    Quantity::DeviceSkbsSent,
    Quantity::DataSkbsReceived,
    Quantity::PureAcksReceived,
];

/// Shortest window: shorter ones cost more than they show.
const WINDOW_MIN: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows after periods of 650 ms, in which the programs would cost `costs` of a CPU if they ran all the
    /// time. A window itself costs 1 ms.
    fn windows(cost_max: f64, costs: &[f64]) -> Vec<Option<Duration>> {
        let mut pace = Pace::new(cost_max, Duration::from_secs(1), 1);
        let after = |&cost: &f64| {
            let (ran, own) = match pace.window {
                Some(window) => (window, Duration::from_millis(1)),
                None => (PERIOD, Duration::ZERO),
            };
            pace.spent(ran.mul_f64(cost) + own);
            pace.window
        };
        costs.iter().map(after).collect()
    }

    #[test]
    fn packets_between_two_readings_are_those_of_both_directions() {
        let read = |received: u64, acks: u64| {
            let counts = [
                (Quantity::DataSkbsReceived, received),
                (Quantity::PureAcksReceived, acks),
                (Quantity::DataSkbBytesReceived, 1000 * received),
            ];
            [Snapshot {
                meter: MeterName::Segments,
                at_ns: 0,
                totals: vec![Totals {
                    whose: CountOwner::Namespace,
                    counts: Counts::from(counts),
                }],
            }]
        };
        assert_eq!(passed(&read(10, 5), &read(12, 6)), 3);
        assert_eq!(passed(&[], &[]), 0);
    }

    #[test]
    fn programs_run_all_the_time_where_that_is_cheap_enough() {
        assert_eq!(windows(0.006, &[0.001, 0.005, 0.0]), [None; 3]);
        let mut there_and_back = vec![0.1; 20];
        there_and_back.extend([0.000_1; 20]);
        let windows = windows(0.006, &there_and_back);
        assert!(windows[..20].iter().all(Option::is_some), "{windows:?}");
        assert_eq!(windows[39], None);
    }

    #[test]
    fn windows_become_as_long_as_they_may_cost() {
        // 3.9 ms of each 650 may be spent: 1 ms for the window itself, the rest at 100 us per ms.
        let last = windows(0.006, &[0.1; 30])[29].unwrap();
        assert!(
            last.abs_diff(Duration::from_millis(29)) < Duration::from_millis(1),
            "{last:?}"
        );
        // The limit is below the cost of any window, so the shortest one is used.
        assert_eq!(windows(0.000_1, &[1.0; 30])[29], Some(WINDOW_MIN));
    }
}
