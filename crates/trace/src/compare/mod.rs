//! Two captures beside each other: of the same thing before and after a change, or of one transfer at
//! both of its ends.

mod causes;
mod pair;

pub use self::causes::{CauseRow, Causes};
pub use self::pair::{Pair, PairedConnection, PairedDirection, Passed};
