//! Numbers of cells as a table shows them.

use tcpcost_study::Derived;

use crate::derive::cell::CellSummary;
use crate::derive::estimate::Estimate;
use crate::derive::number::{ABSENT, show, show_count, show_estimate, show_percent};

/// Text of a cell's estimate in its table's unit.
pub(super) fn of_cell(cell: &CellSummary, of: Derived) -> String {
    let Some(estimate) = cell.estimates.get(&of) else {
        return ABSENT.to_string();
    };
    let (unit, scale) = of.kind.shown_unit();
    if of.kind.is_share_of_cpu() {
        show_percent(estimate)
    } else if unit.starts_with("instructions") {
        show_count(estimate)
    } else {
        show_estimate(estimate, scale)
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
