//! The trials of one cell to one estimate per quantity.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{
    Bed, Cell, ConnectionSeries, Derived, Environment, Figure, FixedWork, HostName, Knobs, Outcome,
    Record, Study, Value, Warning, WarningCode, WorkloadKind,
};

use crate::derive::{Values, derive};
use crate::estimate::Estimate;
use crate::fleet::Fleet;
use crate::host_rows::{self, HostRow};
use crate::operations::{OperationSummary, operations};
use crate::profile::{Profile, profiles};
use crate::warned::{Warned, merge, warned};

/// What holds a cell's amount of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Load {
    /// A rate that the study sets, so that cells do equal work; the text says which.
    FixedRate(String),
    /// Nothing but the CPU.
    CpuBound,
}

impl Load {
    /// Of a cell's knobs: `rate`, `transaction_rate` or a `bottleneck` at either end fixes it.
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

    /// Of several groups each must have a rate.
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
    /// Try, from 0.
    pub attempt: u32,
    /// The state of the machine that a warning marks it for; empty of a quiet one.
    pub state: BTreeSet<WarningCode>,
    /// Whether the estimates are made of it.
    pub used: bool,
    /// Its numbers.
    pub values: Values,
}

/// What the trials of one cell amount to.
#[derive(Debug, Clone)]
pub struct CellSummary {
    /// Name in tables.
    pub name: String,
    /// What is set.
    pub knobs: Knobs,
    /// What traffic; absent where groups of connections do different things.
    pub workload: Option<WorkloadKind>,
    /// Fixed rate or CPU-bound.
    pub load: Load,
    /// Measured trials that the estimates are made of.
    pub n: usize,
    /// Measured trials that a warning marks.
    pub n_marked: usize,
    /// Whether every measured trial is marked.
    pub all_marked: bool,
    /// Whether the clock of its trials counts instructions: its costs are in them, and no figure is a time.
    pub counts_instructions: bool,
    /// What ended its trials' intervals in place of a time.
    pub work: Option<FixedWork>,
    /// Whether intervals of its contrasts hold at every look, since the study goes on until they are narrow.
    pub stops_early: bool,
    /// Trials that failed, and why: reason, count.
    pub failed: BTreeMap<String, usize>,
    /// Failed trials that ran and did not do their work.
    pub n_incomplete: usize,
    /// Trials that were skipped, and why.
    pub skipped: BTreeMap<String, usize>,
    /// Warnings, by code.
    pub warnings: Vec<Warned>,
    /// Segmentation regimes as read back, by host; more than one where trials differ.
    pub regimes: BTreeMap<HostName, BTreeSet<String>>,
    /// The state of each host's ports as read back, each once; more than one where trials differ.
    pub environments: BTreeMap<HostName, Vec<Environment>>,
    /// CPUs of each host's threads, with their machine.
    pub cpus: BTreeMap<HostName, BTreeSet<(String, usize)>>,
    /// The main quantity: the study's, else by the kind of workload. Where the study asks for one
    /// end's CPU and the bed cannot tell the ends apart, both ends together stand in.
    pub main: Derived,
    /// Whether both ends stand in for the one that was asked for.
    pub main_stands_in: bool,
    /// Whether the main quantity's interval is within the study's target; absent without a target.
    pub converged: Option<bool>,
    /// Estimates of everything that at least one trial has.
    pub estimates: BTreeMap<Derived, Estimate>,
    /// The measured trials, by repetition and attempt.
    pub trials: Vec<TrialValues>,
    /// The captured ones, of which only what passed is told.
    pub captured_trials: Vec<TrialValues>,
    /// Hosts beside each other, of a study that names them; empty otherwise.
    pub host_rows: Vec<HostRow>,
    /// The longest time that can have been between the starts of two of them, µs.
    pub skew_us: Option<f64>,
    /// What rounds of pairs tell of hosts; absent where there were none.
    pub fleet: Option<Fleet>,
    /// How long each operation of its programs took; empty where it has none.
    pub operations: Vec<OperationSummary>,
    /// The first connection of each host over time, of the first trial that the estimates are made of and that has it.
    pub series: BTreeMap<HostName, ConnectionSeries>,
    /// Where the CPU time went by call chain: by end, or of both. Empty without the meter `profile`.
    pub profiles: Vec<Profile>,
}

