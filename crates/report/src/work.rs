//! Whether two cells did equal work: cells that did not are not compared by their cost.

use tcpcost_study::{Derived, Figure};

use crate::cell::{CellSummary, Load};

/// Largest difference of the rates that cells at a fixed rate reached, over the larger one.
const DIFFERENCE_MAX: f64 = 0.05;

/// True if both have a fixed rate of work and one did clearly less: a bottleneck that only one of them filled, say.
pub(crate) fn is_unequal(from: &CellSummary, to: &CellSummary) -> bool {
    let is_fixed = |cell: &CellSummary| matches!(cell.load, Load::FixedRate(_));
    if from.load != to.load || !is_fixed(from) {
        return false;
    }
    let rate = |cell: &CellSummary| {
        let kind = match cell.has_transactions() {
            true => Figure::TransactionsPerS,
            false => Figure::Goodput,
        };
        Some(cell.estimates.get(&Derived::total(kind))?.median)
    };
    let Some((one, other)) = rate(from).zip(rate(to)) else {
        return false;
    };
    (one - other).abs() > DIFFERENCE_MAX * one.max(other)
}

/// True if this quantity of these cells must not be compared: a cost of unequal work.
pub(crate) fn refuses(from: &CellSummary, to: &CellSummary, of: Derived) -> bool {
    let name = of.kind.name();
    let is_cost = ["cpu_us_per_", "cycles_per_", "instructions_per_"]
        .iter()
        .any(|part| name.contains(part));
    is_cost && is_unequal(from, to)
}

/// A line of the report that names cells which are not compared for their work.
pub(crate) fn note(cells: &[CellSummary]) -> Option<String> {
    let measured: Vec<&CellSummary> = cells.iter().filter(|cell| cell.n > 0).collect();
    let pairs = measured.iter().enumerate();
    let mut pairs = pairs
        .flat_map(|(at, one)| measured[at + 1..].iter().map(move |other| (one, other)))
        .filter(|(one, other)| one.main == other.main && is_unequal(one, other));
    let (one, other) = pairs.next()?;
    let more = match pairs.count() {
        0 => String::new(),
        more => format!(", and {more} more pairs"),
    };
    Some(format!(
        "Not compared, because they did unequal work at a fixed rate: \"{}\" and \"{}\"{more}.",
        one.name, other.name
    ))
}
