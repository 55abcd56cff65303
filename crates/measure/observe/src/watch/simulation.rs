//! Compares the results of `watch` with the truth over twenty minutes of sampled traffic in virtual time.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::io;
use std::ops::ControlFlow;
use std::thread;
use std::time::Duration;

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity as Q, Snapshot, Totals};

use crate::ticker::Event;
use crate::watch::driver::{self, Moment, View};
use crate::watch::estimate::{Estimate, Window};
use crate::watch::events::Events;
use crate::watch::sample::Sample;
use crate::watch::sampler::{PERIOD, Pace};
use crate::watch::testing::Script;

const MS: u64 = 1_000_000;
const CPUS: u64 = 2;
const MINUTES: u64 = 20;

/// A generator of random numbers (Knuth's MMIX).
struct Random(u64);

impl Random {
    fn ratio(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
    }

    fn below(&mut self, limit: u64) -> u64 {
        (self.ratio() * limit as f64) as u64
    }

    fn exponential(&mut self, mean: f64) -> u64 {
        (-self.ratio().ln() * mean) as u64
    }
}

/// Event in the simulated host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Happening {
    /// A packet with `payload` bytes in `segments` segments. A pure ACK has no payload.
    Packet {
        payload: u64,
        segments: u64,
    },
    Syn,
    Fin,
    /// A packet of another protocol, of this many bytes.
    Datagram(u64),
    /// CPU time of other tasks, ns.
    Work(u64),
    /// The load's next turn.
    Turn(u64),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Load {
    /// Requests over connections that stay open, one a millisecond.
    Steady,
    /// New connections at random, 500 a second.
    Churn,
    /// A hundred connections at a time.
    Bursty,
    /// Churn, and 8 MiB as often as a window opens on average.
    Periodic,
    /// Alternates between a minute of churn and a minute of a bulk transfer.
    Alternating,
}

/// All traffic of a loopback device, at both ends, and the counters of the kernel and the programs.
struct World {
    load: Load,
    random: Random,
    now_ns: u64,
    ahead: BinaryHeap<Reverse<(u64, Happening)>>,
    kernel: Counts,
    segments: Counts,
    exact: Counts,
    events: Events,
    /// True while programs run. Each run adds time to the context in which it is called.
    has_programs: bool,
}

/// Time of one run of a program: 5 to 10 % of an interrupt.
const RUN_NS: u64 = 250;

impl World {
    fn new(load: Load, seed: u64) -> World {
        let zeros = |of: &[Q]| of.iter().map(|&of| (of, 0)).collect();
        let mut world = World {
            load,
            random: Random(seed),
            now_ns: 0,
            ahead: BinaryHeap::new(),
            kernel: zeros(KERNEL),
            segments: zeros(SEGMENTS),
            exact: zeros(Q::EXACT_CONTEXTS),
            events: Events(
                [Q::ExactHardirqNs, Q::ExactSoftirqNetRxNs]
                    .map(|of| (of, 0))
                    .into(),
            ),
            has_programs: true,
        };
        // Not at 0: the time of packets would be more than has passed.
        world.ahead.push(Reverse((MS, Happening::Turn(0))));
        if load == Load::Periodic {
            world.ahead.push(Reverse((MS, Happening::Turn(1))));
        }
        world.ahead.push(Reverse((0, Happening::Work(0))));
        world
    }

    fn advance(&mut self, to_ns: u64) {
        while let Some(&Reverse((at_ns, happening))) = self.ahead.peek()
            && at_ns <= to_ns
        {
            self.ahead.pop();
            self.now_ns = at_ns;
            self.happen(happening);
        }
        self.now_ns = to_ns;
    }

    fn after(&mut self, ns: u64, happening: Happening) {
        self.ahead.push(Reverse((self.now_ns + ns, happening)));
    }

