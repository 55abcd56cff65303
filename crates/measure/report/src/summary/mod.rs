//! One estimate for each cell and quantity, from a study and its records.
//!
//! No trial is dropped as an outlier. Trials marked by a warning are not used as long as the cell has
//! unmarked ones.

pub(crate) mod groups;
pub(crate) mod published_functions;
pub(crate) mod published_table;

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{Cell, Environment, HostName, Record, Study};

use crate::derive::cell::CellSummary;
use crate::derive::machines::Machines;
use crate::derive::opening::{Openings, openings};
use crate::derive::priced::{PricedCosts, Prices};
use crate::derive::warned::{self, Warned};
use crate::judge::comparison::{Comparison, Earlier, against_baseline, comparisons};
use crate::judge::conclusions::{Finding, findings};
use crate::judge::contrasts::{MainContrast, main_contrasts};
use crate::judge::differences::{MachinesAndCells, differences};
use crate::judge::effects::{Effect, effects};
use crate::judge::held::Held;
use crate::judge::meter_cost::{MeterCost, meter_costs};
use crate::judge::second_clock::{ByInstructions, cells_to_count};
use crate::judge::statements::{Tested, tested};
use crate::judge::stored::{RUNS_NAMED_MAX, RunCells, StoredRuns};
use crate::judge::thresholds::{Judged, Verdict, judge, judge_baseline};
use crate::summary::published_functions::ratios;

/// Data of all forms of a report.
#[derive(Debug, Clone)]
pub struct Summary {
    /// The study.
    pub study: Study,
    /// Machines of the records.
    pub machines: Machines,
    /// Beds of the records, each once.
    pub beds: Vec<String>,
    /// Start times of the first and the last trial, RFC 3339.
    pub started: Option<(String, String)>,
    /// Number of repetitions that have an outcome, over all cells.
    pub trials_done: usize,
    /// Smallest number of repetitions that the study asks for, over all cells.
    pub trials_planned: usize,
    /// Number of records that belong to no cell of this study. They are not used.
    pub records_of_others: usize,
    /// Cells in the study's order, without those that only measure the cost of a meter.
    pub cells: Vec<CellSummary>,
    /// Costs of the standing meters, if the study asks for them.
    pub meter_costs: Vec<MeterCost>,
    /// Each threshold at each of its cells.
    pub judged: Vec<Judged>,
    /// Findings of the study's conclusions.
    pub findings: Vec<Finding>,
    /// Published statements that the study tests.
    pub statements: Vec<Tested>,
    /// Effects of the knobs in which the cells differ.
    pub effects: Vec<Effect>,
    /// Findings and effects in instructions, where time does not decide. `None` if the second clock was not used.
    pub by_instructions: Option<ByInstructions>,
    /// Contrasts that the study must decide.
    pub main_contrasts: Vec<MainContrast>,
    /// Comparisons of pairs of cells, if they are asked for.
    pub comparisons: Vec<Comparison>,
    /// Differences of conditions between the compared runs, a line for each.
    pub differences: Vec<String>,
    /// Beginnings of connections, if the study captured them.
    pub openings: Option<Openings>,
}

impl Summary {
    /// Summarizes the available records, which may be a part of those that the study asks for.
    pub fn new(study: &Study, records: &[Record]) -> Summary {
        Summary::priced(study, records, &|_| PricedCosts::new())
    }

