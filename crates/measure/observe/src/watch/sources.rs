//! The meters that are available on this host for this user, and the tier that they form.

use std::net::SocketAddr;
use std::time::Duration;

use tcpcost_counts::MeterName;
use tcpcost_meter::bpf::Pausable;
use tcpcost_meter::holder::ByHolder;
use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::perf::Perf;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::self_cost::SelfCost;
use tcpcost_meter::vmstat::Vmstat;
use tcpcost_meter::{MeterError, Missing, Needs, Observer, Owners, Scope, bpf};

use crate::watch::connections::Skbs;
use crate::watch::driver::Moment;
use crate::watch::sampler::Sampler;
use tcpcost_host::cpus;
use tcpcost_host::error::remedy;

/// Level of detail of the available meters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// Only the kernel's own counters, which any user can read.
    Counters,
    /// Also eBPF at tracepoints.
    Tracepoints,
    /// Also hardware cycles, with or without eBPF.
    Pmu,
}

impl Tier {
    /// Name in JSON and in headers.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Counters => "counters",
            Tier::Tracepoints => "tracepoints",
            Tier::Pmu => "pmu",
        }
    }
}

/// Methods by which figures are made, and the reasons why better ones are unavailable.
#[derive(Debug, Clone)]
pub struct About {
    pub tier: Tier,
    /// Number of CPUs that are online.
    pub cpus: usize,
    /// True if CPU time is exact, by eBPF.
    pub has_exact: bool,
    /// True if skbs are counted, by eBPF.
    pub has_segments: bool,
    /// Share of one CPU that the eBPF programs may cost before they sample. `None` if they run all the time,
    /// because their cost is unknown or not limited.
    pub cost_max: Option<f64>,
    /// Unavailable meters, one line each.
    pub refused: Vec<String>,
    /// Address at which metrics are served.
    pub metrics: Option<SocketAddr>,
}

impl About {
    /// Explanation of the figures, for people.
    pub fn lines(&self) -> Vec<String> {
        let cpu = match self.has_exact {
            true => "exact by eBPF (task + softirq + hard irq)",
            false => "by /proc/stat (time not idle)",
        };
        let bytes = match self.has_segments {
            true => "TCP payload",
            false => "IP bytes of all protocols",
        };
        let has_ebpf = self.has_exact || self.has_segments;
        let tier = match (self.tier, has_ebpf) {
            (Tier::Counters, _) => "counters only",
            (Tier::Tracepoints, _) => "counters, tracepoints",
            (Tier::Pmu, true) => "counters, tracepoints, PMU (core cycles)",
            (Tier::Pmu, false) => "counters, PMU (core cycles)",
        };
        let mut lines = vec![
            format!("tier: {tier}; CPU: {cpu} of {} CPUs", self.cpus),
            format!(
                "Gb/s: {bytes} of this network namespace; us/KiB: all busy CPU of the host per KiB out and in"
            ),
        ];
        lines.extend(self.cost_max.filter(|_| has_ebpf).map(|most| {
            format!(
                "eBPF above {} % of a CPU is sampled: seen% is its share of time, +-% the error of Gb/s",
                most * 100.0
            )
        }));
        lines.extend(
            self.metrics
                .map(|at| format!("metrics: http://{at}/metrics")),
        );
        lines.extend(self.refused.iter().cloned());
        lines
    }
}

/// All meters, on the thread that reads them.
pub struct Sources {
    observer: Observer,
    sampler: Option<Sampler>,
}

impl Sources {
    /// Opens the available meters. eBPF programs may cost `cost_max` of one CPU. They count skbs by
    /// connection and CPU time by process if asked for. An unavailable meter becomes a line of
    /// [`About::refused`].
    pub fn open(
        cost_max: f64,
        interval: Duration,
        by_connection: bool,
        by_holder: bool,
    ) -> (Sources, About) {
        let cpus = cpus::online();
        let mut about = About {
            tier: Tier::Counters,
            cpus: cpus.len(),
            has_exact: false,
            has_segments: false,
            cost_max: None,
            refused: Vec::new(),
            metrics: None,
        };
        let mut observer: Observer = Observer::default();
        observer.add(Ok(Box::new(Proc::of_host())));
        observer.add(Ok(Box::new(Netstat::default())));
        observer.add(Ok(Box::new(Vmstat::default())));
        observer.add(Ok(Box::new(SelfCost)));
        let scope = Scope {
            cpus: cpus.clone(),
            own_pids: vec![std::process::id()],
            connections: by_connection.then_some(CONNECTIONS),
            owners: match by_holder {
                true => Owners::Holders,
                false => Owners::None,
            },
            ..Scope::default()
        };
        let mut programs = Observer::<dyn Pausable + Send>::default();
        for &name in bpf::METERS {
            programs.open(name, &scope, |scope| bpf::load(name, scope));
        }
        about.refused.extend(programs.missing.iter().map(refusal));
        about.has_exact = programs.has(MeterName::Exact);
        about.has_segments = programs.has(MeterName::Segments);
        let has_programs = about.has_exact || about.has_segments;
        let sampler = has_programs
            .then(|| open_sampler(programs, cost_max, interval, &mut about))
            .flatten();
        let perf = observer.add(Perf::watched(&cpus).map(|perf| Box::new(perf) as _));
        about.tier = match (perf, has_programs) {
            (Some(_), _) => Tier::Pmu,
            (None, true) => Tier::Tracepoints,
            (None, false) => Tier::Counters,
        };
        about.refused.extend(observer.missing.iter().map(refusal));
        (Sources { observer, sampler }, about)
    }

