//! TCP itself: no I/O, no clock, no threads.
#![warn(missing_docs)]

mod payload;
mod seq;
pub mod wire;

pub use payload::{Chain, Piece, Pool, Writer};
pub use seq::SeqNum;
