//! The cycle soaker (Morton 2001): a spinner on each CPU takes all idle time, and the work that it lacks is
//! the load. It shows costs that CPU accounting does not: interrupts, softirqs, and the effect of other work
//! on caches and memory bandwidth. It reads high, because a spinner also pays for being interrupted. So it is
//! an upper bound of the cost of the work.
//!
//! A spinner is a thread pinned to its CPU under SCHED_IDLE. It computes, dirties cache lines at a set rate,
//! and counts units of this work on a page of its own. Calibrations before and after the measurement
//! ([`Calibration`]) find how many units an idle CPU makes per second. The host must be idle then, and a
//! calibration reports whether it was. A snapshot takes 0.5 µs for one CPU (examples/cost.rs).
//!
//! Traps:
//! - SCHED_IDLE gives way only inside its own cgroup and autogroup. Against work of another group it has its group's
//!   whole share: start the work from the same session, or in the same cgroup.
//! - While spinners run, no CPU is idle: /proc/stat shows 100 % busy, with the spinners' part as `nice`. The frequency
//!   stays up, and waking an idle CPU costs nothing.
//! - A spinner slows the other thread of its core: work on an SMT sibling costs more.
//! - A hypervisor also takes time from the spinner to give it to others. It is subtracted by /proc/stat's steal, which
//!   has steps of 10 ms.

#![allow(
    unsafe_code,
    reason = "priorities and clocks of threads have no safe wrapper"
)]

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::JoinHandle;

use rustix::time::ClockId;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Reading, Snapshot, Totals};

use crate::affinity::pin;
use crate::{Meter, MeterError, clock, snapshot_of};

/// Cache lines per second and CPU that Morton's soaker dirtied.
pub const DIRTY_LINES_DEFAULT: u64 = 10_000;

/// Highest rate: more lines per second would leave no time for anything else.
pub const DIRTY_LINES_MAX: u64 = 10_000_000;

/// The meter `soak`: [`Quantity::SoakWorkUnits`] and [`Quantity::SoakTaskNs`] of each CPU ([`CountOwner::Cpu`])
/// and of all ([`CountOwner::Cpus`]). The spinners run until it is dropped.
#[derive(Debug)]
pub struct Soakers {
    cpus: Vec<usize>,
    spinners: Vec<Spinner>,
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Spinner {
    page: Arc<Page>,
    /// Clock of the thread's CPU time.
    clock: libc::clockid_t,
    thread: Option<JoinHandle<()>>,
}

/// A counter on its own page, so that no other data shares its cache line or the neighbour that is fetched
/// with it.
#[derive(Debug, Default)]
#[repr(align(4096))]
struct Page {
    units: AtomicU64,
}

impl Soakers {
    /// Starts a spinner on each CPU, which dirties this many cache lines per second while it has the CPU to
    /// itself: 0 for none, at most [`DIRTY_LINES_MAX`]. All spinners run when it returns. Takes 8 ms of each
    /// CPU to find the pace.
    ///
    /// # Errors
    /// EINVAL for a CPU that is offline or outside this process' cpuset; no more threads.
    pub fn start(cpus: &[usize], dirty_lines_per_s: u64) -> Result<Soakers, MeterError> {
        let stop = Arc::new(AtomicBool::new(false));
        let mut soakers = Soakers {
            cpus: cpus.to_vec(),
            spinners: Vec::new(),
            stop: Arc::clone(&stop),
        };
        let mut settled = Vec::new();
        for &cpu in cpus {
            let page = Arc::new(Page::default());
            let (ready, answer) = mpsc::channel();
            let (own, stop) = (Arc::clone(&page), Arc::clone(&stop));
            let thread = std::thread::Builder::new()
                .name(format!("soak/{cpu}"))
                .spawn(move || spin(cpu, dirty_lines_per_s, &own, &stop, &ready))
                .map_err(|source| MeterError::Call {
                    call: "start a soaker's thread",
                    source,
                })?;
            settled.push(answer);
            soakers.spinners.push(Spinner {
                page,
                clock: libc::CLOCK_MONOTONIC,
                thread: Some(thread),
            });
        }
        for (spinner, answer) in soakers.spinners.iter_mut().zip(settled) {
            let answer = answer.recv();
            spinner.clock = answer.expect("a spinner says how it went before it ends")?;
        }
        Ok(soakers)
    }
}

impl Drop for Soakers {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for spinner in &mut self.spinners {
            if let Some(thread) = spinner.thread.take() {
                // No code in a spinner panics, and the error could not be reported.
                let _ = thread.join();
            }
        }
    }
}

