//! Errors before a guest has its task.

use std::io;
use std::path::{Path, PathBuf};

/// Reason why there is no guest. [`crate::BootEnd`] describes the end of one that was started.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// This host lacks something; the text says what, and what to install.
    #[error("{0}")]
    Missing(String),
    /// A file could not be read or written.
    #[error("{doing} {path}: {error}", path = path.display())]
    File {
        /// Verb of the failed operation, e.g. `read`.
        doing: &'static str,
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// Another program failed.
    #[error("{program}: {said}")]
    Program {
        /// Name of the program.
        program: &'static str,
        /// Its error output, or the system's error.
        said: String,
    },
    /// A guest to save did not come up; the text has its last words.
    #[error("{0}")]
    DidNotComeUp(String),
    /// A guest was not saved, for this reason.
    #[error("{0}")]
    NotSaved(String),
    /// The disk of the saved guests is full.
    #[error("{path}: less than 1 GiB is free for a saved guest: make room, e.g. by `tcpcost kernels --clean`, or name another folder by XDG_CACHE_HOME", path = .0.display())]
    NoRoom(PathBuf),
    /// The caller asked to stop.
    #[error("stopped")]
    Stopped,
    /// The path has no kernel.
    #[error("{path}: {reason}", path = path.display())]
    NoKernel {
        /// Path that was given.
        path: PathBuf,
        /// Files that were expected there.
        reason: String,
    },
}

impl GuestError {
    pub(crate) fn file(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> GuestError {
        move |error| GuestError::File {
            doing,
            path: path.to_path_buf(),
            error,
        }
    }
}
