//! Processes that have sockets, as the meter `exact` tells their CPU time.

use std::collections::HashMap;

use tcpcost_counts::{Counts, Printable};

/// Sockets of one process in one network namespace with one port, and the CPU time for them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Time at which the process began, ns since boot: it parts the process from others that had its id.
    pub start_ns: u64,
    /// Its /proc/PID/comm at its first socket, which the process may choose.
    pub name: Printable,
    /// Id of its cgroup: the inode of the cgroup's directory.
    pub cgroup: u64,
    /// The network namespace: the inode of /proc/PID/ns/net.
    pub netns: u32,
    /// The port; none of sockets that neither listen nor are connected, and of the time of its tasks.
    pub port: Option<Port>,
}

/// A port by which sockets are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// Their own: they listen, or were accepted.
    Served(u16),
    /// The other end's: they connected.
    Asked(u16),
}

impl Port {
    /// Its number.
    pub fn number(self) -> u16 {
        match self {
            Port::Served(port) | Port::Asked(port) => port,
        }
    }
}

/// Totals of each holder: [`tcpcost_counts::Quantity::HOLDER`].
pub type ByHolder = HashMap<Holder, Counts>;
