//! Drift: how much more or less the check cells cost now than when the prices were measured.

use crate::fit::{self, CellError};
use crate::prices::{Interval, PriceList};
use crate::sample::Sample;

/// Cost now over cost when the prices were measured.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Drift {
    /// Median of the check cells.
    pub ratio: f64,
    /// Lower quartile.
    pub low: f64,
    /// Upper quartile.
    pub high: f64,
}

impl PriceList {
    /// Drift since the measurement; `None` if no sample is of a check cell of the list.
    pub fn drift(&self, now: &[Sample]) -> Option<Drift> {
        let errors = fit::errors_by(now, self);
        let since = |one: &CellError| {
            let mut references = self.references.iter();
            let then =
                references.find(|then| then.cell == one.cell && then.host == one.host.as_str())?;
            Some(one.log_ratio.exp() / then.ratio)
        };
        let mut ratios: Vec<f64> = errors.iter().filter_map(since).collect();
        ratios.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let place = share * (ratios.len().max(1) - 1) as f64;
            ratios.get(place.round() as usize).copied()
        };
        Some(Drift {
            ratio: at(0.5)?,
            low: at(0.25)?,
            high: at(0.75)?,
        })
    }
}

impl Drift {
    /// True if the drift is within the accuracy of predictions.
    pub fn is_within(&self, accuracy: &Interval) -> bool {
        (accuracy.low..=accuracy.high).contains(&self.ratio)
    }

    /// The drift in a sentence.
    pub fn text(&self, list: &PriceList, age_s: u64) -> String {
        let change = |ratio: f64| format!("{:+.0}", 100.0 * (ratio - 1.0)).replace('-', "\u{2212}");
        let verdict = if self.is_within(&list.accuracy.interval) {
            "within their accuracy"
        } else {
            "more than their accuracy: run tcpcost model again"
        };
        format!(
            "Since the prices were measured, {} ago, the cost of the same work changed by {} % [{}, {}]: {verdict}.",
            age(age_s),
            change(self.ratio),
            change(self.low),
            change(self.high)
        )
    }
}

/// Formats an age: `8 minutes`.
pub fn age(s: u64) -> String {
    let (count, unit) = match s {
        0..120 => (s, "second"),
        120..7_200 => (s / 60, "minute"),
        7_200..172_800 => (s / 3_600, "hour"),
        _ => (s / 86_400, "day"),
    };
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {unit}{plural}")
}
