//! What the only cell of a study came to, in words: where nothing is held against anything, the figures are the answer.

use tcpcost_study::{Derived, Figure};

use crate::cell::CellSummary;
use crate::number::{show_estimate, unit_in_tables};
use crate::scope::whose;
use crate::summary::Summary;

/// `asks: 36205 [34100, 37900] transactions/s for 46.4 µs of CPU per transaction [45.1, 47.0] (all hosts together); half of the responses took
/// 96.3 µs at most, 99 % 266 µs.`
pub(crate) fn sentence(summary: &Summary) -> Option<String> {
    let [cell] = summary.cells.as_slice() else {
        return None;
    };
    let work = match cell.has_transactions() {
        true => Figure::TransactionsPerS,
        false => Figure::Goodput,
    };
    let rate = told(cell, Derived::total(work))?;
    let cost = cell.main_estimate().map(|cost| {
        let (unit, scale) = unit_in_tables(cell.main);
        let (of, cost) = (whose(cell.main.scope), show_estimate(cost, scale));
        // `µs/KiB`, or `µs` of a transaction.
        let (unit, per) = unit.split_once('/').unwrap_or((unit, "transaction"));
        format!(" for {cost} {unit} of CPU per {per} ({of})")
    });
    let response = |kind| {
        let estimate = cell.estimates.get(&Derived::total(kind))?;
        Some(show_estimate(estimate, 1.0))
    };
    let times = response(Figure::ResponseP50).zip(response(Figure::ResponseP99));
    let times = times.map(|(half, most)| {
        format!("; half of the responses took {half} µs at most, 99 % {most} µs")
    });
    Some(format!(
        "{}: {rate}{}{}.",
        cell.name,
        cost.unwrap_or_default(),
        times.unwrap_or_default()
    ))
}

fn told(cell: &CellSummary, of: Derived) -> Option<String> {
    let (unit, scale) = unit_in_tables(of);
    let estimate = cell.estimates.get(&of)?;
    Some(format!("{} {unit}", show_estimate(estimate, scale)))
}
