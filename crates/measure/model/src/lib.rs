//! Prices of a host's TCP: what a byte, an skb, an ACK, a call, a sleep, a connection cost in CPU time.
//!
//! [`Cause`] has the units that are priced, [`PriceList`] their prices, [`explain()`] what a workload's counts
//! cost by them. [`fit()`] makes prices from the samples of a study whose cells have the causes in different
//! mixes.

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod causes;
mod explain;
pub mod prices;

pub use causes::{Cause, Counts, Kind};
pub use explain::{Explanation, Term, explain};
pub use prices::{
    Accuracy, Interval, Place, Price, PriceList, PriceListError, Reference, Unpriced,
};
