//! Summary of one cell: one estimate for each quantity, made from the cell's trials.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use tcpcost_study::{
    Bed, Cell, ConnectionSeries, Derived, Environment, Figure, FixedWork, HostName, Knobs, Outcome,
    Record, Study, Value, Warning, WarningCode, WorkloadKind,
};

use crate::derive::estimate::Estimate;
use crate::derive::fleet::Fleet;
use crate::derive::host_rows::{self, HostRow};
use crate::derive::operations::{OperationSummary, operations};
use crate::derive::priced::PricedCosts;
use crate::derive::profile::{Profile, profiles};
use crate::derive::student::of_mean;
use crate::derive::values::{Values, derive};
use crate::derive::warned::{Warned, merge, warned};

/// Limit of a cell's amount of work: a set rate, or the CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Load {
    /// A rate that the study sets, so that cells do equal work. The text names knob and value.
    FixedRate(String),
    /// Limited by nothing but the CPU.
    CpuBound,
}

impl Load {
    /// Load of a cell with these knobs: fixed if `rate`, `transaction_rate` or a `bottleneck` of
    /// either end is set. With groups of connections it is fixed only if each group has a rate.
    pub fn new(knobs: &Knobs) -> Load {
        if !knobs.group_names().is_empty() {
            return Load::of_groups(knobs);
        }
        let fixed = ["rate", "transaction_rate"]
            .into_iter()
            .map(|name| (name.to_string(), knobs.value(name)))
            .chain(
                knobs
                    .iter()
                    .filter(|(name, _)| name.rsplit('.').next() == Some("bottleneck"))
                    .map(|(_, value)| ("bottleneck".to_string(), Some(value.clone()))),
            )
            .find_map(|(name, value)| match value {
                Some(value @ (Value::BitsPerS(_) | Value::PerS(_))) => {
                    Some(format!("{name} {value}"))
                }
                _ => None,
            });
        fixed.map_or(Load::CpuBound, Load::FixedRate)
    }

    /// Load of a cell with groups of connections: fixed only if each group has a rate.
    fn of_groups(knobs: &Knobs) -> Load {
        let groups = knobs.groups().unwrap_or_default();
        let rates = groups.iter().map(|group| {
            let settings = &group.settings;
            let bits = settings.rate_bits_per_s.map(Value::BitsPerS);
            let rate = bits.or(settings.transactions_per_s.map(Value::PerS))?;
            Some(format!("{} {rate}", group.name?))
        });
        let rates: Option<Vec<String>> = rates.collect();
        rates.map_or(Load::CpuBound, |rates| Load::FixedRate(rates.join(", ")))
    }

    /// `fixed rate` or `CPU-bound`.
    pub fn name(&self) -> &'static str {
        match self {
            Load::FixedRate(_) => "fixed rate",
            Load::CpuBound => "CPU-bound",
        }
    }
}

/// One measured trial of a cell.
#[derive(Debug, Clone)]
pub struct TrialValues {
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt, from 0.
    pub attempt: u32,
    /// Codes of the warnings that mark this trial; empty if none does.
    pub state: BTreeSet<WarningCode>,
    /// True if the estimates use this trial.
    pub used: bool,
    /// Values derived from the trial's record.
    pub values: Values,
}

