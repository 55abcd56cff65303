//! Pseudo-random numbers: the same seed gives the same numbers on every machine.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Generator of random numbers and events.
#[derive(Clone, Debug)]
pub(crate) struct Random(SplitMix64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(SplitMix64::seed_from_u64(seed))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number in 0..1.
    pub(crate) fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// True with this probability. Draws no number for 0, so that a disabled impairment does not
    /// change the others.
    pub(crate) fn happens(&mut self, probability: f64) -> bool {
        probability > 0.0 && self.share() < probability
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_happens_about_as_often_as_it_should() {
        let mut random = Random::new(1);
        let count = (0..100_000).filter(|_| random.happens(0.01)).count();
        assert!((900..1100).contains(&count), "{count}");
    }
}
