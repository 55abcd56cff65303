//! Whether two cells of one setting did the same things, so that their instructions can be held against each other.
//!
//! How often a receiver wakes up, and how many ACKs that makes, is settled between two processes within the first moments
//! and can settle otherwise in the next boot or the next kernel. Each ACK and each switch has a price; where another number of
//! them could make a good part of a difference, the difference says nothing of the path that a byte takes.

use tcpcost_study::{Derived, Figure};

use crate::cell::CellSummary;
use crate::comparable::is_per_transaction;

/// A count of which the one cell had another number than the other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Regime {
    /// What was counted.
    pub count: Derived,
    /// How many the first had, the median of its trials.
    pub from: f64,
    /// How many the other had.
    pub to: f64,
}

/// Counts per KiB or per transaction, what makes them so of the figure's unit, and the most instructions that one was seen to
/// cost: an ACK 4,900 to 6,600 at both ends together (Linux 6.12, 6.1), wake-ups included; a system call a little less than
/// a switch; an skb through both stacks 10,300 (docs/ledger.md). Of packets there is no count where two processes have the ends.
const PRICED: [(Figure, f64, f64); 6] = [
    (Figure::AcksPerKib, 1.0, 7000.0),
    (Figure::PacketsPerKib, 1.0, 10_000.0),
    (Figure::PacketsPerTransaction, 1.0, 10_000.0),
    (Figure::SwitchesPerMib, 1.0 / 1024.0, 5000.0),
    (Figure::SwitchesPerTransaction, 1.0, 5000.0),
    (Figure::SystemCallsPerTransaction, 1.0, 3000.0),
];

/// The least share of a difference that makes it another regime's.
const SHARE_LEAST: f64 = 0.25;

/// The least difference of a whole interval that makes it another regime's: each end of an interval takes in one more or one fewer by
/// where it cuts, of two intervals that are alike otherwise.
const COUNT_LEAST: f64 = 3.0;

/// The count that tells the cells' regimes apart; `None` where they are one, or where time was measured.
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
        // Those of the other unit's workload are not a count of this one.
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

/// KiB or transactions of an interval, where its work was fixed: what each client was asked for, which is the whole where there is one.
fn units(cell: &CellSummary) -> Option<f64> {
    let work = cell.work?;
    Some(match cell.has_transactions() {
        true => work.transactions as f64,
        false => work.bytes as f64 / 1024.0,
    })
}
