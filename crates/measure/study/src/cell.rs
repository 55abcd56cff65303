//! Cells (combinations of knobs), and the order in which they run.

use std::path::PathBuf;

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};
use tcpcost_counts::MeterName;

use tcpcost_knobs::Knobs;

/// Combination of knobs. One run of it is a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Name in tables: the study file's `name`, or the varied knobs as `knob=value`.
    pub name: String,
    /// Knobs that are set.
    pub knobs: Knobs,
    /// Present if the cell's trials only measure the cost of a meter in another cell.
    pub meter_trial: Option<MeterTrial>,
    /// Name of the cell that is captured. `None` if this cell's trials are not captured.
    pub captured: Option<String>,
    /// Program whose agents are the hosts. `None` for the running program.
    pub program: Option<PathBuf>,
}

/// Trials of a cell with one standing meter or none, next to the cell's own: they show the cost of
/// a meter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterTrial {
    /// Name of the cell.
    pub cell: String,
    /// Only standing meter. `None` for no meter.
    pub meter: Option<MeterName>,
}

/// Seeded shuffle (Fisher and Yates over SplitMix64). The same seed gives the same order on every
/// machine and in every version, so that a run can be repeated.
#[derive(Debug, Clone)]
pub struct Shuffle(SplitMix64);

impl Shuffle {
    /// Creates the shuffle for one repetition of a study.
    pub fn new(seed: u64, repetition: u32) -> Shuffle {
        let seed = seed ^ (u64::from(repetition) << 32);
        Shuffle(SplitMix64::seed_from_u64(seed))
    }

    /// Returns the items in a random order.
    pub fn order<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        for last in (1..items.len()).rev() {
            let other = self.0.next_u64() % (last as u64 + 1);
            let other = usize::try_from(other).expect("at most `last`");
            items.swap(last, other);
        }
        items
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_order_and_repetitions_differ() {
        let items: Vec<usize> = (0..20).collect();
        let first = Shuffle::new(7, 0).order(items.clone());
        assert_eq!(first, Shuffle::new(7, 0).order(items.clone()));
        assert_ne!(first, Shuffle::new(7, 1).order(items.clone()));
        let mut sorted = first;
        sorted.sort_unstable();
        assert_eq!(sorted, items);
    }

    /// The order of a run that was stopped must be the same when a later version continues it.
    #[test]
    fn the_order_of_a_seed_never_changes() {
        let order = |repetition| Shuffle::new(7, repetition).order((0..12).collect());
        let first: Vec<u32> = order(0);
        assert_eq!(first, [10, 11, 5, 1, 7, 4, 8, 2, 9, 6, 0, 3]);
        assert_eq!(order(3), [7, 8, 11, 9, 4, 2, 0, 5, 6, 10, 1, 3]);
    }

    #[test]
    fn every_place_is_equally_likely() {
        let mut first_place = [0u32; 4];
        for repetition in 0..4000 {
            first_place[Shuffle::new(1, repetition).order(vec![0, 1, 2, 3])[0]] += 1;
        }
        assert!(
            first_place.iter().all(|&n| (900..1100).contains(&n)),
            "{first_place:?}"
        );
    }
}
