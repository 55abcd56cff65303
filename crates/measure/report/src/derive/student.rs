//! Student's t: intervals of means of few values.

use crate::derive::estimate::{CONFIDENCE, Estimate};

/// Mean of a few values with its interval at 95 % confidence. Their standard deviation counts as at least
/// `least`, a fraction of the mean: three values may agree by chance. `None` without a value; no interval of
/// one value.
pub(crate) fn of_mean(values: &[f64], least: f64) -> Option<Estimate> {
    let n = values.len();
    let mean = (n > 0).then(|| mean(values.iter().copied()))?;
    Some(interval(mean, squares(values), &[n], least))
}

/// Mean of `to` over the mean of `from`, two independent groups of few values, with its interval at 95 %
/// confidence. The standard deviation is pooled, and counts as at least `least`, a fraction. `None` if a group
/// is empty, or the mean of `from` is not positive; no interval of one value each.
pub(crate) fn ratio_of_means(from: &[f64], to: &[f64], least: f64) -> Option<Estimate> {
    let (n, m) = (from.len(), to.len());
    let [before, after] = [from, to].map(|values| mean(values.iter().copied()));
    if n == 0 || m == 0 || before <= 0.0 {
        return None;
    }
    let ratio = after / before;
    // Each group's deviations as fractions of its mean, on the scale of the ratio.
    let relative = |values: &[f64], mean: f64| match mean == 0.0 {
        true => 0.0,
        false => squares(values) / mean.powi(2),
    };
    let squares = (relative(from, before) + relative(to, after)) * ratio.powi(2);
    Some(interval(ratio, squares, &[n, m], least))
}

/// Difference of the means of two independent groups of few values, and half the width of its interval at 95 %
/// confidence; no interval of one value each. `None` if a group is empty.
pub fn difference_of_means(from: &[f64], to: &[f64]) -> Option<(f64, Option<f64>)> {
    if from.is_empty() || to.is_empty() {
        return None;
    }
    let [before, after] = [from, to].map(|values| mean(values.iter().copied()));
    let by = interval(
        after - before,
        squares(from) + squares(to),
        &[from.len(), to.len()],
        0.0,
    );
    Some((by.median, by.hi.map(|hi| hi - by.median)))
}

/// Interval around an estimate from the sum of squares within groups of these sizes.
fn interval(at: f64, squares: f64, sizes: &[usize], least: f64) -> Estimate {
    let freedom = sizes.iter().sum::<usize>() - sizes.len();
    let half = (freedom > 0).then(|| {
        let deviation = (squares / freedom as f64).sqrt().max(least * at.abs());
        let share: f64 = sizes.iter().map(|n| 1.0 / *n as f64).sum();
        t_quantile(1.0 - CONFIDENCE, freedom) * deviation * share.sqrt()
    });
    Estimate {
        median: at,
        lo: half.map(|half| at - half),
        hi: half.map(|half| at + half),
        n: sizes.iter().copied().min().unwrap_or(0),
    }
}

pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> f64 {
    let (mut sum, mut n) = (0.0, 0.0);
    for value in values {
        sum += value;
        n += 1.0;
    }
    sum / f64::max(n, 1.0)
}

/// Sum of squares around the mean.
pub(crate) fn squares(values: &[f64]) -> f64 {
    let mean = mean(values.iter().copied());
    values.iter().map(|value| (value - mean).powi(2)).sum()
}

/// Probability of Student's t beyond ±`t`, by the finite sums for whole degrees of freedom (Abramowitz and
/// Stegun 26.7.3, 26.7.4).
pub(crate) fn t_tails(t: f64, freedom: usize) -> f64 {
    let angle = (t / (freedom as f64).sqrt()).atan();
    let (sine, cosine) = angle.sin_cos();
    let is_odd = freedom % 2 == 1;
    let mut term = if is_odd { cosine } else { 1.0 };
    let mut sum = if freedom == 1 { 0.0 } else { term };
    let mut power = if is_odd { 3 } else { 2 };
    while power < freedom {
        term *= cosine * cosine * (power - 1) as f64 / power as f64;
        sum += term;
        power += 2;
    }
    let within = match is_odd {
        true => (angle + sine * sum) * std::f64::consts::FRAC_2_PI,
        false => sine * sum,
    };
    (1.0 - within).max(0.0)
}

/// Value of t beyond which both tails together have this probability.
pub(crate) fn t_quantile(tails: f64, freedom: usize) -> f64 {
    let (mut low, mut high) = (0.0, 1e6);
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if t_tails(middle, freedom) > tails {
            low = middle;
        } else {
            high = middle;
        }
    }
    high
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_table_of_students_t() {
        for (freedom, expected) in [
            (1, 12.706),
            (2, 4.303),
            (5, 2.571),
            (6, 2.447),
            (12, 2.179),
            (30, 2.042),
        ] {
            let found = t_quantile(0.05, freedom);
            assert!((found - expected).abs() < 6e-4, "{freedom}: {found}");
        }
        assert!((t_quantile(0.01, 10) - 3.169).abs() < 6e-4);
    }

    #[test]
    fn equal_values_have_the_least_deviation_and_one_has_no_interval() {
        let three = of_mean(&[200.0; 3], 0.01).unwrap();
        // 4.303 · 0.01 · 200 / √3
        assert!((three.hi.unwrap() - 204.969).abs() < 0.01, "{three:?}");
        let spread = of_mean(&[190.0, 200.0, 210.0], 0.01).unwrap();
        assert!((spread.hi.unwrap() - 224.84).abs() < 0.01, "{spread:?}");
        assert_eq!(of_mean(&[7.0], 0.01).unwrap().lo, None);
        assert_eq!(of_mean(&[], 0.01), None);
    }

    #[test]
    fn the_ratio_of_means_has_both_groups_spread() {
        let ratio = ratio_of_means(&[99.0, 100.0, 101.0], &[198.0, 200.0, 202.0], 0.0).unwrap();
        // sd of each: 1 %; 2.776 · 0.02 · √(2/3)
        assert!((ratio.hi.unwrap() - 2.0453).abs() < 1e-3, "{ratio:?}");
        assert_eq!(ratio.n, 3);
        let equal = ratio_of_means(&[100.0; 3], &[100.1; 3], 1.6e-4).unwrap();
        assert!(
            equal.lo.unwrap() > 1.0,
            "0.1 % is decided by three a side: {equal:?}"
        );
        assert_eq!(ratio_of_means(&[1.0], &[2.0], 0.0).unwrap().lo, None);
        assert_eq!(ratio_of_means(&[], &[2.0], 0.0), None);
    }
}
