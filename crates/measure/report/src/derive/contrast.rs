//! Ratio of one cell's values to another's, trial by trial. All ratios of costs are computed here.

use crate::derive::estimate::Estimate;
use crate::derive::student::of_mean;

/// Ratio of a quantity between two sides: second over first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Contrast {
    /// Estimate of the factor. Its interval is anytime-valid if the run goes on until it is narrow.
    pub ratio: Estimate,
}

impl Contrast {
    /// Ratio over pairs of (first, second). Pairs whose first value is 0 are ignored. `None` if no
    /// pair is left.
    ///
    /// With `stops_early` the run goes on until the interval is narrow, so the interval is
    /// anytime-valid.
    pub fn of_pairs(
        pairs: impl IntoIterator<Item = (f64, f64)>,
        stops_early: bool,
    ) -> Option<Contrast> {
        let pairs = pairs.into_iter().filter(|(from, _)| *from != 0.0);
        let ratios = pairs.map(|(from, to)| to / from);
        let ratio = match stops_early {
            true => Estimate::anytime(ratios),
            false => Estimate::new(ratios),
        }?;
        Some(Contrast { ratio })
    }

    /// Ratio over the repetitions that both sides have. `None` if they share none.
    pub fn by_repetition(
        from: &[(u32, f64)],
        to: &[(u32, f64)],
        stops_early: bool,
    ) -> Option<Contrast> {
        Contrast::of_pairs(common(from, to), stops_early)
    }

    /// Ratio over pairs of guests that were restored from one snapshot with one seed: of their counts of
    /// instructions. `None` if no pair is left.
    pub fn of_restores(
        pairs: impl IntoIterator<Item = (f64, f64)>,
        least: f64,
    ) -> Option<Contrast> {
        let pairs = pairs.into_iter().filter(|(from, _)| *from != 0.0);
        let ratios: Vec<f64> = pairs.map(|(from, to)| to / from).collect();
        let ratio = of_mean(&ratios, least)?;
        Some(Contrast { ratio })
    }

    /// Ratio of two independent samples of few trials.
    ///
    /// The estimate is that of Hodges and Lehmann (1963). The interval holds the ratios that the
    /// rank test of Mann and Whitney (1947) does not reject; it needs four trials on each side. Not
    /// suitable for timed trials, because trials of one run share the machine's state
    /// (`stored.rs`).
    pub fn unpaired(from: &[f64], to: &[f64]) -> Option<Contrast> {
        let ratios = Ratios::new(from, to);
        let count = ratios.count();
        if count == 0 {
            return None;
        }
        let rank = unpaired_rank(from.len(), to.len()).filter(|rank| 2 * rank <= count);
        Some(Contrast {
            ratio: Estimate {
                median: f64::midpoint(ratios.at(count.div_ceil(2)), ratios.at(count / 2 + 1)),
                lo: rank.map(|rank| ratios.at(rank)),
                hi: rank.map(|rank| ratios.at(count + 1 - rank)),
                n: from.len().min(to.len()),
            },
        })
    }

    /// Change in percent of `from`.
    pub fn percent(&self) -> Estimate {
        let percent = |ratio: f64| (ratio - 1.0) * 100.0;
        Estimate {
            median: percent(self.ratio.median),
            lo: self.ratio.lo.map(percent),
            hi: self.ratio.hi.map(percent),
            n: self.ratio.n,
        }
    }

    /// Half the interval's width, divided by the larger of 1 and the ratio, so that a halving and a
    /// doubling are equally hard to detect. `None` without an interval.
    pub fn half_width(&self) -> Option<f64> {
        let width = self.ratio.hi? - self.ratio.lo?;
        Some(width / 2.0 / self.ratio.median.max(1.0))
    }
}

/// Pairs of the repetitions that both sides have.
pub(crate) fn common<'a>(
    from: &'a [(u32, f64)],
    to: &'a [(u32, f64)],
) -> impl Iterator<Item = (f64, f64)> + use<'a> {
    to.iter().filter_map(|(repetition, to)| {
        let (_, from) = from.iter().find(|(other, _)| other == repetition)?;
        Some((*from, *to))
    })
}

/// Ratios of all pairs of two samples, of which none is stored: 20,000 trials on either side have 3 GB of them.
struct Ratios {
    /// Positive values, ascending.
    from: Vec<f64>,
    /// Values from 0, ascending.
    to: Vec<f64>,
}

impl Ratios {
    fn new(from: &[f64], to: &[f64]) -> Ratios {
        let sorted = |values: &[f64], is_valid: &dyn Fn(f64) -> bool| {
            let valid = values
                .iter()
                .copied()
                .filter(|&value| value.is_finite() && is_valid(value));
            let mut valid: Vec<f64> = valid.collect();
            valid.sort_by(f64::total_cmp);
            valid
        };
        Ratios {
            from: sorted(from, &|value| value > 0.0),
            to: sorted(to, &|value| value >= 0.0),
        }
    }

    fn count(&self) -> usize {
        self.from.len() * self.to.len()
    }

    /// Number of ratios that are at most `limit`. The larger `from` is, the more values of `to` are.
    fn at_most(&self, limit: f64) -> usize {
        let mut below = 0;
        let each = self.from.iter().map(|from| {
            let more = self.to[below..].iter();
            below += more.take_while(|to| **to / from <= limit).count();
            below
        });
        each.sum()
    }

