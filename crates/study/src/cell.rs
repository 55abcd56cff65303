//! One combination of knobs, and the order in which combinations are tried.

use std::path::PathBuf;

use tcpcost_counts::MeterName;

use crate::knob::Knobs;

/// One combination of knobs. Run once, it is a trial.
#[derive(Debug, Clone, PartialEq)]
pub struct Cell {
    /// Name in tables: the study file's `name`, or what varies, as `knob=value`.
    pub name: String,
    /// What is set in it.
    pub knobs: Knobs,
    /// Set where its trials only tell what a meter costs another cell.
    pub meter_trial: Option<MeterTrial>,
    /// Set where its trials are captured: the name of the cell that they are of.
    pub captured: Option<String>,
    /// The program whose agents are its hosts; `None` is the one that runs.
    pub program: Option<PathBuf>,
}

/// Trials of a cell with one standing meter or none, beside the cell's own: what a meter costs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MeterTrial {
    /// Name of the cell.
    pub cell: String,
    /// The one standing meter; `None` for none.
    pub meter: Option<MeterName>,
}

/// A seeded shuffle (Fisher and Yates over SplitMix64): the same seed gives the same order on every
/// machine and in every version, so that a run can be done again.
#[derive(Debug, Clone)]
pub struct Shuffle(u64);

impl Shuffle {
    /// For one repetition of a study.
    pub fn new(seed: u64, repetition: u32) -> Shuffle {
        Shuffle(seed ^ (u64::from(repetition) << 32))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The items in a random order.
    pub fn order<T>(&mut self, mut items: Vec<T>) -> Vec<T> {
        for last in (1..items.len()).rev() {
            let other = usize::try_from(self.next() % (last as u64 + 1)).expect("at most `last`");
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
