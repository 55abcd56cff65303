//! Exports of a summary for other programs, a file for each format. `docs/exports.md` describes
//! their use.

mod bmf;
mod github_benchmark;
mod junit;
mod ktap;
mod nipa;
mod openmetrics;

use serde::Serialize;
use tcpcost_study::{Derived, Figure};

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::summary::Summary;

pub use bmf::bmf;
pub use github_benchmark::github_benchmark;
pub use junit::junit;
pub use ktap::ktap;
pub use nipa::nipa;
pub use openmetrics::openmetrics;

/// Name of each run: that of its study, with a number if the study occurs more than once.
fn names(summaries: &[Summary]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (index, summary) in summaries.iter().enumerate() {
        let name = &summary.study.name;
        let same = |before: &&Summary| before.study.name == *name;
        match summaries[..index].iter().filter(same).count() {
            0 => names.push(name.clone()),
            before => names.push(format!("{name} ({})", before + 1)),
        }
    }
    names
}

fn pretty(of: &impl Serialize) -> String {
    serde_json::to_string_pretty(of).expect("text keys and finite numbers alone") + "\n"
}

/// Figures of a cell that are tracked from run to run: main quantity, amount of work, and
/// quantities with thresholds.
fn tracked<'a>(summary: &Summary, cell: &'a CellSummary) -> Vec<(Derived, &'a Estimate)> {
    let work = [Figure::Goodput, Figure::TransactionsPerS].map(Derived::total);
    let limited = summary.judged.iter();
    let limited = limited.filter(|judged| judged.cell.as_ref() == Some(&cell.name));
    let mut tracked: Vec<(Derived, &Estimate)> = Vec::new();
    for of in std::iter::once(cell.main)
        .chain(work)
        .chain(limited.map(|judged| judged.quantity))
    {
        if let Some(estimate) = cell.estimates.get(&of)
            && !tracked.iter().any(|(seen, _)| *seen == of)
        {
            tracked.push((of, estimate));
        }
    }
    tracked
}