    fn happen(&mut self, happening: Happening) {
        let add = |counts: &mut Counts, of: Q, more: u64| *counts.entry(of).or_insert(0) += more;
        match happening {
            Happening::Turn(which) => return self.turn(which),
            Happening::Work(ns) => {
                // In pieces: a window may begin or end within it, and idle time must not decrease.
                let piece = ns.min(MS / 10);
                add(&mut self.exact, Q::ExactTaskOthersNs, piece);
                if ns > piece {
                    return self.after(piece, Happening::Work(ns - piece));
                }
                let next = self.random.exponential(20e6);
                let work = self.random.exponential(1e6).min(10 * MS);
                return self.after(next, Happening::Work(work));
            }
            _ => {}
        }
        let (payload, segments, header) = match happening {
            Happening::Packet { payload, segments } => (payload, segments, 52),
            Happening::Syn => (0, 1, 60),
            Happening::Datagram(bytes) => (0, 0, bytes),
            // Some ACKs have SACK blocks.
            Happening::Fin => (0, 1, 52 + 12 * self.random.below(2)),
            _ => unreachable!("it was handled above"),
        };
        for of in [Q::IpPacketsSent, Q::IpPacketsReceived] {
            add(&mut self.kernel, of, 1);
        }
        for of in [Q::IpOctetsSent, Q::IpOctetsReceived] {
            add(&mut self.kernel, of, header + payload);
        }
        add(&mut self.kernel, Q::SegmentsSent, segments);
        let kinds = if payload > 0 {
            add(&mut self.kernel, Q::NewDataSegmentsSent, segments);
            let bytes = [Q::DataSkbBytesSent, Q::DataSkbBytesReceived];
            bytes
                .into_iter()
                .for_each(|of| add(&mut self.segments, of, payload));
            add(&mut self.segments, Q::DataWireSegmentsSent, segments);
            [Q::DataSkbsSent, Q::DataSkbsReceived]
        } else {
            add(&mut self.kernel, Q::SlowPureAcks, segments);
            [Q::PureAcksSent, Q::PureAcksReceived]
        };
        if matches!(happening, Happening::Packet { .. }) {
            kinds
                .into_iter()
                .for_each(|of| add(&mut self.segments, of, 1));
        }
        let softirq = self.random.exponential(4_000.0).min(40_000) + payload / 20;
        let task = self.random.exponential(8_000.0).min(80_000) + payload / 10;
        self.interrupt(Q::ExactSoftirqNetRxNs, softirq, 2);
        self.interrupt(Q::ExactHardirqNs, 2_000 + self.now_ns % 1_000, 1);
        add(&mut self.exact, Q::ExactTaskOthersNs, task);
    }

    /// Adds an interrupt of `ns` nanoseconds in which programs run `runs` times.
    fn interrupt(&mut self, kind: Q, ns: u64, runs: u64) {
        let programs_ns = if self.has_programs { runs * RUN_NS } else { 0 };
        *self.exact.entry(kind).or_insert(0) += ns + programs_ns;
        *self.events.0.entry(kind).or_insert(0) += 1;
    }

    fn turn(&mut self, which: u64) {
        let is_bulk = self.load == Load::Alternating && (self.now_ns / (60_000 * MS)) % 2 == 1;
        let next = match (self.load, which) {
            (Load::Periodic, 1) => {
                (0..128).for_each(|skb| self.skb(skb * 80_000, 65_536));
                PERIOD.as_nanos() as u64
            }
            (Load::Steady, _) => {
                self.skb(0, 100);
                self.skb(100_000, 2_000);
                MS
            }
            (Load::Alternating, _) if is_bulk => {
                (0..8).for_each(|skb| self.skb(skb * 80_000, 65_536));
                MS
            }
            (Load::Bursty, _) => {
                (0..100).for_each(|connection| self.connection(connection * 200_000));
                self.random.exponential(200e6)
            }
            _ => {
                self.connection(0);
                self.random.exponential(2e6)
            }
        };
        self.after(next, Happening::Turn(which));
    }

    fn connection(&mut self, at_ns: u64) {
        self.after(at_ns, Happening::Datagram(80));
        let answer = 150 + self.random.below(100);
        self.after(at_ns, Happening::Datagram(answer));
        self.after(at_ns, Happening::Syn);
        self.after(at_ns + 20_000, Happening::Syn);
        self.ack(at_ns + 40_000);
        let request = 100 + self.random.below(900);
        self.skb(at_ns + 100_000, request);
        let answer = [500, 2_000, 8_000, 30_000][self.random.below(4) as usize];
        self.skb(at_ns + 300_000, answer);
        for at in [400_000, 450_000] {
            self.after(at_ns + at, Happening::Fin);
        }
        self.ack(at_ns + 470_000);
    }

    fn skb(&mut self, at_ns: u64, payload: u64) {
        let segments = payload.div_ceil(1448);
        self.after(at_ns, Happening::Packet { payload, segments });
        self.ack(at_ns + 30_000);
    }

    fn ack(&mut self, at_ns: u64) {
        let (payload, segments) = (0, 1);
        self.after(at_ns, Happening::Packet { payload, segments });
    }

    /// Time that is not busy.
    fn idle_ns(&self) -> u64 {
        let busy_ns: u64 = self.exact.values().sum();
        self.now_ns * CPUS - busy_ns
    }

