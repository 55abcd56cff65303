//! Hosts that a study names, and hosts that met in rounds.

use tcpcost_study::Derived;

use super::model::{Cell, Column, Level, Section, Table};
use super::numbers::{estimate, number};
use crate::derive::cell::CellSummary;
use crate::derive::host_rows::HostRow;
use crate::derive::number::show;
use crate::summary::Summary;
use crate::words::fleets;

/// Outliers of each cell whose hosts met in rounds of pairs.
pub(super) fn outliers(summary: &Summary) -> Vec<Section<'_>> {
    let min_effect = summary.study.measure.min_effect;
    let fleets_of = summary.cells.iter().filter_map(|cell| {
        let lines = fleets::lines(cell.fleet.as_ref()?, min_effect);
        Some(Section::new(Level::Answer, fleets::title(&cell.name)).notes(lines))
    });
    fleets_of.collect()
}

/// All hosts that met in rounds of pairs.
pub(super) fn fleets(summary: &Summary) -> Vec<Section<'_>> {
    let of_cell = |cell: &CellSummary| {
        let fleet = cell.fleet.as_ref()?;
        let figures: Vec<Derived> = fleet
            .medians
            .keys()
            .map(|&kind| Derived::total(kind))
            .collect();
        let columns = figures.iter().map(|&of| {
            Column::figure(
                format!("{}, {}", of.kind.words(), of.kind.shown_unit().0),
                of,
            )
        });
        let mut table = Table::new([Column::name("host")].into_iter().chain(columns));
        for (host, found) in &fleet.hosts {
            let numbers = figures
                .iter()
                .map(|&of| estimate(found.get(&of.kind), of.kind.shown_unit().1));
            table.numbers(Level::Gist, host.to_string().as_str(), numbers);
        }
        let heading = format!("{}, each host", fleets::title(&cell.name));
        Some(Section::new(Level::Details, heading).table(table))
    };
    summary.cells.iter().filter_map(of_cell).collect()
}

/// Hosts of a study that names them, by the meter of their CPU time, and the time between their starts.
pub(super) fn hosts(summary: &Summary) -> Section<'_> {
    let titles = [
        "CPU µs",
        "segments/s sent",
        "ACKs/s sent",
        "clock, µs ahead",
        "±",
        "late, µs",
    ];
    let columns = titles.map(Column::number);
    let mut table = Table::new([Column::name("host")].into_iter().chain(columns));
    for cell in &summary.cells {
        for rows in cell.host_rows.chunk_by(|a, b| a.tier == b.tier) {
            table.heading(format!("{}: {}", cell.name, rows[0].tier.label()));
            rows.iter().for_each(|host| table.row(row(host)));
        }
    }
    Section::new(Level::Answer, "Hosts, CPU µs per KiB or transaction")
        .table(table)
        .notes(summary.cells.iter().filter_map(skew))
}

fn row(of: &HostRow) -> Vec<Cell> {
    let cost = of.cost.map(|(_, cost)| cost);
    vec![
        of.host.to_string().into(),
        estimate(cost.as_ref(), 1.0).into(),
        number(of.segments_per_s).into(),
        number(of.acks_per_s).into(),
        number(of.clock_us.map(|(offset, _)| offset)).into(),
        number(of.clock_us.map(|(_, error)| error)).into(),
        number(of.late_us).into(),
    ]
}

/// Sentence with the upper bound of the time between the hosts' starts.
fn skew(cell: &CellSummary) -> Option<String> {
    Some(format!(
        "{}: between the first host's start and the last one's at most {} µs, errors of clocks included.",
        cell.name,
        show(cell.skew_us?)
    ))
}
