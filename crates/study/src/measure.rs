//! How a study is measured, what it is held against, and when it has missed its mark.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcpcost_counts::{Asked, MeterName};

use crate::capture::CaptureSettings;
use crate::choices::{WaitsBy, WorkloadKind};
use crate::conclusion::Change;
use crate::derived::Derived;
use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::settings::WorkloadSettings;
use crate::share::Share;
use crate::value::Value;

/// `[measure]`: by which meters, how long, how often.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Meters.
    pub meters: Vec<MeterName>,
    /// Repetitions of every cell, at least. Six is the least number of trials of which the smallest
    /// and the largest enclose the median with 95 % confidence (1 - 2·½⁶ = 96.9 %).
    pub repetitions: u32,
    /// Repetitions at most; more than `repetitions` only where `target` is set.
    pub repetitions_max: u32,
    /// Which of the repetitions this run does: all, unless several runs share them.
    pub share: Share,
    /// Half-width of the 95 % interval of the main quantity over its median, at which a cell is
    /// converged; `None` runs just `repetitions`.
    pub target: Option<f64>,
    /// Half-width of a contrast's interval, in percent of the first cell (of the second, where that is larger) over
    /// 100, at which it is decided: repetitions go on until the headline contrasts are, or the time is over.
    pub contrast_target: Option<f64>,
    /// Limit on the run's time, with preparation, waits and repeats: no trial begins that would probably end later. `None`
    /// is no limit, except that [`CONTRAST_TIME`] ends what only serves `contrast_target`.
    pub time_max: Option<Duration>,
    /// The least difference that matters to a comparison, over the first cell: within it both are equivalent.
    pub min_effect: f64,
    /// The main quantity; `None` is `exact_cpu_us_per_transaction` for `rr` and `crr`, else
    /// `exact_cpu_us_per_kib`, or the same without `exact_` where the meter `exact` is not in every trial.
    pub quantity: Option<Derived>,
    /// Traffic before the first snapshot: slow start and buffer tuning are over by then.
    pub warm_up: Duration,
    /// The interval between the snapshots.
    pub duration: Duration,
    /// The work between the snapshots, in place of `duration`; before the first as much again is done, in place of `warm_up`.
    pub work: Option<FixedWork>,
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
    /// Time between looks at the first connection of each host of our own TCP, whose state then is in the record; `None` for
    /// none.
    pub series: Option<Duration>,
    /// Captured trials of each cell beside those that are measured.
    pub capture: CaptureSettings,
}

/// Time after which no repetition begins that only serves `contrast_target`, if the study sets no limit.
pub const CONTRAST_TIME: Duration = Duration::from_secs(600);

impl Measure {
    /// Highest `profile_hz`: a sample takes some µs.
    pub const PROFILE_HZ_MAX: u32 = 10_000;

    /// Meters of a study that names none: those that need no privilege, and `exact`, which is absent where
    /// it cannot be had: without it a cost holds what ran beside the trial, too.
    pub fn default_meters() -> Vec<MeterName> {
        let by_default = |meter: &MeterName| meter.asked() == Asked::ByDefault;
        MeterName::choices().filter(by_default).collect()
    }
}

impl Default for Measure {
    fn default() -> Self {
        Measure {
            meters: Measure::default_meters(),
            repetitions: 6,
            repetitions_max: 6,
            share: Share::WHOLE,
            target: None,
            contrast_target: None,
            time_max: None,
            min_effect: 0.01,
            quantity: None,
            warm_up: Duration::from_millis(200),
            duration: Duration::from_secs(1),
            work: None,
            seed: 1,
            others_max: 0.05,
            retries: 2,
            profile_hz: 99,
            meter_cost: false,
            by_connection: false,
            series: None,
            capture: CaptureSettings::default(),
        }
    }
}

/// An amount of work that ends a trial's interval, whatever time it takes: what trials cost is then of equal work, and
/// nothing is cut in two by the end of a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedWork {
    /// Payload of each two hosts that talk with each other, bytes, both directions together; of workloads that are not counted in
    /// transactions alone.
    pub bytes: u64,
    /// Transactions of each client (`rr`, `crr`).
    pub transactions: u64,
}

impl FixedWork {
    /// What a host moves, in both directions, to have done its part once: of the workload of each of `times` hosts that it
    /// talks with.
    ///
    /// # Errors
    /// Groups of connections, a program, or a thread for each connection: whose work ends when is not known.
    pub fn bytes_of_host(self, knobs: &Knobs, times: usize) -> Result<u64, (&'static str, String)> {
        let refused = |knob, what: &str| {
            Err((
                knob,
                format!("{what} has no fixed amount of work, only a duration"),
            ))
        };
        if !knobs.group_names().is_empty() {
            return refused("group", "a trial with several groups of connections");
        }
        let settings = WorkloadSettings::from_knobs(knobs);
        let settings = settings.map_err(|error| ("workload", error.to_string()))?;
        if settings.io == WaitsBy::BlockingThreads {
            return refused("io", "a thread for each connection");
        }
        let each = match settings.kind {
            WorkloadKind::Rr | WorkloadKind::Crr => {
                let bytes = settings.request_bytes + settings.response_bytes;
                self.transactions.saturating_mul(bytes as u64)
            }
            WorkloadKind::Program => return refused("workload", "a program"),
            WorkloadKind::Stream | WorkloadKind::Maerts | WorkloadKind::Bidirectional => self.bytes,
        };
        Ok(each.saturating_mul(times as u64))
    }
}

impl Default for FixedWork {
    /// 64 MiB and 4000 transactions: some fifty millions of instructions at least, so that a tick of the kernel's (250 a second, a few
    /// thousand instructions) is less than a thousandth, and the other host's reading of its meters less than a hundredth.
    fn default() -> FixedWork {
        FixedWork {
            bytes: 64 << 20,
            transactions: 4000,
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
    /// The host of ours.
    pub host: HostName,
    /// Their function, ours, their ratio.
    pub ratios: Vec<(String, String, f64)>,
}

/// `[[threshold]]`: a limit that makes the command fail (exit 3) or say that it cannot tell (exit 4).
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// What is limited.
    pub quantity: Derived,
    /// What of it.
    pub of: ThresholdOf,
    /// Missed when the whole interval is above.
    pub at_most: Option<f64>,
    /// Missed when the whole interval is below.
    pub at_least: Option<f64>,
    /// The cells it holds for: those that have these knobs.
    pub matching: Knobs,
}

/// What of a quantity a threshold limits.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdOf {
    /// The quantity itself, in its unit.
    Value,
    /// What a knob changes of it, in percent.
    Change(Change),
    /// Its change against the run that `--baseline` names, in percent; not judged without one.
    Baseline,
}
