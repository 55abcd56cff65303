//! Checks estimates against thresholds.

use serde::Serialize;
use tcpcost_study::{Derived, Study, Threshold, ThresholdOf};

use crate::derive::cell::CellSummary;
use crate::derive::contrast::Contrast;
use crate::derive::estimate::Estimate;
use crate::judge::conclusions::groups;
use crate::judge::stored::{StoredRuns, holm};

/// Result of checking an interval against a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// The whole interval is within the limit.
    Met,
    /// The limit is inside the interval; or there is no interval because of too few trials or no number.
    Inconclusive,
    /// The whole interval is beyond the limit.
    Missed,
}

impl Verdict {
    /// The word `met`, `inconclusive` or `missed`.
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
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Judged {
    /// Name of the cell; `None` if the threshold matches no cell. Its settings may be misspelt, so its verdict is
    /// inconclusive.
    pub cell: Option<String>,
    /// Quantity with a limit.
    pub quantity: Derived,
    /// Name of the cell, or of the baseline, relative to which the change in percent is limited. `None` if
    /// the quantity itself is limited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub against: Option<String>,
    /// Upper limit.
    pub at_most: Option<f64>,
    /// Lower limit.
    pub at_least: Option<f64>,
    /// Estimate that is checked.
    pub estimate: Option<Estimate>,
    /// Result of the check.
    pub verdict: Verdict,
}

impl Judged {
    /// Text such as `<= 0.3`, `>= 9e8` or both; for a change `<= 3 % against flows=1`.
    pub fn limits(&self) -> String {
        let unit = if self.against.is_some() { " %" } else { "" };
        let limits = [("<=", self.at_most), (">=", self.at_least)];
        let limits = limits.iter().filter_map(|(sign, limit)| {
            limit.map(|limit| format!("{sign} {}{unit}", crate::derive::number::show(limit)))
        });
        let limits = limits.collect::<Vec<_>>().join(" and ");
        match &self.against {
            Some(against) => format!("{limits} against {against}"),
            None => limits,
        }
    }

    fn new(
        threshold: &Threshold,
        cell: Option<&CellSummary>,
        against: Option<&str>,
        estimate: Option<Estimate>,
    ) -> Judged {
        Judged {
            cell: cell.map(|cell| cell.name.clone()),
            quantity: threshold.quantity,
            against: against.map(str::to_string),
            at_most: threshold.at_most,
            at_least: threshold.at_least,
            estimate,
            verdict: Verdict::new(threshold, estimate.as_ref()),
        }
    }
}

/// Judges every threshold except those on a baseline.
pub(crate) fn judge(study: &Study, cells: &[CellSummary]) -> Vec<Judged> {
    let mut judged = Vec::new();
    for threshold in &study.thresholds {
        let before = judged.len();
        let of = threshold.quantity;
        match &threshold.of {
            ThresholdOf::Baseline => continue,
            ThresholdOf::Value => {
                let matching = cells
                    .iter()
                    .filter(|cell| cell.knobs.has(&threshold.matching));
                judged.extend(matching.map(|cell| {
                    Judged::new(
                        threshold,
                        Some(cell),
                        None,
                        cell.estimates.get(&of).copied(),
                    )
                }));
            }
            ThresholdOf::Change(change) => {
                for (first, to) in groups(study, &threshold.matching, change, cells) {
                    judged.extend(to.into_iter().map(|(_, cell)| {
                        let percent = Contrast::new(first, cell, of).map(|one| one.percent());
                        Judged::new(threshold, Some(cell), Some(&first.name), percent)
                    }));
                }
            }
        }
        if judged.len() == before {
            judged.push(Judged::new(threshold, None, None, None));
        }
    }
    judged
}

/// Judges the thresholds on a baseline, each at each cell that the earlier runs had, too. Limits that are
/// missed at so few cells that it may be chance are inconclusive.
pub(crate) fn judge_baseline(
    thresholds: &[Threshold],
    cells: &[CellSummary],
    runs: &StoredRuns<'_>,
) -> Vec<Judged> {
    let mut judged = Vec::new();
    let mut beyond = Vec::new();
    let asked = thresholds
        .iter()
        .filter(|threshold| threshold.of == ThresholdOf::Baseline);
    for threshold in asked {
        let of = threshold.quantity;
        let before = judged.len();
        for cell in cells
            .iter()
            .filter(|cell| cell.knobs.has(&threshold.matching))
        {
            let earlier = runs.earlier(cell);
            let is_of_guests = earlier.is_some_and(|one| one.counts_instructions);
            let shift = runs.against_others(cell, of).filter(|_| !is_of_guests);
            let contrast = match is_of_guests {
                true => runs.of_guests(cell, of),
                false => shift.map(|shift| shift.contrast()),
            };
            let percent = contrast.map(|contrast| contrast.percent());
            let one = Judged::new(threshold, Some(cell), Some("the baseline"), percent);
            if let (Verdict::Missed, Some(shift)) = (one.verdict, shift) {
                let limits = threshold.at_most.into_iter().chain(threshold.at_least);
                let of_limit = |limit: f64| shift.p_value((1.0 + limit / 100.0).max(0.0));
                beyond.push((judged.len(), limits.map(of_limit).fold(1.0, f64::min)));
            }
            judged.push(one);
        }
        if judged.len() == before {
            judged.push(Judged::new(threshold, None, Some("the baseline"), None));
        }
    }
    // Limits that are not missed count, too.
    let mut values: Vec<f64> = beyond.iter().map(|(_, value)| *value).collect();
    values.resize(judged.len(), 1.0);
    for ((at, _), stands) in beyond.into_iter().zip(holm(&values)) {
        if !stands {
            judged[at].verdict = Verdict::Inconclusive;
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
                of: ThresholdOf::Value,
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
