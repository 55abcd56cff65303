//! Pseudo-random numbers: the same seed gives the same numbers on every machine.

/// SplitMix64 (Steele, Lea and Flood 2014).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
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
