//! Bencher Metric Format: benchmark, measure, value with its bounds
//! (bencher.dev/docs/reference/bencher-metric-format).
//!
//! A benchmark is a cell, a measure a figure that is tracked. Bencher keeps a chart for each
//! measure, and all figures of a cell would be about a hundred.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{names, pretty, tracked};
use crate::summary::Summary;

/// Value of one measure with its interval.
#[derive(Serialize)]
struct Metric {
    value: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    lower_value: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    upper_value: Option<f64>,
}

/// BMF document of all runs. Cells without measured trials are omitted.
pub fn bmf(summaries: &[Summary]) -> String {
    let mut benchmarks: BTreeMap<String, BTreeMap<String, Metric>> = BTreeMap::new();
    for (summary, run) in summaries.iter().zip(names(summaries)) {
        for cell in summary.cells.iter().filter(|cell| cell.n > 0) {
            let measures = tracked(summary, cell).into_iter().map(|(of, estimate)| {
                let metric = Metric {
                    value: estimate.median,
                    lower_value: estimate.lo,
                    upper_value: estimate.hi,
                };
                (of.to_string(), metric)
            });
            benchmarks.insert(format!("{run}: {}", cell.name), measures.collect());
        }
    }
    pretty(&benchmarks)
}
