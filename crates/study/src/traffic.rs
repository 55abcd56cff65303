//! Who connects to whom.

use serde::{Deserialize, Serialize};

use crate::host_name::HostName;

/// The workload between two hosts: `on` opens the connections, to `to`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// The host that connects.
    pub on: HostName,
    /// The host that listens.
    pub to: HostName,
}
