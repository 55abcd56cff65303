//! Traffic over a [`Stack`](tcpcost_stack::Stack): `stream`, `maerts`, `bidirectional`, `rr`,
//! `crr`, and programs.
//!
//! A [`Worker`] is one thread's share of one end. It sets up its connections before any clock
//! starts, then drives traffic until a deadline, any number of times. The worker does not know that
//! it is measured: it counts its own work and records response times, nothing else.
//!
//! Start with [`Worker::listen`], [`Worker::connect`] and [`Worker::run_until`].
//!
//! ```
//! use std::sync::atomic::AtomicBool;
//! use std::time::{Duration, Instant};
//! use tcpcost_stack::KernelStack;
//! use tcpcost_counts::Quantity;
//! use tcpcost_knobs::{Knobs, WorkloadSettings};
//! use tcpcost_workload::{Worker, socket_options};
//!
//! let mut knobs = Knobs::default();
//! knobs.set("workload", "rr").unwrap();
//! let settings = WorkloadSettings::from_knobs(&knobs).unwrap();
//! let stack = || KernelStack::new(&socket_options(&settings));
//! let (token, soon) = ([7; 16], Instant::now() + Duration::from_secs(10));
//!
//! let mut server = Worker::listen(stack()?, &settings, token, [127, 0, 0, 1].into(), 1, 1)?;
//! let targets = server.ports().to_vec();
//! let mut client = Worker::connect(stack()?, &settings, token, &targets, 0..1, 1)?;
//! let stop = AtomicBool::new(false);
//! std::thread::scope(|scope| {
//!     scope.spawn(|| {
//!         server.set_up(soon).unwrap();
//!         server.run_until(soon, &stop).unwrap();
//!     });
//!     client.set_up(soon).unwrap();
//!     while client.totals()[&Quantity::Transactions] == 0 {
//!         client.run_until(Instant::now() + Duration::from_millis(1), &stop).unwrap();
//!     }
//!     stop.store(true, std::sync::atomic::Ordering::Relaxed);
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![warn(missing_docs)]

mod blocking;
mod clock;
mod connection_threads;
mod crr;
mod error;
mod flow;
mod group;
mod hello;
mod histogram;
mod io;
mod join;
mod operation_times;
mod pattern;
mod plan;
mod program;
mod program_turn;
mod rr;
mod run;
mod schedule;
mod set_up;
mod stream;
mod tally;
mod worker;

pub use blocking::OnStart;
pub use error::{SetupError, WorkloadError};
pub use hello::Token;
pub use operation_times::OperationFound;
pub use plan::socket_options;
pub use set_up::CONNECTS_OUTSTANDING;
pub use worker::{Worker, flows_of};
