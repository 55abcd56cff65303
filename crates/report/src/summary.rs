//! A study and its records to one estimate per cell and quantity.
//!
//! Nothing is dropped as an outlier. Trials marked by a warning stand aside as long as the cell has
//! unmarked ones.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{
    Cell, Derived, DerivedKind, End, Environment, HostEnvironment, Knobs, Outcome, Record, Study,
    Value, Warning, WarningCode, WorkloadKind,
};

use crate::derive::{Values, derive};
use crate::estimate::Estimate;
use crate::verdict::{Judged, Verdict, judge};

/// Everything that the renderings draw.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The study that was asked.
    pub study: Study,
    /// Machines the records were made on, each once; more than one spoils comparison.
    pub hosts: Vec<HostEnvironment>,
    /// Beds the records were made in, each once.
    pub beds: Vec<String>,
    /// When the first and the last trial started, RFC 3339.
    pub started: Option<(String, String)>,
    /// Repetitions that have an outcome, over all cells.
    pub trials_done: usize,
    /// Repetitions that the study asks for at least, over all cells.
    pub trials_planned: usize,
    /// Records that belong to no cell of this study; they are in no number.
    pub records_of_others: usize,
    /// The cells, in the study's order.
    pub cells: Vec<CellSummary>,
    /// Each threshold at each of its cells.
    pub judged: Vec<Judged>,
}

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
        let fixed = ["rate", "transaction_rate"]
            .into_iter()
            .map(|name| (name.to_string(), knobs.value(name)))
            .chain(
                End::BOTH
                    .into_iter()
                    .map(|end| ("bottleneck".to_string(), knobs.value_at(end, "bottleneck"))),
            )
            .find_map(|(name, value)| match value {
                Some(value @ (Value::BitsPerS(_) | Value::PerS(_))) => {
                    Some(format!("{name} {value}"))
                }
                _ => None,
            });
        fixed.map_or(Load::CpuBound, Load::FixedRate)
    }

    /// `fixed rate` or `CPU-bound`.
    pub fn name(&self) -> &'static str {
        match self {
            Load::FixedRate(_) => "fixed rate",
            Load::CpuBound => "CPU-bound",
        }
    }
}

/// Warnings of one code, told once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warned {
    /// Which.
    pub code: WarningCode,
    /// In how many trials.
    pub count: usize,
    /// The text of the last one.
    pub text: String,
}

/// One measured trial of a cell.
#[derive(Debug, Clone)]
pub struct TrialValues {
    /// Repetition, from 0.
    pub repetition: u32,
    /// Try, from 0.
    pub attempt: u32,
    /// Whether a warning marks it.
    pub marked: bool,
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
    /// What traffic; absent for a workload that this version does not know.
    pub workload: Option<WorkloadKind>,
    /// Fixed rate or CPU-bound.
    pub load: Load,
    /// Measured trials that the estimates are made of.
    pub n: usize,
    /// Measured trials that a warning marks.
    pub n_marked: usize,
    /// Whether every measured trial is marked, so that the estimates are of marked ones.
    pub all_marked: bool,
    /// Trials that failed, and why: reason, count.
    pub failed: BTreeMap<String, usize>,
    /// Trials that were skipped, and why.
    pub skipped: BTreeMap<String, usize>,
    /// Warnings, by code.
    pub warnings: Vec<Warned>,
    /// Segmentation regimes as read back, by end; more than one where trials differ.
    pub regimes: BTreeMap<End, BTreeSet<String>>,
    /// The state of each end as read back, each once; more than one where trials differ.
    pub environments: BTreeMap<End, Vec<Environment>>,
    /// CPUs of each end's threads.
    pub cpus: BTreeMap<End, BTreeSet<usize>>,
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
}

impl CellSummary {
    /// Whether work is counted in transactions.
    pub fn has_transactions(&self) -> bool {
        self.workload.is_some_and(WorkloadKind::has_transactions)
    }

    /// The estimate of the main quantity.
    pub fn main_estimate(&self) -> Option<&Estimate> {
        self.estimates.get(&self.main)
    }

    /// The quantity itself, or both ends together where only that is known.
    pub fn has_or_both(&self, asked: Derived) -> Derived {
        stands_in(&self.estimates, asked).unwrap_or(asked)
    }

    /// A quantity by repetition, of the last try that counts: for [`Estimate::ratio`].
    pub fn by_repetition(&self, of: Derived) -> Vec<(u32, f64)> {
        let last: BTreeMap<u32, f64> = self
            .trials
            .iter()
            .filter(|trial| trial.used)
            .filter_map(|trial| Some((trial.repetition, *trial.values.get(&of)?)))
            .collect();
        last.into_iter().collect()
    }

    /// Trials that failed.
    pub fn n_failed(&self) -> usize {
        self.failed.values().sum()
    }

