//! CPU of a test: of the machine, as netperf tells it, and of this instance alone.
//!
//! netperf divides all that ran on the machine by the bytes of one instance, so of n concurrent ones each is told n times
//! its cost. Here a service demand is of the instance: with eBPF its own threads exactly, and of the machine's network
//! softirqs its share of the TCP segments that the machine sent; without, its thread's user and system time, in which softirqs that hit it
//! are not, and that share of the machine's interrupts by /proc/stat. (Segments received are not used: the kernel counts those of all
//! after GRO and those of a connection before it.)
//!
//! Programs at every softirq cost some 40 ns each, once for each copy. So one instance of a network namespace at a time has
//! them; who comes second goes by the share.

use std::sync::Once;

use rustix::time::{ClockId, clock_gettime};
use tcpcost_counts::{Counts, MeterName, Quantity, Snapshot, Whose};
use tcpcost_host::privileges::may_meter;
use tcpcost_meter::{Meter, Scope, proc::Proc};

use crate::Failure;
use crate::exact_lock;
use crate::protocol::exact::Method;
use crate::segments::Segments;

/// CPU figures of one end.
#[derive(Debug, Clone, PartialEq)]
pub struct Cpu {
    /// Of all CPUs together, percent; −1 if nobody asked, as all that follows.
    pub util: f64,
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    pub irq: f64,
    pub softirq: f64,
    /// Of the CPU that had most to do.
    pub peak_util: f64,
    pub peak_id: i32,
    pub cpus: u32,
    /// µs per KiB or per transaction.
    pub service_demand: f64,
    /// Whose CPU the service demand is of.
    pub method: Option<Method>,
    /// That CPU, ns.
    pub cpu_ns: Option<u64>,
    /// Whether `util` is known.
    pub is_known: bool,
}

impl Default for Cpu {
    fn default() -> Cpu {
        Cpu {
            util: -1.0,
            user: -1.0,
            system: -1.0,
            iowait: -1.0,
            irq: -1.0,
            softirq: -1.0,
            peak_util: -1.0,
            peak_id: -1,
            cpus: 0,
            service_demand: -1.0,
            method: None,
            cpu_ns: None,
            is_known: false,
        }
    }
}

impl Cpu {
    /// How `util` was measured: S is /proc/stat, U unknown.
    pub fn method_letter(&self) -> &'static str {
        if self.is_known { "S" } else { "U" }
    }
}

/// The meters of a test, on the thread that drives it.
pub struct Meters {
    proc: Proc,
    exact: Option<Exact>,
    cpus: Vec<usize>,
}

/// The programs of the meter, and the lock that keeps other tests from loading them too.
struct Exact {
    meter: Box<dyn Meter + Send>,
    _alone: exact_lock::Held,
}

/// All of them at one time.
pub struct Reading {
    proc: Snapshot,
    segments: Segments,
    exact: Option<Snapshot>,
    thread_ns: u64,
    process_ns: u64,
    /// Of the thread, without the interrupts that hit it.
    own_ns: u64,
}

impl Meters {
    /// Opens what can be had; the programs are loaded before anything is measured.
    pub fn open() -> Meters {
        let cpus = tcpcost_host::cpus::online();
        Meters {
            proc: Proc::new(&cpus),
            exact: exact_or_why(&cpus),
            cpus,
        }
    }

    /// Reads them.
    ///
    /// # Errors
    /// /proc is not there.
    pub fn read(&mut self) -> Result<Reading, Failure> {
        let failed = |error: tcpcost_meter::MeterError| Failure::usage(format!("CPU: {error}"));
        let exact = self.exact.as_mut().map(|exact| exact.meter.snapshot());
        Ok(Reading {
            proc: self.proc.snapshot().map_err(failed)?,
            segments: Segments::read().map_err(failed)?,
            exact: exact.transpose().map_err(failed)?,
            thread_ns: now_ns(ClockId::ThreadCPUTime),
            process_ns: now_ns(ClockId::ProcessCPUTime),
            own_ns: tcpcost_meter::rusage::thread_ns_without_interrupts().map_err(failed)?,
        })
    }

