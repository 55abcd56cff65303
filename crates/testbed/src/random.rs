//! Random numbers for tests.

use rand_xoshiro::SplitMix64;
use rand_xoshiro::rand_core::{Rng, SeedableRng};

/// Generator of random numbers. The same seed gives the same numbers on every machine.
#[derive(Debug, Clone)]
pub struct Random(SplitMix64);

impl Random {
    /// Creates the generator for a seed.
    pub fn new(seed: u64) -> Random {
        Random(SplitMix64::seed_from_u64(seed))
    }

    /// Returns a number of 64 random bits.
    pub fn word(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `limit`; 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.word() % limit.max(1) as u64) as usize
    }

    /// Returns up to 1,992 random bytes.
    pub fn bytes(&mut self) -> Vec<u8> {
        let words = self.below(250);
        (0..words).flat_map(|_| self.word().to_le_bytes()).collect()
    }

    /// Returns a number in (0, 1).
    pub fn uniform(&mut self) -> f64 {
        ((self.word() >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }
}
