//! Check that two cells of one setting did the same things, so that their instructions can be compared.
//!
//! Two processes settle within the first moments how often a receiver wakes up and how many ACKs that makes.
//! The next boot or the next kernel can settle differently. Each ACK and each switch has a price. If a
//! different number of them could make a large part of a difference, the difference is no property of the
//! path that a byte takes.

use serde::Serialize;
use tcpcost_study::{Derived, Figure};

use crate::derive::cell::CellSummary;
use crate::judge::comparable::is_per_transaction;

/// A count that differs between two cells.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Regime {
    /// Quantity of the count.
    pub count: Derived,
    /// Median of the first cell's trials.
    pub from: f64,
    /// Median of the other cell's trials.
    pub to: f64,
}

/// Counts per KiB or per transaction, the factor to the unit of the figure, and the highest observed number
/// of instructions for one. An ACK takes 4,900 to 6,600 at both ends together (Linux 6.12, 6.1), including
/// wake-ups. A system call takes slightly less than a switch. An skb through both stacks takes 10,300
/// (docs/ledger.md). Packets are not counted if the ends are in two processes.
const PRICED: [(Figure, f64, f64); 6] = [
    (Figure::AcksPerKib, 1.0, 7000.0),
    (Figure::PacketsPerKib, 1.0, 10_000.0),
    (Figure::PacketsPerTransaction, 1.0, 10_000.0),
    (Figure::SwitchesPerMib, 1.0 / 1024.0, 5000.0),
    (Figure::SwitchesPerTransaction, 1.0, 5000.0),
    (Figure::SystemCallsPerTransaction, 1.0, 3000.0),
];

/// Smallest share of a difference that a count must be able to make to count as another regime.
const SHARE_LEAST: f64 = 0.25;

/// Smallest difference of a count over a whole interval that counts as another regime. Each end of an
/// interval may include one more or one less, even if two intervals are otherwise equal.
const COUNT_LEAST: f64 = 3.0;

/// Count by which the cells' regimes differ. `None` if they have one regime, or if time was measured.
pub(crate) fn differs(
    from: &CellSummary,
    to: &CellSummary,
    quantity: Derived,
    min_effect: f64,
) -> Option<Regime> {
    if !(from.counts_instructions && to.counts_instructions) {
        return None;
    }
    let median = |cell: &CellSummary, of| Some(cell.estimates.get(&of)?.median);
    let (before, after) = (median(from, quantity)?, median(to, quantity)?);
    let difference = (after - before).abs().max(min_effect * before);
    let units = units(from).zip(units(to));
    let mut worst: Option<(f64, Regime)> = None;
    for (kind, scale, price) in PRICED {
        // Omits counts per unit of the other kind of workload.
        if is_per_transaction(kind) != from.has_transactions() {
            continue;
        }
        let count = Derived::total(kind);
        let Some((from, to)) = median(from, count).zip(median(to, count)) else {
            continue;
        };
        let in_all = units.map(|(before, after)| (to * after - from * before) * scale);
        if in_all.is_some_and(|more| more.abs().round() < COUNT_LEAST) {
            continue;
        }
        let share = (to - from).abs() * scale * price / difference;
        if share >= SHARE_LEAST && worst.is_none_or(|(most, _)| share > most) {
            worst = Some((share, Regime { count, from, to }));
        }
    }
    worst.map(|(_, regime)| regime)
}

/// KiB or transactions of an interval with a fixed amount of work. This is each client's amount, so the total
/// only if there is one client.
fn units(cell: &CellSummary) -> Option<f64> {
    let work = cell.work?;
    Some(match cell.has_transactions() {
        true => work.transactions as f64,
        false => work.bytes as f64 / 1024.0,
    })
}
