//! Summaries with reasons by the price list of this machine, if it has one.

use std::collections::BTreeMap;

use tcpcost_model::{PriceList, Work, explain, prices};
use tcpcost_report::{PricedCosts, Summary};
use tcpcost_study::{HostName, Record, Study};

/// Summary of records. Changes of CPU time have reasons by prices where this machine has a price list and measured the records.
pub(crate) fn summary(study: &Study, records: &[Record]) -> Summary {
    match kept(records) {
        Some(list) => Summary::priced(study, records, &|of_cell| costs(of_cell, &list)),
        None => Summary::new(study, records),
    }
}

/// Price list of this host, if all records are of its machine.
fn kept(records: &[Record]) -> Option<PriceList> {
    let mut machines = records.iter().flat_map(|record| record.machines.values());
    let list = prices::kept(machines.next()?, prices::device(records)).ok()?;
    machines
        .all(|machine| list.place.is_of(machine))
        .then_some(list)
}

/// CPU time of each host of a cell by cause, µs per unit of work; NaN for a cause that is more frequent than in any studied cell, so that
/// it is no reason.
fn costs(of_cell: &[&Record], list: &PriceList) -> PricedCosts {
    let mut costs: BTreeMap<HostName, Vec<(&'static str, f64)>> = BTreeMap::new();
    for work in Work::all(of_cell.iter().copied(), list) {
        let terms = explain(list, &work.counts, Some(work.cpu_ns)).terms;
        let priced = terms.iter().map(|term| {
            let ns = if term.is_outside { f64::NAN } else { term.ns };
            (term.cause.label(), ns / 1e3)
        });
        costs.insert(work.host, priced.collect());
    }
    costs
}
