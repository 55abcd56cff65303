//! CPU of a test: of the whole machine, as netperf reports it, and of this instance alone.
//!
//! netperf divides all CPU time of the machine by the bytes of one instance, so each of n concurrent instances reports n times its
//! cost. Here a service demand is that of the instance. With eBPF it is the time of its thread and of the softirqs for its sockets
//! ([`crate::thread_meter`]). Without eBPF it is its thread's user and system time, without softirqs that hit the thread, and a share
//! of the machine's interrupts (/proc/stat): the instance's share of the TCP segments that the machine sent. (Received segments are not
//! used, because the kernel counts the machine's after GRO and a connection's before it.) For UDP it is the share of IP packets.

use std::sync::Once;

use tcpcost_counts::{CountOwner, Growth, MeterName, Quantity, Snapshot, Source, readings_between};
use tcpcost_meter::{MeterError, Observer, proc::Proc};

use crate::Failure;
use crate::options::Transport;
use crate::protocol::exact::Method;
use crate::segments::Segments;
use crate::thread_meter::Named;

/// CPU figures of one end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Cpu {
    /// Utilization of the whole machine. `None` if the test did not ask for it.
    pub utilization: Option<Utilization>,
    pub cpus: u32,
    /// µs per KiB or per transaction.
    pub service_demand: Option<f64>,
    /// Method by which the instance's CPU time was measured.
    pub method: Option<Method>,
    /// CPU time of the instance, ns.
    pub cpu_ns: Option<u64>,
}

/// Utilization of the machine, percent of all CPUs together.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Utilization {
    pub all: f64,
    pub user: f64,
    pub system: f64,
    pub iowait: f64,
    pub irq: f64,
    pub softirq: f64,
    /// Utilization of the busiest CPU.
    pub peak: f64,
    /// Number of the busiest CPU. −1 if there is none, as in netperf's protocol.
    pub peak_id: i32,
}

impl Cpu {
    /// Letter of the method of the utilization: S is /proc/stat, U unknown.
    pub fn method_letter(&self) -> &'static str {
        if self.utilization.is_some() { "S" } else { "U" }
    }

    /// A part of the utilization as netperf prints it: −1 if it is unknown.
    pub fn percent(&self, part: fn(&Utilization) -> f64) -> f64 {
        self.utilization.as_ref().map_or(-1.0, part)
    }

    /// Number of the busiest CPU. `None` without a utilization.
    pub fn peak_id(&self) -> Option<i32> {
        self.utilization.map(|cpu| cpu.peak_id)
    }

    /// Replaces the last repetition's values by the means of all repetitions.
    pub fn set_means(&mut self, utilization: Option<f64>, service_demand: Option<f64>) {
        if let (Some(cpu), Some(all)) = (&mut self.utilization, utilization) {
            cpu.all = all;
        }
        self.service_demand = service_demand;
    }
}

/// The meters of a test, on the thread that drives it.
pub struct Meters {
    /// Meters of the whole machine.
    observer: Observer,
    own: Own,
    transport: Transport,
    cpus: usize,
}

/// Method that separates this instance from others.
enum Own {
    /// CPU time of the thread and its sockets, by eBPF.
    Exact(Named),
    /// Share of the machine's packets.
    Share,
}

/// Readings of all meters at one time.
pub struct Reading {
    machine: Vec<Snapshot>,
    /// Segments of the machine; only with [`Own::Share`].
    segments: Option<Segments>,
    /// CPU time of the instance, ns; with [`Own::Share`] without interrupts. `None` if the process with the eBPF programs is gone.
    own_ns: Option<u64>,
}

impl Meters {
    /// Opens the available meters. Softirqs for sockets that exist already are not counted.
    pub fn open(transport: Transport) -> Meters {
        let cpus = tcpcost_host::cpus::online();
        let mut observer: Observer = Observer::default();
        observer.add(Ok(Box::new(Proc::new(&cpus))));
        Meters {
            observer,
            own: Own::of_this_thread(),
            transport,
            cpus: cpus.len(),
        }
    }

    /// Reads the meters before the traffic, the instance's own last.
    ///
    /// # Errors
    /// /proc cannot be read.
    pub fn begin(&mut self) -> Result<Reading, Failure> {
        let (machine, segments) = self.machine()?;
        let own_ns = self.own.ns()?;
        Ok(Reading {
            machine,
            segments,
            own_ns,
        })
    }

