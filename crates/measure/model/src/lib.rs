//! Prices of a host's TCP: what a byte, an skb, an ACK, a call, a sleep, a connection cost in CPU time.
//!
//! [`Cause`] has the units that are priced, [`PriceList`] their prices, [`explain()`] what a workload's counts
//! cost by them. [`fit()`] makes prices from the samples of a study whose cells have the causes in different
//! mixes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod advice;
mod causes;
mod drift;
mod explain;
mod fit;
mod linear;
pub mod prices;
mod sample;
mod words;

pub use causes::{Cause, Counts, Kind};
pub use drift::{Drift, age};
pub use explain::{Explanation, Term, explain};
pub use fit::{CellError, Fit, FitError, fit};
pub use prices::{
    Accuracy, Interval, Place, Price, PriceList, PriceListError, Reference, Unpriced,
};
pub use sample::{HostCounts, Sample, Work, counts};
pub use words::time;