    /// Trials that were skipped.
    pub fn n_skipped(&self) -> usize {
        self.skipped.values().sum()
    }

    /// The regime in words: `tso`, or both ends' where they differ; absent where none was read.
    pub fn regime(&self) -> Option<String> {
        let words =
            |regimes: &BTreeSet<String>| regimes.iter().cloned().collect::<Vec<_>>().join(" or ");
        let ends: Vec<(End, String)> = self
            .regimes
            .iter()
            .map(|(&end, regimes)| (end, words(regimes)))
            .collect();
        match ends.as_slice() {
            [] => None,
            [(_, one)] => Some(one.clone()),
            [(_, one), (_, other)] if one == other => Some(one.clone()),
            ends => Some(
                ends.iter()
                    .map(|(end, regime)| format!("{end} {regime}"))
                    .collect::<Vec<_>>()
                    .join(", "),
            ),
        }
    }

    fn new(study: &Study, cell: &Cell, records: &[&Record]) -> CellSummary {
        let mut trials: Vec<TrialValues> = records
            .iter()
            .filter(|record| record.is_measured())
            .map(|record| TrialValues {
                repetition: record.repetition,
                attempt: record.attempt,
                marked: record.is_marked(),
                used: false,
                values: derive(record),
            })
            .collect();
        trials.sort_by_key(|trial| (trial.repetition, trial.attempt));
        let n_marked = trials.iter().filter(|trial| trial.marked).count();
        let all_marked = n_marked > 0 && n_marked == trials.len();
        for trial in &mut trials {
            trial.used = all_marked || !trial.marked;
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

        let workload = cell
            .knobs
            .word("workload")
            .and_then(|word| WorkloadKind::from_word(&word));
        let asked = study.measure.quantity.unwrap_or_else(|| {
            Derived::both(match workload {
                Some(kind) if kind.has_transactions() => DerivedKind::CpuUsPerTransaction,
                _ => DerivedKind::CpuUsPerKib,
            })
        });
        let stand_in = stands_in(&estimates, asked);
        let main = stand_in.unwrap_or(asked);
        let converged = study.measure.target.map(|target| {
            estimates
                .get(&main)
                .is_some_and(|estimate| estimate.converged(target))
        });

        let mut summary = CellSummary {
            name: cell.name.clone(),
            knobs: cell.knobs.clone(),
            workload,
            load: Load::new(&cell.knobs),
            n: trials.iter().filter(|trial| trial.used).count(),
            n_marked,
            all_marked,
            failed: BTreeMap::new(),
            skipped: BTreeMap::new(),
            warnings: warned(records.iter().flat_map(|record| &record.warnings)),
            regimes: BTreeMap::new(),
            environments: BTreeMap::new(),
            cpus: BTreeMap::new(),
            main,
            main_stands_in: stand_in.is_some(),
            converged,
            estimates,
            trials,
        };
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
            for (&end, found) in &record.ends {
                let regime = &found.environment.segmentation;
                if !regime.is_empty() {
                    let regimes = summary.regimes.entry(end).or_default();
                    regimes.insert(regime.clone());
                }
                let environments = summary.environments.entry(end).or_default();
                if !environments.contains(&found.environment) {
                    environments.push(found.environment.clone());
                }
                summary.cpus.entry(end).or_default().extend(&found.cpus);
            }
        }
        summary
    }
}

