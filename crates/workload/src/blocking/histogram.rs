//! Response times of many threads without a lock, which would switch contexts where they are counted.

use std::sync::atomic::{AtomicU64, Ordering};

use hdrhistogram::Histogram;

use crate::group::response_times;

/// Steps of each power of two: three digits.
const STEPS_LOG2: u32 = 10;
/// Values from here on count as the largest: 1.2 h in ns.
const VALUE_LOG2: u32 = 42;

/// Counts of values, each to within a thousandth: 260 KiB for all threads of a group.
#[derive(Debug)]
pub(super) struct SharedHistogram(Box<[AtomicU64]>);

impl SharedHistogram {
    pub(super) fn new() -> SharedHistogram {
        let places = place((1 << VALUE_LOG2) - 1) + 1;
        SharedHistogram((0..places).map(|_| AtomicU64::new(0)).collect())
    }

    #[inline]
    pub(super) fn record(&self, value: u64) {
        let value = value.min((1 << VALUE_LOG2) - 1);
        self.0[place(value)].fetch_add(1, Ordering::Relaxed);
    }

    /// What was recorded since it was last taken.
    pub(super) fn take(&self) -> Histogram<u64> {
        let mut taken = response_times();
        for (place, count) in self.0.iter().enumerate() {
            if count.load(Ordering::Relaxed) > 0 {
                let count = count.swap(0, Ordering::Relaxed);
                taken.saturating_record_n(value(place), count);
            }
        }
        taken
    }
}

/// Values below two times the steps have a place each; above, each power of two has as many.
fn place(value: u64) -> usize {
    let shift = (64 - value.leading_zeros()).saturating_sub(STEPS_LOG2 + 1);
    ((u64::from(shift) << STEPS_LOG2) + (value >> shift)) as usize
}

/// The middle of what has this place.
fn value(place: usize) -> u64 {
    let place = place as u64;
    let shift = (place >> STEPS_LOG2).saturating_sub(1);
    let least = (place - (shift << STEPS_LOG2)) << shift;
    least + (1 << shift) / 2
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_value_is_found_again_to_within_a_thousandth(log2 in 0..VALUE_LOG2, low in any::<u64>()) {
            let asked = (1 << log2) + low % (1 << log2);
            let found = value(place(asked));
            prop_assert!(found.abs_diff(asked) <= asked / 1000, "{found} for {asked}");
            prop_assert_eq!(place(found), place(asked));
        }
    }

    #[test]
    fn what_is_taken_is_gone() {
        let shared = SharedHistogram::new();
        for value in [0, 1, 2047, 2048, 1_000_000, u64::MAX] {
            shared.record(value);
        }
        assert_eq!(shared.take().len(), 6);
        assert!(shared.take().is_empty());
    }
}
