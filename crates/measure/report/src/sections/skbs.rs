//! Skbs that TCP passed down, the contexts that did so, and the cost, for trials with the meter `segments`.

use std::collections::BTreeSet;

use tcpcost_study::{Derived, Figure, HostName, Scope};

use super::model::{Cell, Column, Level, Section, Table};
use crate::derive::cell::CellSummary;
use crate::derive::number::{ABSENT, show};
use crate::derive::scope::whose;
use crate::summary::Summary;

/// Sizes of what a host sent, then the shares of who sent it, with their titles. Shares by timers are
/// rare, and only among all figures.
const FIGURES: [(&str, Figure); 5] = [
    ("bytes an skb", Figure::SkbBytesMean),
    ("a super-segment", Figure::LargeSkbBytes),
    ("writer %", Figure::DrainedBySystemCall),
    ("worker %", Figure::DrainedByTasklet),
    ("interrupt %", Figure::DrainedByNetRx),
];

/// Costs, the best first: the table has the first one that some cell has.
const COSTS: [Figure; 3] = [
    Figure::ExactUsPerKib,
    Figure::CpuUsPerKib,
    Figure::InstructionsPerKib,
];

/// Sizes, shares and cost of each cell, with a row for each host, or set of hosts, that sent data.
pub(super) fn skbs(summary: &Summary) -> Section<'_> {
    let is_had = |kind: &Figure| {
        let mut figures = summary.cells.iter().flat_map(|cell| cell.estimates.keys());
        figures.any(|of| of.kind == *kind)
    };
    let cost = COSTS.into_iter().find(is_had).unwrap_or(COSTS[0]);
    let columns = FIGURES.map(|(title, kind)| Column::figure(title, Derived::total(kind)));
    let mut table = Table::new(
        [Column::name("cell"), Column::name("host")]
            .into_iter()
            .chain(columns)
            .chain([
                Column::quantity(Derived::total(cost)),
                Column::figure(format!("all, {}", cost.heading()), Derived::total(cost)),
            ]),
    );
    for cell in &summary.cells {
        for scope in senders(cell) {
            let figures = FIGURES.map(|(_, kind)| median(cell, Derived { kind, scope }));
            let own = median(cell, Derived { kind: cost, scope });
            // Hosts that share CPUs have no cost of their own.
            let of_all = match own == ABSENT {
                true => median(cell, Derived::total(cost)),
                false => ABSENT.to_string(),
            };
            let numbers = figures.into_iter().chain([own, of_all]).map(Cell::from);
            let names = [Cell::from(cell.name.as_str()), whose(scope).into()];
            table.row(names.into_iter().chain(numbers).collect());
        }
    }
    let heading = "What TCP passed down, who sent it, and CPU per KiB (medians)";
    Section::new(Level::Answer, heading).table(table)
}

/// Hosts, and sets of hosts, whose skbs were counted; all together if they share a namespace.
fn senders(cell: &CellSummary) -> Vec<Scope> {
    let has = |scope: &Scope| {
        let of = Derived {
            kind: Figure::SkbBytesMean,
            scope: *scope,
        };
        cell.estimates.contains_key(&of)
    };
    let hosts = cell.hosts().into_iter();
    let hosts: BTreeSet<HostName> = hosts.map(|host| host.set().unwrap_or(host)).collect();
    let own: Vec<Scope> = hosts.into_iter().map(Scope::Host).filter(has).collect();
    match own.is_empty() {
        true => Some(Scope::All).filter(has).into_iter().collect(),
        false => own,
    }
}

/// Text of a median without its interval, which the table has no room for.
fn median(cell: &CellSummary, of: Derived) -> String {
    let estimate = cell.estimates.get(&of);
    let (_, scale) = of.kind.shown_unit();
    estimate.map_or(ABSENT.to_string(), |one| show(one.median * scale))
}
