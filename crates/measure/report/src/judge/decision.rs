//! Decision from an interval: does one side cost more than the other?

use crate::derive::estimate::Estimate;

/// Decision about two sides, from the ratio of their costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Decision {
    /// The second side costs less.
    Improves,
    /// The interval is within the smallest effect that matters.
    Equivalent,
    /// The interval allows both an effect that matters and no effect; or there is no interval.
    Inconclusive,
    /// The second side costs more.
    Regresses,
}

impl Decision {
    /// Word in JSON and in sentences.
    pub fn name(self) -> &'static str {
        match self {
            Decision::Improves => "IMPROVES",
            Decision::Equivalent => "EQUIVALENT",
            Decision::Inconclusive => "INCONCLUSIVE",
            Decision::Regresses => "REGRESSES",
        }
    }

    /// Decision from the interval of a ratio (second over first) of a quantity where lower is
    /// better. `min_effect` is the smallest difference that matters, as a fraction of the first.
    pub fn of(ratio: &Estimate, min_effect: f64) -> Decision {
        let Some((lo, hi)) = ratio.lo.zip(ratio.hi) else {
            return Decision::Inconclusive;
        };
        if lo >= 1.0 - min_effect && hi <= 1.0 + min_effect {
            Decision::Equivalent
        } else if hi < 1.0 {
            Decision::Improves
        } else if lo > 1.0 {
            Decision::Regresses
        } else {
            Decision::Inconclusive
        }
    }
}

/// Estimated total number of pairs needed for a decision. `None` without an interval, or if no
/// number would suffice.
///
/// An interval narrows with the square root of the number of pairs. It must exclude either 1 or the
/// smallest effect that matters.
pub fn pairs_needed(ratio: &Estimate, min_effect: f64) -> Option<usize> {
    let half = (ratio.hi? - ratio.lo?) / 2.0;
    let effect = (ratio.median - 1.0).abs();
    let target = effect.max(min_effect - effect);
    (target > 0.0).then(|| {
        let times = (half / target).powi(2).max(1.0);
        (ratio.n as f64 * times).ceil() as usize + 1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(lo: f64, hi: f64) -> Estimate {
        Estimate {
            median: f64::midpoint(lo, hi),
            lo: Some(lo),
            hi: Some(hi),
            n: 10,
        }
    }

    #[test]
    fn the_interval_and_the_least_effect_decide() {
        let of = |lo, hi| Decision::of(&ratio(lo, hi), 0.02);
        assert_eq!(of(0.80, 0.90), Decision::Improves);
        assert_eq!(of(1.01, 1.09), Decision::Regresses);
        assert_eq!(of(0.985, 0.995), Decision::Equivalent);
        assert_eq!(of(0.90, 1.05), Decision::Inconclusive);
        let too_few = Estimate {
            lo: None,
            hi: None,
            ..ratio(0.5, 0.5)
        };
        assert_eq!(Decision::of(&too_few, 0.02), Decision::Inconclusive);
    }

    #[test]
    fn more_pairs_are_asked_for_where_the_interval_is_wide() {
        let narrow = pairs_needed(&ratio(0.97, 1.01), 0.005).unwrap();
        let wide = pairs_needed(&ratio(0.89, 1.09), 0.005).unwrap();
        assert!(wide > 4 * narrow, "{narrow} {wide}");
    }
}
