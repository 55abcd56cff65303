//! The thread of a worker: makes its stack, runs the traffic, and reads the meters before and after it. Between two
//! snapshots it does nothing but the workload.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::{Duration, Instant};

use hdrhistogram::{AdditionError, Histogram};
use tcpcost_link::Device;
use tcpcost_meter::Meter;
use tcpcost_meter::affinity::pin;
use tcpcost_meter::mark;
use tcpcost_meter::memory::MemoryUse;
use tcpcost_meter::rusage;
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_stack::{SocketOptions, Stack, StackError, Wire};
use tcpcost_study::{
    Brackets, BuffersFound, ConnectionSeries, FlowGroup, HostName, Knob, MeterName, Quantity,
    Snapshot, Totals, WaitsBy, Whose, WorkloadSettings,
};
use tcpcost_workload::{self as workload, OperationFound, Token, flows_of};

use super::{Listening, Order, Role, Totalled, WorkerAnswer, WorkerConfig, WorkerReadings};
use crate::backend::{self, Backend, Observed};
use crate::capture::captured;
use crate::deal;
use crate::policy::ConnectedOptions;
use crate::protocol::{Prepare, Span, clock_ns, realtime_ns};
use crate::readings::{self, Meters};
use crate::sampler::Sampler;
use crate::soak;

/// TCP_INFO is read this long before the first snapshot, so that traffic is in its stride again:
/// the time that reading takes, twice over, and two milliseconds.
const TCP_INFO_NS_PER_CONNECTION: u64 = 4_000;
const TCP_INFO_NS: u64 = 2_000_000;
/// Reading the totals by connection takes as long, both ends' where they are in one map.
const BY_CONNECTION_NS_PER_CONNECTION: u64 = 4_000;

/// How long an order may wait for a stack that is kept up: well within the lead of a span.
const KEEP_UP: Duration = Duration::from_millis(1);

/// A fixed amount of work is done within this, or the trial fails: a path at which nothing moves ends no trial by itself.
const WORK_MAX: Duration = Duration::from_secs(60);
/// Traffic goes on so long after the second snapshot of a fixed amount of work: who is done first waits for the other, who has
/// what is in flight left to do.
const TAIL_OF_WORK_NS: u64 = 50_000_000;

/// What a stretch of traffic ends with.
#[derive(Debug, Clone, Copy)]
enum Goal {
    /// An instant, ns of the monotonic clock.
    At(u64),
    /// So many bytes sent and received by this worker.
    Moved(u64),
}

/// Which snapshot. The last meter of the first is the first of the second, so that reading the others is not in what it tells.
#[derive(Debug, Clone, Copy)]
enum Turn {
    First,
    Second,
}

/// Where TCP_INFO is read, and the snapshots are taken.
struct Goals {
    lead: Goal,
    from: Goal,
    to: Goal,
}

impl Goals {
    /// Of a span of time, or of work: as much before the first snapshot as behind it, and a part between TCP_INFO and that, in which
    /// traffic is in its stride again, so small that what TCP_INFO tells is of the same work.
    fn new(span: Span, lead_ns: u64, moved: u64) -> Goals {
        match span.work_bytes {
            None => Goals {
                lead: Goal::At(span.from_ns.saturating_sub(lead_ns)),
                from: Goal::At(span.from_ns),
                to: Goal::At(span.to_ns),
            },
            Some(bytes) => Goals {
                lead: Goal::Moved(moved + bytes - bytes / 128),
                from: Goal::Moved(moved + bytes),
                to: Goal::Moved(moved + 2 * bytes),
            },
        }
    }
}

/// A worker, on its thread.
pub(super) struct Worker {
    pub(super) inbox: Receiver<Order>,
    pub(super) outbox: Sender<Result<WorkerAnswer, String>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) meters: Meters,
    pub(super) sampler: Option<Sampler>,
    pub(super) beside_soak: bool,
    pub(super) by_connection: bool,
    /// Whether it marks the interval for an emulator: of one that does one host does.
    pub(super) marks: bool,
    /// Time between looks at the first connection.
    pub(super) series_ns: Option<u64>,
    /// Not where connections come and go.
    pub(super) tcp_info: Option<TcpInfo>,
    pub(super) reads_rusage: bool,
    /// Whether it has a thread for each connection, so that its process is what it is charged.
    pub(super) has_threads: bool,
    /// Names of the groups; none of a host that forwards.
    pub(super) groups: Vec<Option<HostName>>,
    pub(super) options: ConnectedOptions,
    /// What is set for this end.
    pub(super) knobs: Vec<&'static Knob>,
}

