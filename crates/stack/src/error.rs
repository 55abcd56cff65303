//! What can go wrong before traffic flows. Errors of the data path are plain [`io::Error`]s.

use std::io;

/// A call that failed while sockets were being made.
#[derive(Debug, thiserror::Error)]
pub enum StackError {
    /// A system call, with what it was asked for.
    #[error("{what}: {error}")]
    Call {
        /// The call and what it was asked for, e.g. `setsockopt SO_SNDBUF`.
        what: &'static str,
        /// What the kernel answered.
        error: io::Error,
    },
    /// An option that this stack cannot have, or not so.
    #[error("{option}: {reason}")]
    Unsupported {
        /// Its name in study files, e.g. `congestion_control`.
        option: &'static str,
        /// Why, and what to do.
        reason: String,
    },
}

/// For `map_err`: says which call it was.
pub(crate) fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StackError {
    move |error| StackError::Call {
        what,
        error: error.into(),
    }
}
