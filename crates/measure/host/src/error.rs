//! Error type of this crate: the attempt, the kernel's error, and a remedy.

use std::fmt;
use std::io;
use std::path::Path;

use crate::place::{is_in_hosts_user_namespace, is_root};

/// System call or file of the kernel that failed.
#[derive(Debug)]
pub struct SystemError {
    /// Attempted action, e.g. `set mtu of lo to 1500`.
    pub tried: String,
    /// Error of the kernel.
    pub source: io::Error,
}

impl SystemError {
    /// Creates an error from the kernel's error.
    pub fn new(tried: impl Into<String>, source: io::Error) -> SystemError {
        let tried = tried.into();
        SystemError { tried, source }
    }

    /// Creates an error from `errno`, right after the call that failed.
    pub fn last(tried: impl Into<String>) -> SystemError {
        SystemError::new(tried, io::Error::last_os_error())
    }

    /// Creates an error for an answer that makes no sense.
    pub fn strange(tried: impl Into<String>, why: impl Into<String>) -> SystemError {
        let source = io::Error::new(io::ErrorKind::InvalidData, why.into());
        SystemError::new(tried, source)
    }

    /// True if the action was refused for lack of privileges.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EPERM | libc::EACCES))
    }

    /// True if this host, its kernel or the privileges do not allow the action, so that another
    /// attempt would not help.
    pub fn is_unsupported(&self) -> bool {
        let refusals = [
            libc::EOPNOTSUPP,
            libc::EINVAL,
            libc::ERANGE,
            libc::ENOENT,
            libc::EPERM,
            libc::EACCES,
            libc::EROFS,
        ];
        self.source
            .raw_os_error()
            .is_some_and(|code| refusals.contains(&code))
    }
}

/// Way to the privileges that this process lacks. Root lacks some only in a container, where sudo gives no more, and in a rootless one
/// `--privileged` does not either.
pub fn remedy() -> &'static str {
    match (is_root(), is_in_hosts_user_namespace(Path::new("/"))) {
        (true, true) => "start this container with --privileged --pid=host",
        (true, false) => "run it as root of the host, not in a rootless container",
        (false, _) => "run it with sudo",
    }
}

impl fmt::Display for SystemError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SystemError { tried, source } = self;
        match source.raw_os_error() {
            Some(code) => write!(
                f,
                "{tried}: {}",
                io::Error::from_raw_os_error(code)
                    .to_string()
                    .split(" (os error")
                    .next()
                    .unwrap_or_default()
            )?,
            None => write!(f, "{tried}: {source}")?,
        }
        match source.raw_os_error() {
            Some(libc::EPERM | libc::EACCES) => {
                write!(f, " (needs more privileges: {})", remedy())
            }
            Some(libc::EROFS) => f.write_str(
                " (mounted read-only, as containers do: run it on the host or in a privileged container)",
            ),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for SystemError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

/// Reads a file of the kernel and trims white space.
pub(super) fn read_trimmed(path: &Path) -> Result<String, SystemError> {
    std::fs::read_to_string(path)
        .map(|text| text.trim().to_string())
        .map_err(|error| SystemError::new(format!("read {}", path.display()), error))
}

/// Writes a file of the kernel in one call.
pub(super) fn write(path: &Path, text: &str) -> Result<(), SystemError> {
    // Not `fs::write`, which would create a file that is missing in a test's root.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written
        .map_err(|error| SystemError::new(format!("write {text:?} to {}", path.display()), error))
}
