//! A histogram that many threads record into without a lock, because a lock would switch contexts
//! where they are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

/// Limit of values: 2^42 ns, which is 1.2 h. Larger values count as the largest.
const VALUE_LOG2: u32 = 42;

/// Counts of values, for all threads of a group.
#[derive(Debug)]
pub(crate) struct SharedHistogram {
    counts: Box<[AtomicU64]>,
    /// Base-2 logarithm of the steps of each power of two: 10 for three digits and 260 KiB, 7 for
    /// two digits and 37 KiB.
    steps_log2: u32,
}

impl SharedHistogram {
    pub(crate) fn new(steps_log2: u32) -> SharedHistogram {
        let places = place((1 << VALUE_LOG2) - 1, steps_log2) + 1;
        SharedHistogram {
            counts: (0..places).map(|_| AtomicU64::new(0)).collect(),
            steps_log2,
        }
    }

    #[inline]
    pub(crate) fn record(&self, value: u64) {
        let value = value.min((1 << VALUE_LOG2) - 1);
        self.counts[place(value, self.steps_log2)].fetch_add(1, Ordering::Relaxed);
    }

    /// Adds the values recorded since the last call to `taken`, which is empty, and returns it.
    pub(crate) fn take(&self, mut taken: Histogram<u64>) -> Histogram<u64> {
        for (place, count) in self.counts.iter().enumerate() {
            if count.load(Ordering::Relaxed) > 0 {
                let count = count.swap(0, Ordering::Relaxed);
                taken.saturating_record_n(value(place, self.steps_log2), count);
            }
        }
        taken
    }
}

/// Empty histogram for 1 ns to 1 h, 3 digits; a longer time counts as 1 h.
pub(crate) fn response_times() -> Histogram<u64> {
    times(3)
}

/// Empty histogram for 1 ns to 1 h, 2 digits.
pub(crate) fn operation_times() -> Histogram<u64> {
    times(2)
}

fn times(digits: u8) -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000_000, digits)
        .expect("the bounds are in order and the digits are between 0 and 5")
}

/// Index of a value's count. Values below twice the steps have an index each; above, each power of
/// two has `1 << steps_log2` indices.
fn place(value: u64, steps_log2: u32) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(steps_log2 + 1);
    ((u64::from(shift) << steps_log2) + (value >> shift)) as usize
}

/// Middle of the values that share an index.
fn value(place: usize, steps_log2: u32) -> u64 {
    let place = place as u64;
    let shift = (place >> steps_log2).saturating_sub(1);
    let least = (place - (shift << steps_log2)) << shift;
    least + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_found_again_to_within_half_a_step(log2 in 0..VALUE_LOG2, low in any::<u64>(), steps_log2 in 7u32..=10) {
            let asked = (1 << log2) + low % (1 << log2);
            let found = value(place(asked, steps_log2), steps_log2);
            prop_assert!(found.abs_diff(asked) <= asked >> (steps_log2 - 1), "{found} for {asked}");
            prop_assert_eq!(place(found, steps_log2), place(asked, steps_log2));
        }
    }

    #[test]
    fn what_is_taken_is_gone() {
        let shared = SharedHistogram::new(10);
        for value in [0, 1, 2047, 2048, 1_000_000, u64::MAX] {
            shared.record(value);
        }
        assert_eq!(shared.take(response_times()).len(), 6);
        assert!(shared.take(response_times()).is_empty());
    }
}