impl TrialValues {
    /// Whether a warning marks it.
    pub fn is_marked(&self) -> bool {
        !self.state.is_empty()
    }
}

impl CellSummary {
    /// Whether work is counted in transactions.
    pub fn has_transactions(&self) -> bool {
        self.knobs.has_transactions()
    }

    /// The estimate of the main quantity.
    pub fn main_estimate(&self) -> Option<&Estimate> {
        self.estimates.get(&self.main)
    }

    /// The quantity itself, or both ends together where only that is known.
    pub fn has_or_both(&self, asked: Derived) -> Derived {
        let asked = in_its_unit(asked, self.counts_instructions);
        stands_in(&self.estimates, asked).unwrap_or(asked)
    }

    /// Whether the estimates are made of marked trials, too: they are left out as long as they are the fewer.
    pub fn uses_marked(&self) -> bool {
        let mut used = self.trials.iter().filter(|trial| trial.used);
        used.any(TrialValues::is_marked)
    }

    /// A quantity of the trials that the estimates are made of.
    pub(crate) fn used_values(&self, of: Derived) -> Vec<f64> {
        let used = self.trials.iter().filter(|trial| trial.used);
        used.filter_map(|trial| trial.values.get(&of).copied())
            .collect()
    }

    /// A quantity by repetition, of the last try that counts.
    pub fn by_repetition(&self, of: Derived) -> Vec<(u32, f64)> {
        let trials = self.trials.iter().chain(&self.captured_trials);
        let last: BTreeMap<u32, f64> = trials
            .filter(|trial| trial.used)
            .filter_map(|trial| Some((trial.repetition, *trial.values.get(&of)?)))
            .collect();
        last.into_iter().collect()
    }

    /// Takes in what the cell's captured trials tell.
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

    /// The hosts that found something.
    pub(crate) fn hosts(&self) -> BTreeSet<HostName> {
        self.cpus.keys().copied().collect()
    }

    /// Trials that failed.
    pub fn n_failed(&self) -> usize {
        self.failed.values().sum()
    }

    /// True if a trial ended that should not have, also one that was repeated with success. One that ran and did too little is only
    /// missing, unless the cell has no other.
    pub fn has_failed(&self) -> bool {
        self.n_failed() > self.n_incomplete || (self.n == 0 && self.n_incomplete > 0)
    }

    /// Trials that were skipped.
    pub fn n_skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// The regime in words: `tso`, or both ends' where they differ; absent where none was read.
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
        let mut trials: Vec<TrialValues> = records
            .iter()
            .filter(|record| record.is_measured())
            .map(|record| TrialValues {
                repetition: record.repetition,
                attempt: record.attempt,
                state: record
                    .warnings
                    .iter()
                    .map(|warning| warning.code)
                    .filter(|code| code.marks())
                    .collect(),
                used: false,
                values: derive(record),
            })
            .collect();
        trials.sort_by_key(|trial| (trial.repetition, trial.attempt));
        let n_marked = trials.iter().filter(|trial| trial.is_marked()).count();
        let all_marked = n_marked > 0 && n_marked == trials.len();
        // A mark parts the odd trial from the others. Where most have it, it is how this machine is.
        let is_usual = 2 * n_marked >= trials.len();
        for trial in &mut trials {
            trial.used = is_usual || !trial.is_marked();
        }

        let mut of_trials: BTreeMap<Derived, Vec<f64>> = BTreeMap::new();
        for trial in trials.iter().filter(|trial| trial.used) {
            for (&derived, &value) in &trial.values {
                of_trials.entry(derived).or_default().push(value);
            }
        }
        let estimates: BTreeMap<Derived, Estimate> = of_trials
            .into_iter()
            .filter_map(|(derived, values)| Some((derived, Estimate::new(values)?)))
            .collect();

