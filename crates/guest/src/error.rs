//! What can go wrong before a guest is there.

use std::io;
use std::path::{Path, PathBuf};

/// Why there is no guest. What becomes of one that was started is told by [`crate::Ended`].
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// Something that this host lacks; the text says what, and what to install.
    #[error("{0}")]
    Missing(String),
    /// A file.
    #[error("{doing} {path}: {error}", path = path.display())]
    File {
        /// What was tried: `read`.
        doing: &'static str,
        /// Of which.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another program that could not do its part.
    #[error("{program}: {said}")]
    Program {
        /// Its name.
        program: &'static str,
        /// Its last line, or the system's error.
        said: String,
    },
    /// A path at which no kernel is.
    #[error("{path}: {reason}", path = path.display())]
    NoKernel {
        /// The path.
        path: PathBuf,
        /// What was expected there.
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
