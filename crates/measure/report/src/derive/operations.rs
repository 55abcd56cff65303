//! Times of each operation of a cell's programs, over the trials that count.

use tcpcost_study::{HostName, Record};

use crate::derive::response::ResponseTimes;

/// An operation of a program.
#[derive(Debug, Clone, PartialEq)]
pub struct OperationSummary {
    /// Host that did the operation.
    pub host: HostName,
    /// Group of connections; `None` for the only group, which has no name.
    pub group: Option<HostName>,
    /// Place in the program, such as `2.1`.
    pub place: String,
    /// Short description.
    pub operation: String,
    /// How often the operation was done.
    pub count: u64,
    /// How often the operation failed.
    pub failed: u64,
    /// Percentiles of its time, µs. `None` for a percentile with less than one operation beyond it.
    pub times_us: [Option<f64>; 3],
}

/// Percentiles that are shown, with their names.
pub(crate) const PERCENTILES: [(f64, &str); 3] = [(0.5, "p50"), (0.99, "p99"), (0.999, "p99.9")];

/// Operations of these trials, by host, in the order of their programs.
pub(crate) fn operations(records: &[&Record]) -> Vec<OperationSummary> {
    let mut found: Vec<(OperationSummary, Vec<&str>)> = Vec::new();
    for record in records {
        for (&host, of_host) in &record.hosts {
            for one in &of_host.operations {
                let known = found.iter_mut().find(|(known, _)| {
                    (known.host, known.group, &known.place) == (host, one.group, &one.place)
                });
                let times = one.time_hdr.as_deref();
                match known {
                    Some((known, all)) => {
                        known.count += one.count;
                        known.failed += one.failed;
                        all.extend(times);
                    }
                    None => {
                        let summary = OperationSummary {
                            host,
                            group: one.group,
                            place: one.place.clone(),
                            operation: one.operation.clone(),
                            count: one.count,
                            failed: one.failed,
                            times_us: [None; 3],
                        };
                        found.push((summary, times.into_iter().collect()));
                    }
                }
            }
        }
    }
    let each = found.into_iter().map(|(mut summary, times)| {
        let times = ResponseTimes::of(times.into_iter());
        summary.times_us = PERCENTILES.map(|(percentile, _)| times.as_ref()?.us(percentile));
        summary
    });
    let mut all: Vec<OperationSummary> = each.collect();
    all.sort_by_key(|one| (one.host, one.group));
    all
}
