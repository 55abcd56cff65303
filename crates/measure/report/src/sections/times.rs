//! Response times of cells, of groups of connections, and of programs' operations.

use tcpcost_study::{Derived, Figure, Scope};

use super::model::{Cell, Column, Level, Section, Table};
use super::numbers::{number, of_cell};
use crate::derive::number::ABSENT;
use crate::derive::operations::{OperationSummary, PERCENTILES};
use crate::summary::Summary;

/// Percentiles of response times.
const RESPONSES: [Figure; 5] = [
    Figure::ResponseP50,
    Figure::ResponseP90,
    Figure::ResponseP99,
    Figure::ResponseP999,
    Figure::ResponseP9999,
];

/// Columns of figures of all connections.
fn columns(figures: &[Figure]) -> impl Iterator<Item = Column> {
    let totals = figures.iter().copied().map(Derived::total);
    totals.map(Column::quantity)
}

/// Response times of each cell.
pub(super) fn response_times(summary: &Summary) -> Section<'_> {
    let mut table = Table::new(
        [Column::name("cell")]
            .into_iter()
            .chain(columns(&RESPONSES)),
    );
    for cell in &summary.cells {
        let times = RESPONSES.map(|kind| of_cell(cell, Derived::total(kind)));
        table.numbers(Level::Gist, cell.name.as_str(), times);
    }
    Section::new(Level::Details, "Response time, µs").table(table)
}

/// Throughput and response times of each group of connections.
pub(super) fn groups(summary: &Summary) -> Section<'_> {
    let rates = [Figure::Goodput, Figure::TransactionsPerS];
    let figures = [&rates[..], &RESPONSES].concat();
    let mut table = Table::new([Column::name("group")].into_iter().chain(columns(&figures)));
    for cell in &summary.cells {
        table.heading(cell.name.as_str());
        for group in cell.knobs.group_names() {
            let scope = Scope::Group(group);
            let numbers = figures
                .iter()
                .map(|&kind| of_cell(cell, Derived { kind, scope }));
            table.numbers(Level::Gist, group.to_string(), numbers);
        }
    }
    Section::new(
        Level::Details,
        "Groups of connections, response times in µs",
    )
    .table(table)
}

/// Times of each operation of the programs.
pub(super) fn operations(summary: &Summary) -> Section<'_> {
    let columns = ["count", "failed"]
        .into_iter()
        .chain(PERCENTILES.map(|(_, title)| title))
        .map(Column::number);
    let mut table = Table::new([Column::name("operation")].into_iter().chain(columns));
    for cell in &summary.cells {
        let of_same =
            |a: &OperationSummary, b: &OperationSummary| (a.host, a.group) == (b.host, b.group);
        for operations in cell.operations.chunk_by(of_same) {
            let first = &operations[0];
            let group = first
                .group
                .map_or(String::new(), |group| format!(", {group}"));
            table.heading(format!("{}: {}{group}", cell.name, first.host));
            for one in operations {
                let failed = match one.failed {
                    0 => ABSENT.to_string(),
                    failed => failed.to_string(),
                };
                let mut row: Vec<Cell> = vec![
                    format!("{} {}", one.place, one.operation).into(),
                    one.count.to_string().into(),
                    failed.into(),
                ];
                row.extend(one.times_us.map(|time| Cell::from(number(time))));
                table.row(row);
            }
        }
    }
    Section::new(Level::Details, "Operations of programs, times in µs").table(table)
}