    /// Reads the meters after the traffic, the instance's own first.
    ///
    /// # Errors
    /// See [`Meters::begin`].
    pub fn end(&mut self) -> Result<Reading, Failure> {
        let own_ns = self.own.ns()?;
        let (machine, segments) = self.machine()?;
        Ok(Reading {
            machine,
            segments,
            own_ns,
        })
    }

    fn machine(&mut self) -> Result<(Vec<Snapshot>, Option<Segments>), Failure> {
        let segments = match self.own {
            Own::Exact(_) => None,
            Own::Share => Some(Segments::read(self.transport).map_err(failed)?),
        };
        let read: Result<_, MeterError> = self.observer.read().map(|(_, read)| read).collect();
        Ok((read.map_err(failed)?, segments))
    }

    /// CPU time between two readings. `segments`: the test's packets ([`Segments`]), for [`Own::Share`].
    pub fn between(&self, before: &Reading, after: &Reading, segments: u64) -> Cpu {
        let own = before.own_ns.zip(after.own_ns);
        let own_ns = own.map(|(before, after)| after.saturating_sub(before));
        let (cpu_ns, method) = match (&before.segments, &after.segments) {
            (Some(before_all), Some(after_all)) => {
                let share = after_all.share(before_all, segments);
                let interrupts = interrupts_ns(&before.machine, &after.machine) * share;
                (own_ns.map(|ns| ns + interrupts as u64), Method::Share)
            }
            _ => (own_ns, Method::Exact),
        };
        Cpu {
            utilization: utilization(&before.machine, &after.machine),
            cpus: u32::try_from(self.cpus).unwrap_or(u32::MAX),
            service_demand: None,
            method: cpu_ns.map(|_| method),
            cpu_ns,
        }
    }
}

fn failed(error: MeterError) -> Failure {
    Failure::usage(format!("CPU: {error}"))
}

impl Own {
    /// Uses eBPF if possible. If the privilege for it is there and it fails, one line on standard error gives the reason, because
    /// the share is less exact.
    fn of_this_thread() -> Own {
        static SAID: Once = Once::new();
        match Named::this_thread() {
            Some(Ok(named)) => Own::Exact(named),
            Some(Err(why)) => {
                SAID.call_once(|| {
                    eprintln!(
                        "tcpcost: CPU by the share of packets, not exactly: the meter exact: {why}"
                    );
                });
                Own::Share
            }
            // Without the capabilities the share is the documented method.
            None => Own::Share,
        }
    }

    fn ns(&self) -> Result<Option<u64>, Failure> {
        match self {
            Own::Exact(named) => Ok(named
                .ns()
                .inspect_err(|why| eprintln!("tcpcost: no service demand: {why}"))
                .ok()),
            Own::Share => {
                let ns = tcpcost_meter::rusage::thread_ns_without_interrupts();
                ns.map(Some).map_err(failed)
            }
        }
    }
}

/// Time of hard and soft interrupts on all CPUs, ns.
fn interrupts_ns(before: &[Snapshot], after: &[Snapshot]) -> f64 {
    let growth = Growth::between(before, after);
    let kinds = [Quantity::CpuIrqNs, Quantity::CpuSoftirqNs].into_iter();
    let counts = kinds.filter_map(|kind| growth.count(MeterName::Proc, kind));
    counts.sum()
}

/// Percentages as netperf computes them: the mean over CPUs of the time that each was not idle.
fn utilization(before: &[Snapshot], after: &[Snapshot]) -> Option<Utilization> {
    let mut sum = Utilization {
        peak_id: -1,
        ..Utilization::default()
    };
    let mut cpus = 0.0;
    for reading in readings_between(before, after).flatten().flatten() {
        let CountOwner::Cpu(id) = reading.whose else {
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
        let busy = 100.0 - percent(Quantity::CpuIdleNs);
        sum.all += busy;
        sum.user += percent(Quantity::CpuUserNs);
        sum.system += percent(Quantity::CpuSystemNs);
        sum.iowait += percent(Quantity::CpuIowaitNs);
        sum.irq += percent(Quantity::CpuIrqNs);
        sum.softirq += percent(Quantity::CpuSoftirqNs);
        if busy > sum.peak {
            (sum.peak, sum.peak_id) = (busy, i32::try_from(id).unwrap_or(-1));
        }
    }
    let parts = [
        &mut sum.all,
        &mut sum.user,
        &mut sum.system,
        &mut sum.iowait,
        &mut sum.irq,
        &mut sum.softirq,
    ];
    for part in parts {
        *part /= f64::max(cpus, 1.0);
    }
    (cpus > 0.0).then_some(sum)
}