/// Results of the trials of one cell.
#[derive(Debug, Clone)]
pub struct CellSummary {
    /// Name in tables.
    pub name: String,
    /// Settings of the cell.
    pub knobs: Knobs,
    /// Kind of traffic. `None` if groups of connections have different kinds.
    pub workload: Option<WorkloadKind>,
    /// Load: fixed rate or CPU-bound.
    pub load: Load,
    /// Measured trials that the estimates use.
    pub n: usize,
    /// Measured trials that a warning marks.
    pub n_marked: usize,
    /// True if every measured trial is marked.
    pub all_marked: bool,
    /// True if the clock of the trials counts instructions: costs are then in instructions, and no
    /// figure is a time.
    pub counts_instructions: bool,
    /// Amount of work that ended each trial's interval. `None` if time ended it.
    pub work: Option<FixedWork>,
    /// True if the study runs until its intervals are narrow; intervals of contrasts must then be
    /// anytime-valid.
    pub stops_early: bool,
    /// Failed trials: count by reason.
    pub failed: BTreeMap<String, usize>,
    /// Failed trials that ran but did not complete their work.
    pub n_incomplete: usize,
    /// Skipped trials: count by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Warnings, merged by code.
    pub warnings: Vec<Warned>,
    /// Segmentation regimes read from the ports, by host; more than one if trials differ.
    pub regimes: BTreeMap<HostName, BTreeSet<String>>,
    /// Distinct states of each host's ports, as read back; more than one if ports or trials differ.
    pub environments: BTreeMap<HostName, Vec<Environment>>,
    /// CPUs of each host's threads, as pairs of machine and CPU number.
    pub cpus: BTreeMap<HostName, BTreeSet<(String, usize)>>,
    /// Main quantity: the study's choice, else CPU cost per transaction or KiB. If the study asks
    /// for one end's CPU and only the sum of both ends is known, the sum.
    pub main: Derived,
    /// True if the main quantity is the sum of both ends in place of the end that was asked for.
    pub main_stands_in: bool,
    /// True if the main quantity's interval is within the study's target. `None` without a target.
    pub converged: Option<bool>,
    /// Estimates of every quantity that at least one used trial has.
    pub estimates: BTreeMap<Derived, Estimate>,
    /// Measured trials, sorted by repetition and attempt.
    pub trials: Vec<TrialValues>,
    /// Captured trials. Only quantities from their packet captures are used.
    pub captured_trials: Vec<TrialValues>,
    /// Rows of the table of hosts; empty unless the study names its hosts.
    pub host_rows: Vec<HostRow>,
    /// Upper bound of the time between the first and the last host's start, µs, clock errors
    /// included.
    pub skew_us: Option<f64>,
    /// Comparison of hosts from rounds of pairs. `None` unless the pattern is `rounds`.
    pub fleet: Option<Fleet>,
    /// Durations of each operation of the cell's programs; empty without programs.
    pub operations: Vec<OperationSummary>,
    /// Time series of each host's first connection, from the first used trial that has one.
    pub series: BTreeMap<HostName, ConnectionSeries>,
    /// CPU time by call chain, for each end or for both together. Empty without the meter
    /// `profile`.
    pub profiles: Vec<Profile>,
    /// CPU time of each host by cause, by the prices of the machine. Empty without prices.
    pub priced: PricedCosts,
}

impl TrialValues {
    /// True if a warning marks this trial.
    pub fn is_marked(&self) -> bool {
        !self.state.is_empty()
    }
}

impl CellSummary {
    /// True if work is counted in transactions.
    pub fn has_transactions(&self) -> bool {
        self.knobs.has_transactions()
    }

