//! One end of a trial in its span: its traffic, and its meters before and after it. Between two snapshots it
//! runs only the workload.

use std::collections::HashMap;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, ensure};
use hdrhistogram::{AdditionError, Histogram};
use tcpcost_host::namespace::NetworkOf;
use tcpcost_meter::memory::MemoryUse;
use tcpcost_meter::{MeterError, rusage};
use tcpcost_stack::Stack;
use tcpcost_study::{
    Brackets, BufferSizes, BuffersFound, ConnectionSeries, CountOwner, MeterName, Quantity,
    Snapshot, Totals,
};
use tcpcost_workload::{self as workload, OperationFound};

use super::conduct::{self, Turn};
use super::phase::{Phase, PhaseEnd, PhaseEnds, WORK_MAX, lead_ns};
use super::state::Worker;
use super::{ConnectionTotals, GIVEN_UP, WorkerAnswer, WorkerReadings};
use crate::backend::ObservedStack;
use crate::protocol::{Span, clock_ns, realtime_ns};
use crate::readings;
use crate::soak;

/// With this many runnable threads on a CPU and 3 ms for each turn, another thread waits 0.3 s.
const CROWD: usize = 100;

/// Which snapshot. The meter that is read last in the first snapshot is read first in the second, so that it
/// does not count the reading of the others.
#[derive(Debug, Clone, Copy)]
enum WhichSnapshot {
    First,
    Second,
}

/// A worker with its traffic.
pub(super) struct WorkerEnd<S: ObservedStack> {
    pub(super) own: Worker,
    pub(super) traffic: workload::Worker<S>,
    /// State of the current span.
    state: Option<SpanState>,
    /// The end's own network namespace, if its turns run in another thread. Meters of the namespace are read
    /// there.
    home: Option<NetworkOf>,
    /// Total duration of its turns. `None` for an end with its own thread, because getrusage reports that.
    turns_ns: Option<u64>,
}

/// State of a span.
struct SpanState {
    span: Span,
    ends: PhaseEnds,
    buffers: Option<BufferSizes>,
    tcp_info: Option<TcpInfoReading>,
    by_connection: [Option<ConnectionTotals>; 2],
    before: Vec<Snapshot>,
    first: [u64; 2],
    series: Option<ConnectionSeries>,
    found: Option<WorkerReadings>,
}

/// TCP_INFO of all connections, and when it was read.
struct TcpInfoReading {
    connections: Option<Snapshot>,
    begin_ns: u64,
    end_ns: u64,
}

impl<S: ObservedStack> WorkerEnd<S> {
    pub(super) fn new(own: Worker, traffic: workload::Worker<S>) -> WorkerEnd<S> {
        WorkerEnd {
            own,
            traffic,
            state: None,
            home: None,
            turns_ns: None,
        }
    }

    /// Prepares the end for turns in another thread.
    pub(super) fn leave_home(mut self) -> anyhow::Result<WorkerEnd<S>> {
        self.home = Some(NetworkOf::this_thread()?);
        Ok(self)
    }

    /// Reads the end's meters in its own namespace.
    fn meters(&mut self, snap: WhichSnapshot) -> anyhow::Result<Vec<Snapshot>> {
        let Some(home) = self.home.take() else {
            return self.meters_here(snap);
        };
        let read = home.within(|| self.meters_here(snap));
        self.home = Some(home);
        read?
    }

    /// Begins a span.
    pub(super) fn begin(&mut self, span: Span, takes_turns: bool) {
        let connections = self.traffic.conns().count() as u64;
        let lead_ns = lead_ns(connections, self.own.by_connection);
        self.turns_ns = takes_turns.then_some(0);
        self.state = Some(SpanState {
            span,
            ends: PhaseEnds::new(span, lead_ns, self.traffic.bytes_moved()),
            buffers: S::buffers(&self.traffic),
            tcp_info: None,
            by_connection: [None, None],
            before: Vec::new(),
            first: [0; 2],
            series: None,
            found: None,
        });
    }

    /// Results of the span.
    pub(super) fn found(&mut self) -> anyhow::Result<WorkerReadings> {
        let at = self.state.take();
        let (span, found) = at
            .and_then(|at| Some((at.span, at.found?)))
            .context("no span was conducted")?;
        self.traffic.end_traffic();
        let own = &mut self.own;
        let warnings = &mut own.meters.warnings;
        let beside_soak = own.beside_soak;
        let profile = own.sampler.take().and_then(|sampler| {
            if beside_soak {
                // Looking up names is work that would disturb the calibration.
                soak::sleep_until(soak::over_ns(span));
            }
            sampler.chains(warnings)
        });
        Ok(WorkerReadings {
            profile,
            warnings: std::mem::take(warnings),
            ..found
        })
    }

