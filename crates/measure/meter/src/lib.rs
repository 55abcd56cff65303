//! Sources of counts. A [`Meter`] only reports its current totals; [`Snapshot::since`] computes the growth
//! between two snapshots. This crate knows nothing about trials, so the same meters serve any program that
//! measures the cost of a host's TCP.
//!
//! Names of kernel counters do not leave this crate: the results are [`tcpcost_counts::Quantity`]s, each with
//! one definition. A counter that a kernel lacks is absent, never 0.
//!
//! An [`Observer`] opens several meters and reads them together.
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

#![deny(unsafe_code)]
#![warn(missing_docs)]

pub mod affinity;
pub mod bpf;
mod clock;
pub mod core_to_core;
pub mod descendants;
mod error;
pub mod holder;
pub mod mark;
pub mod memory;
pub mod netstat;
mod observer;
pub mod other_tasks;
pub mod perf;
pub mod proc;
#[cfg(feature = "bpf")]
pub mod programs;
mod registry;
pub mod rusage;
pub mod self_cost;
pub mod soak;
pub mod sock_diag;
mod system_calls;
pub mod tcp_info;
pub mod tsc;
pub mod vmstat;

use std::collections::{BTreeMap, HashMap};

pub use error::{MeterError, Needs};
pub use observer::{Missing, Observer};
pub use registry::{Open, opener};
use rustix::time::ClockId;
use tcpcost_counts::{CountOwner, Counts, MeterName, Snapshot, Totals};

/// A source of counts.
pub trait Meter {
    /// Name in readings: the method that counts.
    fn name(&self) -> MeterName;

    /// Current totals.
    ///
    /// # Errors
    /// The source cannot be read, or has unexpected content.
    fn snapshot(&mut self) -> Result<Snapshot, MeterError>;

    /// Handle with which another process of this host can share its programs ([`Scope::loaded`]), as long as
    /// this lives.
    fn handle(&self) -> Option<String> {
        None
    }

    /// Totals by connection, with the key of [`bpf::connection_key`]. Empty if they are not counted.
    fn by_connection(&mut self) -> HashMap<u64, Counts> {
        HashMap::new()
    }

    /// Totals by process, network namespace and port, with [`Owners::Holders`].
    fn by_holder(&mut self) -> Option<holder::ByHolder> {
        None
    }

    /// Line about what the totals miss on this host, and why. `None` if they are complete.
    fn misses(&self) -> Option<String> {
        None
    }

    /// Line about what found no room in its tables since the last call, with the number. `None` if everything
    /// found room.
    fn overflow(&mut self) -> Option<String> {
        None
    }
}

/// Owners of softirq time that `exact` counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Owners {
    /// No owners.
    #[default]
    None,
    /// Three owners: sockets of followed processes, the other ends of their connections, and all other sockets
    /// ([`tcpcost_counts::Quantity::EXACT_OWNED`]). Needs [`Scope::follows`].
    Command,
    /// Each process with sockets, with the time of its tasks ([`Meter::by_holder`]).
    Holders,
    /// This process, one of several that share the programs, with the time of its tasks
    /// ([`tcpcost_counts::Quantity::EXACT_OF_HOST`] of [`CountOwner::Process`]).
    Hosts {
        /// Place of this process among these processes, from 0 on.
        index: u32,
        /// Number of these processes.
        count: u32,
        /// Limit on open sockets of all these processes. There is always room for at least 65,536.
        sockets: u32,
    },
    /// Named threads with their own time and their sockets ([`bpf::Threads`]).
    Threads,
}

/// Scope of a meter: what it counts.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// CPUs to count.
    pub cpus: Vec<usize>,
    /// Processes of the trial, at most eight. Their tasks do not count as others.
    pub own_pids: Vec<u32>,
    /// Limit on the processes that can be made own at the same time while `exact` counts, including those
    /// that they start ([`bpf::Follower`]).
    pub follows: Option<u32>,
    /// Owners for which `exact` counts softirq time. Needs cgroup v2 and CAP_NET_ADMIN; without them
    /// [`Owners::Command`] and [`Owners::Holders`] miss some ([`Meter::misses`]).
    pub owners: Owners,
    /// For tests: `exact` loads as on a host without cgroup v2.
    pub without_cgroups: bool,
    /// If set, `segments` also counts by connection. There is room for at least this many ends of
    /// connections; the last seen ones are kept.
    pub connections: Option<u32>,
    /// Number of network namespaces that may share the programs of `segments`: the hosts of a trial on one
    /// machine. 1 to 64; other values are limited to this range.
    pub namespaces: u32,
    /// Handles of programs that another process has loaded with the same `own_pids` and `connections`, by
    /// meter. If a handle is not usable here, the programs are loaded; that is no error.
    pub loaded: BTreeMap<MeterName, String>,
}

/// A snapshot of one owner's totals at this instant.
pub(crate) fn snapshot_of(meter: MeterName, whose: CountOwner, counts: Counts) -> Snapshot {
    Snapshot {
        meter,
        at_ns: clock::now_ns(ClockId::Monotonic),
        totals: vec![Totals { whose, counts }],
    }
}
