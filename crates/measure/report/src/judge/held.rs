//! Check of a statement about a change or a quantity against an interval.

use serde::Serialize;
use tcpcost_study::Expects;

use crate::derive::estimate::Estimate;

/// Result of checking a statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Held {
    /// The whole interval agrees with the statement.
    Holds,
    /// The whole interval contradicts the statement.
    Fails,
    /// The interval does not decide, or there is none.
    Undecided,
    /// A quick run leaves out cells that its test needs.
    NotTested,
}

impl Held {
    /// Result for a statement about a change, in percent.
    pub fn of(percent: Option<&Estimate>, expects: Expects) -> Held {
        let Some((lo, hi)) = percent.and_then(|percent| percent.lo.zip(percent.hi)) else {
            return Held::Undecided;
        };
        let (holds, fails) = match expects {
            Expects::Less => (hi < 0.0, lo > 0.0),
            Expects::More => (lo > 0.0, hi < 0.0),
            Expects::Same => (lo >= -SAME && hi <= SAME, lo > SAME || hi < -SAME),
        };
        match (holds, fails) {
            (true, _) => Held::Holds,
            (_, true) => Held::Fails,
            _ => Held::Undecided,
        }
    }

    /// Result as in [`of`](Self::of), but no change contradicts a statement of one.
    ///
    /// Not for instructions: a guest has one CPU, no rate and no latency, so a knob of these changes nothing there.
    pub(crate) fn of_measured(percent: Option<&Estimate>, expects: Expects) -> Held {
        match Held::of(percent, expects) {
            Held::Undecided if Held::of(percent, Expects::Same) == Held::Holds => Held::Fails,
            held => held,
        }
    }

    /// Half-width of an interval around `median` percent that decides a statement.
    pub(crate) fn deciding_width(median: f64, expects: Expects) -> f64 {
        let (to_none, to_same) = (median.abs(), (SAME - median.abs()).abs());
        match expects {
            Expects::Same => to_same,
            Expects::Less | Expects::More => to_none.max(to_same),
        }
    }

    /// Result for a statement that a quantity is within limits.
    pub(crate) fn within(
        estimate: Option<&Estimate>,
        at_most: Option<f64>,
        at_least: Option<f64>,
    ) -> Held {
        let Some((lo, hi)) = estimate.and_then(|estimate| estimate.lo.zip(estimate.hi)) else {
            return Held::Undecided;
        };
        let (above, below) = (at_most.unwrap_or(f64::MAX), at_least.unwrap_or(f64::MIN));
        match (hi <= above && lo >= below, lo > above || hi < below) {
            (true, _) => Held::Holds,
            (_, true) => Held::Fails,
            _ => Held::Undecided,
        }
    }

    /// Result of several tests of one statement: `Holds` if all hold, `Fails` if one fails.
    /// `Undecided` without tests.
    pub(crate) fn all(tests: impl IntoIterator<Item = Held>) -> Held {
        let worst = |held: &Held| match held {
            Held::Fails => 0,
            Held::NotTested => 1,
            Held::Undecided => 2,
            Held::Holds => 3,
        };
        tests
            .into_iter()
            .min_by_key(worst)
            .unwrap_or(Held::Undecided)
    }

    /// Word in tables, and in JSON (`not_tested` there).
    pub fn name(self) -> &'static str {
        match self {
            Held::Holds => "holds",
            Held::Fails => "fails",
            Held::Undecided => "undecided",
            Held::NotTested => "not tested",
        }
    }
}

/// Largest change, in percent, that agrees with a statement of no change.
const SAME: f64 = 5.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::derive::estimate::between;

    #[test]
    fn a_statement_holds_where_the_whole_interval_is_where_it_says() {
        let told = |lo, hi| {
            Expects::WORDS.iter().map(move |word| {
                let expects = Expects::from_word(word).unwrap();
                Held::of(Some(&between(lo, hi)), expects).name()
            })
        };
        // less, more, same
        for (lo, hi, expected) in [
            (-60.0, -40.0, ["holds", "fails", "fails"]),
            (10.0, 14.0, ["fails", "holds", "fails"]),
            (-2.0, 3.0, ["undecided", "undecided", "holds"]),
            (-2.0, 7.0, ["undecided"; 3]),
            (-4.0, -1.0, ["holds", "fails", "holds"]),
            (-20.0, 30.0, ["undecided"; 3]),
        ] {
            assert_eq!(told(lo, hi).collect::<Vec<_>>(), expected, "{lo} {hi}");
        }
        assert_eq!(Held::of(None, Expects::Less), Held::Undecided);
        for (lo, hi, expected) in [
            (-2.0, 3.0, Held::Fails),
            (-2.0, 7.0, Held::Undecided),
            (-4.0, -1.0, Held::Holds),
        ] {
            let told = Held::of_measured(Some(&between(lo, hi)), Expects::Less);
            assert_eq!(told, expected, "{lo} {hi}");
        }
    }

    #[test]
    fn a_statement_of_a_quantity_holds_where_the_interval_is_within_its_limits() {
        let told = |at_most, at_least| Held::within(Some(&between(1.0, 2.0)), at_most, at_least);
        assert_eq!(told(Some(2.0), Some(1.0)), Held::Holds);
        assert_eq!(told(Some(0.9), None), Held::Fails);
        assert_eq!(told(None, Some(2.1)), Held::Fails);
        assert_eq!(told(Some(1.5), None), Held::Undecided);
        assert_eq!(Held::within(None, Some(1.0), None), Held::Undecided);
        assert_eq!(Held::all([Held::Holds, Held::Undecided]), Held::Undecided);
        assert_eq!(Held::all([Held::Fails, Held::Undecided]), Held::Fails);
        assert_eq!(Held::all([]), Held::Undecided);
    }
}