    fn state(&mut self) -> &mut SpanState {
        self.state.as_mut().expect("a span was begun")
    }

    fn phase_end(&self, phase: Phase) -> PhaseEnd {
        self.state
            .as_ref()
            .expect("a span was begun")
            .ends
            .of(phase)
    }

    fn is_stopped(&self) -> anyhow::Result<()> {
        ensure!(!self.own.stop.load(Ordering::Relaxed), GIVEN_UP);
        Ok(())
    }

    fn run_to(&mut self, phase_end: PhaseEnd) -> anyhow::Result<()> {
        let (left, bytes) = match phase_end {
            PhaseEnd::At(until_ns) => (
                Duration::from_nanos(until_ns.saturating_sub(clock_ns())),
                u64::MAX,
            ),
            PhaseEnd::Moved(bytes) => (WORK_MAX, bytes),
        };
        self.traffic
            .run_until_moved(Instant::now() + left, bytes, &self.own.stop)?;
        self.is_stopped()?;
        if let PhaseEnd::Moved(bytes) = phase_end {
            let (moved, seconds) = (self.traffic.bytes_moved(), WORK_MAX.as_secs());
            ensure!(
                moved >= bytes,
                "only {moved} of {bytes} bytes were moved in {seconds} s"
            );
        }
        Ok(())
    }

    /// Drives traffic over the interval and samples the first connection.
    fn run_and_look(&mut self, every_ns: u64) -> anyhow::Result<()> {
        let span = self.state().span;
        let mut series = ConnectionSeries::default();
        let mut due_ns = span.from_ns;
        loop {
            self.run_to(PhaseEnd::At(due_ns.min(span.to_ns)))?;
            if let Some(look) = S::look(&self.traffic) {
                // Notes the time when the sample was taken, which may be later than it was due.
                series.push(clock_ns().saturating_sub(span.from_ns), look);
            }
            if due_ns >= span.to_ns {
                self.state().series = (!series.at_ns.is_empty()).then_some(series);
                return Ok(());
            }
            due_ns += every_ns;
        }
    }

    /// Fails if the first snapshot was late because of thousands of runnable threads. They may keep this
    /// thread, or the one that orders it, off the CPU for seconds, and the rest of the interval shows
    /// nothing. With few threads, other programs' load makes it late, which the command reports.
    fn check_in_time(&mut self) -> anyhow::Result<()> {
        let span = self.state().span;
        let late_ns = clock_ns().saturating_sub(span.from_ns);
        ensure!(
            self.own.connection_threads < CROWD
                || span.work_bytes.is_some()
                || late_ns < (span.to_ns - span.from_ns) / 10,
            "the first snapshot was {} ms late because too many threads were runnable: use fewer flows, or a rate at which they sleep",
            late_ns / 1_000_000
        );
        Ok(())
    }

    fn look_now(&mut self) -> anyhow::Result<TcpInfoReading> {
        let begin_ns = realtime_ns();
        let connections = self.connections()?;
        Ok(TcpInfoReading {
            connections,
            begin_ns,
            end_ns: realtime_ns(),
        })
    }

    /// Migrations of the calling thread. `None` for a process with a thread for each connection.
    fn migrations(&self) -> Option<u64> {
        let asks = self.own.reads_rusage && self.own.connection_threads == 0 && self.has_thread();
        asks.then(rusage::thread_migrations).flatten()
    }

    /// True if this end counts the thread. Of two ends that share a thread, the end that connects does.
    fn has_thread(&self) -> bool {
        self.turns_ns.is_none() || self.own.marks
    }

    /// Reads the end's meters, if this worker has them.
    fn meters_here(&mut self, snap: WhichSnapshot) -> anyhow::Result<Vec<Snapshot>> {
        let read = self.own.meters.observer.read().map(|(_, read)| read);
        let read: Result<_, MeterError> = match snap {
            WhichSnapshot::First => read.collect(),
            WhichSnapshot::Second => read.rev().collect(),
        };
        Ok(read?)
    }

    /// Totals by connection, if they are wanted and this worker reads the end's meters.
    fn by_connection(&mut self) -> Option<ConnectionTotals> {
        let wanted = self
            .own
            .by_connection
            .then_some(self.own.meters.observer.meters());
        let totals: HashMap<_, _> = wanted?.flat_map(|meter| meter.by_connection()).collect();
        (!totals.is_empty()).then(|| ConnectionTotals {
            at_ns: clock_ns(),
            totals,
        })
    }

