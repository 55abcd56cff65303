//! uperf's command and its control protocol, master and slave, for TCP: scripts that use `uperf` keep working.
//!
//! Threads do what a profile says with blocking sockets, and none is bound to a CPU, as in uperf. Both ends understand uperf 1.0.8 at the
//! other end. These points differ from uperf:
//! - a transaction ends when its time is over; uperf looks once in a second;
//! - `nprocs` starts threads;
//! - a slave listens on the given addresses, or on loopback, and accepts data only from its master's host;
//! - a slave sends no files.
//!
//! Start with [`master`] and [`serve`].

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod control;
mod devices;
mod master;
mod order;
mod print;
mod shared;
mod slave;
mod strand;
mod wake;
mod wire;

pub use master::{MasterOptions, master};
pub use slave::{listen, serve};

/// Port of a slave.
pub const PORT: u16 = 20_000;

/// Reason for the end, a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Failure(pub String);

impl Failure {
    fn of(what: &str, error: &std::io::Error) -> Failure {
        Failure(format!("{what}: {error}"))
    }
}