    /// The `rank`-th smallest ratio, from 1. Found by bisection from 0 to infinity over the bits of numbers, whose order is
    /// that of the numbers.
    fn at(&self, rank: usize) -> f64 {
        let (mut low, mut high) = (0, f64::INFINITY.to_bits());
        while low < high {
            let middle = low + (high - low) / 2;
            if self.at_most(f64::from_bits(middle)) >= rank {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        f64::from_bits(low)
    }
}

/// Largest k for which the k-th smallest and the k-th largest of all n·m ratios enclose the true
/// ratio with 95 % confidence. Uses the normal approximation with continuity correction; a test
/// checks it by counting.
fn unpaired_rank(n: usize, m: usize) -> Option<usize> {
    if n.min(m) < UNPAIRED_LEAST {
        return None;
    }
    let (n, m) = (n as f64, m as f64);
    let mean = n * m / 2.0;
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let below = (mean - 1.96 * deviation - 0.5).floor();
    (below >= 0.0).then_some(below as usize + 1)
}

/// Sample size below which the normal approximation is too inaccurate.
const UNPAIRED_LEAST: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_trials_of_the_same_repetition() {
        // The second repetition was slow on both sides, so the ratio does not change.
        let ours = [(0, 2.0), (1, 20.0), (2, 2.0), (4, 9.0)];
        let theirs = [(2, 1.0), (1, 10.0), (0, 1.0), (3, 5.0)];
        let ratio = Contrast::by_repetition(&theirs, &ours, false)
            .unwrap()
            .ratio;
        assert_eq!((ratio.median, ratio.n), (2.0, 3));
        assert_eq!(Contrast::by_repetition(&[(7, 1.0)], &ours, false), None);
        assert_eq!(Contrast::of_pairs([(0.0, 1.0)], false), None);
    }

    /// Probability that fewer than `rank` of the n·m pairs have the value of the second sample
    /// first, if all n + m values are in a random order. Counts all orders.
    fn chance_below(n: usize, m: usize, rank: usize) -> f64 {
        let mut counts = [0u64; 2];
        for order in 0u32..1 << (n + m) {
            if order.count_ones() as usize != n {
                continue;
            }
            let (mut pairs, mut theirs) = (0, 0);
            for place in 0..n + m {
                match order >> place & 1 {
                    1 => pairs += theirs,
                    _ => theirs += 1,
                }
            }
            counts[usize::from(pairs < rank)] += 1;
        }
        counts[1] as f64 / (counts[0] + counts[1]) as f64
    }

    #[test]
    fn the_ranks_of_an_unpaired_ratio_are_those_of_mann_and_whitney() {
        for n in UNPAIRED_LEAST..=8 {
            for m in n..=8 {
                let rank = unpaired_rank(n, m).unwrap();
                let chance = 2.0 * chance_below(n, m, rank);
                assert!(chance <= 0.0505, "{n} and {m}: {rank}, {chance}");
                assert!(2.0 * chance_below(n, m, rank + 2) > 0.05, "{n} and {m}");
            }
        }
    }

    #[test]
    fn the_ratio_of_a_rank_is_that_of_all_pairs_in_order() {
        let from = [3.0, 0.5, 7.0, 0.0, f64::NAN, 2.5];
        let to = [1.0, 0.0, 9.5, 2.5];
        let ratios = Ratios::new(&from, &to);
        let valid = from.iter().filter(|from| **from > 0.0);
        let mut all: Vec<f64> = valid.flat_map(|from| to.map(|to| to / from)).collect();
        all.sort_by(f64::total_cmp);
        assert_eq!(ratios.count(), all.len());
        let found: Vec<f64> = (1..=all.len()).map(|rank| ratios.at(rank)).collect();
        assert_eq!(found, all);
    }

    #[test]
    fn an_unpaired_ratio_needs_four_trials_and_finds_the_factor() {
        let values = |factor: f64, n: u32| -> Vec<f64> {
            (0..n).map(|i| factor * (10.0 + f64::from(i))).collect()
        };
        let three = Contrast::unpaired(&values(1.0, 3), &values(2.0, 3)).unwrap();
        assert_eq!((three.ratio.lo, three.ratio.n), (None, 3));
        let eight = Contrast::unpaired(&values(1.0, 8), &values(2.0, 8)).unwrap();
        assert!((eight.ratio.median - 2.0).abs() < 0.05, "{eight:?}");
        assert!(eight.ratio.lo.unwrap() > 1.4 && eight.ratio.hi.unwrap() < 2.8);
        assert_eq!(Contrast::unpaired(&[], &[1.0]), None);
    }

    #[test]
    fn a_halving_and_a_doubling_are_as_hard_to_tell() {
        let width = |factor: f64| {
            let pairs = (0..9).map(|i| (1.0, factor * (1.0 + 0.01 * f64::from(i))));
            Contrast::of_pairs(pairs, true)
                .unwrap()
                .half_width()
                .unwrap()
        };
        assert!((width(2.0) - 0.04 / 1.04).abs() < 1e-9);
        assert!((width(0.5) - 0.02).abs() < 1e-9);
    }
}
