//! What ends a trial.

use std::io;

use tcpcost_stack::StackError;

/// Not all connections came up: the trial has failed, it is not a smaller trial.
#[derive(Debug, thiserror::Error)]
#[error(
    "{established} of {wanted} connections came up{}{}",
    first.as_ref().map_or_else(|| ": time was over".to_string(), |error| format!(": {error}")),
    if *strangers > 0 { format!(" ({strangers} strangers refused)") } else { String::new() }
)]
pub struct SetupError {
    /// Connections that this worker was to have.
    pub wanted: usize,
    /// Connections that were set up, hello included.
    pub established: usize,
    /// Connections refused because their hello was not this trial's.
    pub strangers: u64,
    /// The first error; `None` if the deadline came without one.
    pub first: Option<StackError>,
}

/// Traffic that broke off.
#[derive(Debug, thiserror::Error)]
pub enum WorkloadError {
    /// A call on a connection failed.
    #[error("connection {connection}: {doing}: {error}")]
    Connection {
        /// Index of the connection in the trial.
        connection: u32,
        /// The call.
        doing: &'static str,
        /// Its error.
        error: io::Error,
    },
    /// A new connection could not be made (`crr`).
    #[error("connection {connection}: {error}")]
    Connect {
        /// Index of the connection in the trial.
        connection: u32,
        /// Why.
        error: StackError,
    },
    /// The peer closed a connection in the middle of the traffic.
    #[error("connection {connection}: the peer closed it after {received_bytes} bytes")]
    PeerClosed {
        /// Index of the connection in the trial.
        connection: u32,
        /// Payload bytes received on it before.
        received_bytes: u64,
    },
    /// A byte arrived that was not sent (`check`).
    #[error(
        "connection {connection}: byte {offset} of the stream is {found:#04x}, sent was {expected:#04x}"
    )]
    Mismatch {
        /// Index of the connection in the trial.
        connection: u32,
        /// Offset in the connection's payload, from 0.
        offset: u64,
        /// The byte of the pattern.
        expected: u8,
        /// The byte that came.
        found: u8,
    },
    /// A response came that nobody had asked for.
    #[error("connection {connection}: more response bytes came than requests were sent")]
    Unasked {
        /// Index of the connection in the trial.
        connection: u32,
    },
    /// Waiting for readiness, or accepting, failed.
    #[error("{doing}: {error}")]
    Wait {
        /// The call.
        doing: &'static str,
        /// Its error.
        error: io::Error,
    },
}

/// The first byte that is not as sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Bytes that were right before it.
    pub(crate) after: u64,
    pub(crate) expected: u8,
    pub(crate) found: u8,
}

/// For `map_err` in set-up: says which call it was.
pub(crate) fn call(what: &'static str) -> impl FnOnce(io::Error) -> StackError {
    move |error| StackError::Call { what, error }
}
