//! Settings for measuring a study, published figures to compare with, and thresholds.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tcpcost_counts::{MeterName, MeterSelection};

use crate::capture::CaptureSettings;
use crate::cell::Cell;
use crate::conclusion::Change;
use crate::derived::Derived;
use tcpcost_knobs::{
    HostName, KnobError, Knobs, Share, Value, WaitsBy, WorkloadKind, WorkloadSettings,
};

/// `[measure]`: meters, duration, and number of repetitions.
#[derive(Debug, Clone, PartialEq)]
pub struct Measure {
    /// Meters of each trial.
    pub meters: Vec<MeterName>,
    /// Least number of repetitions of each cell. Six is the least number of trials whose smallest
    /// and largest enclose the median with 95 % confidence (1 - 2·½⁶ = 96.9 %).
    pub repetitions: u32,
    /// Limit of repetitions. More than `repetitions` only if `target` is set.
    pub repetitions_max: u32,
    /// Repetitions that this run does: all, unless several runs share them.
    pub share: Share,
    /// Half-width of the 95 % interval of the main quantity, relative to its median, at which a
    /// cell has converged. `None` runs exactly `repetitions`.
    pub target: Option<f64>,
    /// Half-width of a contrast's interval at which it is decided, as a fraction of the first cell
    /// (of the second, if that is larger). Repetitions go on until the main contrasts are
    /// decided, or the time is over.
    pub contrast_target: Option<f64>,
    /// Limit of the run's time, with preparation, waits and repeats: no trial begins that would
    /// probably end later. `None` for no limit, except that [`CONTRAST_TIME`] ends repetitions that
    /// only serve `contrast_target`.
    pub time_max: Option<Duration>,
    /// Least difference that matters in a comparison, relative to the first cell: within it both
    /// are equivalent.
    pub min_effect: f64,
    /// Main quantity. `None` for `exact_cpu_us_per_transaction` for `rr` and `crr`, else
    /// `exact_cpu_us_per_kib`; without `exact_` if the meter `exact` is not in every trial.
    pub quantity: Option<Derived>,
    /// Traffic before the first snapshot, so that slow start and buffer tuning are over by then.
    pub warm_up: Duration,
    /// Interval between the snapshots.
    pub duration: Duration,
    /// Work between the snapshots, instead of `duration`. The same amount is done before the first
    /// snapshot, instead of `warm_up`.
    pub work: Option<FixedWork>,
    /// Seed of the order of trials, and of the payload.
    pub seed: u64,
    /// Share of the trial's CPUs that other tasks may use before the trial is marked, 0 to 1.
    pub others_max: f64,
    /// Number of times that a marked trial is repeated.
    pub retries: u32,
    /// Samples per second of the meter `profile`, 1 to 10,000, on a busy CPU (in cycles: on one of
    /// 3 GHz).
    pub profile_hz: u32,
    /// True if each repetition of each cell has additional trials that show the cost of each
    /// standing meter.
    pub meter_cost: bool,
    /// True if the meter `segments` counts by connection, too. It costs about 20 ns a packet.
    pub by_connection: bool,
    /// Interval between samples of the state of the first connection of each host of our own TCP,
    /// for the record. `None` for no samples.
    pub series: Option<Duration>,
    /// Captured trials of each cell, in addition to those that are measured.
    pub capture: CaptureSettings,
}

/// Time after which no repetition begins that only serves `contrast_target`, if the study sets no
/// limit.
pub const CONTRAST_TIME: Duration = Duration::from_secs(600);

impl Measure {
    /// Limit of `profile_hz`: a sample takes some µs.
    pub const PROFILE_HZ_MAX: u32 = 10_000;

