//! Thresholds against estimates.

use tcpcost_study::{Derived, Threshold};

use crate::cell::CellSummary;
use crate::estimate::Estimate;

/// What an interval says of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// The whole interval is within.
    Met,
    /// The limit lies inside the interval, or there is none: too few trials, or no number at all.
    Inconclusive,
    /// The whole interval is beyond.
    Missed,
}

impl Verdict {
    /// `met`, `inconclusive` or `missed`.
    pub fn name(self) -> &'static str {
        match self {
            Verdict::Met => "met",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Missed => "missed",
        }
    }

    fn new(threshold: &Threshold, estimate: Option<&Estimate>) -> Verdict {
        let Some((lo, hi)) = estimate.and_then(|estimate| estimate.lo.zip(estimate.hi)) else {
            return Verdict::Inconclusive;
        };
        let beyond = threshold.at_most.is_some_and(|limit| lo > limit)
            || threshold.at_least.is_some_and(|limit| hi < limit);
        let within = threshold.at_most.is_none_or(|limit| hi <= limit)
            && threshold.at_least.is_none_or(|limit| lo >= limit);
        match (beyond, within) {
            (true, _) => Verdict::Missed,
            (false, true) => Verdict::Met,
            (false, false) => Verdict::Inconclusive,
        }
    }
}

/// A threshold at one cell.
#[derive(Debug, Clone, PartialEq)]
pub struct Judged {
    /// The cell's name; absent where the threshold holds for no cell, which cannot be told from a
    /// misspelt one and so is inconclusive.
    pub cell: Option<String>,
    /// What is limited.
    pub quantity: Derived,
    /// Its upper limit.
    pub at_most: Option<f64>,
    /// Its lower limit.
    pub at_least: Option<f64>,
    /// What was found.
    pub estimate: Option<Estimate>,
    /// What that means.
    pub verdict: Verdict,
}

impl Judged {
    /// `<= 0.3`, `>= 9e8` or both.
    pub fn limits(&self) -> String {
        let limits = [("<=", self.at_most), (">=", self.at_least)];
        let limits = limits.iter().filter_map(|(sign, limit)| {
            limit.map(|limit| format!("{sign} {}", crate::number::show(limit)))
        });
        limits.collect::<Vec<_>>().join(" and ")
    }
}

pub(crate) fn judge(thresholds: &[Threshold], cells: &[CellSummary]) -> Vec<Judged> {
    let mut judged = Vec::new();
    for threshold in thresholds {
        let at = |cell: Option<&CellSummary>| {
            let estimate = cell.and_then(|cell| cell.estimates.get(&threshold.quantity));
            Judged {
                cell: cell.map(|cell| cell.name.clone()),
                quantity: threshold.quantity,
                at_most: threshold.at_most,
                at_least: threshold.at_least,
                estimate: estimate.copied(),
                verdict: Verdict::new(threshold, estimate),
            }
        };
        let before = judged.len();
        let of = cells
            .iter()
            .filter(|cell| cell.knobs.has(&threshold.matching));
        judged.extend(of.map(|cell| at(Some(cell))));
        if judged.len() == before {
            judged.push(at(None));
        }
    }
    judged
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Figure, Knobs};

    #[test]
    fn an_interval_that_holds_the_limit_cannot_tell() {
        let check = |at_most, at_least, values: &[f64], expected| {
            let threshold = Threshold {
                quantity: Derived::total(Figure::CpuUsPerKib),
                at_most,
                at_least,
                matching: Knobs::default(),
            };
            let estimate = Estimate::new(values.iter().copied());
            assert_eq!(Verdict::new(&threshold, estimate.as_ref()), expected);
        };
        let six = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];
        check(Some(6.0), None, &six, Verdict::Met);
        check(Some(5.9), None, &six, Verdict::Inconclusive);
        check(Some(0.9), None, &six, Verdict::Missed);
        check(None, Some(1.0), &six, Verdict::Met);
        check(None, Some(6.1), &six, Verdict::Missed);
        check(Some(7.0), Some(0.5), &six, Verdict::Met);
        check(Some(7.0), Some(3.0), &six, Verdict::Inconclusive);
        check(Some(6.0), None, &six[..5], Verdict::Inconclusive);
        check(Some(6.0), None, &[], Verdict::Inconclusive);
    }
}
