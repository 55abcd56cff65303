//! Estimator: a median and its distribution-free interval.
//!
//! No bootstrap is used: docs/dev/decisions.md has the coverage of a percentile bootstrap at six trials.

use std::cmp::Ordering;

use serde::Serialize;

/// Minimum confidence of every interval.
pub const CONFIDENCE: f64 = 0.95;

/// Median, its interval with at least 95 % confidence, and the number of trials.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Median of the trials; the mean of the middle two if their number is even. Of trials that count
    /// instructions it is their mean.
    pub median: f64,
    /// Lower end of the interval. `None` below six trials, where no such interval exists.
    pub lo: Option<f64>,
    /// Upper end of the interval.
    pub hi: Option<f64>,
    /// Number of trials.
    pub n: usize,
}

impl Estimate {
    /// Estimate from the values of independent trials. Values that are not finite are ignored.
    /// `None` if no value is left.
    ///
    /// The interval is from the k-th smallest to the k-th largest value, with k as large as 95 %
    /// confidence allows. Each trial is below the true median with probability ½, so the interval
    /// misses the median with probability 2·P(Binomial(n, ½) < k), whatever the distribution.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        Estimate::at(values, CONFIDENCE)
    }

    /// Estimate with an interval of at least this confidence. Otherwise equal to [`Estimate::new`].
    pub fn at(values: impl IntoIterator<Item = f64>, confidence: f64) -> Option<Estimate> {
        Estimate::by_rank(values, |n| rank(n, confidence))
    }

    /// Estimate with an anytime-valid interval: it holds the median at all sample sizes at once, so
    /// a run may stop when its interval is narrow.
    ///
    /// The interval is a little wider than that of [`Estimate::new`], and needs seven trials, not
    /// six. `anytime_rank` explains why it is valid.
    pub fn anytime(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        Estimate::by_rank(values, anytime_rank)
    }

    fn by_rank(
        values: impl IntoIterator<Item = f64>,
        rank: impl Fn(usize) -> Option<usize>,
    ) -> Option<Estimate> {
        let mut sorted: Vec<f64> = values.into_iter().filter(|v| v.is_finite()).collect();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap_or(Ordering::Equal));
        let n = sorted.len();
        let median = match n {
            0 => return None,
            n if n % 2 == 1 => sorted[n / 2],
            n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
        };
        let rank = rank(n);
        Some(Estimate {
            median,
            lo: rank.map(|rank| sorted[rank - 1]),
            hi: rank.map(|rank| sorted[n - rank]),
            n,
        })
    }

    /// Half the interval's width over the median. `None` without an interval, or if the median is
    /// 0.
    pub fn half_width_ratio(&self) -> Option<f64> {
        let width = self.hi? - self.lo?;
        (self.median != 0.0).then(|| width / 2.0 / self.median.abs())
    }

    /// True if half-width over median is at most `target`. False without an interval.
    pub fn converged(&self, target: f64) -> bool {
        self.half_width_ratio().is_some_and(|ratio| ratio <= target)
    }
}

/// Largest k for which the k-th smallest and the k-th largest of n values enclose the median with
/// this confidence. At [`CONFIDENCE`] there is none below n = 6 (n = 5 reaches 1 - 2·½⁵ = 93.75 %).
fn rank(n: usize, confidence: f64) -> Option<usize> {
    // Sum of P(Binomial(n, ½) = i) in logarithms: ½ⁿ is 0 in an f64 from n = 1075.
    let mut ln_probability = -(n as f64) * std::f64::consts::LN_2;
    let mut below = 0.0;
    let mut rank = 0;
    for i in 0..n / 2 {
        below += ln_probability.exp();
        if 2.0 * below > 1.0 - confidence {
            break;
        }
        rank = i + 1;
        ln_probability += ((n - i) as f64 / (i + 1) as f64).ln();
    }
    (rank > 0).then_some(rank)
}

/// Largest k for which the k-th smallest and the k-th largest of n values enclose the median with
/// [`CONFIDENCE`] at all n together. `None` below n = 7.
///
/// Trials above the true median are heads of a fair coin. A player who bets on them by the
/// Krichevsky-Trofimov rule has, after k heads of n, 2ⁿ B(k+½, n-k+½) / B(½, ½) times the starting
/// money. In a fair game this factor reaches 20 at any time with probability at most 1/20 (Ville
/// 1939; Robbins 1970; Howard and Ramdas 2022 for quantiles). So a value for which it reached 20 is
/// not the median.
fn anytime_rank(n: usize) -> Option<usize> {
    // The player's wealth for k = 0 is Π (2i-1)/i, for i from 1 to n. Each additional head
    // multiplies it by (k+½) / (n-k-½).
    let mut ln_wealth: f64 = (1..=n).map(|i| ((2 * i - 1) as f64 / i as f64).ln()).sum();
    let needed = -(1.0 - CONFIDENCE).ln();
    let mut rank = 0;
    for k in 0..n / 2 {
        if ln_wealth < needed {
            break;
        }
        rank = k + 1;
        ln_wealth += ((k as f64 + 0.5) / (n as f64 - k as f64 - 0.5)).ln();
    }
    (rank > 0).then_some(rank)
}

