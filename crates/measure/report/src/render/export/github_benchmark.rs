//! JSON for github-action-benchmark's tool `customSmallerIsBetter`: a list of name, unit, value,
//! range, extra.
//!
//! Only figures where lower is better are exported, because the action would call a higher goodput
//! a regression.

use serde::Serialize;

use super::{names, pretty, tracked};
use crate::derive::number::show;
use crate::summary::Summary;

#[derive(Serialize)]
struct Benchmark {
    name: String,
    unit: &'static str,
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    range: Option<String>,
    extra: String,
}

/// List of the figures of all runs. Cells without numbers are omitted.
pub fn github_benchmark(summaries: &[Summary]) -> String {
    let mut list = Vec::new();
    for (summary, run) in summaries.iter().zip(names(summaries)) {
        for cell in &summary.cells {
            for (of, estimate) in tracked(summary, cell) {
                if of.kind.lower_is_better() != Some(true) {
                    continue;
                }
                let interval = estimate.lo.zip(estimate.hi);
                list.push(Benchmark {
                    name: format!("{run}: {}: {of}", cell.name),
                    unit: of.kind.unit(),
                    value: estimate.median,
                    range: interval.map(|(lo, hi)| format!("[{}, {}]", show(lo), show(hi))),
                    extra: format!("median of {} trials, {}", estimate.n, cell.load.name()),
                });
            }
        }
    }
    pretty(&list)
}