    /// Unit of the cell's costs by layer and by function.
    pub(crate) fn cost_unit(&self) -> &'static str {
        match self.has_transactions() {
            true => Figure::CpuUsPerTransaction.unit(),
            false => Figure::CpuUsPerKib.unit(),
        }
    }

    /// Estimate of the main quantity. `None` if no used trial has it.
    pub fn main_estimate(&self) -> Option<&Estimate> {
        self.estimates.get(&self.main)
    }

    /// Quantity `asked`, in instructions if the cell counts these. If only the sum of both ends is
    /// known, the sum.
    pub fn has_or_both(&self, asked: Derived) -> Derived {
        let asked = in_its_unit(asked, self.counts_instructions);
        stands_in(&self.estimates, asked).unwrap_or(asked)
    }

    /// True if the estimates use marked trials. They do if marked trials are at least half of all.
    pub fn uses_marked(&self) -> bool {
        let mut used = self.trials.iter().filter(|trial| trial.used);
        used.any(TrialValues::is_marked)
    }

    /// Values of a quantity in the used trials.
    pub(crate) fn used_values(&self, of: Derived) -> Vec<f64> {
        let used = self.trials.iter().filter(|trial| trial.used);
        used.filter_map(|trial| trial.values.get(&of).copied())
            .collect()
    }

    /// Values of a quantity by repetition, each from the last used attempt.
    pub fn by_repetition(&self, of: Derived) -> Vec<(u32, f64)> {
        let trials = self.trials.iter().chain(&self.captured_trials);
        let last: BTreeMap<u32, f64> = trials
            .filter(|trial| trial.used)
            .filter_map(|trial| Some((trial.repetition, *trial.values.get(&of)?)))
            .collect();
        last.into_iter().collect()
    }

    /// Adds the estimates, failures and warnings of the cell's captured trials.
    pub(crate) fn add_captured(&mut self, captured: CellSummary) {
        self.estimates.extend(captured.estimates);
        self.captured_trials = captured.trials;
        self.n_incomplete += captured.n_incomplete;
        for (own, of_capture) in [
            (&mut self.failed, captured.failed),
            (&mut self.skipped, captured.skipped),
        ] {
            for (reason, count) in of_capture {
                *own.entry(format!("captured trials: {reason}")).or_default() += count;
            }
        }
        self.warnings = merge(self.warnings.iter().chain(&captured.warnings));
    }

    /// Hosts that appear in the cell's records.
    pub(crate) fn hosts(&self) -> BTreeSet<HostName> {
        self.cpus.keys().copied().collect()
    }

    /// Number of failed trials.
    pub fn n_failed(&self) -> usize {
        self.failed.values().sum()
    }

    /// True if a trial failed for a reason other than incomplete work, even if a retry succeeded.
    /// Incomplete trials count only if the cell has no complete one.
    pub fn has_failed(&self) -> bool {
        self.n_failed() > self.n_incomplete || (self.n == 0 && self.n_incomplete > 0)
    }

    /// Number of skipped trials.
    pub fn n_skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// Segmentation regime in words: `tso`, or that of each end if they differ. `None` if no regime
    /// was read.
    pub fn regime(&self) -> Option<String> {
        let words =
            |regimes: &BTreeSet<String>| regimes.iter().cloned().collect::<Vec<_>>().join(" or ");
        let ends: Vec<(HostName, String)> = self
            .regimes
            .iter()
            .map(|(&end, regimes)| (end, words(regimes)))
            .collect();
        match ends.as_slice() {
            [] => None,
            [(_, one), others @ ..] if others.iter().all(|(_, other)| other == one) => {
                Some(one.clone())
            }
            ends => Some(
                ends.iter()
                    .map(|(end, regime)| format!("{end} {regime}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }

    pub(crate) fn new(study: &Study, cell: &Cell, records: &[&Record]) -> CellSummary {
        let trials = trials(records);
        let n_marked = trials.iter().filter(|trial| trial.is_marked()).count();
        let first = records.iter().find(|record| record.is_measured());
        let counts_instructions =
            first.is_some_and(|record| record.instructions_per_ns().is_some());
        let least = counts_instructions.then(|| LeastSpread::of(&cell.knobs).between);
        let estimates = estimates(&trials, least);
        let asked = asked(study, cell, &estimates);
        let asked = in_its_unit(asked, counts_instructions);
        let stand_in = stands_in(&estimates, asked);
        let main = stand_in.unwrap_or(asked);
        let converged = study.measure.target.map(|target| {
            estimates
                .get(&main)
                .is_some_and(|estimate| estimate.converged(target))
        });
        let warnings: Vec<Vec<Warning>> = records.iter().map(warnings_of).collect();
        let mut summary = CellSummary {
            name: cell.name.clone(),
            knobs: cell.knobs.clone(),
            workload: cell.knobs.workload_kind(),
            load: Load::new(&cell.knobs),
            n: trials.iter().filter(|trial| trial.used).count(),
            n_marked,
            all_marked: n_marked > 0 && n_marked == trials.len(),
            counts_instructions,
            work: first.and_then(|record| record.work),
            stops_early: study.stops_early(),
            failed: BTreeMap::new(),
            n_incomplete: records.iter().filter(|one| one.is_incomplete()).count(),
            skipped: BTreeMap::new(),
            warnings: warned(warnings.iter().map(Vec::as_slice)),
            regimes: BTreeMap::new(),
            environments: BTreeMap::new(),
            cpus: BTreeMap::new(),
            main,
            main_stands_in: stand_in.is_some(),
            converged,
            estimates,
            trials,
            captured_trials: Vec::new(),
            host_rows: Vec::new(),
            skew_us: None,
            fleet: None,
            operations: Vec::new(),
            series: BTreeMap::new(),
            profiles: Vec::new(),
            priced: PricedCosts::new(),
        };
        summary.add_hosts(study, records);
        for record in records {
            summary.add_record(record);
        }
        summary
    }

    /// Adds what the records of the used trials have by host, operation and function.
    fn add_hosts(&mut self, study: &Study, records: &[&Record]) {
        let places = records
            .iter()
            .map(|&record| ((record.repetition, record.attempt), record));
        let by_place: HashMap<(u32, u32), &Record> = places.collect();
        let used = self.trials.iter().filter(|trial| trial.used);
        let used: Vec<(&Record, &Values)> = used
            .filter_map(|trial| {
                let record = by_place.get(&(trial.repetition, trial.attempt))?;
                Some((*record, &trial.values))
            })
            .collect();
        let counted: Vec<&Record> = used.iter().map(|(record, _)| *record).collect();
        self.operations = operations(&counted);
        let of_named_hosts = counted
            .iter()
            .filter(|record| record.bed == Bed::Hosts.word());
        let of_named_hosts: Vec<_> = of_named_hosts.map(|record| &record.hosts).collect();
        self.host_rows = host_rows::rows(&of_named_hosts, &self.estimates);
        self.skew_us = host_rows::skew_us(&of_named_hosts);
        if self.knobs.word("pattern").as_deref() == Some("rounds") {
            self.fleet = Fleet::of(&counted, study.measure.min_effect);
        }
        for (record, _) in &used {
            for (&host, found) in &record.hosts {
                if let Some(series) = &found.series {
                    let first = self.series.entry(host);
                    first.or_insert_with(|| ConnectionSeries::clone(series));
                }
            }
        }
        let published = study.published_functions.iter();
        let functions: Vec<&str> = published
            .flat_map(|published| &published.ratios)
            .map(|ratio| ratio.ours.as_str())
            .collect();
        self.profiles = profiles(&used, self.knobs.has_transactions(), &functions);
    }

    /// Adds a trial's outcome, and the state of its hosts.
    fn add_record(&mut self, record: &Record) {
        match &record.outcome {
            Outcome::Measured => {}
            Outcome::Failed { reason } => *self.failed.entry(reason.clone()).or_default() += 1,
            Outcome::Skipped { reason } => *self.skipped.entry(reason.clone()).or_default() += 1,
        }
        for (&host, found) in &record.hosts {
            let environments = self.environments.entry(host).or_default();
            for port in found.ports.values() {
                if !port.segmentation.is_empty() {
                    let regimes = self.regimes.entry(host).or_default();
                    regimes.insert(port.segmentation.clone());
                }
                if !environments.contains(&**port) {
                    environments.push(Environment::clone(port));
                }
            }
            let cpus = record.cpus_of(host);
            let cpus = cpus.map(|(machine, cpu)| (machine.to_string(), cpu));
            self.cpus.entry(host).or_default().extend(cpus);
        }
    }
}

/// Measured trials with their values, sorted by repetition and attempt.
///
/// Marks separate unusual trials from the others. If at least half of the trials have one, the mark
/// describes this machine's normal state, and all trials are used.
fn trials(records: &[&Record]) -> Vec<TrialValues> {
    let measured = records.iter().filter(|record| record.is_measured());
    let mut trials: Vec<TrialValues> = measured
        .map(|record| {
            let codes = record.warnings.iter().map(|warning| warning.code);
            TrialValues {
                repetition: record.repetition,
                attempt: record.attempt,
                state: codes.filter(|code| code.marks()).collect(),
                used: false,
                values: derive(record),
            }
        })
        .collect();
    trials.sort_by_key(|trial| (trial.repetition, trial.attempt));
    let n_marked = trials.iter().filter(|trial| trial.is_marked()).count();
    let is_usual = 2 * n_marked >= trials.len();
    for trial in &mut trials {
        trial.used = is_usual || !trial.is_marked();
    }
    trials
}

/// Estimates of every quantity that at least one used trial has. `least` is the least spread of trials whose
/// clock counts instructions.
fn estimates(trials: &[TrialValues], least: Option<f64>) -> BTreeMap<Derived, Estimate> {
    let mut by_quantity: BTreeMap<Derived, Vec<f64>> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.used) {
        for (&derived, &value) in &trial.values {
            by_quantity.entry(derived).or_default().push(value);
        }
    }
    let estimate = |values: Vec<f64>| match least {
        Some(least) => of_mean(&values, least),
        None => Estimate::new(values),
    };
    let each = by_quantity.into_iter();
    each.filter_map(|(derived, values)| Some((derived, estimate(values)?)))
        .collect()
}

/// Least standard deviations of counts of instructions, as fractions: those of many snapshots and seeds of one
/// kernel (docs/kernels.md). Three values show less by chance.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LeastSpread {
    /// Standard deviation between snapshots, whose kernels have different layouts.
    pub between: f64,
    /// Standard deviation of a ratio of two restores of one snapshot with one seed.
    pub inside: f64,
}

impl LeastSpread {
    /// Spread of cells with these knobs.
    pub(crate) fn of(knobs: &Knobs) -> LeastSpread {
        let (between, inside) = match knobs.workload_kind() {
            Some(WorkloadKind::Rr) => (1.6e-4, 3e-5),
            Some(WorkloadKind::Crr) => (1.6e-4, 1e-4),
            _ => (2e-4, 1e-4),
        };
        LeastSpread { between, inside }
    }
}

/// Main quantity: the study's, else the CPU time per transaction or KiB.
fn asked(study: &Study, cell: &Cell, estimates: &BTreeMap<Derived, Estimate>) -> Derived {
    study.measure.quantity.unwrap_or_else(|| {
        let (exact, by_proc) = if cell.knobs.has_transactions() {
            (Figure::ExactUsPerTransaction, Figure::CpuUsPerTransaction)
        } else {
            (Figure::ExactUsPerKib, Figure::CpuUsPerKib)
        };
        // Exact time is preferred only if every trial with a cost has it: a mix of methods cannot
        // be compared.
        let n = |kind| estimates.get(&Derived::total(kind)).map_or(0, |one| one.n);
        let has_exact = n(exact) > 0 && n(exact) >= n(by_proc);
        Derived::total(if has_exact { exact } else { by_proc })
    })
}

/// Warnings of a trial. Those of an incomplete trial are dropped except those that made it fail,
/// because its numbers are not used.
fn warnings_of(record: &&Record) -> Vec<Warning> {
    let is_incomplete = record.is_incomplete();
    let all = record.warnings.iter();
    all.filter(|warning| !is_incomplete || warning.fails())
        .cloned()
        .collect()
}

/// Quantity `asked`, converted to its counterpart in instructions if the cell counts instructions.
fn in_its_unit(asked: Derived, counts_instructions: bool) -> Derived {
    match counts_instructions {
        true => Derived {
            kind: asked.kind.in_instructions(),
            ..asked
        },
        false => asked,
    }
}

/// Sum of both ends, if one end was asked for and only the sum is known.
fn stands_in(estimates: &BTreeMap<Derived, Estimate>, asked: Derived) -> Option<Derived> {
    let both = Derived::total(asked.kind);
    (!estimates.contains_key(&asked) && both != asked && estimates.contains_key(&both))
        .then_some(both)
}

/// Names of knobs whose values differ between two cells, sorted.
pub(crate) fn differing<'a>(one: &'a Knobs, other: &'a Knobs) -> impl Iterator<Item = &'a str> {
    let names: BTreeSet<&str> = one
        .iter()
        .chain(other.iter())
        .map(|(name, _)| name)
        .collect();
    names
        .into_iter()
        .filter(|name| one.value(name) != other.value(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_or_a_bottleneck_fixes_the_work() {
        let check = |pairs: &[(&str, &str)], expected: Option<&str>| {
            let mut knobs = Knobs::default();
            for (name, value) in pairs {
                knobs.set(name, value).unwrap();
            }
            let expected = expected.map_or(Load::CpuBound, |text| Load::FixedRate(text.into()));
            assert_eq!(Load::new(&knobs), expected);
        };
        check(&[], None);
        let two = [
            ("a.workload", "rr"),
            ("b.workload", "stream"),
            ("b.rate", "1Mbit"),
        ];
        check(&two, None);
        let rates = [("a.transaction_rate", "5/s")];
        check(&[&two[..], &rates].concat(), Some("a 5/s, b 1Mbit"));
        check(&[("rate", "unlimited")], None);
        check(&[("rate", "1Gbit")], Some("rate 1Gbit"));
        check(
            &[("transaction_rate", "10/s")],
            Some("transaction_rate 10/s"),
        );
        check(
            &[("server.bottleneck", "941Mbit")],
            Some("bottleneck 941Mbit"),
        );
    }
}