        let workload = cell.knobs.workload_kind();
        let first = records.iter().find(|record| record.is_measured());
        let counts_instructions =
            first.is_some_and(|record| record.instructions_per_ns().is_some());
        let asked = study.measure.quantity.unwrap_or_else(|| {
            let (exact, by_tick) = if cell.knobs.has_transactions() {
                (Figure::ExactUsPerTransaction, Figure::CpuUsPerTransaction)
            } else {
                (Figure::ExactUsPerKib, Figure::CpuUsPerKib)
            };
            // Better where every trial with a cost has it; a mixture of methods would compare nothing.
            let n = |kind| estimates.get(&Derived::total(kind)).map_or(0, |one| one.n);
            let has_exact = n(exact) > 0 && n(exact) >= n(by_tick);
            Derived::total(if has_exact { exact } else { by_tick })
        });
        let asked = in_its_unit(asked, counts_instructions);
        let stand_in = stands_in(&estimates, asked);
        let main = stand_in.unwrap_or(asked);
        let converged = study.measure.target.map(|target| {
            estimates
                .get(&main)
                .is_some_and(|estimate| estimate.converged(target))
        });

        // Of a trial that did not do its work only that is said: its numbers are not used.
        let warnings_of = |record: &&Record| -> Vec<Warning> {
            let is_incomplete = record.is_incomplete();
            let all = record.warnings.iter();
            all.filter(|warning| !is_incomplete || warning.fails())
                .cloned()
                .collect()
        };
        let warnings: Vec<Vec<Warning>> = records.iter().map(warnings_of).collect();
        let mut summary = CellSummary {
            name: cell.name.clone(),
            knobs: cell.knobs.clone(),
            workload,
            load: Load::new(&cell.knobs),
            n: trials.iter().filter(|trial| trial.used).count(),
            n_marked,
            all_marked,
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
        };
        let used: Vec<(&Record, &Values)> = summary
            .trials
            .iter()
            .filter(|trial| trial.used)
            .filter_map(|trial| {
                let place = (trial.repetition, trial.attempt);
                let is_it = |record: &&&Record| (record.repetition, record.attempt) == place;
                Some((*records.iter().find(is_it)?, &trial.values))
            })
            .collect();
        let counted: Vec<&Record> = used.iter().map(|(record, _)| *record).collect();
        summary.operations = operations(&counted);
        let named = counted
            .iter()
            .filter(|record| record.bed == Bed::Hosts.word());
        let named: Vec<_> = named.map(|record| &record.hosts).collect();
        summary.host_rows = host_rows::rows(&named, &summary.estimates);
        summary.skew_us = host_rows::skew_us(&named);
        if cell.knobs.word("pattern").as_deref() == Some("rounds") {
            summary.fleet = Fleet::of(&counted, study.measure.min_effect);
        }
        let published = study.published_functions.iter();
        let named: Vec<&str> = published
            .flat_map(|published| &published.ratios)
            .map(|(_, ours, _)| ours.as_str())
            .collect();
        for (record, _) in &used {
            for (&host, found) in &record.hosts {
                if let Some(series) = &found.series {
                    let first = summary.series.entry(host);
                    first.or_insert_with(|| series.clone());
                }
            }
        }
        summary.profiles = profiles(&used, summary.has_transactions(), &named);
        for record in records {
            match &record.outcome {
                Outcome::Measured => {}
                Outcome::Failed { reason } => {
                    *summary.failed.entry(reason.clone()).or_default() += 1;
                }
                Outcome::Skipped { reason } => {
                    *summary.skipped.entry(reason.clone()).or_default() += 1;
                }
            }
            for (&host, found) in &record.hosts {
                let environments = summary.environments.entry(host).or_default();
                for port in found.ports.values() {
                    if !port.segmentation.is_empty() {
                        let regimes = summary.regimes.entry(host).or_default();
                        regimes.insert(port.segmentation.clone());
                    }
                    if !environments.contains(port) {
                        environments.push(port.clone());
                    }
                }
                let cpus = record.cpus_of(host);
                let cpus = cpus.map(|(machine, cpu)| (machine.to_string(), cpu));
                summary.cpus.entry(host).or_default().extend(cpus);
            }
        }
        summary
    }
}

/// A cost in time as one in instructions, where these were counted.
fn in_its_unit(asked: Derived, counts_instructions: bool) -> Derived {
    match counts_instructions {
        true => Derived {
            kind: asked.kind.in_instructions(),
            ..asked
        },
        false => asked,
    }
}

/// Both ends together, where one end was asked for and only both are known.
fn stands_in(estimates: &BTreeMap<Derived, Estimate>, asked: Derived) -> Option<Derived> {
    let both = Derived::total(asked.kind);
    (!estimates.contains_key(&asked) && both != asked && estimates.contains_key(&both))
        .then_some(both)
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
