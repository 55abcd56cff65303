//! Errors that end a trial.

use std::io;

use tcpcost_stack::StackError;

/// Error of a set-up in which a connection is missing. The trial has failed; it is not a smaller
/// trial.
#[derive(Debug, thiserror::Error)]
#[error(
    "{established} of {wanted} connections came up{}{}",
    first.as_ref().map_or_else(|| ": time was over".to_string(), |error| format!(": {error}")),
    if *strangers > 0 { format!(" ({strangers} strangers refused)") } else { String::new() }
)]
pub struct SetupError {
    /// Connections that this worker should have.
    pub wanted: usize,
    /// Connections that were set up, hello included.
    pub established: usize,
    /// Connections refused because their hello was not this trial's.
    pub strangers: u64,
    /// First error; `None` if the deadline came without one.
    pub first: Option<StackError>,
}

/// Error during traffic.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A call on a connection failed.
    #[error("connection {connection}: {doing}: {error}")]
    Connection {
        /// Index of the connection in the trial.
        connection: u32,
        /// Call that failed.
        doing: &'static str,
        /// Error of the call.
        error: io::Error,
    },
    /// A new connection could not be made (`crr`).
    #[error("connection {connection}: {error}")]
    Connect {
        /// Index of the connection in the trial.
        connection: u32,
        /// Error of the connect.
        error: StackError,
    },
    /// The peer closed a connection during the traffic.
    #[error("connection {connection}: the peer closed it after {received_bytes} bytes")]
    PeerClosed {
        /// Index of the connection in the trial.
        connection: u32,
        /// Payload bytes received on it before.
        received_bytes: u64,
    },
    /// A received byte differs from the byte sent (`check`).
    #[error(
        "connection {connection}: byte {offset} of the stream is {found:#04x}, sent was {expected:#04x}"
    )]
    Mismatch {
        /// Index of the connection in the trial.
        connection: u32,
        /// Offset in the connection's payload, from 0.
        offset: u64,
        /// Byte of the pattern.
        expected: u8,
        /// Byte received.
        found: u8,
    },
    /// More response bytes arrived than were requested.
    #[error("connection {connection}: more response bytes came than requests were sent")]
    Unasked {
        /// Index of the connection in the trial.
        connection: u32,
    },
    /// Waiting for readiness, or accepting, failed.
    #[error("{doing}: {error}")]
    Wait {
        /// Call that failed.
        doing: &'static str,
        /// Error of the call.
        error: io::Error,
    },
}

/// The first byte that differs from the byte sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Equal bytes before it.
    pub(crate) after: u64,
    pub(crate) expected: u8,
    pub(crate) found: u8,
}

/// Names the call, for `map_err` in set-up.
pub(crate) fn call(what: &'static str) -> impl FnOnce(io::Error) -> StackError {
    move |error| StackError::Call { what, error }
}