impl Meter for Soakers {
    fn name(&self) -> MeterName {
        MeterName::Soak
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let (mut all_units, mut all_ns) = (0_u64, 0_u64);
        let mut snapshot = snapshot_of(
            self.name(),
            CountOwner::Cpus(self.cpus.clone()),
            Counts::new(),
        );
        for (&cpu, spinner) in self.cpus.iter().zip(&self.spinners) {
            let units = spinner.page.units.load(Ordering::Relaxed);
            let ns = spent_ns(spinner.clock);
            snapshot.totals.push(Totals {
                whose: CountOwner::Cpu(cpu),
                counts: counts(units, ns),
            });
            all_units = all_units.saturating_add(units);
            all_ns = all_ns.saturating_add(ns);
        }
        snapshot.totals[0].counts = counts(all_units, all_ns);
        Ok(snapshot)
    }
}

fn counts(units: u64, ns: u64) -> Counts {
    Counts::from([(Quantity::SoakWorkUnits, units), (Quantity::SoakTaskNs, ns)])
}

/// Rate of a spinner that has a CPU to itself.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Calibration {
    /// The CPU.
    pub cpu: usize,
    /// Units per second of the spinner's CPU time. `None` if it had the CPU for less than a millisecond.
    pub units_per_s: Option<f64>,
    /// Share of the time in which other tasks had the CPU. They also used the caches, so the rate is too low.
    pub others_ratio: f64,
    /// Share of the time that the hypervisor took. `None` if it is unknown.
    pub steal_ratio: Option<f64>,
}

impl Calibration {
    /// Calculates a calibration for each [`CountOwner::Cpu`] of `soak`, from readings of `soak` and `proc` over
    /// one interval in which nothing else ran.
    pub fn of(soak: &[Reading], proc: &[Reading]) -> Vec<Calibration> {
        let each = soak.iter().filter_map(|reading| {
            let CountOwner::Cpu(cpu) = reading.whose else {
                return None;
            };
            let units = *reading.counts.get(&Quantity::SoakWorkUnits)?;
            let task_ns = *reading.counts.get(&Quantity::SoakTaskNs)?;
            let steal_ns = steal_ns(proc, &reading.whose);
            let own_ns = reading.duration_ns.saturating_sub(steal_ns.unwrap_or(0));
            // On some kernels a thread's CPU time includes time stolen from it.
            let had_ns = task_ns.min(own_ns);
            let ratio = |ns: u64| ns as f64 / reading.duration_ns.max(1) as f64;
            Some(Calibration {
                cpu,
                units_per_s: (had_ns >= HAD_MIN_NS).then(|| units as f64 * 1e9 / had_ns as f64),
                others_ratio: ratio(own_ns - had_ns),
                steal_ratio: steal_ns.map(ratio),
            })
        });
        each.collect()
    }

    /// True if the CPU was nearly idle except for the spinner: at most 1 % used by other tasks, and at most 1
    /// % stolen.
    pub fn is_quiet(&self) -> bool {
        self.others_ratio <= 0.01 && self.steal_ratio.is_none_or(|ratio| ratio <= 0.01)
    }

