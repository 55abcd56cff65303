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
    /// TCP_CONGESTION was refused.
    #[error(
        "congestion control {asked:?}: {error}; available: {available}; open to this user: {allowed} \
         (modprobe tcp_{asked} makes it available, sysctl net.ipv4.tcp_allowed_congestion_control opens it)"
    )]
    CongestionControl {
        /// The name asked for.
        asked: String,
        /// net.ipv4.tcp_available_congestion_control, or `unknown`.
        available: String,
        /// net.ipv4.tcp_allowed_congestion_control, or `unknown`.
        allowed: String,
        /// What the kernel answered: ENOENT is not available, EPERM is not open to this user.
        error: io::Error,
    },
}

/// For `map_err`: says which call it was.
pub(crate) fn call<E: Into<io::Error>>(what: &'static str) -> impl FnOnce(E) -> StackError {
    move |error| StackError::Call {
        what,
        error: error.into(),
    }
}
