//! Numbers of cells as a table shows them.

use tcpcost_study::Derived;

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::number::{ABSENT, show, show_estimate, show_in_unit, show_percent};

/// Text of a cell's estimate in its table's unit.
pub(super) fn of_cell(cell: &CellSummary, of: Derived) -> String {
    let Some(estimate) = cell.estimates.get(&of) else {
        return ABSENT.to_string();
    };
    let (unit, scale) = of.kind.shown_unit();
    match of.kind.is_share_of_cpu() {
        true => show_percent(estimate),
        false => show_in_unit(estimate, unit, scale),
    }
}

/// Text of a number that may be absent.
pub(super) fn number(value: Option<f64>) -> String {
    value.map_or(ABSENT.to_string(), show)
}

/// Text of an estimate that may be absent.
pub(super) fn estimate(estimate: Option<&Estimate>, scale: f64) -> String {
    estimate.map_or(ABSENT.to_string(), |one| show_estimate(one, scale))
}

/// Text of a count that may be absent.
pub(super) fn count(count: Option<usize>) -> String {
    count.map_or(ABSENT.to_string(), |count| count.to_string())
}
