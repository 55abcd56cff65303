//! Sources of counts. All that a [`Meter`] can do is say what its totals are now; what grew between
//! two snapshots is [`Snapshot::since`]'s business, and what a trial is, nobody here knows: the same
//! meters serve any program that wants to see what a host's TCP costs.
//!
//! Names of kernel counters stop here: what comes out are [`tcpcost_study::Quantity`]s, each with one definition.
//! A counter that a kernel lacks is absent, never 0.
//!
//! Start with [`Meter`], [`proc::Proc`] and [`netstat::Netstat`].
//!
//! ```no_run
//! use tcpcost_meter::{Meter, netstat::Netstat};
//! let mut meter = Netstat::default();
//! let before = meter.snapshot()?;
//! // … something happens …
//! for reading in meter.snapshot()?.since(&before)? {
//!     println!("{:?}", reading.counts);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![warn(missing_docs)]

pub mod affinity;
pub mod bpf;
mod clock;
pub mod core_to_core;
mod error;
pub mod netstat;
pub mod others;
pub mod own;
pub mod perf;
pub mod proc;
#[cfg(feature = "bpf")]
pub mod programs;
pub mod quantities;
pub mod rusage;
pub mod soak;
pub mod sock_diag;
pub mod tcp_info;
pub mod tsc;

pub use error::MeterError;
use tcpcost_study::{Counts, Snapshot, Totals, Whose};

/// A source of counts.
pub trait Meter {
    /// Its name in readings, e.g. `proc`: the method by which something was counted.
    fn name(&self) -> &'static str;

    /// Its totals now.
    ///
    /// # Errors
    /// The source cannot be read, or its content makes no sense.
    fn snapshot(&mut self) -> Result<Snapshot, MeterError>;
}

/// A snapshot of one owner's totals, at this instant.
pub(crate) fn snapshot_of(meter: &str, whose: Whose, counts: Counts) -> Snapshot {
    Snapshot {
        meter: meter.to_string(),
        at_ns: clock::now_ns(libc::CLOCK_MONOTONIC),
        totals: vec![Totals { whose, counts }],
    }
}
