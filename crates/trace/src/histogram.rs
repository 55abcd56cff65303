//! Histogram: exact below 64, then in steps of at most 1/16 of the value.

/// Distribution of values. It takes no memory until its first value, and then as much as its
/// largest value needs.
///
/// A value that equals the one before only extends a run: full-sized segments and their ACKs come
/// by the thousand, and counting each singly took a tenth of the analysis.
#[derive(Debug, Clone, Default)]
pub struct Histogram {
    counts: Vec<u32>,
    n: u64,
    sum: u64,
    max: u64,
    /// Last value, and how often it came in a row. It is not yet in any of the fields above.
    last: u64,
    run: u64,
}

/// Limit below which values are counted exactly.
const EXACT: u64 = 64;
/// Steps in each doubling above the limit.
const STEPS: u64 = 16;

impl Histogram {
    /// Counts a value.
    #[inline]
    pub fn add(&mut self, value: u64) {
        if value == self.last {
            self.run += 1;
        } else {
            self.begin_run(value);
        }
    }

    #[inline(never)]
    fn begin_run(&mut self, value: u64) {
        self.end_run();
        (self.last, self.run) = (value, 1);
    }

    fn end_run(&mut self) {
        if self.run == 0 {
            return;
        }
        let index = index(self.last);
        if index >= self.counts.len() {
            self.counts.resize(index + 1, 0);
        }
        let run = u32::try_from(self.run).unwrap_or(u32::MAX);
        self.counts[index] = self.counts[index].saturating_add(run);
        (self.n, self.sum, self.max) = (self.n(), self.sum(), self.largest());
        self.run = 0;
    }

    fn largest(&self) -> u64 {
        if self.run > 0 {
            self.max.max(self.last)
        } else {
            self.max
        }
    }

    /// Moves `count` values from `from` to the smaller `to`, or as many as were counted. Both are
    /// below 64.
    pub(crate) fn move_values(&mut self, from: u64, to: u64, count: u64) {
        self.end_run();
        let there = self.counts.get(index(from)).copied().unwrap_or(0);
        let moved = there.min(count as u32);
        if moved > 0 && from < EXACT {
            self.counts[index(from)] -= moved;
            self.counts[index(to)] += moved;
            self.sum = self.sum.saturating_sub((from - to) * u64::from(moved));
            if self.max == from {
                let largest = self.counts.iter().rposition(|count| *count > 0);
                self.max = largest.unwrap_or(0) as u64;
            }
        }
    }

    /// Number of values.
    pub fn n(&self) -> u64 {
        self.n + self.run
    }

    /// Sum of the values.
    pub fn sum(&self) -> u64 {
        self.sum.saturating_add(self.last.saturating_mul(self.run))
    }

    /// Largest value. `None` without values.
    pub fn max(&self) -> Option<u64> {
        (self.n() > 0).then(|| self.largest())
    }

    /// Mean of the values. `None` without values.
    pub fn mean(&self) -> Option<f64> {
        (self.n() > 0).then(|| self.sum() as f64 / self.n() as f64)
    }

    /// Smallest value (of [`Histogram::buckets`]) that is not below at least this share (0 to 1) of
    /// the values. `None` without values.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let wanted = ((self.n() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        self.buckets().find_map(|(value, count)| {
            seen += count;
            (seen >= wanted).then_some(value)
        })
    }

    /// Value at which half of the sum is reached. If the values are times that followed each other,
    /// this one held at half of the time. `None` without values.
    pub(crate) fn median_by_weight(&self) -> Option<u64> {
        let half = self.sum() / 2;
        let mut seen = 0u64;
        self.buckets().find_map(|(value, count)| {
            seen = seen.saturating_add(value.saturating_mul(count));
            (seen >= half).then_some(value)
        })
    }

    /// Most frequent value, and how often it came; of equally frequent values the smallest. `None`
    /// without values.
    pub fn mode(&self) -> Option<(u64, u64)> {
        self.buckets()
            .fold(None, |best, (value, count)| match best {
                Some((_, most)) if most >= count => best,
                _ => Some((value, count)),
            })
    }

    /// Number of values above `value`, which must be below 64.
    pub fn above(&self, value: u64) -> u64 {
        self.buckets()
            .filter(|(from, _)| *from > value)
            .map(|(_, count)| count)
            .sum()
    }

    /// Smallest value of each step that is not empty, with its count. The last step has the largest
    /// value instead, which is known exactly: a full-sized segment is usually both.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> {
        let max = self.largest();
        let (last, of_run) = (index(max), index(self.last));
        (0..=last).filter_map(move |index| {
            let value = if index == last {
                max
            } else {
                lowest(index as u64)
            };
            let counted = u64::from(self.counts.get(index).copied().unwrap_or(0));
            let count = counted + if index == of_run { self.run } else { 0 };
            (count > 0).then_some((value, count))
        })
    }
}

#[inline]
fn index(value: u64) -> usize {
    if value < EXACT {
        return value as usize;
    }
    let octave = u64::from(63 - value.leading_zeros()) - 6;
    (EXACT + octave * STEPS + (value >> (octave + 2)) - STEPS) as usize
}

fn lowest(index: u64) -> u64 {
    if index < EXACT {
        return index;
    }
    let (octave, step) = ((index - EXACT) / STEPS, (index - EXACT) % STEPS);
    (STEPS + step) << (octave + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_holds_the_values_from_its_lowest_to_the_next_ones() {
        for value in (0..5000).chain([65_535, 1 << 40, u64::MAX]) {
            let low = lowest(index(value) as u64);
            assert!(
                low <= value && (value - low) * STEPS <= value,
                "{value}: {low}"
            );
        }
    }

    #[test]
    fn quantiles_and_mode() {
        let mut histogram = Histogram::default();
        for value in [1, 2, 2, 3, 9] {
            histogram.add(value);
        }
        assert_eq!(
            (histogram.quantile(0.5), histogram.quantile(1.0)),
            (Some(2), Some(9))
        );
        assert_eq!((histogram.mode(), histogram.above(2)), (Some((2, 2)), 2));
        assert_eq!(Histogram::default().quantile(0.5), None);
        let mut sizes = Histogram::default();
        [1448, 1448, 100].iter().for_each(|size| sizes.add(*size));
        assert_eq!(
            (sizes.quantile(0.5), sizes.quantile(0.1)),
            (Some(1448), Some(100))
        );
    }
}