    /// Growth of the rate since an `earlier` calibration of the same CPU, as a ratio: 0 for no change.
    pub fn drift(&self, earlier: &Calibration) -> Option<f64> {
        Some(self.units_per_s? / earlier.units_per_s? - 1.0)
    }

    /// Combines two calibrations: the mean rate, and the larger of each disturbance.
    pub fn with(&self, later: &Calibration) -> Calibration {
        let mean = |one: f64, other: f64| (one + other) / 2.0;
        Calibration {
            cpu: self.cpu,
            units_per_s: self
                .units_per_s
                .zip(later.units_per_s)
                .map(|(one, other)| mean(one, other)),
            others_ratio: self.others_ratio.max(later.others_ratio),
            steal_ratio: self
                .steal_ratio
                .zip(later.steal_ratio)
                .map(|(one, other)| one.max(other)),
        }
    }
}

/// CPU time below which a rate means nothing.
const HAD_MIN_NS: u64 = 1_000_000;

/// Adds [`Quantity::SoakIdleWorkUnits`] to readings of `soak`, from readings of `proc` over the same
/// interval: to each CPU that has a rate, and to the set if all CPUs have one.
pub fn add_idle_work(soak: &mut [Reading], proc: &[Reading], idle: &[Calibration]) {
    let mut each = Vec::new();
    for reading in soak.iter_mut() {
        let CountOwner::Cpu(cpu) = reading.whose else {
            continue;
        };
        let rate = idle.iter().find(|calibration| calibration.cpu == cpu);
        let Some(rate) = rate.and_then(|calibration| calibration.units_per_s) else {
            continue;
        };
        let steal_ns = steal_ns(proc, &reading.whose).unwrap_or(0);
        let own_ns = reading.duration_ns.saturating_sub(steal_ns);
        let units = (rate * own_ns as f64 / 1e9).round() as u64;
        reading.counts.insert(Quantity::SoakIdleWorkUnits, units);
        each.push((cpu, units));
    }
    for reading in soak {
        let CountOwner::Cpus(cpus) = &reading.whose else {
            continue;
        };
        let of = |cpu: &usize| Some(each.iter().find(|(found, _)| found == cpu)?.1);
        if let Some(sum) = cpus.iter().map(of).sum::<Option<u64>>() {
            reading.counts.insert(Quantity::SoakIdleWorkUnits, sum);
        }
    }
}

fn steal_ns(proc: &[Reading], whose: &CountOwner) -> Option<u64> {
    let reading = proc.iter().find(|reading| reading.whose == *whose)?;
    reading.counts.get(&Quantity::CpuStealNs).copied()
}

/// Main function of a spinner.
fn spin(
    cpu: usize,
    dirty_lines_per_s: u64,
    page: &Page,
    stop: &AtomicBool,
    ready: &mpsc::Sender<Result<libc::clockid_t, MeterError>>,
) {
    let settled = settle(cpu, dirty_lines_per_s).and_then(|work| Ok((work, own_clock()?)));
    // The receiver is gone if another spinner failed.
    let mut work = match settled {
        Ok((work, clock)) => {
            let _ = ready.send(Ok(clock));
            work
        }
        Err(error) => {
            let _ = ready.send(Err(error));
            return;
        }
    };
    let mut units = 0;
    while !stop.load(Ordering::Relaxed) {
        work.unit();
        units += 1;
        page.units.store(units, Ordering::Relaxed);
    }
}

/// Moves this thread to its CPU, finds the pace, and then gives way to all other threads.
fn settle(cpu: usize, dirty_lines_per_s: u64) -> Result<Work, MeterError> {
    pin(cpu)?;
    // The pace is found as a normal thread: with SCHED_IDLE it might take seconds.
    let work = Work::paced(dirty_lines_per_s.min(DIRTY_LINES_MAX));
    // SAFETY: takes no pointers. /proc/stat then counts the spinner as `nice`. Under SCHED_IDLE it changes no
    // share, so a refusal does not matter.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 19) };
    // SAFETY: sched_param is plain data; SCHED_IDLE takes priority 0.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // The syscall is called by number, because musl's wrapper refuses. SAFETY: `parameters` outlives the
    // call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_sched_setscheduler,
            0,
            libc::SCHED_IDLE,
            &raw const parameters,
        )
    };
    match done {
        0 => Ok(work),
        _ => Err(MeterError::last("sched_setscheduler to SCHED_IDLE")),
    }
}

