//! One cell against another, trial by trial: the one place where cells are divided by each other.

use tcpcost_study::Derived;

use crate::cell::CellSummary;
use crate::estimate::Estimate;

/// How many times as much one cell has of a quantity as another, of trials of the same repetition, which ran
/// next to each other.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    /// The factor.
    pub ratio: Estimate,
}

impl Contrast {
    /// `to` over `from`; absent without a repetition that both have.
    pub fn new(from: &CellSummary, to: &CellSummary, of: Derived) -> Option<Contrast> {
        let ratio = Estimate::ratio(&to.by_repetition(of), &from.by_repetition(of))?;
        Some(Contrast { ratio })
    }

    /// The change in percent of `from`.
    pub fn percent(&self) -> Estimate {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Estimate {
            median: percent(self.ratio.median),
            lo: self.ratio.lo.map(percent),
            hi: self.ratio.hi.map(percent),
            n: self.ratio.n,
        }
    }
}