    /// Summarizes the available records, with the reasons that prices give for changes of CPU time.
    pub fn priced(study: &Study, records: &[Record], prices: &Prices<'_>) -> Summary {
        // The name alone does not assign a trial to a cell: with other knobs it was a different cell.
        let cell_of = |record: &Record| {
            let of = |cell: &Cell| cell.name == record.cell && cell.knobs == *record.knobs;
            record.study == study.name && study.cells.iter().any(of)
        };
        let (ours, others): (Vec<&Record>, Vec<&Record>) =
            records.iter().partition(|record| cell_of(record));
        let mut beds = Vec::new();
        for record in &ours {
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
                CellSummary {
                    priced: prices(&of_cell),
                    ..CellSummary::new(study, cell, &of_cell)
                }
            })
            .collect();
        let trials_planned = cells.iter().map(|cell| planned(study, cell, &done)).sum();
        let meter_costs = meter_costs(study, &cells);
        let cells = with_captures(study, cells);
        let findings = findings(study, &cells);
        Summary {
            judged: judge(study, &cells),
            effects: effects(&cells, &findings),
            main_contrasts: main_contrasts(study, &cells),
            comparisons: comparisons(study, &cells),
            differences: Vec::new(),
            by_instructions: None,
            statements: tested(
                study,
                &findings,
                &of_functions(study, &cells),
                &BTreeMap::new(),
            ),
            findings,
            openings: openings(study, &cells, &ours),
            study: study.clone(),
            machines: Machines::of(&ours),
            beds,
            started: started().min().cloned().zip(started().max().cloned()),
            trials_done: done.len(),
            trials_planned,
            records_of_others: others.len(),
            cells,
            meter_costs,
        }
    }

    /// Names of the cells that the second clock can decide: those of findings and effects that time leaves undecided, or of
    /// all findings and effects of CPU time.
    pub fn cells_for_second_clock(&self, all: bool) -> BTreeSet<String> {
        cells_to_count(&self.study, &self.cells, &self.effects, all)
    }

    /// Adds the findings and effects of `of_guests`, the same study in instructions, and decides statements that time does not.
    pub fn add_instructions(&mut self, of_guests: &Summary) {
        let kernels = of_guests.machines.each.iter();
        let by = ByInstructions::new(
            (&self.findings, &self.effects),
            (&of_guests.cells, &of_guests.findings, &of_guests.effects),
            kernels.map(|machine| machine.kernel.clone()).collect(),
        );
        let functions = of_functions(&self.study, &self.cells);
        self.statements = tested(&self.study, &self.findings, &functions, &by.findings);
        self.by_instructions = Some(by);
    }

    /// Compares each cell with the cell of earlier runs with the same name and knobs. Judges thresholds on
    /// the baseline. If the study has none, each cell gets a decision anyway.
    pub fn hold_against(&mut self, earlier: &Earlier<'_, Summary>) {
        let after = || std::iter::once(&*self).chain(earlier.beside);
        let runs = StoredRuns {
            before: earlier.runs.iter().map(Summary::run_cells).collect(),
            after: after().map(Summary::run_cells).collect(),
        };
        let before = MachinesAndCells::new(
            earlier
                .runs
                .iter()
                .map(|run| (&run.machines.each, &run.cells)),
        );
        let now = MachinesAndCells::new(after().map(|run| (&run.machines.each, &run.cells)));
        let is_other_kernel = before.kernels() != now.kernels();
        let to_decide = |cell: &str, runs_needed: Option<usize>| {
            to_decide(earlier, is_other_kernel, cell, runs_needed)
        };
        let comparisons = against_baseline(&self.cells, &runs, earlier.min_effect, to_decide);
        let judged = judge_baseline(&self.study.thresholds, &self.cells, &runs);
        self.differences = differences(&before, &now);
        self.comparisons = comparisons;
        self.judged.extend(judged);
    }

    fn run_cells(&self) -> RunCells<'_> {
        RunCells {
            cells: &self.cells,
            started: self.started.as_ref().map(|(first, _)| first.as_str()),
        }
    }

    /// Contrasts that the study must decide but that are not decided.
    pub fn undecided(&self) -> impl Iterator<Item = &MainContrast> {
        let contrasts = self.main_contrasts.iter();
        contrasts.filter(|contrast| !contrast.is_decided(&self.study))
    }

    /// Hosts that have a record in any cell.
    pub fn hosts_of_cells(&self) -> BTreeSet<HostName> {
        self.cells.iter().flat_map(CellSummary::hosts).collect()
    }

    /// States of a host's ports as read back, each with the cells that had it.
    pub fn environments(&self, host: HostName) -> Vec<(Vec<&str>, &Environment)> {
        let mut states: Vec<(Vec<&str>, &Environment)> = Vec::new();
        for cell in &self.cells {
            for environment in cell.environments.get(&host).into_iter().flatten() {
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
        warned::merge(self.cells.iter().flat_map(|cell| &cell.warnings))
    }

    /// Worst verdict of all thresholds. `None` without thresholds.
    pub fn worst_verdict(&self) -> Option<Verdict> {
        self.judged.iter().map(|judged| judged.verdict).max()
    }

    /// True if fewer repetitions have an outcome than the study asks for.
    pub fn is_partial(&self) -> bool {
        self.trials_done < self.trials_planned
    }

    /// True if the study sets a target width and a cell did not reach it.
    pub fn is_unconverged(&self) -> bool {
        self.cells.iter().any(|cell| cell.converged == Some(false))
    }
}

/// Results for the statements that published functions test.
fn of_functions(study: &Study, cells: &[CellSummary]) -> Vec<(String, Held)> {
    let rows = ratios(study, cells);
    let tests = rows.iter().filter_map(|row| row.tests());
    tests.map(|(id, held)| (id.to_string(), held)).collect()
}

/// Cells without those of captures and of meters' costs. What the captures found is added to their cells.
fn with_captures(study: &Study, cells: Vec<CellSummary>) -> Vec<CellSummary> {
    let (mut own, mut captured) = (Vec::new(), Vec::new());
    for (cell, summary) in study.cells.iter().zip(cells) {
        match &cell.captured {
            Some(of) => captured.push((of, summary)),
            None if cell.meter_trial.is_none() => own.push(summary),
            None => {}
        }
    }
    for (of, captured) in captured {
        if let Some(own) = own.iter_mut().find(|own| own.name == *of) {
            own.add_captured(captured);
        }
    }
    own
}

/// Command that makes the runs for a decision that stored runs do not allow.
fn to_decide(
    earlier: &Earlier<'_, Summary>,
    is_other_kernel: bool,
    cell: &str,
    runs_needed: Option<usize>,
) -> String {
    let Earlier {
        study,
        for_compare,
        for_run,
        directory,
        ..
    } = earlier;
    let are_several = earlier.runs.len() + earlier.beside.len() > 1;
    match runs_needed.filter(|runs| *runs <= RUNS_NAMED_MAX) {
        _ if is_other_kernel => format!(
            "tcpcost kernels OLD NEW {study} (instructions in guests of both kernels, on any machine)"
        ),
        Some(runs) if are_several => format!(
            "for a change of 20 % about {runs} runs of each, in turn: tcpcost run {study}{for_run} --runs {runs} --baseline {directory} --with tcpcost=OLD"
        ),
        _ => format!(
            "tcpcost compare {study}{for_compare} --cell \"{cell}\" --with tcpcost=OLD (2 minutes, in turn; of a setting: --b KNOB=VALUE)"
        ),
    }
}

/// Number of repetitions that the study asks of a cell. For a cell that is unavailable here, the number of
/// those that were tried, because it is not tried again.
fn planned(study: &Study, cell: &CellSummary, done: &BTreeSet<(&str, u32)>) -> usize {
    let cannot_be_had = cell.trials.is_empty() && cell.n_skipped() > 0 && cell.n_failed() == 0;
    if cannot_be_had {
        done.iter().filter(|(name, _)| *name == cell.name).count()
    } else {
        let mut cells = study.cells.iter();
        let asked = cells.find(|asked| asked.name == cell.name);
        let share = study.measure.share;
        asked.map_or(0, |asked| share.count(study.repetitions(asked)) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tcpcost_study::{Knobs, Machine, Outcome, SCHEMA_VERSION, Topology};

    fn record(cell: &str, repetition: u32, outcome: Outcome) -> Record {
        Record {
            schema_version: SCHEMA_VERSION,
            study: "s".into(),
            cell: cell.into(),
            knobs: Knobs::default().into(),
            repetition,
            attempt: 0,
            seed: 1,
            started: format!("2026-01-01T00:00:{repetition:02}Z"),
            bed: "netns".into(),
            captured: false,
            interval_ns: 1,
            took_ns: None,
            work: None,
            outcome,
            warnings: Vec::new(),
            cpu_distances: Vec::new(),
            topology: Topology::default().into(),
            machines: BTreeMap::from([("a".to_string(), Machine::default().into())]).into(),
            hosts: BTreeMap::new(),
        }
    }

    #[test]
    fn a_cell_that_cannot_be_had_is_asked_once_and_others_are_not_mixed_in() {
        let study = "[vary]\nsend_with = [\"send\", \"zerocopy\"]";
        let study = Study::parse("s", study, "s.toml").unwrap();
        let skipped = Outcome::Skipped {
            reason: "no".into(),
        };
        let record = |cell: &str, repetition, outcome| {
            let mut record = record(cell, repetition, outcome);
            let (knob, value) = cell.split_once('=').unwrap();
            record.knobs.set(knob, value).unwrap();
            record
        };
        let mut records = vec![record("send_with=zerocopy", 0, skipped)];
        records.push(record("send_with=send", 0, Outcome::Measured));
        records.push(record("send_with=write", 0, Outcome::Measured));
        records.push(record("send_with=send", 1, Outcome::Measured));
        records[3].study = "another study".into();
        let mut set_otherwise = records[1].clone();
        set_otherwise.repetition = 2;
        set_otherwise.knobs.set("flows", "2").unwrap();
        records.push(set_otherwise);
        let summary = Summary::new(&study, &records);
        assert_eq!((summary.trials_done, summary.trials_planned), (2, 7));
        assert!(summary.is_partial());
        assert_eq!(summary.records_of_others, 3);
        assert_eq!((summary.cells[0].n, summary.cells[1].n), (1, 0));
    }
}
