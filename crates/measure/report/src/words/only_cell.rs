//! Sentence for the only cell of a study: without a comparison, its figures are the answer.

use tcpcost_study::{Derived, Figure};

use crate::derive::cell::CellSummary;
use crate::derive::number::{show_estimate, show_in_unit};
use crate::judge::reason::is_time;
use crate::summary::Summary;
use crate::words::labels;

/// Sentence such as `asks: 36205 [34100, 37900] transactions/s for 46.4 [45.1, 47.0] µs of exact CPU per
/// transaction; half of the responses took 96.3 [95.0, 97.1] µs at most, 99 % 266 [250, 281] µs.`
pub(crate) fn sentence(summary: &Summary) -> Option<String> {
    let [cell] = summary.cells.as_slice() else {
        return None;
    };
    let work = Derived::total(match cell.has_transactions() {
        true => Figure::TransactionsPerS,
        false => Figure::Goodput,
    });
    let rate = told(cell, work)?;
    let main = told(cell, cell.main).filter(|_| cell.main != work);
    let main = main.map(|main| match is_time(cell.main.kind) {
        // `46.4 µs/KiB` is written as `46.4 µs of CPU per KiB`; cycles are written like other quantities.
        true => {
            let amount = main.split('/').next().unwrap_or_default();
            format!(" for {amount} of {}", labels::in_sentence(cell.main))
        }
        false => format!("; {}: {main}", labels::quantity(cell.main)),
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
        main.unwrap_or_default(),
        times.unwrap_or_default()
    ))
}

fn told(cell: &CellSummary, of: Derived) -> Option<String> {
    let (unit, scale) = of.kind.shown_unit();
    let estimate = cell.estimates.get(&of)?;
    Some(format!("{} {unit}", show_in_unit(estimate, unit, scale)))
}
