//! Share of a study's repetitions, for several runs that do a study together.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Share of a study: every `of`th repetition, from number `number` on.
///
/// Repetitions are shared, not cells, so that cells that are compared still meet the same hosts in
/// turn. Written `0/4` to `3/4`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    number: u32,
    of: u32,
}

/// Error for a text that is no share.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected K/N: the Kth of N shares, K from 0 to N-1, e.g. 0/4")]
pub struct ShareError;

impl Share {
    /// All repetitions.
    pub const WHOLE: Share = Share { number: 0, of: 1 };

    /// Number of the share, from 0.
    pub fn number(self) -> u32 {
        self.number
    }

    /// True if a repetition is in the share.
    pub fn has(self, repetition: u32) -> bool {
        repetition % self.of == self.number
    }

    /// Number of the first `repetitions` repetitions that are in the share.
    pub fn count(self, repetitions: u32) -> u32 {
        repetitions.saturating_sub(self.number).div_ceil(self.of)
    }
}

impl Default for Share {
    fn default() -> Share {
        Share::WHOLE
    }
}

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let (number, of) = text.split_once('/').ok_or(ShareError)?;
        match (number.parse(), of.parse()) {
            (Ok(number), Ok(of)) if number < of => Ok(Share { number, of }),
            _ => Err(ShareError),
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl Serialize for Share {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_share_is_two_numbers_of_which_the_first_is_less() {
        for good in ["0/1", "3/4"] {
            assert_eq!(good.parse::<Share>().unwrap().to_string(), good);
        }
        for bad in ["", "1", "1/1", "4/4", "0/0", "-1/2", "a/b", "0/2/3"] {
            assert_eq!(bad.parse::<Share>(), Err(ShareError), "{bad}");
        }
        assert_eq!("0/1".parse(), Ok(Share::WHOLE));
    }

    proptest! {
        #[test]
        fn every_repetition_is_in_one_share(of in 1_u32..20, repetitions in 0_u32..100) {
            let shares: Vec<Share> = (0..of).map(|number| Share { number, of }).collect();
            for repetition in 0..repetitions {
                prop_assert_eq!(shares.iter().filter(|share| share.has(repetition)).count(), 1);
            }
            for share in shares {
                let has = (0..repetitions).filter(|&repetition| share.has(repetition)).count();
                prop_assert_eq!(share.count(repetitions) as usize, has);
            }
        }
    }
}
