//! Sources of counts. All that a [`Meter`] can do is say what its totals are now; what grew between
//! two snapshots is [`Snapshot::since`]'s business, and what a trial is, nobody here knows: the same
//! meters serve any program that wants to see what a host's TCP costs.
//!
//! Names of kernel counters stop here: what comes out are [`tcpcost_counts::Quantity`]s, each with one definition.
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
pub use registry::open;
use rustix::time::ClockId;
use tcpcost_counts::{Counts, MeterName, Snapshot, Totals, Whose};

/// A source of counts.
pub trait Meter {
    /// Its name in readings: the method by which something was counted.
    fn name(&self) -> MeterName;

    /// Its totals now.
    ///
    /// # Errors
    /// The source cannot be read, or its content makes no sense.
    fn snapshot(&mut self) -> Result<Snapshot, MeterError>;

    /// By what another process of this host may take part in its programs ([`Scope::loaded`]), as long as this lives.
    fn handle(&self) -> Option<String> {
        None
    }

    /// Totals by connection, where it counts them so, by [`bpf::connection_key`].
    fn by_connection(&mut self) -> HashMap<u64, Counts> {
        HashMap::new()
    }

    /// Totals by process, network namespace and port, with [`Owners::Holders`].
    fn by_holder(&mut self) -> Option<holder::ByHolder> {
        None
    }

    /// What its totals miss on this host, and why: a line for people. `None`: nothing that it promises.
    fn misses(&self) -> Option<String> {
        None
    }

    /// What found no room in its tables since this was asked last: a line for people, with the count. `None`: nothing.
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
    /// ([`tcpcost_counts::Quantity::EXACT_OF_HOST`] of [`Whose::Process`]).
    Hosts {
        /// Place of this process among these processes, from 0 on.
        index: u32,
        /// Number of these processes.
        count: u32,
        /// Limit on open sockets of all these processes; at least 65,536 are known in any case.
        sockets: u32,
    },
    /// Named threads with their own time and their sockets ([`bpf::Threads`]).
    Threads,
}

/// What a meter is to count.
#[derive(Debug, Clone, Default)]
pub struct Scope {
    /// CPUs.
    pub cpus: Vec<usize>,
    /// Processes of the trial: not "others". Eight at most.
    pub own_pids: Vec<u32>,
    /// So many processes at once can be made own while `exact` counts, with all that they start ([`bpf::Follower`]).
    pub follows: Option<u32>,
    /// By whom `exact` tells softirq time. It takes cgroup v2 and CAP_NET_ADMIN; without them [`Owners::Command`] and
    /// [`Owners::Holders`] miss some ([`Meter::misses`]).
    pub owners: Owners,
    /// For tests: `exact` loads as on a host without cgroup v2.
    pub without_cgroups: bool,
    /// Whether `segments` counts by connection, too: so many ends of connections at least, those that were seen last.
    pub connections: Option<u32>,
    /// Network namespaces that may share the programs of `segments`: the hosts of a trial that are on one machine. 1 to
    /// 64; what is beyond is taken for these.
    pub namespaces: u32,
    /// Handles of programs that another process has loaded with the same `own_pids` and `connections`, by meter. Where
    /// they are of no use here, which is no error, programs are loaded.
    pub loaded: BTreeMap<MeterName, String>,
}

/// A snapshot of one owner's totals, at this instant.
pub(crate) fn snapshot_of(meter: MeterName, whose: Whose, counts: Counts) -> Snapshot {
    Snapshot {
        meter,
        at_ns: clock::now_ns(ClockId::Monotonic),
        totals: vec![Totals { whose, counts }],
    }
}
