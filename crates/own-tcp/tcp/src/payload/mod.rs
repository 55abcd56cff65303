//! Payload: reference-counted pieces of pooled slabs.
//!
//! A byte is copied at most once on its way out (from the application's buffer into a slab) and at
//! most once on its way in (from a slab into the application's buffer). In between only [`Piece`]s
//! move: a retransmission, a capture and a device share the same bytes.

mod chain;
mod slab;

pub use chain::Chain;
pub use slab::{Piece, Pool, Writer};
