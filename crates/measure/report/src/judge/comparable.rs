//! Check that a quantity of two cells can be compared. Tables, findings and comparisons use it.

use std::fmt;

use tcpcost_study::{Derived, Figure, Knobs};

use crate::derive::cell::{CellSummary, Load};
use crate::judge::copy_path;

/// Limit on the difference of the reached rates of two cells at a fixed rate, over the larger rate.
const DIFFERENCE_MAX: f64 = 0.05;

/// Reason why a quantity of two cells cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incomparable {
    /// The quantity is per transaction, and their transactions carry different numbers of bytes.
    Transactions,
    /// The quantity is a cost, and one cell did clearly less of the work that a fixed rate sets.
    UnequalWork,
    /// The quantity counts instructions, and this knob makes them copy payload more or less often.
    Copies(String),
}

impl Incomparable {
    /// Reason for this quantity of two cells. `None` if it can be compared.
    pub fn of(from: &CellSummary, to: &CellSummary, of: Derived) -> Option<Incomparable> {
        if is_per_transaction(of.kind) && transactions_differ(&from.knobs, &to.knobs) {
            return Some(Incomparable::Transactions);
        }
        if of.kind.is_cost() && is_unequal(from, to) {
            return Some(Incomparable::UnequalWork);
        }
        copy_path::refuses(from, to, of)
            .then(|| copy_path::differs(from, to))
            .flatten()
            .map(|knob| Incomparable::Copies(knob.to_string()))
    }

    /// Reason for costs by layer and by function, which are per KiB or per transaction. `None` if they can be compared.
    pub(crate) fn by_profile(from: &CellSummary, to: &CellSummary) -> Option<Incomparable> {
        let unit = |cell: &CellSummary| match cell.has_transactions() {
            true => Figure::ExactUsPerTransaction,
            false => Figure::ExactUsPerKib,
        };
        if unit(from) == unit(to) {
            Incomparable::of(from, to, Derived::total(unit(from)))
        } else {
            Some(Incomparable::Transactions)
        }
    }

    /// Reason in two words, for a cell of a table.
    pub fn in_short(&self) -> &'static str {
        match self {
            Incomparable::Transactions => "other sizes",
            Incomparable::UnequalWork => "unequal work",
            Incomparable::Copies(_) => "other copies",
        }
    }
}

impl fmt::Display for Incomparable {
    /// Part of a sentence after "not comparable: ".
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Incomparable::Transactions => {
                write!(f, "their transactions carry different numbers of bytes")
            }
            Incomparable::UnequalWork => write!(f, "they did unequal work at a fixed rate"),
            Incomparable::Copies(knob) => write!(
                f,
                "they copy payload more or less often ({knob}), and an instruction count does not show the cost of a copy"
            ),
        }
    }
}

/// True if requests or responses of the two settings have different numbers of bytes. False if either has no transactions.
pub fn transactions_differ(from: &Knobs, to: &Knobs) -> bool {
    let (from, to) = (from.transaction_bytes(), to.transaction_bytes());
    !from.is_empty() && !to.is_empty() && from != to
}

/// True if a figure is per transaction, so that it grows with a transaction's bytes.
pub fn is_per_transaction(kind: Figure) -> bool {
    kind.name().ends_with("_per_transaction")
}

/// True if both cells have the same fixed rate and one did clearly less work, for example because it did not fill a bottleneck.
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

/// Line of the report that names cells that did unequal work. `None` if there are none.
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