    /// Idle time by the kernel, which takes the way into and out of idle for busy: a fifth of the busy time, of a CPU that is half
    /// busy at most.
    fn known_idle_ns(&self) -> u64 {
        let idle_ns = self.idle_ns();
        let way_ns = (self.now_ns * CPUS - idle_ns) / 5;
        (idle_ns - way_ns.min(idle_ns / 2)) / (10 * MS) * 10 * MS
    }

    /// Interrupts, and idle time by the kernel.
    fn events(&self) -> Events {
        let mut events = self.events.clone();
        events.0.insert(Q::ExactIdleNs, self.known_idle_ns());
        events
    }

    /// Counts of the eBPF meter.
    fn exact(&self) -> Counts {
        let mut counts = self.exact.clone();
        counts.insert(Q::ExactIdleNs, self.idle_ns());
        counts
    }

    /// Snapshots of the meters of the kernel's counters.
    fn kernel(&self) -> Vec<Snapshot> {
        let proc = [
            (Q::CpuIdleNs, self.known_idle_ns()),
            (Q::CpuIowaitNs, 0),
            // The hypervisor's view: the CPU was idle in a part of the stolen time, and the rest is in the
            // context that it hit.
            (Q::CpuStealNs, self.now_ns / 100),
        ];
        vec![
            snapshot(MeterName::Proc, self.now_ns, Counts::from(proc)),
            snapshot(MeterName::Netstat, self.now_ns, self.kernel.clone()),
            snapshot(
                MeterName::SelfCost,
                self.now_ns,
                Counts::from([(Q::SelfCpuNs, 0)]),
            ),
        ]
    }
}

fn snapshot(meter: MeterName, at_ns: u64, counts: Counts) -> Snapshot {
    let whose = CountOwner::Host;
    let totals = vec![Totals { whose, counts }];
    Snapshot {
        meter,
        at_ns,
        totals,
    }
}

const KERNEL: &[Q] = &[
    Q::IpPacketsSent,
    Q::IpPacketsReceived,
    Q::IpOctetsSent,
    Q::IpOctetsReceived,
    Q::SegmentsSent,
    Q::NewDataSegmentsSent,
    Q::SegmentsRetransmitted,
    Q::SlowPureAcks,
    Q::HeaderPredictedAcks,
    Q::HeaderPredictedData,
];

const SEGMENTS: &[Q] = &[
    Q::DataSkbBytesSent,
    Q::DataSkbBytesReceived,
    Q::DataSkbsSent,
    Q::DataSkbsReceived,
    Q::DataWireSegmentsSent,
    Q::PureAcksSent,
    Q::PureAcksReceived,
];

/// The sampler's thread and the main loop.
struct Watcher {
    world: World,
    pace: Pace,
    random: Random,
    estimates: [Estimate; 2],
    closed: Vec<[Window; 2]>,
    open: Option<([Counts; 3], Events)>,
    /// Time when the thread next opens or closes a window.
    next_ns: u64,
    /// Packets until the last time that the thread charged its cost.
    began_packets: u64,
    is_whole: bool,
}

impl Watcher {
    fn new(load: Load, seed: u64) -> Watcher {
        let mut watcher = Watcher {
            world: World::new(load, seed),
            // Less than the steady load costs.
            pace: Pace::new(0.003, Duration::from_secs(1), seed),
            random: Random(seed + 1),
            estimates: [Estimate::of_segments(), Estimate::of_exact(CPUS as usize)],
            closed: Vec::new(),
            open: None,
            next_ns: PERIOD.as_nanos() as u64,
            began_packets: 0,
            is_whole: true,
        };
        watcher.open = Some(watcher.edge());
        watcher
    }

    /// Reads the meters one after the other, sometimes with other tasks in between.
    fn edge(&mut self) -> ([Counts; 3], Events) {
        let exact = self.world.exact();
        let events = self.world.events();
        self.world.advance(self.world.now_ns + 5_000);
        let segments = self.world.segments.clone();
        let lag_ns = match self.random.below(50) {
            0 => 500_000,
            _ => 30_000 + self.random.below(40_000),
        };
        self.world.advance(self.world.now_ns + lag_ns);
        let counts = [segments, exact, self.world.kernel.clone()];
        (counts, events)
    }

