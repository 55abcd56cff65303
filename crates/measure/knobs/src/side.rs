//! The two sides of a connection.

use serde::{Deserialize, Serialize};

/// Side of its connections that a host is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Side that opens connections.
    Connects,
    /// Side that accepts connections.
    Listens,
}

impl Side {
    /// Both sides, the connecting one first.
    pub const BOTH: [Side; 2] = [Side::Connects, Side::Listens];

    /// Other side.
    pub fn peer(self) -> Side {
        match self {
            Side::Connects => Side::Listens,
            Side::Listens => Side::Connects,
        }
    }
}
