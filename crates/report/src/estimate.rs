//! The estimator: a median and its distribution-free interval.
//!
//! Not a bootstrap: docs/method.md has what a percentile bootstrap covers at six trials.

use std::cmp::Ordering;

use serde::Serialize;

/// Confidence that every interval has at least.
pub const CONFIDENCE: f64 = 0.95;

/// A median, the interval that holds the true one with at least 95 % confidence, and from how many.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Estimate {
    /// Median of the trials; the mean of the middle two of an even number.
    pub median: f64,
    /// Lower end of the interval; absent for fewer than six trials, where no such interval exists.
    pub lo: Option<f64>,
    /// Upper end.
    pub hi: Option<f64>,
    /// Trials.
    pub n: usize,
}

impl Estimate {
    /// From the values of independent trials; absent without any. Values that are not finite are
    /// not values.
    ///
    /// The interval is from the k-th smallest to the k-th largest, k as large as 95 % confidence
    /// allows: each trial falls below the true median with probability ½, so the interval misses it
    /// with probability 2·P(Binomial(n, ½) < k), whatever the distribution.
    pub fn new(values: impl IntoIterator<Item = f64>) -> Option<Estimate> {
        Estimate::at(values, CONFIDENCE)
    }

    /// As [`Estimate::new`], with an interval of at least this confidence.
    pub fn at(values: impl IntoIterator<Item = f64>, confidence: f64) -> Option<Estimate> {
        Estimate::by_rank(values, |n| rank(n, confidence))
    }

    /// As [`Estimate::new`], with an interval that holds the median at every look, however often and whenever
    /// somebody looks and stops: what a run needs that goes on until its interval is narrow. It is a
    /// little wider, and takes seven trials for six. The function `anytime_rank` says why it holds.
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

    /// Half the interval's width over the median; absent without an interval.
    pub fn half_width_ratio(&self) -> Option<f64> {
        let width = self.hi? - self.lo?;
        (self.median != 0.0).then(|| width / 2.0 / self.median.abs())
    }

    /// Whether the interval is as narrow as this: half-width over median. Never without an interval.
    pub fn converged(&self, target: f64) -> bool {
        self.half_width_ratio().is_some_and(|ratio| ratio <= target)
    }
}

/// The largest k for which the k-th smallest and the k-th largest of n enclose the median with this confidence; at
/// [`CONFIDENCE`] none below n = 6 (n = 5 reaches 1 - 2·½⁵ = 93.75 %).
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

/// The largest k for which the k-th smallest and the k-th largest of n enclose the median with [`CONFIDENCE`] at all
/// n together; none below n = 7.
///
/// Trials above the true median are heads of a fair coin. Somebody who bets on them by the Krichevsky-Trofimov rule
/// has, after k heads of n, 2ⁿ B(k+½, n-k+½) / B(½, ½) times what he had. In a fair game that reaches 20 at any time
/// with probability at most 1/20 (Ville 1939; Robbins 1970; Howard and Ramdas 2022 for quantiles). A value for
/// which it has reached 20 is therefore not the median.
fn anytime_rank(n: usize) -> Option<usize> {
    // The wealth for k = 0 is Π (2i-1)/i, i to n; one head more is a factor (k+½) / (n-k-½).
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Of all 2ⁿ ways in which n trials can fall below (1) or above (0) the median, the share in
    /// which at least k are below and at least k above: the coverage of the k-th order statistics.
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
        // 1 - 2·½ⁿ at best.
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
        // By the beta function in lgamma, 40 digits (mpmath).
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
        // Looked at after every trial of 300, of fair coins: ever lost in at most 5 % (3 standard errors more).
        let (games, mut lost) = (2000, 0);
        let mut uniform = Uniform(5);
        for _ in 0..games {
            let mut below = 0;
            lost += usize::from((1..=300).any(|n| {
                below += usize::from(uniform.next() < 0.5);
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

    /// SplitMix64 to a uniform in (0, 1).
    struct Uniform(u64);
    impl Uniform {
        fn next(&mut self) -> f64 {
            self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
            let mut z = self.0;
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            (((z ^ (z >> 31)) >> 11) as f64 + 0.5) / (1u64 << 53) as f64
        }
    }

    /// The share of studies whose interval holds the true median 1: `n` trials, exponential with a
    /// heavy right tail as CPU cost has it.
    fn coverage(n: usize, interval: impl Fn(&[f64], &mut Uniform) -> (f64, f64)) -> f64 {
        let mut uniform = Uniform(n as u64);
        let studies = 4000;
        let held = (0..studies)
            .filter(|_| {
                let trials: Vec<f64> = (0..n).map(|_| -uniform.next().log2()).collect();
                let (lo, hi) = interval(&trials, &mut uniform);
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
            // 4000 studies: a standard error of at most 0.0035.
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
        let covered = coverage(6, |trials, uniform| {
            let mut medians: Vec<f64> = (0..400)
                .map(|_| {
                    let again = trials
                        .iter()
                        .map(|_| trials[(uniform.next() * trials.len() as f64) as usize]);
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