    /// Meters of a study that names none: those that need no privileges, and `exact`, which is
    /// absent if it is not available. Without `exact` a cost includes other programs that ran at
    /// the time.
    pub fn default_meters() -> Vec<MeterName> {
        let by_default = |meter: &MeterName| meter.selection() == MeterSelection::ByDefault;
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

/// Amount of work that ends a trial's interval, however long it takes. The trials' costs are then
/// for equal work, and no unit of work is cut by the end of the interval.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FixedWork {
    /// Payload of each pair of hosts that talk, bytes, both directions together. For workloads that
    /// are not counted in transactions.
    pub bytes: u64,
    /// Transactions of each client (`rr`, `crr`).
    pub transactions: u64,
}

impl FixedWork {
    /// Bytes that a host moves, in both directions, until its part is done: the workload of each of
    /// the `times` hosts that it talks with.
    ///
    /// # Errors
    /// Groups of connections, a program, or a thread for each connection: the end of their work is
    /// not defined.
    pub fn bytes_of_host(self, knobs: &Knobs, times: usize) -> Result<u64, KnobError> {
        let refused = |knob: &str, what: &str| {
            let reason = format!("{what} has no fixed amount of work, only a duration");
            Err(KnobError::new(knob, reason))
        };
        if !knobs.group_names().is_empty() {
            return refused("group", "a trial with several groups of connections");
        }
        let settings = WorkloadSettings::from_knobs(knobs);
        let settings = settings.map_err(|error| KnobError::new("workload", error.to_string()))?;
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
    /// Default of 48 MiB and 2000 transactions: at least about 28 million instructions. A timer tick
    /// of the kernel (250 a second, a few thousand instructions) is then less than a thousandth, and
    /// its phase, which the seed decides, makes a ten-thousandth. Ksoftirqd runs once in some
    /// snapshots (4,000 instructions): with 16 MiB these made a standard deviation of 0.028 % over
    /// 14 snapshots, with 48 MiB 0.012 %.
    fn default() -> FixedWork {
        FixedWork {
            bytes: 48 << 20,
            transactions: 2000,
        }
    }
}

/// `[published]`: published figures, shown next to ours.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Author, year and place of the publication.
    pub source: String,
    /// Quantity of the figures, in our terms.
    pub quantity: Derived,
    /// Knob that the figures vary.
    pub knob: String,
    /// Published curves.
    pub series: Vec<Series>,
}

/// Published curve.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// Name of the curve.
    pub name: String,
    /// Cells next to which it is shown: those that have these knobs.
    pub matching: Knobs,
    /// Pairs of a knob's value and the figure.
    pub points: Vec<(Value, f64)>,
}

/// `[published_functions]`: published ratios of the cost of functions in one case to that in
/// another, shown next to the ratio of two cells of ours.
#[derive(Debug, Clone, PartialEq)]
pub struct PublishedFunctions {
    /// Author, year and place of the publication, and the two cases.
    pub source: String,
    /// Name of our cell that is like the published case.
    pub cell: String,
    /// Name of our cell that the ratio is to. `None` for the first cell.
    pub first: Option<String>,
    /// Host of our cell.
    pub host: HostName,
    /// Functions with their ratios.
    pub ratios: Vec<FunctionRatio>,
}

impl PublishedFunctions {
    /// True if both cells are among these.
    pub(crate) fn are_of(&self, cells: &[Cell]) -> bool {
        let has = |name: &String| cells.iter().any(|cell| cell.name == *name);
        has(&self.cell) && self.first.as_ref().is_none_or(has)
    }
}

/// A published ratio of a function's cost.
#[derive(Debug, Clone, PartialEq)]
pub struct FunctionRatio {
    /// Name of the published function.
    pub theirs: String,
    /// Name of our function.
    pub ours: String,
    /// Published ratio.
    pub published: f64,
    /// Id of the published statement that it tests, which says that ours is within these limits: at least, at most.
    pub tests: Option<(String, Option<f64>, Option<f64>)>,
}

/// `[[threshold]]`: a limit. If it is missed the command fails (exit 3); if that is undecided, it
/// exits with 4.
#[derive(Debug, Clone, PartialEq)]
pub struct Threshold {
    /// Quantity that is limited.
    pub quantity: Derived,
    /// Value or change of the quantity that is limited.
    pub of: ThresholdOf,
    /// Upper limit: missed if the whole interval is above.
    pub at_most: Option<f64>,
    /// Lower limit: missed if the whole interval is below.
    pub at_least: Option<f64>,
    /// Cells for which it holds: those that have these knobs.
    pub matching: Knobs,
}

/// Value or change of a quantity that a threshold limits.
#[derive(Debug, Clone, PartialEq)]
pub enum ThresholdOf {
    /// The quantity itself, in its unit.
    Value,
    /// Change of the quantity by a knob, in percent.
    Change(Change),
    /// Change relative to the run that `--baseline` names, in percent. Not judged without a
    /// baseline.
    Baseline,
}
