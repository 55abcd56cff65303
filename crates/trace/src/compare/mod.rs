//! Comparison of two captures: before and after a change ([`causes`]), or one transfer captured at
//! both of its ends ([`pair`]).

mod causes;
mod pair;

pub use self::causes::{CauseRow, Causes};
pub use self::pair::{Pair, PairedConnection, PairedDirection, Passed};