/// Id of the clock of this thread's CPU time. Other threads can read the clock as long as this thread exists.
fn own_clock() -> Result<libc::clockid_t, MeterError> {
    let mut clock = 0;
    // SAFETY: the id is the calling thread's; `clock` outlives the call.
    match unsafe { libc::pthread_getcpuclockid(libc::pthread_self(), &mut clock) } {
        0 => Ok(clock),
        code => Err(MeterError::Call {
            call: "pthread_getcpuclockid",
            source: std::io::Error::from_raw_os_error(code),
        }),
    }
}

/// CPU time of another thread, by the id from [`own_clock`].
fn spent_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call, which fails if the thread has ended and then leaves it.
    unsafe { libc::clock_gettime(clock, &mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

/// State of one spinner's work.
struct Work {
    state: u64,
    lines: Vec<CacheLine>,
    next_line: usize,
    /// Lines per unit, in 2⁻³².
    lines_per_unit: u64,
    owed: u64,
}

#[derive(Clone)]
#[repr(align(64))]
struct CacheLine(u64);

impl Work {
    fn new(lines_per_unit: u64) -> Work {
        Work {
            state: 0x9e37_79b9_7f4a_7c15,
            // Written once, so that no unit has a page fault.
            lines: vec![CacheLine(1); LINES],
            next_line: 0,
            lines_per_unit,
            owed: 0,
        }
    }

    /// Work whose units together dirty `dirty_lines_per_s` lines per second on this CPU.
    fn paced(dirty_lines_per_s: u64) -> Work {
        let mut work = Work::new(0);
        // The fastest of several batches counts: others may have been interrupted.
        let batch_ns = (0..8).map(|_| {
            let before_ns = clock::now_ns(ClockId::ThreadCPUTime);
            (0..BATCH).for_each(|_| work.unit());
            clock::now_ns(ClockId::ThreadCPUTime).saturating_sub(before_ns)
        });
        let batch_ns = batch_ns.min().unwrap_or(0);
        Work::new(lines_per_unit(dirty_lines_per_s, batch_ns, BATCH))
    }

    /// Does a fixed amount of work, about a microsecond.
    fn unit(&mut self) {
        let mut state = self.state;
        for _ in 0..STEPS {
            // xorshift64: a chain in which each step waits for the previous one.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
        }
        self.state = black_box(state);
        self.owed += self.lines_per_unit;
        while self.owed >= ONE {
            self.owed -= ONE;
            let line = &mut self.lines[self.next_line];
            line.0 = line.0.wrapping_add(1);
            black_box(line);
            self.next_line = (self.next_line + 1) % LINES;
        }
    }
}

/// Lines per unit, in 2⁻³².
fn lines_per_unit(lines_per_s: u64, batch_ns: u64, batch: u64) -> u64 {
    let per_batch = u128::from(lines_per_s)
        .saturating_mul(batch_ns.into())
        .saturating_mul(ONE.into())
        / 1_000_000_000;
    // Limited, so that a jump of the clock cannot make an endless unit.
    let most = u128::from(ONE) * 1024;
    u64::try_from((per_batch / u128::from(batch)).min(most)).unwrap_or(0)
}

const ONE: u64 = 1 << 32;
const STEPS: u32 = 512;
/// Units of one batch, about a millisecond.
const BATCH: u64 = 1024;
/// Number of lines, 1 MiB. At the default rate a line is written again after 1.6 s, when other work has long
/// evicted it.
const LINES: usize = 16_384;

#[cfg(test)]
mod tests;
