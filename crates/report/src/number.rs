//! Numbers as people read them: three significant digits, a prefix where it helps.

use tcpcost_study::{Derived, Figure};

use crate::estimate::Estimate;

/// Three significant digits, never in exponents below 10¹⁵.
pub(crate) fn show(value: f64) -> String {
    digits(value, decimals_of(value))
}

/// Decimals that three significant digits of this value need.
fn decimals_of(value: f64) -> usize {
    let magnitude = value.abs();
    if magnitude == 0.0 || !magnitude.is_finite() {
        return 0;
    }
    // At most 9: less than a thousandth of a millionth of any unit here is nothing.
    (0..9)
        .find(|&decimals| {
            // What is printed may round up to a digit more.
            let rounded = (magnitude * 10f64.powi(decimals)).round();
            rounded >= 100.0
        })
        .map_or(9, |decimals| decimals as usize)
}

fn digits(value: f64, decimals: usize) -> String {
    // No "-0".
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{value:.decimals$}")
}

/// So many decimals, for a sentence.
pub(crate) fn precise(value: f64, decimals: usize) -> String {
    let shown = format!("{value:.decimals$}");
    // No "-0.0", and a minus that is no hyphen.
    match shown.strip_prefix('-') {
        Some(rest) if rest.chars().all(|digit| "0.".contains(digit)) => rest.to_string(),
        Some(rest) => format!("\u{2212}{rest}"),
        None => shown,
    }
}

/// A quantity's unit and scale in tables: bit/s as Gbit/s, ratios as percent.
pub(crate) fn unit_in_tables(of: Derived) -> (&'static str, f64) {
    match of.kind {
        Figure::Goodput => ("Gbit/s", 1e-9),
        Figure::TransactionsPerS => ("transactions/s", 1.0),
        kind if kind.unit() == "ratio" => ("%", 100.0),
        kind => (kind.unit(), 1.0),
    }
}

/// `0.253 [0.241, 0.262]`, all three with the decimals of the median; without an interval the median
/// and how many trials it is of.
pub(crate) fn show_estimate(estimate: &Estimate, scale: f64) -> String {
    let median = estimate.median * scale;
    // Shares and other small numbers: as many decimals as the widest end needs, no more than three.
    let largest = [Some(estimate.median), estimate.lo, estimate.hi]
        .into_iter()
        .flatten()
        .fold(0.0f64, |a, b| a.max((b * scale).abs()));
    let decimals = if median == 0.0 {
        decimals_of(largest)
    } else {
        decimals_of(median).min(decimals_of(largest) + 1)
    };
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!(
            "{} [{}, {}]",
            digits(median, decimals),
            digits(lo * scale, decimals),
            digits(hi * scale, decimals)
        ),
        None => format!("{} [n={}]", digits(median, decimals), estimate.n),
    }
}

/// `879.5 [879.4, 879.7]`: a count that trials repeat to a thousandth: one decimal, below 10,000.
pub(crate) fn show_count(estimate: &Estimate) -> String {
    let decimals = usize::from(estimate.median.abs() < 1e4);
    let shown = |value: f64| digits(value, decimals);
    let median = shown(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", shown(lo), shown(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

/// `12 [11, 13]`: a share of CPU time in whole percent, a tick being 1 % of a second.
pub(crate) fn show_percent(estimate: &Estimate) -> String {
    let whole = |ratio: f64| format!("{:.0}", ratio * 100.0);
    let median = whole(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", whole(lo), whole(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

/// `12.3 [11.0, 13.1]`: a share that samples tell, in percent.
pub(crate) fn show_percent_fine(estimate: &Estimate) -> String {
    let percent = |ratio: f64| format!("{:.1}", ratio * 100.0);
    let median = percent(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", percent(lo), percent(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_count() {
        for (value, shown) in [
            (0.0, "0"),
            (-0.0, "0"),
            (0.25312, "0.253"),
            (1.0, "1.00"),
            (0.9996, "1.00"),
            (9.996, "10.0"),
            (99.96, "100"),
            (27.34, "27.3"),
            (123_456.7, "123457"),
            (0.000_012_34, "0.0000123"),
            (-2.5, "-2.50"),
        ] {
            assert_eq!(show(value), shown);
        }
    }

    #[test]
    fn an_interval_has_the_decimals_of_its_median() {
        let estimate = Estimate {
            median: 0.2534,
            lo: Some(0.2411),
            hi: Some(1.2),
            n: 6,
        };
        assert_eq!(show_estimate(&estimate, 1.0), "0.253 [0.241, 1.200]");
        let without = Estimate {
            lo: None,
            hi: None,
            n: 3,
            ..estimate
        };
        assert_eq!(show_estimate(&without, 100.0), "25.3 [n=3]");
    }
}
