//! Direction of a change, as far as its interval shows it.

use crate::derive::estimate::Estimate;

/// Sign of an estimated value, as far as its interval shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// The whole interval is below zero.
    Below,
    /// The whole interval is above zero.
    Above,
    /// Zero is inside the interval.
    Open,
    /// There is no interval: fewer than six trials.
    Unknown,
}

impl Sign {
    /// Sign of an estimate.
    pub fn of(estimate: &Estimate) -> Sign {
        match estimate.lo.zip(estimate.hi) {
            None => Sign::Unknown,
            Some((_, hi)) if hi < 0.0 => Sign::Below,
            Some((lo, _)) if lo > 0.0 => Sign::Above,
            Some(_) => Sign::Open,
        }
    }
}

/// True if the interval shows the direction of a change.
pub(crate) fn is_established(percent: &Estimate) -> bool {
    matches!(Sign::of(percent), Sign::Below | Sign::Above)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::estimate::between;

    #[test]
    fn an_interval_that_holds_zero_has_no_sign() {
        assert_eq!(Sign::of(&between(-3.0, -1.0)), Sign::Below);
        assert_eq!(Sign::of(&between(1.0, 3.0)), Sign::Above);
        assert_eq!(Sign::of(&between(-1.0, 3.0)), Sign::Open);
        assert_eq!(Sign::of(&between(0.0, 3.0)), Sign::Open);
        let five = Estimate::new([1.0; 5]).unwrap();
        assert_eq!(Sign::of(&five), Sign::Unknown);
    }
}
