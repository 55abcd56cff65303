//! Errors before traffic flows. Errors of the data path are plain [`io::Error`]s.

use std::io;

/// A call that failed while sockets were being made.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A system call failed.
    #[error("{what}: {error}")]
    Call {
        /// Call and argument, e.g. `setsockopt SO_SNDBUF`.
        what: &'static str,
        /// Error of the kernel.
        error: io::Error,
    },
    /// The stack does not support an option, or not with this value.
    #[error("{option}: {reason}")]
    Unsupported {
        /// Name in study files, e.g. `congestion_control`.
        option: &'static str,
        /// Reason, and what to do.
        reason: String,
    },
}

/// Names the call, for `map_err`.
pub(crate) fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StackError {
    move |error| StackError::Call {
        what,
        error: error.into(),
    }
}
