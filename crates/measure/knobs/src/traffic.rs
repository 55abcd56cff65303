//! Traffic: which host connects to which.

use serde::{Deserialize, Serialize};

use crate::host_name::HostName;

/// Workload between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Traffic {
    /// Host that connects.
    pub on: HostName,
    /// Host that listens.
    pub to: HostName,
}
