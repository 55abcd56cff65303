//! The first transactions of a connection.

use serde::{Deserialize, Serialize};

/// First transactions of a connection, as captured at one end.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// Packets of the client.
    pub client: Sequences,
    /// Packets of the server.
    pub server: Sequences,
}

/// Packets of one end, a list for each transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences {
    /// Wire segments that each of its pure ACKs covered.
    pub pure_acks: Vec<Vec<u64>>,
    /// Wire segments of each run of data packets without a packet of the other end between them.
    pub data_bursts: Vec<Vec<u64>>,
}
