//! How a study is measured, what it is held against, and when it has missed its mark.

use std::time::Duration;

use crate::capture::CaptureSettings;
use crate::derived::Derived;
use crate::knob::{End, Knobs};
use crate::value::Value;

/// `[measure]`: by which meters, how long, how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Meters, by name.
    pub meters: Vec<String>,
    /// Repetitions of every cell, at least. Six is the least number of trials of which the smallest
    /// and the largest enclose the median with 95 % confidence (1 - 2·½⁶ = 96.9 %).
    pub repetitions: u32,
    /// Repetitions at most; more than `repetitions` only where `target` is set.
    pub repetitions_max: u32,
    /// Half-width of the 95 % interval of the main quantity over its median, at which a cell is
    /// converged; `None` runs just `repetitions`.
    pub target: Option<f64>,
    /// The main quantity; `None` is `exact_cpu_us_per_transaction` for `rr` and `crr`, else
    /// `exact_cpu_us_per_kib`, or the same without `exact_` where the meter `exact` is not in every trial.
    pub quantity: Option<Derived>,
    /// Traffic before the first snapshot: slow start and buffer tuning are over by then.
    pub warm_up: Duration,
    /// The interval between the snapshots.
    pub duration: Duration,
    /// Seed of the order of trials and of payload.
    pub seed: u64,
    /// Share of the trial's CPUs that tasks of others may use before the trial is marked.
    pub others_max: f64,
    /// How often a marked trial is tried again.
    pub retries: u32,
    /// Samples per second of the meter `profile`, 1 to 10,000, on a busy CPU (of cycles: one of 3 GHz).
    pub profile_hz: u32,
    /// Whether each repetition of each cell has more trials that tell what each standing meter costs.
    pub meter_cost: bool,
    /// Whether the meter `segments` counts by connection, too: some 20 ns a packet.
    pub by_connection: bool,
    /// Captured trials of each cell beside those that are measured.
    pub capture: CaptureSettings,
}

impl Measure {
    /// Meters that exist, with one line each.
    pub const METERS: &[(&str, &str)] = &[
        (
            "proc",
            "CPU time of each CPU by /proc/stat, sampled by the tick",
        ),
        (
            "rusage",
            "CPU time and context switches of the workload's threads by getrusage",
        ),
        (
            "netstat",
            "/proc/net/snmp, snmp6 and netstat of each namespace",
        ),
        ("tcp_info", "TCP_INFO of each connection, summed"),
        ("tsc", "the time-stamp counter"),
        ("others", "CPU time of all other tasks by /proc/PID/stat"),
        ("exact", "CPU time by context to the nanosecond, by eBPF"),
        (
            "segments",
            "skbs, wire segments and ACKs of each namespace, and what sent them, by eBPF",
        ),
        (
            "perf",
            "core cycles, instructions and cache misses of each CPU, where there is a PMU",
        ),
        (
            "soak",
            "work that a spinner on each CPU could not do; it keeps the CPUs from idling",
        ),
        (
            "profile",
            "call chains of each CPU, sampled in the interval: which functions and layers cost",
        ),
    ];

    /// Meters that do something all through the interval, so that they may cost something; the others
    /// are read before and after it.
    pub const STANDING_METERS: &[&str] = &["exact", "segments", "perf", "soak", "profile"];

    /// Highest `profile_hz`: a sample takes some µs.
    pub const PROFILE_HZ_MAX: u32 = 10_000;

    /// Meters of a study that names none: those that need no privilege and change nothing of what
    /// the others see.
    pub const DEFAULT_METERS: &[&str] = &["proc", "rusage", "netstat", "tcp_info", "tsc", "others"];
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            meters: Measure::DEFAULT_METERS
                .iter()
                .map(|name| (*name).to_string())
                .collect(),
            repetitions: 6,
            repetitions_max: 6,
            target: None,
            quantity: None,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            seed: 1,
            others_max: 0.05,
            retries: 2,
            profile_hz: 99,
            meter_cost: false,
            by_connection: false,
            capture: CaptureSettings::default(),
        }
    }
}

/// `[published]`: somebody's figures, to show beside ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Who, when, where.
    pub source: String,
    /// What the figures are, in our terms.
    pub quantity: Derived,
    /// The knob that the figures vary.
    pub knob: String,
    /// The curves.
    pub series: Vec<Series>,
}

/// One published curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Its name.
    pub name: String,
    /// The cells it belongs beside: those that have these knobs.
    pub matching: Knobs,
    /// Knob value, figure.
    pub points: Vec<(Value, f64)>,
}

/// `[published_functions]`: how many times as dear somebody found functions in one case as in another, to show
/// beside our cell's ratio to the first.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedFunctions {
    /// Who, when, where, of what over what.
    pub source: String,
    /// Name of our cell that is like theirs.
    pub cell: String,
    /// The end of ours.
    pub end: End,
    /// Their function, ours, their ratio.
    pub ratios: Vec<(String, String, f64)>,
}

/// `[[threshold]]`: a limit that makes the command fail (exit 3) or say that it cannot tell (exit 4).
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// What is limited.
    pub quantity: Derived,
    /// Missed when the whole interval is above.
    pub at_most: Option<f64>,
    /// Missed when the whole interval is below.
    pub at_least: Option<f64>,
    /// The cells it holds for: those that have these knobs.
    pub matching: Knobs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_meters_exist() {
        let exists = |name: &&str| Measure::METERS.iter().any(|(meter, _)| meter == name);
        assert!(Measure::DEFAULT_METERS.iter().all(exists));
        assert!(Measure::STANDING_METERS.iter().all(exists));
    }
}
