//! KTAP, version 1 (Documentation/dev-tools/ktap.rst): a test for each cell, for each threshold at
//! each cell, and for each comparison.
//!
//! An undecided threshold is skipped, not failed, as in the exit code (4, not 3).

use std::fmt::Write;

use super::names;
use crate::derive::cell::CellSummary;
use crate::derive::number::{show_in_unit, trials};
use crate::judge::comparison::Comparison;
use crate::judge::decision::Decision;
use crate::judge::thresholds::{Judged, Verdict};
use crate::summary::Summary;
use crate::words::comparisons::sentence;

pub(super) enum Result {
    /// The cell was measured, the threshold met, or the second side does not cost more.
    Ok,
    /// The cell failed, the threshold was missed, or the second side costs more.
    NotOk,
    /// No result; the text says why.
    Skip(String),
}

pub(super) struct Test {
    /// Name of the run and what was tested.
    pub(super) name: String,
    /// Lines before the result, for a reader.
    pub(super) diagnostics: Vec<String>,
    pub(super) result: Result,
}

/// Tests of each run, in order.
pub(super) fn tests(summaries: &[Summary]) -> Vec<Vec<Test>> {
    let runs = summaries.iter().zip(names(summaries));
    runs.map(|(summary, run)| {
        let cells = summary.cells.iter().map(|cell| of_cell(&run, cell));
        let judged = summary.judged.iter();
        let judged = judged.map(|judged| of_threshold(&run, judged));
        let comparisons = summary.comparisons.iter();
        let comparisons = comparisons.map(|one| of_comparison(&run, one));
        cells.chain(judged).chain(comparisons).collect()
    })
    .collect()
}

/// KTAP document of all runs.
pub fn ktap(summaries: &[Summary]) -> String {
    let tests: Vec<Test> = tests(summaries).into_iter().flatten().collect();
    let mut out = format!("KTAP version 1\n1..{}\n", tests.len());
    for (index, test) in tests.iter().enumerate() {
        for line in &test.diagnostics {
            let _ = writeln!(out, "# {}", plain(line));
        }
        let (result, directive) = match &test.result {
            Result::Ok => ("ok", String::new()),
            Result::NotOk => ("not ok", String::new()),
            Result::Skip(reason) => ("ok", format!(" # SKIP {}", plain(reason))),
        };
        let _ = writeln!(
            out,
            "{result} {} {}{directive}",
            index + 1,
            plain(&test.name)
        );
    }
    out
}

fn of_cell(run: &str, cell: &CellSummary) -> Test {
    let (unit, scale) = cell.main.kind.shown_unit();
    let found = cell.main_estimate().map(|estimate| {
        format!(
            "{} {} {unit}, {}",
            cell.main,
            show_in_unit(estimate, unit, scale),
            trials(cell.n)
        )
    });
    let failed = cell.failed.iter();
    let failed = failed.map(|(reason, count)| format!("failed {count} times: {reason}"));
    let reason = cell.skipped.keys().next();
    Test {
        name: format!("{run}: {}", cell.name),
        diagnostics: found.into_iter().chain(failed).collect(),
        result: match (cell.has_failed(), cell.n) {
            (true, _) => Result::NotOk,
            (false, 1..) => Result::Ok,
            (false, 0) => Result::Skip(reason.map_or("not run", String::as_str).to_string()),
        },
    }
}

/// Test of a comparison: it fails if the second side costs more, and is skipped if undecided.
fn of_comparison(run: &str, one: &Comparison) -> Test {
    let said = sentence(one);
    Test {
        name: format!("{run}: {} against {}", one.to, one.from),
        result: match one.final_decision() {
            Decision::Improves | Decision::Equivalent => Result::Ok,
            Decision::Inconclusive => Result::Skip(said.clone()),
            Decision::Regresses => Result::NotOk,
        },
        diagnostics: vec![said],
    }
}

fn of_threshold(run: &str, judged: &Judged) -> Test {
    let (of, limits) = (judged.quantity, judged.limits());
    let found = judged.estimate.as_ref();
    let unit = if judged.against.is_some() {
        "%"
    } else {
        of.kind.unit()
    };
    let found = found.map(|found| show_in_unit(found, unit, 1.0) + " " + unit);
    let cell = judged.cell.as_deref().unwrap_or("no cell");
    let undecided = match (&judged.cell, &found) {
        (None, _) => "inconclusive: the threshold holds for no cell of the study".to_string(),
        (_, None) => "inconclusive: nothing was measured".to_string(),
        (_, Some(found)) => format!("inconclusive: {found}"),
    };
    Test {
        name: format!("{run}: {cell}: {of} {limits}"),
        diagnostics: found
            .map(|found| format!("{of} {found}"))
            .into_iter()
            .collect(),
        result: match judged.verdict {
            Verdict::Met => Result::Ok,
            Verdict::Missed => Result::NotOk,
            Verdict::Inconclusive => Result::Skip(undecided),
        },
    }
}

/// Text on one line, without the `#` that begins a directive.
fn plain(text: &str) -> String {
    let text = text.replace('#', "_");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