    /// This thread's own counts.
    fn own(&self) -> anyhow::Result<Vec<Snapshot>> {
        let worker = &self.traffic;
        let snapshot = |meter, whose, counts| Snapshot {
            meter,
            at_ns: clock_ns(),
            totals: vec![Totals { whose, counts }],
        };
        let mut snapshots = Vec::new();
        if !self.own.groups.is_empty() {
            let mut counts = worker.totals();
            counts.extend(self.turns_ns.map(|ns| (Quantity::TurnsNs, ns)));
            let mut of_workload = snapshot(MeterName::Workload, CountOwner::Workload, counts);
            let names = self.own.groups.iter().enumerate();
            let named = names.filter_map(|(index, name)| Some((index, (*name)?)));
            of_workload.totals.extend(named.map(|(index, name)| Totals {
                whose: CountOwner::Group(name.to_string()),
                counts: worker.group_totals(index),
            }));
            snapshots.push(of_workload);
        }
        if let Some(counts) = S::counts(worker) {
            snapshots.push(snapshot(MeterName::Tcp, CountOwner::Namespace, counts));
        }
        if self.own.reads_rusage {
            let counts = match (self.own.connection_threads > 0, self.has_thread()) {
                (true, _) => rusage::process_counts(),
                (false, true) => rusage::thread_counts(),
                (false, false) => Ok(rusage::nobodys_counts()),
            };
            snapshots.push(snapshot(MeterName::Rusage, CountOwner::Threads, counts?));
        }
        Ok(snapshots)
    }