impl Worker {
    /// With our TCP over this device, captured where that is asked for.
    pub(super) fn work_on<D: Device<Wire> + 'static>(
        self,
        device: D,
        mut config: WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
        options: &SocketOptions,
        role: Role,
    ) -> Result<(), String> {
        if let Some((lane, counts)) = config.lane.take() {
            let device = lane.over(device, config.index, counts);
            return self.work_on(device, config, prepare, groups, options, role);
        }
        match config.capture.take() {
            None => {
                let stack = backend::stack(device, config.index, prepare, options)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
            Some(file) => {
                let device = captured(device, file);
                let stack = backend::stack(device, config.index, prepare, options)?;
                self.work(make(stack, &config, prepare, groups, role)?)
            }
        }
    }

    pub(super) fn work<S: Observed>(
        mut self,
        mut worker: workload::Worker<S>,
    ) -> Result<(), String> {
        if !worker.ports().is_empty() {
            self.send(WorkerAnswer::Listening(Listening {
                addresses: worker.ports().to_vec(),
                loaded: self.meters.loaded.clone(),
            }))?;
        }
        let mut is_between = false;
        while let Some(order) = self.next_order(&mut worker, is_between)? {
            is_between = matches!(order, Order::SetUp(_));
            let answer = match order {
                Order::SetUp(deadline) => {
                    let memory = MemoryUse::read(Path::new("/proc"));
                    let begun_ns = clock_ns();
                    worker.set_up(deadline).map_err(|error| error.to_string())?;
                    let set_up_ns = clock_ns().saturating_sub(begun_ns);
                    S::set(&worker, &self.options)?;
                    let mut ready = S::describe(&worker, &self.knobs);
                    ready.connections = worker.conns().count();
                    (ready.set_up_ns, ready.memory) = (set_up_ns, memory);
                    WorkerAnswer::Ready(ready)
                }
                Order::Run(span) => {
                    WorkerAnswer::WorkerReadings(Box::new(self.run(&mut worker, span)?))
                }
            };
            self.send(answer)?;
        }
        worker.close();
        Ok(())
    }

    /// `None` once the trial is over. Between set-up and run a stack that would stand still is kept up, so
    /// that the other end's set-up does not wait for what was lost.
    fn next_order<S: Observed>(
        &self,
        worker: &mut workload::Worker<S>,
        is_between: bool,
    ) -> Result<Option<Order>, String> {
        if !(is_between && S::STANDS_STILL) {
            return Ok(self.inbox.recv().ok());
        }
        loop {
            match self.inbox.try_recv() {
                Ok(order) => return Ok(Some(order)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => {
                    worker.keep_up(KEEP_UP).map_err(|error| error.to_string())?
                }
            }
        }
    }

    fn send(&self, answer: WorkerAnswer) -> Result<(), String> {
        self.outbox
            .send(Ok(answer))
            .map_err(|_| "the trial was given up".to_string())
    }

    fn run<S: Observed>(
        &mut self,
        worker: &mut workload::Worker<S>,
        span: Span,
    ) -> Result<WorkerReadings, String> {
        let connections = worker.conns().count() as u64;
        let buffers_before = S::buffers(worker);
        let mut lead_ns = TCP_INFO_NS + TCP_INFO_NS_PER_CONNECTION * connections;
        if self.by_connection {
            lead_ns += BY_CONNECTION_NS_PER_CONNECTION * connections;
        }
        let goals = Goals::new(span, lead_ns, worker.bytes_moved());
        self.drive(worker, goals.lead)?;
        let info_first = realtime_ns();
        let connections_before = self.connections(worker)?;
        let info_first = [info_first, realtime_ns()];
        let by_connection_before = self.by_connection();
        self.drive(worker, goals.from)?;
        let first_begin_ns = realtime_ns();
        // Slow meters first here and last there, so that what they cost is outside on both sides.
        let mut before = self.meters(Turn::First)?;
        before.extend(self.own(worker)?);
        let first_end_ns = realtime_ns();
        drop(take_response_times(worker));
        drop(take_operations(worker));
        self.check_in_time(span)?;
        if let Some(sampler) = &mut self.sampler {
            sampler.start();
        }

        if self.marks {
            mark::begin();
        }
        let series = match span.work_bytes {
            None => self.drive_and_look(worker, span)?,
            Some(_) => self.drive(worker, goals.to).map(|()| None)?,
        };

        if self.marks {
            mark::end();
        }
        if let Some(sampler) = &mut self.sampler {
            sampler.stop();
        }
        let second_begin_ns = realtime_ns();
        let mut after = self.own(worker)?;
        let group_response_times = take_response_times(worker);
        let operations = take_operations(worker);
        after.extend(self.meters(Turn::Second)?);
        let second_end_ns = realtime_ns();
        let by_connection_after = self.by_connection();
        let memory = MemoryUse::read(Path::new("/proc"));
        let info_last_ns = realtime_ns();
        let connections_after = self.connections(worker)?;
        let tcp_info = connections_after.as_ref().map(|_| Brackets {
            first_begin_ns: info_first[0],
            first_end_ns: info_first[1],
            second_begin_ns: info_last_ns,
            second_end_ns: realtime_ns(),
        });
        after.extend(connections_after);
        let buffers = buffers_before.zip(S::buffers(worker));
        let stop_ns = match span.work_bytes {
            None => span.stop_ns,
            Some(_) => clock_ns() + TAIL_OF_WORK_NS,
        };
        self.drive(worker, Goal::At(stop_ns))?;
        worker.end_traffic();

        before.extend(connections_before);
        let readings = readings::since(&before, &after).map_err(|error| error.to_string())?;
        let warnings = &mut self.meters.warnings;
        let profile = self.sampler.take().and_then(|sampler| {
            if self.beside_soak {
                // Looking names up is work that would disturb the calibration.
                soak::sleep_until(soak::over_ns(span));
            }
            sampler.chains(warnings)
        });
        Ok(WorkerReadings {
            readings,
            response_times: together(&group_response_times).map_err(|error| error.to_string())?,
            group_response_times,
            operations,
            profile,
            by_connection: by_connection_before
                .zip(by_connection_after)
                .map(<[Totalled; 2]>::from),
            keys: match self.by_connection {
                true => S::keys(worker),
                false => Vec::new(),
            },
            series,
            buffers: buffers.map(|(before, after)| BuffersFound { before, after }),
            warnings: std::mem::take(&mut self.meters.warnings),
            tcp_bytes: memory.tcp_bytes,
            snapshots: Brackets {
                first_begin_ns,
                first_end_ns,
                second_begin_ns,
                second_end_ns,
            },
            tcp_info,
            strangers: worker.strangers(),
        })
    }

    /// Thousands of runnable threads may keep this one, or whoever gives it orders, from the CPU for seconds. What is then
    /// left of the interval tells nothing.
    fn check_in_time(&self, span: Span) -> Result<(), String> {
        let late_ns = clock_ns().saturating_sub(span.from_ns);
        if !self.has_threads
            || span.work_bytes.is_some()
            || late_ns < (span.to_ns - span.from_ns) / 10
        {
            return Ok(());
        }
        let late_ms = late_ns / 1_000_000;
        Err(format!(
            "the meters were first read {late_ms} ms late beside so many threads that all have work: fewer flows, or a rate that leaves them asleep"
        ))
    }

    fn drive<S: Observed>(
        &self,
        worker: &mut workload::Worker<S>,
        goal: Goal,
    ) -> Result<(), String> {
        let (left, bytes) = match goal {
            Goal::At(until_ns) => (
                Duration::from_nanos(until_ns.saturating_sub(clock_ns())),
                u64::MAX,
            ),
            Goal::Moved(bytes) => (WORK_MAX, bytes),
        };
        worker
            .run_until_moved(Instant::now() + left, bytes, &self.stop)
            .map_err(|error| error.to_string())?;
        if self.stop.load(Ordering::Relaxed) {
            return Err("the trial was given up".to_string());
        }
        match goal {
            Goal::Moved(bytes) if worker.bytes_moved() < bytes => Err(format!(
                "of {bytes} bytes only {} were moved in {} s",
                worker.bytes_moved(),
                WORK_MAX.as_secs()
            )),
            _ => Ok(()),
        }
    }

    /// Drives traffic over the interval; where it is asked for, with looks at the first connection.
    fn drive_and_look<S: Observed>(
        &self,
        worker: &mut workload::Worker<S>,
        span: Span,
    ) -> Result<Option<ConnectionSeries>, String> {
        let Some(every_ns) = self.series_ns else {
            return self.drive(worker, Goal::At(span.to_ns)).map(|()| None);
        };
        let mut series = ConnectionSeries::default();
        let mut due_ns = span.from_ns;
        loop {
            self.drive(worker, Goal::At(due_ns.min(span.to_ns)))?;
            if let Some(look) = S::look(worker) {
                // As late as the loop returned: what is told is when it was, not when it was due.
                series.push(clock_ns().saturating_sub(span.from_ns), look);
            }
            if due_ns >= span.to_ns {
                return Ok((!series.at_ns.is_empty()).then_some(series));
            }
            due_ns += every_ns;
        }
    }

    /// The end's meters, if this worker reads them.
    fn meters(&mut self, turn: Turn) -> Result<Vec<Snapshot>, String> {
        let mut snapshots = Vec::new();
        let mut read = |meter: &mut Box<dyn Meter + Send>| {
            let snapshot = meter.snapshot().map_err(|error| error.to_string());
            snapshot.map(|snapshot| snapshots.push(snapshot))
        };
        let mut meters = self.meters.meters.iter_mut();
        match turn {
            Turn::First => meters.try_for_each(&mut read),
            Turn::Second => meters.rev().try_for_each(&mut read),
        }?;
        Ok(snapshots)
    }

    /// Totals by connection, if they are wanted and this worker reads the end's meters.
    fn by_connection(&mut self) -> Option<Totalled> {
        let wanted = self.by_connection.then_some(self.meters.meters.iter_mut());
        let totals: HashMap<_, _> = wanted?.flat_map(|meter| meter.by_connection()).collect();
        (!totals.is_empty()).then(|| Totalled {
            at_ns: clock_ns(),
            totals,
        })
    }

    /// What this thread counts of itself.
    fn own<S: Observed>(&self, worker: &workload::Worker<S>) -> Result<Vec<Snapshot>, String> {
        let snapshot = |meter, whose, counts| Snapshot {
            meter,
            at_ns: clock_ns(),
            totals: vec![Totals { whose, counts }],
        };
        let mut snapshots = Vec::new();
        if !self.groups.is_empty() {
            let counts = worker.totals();
            let mut of_workload = snapshot(MeterName::Workload, Whose::Workload, counts);
            let names = self.groups.iter().enumerate();
            let named = names.filter_map(|(index, name)| Some((index, (*name)?)));
            of_workload.totals.extend(named.map(|(index, name)| Totals {
                whose: Whose::Group(name.to_string()),
                counts: worker.group_totals(index),
            }));
            snapshots.push(of_workload);
        }
        if let Some(counts) = S::counts(worker) {
            snapshots.push(snapshot(MeterName::Tcp, Whose::Namespace, counts));
        }
        if self.reads_rusage {
            let counts = match self.has_threads {
                true => rusage::process_counts(),
                false => rusage::thread_counts(),
            };
            let counts = counts.map_err(|error| error.to_string())?;
            snapshots.push(snapshot(MeterName::Rusage, Whose::Threads, counts));
        }
        Ok(snapshots)
    }

    /// TCP_INFO of this worker's standing connections, with the workload's own count of payload at the same
    /// moment beside it, so that the two can be held against each other.
    fn connections<S: Observed>(
        &mut self,
        worker: &workload::Worker<S>,
    ) -> Result<Option<Snapshot>, String> {
        let Some(meter) = &mut self.tcp_info else {
            return Ok(None);
        };
        if worker.conns().next().is_none() {
            return Ok(None);
        }
        let mut snapshot = S::tcp_info(worker, meter)?;
        for totals in &mut snapshot.totals {
            totals
                .counts
                .extend(worker.totals().into_iter().filter(|(quantity, _)| {
                    matches!(
                        quantity,
                        Quantity::PayloadBytesSent | Quantity::PayloadBytesReceived
                    )
                }));
        }
        Ok(Some(snapshot))
    }
}

/// Makes the traffic's side of a worker over its stack.
pub(super) fn make<S: Stack>(
    stack: S,
    config: &WorkerConfig,
    prepare: &Prepare,
    groups: &[FlowGroup],
    role: Role,
) -> Result<workload::Worker<S>, String> {
    let (index, threads) = (config.index, config.threads);
    let token = token(&prepare.token)?;
    // In memory a client's instance reaches one of the server's: its flows go there, not all round.
    let paired = matches!(config.backend, Backend::Memory(..));
    // Both ends draw by the study's seed, in which hosts do not differ.
    let sizes_seed = prepare.seed & u64::from(u32::MAX);
    let place = |number: usize| deal::position(index, threads, number);
    let share = |number: usize| deal::share(groups[number].settings.flows, threads, place(number));
    let first = &groups[0].settings;
    let error = |error: StackError| error.to_string();
    let mut worker = match role {
        Role::Listen { address, ports } => {
            let expected = |number: usize| {
                let FlowGroup {
                    settings, times, ..
                } = &groups[number];
                let mine = place(number) * ports..(place(number) + 1) * ports;
                // Each host that connects deals its own flows over all ports.
                match paired {
                    true => share(number).len(),
                    false => {
                        times * flows_of(settings.flows / times.max(&1), threads * ports, mine)
                    }
                }
            };
            let mut worker =
                workload::Worker::listen(stack, first, token, address, ports, expected(0))
                    .map_err(error)?;
            for (number, group) in groups.iter().enumerate().skip(1) {
                worker
                    .also_listen(&group.settings, address, ports, expected(number))
                    .map_err(error)?;
            }
            worker
        }
        Role::Observe => {
            let idle = WorkloadSettings {
                rate_bits_per_s: None,
                transactions_per_s: None,
                ..first.clone()
            };
            let nobody = SocketAddr::from(([127, 0, 0, 1], 0));
            workload::Worker::connect(stack, &idle, token, &[nobody], 0..0, 0).map_err(error)?
        }
        Role::Connect { targets } => {
            let targets = |number: usize| {
                let all = deal::of_group(&targets, groups.len(), number);
                let ports = all.len() / threads;
                match paired {
                    true => &all[place(number) * ports..(place(number) + 1) * ports],
                    false => all,
                }
            };
            // Each worker a seed of its own, so that their due times are spread.
            let seed = prepare.seed.wrapping_add(index as u64);
            let mut worker =
                workload::Worker::connect(stack, first, token, targets(0), share(0), seed)
                    .map_err(error)?;
            for (number, group) in groups.iter().enumerate().skip(1) {
                worker
                    .also_connect(&group.settings, targets(number), share(number), seed)
                    .map_err(error)?;
            }
            worker
        }
    };
    worker.seed_sizes(sizes_seed);
    if first.io == WaitsBy::BlockingThreads {
        let cpus = prepare.cpus.clone();
        // One that cannot be had stays where its worker is: on the first.
        worker = worker.with_threads(Arc::new(move |thread| drop(pin(cpus[thread % cpus.len()]))));
    }
    Ok(worker)
}

/// The response times of each group since they were last taken.
fn take_response_times<S: Stack>(worker: &mut workload::Worker<S>) -> Vec<Option<Histogram<u64>>> {
    let groups = 0..worker.groups();
    groups
        .map(|group| worker.take_group_response_times(group))
        .collect()
}

/// What the operations of each group's program came to since it was last asked.
fn take_operations<S: Stack>(worker: &mut workload::Worker<S>) -> Vec<Vec<OperationFound>> {
    let groups = 0..worker.groups();
    groups.map(|group| worker.take_operations(group)).collect()
}

/// All of them.
fn together(each: &[Option<Histogram<u64>>]) -> Result<Option<Histogram<u64>>, AdditionError> {
    let mut all: Option<Histogram<u64>> = None;
    for more in each.iter().flatten() {
        match &mut all {
            Some(all) => all.add(more)?,
            None => all = Some(more.clone()),
        }
    }
    Ok(all)
}

fn token(hex: &str) -> Result<Token, String> {
    let wrong = || format!("token {hex:?}: expected 32 hex digits");
    let number = u128::from_str_radix(hex, 16).map_err(|_| wrong())?;
    if hex.len() == 32 {
        Ok(number.to_be_bytes())
    } else {
        Err(wrong())
    }
}
