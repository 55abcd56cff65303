//! Why a meter has no totals.

use std::io;
use std::path::PathBuf;

/// A source of counts that could not be read or is not what it should be.
#[derive(Debug, thiserror::Error)]
pub enum MeterError {
    /// A file that could not be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel said.
        source: io::Error,
    },
    /// A file whose content makes no sense.
    #[error("{path}: expected {expected}, found {found:?}")]
    Format {
        /// The file.
        path: PathBuf,
        /// What should be there.
        expected: &'static str,
        /// What is there, shortened.
        found: String,
    },
    /// A system call that failed.
    #[error("{call}: {source}")]
    Call {
        /// The call, e.g. `getrusage`.
        call: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A meter that cannot be had here: the trial goes on without it.
    #[error("meter {meter}: {reason}")]
    Load {
        /// The meter.
        meter: &'static str,
        /// What was tried, what the kernel said and what to do, one line.
        reason: String,
    },
}

impl MeterError {
    /// Content that makes no sense; only its first 80 characters are kept.
    pub(crate) fn format(path: impl Into<PathBuf>, expected: &'static str, found: &str) -> Self {
        let (path, found) = (path.into(), found.chars().take(80).collect());
        MeterError::Format {
            path,
            expected,
            found,
        }
    }

    /// From `errno`, right after the call.
    pub(crate) fn last(call: &'static str) -> Self {
        let source = io::Error::last_os_error();
        MeterError::Call { call, source }
    }
}
