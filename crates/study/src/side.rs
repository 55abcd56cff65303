//! The two sides of a connection.

use serde::{Deserialize, Serialize};

/// Which side of its connections a host is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// It opens them.
    Connects,
    /// It takes them.
    Listens,
}

impl Side {
    /// Both, the one that connects first.
    pub const BOTH: [Side; 2] = [Side::Connects, Side::Listens];

    /// The other one.
    pub fn peer(self) -> Side {
        match self {
            Side::Connects => Side::Listens,
            Side::Listens => Side::Connects,
        }
    }
}
