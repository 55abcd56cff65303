//! The meters that this host and user let us have, and what they are together: the tier.

use std::fs;
use std::net::SocketAddr;

use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::own::Own;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::{Meter, MeterError, bpf};
use tcpcost_study::Snapshot;

use crate::host::topology::from_list;

/// How much can be seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tier {
    /// The kernel's own counters, for everybody.
    Counters,
    /// eBPF at tracepoints besides.
    Tracepoints,
}

impl Tier {
    /// Its name in JSON and in headers.
    pub fn name(self) -> &'static str {
        match self {
            Tier::Counters => "counters",
            Tier::Tracepoints => "tracepoints",
        }
    }
}

/// By which methods figures are made, and why not by better ones.
#[derive(Debug, Clone)]
pub struct About {
    /// The tier.
    pub tier: Tier,
    /// CPUs that are online.
    pub cpus: usize,
    /// Whether CPU time is exact, by eBPF.
    pub has_exact: bool,
    /// Whether skbs are seen, by eBPF.
    pub has_segments: bool,
    /// Meters that cannot be had, a line each.
    pub refused: Vec<String>,
    /// Where metrics are served.
    pub metrics: Option<SocketAddr>,
}

impl About {
    /// The meter that CPU time is of.
    pub fn cpu_method(&self) -> &'static str {
        if self.has_exact { "exact" } else { "proc" }
    }

    /// The meter that bytes are of.
    pub fn bytes_method(&self) -> &'static str {
        if self.has_segments {
            "segments"
        } else {
            "netstat"
        }
    }

    /// What the figures are, for people.
    pub fn lines(&self) -> Vec<String> {
        let cpu = match self.has_exact {
            true => "exact by eBPF (task + softirq + hard irq)",
            false => "/proc/stat (sampled by the tick)",
        };
        let bytes = match self.has_segments {
            true => "TCP payload",
            false => "IP octets of all protocols",
        };
        let tier = match self.tier {
            Tier::Counters => "counters only",
            Tier::Tracepoints => "tracepoints (no PMU used)",
        };
        let mut lines = vec![
            format!("tier: {tier}; CPU: {cpu} of {} CPUs", self.cpus),
            format!(
                "Gb/s: {bytes} of this network namespace; us/KiB: all busy CPU of the host per KiB out and in"
            ),
        ];
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
    meters: Vec<Box<dyn Meter + Send>>,
}

impl Sources {
    /// Those that can be had, with the run time of our eBPF programs if asked for. A meter that cannot is a line of [`About::refused`].
    pub fn open(with_programs: bool) -> (Sources, About) {
        let cpus = online_cpus();
        let mut about = About {
            tier: Tier::Counters,
            cpus: cpus.len(),
            has_exact: false,
            has_segments: false,
            refused: Vec::new(),
            metrics: None,
        };
        let mut meters: Vec<Box<dyn Meter + Send>> = vec![
            Box::new(Proc::new(&[])),
            Box::new(Netstat::default()),
            Box::new(Own),
        ];
        let scope = bpf::Scope {
            cpus,
            own_pids: vec![std::process::id()],
        };
        for &name in &["exact", "segments"] {
            match bpf::load(name, &scope) {
                Some(Ok(meter)) => {
                    meters.push(meter);
                    about.tier = Tier::Tracepoints;
                    about.has_exact |= name == "exact";
                    about.has_segments |= name == "segments";
                }
                Some(Err(error)) => about.refused.push(refusal(&error)),
                None => {}
            }
        }
        if with_programs {
            // After the others: it looks for what they loaded.
            match programs() {
                Ok(meter) => meters.push(meter),
                Err(error) => about.refused.push(refusal(&error)),
            }
        }
        (Sources { meters }, about)
    }

    /// What all of them say now; one that fails is a note, and absent.
    pub fn snapshots(&mut self, notes: &mut Vec<String>) -> Vec<Snapshot> {
        let mut snapshots = Vec::with_capacity(self.meters.len());
        for meter in &mut self.meters {
            match meter.snapshot() {
                Ok(snapshot) => snapshots.push(snapshot),
                Err(error) => notes.push(format!("meter {}: {error}", meter.name())),
            }
        }
        snapshots
    }
}

#[cfg(feature = "bpf")]
fn programs() -> Result<Box<dyn Meter + Send>, MeterError> {
    Ok(Box::new(tcpcost_meter::programs::Programs::new()?))
}

#[cfg(not(feature = "bpf"))]
fn programs() -> Result<Box<dyn Meter + Send>, MeterError> {
    let (meter, reason) = (
        "programs",
        "this program was built without eBPF".to_string(),
    );
    Err(MeterError::Load { meter, reason })
}

/// One line, with what to do here: there is no study to drop a meter from.
fn refusal(error: &MeterError) -> String {
    let text = error.to_string();
    let text = match text.split_once("or drop \"") {
        Some((before, _)) => before.trim_end_matches(['(', ';', ' ']).to_string(),
        None => text,
    };
    let close = if text.matches('(').count() > text.matches(')').count() {
        ")"
    } else {
        ""
    };
    let what = match text.contains("CAP_BPF") {
        true => ": run as root to see more",
        false => "",
    };
    format!("{text}{close}{what}")
}

/// CPUs that are online, none where the kernel does not say.
fn online_cpus() -> Vec<usize> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    from_list(text.trim()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_to_do_without_a_study() {
        let refused = |reason: &str| {
            refusal(&MeterError::Load {
                meter: "exact",
                reason: reason.to_string(),
            })
        };
        assert_eq!(
            refused(
                "load: Operation not permitted (needs CAP_BPF and CAP_PERFMON; or drop \"exact\" from meters)"
            ),
            "meter exact: load: Operation not permitted (needs CAP_BPF and CAP_PERFMON): run as root to see more"
        );
        assert_eq!(
            refused("attach: Argument list too long (or drop \"exact\" from meters)"),
            "meter exact: attach: Argument list too long"
        );
    }
}