    /// What was used between two readings by a test whose connections had so many segments.
    pub fn between(&self, before: &Reading, after: &Reading, segments: u64) -> Cpu {
        let share = after.segments.share(&before.segments, segments);
        let mut cpu = machine(&before.proc, &after.proc);
        cpu.cpus = u32::try_from(self.cpus.len()).unwrap_or(u32::MAX);
        let exact = before.exact.as_ref().zip(after.exact.as_ref());
        let exact = exact.and_then(|(before, after)| of_all(before, after));
        let (ns, method) = match exact {
            Some(counts) => {
                let of = |quantity| counts.get(&quantity).copied().unwrap_or(0) as f64;
                let thread = after.thread_ns.saturating_sub(before.thread_ns) as f64;
                let process = after.process_ns.saturating_sub(before.process_ns) as f64;
                let own = of(Quantity::ExactTaskOwnNs) * (thread / process.max(1.0)).min(1.0);
                let network = of(Quantity::ExactSoftirqNetRxNs)
                    + of(Quantity::ExactSoftirqNetTxNs)
                    + of(Quantity::ExactKsoftirqdNs)
                    + of(Quantity::ExactNapiNs);
                (own + network * share, Method::Exact)
            }
            None => {
                let thread = after.own_ns.saturating_sub(before.own_ns) as f64;
                let interrupts = interrupts_ns(&before.proc, &after.proc);
                (thread + interrupts * share, Method::Share)
            }
        };
        (cpu.cpu_ns, cpu.method) = (Some(ns as u64), Some(method));
        cpu
    }
}

fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}

/// The programs. Where they could be had and cannot now, the first time a line on standard error says why: figures by the share
/// are less exact.
fn exact_or_why(cpus: &[usize]) -> Option<Exact> {
    static SAID: Once = Once::new();
    // Without the capabilities it is never exact; the documents say so.
    if !may_meter() {
        return None;
    }
    let why = match exact(cpus) {
        Ok(exact) => return Some(exact),
        Err(why) => why,
    };
    SAID.call_once(|| {
        eprintln!("tcpcost: CPU by the share of TCP segments, not exactly: the meter exact: {why}");
    });
    None
}

fn exact(cpus: &[usize]) -> Result<Exact, String> {
    let alone = exact_lock::hold()?;
    let scope = Scope {
        cpus: cpus.to_vec(),
        own_pids: vec![std::process::id()],
        ..Scope::default()
    };
    let meter = tcpcost_meter::open(MeterName::Exact, &scope);
    let meter = meter.ok_or("this build has no eBPF")?;
    Ok(Exact {
        meter: meter.map_err(|error| error.to_string())?,
        _alone: alone,
    })
}

/// What grew on all CPUs together.
fn of_all(before: &Snapshot, after: &Snapshot) -> Option<Counts> {
    let readings = after.since(before).ok()?;
    let all = readings
        .into_iter()
        .find(|reading| matches!(reading.whose, Whose::Cpus(_)))?;
    Some(all.counts)
}

/// Of hard and soft interrupts on all CPUs.
fn interrupts_ns(before: &Snapshot, after: &Snapshot) -> f64 {
    let Some(counts) = of_all(before, after) else {
        return 0.0;
    };
    let kinds = [Quantity::CpuIrqNs, Quantity::CpuSoftirqNs];
    let counts = kinds.iter().filter_map(|kind| counts.get(kind));
    counts.sum::<u64>() as f64
}

/// Percentages as netperf has them: of each CPU what it was not idle, and their mean.
fn machine(before: &Snapshot, after: &Snapshot) -> Cpu {
    let Ok(readings) = after.since(before) else {
        return Cpu::default();
    };
    let mut cpu = Cpu {
        is_known: true,
        util: 0.0,
        user: 0.0,
        system: 0.0,
        iowait: 0.0,
        irq: 0.0,
        softirq: 0.0,
        peak_util: 0.0,
        ..Cpu::default()
    };
    let mut cpus = 0.0;
    for reading in readings {
        let Whose::Cpu(id) = reading.whose else {
            continue;
        };
        let all = reading.counts.values().sum::<u64>() as f64;
        cpus += 1.0;
        if all == 0.0 {
            continue;
        }
        let percent = |quantity| {
            let ns = reading.counts.get(&quantity).copied().unwrap_or(0);
            100.0 * ns as f64 / all
        };
        let util = 100.0 - percent(Quantity::CpuIdleNs);
        cpu.util += util;
        cpu.user += percent(Quantity::CpuUserNs);
        cpu.system += percent(Quantity::CpuSystemNs);
        cpu.iowait += percent(Quantity::CpuIowaitNs);
        cpu.irq += percent(Quantity::CpuIrqNs);
        cpu.softirq += percent(Quantity::CpuSoftirqNs);
        if util > cpu.peak_util {
            (cpu.peak_util, cpu.peak_id) = (util, i32::try_from(id).unwrap_or(-1));
        }
    }
    let parts = [
        &mut cpu.util,
        &mut cpu.user,
        &mut cpu.system,
        &mut cpu.iowait,
        &mut cpu.irq,
        &mut cpu.softirq,
    ];
    for part in parts {
        *part /= f64::max(cpus, 1.0);
    }
    cpu
}
