//! Processes with sockets, as the meter `exact` counts their CPU time.

use std::collections::HashMap;

use tcpcost_counts::{Counts, Printable};

/// A process with its sockets in one network namespace with one port.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Holder {
    /// Process id.
    pub pid: u32,
    /// Start time of the process, ns since boot. It distinguishes processes with the same id.
    pub start_ns: u64,
    /// Text of /proc/PID/comm at its first socket, which the process can choose.
    pub name: Printable,
    /// Id of its cgroup: the inode of the cgroup's directory.
    pub cgroup: u64,
    /// Network namespace: the inode of /proc/PID/ns/net.
    pub netns: u32,
    /// Port of the sockets. `None` for sockets that neither listen nor are connected, and for the time of
    /// tasks.
    pub port: Option<Port>,
}

/// Port by which sockets are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Port {
    /// Own port of sockets that listen or were accepted.
    Served(u16),
    /// Port of the other end of sockets that connected.
    Asked(u16),
}

impl Port {
    /// Number of the port.
    pub fn number(self) -> u16 {
        match self {
            Port::Served(port) | Port::Asked(port) => port,
        }
    }
}

/// Totals of each holder: [`tcpcost_counts::Quantity::HOLDER`].
pub type ByHolder = HashMap<Holder, Counts>;