    /// TCP_INFO of this worker's standing connections. The snapshot also has the workload's own count of
    /// payload at the same moment, so that the two can be compared.
    fn connections(&mut self) -> anyhow::Result<Option<Snapshot>> {
        let worker = &self.traffic;
        let Some(meter) = &mut self.own.tcp_info else {
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

impl<S: ObservedStack> conduct::TrialEnd for WorkerEnd<S> {
    fn drive(&mut self, phase: Phase) -> anyhow::Result<()> {
        match (phase, self.own.series_ns, self.has_work()) {
            (Phase::Measured, Some(every_ns), false) => self.run_and_look(every_ns),
            _ => self.run_to(self.phase_end(phase)),
        }
    }

    fn resume(&mut self) {
        self.traffic.resume(Instant::now());
    }

    fn turn(&mut self, phase: Phase, now: Instant) -> anyhow::Result<Turn> {
        self.is_stopped()?;
        let is_done = match self.phase_end(phase) {
            PhaseEnd::At(until_ns) => clock_ns() >= until_ns,
            PhaseEnd::Moved(bytes) => self.traffic.bytes_moved() >= bytes,
        };
        if is_done {
            // The last data may still be in a stack that moves only when this thread runs it.
            if S::STANDS_STILL {
                self.traffic.stand_by()?;
            }
            return Ok(Turn::Done);
        }
        let worked = self.traffic.turns(now)?;
        Ok(if worked { Turn::Worked } else { Turn::Idle })
    }

    fn rest(&mut self, most: Duration) -> anyhow::Result<()> {
        Ok(self.traffic.rest(most)?)
    }

    fn pause(&mut self) -> anyhow::Result<()> {
        Ok(self.traffic.pause(Instant::now())?)
    }

    fn charge(&mut self, time: Duration) {
        if let Some(turns_ns) = &mut self.turns_ns {
            *turns_ns += time.as_nanos() as u64;
        }
    }

    fn look(&mut self) -> anyhow::Result<()> {
        let look = self.look_now()?;
        let totals = self.by_connection();
        let at = self.state();
        at.tcp_info = Some(look);
        at.by_connection[0] = totals;
        Ok(())
    }

    fn first(&mut self) -> anyhow::Result<()> {
        // Before the first meter is read here, and after the last meter in `second`: each call allocates new
        // histograms, which takes hundreds of thousands of instructions.
        drop(take_response_times(&mut self.traffic));
        drop(take_operations(&mut self.traffic));
        let begin_ns = realtime_ns();
        // Slow meters are read first here and last in `second`, so that their cost is outside the interval on
        // both sides.
        let migrations = self.migrations();
        let mut before = self.meters(WhichSnapshot::First)?;
        before.extend(self.own()?);
        let end_ns = realtime_ns();
        add_migrations(&mut before, migrations);
        self.check_in_time()?;
        let at = self.state();
        (at.before, at.first) = (before, [begin_ns, end_ns]);
        if let Some(sampler) = &mut self.own.sampler {
            sampler.start();
        }
        Ok(())
    }

    fn second(&mut self) -> anyhow::Result<()> {
        if let Some(sampler) = &mut self.own.sampler {
            sampler.stop();
        }
        let second_begin_ns = realtime_ns();
        let mut after = self.own()?;
        after.extend(self.meters(WhichSnapshot::Second)?);
        let second_end_ns = realtime_ns();
        let group_response_times = take_response_times(&mut self.traffic);
        let operations = take_operations(&mut self.traffic);
        let migrations = self.migrations();
        add_migrations(&mut after, migrations);
        let pages = self.traffic.file_pages();
        let totals = self.by_connection();
        let memory = MemoryUse::read(Path::new("/proc"));
        let last = self.look_now()?;
        let buffers_after = S::buffers(&self.traffic);
        let keys = match self.own.by_connection {
            true => S::keys(&self.traffic),
            false => Vec::new(),
        };
        let strangers = self.traffic.strangers();
        let at = self.state();
        let mut before = std::mem::take(&mut at.before);
        // Pages are no totals: those after the interval count.
        add(
            &mut before,
            MeterName::Workload,
            pages.keys().map(|of| (*of, 0)),
        );
        add(&mut after, MeterName::Workload, pages);
        let tcp_info = at.tcp_info.take().and_then(|first| {
            before.extend(first.connections);
            last.connections.as_ref().map(|_| Brackets {
                first_begin_ns: first.begin_ns,
                first_end_ns: first.end_ns,
                second_begin_ns: last.begin_ns,
                second_end_ns: last.end_ns,
            })
        });
        after.extend(last.connections);
        let buffers = at.buffers.zip(buffers_after);
        let [totals_before, _] = std::mem::take(&mut at.by_connection);
        let workload = after.iter().filter(|of| of.meter == MeterName::Workload);
        let workload = workload
            .flat_map(|of| &of.totals)
            .filter(|of| of.whose == CountOwner::Workload);
        let opened = workload.filter_map(|of| of.counts.get(&Quantity::ConnectionsOpened));
        at.found = Some(WorkerReadings {
            connections_opened: opened.sum(),
            readings: readings::since(&before, &after)?,
            response_times: together(&group_response_times)?,
            group_response_times,
            operations,
            profile: None,
            by_connection: totals_before.zip(totals).map(<[ConnectionTotals; 2]>::from),
            keys,
            series: at.series.take(),
            buffers: buffers.map(|(before, after)| BuffersFound { before, after }),
            warnings: Vec::new(),
            tcp_bytes: memory.tcp_bytes,
            snapshots: Brackets {
                first_begin_ns: at.first[0],
                first_end_ns: at.first[1],
                second_begin_ns,
                second_end_ns,
            },
            tcp_info,
            strangers,
        });
        Ok(())
    }

    fn marks(&self) -> bool {
        self.own.marks
    }

    fn has_work(&self) -> bool {
        let at = self.state.as_ref();
        at.is_some_and(|at| at.span.work_bytes.is_some())
    }

    fn answer(&mut self, outcome: Result<(), &anyhow::Error>) {
        let outcome = outcome.map_err(|error| anyhow!("{error}"));
        let found = outcome.and_then(|()| self.found());
        let answer = found.map(|found| WorkerAnswer::WorkerReadings(Box::new(found)));
        // Fails if the trial has been aborted.
        let _ = self.own.outbox.send(answer);
    }
}

/// Adds the thread's migrations to getrusage's counts. The file that has them is read outside all meters'
/// intervals.
fn add_migrations(snapshots: &mut [Snapshot], migrations: Option<u64>) {
    let migrations = migrations.map(|count| (Quantity::CpuMigrations, count));
    add(snapshots, MeterName::Rusage, migrations);
}

/// Adds counts to the first totals of a meter.
fn add(
    snapshots: &mut [Snapshot],
    meter: MeterName,
    counts: impl IntoIterator<Item = (Quantity, u64)>,
) {
    let of_meter = snapshots.iter_mut().find(|one| one.meter == meter);
    if let Some(totals) = of_meter.and_then(|one| one.totals.first_mut()) {
        totals.counts.extend(counts);
    }
}

/// Takes the response times of each group since the last call.
fn take_response_times<S: Stack>(worker: &mut workload::Worker<S>) -> Vec<Option<Histogram<u64>>> {
    let groups = 0..worker.groups();
    groups
        .map(|group| worker.take_group_response_times(group))
        .collect()
}

/// Takes the counts and times of each group's operations since the last call.
fn take_operations<S: Stack>(worker: &mut workload::Worker<S>) -> Vec<Vec<OperationFound>> {
    let groups = 0..worker.groups();
    groups.map(|group| worker.take_operations(group)).collect()
}

/// Adds the histograms up.
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