impl Summary {
    /// Of the records there are, all or a part of what the study asks for.
    pub fn new(study: &Study, records: &[Record]) -> Summary {
        let cell_of = |record: &Record| {
            let of_study = record.study == study.name;
            of_study && study.cells.iter().any(|cell| cell.name == record.cell)
        };
        let (ours, others): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|record| cell_of(record));
        let mut hosts: Vec<HostEnvironment> = Vec::new();
        let mut beds = Vec::new();
        for record in &ours {
            if !hosts.contains(&record.host) {
                hosts.push(record.host.clone());
            }
            if !record.bed.is_empty() && !beds.contains(&record.bed) {
                beds.push(record.bed.clone());
            }
        }
        let done: BTreeSet<(&str, u32)> = ours
            .iter()
            .map(|record| (record.cell.as_str(), record.repetition))
            .collect();
        let started = || ours.iter().map(|record| &record.started);
        let cells: Vec<CellSummary> = study
            .cells
            .iter()
            .map(|cell| {
                let of_cell: Vec<&Record> = ours
                    .iter()
                    .filter(|record| record.cell == cell.name)
                    .copied()
                    .collect();
                CellSummary::new(study, cell, &of_cell)
            })
            .collect();
        Summary {
            judged: judge(&study.thresholds, &cells),
            study: study.clone(),
            hosts,
            beds,
            started: started().min().cloned().zip(started().max().cloned()),
            trials_done: done.len(),
            trials_planned: cells.iter().map(|cell| planned(study, cell, &done)).sum(),
            records_of_others: others.len(),
            cells,
        }
    }

    /// The states of one end that were read back, each with the cells that had it.
    pub fn environments(&self, end: End) -> Vec<(Vec<&str>, &Environment)> {
        let mut states: Vec<(Vec<&str>, &Environment)> = Vec::new();
        for cell in &self.cells {
            for environment in cell.environments.get(&end).into_iter().flatten() {
                match states.iter_mut().find(|(_, seen)| *seen == environment) {
                    Some((cells, _)) => cells.push(&cell.name),
                    None => states.push((vec![&cell.name], environment)),
                }
            }
        }
        states
    }

    /// Warnings over all cells, by code.
    pub fn warnings(&self) -> Vec<Warned> {
        let mut all: Vec<Warned> = Vec::new();
        for warning in self.cells.iter().flat_map(|cell| &cell.warnings) {
            match all.iter_mut().find(|seen| seen.code == warning.code) {
                Some(seen) => seen.count += warning.count,
                None => all.push(warning.clone()),
            }
        }
        all.sort_by_key(|warned| warned.code);
        all
    }

    /// The worst verdict of all thresholds; absent without thresholds.
    pub fn worst_verdict(&self) -> Option<Verdict> {
        self.judged.iter().map(|judged| judged.verdict).max()
    }

    /// Whether fewer repetitions have an outcome than the study asks for.
    pub fn is_partial(&self) -> bool {
        self.trials_done < self.trials_planned
    }

    /// Whether the study set a width to reach and a cell did not reach it.
    pub fn is_unconverged(&self) -> bool {
        self.cells.iter().any(|cell| cell.converged == Some(false))
    }
}

/// Repetitions that the study asks of a cell. One that cannot be had here is not tried again: what
/// was tried is all that was asked.
fn planned(study: &Study, cell: &CellSummary, done: &BTreeSet<(&str, u32)>) -> usize {
    let cannot_be_had = cell.trials.is_empty() && cell.n_skipped() > 0 && cell.n_failed() == 0;
    if cannot_be_had {
        done.iter().filter(|(name, _)| *name == cell.name).count()
    } else {
        study.measure.repetitions as usize
    }
}

/// Both ends together, where one end was asked for and only both are known.
fn stands_in(estimates: &BTreeMap<Derived, Estimate>, asked: Derived) -> Option<Derived> {
    let both = Derived::both(asked.kind);
    (!estimates.contains_key(&asked) && both != asked && estimates.contains_key(&both))
        .then_some(both)
}

fn warned<'a>(warnings: impl Iterator<Item = &'a Warning>) -> Vec<Warned> {
    let mut by_code: BTreeMap<WarningCode, Warned> = BTreeMap::new();
    for Warning { code, text } in warnings {
        let warned = by_code.entry(*code).or_insert_with(|| Warned {
            code: *code,
            count: 0,
            text: String::new(),
        });
        warned.count += 1;
        warned.text.clone_from(text);
    }
    by_code.into_values().collect()
}

/// Whether a cell has all of these knobs, defaults included.
pub(crate) fn has_knobs(cell: &Knobs, wanted: &Knobs) -> bool {
    wanted
        .iter()
        .all(|(name, value)| cell.value(name).as_ref() == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{EndRecord, SCHEMA_VERSION};

    fn record(cell: &str, repetition: u32, outcome: Outcome) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            study: "s".into(),
            cell: cell.into(),
            knobs: Knobs::default(),
            repetition,
            attempt: 0,
            seed: 1,
            started: format!("2026-01-01T00:00:{repetition:02}Z"),
            bed: "netns".into(),
            interval_ns: 1,
            outcome,
            warnings: Vec::new(),
            host: HostEnvironment::default(),
            ends: BTreeMap::<End, EndRecord>::new(),
        }
    }

    #[test]
    fn a_cell_that_cannot_be_had_is_asked_once_and_others_are_not_mixed_in() {
        let study = "[vary]\nsend_with = [\"send\", \"zerocopy\"]";
        let study = Study::parse("s", study, "s.toml").unwrap();
        let skipped = Outcome::Skipped {
            reason: "no".into(),
        };
        let mut records = vec![record("send_with=zerocopy", 0, skipped)];
        records.push(record("send_with=send", 0, Outcome::Measured));
        records.push(record("another cell", 0, Outcome::Measured));
        records.push(record("send_with=send", 1, Outcome::Measured));
        records[3].study = "another study".into();
        let summary = Summary::new(&study, &records);
        assert_eq!((summary.trials_done, summary.trials_planned), (2, 7));
        assert!(summary.is_partial());
        assert_eq!(summary.records_of_others, 2);
        assert_eq!((summary.cells[0].n, summary.cells[1].n), (1, 0));
    }

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