/// Estimate of six trials with this interval, for tests.
#[cfg(test)]
pub(crate) fn between(lo: f64, hi: f64) -> Estimate {
    Estimate {
        median: (lo + hi) / 2.0,
        lo: Some(lo),
        hi: Some(hi),
        n: 6,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_testbed::Random;

    /// Coverage of the k-th order statistics: the share of the 2ⁿ ways in which n trials can be
    /// below (1) or above (0) the median that have at least k below and at least k above.
    fn coverage_by_enumeration(n: u32, k: u32) -> f64 {
        let covered = (0..1u32 << n)
            .filter(|ways| ways.count_ones() >= k && n - ways.count_ones() >= k)
            .count();
        covered as f64 / f64::from(1u32 << n)
    }

    #[test]
    fn the_ranks_are_the_tightest_that_enumeration_allows() {
        for n in 1..=16 {
            let tightest = (1..=n / 2)
                .rev()
                .find(|&k| coverage_by_enumeration(n, k) >= CONFIDENCE)
                .map(|k| k as usize);
            assert_eq!(rank(n as usize, CONFIDENCE), tightest, "n = {n}");
        }
        assert_eq!(rank(5, CONFIDENCE), None);
        // 1 - 2·½ⁿ is the highest possible confidence.
        assert_eq!((rank(8, 0.997), rank(10, 0.997)), (None, Some(1)));
    }

    #[test]
    fn the_ranks_are_those_of_the_published_tables() {
        // Conover, Practical Nonparametric Statistics, table of confidence intervals for the median;
        // 1000 and 5000 by exact rational arithmetic (Python's fractions and math.comb).
        for (n, k) in [
            (6, 1),
            (8, 1),
            (9, 2),
            (12, 3),
            (15, 4),
            (20, 6),
            (30, 10),
            (50, 18),
            (100, 40),
            (1000, 469),
            (5000, 2431),
        ] {
            assert_eq!(rank(n, CONFIDENCE), Some(k), "n = {n}");
        }
    }

    #[test]
    fn an_interval_for_every_look_is_wider_and_never_loses_the_median() {
        // Computed with the beta function by lgamma, 40 digits (mpmath).
        let known = [
            (6, None),
            (7, Some(1)),
            (9, Some(1)),
            (12, Some(2)),
            (20, Some(4)),
            (30, Some(7)),
            (50, Some(14)),
            (100, Some(34)),
            (500, Some(211)),
        ];
        for (n, k) in known {
            assert_eq!(anytime_rank(n), k, "n = {n}");
        }
        // Fair coins, checked after every trial of 300: the interval misses in at most 5 % of games
        // (plus 3 standard errors).
        let (games, mut lost) = (2000, 0);
        let mut random = Random::new(5);
        for _ in 0..games {
            let mut below = 0;
            lost += usize::from((1..=300).any(|n| {
                below += usize::from(random.uniform() < 0.5);
                anytime_rank(n).is_some_and(|k| below < k || n - below < k)
            }));
        }
        assert!(lost as f64 / f64::from(games) < 0.065, "{lost} of {games}");
        assert!(lost > 0, "an interval that is never wrong is too wide");
    }

    #[test]
    fn medians_intervals_and_their_absence() {
        let five = Estimate::new([5.0, 1.0, 4.0, 2.0, 3.0]).unwrap();
        assert_eq!(
            (five.median, five.lo, five.hi, five.n),
            (3.0, None, None, 5)
        );
        assert!(!five.converged(1.0));
        let nine = Estimate::new((1..=9).map(f64::from)).unwrap();
        assert_eq!((nine.median, nine.lo, nine.hi), (5.0, Some(2.0), Some(8.0)));
        assert!(nine.converged(0.6) && !nine.converged(0.59));
        assert_eq!(Estimate::new([2.0, 1.0]).unwrap().median, 1.5);
        assert_eq!(Estimate::new([f64::NAN]), None);
        assert_eq!(Estimate::new([]), None);
        let zero = Estimate::new([0.0; 6]).unwrap();
        assert!(!zero.converged(0.1), "a share of nothing is no share");
    }

    /// Share of studies whose interval holds the true median 1. Each has `n` trials from an
    /// exponential distribution, whose heavy right tail is like that of CPU cost.
    fn coverage(n: usize, interval: impl Fn(&[f64], &mut Random) -> (f64, f64)) -> f64 {
        let mut random = Random::new(n as u64);
        let studies = 4000;
        let held = (0..studies)
            .filter(|_| {
                let trials: Vec<f64> = (0..n).map(|_| -random.uniform().log2()).collect();
                let (lo, hi) = interval(&trials, &mut random);
                (lo..=hi).contains(&1.0)
            })
            .count();
        held as f64 / f64::from(studies)
    }

    #[test]
    fn intervals_hold_the_median_as_often_as_they_say() {
        for n in [6, 7, 9, 12, 30] {
            let k = rank(n, CONFIDENCE).unwrap() as u32;
            let covered = coverage(n, |trials, _| {
                let estimate = Estimate::new(trials.iter().copied()).unwrap();
                (estimate.lo.unwrap(), estimate.hi.unwrap())
            });
            // 4000 studies have a standard error of at most 0.0035.
            assert!(covered > 0.94, "n = {n}: {covered}");
            if n <= 16 {
                let exact = coverage_by_enumeration(n as u32, k);
                assert!(
                    (covered - exact).abs() < 0.014,
                    "n = {n}: {covered}, {exact}"
                );
            }
        }
    }

    #[test]
    fn a_percentile_bootstrap_of_six_trials_covers_less_than_it_says() {
        let covered = coverage(6, |trials, random| {
            let mut medians: Vec<f64> = (0..400)
                .map(|_| {
                    let again = trials
                        .iter()
                        .map(|_| trials[(random.uniform() * trials.len() as f64) as usize]);
                    Estimate::new(again).unwrap().median
                })
                .collect();
            medians.sort_by(f64::total_cmp);
            (medians[10], medians[389])
        });
        println!("percentile bootstrap, n = 6: {covered}");
        assert!(covered < 0.94, "{covered}");
    }
}
