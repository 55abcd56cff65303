//! Marks trials whose CPUs were distant, if such trials cost more than the others.

use std::collections::BTreeMap;

use tcpcost_study::{CpuDistance, DistantCpus, Figure, Record, Warning, WarningCode};

use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::derive::number::signed;
use crate::derive::values::cost;
use crate::judge::sign::Sign;

/// Smallest change of the cost, in percent, for which trials are marked. A smaller change does not
/// affect estimates noticeably.
const CHANGES_LEAST: f64 = 2.0;

/// Costs of a run's trials, kept so that each is computed only once in repeated checks of the run.
#[derive(Debug, Default)]
pub struct Distances {
    costs: Vec<Option<(Figure, f64)>>,
}

impl Distances {
    /// Marks all distant trials if they cost more, else none, and removes the marks of earlier
    /// calls. `records` must begin with the records of the previous call.
    pub fn mark(&mut self, records: &mut [Record]) {
        let known = self.costs.len();
        self.costs.extend(records.iter().skip(known).map(cost));
        let distant = CpuDistance::distant(records);
        let change = self
            .change(records, &distant)
            .filter(|percent| Sign::of(percent) == Sign::Above && percent.median >= CHANGES_LEAST);
        for (record, distant) in records.iter_mut().zip(distant) {
            record
                .warnings
                .retain(|warning| warning.code != WarningCode::CpusFar);
            let warning = distant.zip(change.as_ref()).map(warning);
            record.warnings.extend(warning);
        }
    }

    /// Extra cost of distant trials against near ones, in percent, over the cells that have both.
    /// Each trial is divided by the median of its cell. `None` if no cell has both.
    fn change(&self, records: &[Record], distant: &[Option<DistantCpus>]) -> Option<Estimate> {
        // Costs of near and of distant trials, by cell.
        let mut cells: BTreeMap<(&str, Figure), [Vec<f64>; 2]> = BTreeMap::new();
        for ((record, cost), distant) in records.iter().zip(&self.costs).zip(distant) {
            if let Some((kind, cost)) = cost.filter(|_| !record.cpu_distances.is_empty()) {
                let costs = cells.entry((&record.cell, kind)).or_default();
                costs[usize::from(distant.is_some())].push(cost);
            }
        }
        let mut relative = [Vec::new(), Vec::new()];
        for costs in cells.into_values() {
            if costs.iter().any(Vec::is_empty) {
                continue;
            }
            let median = Estimate::new(costs.concat())?.median;
            for (all, of_cell) in relative.iter_mut().zip(costs) {
                all.extend(of_cell.into_iter().map(|cost| cost / median));
            }
        }
        let [near, far] = &relative;
        Some(Contrast::unpaired(near, far)?.percent())
    }
}

fn warning((distant, change): (DistantCpus, &Estimate)) -> Warning {
    let [one, other] = distant.cpus.map(|id| id.cpu);
    let text = format!(
        "the core distance of CPU {one} and CPU {other} was {} ns, in near trials {} ns, because the hypervisor moved them; trials with distant CPUs cost {} more in this run",
        distant.ns,
        distant.near_ns,
        signed(change)
    );
    Warning::new(WarningCode::CpusFar, text).extent(distant.ns as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{CpuId, HostName, HostRecord};

    /// Trial of a cell whose CPUs are `ns` apart.
    fn trial(cell: &str, ns: u64) -> Record {
        let text = r#"{"schema_version":2,"study":"s","cell":"c","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"netns","interval_ns":1,"outcome":"measured","topology":{"hosts":[],
            "links":[],"traffic":[]}}"#;
        let mut record = Record::from_line(text).unwrap();
        record.cell = cell.to_string();
        let [client, server] = HostName::PAIR;
        record.hosts.insert(client, HostRecord::default().into());
        let cpu = |host, cpu| CpuId { host, cpu };
        record.cpu_distances = vec![CpuDistance {
            cpus: [cpu(client, 0), cpu(server, 1)],
            before_ns: Some(ns),
            after_ns: None,
        }];
        record
    }

    /// Number of marks, and the records: eight near trials with a cost of about 10, and eight
    /// distant trials that cost `factor` times as much.
    fn marked(factor: f64) -> (usize, Vec<Record>) {
        let mut records = Vec::new();
        let mut distances = Distances::default();
        for place in 0..16u64 {
            let is_far = place % 2 == 1;
            records.push(trial("c", if is_far { 400 + place } else { 70 + place }));
            let cost = (10.0 + 0.01 * place as f64) * if is_far { factor } else { 1.0 };
            distances.costs.push(Some((Figure::ExactUsPerKib, cost)));
        }
        distances.mark(&mut records);
        distances.mark(&mut records);
        let marks = records.iter().filter(|record| record.is_marked()).count();
        (marks, records)
    }

    #[test]
    fn distant_trials_are_marked_if_they_cost_more_and_the_mark_says_by_how_much() {
        let (marks, records) = marked(1.2);
        assert_eq!((marks, records[1].warnings.len()), (8, 1), "once each");
        let text = &records[1].warnings[0].text;
        assert!(text.contains("was 401 ns, in near trials 78 ns"), "{text}");
        assert!(text.contains("cost 20 % ["), "{text}");
        assert_eq!(marked(1.0).0, 0, "no change");
        assert_eq!(marked(1.01).0, 0, "too small a change");
        assert_eq!(marked(0.8).0, 0, "they cost less");
    }

    #[test]
    fn a_mark_of_an_earlier_look_goes_with_its_reason() {
        let mut record = trial("c", 400);
        record.warnings = vec![Warning::new(WarningCode::CpusFar, "")];
        let mut records = [record];
        Distances::default().mark(&mut records);
        assert!(!records[0].is_marked());
    }
}
