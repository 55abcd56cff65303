//! TCP itself: no I/O, no clock, no threads.
#![warn(missing_docs)]

mod config;
mod congestion;
mod connection;
mod counters;
mod endpoint;
mod payload;
mod seq;
#[cfg(test)]
mod time;
pub mod wire;

pub use config::{Config, KeepAlive};
pub use congestion::CongestionControl;
pub use connection::{
    AckDecision, AckPolicy, Clock, Connection, Ended, Nagle, ReadError, Segmentation, State,
    TailRule, WriteError,
};
pub use counters::Counters;
pub use endpoint::{ConnId, ConnectError, Endpoint, EndpointCounters, ListenError};
pub use payload::{Chain, Piece, Pool, Writer};
pub use seq::SeqNum;