    fn close(&mut self) {
        let Some(([segments, exact, kernel], before)) = self.open.take() else {
            return;
        };
        let (end, events) = self.edge();
        let growth = |before: &Counts, after: &Counts| -> Counts {
            let all = after.iter();
            all.map(|(of, count)| (*of, count - before[of])).collect()
        };
        let known = growth(&kernel, &end[2]);
        let window = |seen| Window {
            seen,
            known: known.clone(),
            events: events.since(&before),
            run_ns: RUN_NS as f64,
        };
        let pair = [
            window(growth(&segments, &end[0])),
            window(growth(&exact, &end[1])),
        ];
        self.closed.push(pair);
        self.open = Some((end, events));
    }

    fn idle(&mut self) {
        self.world.has_programs = false;
        self.open = None;
        self.is_whole = false;
    }

    /// Runs the sampler's thread until an instant.
    fn run(&mut self, to_ns: u64) {
        while self.next_ns <= to_ns {
            self.world.advance(self.next_ns.max(self.world.now_ns));
            let is_sampling = self.pace.window().is_some();
            if is_sampling && self.open.is_none() {
                self.world.has_programs = true;
                self.open = Some(self.edge());
                let window = self.pace.window().unwrap_or_default();
                self.next_ns = self.world.now_ns + window.as_nanos() as u64;
                self.began_packets = self.world.kernel[&Q::IpPacketsSent];
                continue;
            }
            if is_sampling {
                // The interrupt that wakes the thread is in the window.
                self.world.interrupt(Q::ExactHardirqNs, 4_000, 1);
                self.close();
                self.idle();
            }
            let packets = self.world.kernel[&Q::IpPacketsSent] - self.began_packets;
            let window_ns = if is_sampling { 1_200_000 } else { 0 };
            self.pace
                .spent(Duration::from_nanos(window_ns + packets * 1_000));
            self.began_packets = self.world.kernel[&Q::IpPacketsSent];
            let gap = match self.pace.window() {
                None => PERIOD,
                Some(_) => self.pace.gap(),
            };
            match (is_sampling, self.pace.window()) {
                (false, Some(_)) => {
                    self.close();
                    self.idle();
                }
                (true, None) => {
                    self.world.has_programs = true;
                    self.open = Some(self.edge());
                }
                _ => {}
            }
            self.next_ns = self.world.now_ns + gap.as_nanos() as u64;
        }
        self.world.advance(to_ns.max(self.world.now_ns));
    }

    /// Reads the meters at an instant. Also returns the true counts at the moment when the kernel's counters
    /// were read.
    fn look(&mut self, at_ns: u64) -> (Moment, Counts) {
        self.run(at_ns);
        let mut truth = self.world.exact();
        truth.extend(self.world.segments.clone());
        let mut snapshots = self.world.kernel();
        let events = self.world.events();
        let now_ns = self.world.now_ns;
        self.world.advance(now_ns + 20_000);
        self.close();
        let is_whole = std::mem::replace(&mut self.is_whole, self.open.is_some());
        let mut moment = Moment::default();
        let closed = std::mem::take(&mut self.closed);
        let meters = [MeterName::Segments, MeterName::Exact];
        for (index, meter) in meters.into_iter().enumerate() {
            let windows = closed.iter().map(|pair| pair[index].clone());
            match self.estimates[index].take(windows, is_whole, &snapshots[..3], &events) {
                Some(estimated) => {
                    snapshots.push(snapshot(meter, now_ns, estimated.totals));
                    moment.sampling_error = moment.sampling_error.or(estimated.error);
                }
                None => moment.unseen.push(meter),
            }
        }
        moment.snapshots = snapshots;
        (moment, truth)
    }
}

/// Samples, each with its true counts.
#[derive(Default)]
struct Kept {
    lines: Vec<(Sample, Counts)>,
}

/// True counts at each reading, which the view takes.
type Truths = RefCell<Vec<Counts>>;

struct Keeper<'a> {
    kept: Kept,
    truths: &'a Truths,
}

impl View for Keeper<'_> {
    fn show(&mut self, _: &Moment, sample: &Sample) -> io::Result<ControlFlow<()>> {
        let truths = self.truths.borrow();
        let [.., before, after] = &truths[..] else {
            panic!("two looks are before a line");
        };
        let truth = after
            .iter()
            .map(|(of, count)| (*of, count - before[of]))
            .collect();
        self.kept.lines.push((sample.clone(), truth));
        Ok(ControlFlow::Continue(()))
    }
}

fn watched(load: Load, seed: u64) -> Kept {
    let mut watcher = Watcher::new(load, seed);
    let truths = Truths::default();
    let mut at_ns = 0;
    let mut look = || {
        let (moment, truth) = watcher.look(at_ns);
        at_ns += 1_000 * MS;
        truths.borrow_mut().push(truth);
        moment
    };
    let events = vec![Event::Tick; MINUTES as usize * 60];
    let mut keeper = Keeper {
        kept: Kept::default(),
        truths: &truths,
    };
    driver::watch(&mut look, &mut Script(events.into()), &mut keeper, None).unwrap();
    keeper.kept
}