    /// CPU time of each process with sockets until the last reading. `None` if it is unavailable.
    pub fn by_holder(&self) -> Option<&ByHolder> {
        self.sampler.as_ref()?.by_holder()
    }

    /// Reads all meters.
    pub fn look(&mut self, moment: &mut Moment) {
        for (meter, read) in self.observer.read() {
            match read {
                Ok(snapshot) => moment.snapshots.push(snapshot),
                Err(error) => moment.warnings.push(format!("meter {meter}: {error}")),
            }
        }
        if let Some(sampler) = &mut self.sampler {
            let taken = sampler.take(&moment.snapshots, &mut moment.warnings);
            moment.snapshots.extend(taken.snapshots);
            moment.unseen = taken.unseen;
            moment.sampling_error = taken.error;
        }
    }

    /// Counts of the skbs of each connection so far. `None` if they are not counted.
    pub fn skbs(&self, warnings: &mut Vec<String>) -> Option<Skbs> {
        Some(self.sampler.as_ref()?.by_connection(warnings))
    }
}

/// Number of ends of connections whose skbs are kept, the last seen ones: 3 MiB.
const CONNECTIONS: u32 = 16_384;

/// Makes the sampler of loaded eBPF meters. Without `statistics` of their cost there is no limit.
fn open_sampler(
    programs: Observer<dyn Pausable + Send>,
    cost_max: f64,
    interval: Duration,
    about: &mut About,
) -> Option<Sampler> {
    // Opened after the programs, because it looks for those that were loaded.
    let statistics = statistics();
    let statistics = statistics.map_err(|error| about.refused.push(advised(&error)));
    let is_limited = statistics.is_ok() && cost_max < 1.0;
    about.cost_max = is_limited.then_some(cost_max);
    let made = Sampler::new(
        programs,
        about.cpus,
        statistics.ok(),
        about.cost_max,
        interval,
    );
    made.map_err(|error| about.refused.push(format!("eBPF meters: {error}")))
        .ok()
}

/// Meter of the run time of our eBPF programs.
#[cfg(feature = "bpf")]
fn statistics() -> Result<Box<dyn Pausable + Send>, MeterError> {
    Ok(Box::new(tcpcost_meter::programs::Programs::new()?))
}

/// Always fails: this program was built without eBPF.
#[cfg(not(feature = "bpf"))]
fn statistics() -> Result<Box<dyn Pausable + Send>, MeterError> {
    Err(MeterError::built_without_bpf(MeterName::Programs))
}

/// Line about something that is not counted, with the reason and what to do here.
fn refusal(missing: &Missing) -> String {
    match missing {
        Missing::Meter(error) => advised(error),
        Missing::Owners(error) => format!("no CPU time by owner: {}", advised(error)),
        Missing::Part(line) => line.clone(),
    }
}

/// One line with the reason and what to do here. There is no study from which to drop a meter.
fn advised(error: &MeterError) -> String {
    match error.needs() {
        Some(Needs::Capabilities(_)) => format!("{error}: {} to see more", remedy()),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_without_a_study() {
        let refused = |errno, needs| {
            refusal(&Missing::Meter(MeterError::Unavailable {
                meter: MeterName::Exact,
                tried: "load".to_string(),
                source: Some(std::io::Error::from_raw_os_error(errno)),
                needs,
            }))
        };
        assert_eq!(
            refused(
                libc::EPERM,
                Some(Needs::Capabilities("CAP_BPF and CAP_PERFMON"))
            ),
            format!(
                "meter exact: load: Operation not permitted (needs CAP_BPF and CAP_PERFMON): {} to see more",
                remedy()
            )
        );
        assert_eq!(
            refused(libc::E2BIG, None),
            "meter exact: load: Argument list too long"
        );
    }
}
