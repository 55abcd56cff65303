//! CPU time by host and kind, by ticks and by the meter `exact`.

use tcpcost_study::{Derived, Figure, HostName, Scope};

use super::charts::PARTS;
use super::model::{Column, Level, Section, Table};
use super::numbers::of_cell;
use crate::derive::cell::CellSummary;
use crate::derive::number::ABSENT;
use crate::derive::scope::scopes;
use crate::summary::Summary;
use crate::words::labels;

/// Parts of a CPU's time by ticks; the last one overlaps the others.
fn parts() -> impl Iterator<Item = Figure> {
    PARTS.into_iter().chain([Figure::OthersRatio])
}

/// Cost and CPU time by ticks: by host if the bed can distinguish hosts, else all together with each host's own
/// threads.
pub(super) fn split(summary: &Summary) -> Section<'_> {
    let mut columns = vec![Column::name("% of the CPUs"), Column::number("cost")];
    columns.extend(parts().map(|kind| {
        let is_rare = matches!(kind, Figure::IrqRatio | Figure::StealRatio);
        let level = if is_rare { Level::Page } else { Level::Gist };
        Column::quantity(Derived::total(kind)).at(level)
    }));
    columns.push(Column::quantity(Derived::total(Figure::TaskUsPerKib)));
    let mut table = Table::new(columns);
    for cell in &summary.cells {
        table.heading(cell.name.as_str());
        let hosts = cell.hosts();
        let has = |&host: &HostName| {
            let of = Derived::of(host, Figure::UserRatio);
            cell.estimates.contains_key(&of)
        };
        let is_by_host = hosts.iter().any(has);
        for scope in scopes(&hosts) {
            let level = match is_by_host && scope == Scope::All {
                true => Level::Page,
                false => Level::Details,
            };
            let numbers = of_scope(cell, scope, is_by_host);
            table.numbers(level, labels::whose_cpus(cell, scope), numbers);
        }
    }
    let heading = "CPU time by host and kind (cost in µs/KiB or µs/transaction)";
    Section::new(Level::Details, heading).table(table)
}

fn of_scope(cell: &CellSummary, scope: Scope, is_by_host: bool) -> Vec<String> {
    let of = |kind| of_cell(cell, Derived { kind, scope });
    let has_transactions = cell.has_transactions();
    let cost = match has_transactions || cell.main.kind == Figure::CpuUsPerTransaction {
        true => Figure::CpuUsPerTransaction,
        false => Figure::CpuUsPerKib,
    };
    let threads = match is_by_host || has_transactions {
        true => ABSENT.to_string(),
        false => of(Figure::TaskUsPerKib),
    };
    let parts = parts().map(of);
    [of(cost)]
        .into_iter()
        .chain(parts)
        .chain([threads])
        .collect()
}

/// CPU time by the meter `exact`, and the error of other methods.
pub(super) fn exact(summary: &Summary) -> Section<'_> {
    let columns = labels::EXACT
        .iter()
        .map(|&kind| Column::quantity(Derived::total(kind)));
    let first = Column::name("% of the CPUs, by exact");
    let mut table = Table::new([first].into_iter().chain(columns));
    let cells = summary.cells.iter();
    for cell in cells.filter(|cell| labels::has_exact(cell)) {
        table.heading(cell.name.as_str());
        for scope in scopes(&cell.hosts()) {
            let figures = labels::EXACT.iter();
            let numbers = figures.map(|&kind| of_cell(cell, Derived { kind, scope }));
            table.numbers(Level::Gist, labels::whose_cpus(cell, scope), numbers);
        }
    }
    let heading = "Exact CPU time by kind, and the error of other methods";
    let notes = match table.rows.is_empty() {
        true => Vec::new(),
        false => labels::methods(summary),
    };
    Section::new(Level::Details, heading)
        .table(table)
        .notes(notes)
}