fn count(sample: &Sample, of: Q) -> Option<f64> {
    let mut meters = [MeterName::Segments, MeterName::Exact].into_iter();
    meters.find_map(|meter| Some(*sample.growth.counts.get(&meter)?.get(&of)? as f64))
}

/// Ratio of the total to the true total, by quantity.
fn totals(kept: &Kept) -> BTreeMap<Q, f64> {
    let of = |quantity: Q| {
        let said: f64 = kept
            .lines
            .iter()
            .filter_map(|(line, _)| count(line, quantity))
            .sum();
        let truth: f64 = kept
            .lines
            .iter()
            .map(|(_, truth)| truth[&quantity] as f64)
            .sum();
        (quantity, said / truth)
    };
    CHECKED.iter().map(|&quantity| of(quantity)).collect()
}

/// Share of the samples with an error whose payload is within two errors. Also the number of these samples,
/// and the mean error.
fn coverage(kept: &Kept) -> (f64, usize, f64) {
    let payload = [Q::DataSkbBytesSent, Q::DataSkbBytesReceived];
    let (mut within, mut all, mut errors) = (0, 0, 0.0);
    for (line, truth) in &kept.lines {
        let Some(error) = line.growth.sampling_error else {
            continue;
        };
        let said: f64 = payload
            .iter()
            .map(|&of| count(line, of).unwrap_or(0.0))
            .sum();
        let truth: u64 = payload.iter().map(|of| truth[of]).sum();
        all += 1;
        errors += error;
        within += usize::from((said - truth as f64).abs() <= 2.0 * error * said);
    }
    (within as f64 / all as f64, all, errors / all as f64)
}

const CHECKED: &[Q] = &[
    Q::DataSkbBytesSent,
    Q::DataSkbBytesReceived,
    Q::DataSkbsSent,
    Q::DataSkbsReceived,
    Q::DataWireSegmentsSent,
    Q::PureAcksSent,
    Q::PureAcksReceived,
    Q::ExactTaskOthersNs,
    Q::ExactSoftirqNetRxNs,
    Q::ExactHardirqNs,
];

/// Checks that after twenty minutes each total is within 2 % of the truth, and that 95 of 100 samples are
/// within two errors of it.
#[test]
fn totals_and_errors_are_true_where_watch_samples() {
    thread::scope(|scope| {
        for load in LOADS {
            scope.spawn(move || check(load));
        }
    });
}

fn check(load: Load) {
    let kept = watched(load, SEED);
    let (within, n, error) = coverage(&kept);
    println!("{load:?}: {within:.3} of {n} lines within two errors, of {error:.4} in the mean");
    assert!(n > 1000, "{load:?}: {n} lines were sampled");
    assert!(within >= 0.95, "{load:?}: {within} of {n}");
    // Errors so wide that they say nothing would cover all samples.
    assert!(error < 0.01, "{load:?}: {error}");
    for (of, ratio) in totals(&kept) {
        println!("  {load:?}: {of} {ratio:.4}");
        assert!((ratio - 1.0).abs() < 0.02, "{load:?}: {of} {ratio}");
    }
}

/// Checks that windows open equally often at any phase of a load whose period equals the mean time between
/// windows, and that each interval has one.
#[test]
fn windows_keep_in_step_with_no_load() {
    let mut pace = Pace::new(0.004, Duration::from_secs(1), SEED);
    pace.spent(Duration::from_millis(40));
    let (mut at, mut phases) = (0.0, [0.0; 2]);
    for _ in 0..1000 {
        let distance = pace.gap() + pace.window().unwrap();
        assert!(
            distance < Duration::from_secs(1),
            "an interval has no window"
        );
        at += distance.div_duration_f64(PERIOD);
        let (sine, cosine) = (at * std::f64::consts::TAU).sin_cos();
        phases = [phases[0] + cosine, phases[1] + sine];
    }
    let mean = phases[0].hypot(phases[1]) / 1000.0;
    assert!(mean < 0.15, "{mean}");
    assert!((at / 1000.0 - 1.0).abs() < 0.05, "{at}");
}

const SEED: u64 = 1;
const LOADS: [Load; 5] = [
    Load::Steady,
    Load::Churn,
    Load::Bursty,
    Load::Periodic,
    Load::Alternating,
];
