//! Numbers for people: three significant digits, with a prefix if that helps.

pub(crate) use tcpcost_counts::table::ABSENT;

use crate::derive::estimate::Estimate;

/// Text with three significant digits, without an exponent below 10¹⁵.
pub(crate) fn show(value: f64) -> String {
    digits(value, decimals_of(value))
}

/// Number of decimals for three significant digits of this value.
fn decimals_of(value: f64) -> usize {
    let magnitude = value.abs();
    if magnitude == 0.0 || !magnitude.is_finite() {
        return 0;
    }
    // Limit of 9 decimals: smaller values do not matter in any unit here.
    (0..9)
        .find(|&decimals| {
            // Rounding may give a digit more.
            let rounded = (magnitude * 10f64.powi(decimals)).round();
            rounded >= 100.0
        })
        .map_or(9, |decimals| decimals as usize)
}

fn digits(value: f64, decimals: usize) -> String {
    // Avoids "-0".
    let value = if value == 0.0 { 0.0 } else { value };
    format!("{value:.decimals$}")
}

/// Number of trials, such as `1 trial` or `3 trials`.
pub(crate) fn trials(count: usize) -> String {
    match count {
        1 => "1 trial".to_string(),
        _ => format!("{count} trials"),
    }
}

/// Text with `decimals` decimals, for a sentence.
pub(crate) fn precise(value: f64, decimals: usize) -> String {
    let shown = format!("{value:.decimals$}");
    // Avoids "-0.0", and uses a minus sign instead of a hyphen.
    match shown.strip_prefix('-') {
        Some(rest) if rest.chars().all(|digit| "0.".contains(digit)) => rest.to_string(),
        Some(rest) => format!("\u{2212}{rest}"),
        None => shown,
    }
}

/// Text such as `0.253 [0.241, 0.262]`, all three with the decimals of the median. Without an interval, the
/// median and the number of trials.
pub(crate) fn show_estimate(estimate: &Estimate, scale: f64) -> String {
    let median = estimate.median * scale;
    // For shares and other small numbers, as many decimals as the largest of the three needs, and at most one
    // more.
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

/// Text of an estimate in this unit, after `scale`. Instructions have the decimals that decide.
pub(crate) fn show_in_unit(estimate: &Estimate, unit: &str, scale: f64) -> String {
    match unit.starts_with("instructions") {
        true => show_count(estimate),
        false => show_estimate(estimate, scale),
    }
}

/// Text of a count that trials repeat to a thousandth, such as `879.5 [879.4, 879.7]`: one decimal below
/// 10,000.
fn show_count(estimate: &Estimate) -> String {
    let decimals = usize::from(estimate.median.abs() < 1e4);
    let shown = |value: f64| digits(value, decimals);
    let median = shown(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", shown(lo), shown(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

/// Text of a share of CPU time in whole percent, such as `12 [11, 13]`, because a tick is 1 % of a second.
pub(crate) fn show_percent(estimate: &Estimate) -> String {
    let whole = |ratio: f64| format!("{:.0}", ratio * 100.0);
    let median = whole(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", whole(lo), whole(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

/// Text of a share of samples in percent, such as `12.3 [11.0, 13.1]`.
pub(crate) fn show_percent_fine(estimate: &Estimate) -> String {
    let percent = |ratio: f64| format!("{:.1}", ratio * 100.0);
    let median = percent(estimate.median);
    match estimate.lo.zip(estimate.hi) {
        Some((lo, hi)) => format!("{median} [{}, {}]", percent(lo), percent(hi)),
        None => format!("{median} [n={}]", estimate.n),
    }
}

/// Percentage such as `−3 % [−15, 5]`, with one decimal if the median is below 10.
pub(crate) fn signed(percent: &Estimate) -> String {
    let width = percent.lo.zip(percent.hi).map(|(lo, hi)| hi - lo);
    // Two decimals for an interval so narrow that its ends would be equal, as for instructions.
    let decimals = match width {
        Some(width) if width > 0.0 && width < NARROW => 2,
        _ => percent_decimals(percent.median),
    };
    let digits = |value: f64| precise(value, decimals);
    match percent.lo.zip(percent.hi) {
        Some((lo, hi)) => format!(
            "{} % [{}, {}]",
            digits(percent.median),
            digits(lo),
            digits(hi)
        ),
        None => format!("{} %", digits(percent.median)),
    }
}

/// Decimals of a percentage: one below 10, and two for what almost went to zero, so that it is not −100 %.
pub(crate) fn percent_decimals(percent: f64) -> usize {
    match percent {
        _ if percent > -100.0 && percent < -99.5 => 2,
        _ => usize::from(percent.abs() < 10.0),
    }
}

/// Width of an interval, in percentage points, whose ends one decimal does not distinguish.
const NARROW: f64 = 0.2;

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
