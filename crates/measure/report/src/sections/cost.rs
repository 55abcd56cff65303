//! The cost of each cell, of its instructions, and of the meters.

use tcpcost_study::{Derived, Figure, FigureOf, Scope};

use super::model::{Cell, Column, Level, Section, Table, Tone};
use super::numbers::{estimate, of_cell};
use crate::derive::number::{ABSENT, show};
use crate::derive::scope::scopes;
use crate::summary::Summary;
use crate::summary::groups::Group;
use crate::words::labels;

/// Cells that can be compared, with their main quantity and their amount of work.
pub(super) fn cost<'a>(summary: &'a Summary, group: &Group<'a>) -> Section<'a> {
    let figures = figures(group);
    let first_regime = group.cells.iter().find_map(|cell| cell.regime());
    let regimes_differ = group.cells.iter().any(|cell| {
        let regime = cell.regime();
        regime.is_some() && regime != first_regime
    });
    let of_figures = figures.iter().map(|&(of, level)| column(of).at(level));
    let mut columns = vec![
        Column::name("cell"),
        Column::figure(group.main.kind.heading(), group.main),
        Column::name(""),
        Column::number("ratio to first"),
    ];
    columns.extend(of_figures);
    columns.extend([
        Column::number("trials"),
        Column::name("segmentation").at(Level::Page),
    ]);
    let mut table = Table::new(columns);
    for &cell in &group.cells {
        let mut row = vec![
            Cell::from(cell.name.as_str()),
            of_cell(cell, group.main).into(),
            Cell::toned(labels::marks(summary, cell), Tone::Bad),
            group.shown_ratio(cell).into(),
        ];
        row.extend(figures.iter().map(|&(of, _)| {
            // The payload of requests is no amount of work.
            let is_work = of.kind != Figure::Goodput || !cell.has_transactions();
            Cell::from(if is_work {
                of_cell(cell, of)
            } else {
                ABSENT.to_string()
            })
        }));
        let regime = cell.regime().filter(|_| regimes_differ);
        row.extend([
            Cell::from(cell.n.to_string()),
            regime.unwrap_or(ABSENT.to_string()).into(),
        ]);
        table.row(row);
    }
    let load = match group.fixed_rate {
        true => "at a fixed rate",
        false => "CPU-bound",
    };
    let heading = format!("{}, {load}", labels::heading(group.main));
    Section::new(Level::Gist, heading).table(table)
}

/// Figures beside the main one: the amount of work, and the cost of the other scopes.
fn figures(group: &Group<'_>) -> Vec<(Derived, Level)> {
    let hosts = group.cells.iter().flat_map(|cell| cell.hosts()).collect();
    let work = [Figure::Goodput, Figure::TransactionsPerS];
    let work = work.map(|kind| (Derived::total(kind), Level::Gist));
    let kind = group.main.kind;
    let others = scopes(&hosts)
        .into_iter()
        .map(|scope| (Derived { kind, scope }, Level::Page));
    work.into_iter()
        .chain(others)
        .filter(|(of, _)| *of != group.main)
        .collect()
}

/// Column of a quantity; one that hosts have, too, says if it is of all of them.
fn column(of: Derived) -> Column {
    match of.scope {
        Scope::All if of.kind.whose() == FigureOf::Host => {
            Column::figure(format!("all, {}", of.kind.heading()), of)
        }
        _ => Column::quantity(of),
    }
}

/// Instructions by context, and the counts that identify the regime.
pub(super) fn instructions(summary: &Summary, has_transactions: bool) -> Section<'_> {
    let figures = labels::instructions(has_transactions);
    let columns = figures.map(Column::quantity);
    let mut table = Table::new([Column::name("cell")].into_iter().chain(columns));
    let cells = summary.cells.iter();
    let cells = cells.filter(|cell| cell.counts_instructions && cell.n > 0);
    for cell in cells.filter(|cell| cell.has_transactions() == has_transactions) {
        let means = figures.iter().map(|of| {
            let estimate = cell.estimates.get(of);
            estimate.map_or(ABSENT.to_string(), |one| show(one.median))
        });
        table.numbers(Level::Gist, cell.name.as_str(), means);
    }
    let unit = match has_transactions {
        true => "transaction",
        false => "KiB",
    };
    let heading =
        format!("Instructions per {unit} by context and by host, and their regime (means)");
    Section::new(Level::Answer, heading).table(table)
}

/// Cost of each meter. Empty if the study did not ask for it.
pub(super) fn meter_costs(summary: &Summary) -> Section<'_> {
    let mut table = Table::new([
        Column::name("cell"),
        Column::name("meter"),
        Column::number("× the cost without"),
        Column::name("by"),
        Column::number("n"),
    ]);
    for cost in &summary.meter_costs {
        table.row(vec![
            cost.cell.as_str().into(),
            cost.meter_name().into(),
            estimate(cost.ratio.as_ref(), 1.0).into(),
            cost.of.name().into(),
            cost.ratio.map_or(0, |ratio| ratio.n).to_string().into(),
        ]);
    }
    let heading = "Cost of the meters themselves, from paired trials with and without";
    Section::new(Level::Answer, heading).table(table)
}
