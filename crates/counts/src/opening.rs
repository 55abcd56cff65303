//! How a connection began, transaction by transaction.

use serde::{Deserialize, Serialize};

/// How a connection's first transactions went, as one end's capture has them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opening {
    /// What the client sent.
    pub client: Sequences,
    /// What the server sent.
    pub server: Sequences,
}

/// What an end sent, a list for each transaction.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sequences {
    /// Wire segments that each of its pure ACKs covered.
    pub pure_acks: Vec<Vec<u64>>,
    /// Wire segments of its data without a packet of the other end between them.
    pub data_bursts: Vec<Vec<u64>>,
}
