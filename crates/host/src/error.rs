//! The one error of this folder: what was tried, what the kernel said, what to do.

use std::fmt;
use std::io;
use std::path::Path;

/// A system call or a file of the kernel's that did not do what it was asked.
#[derive(Debug)]
pub struct SystemError {
    /// What was tried, e.g. `set mtu of lo to 1500`.
    pub tried: String,
    /// What the kernel said.
    pub source: io::Error,
}

impl SystemError {
    /// From what the kernel said.
    pub fn new(tried: impl Into<String>, source: io::Error) -> SystemError {
        let tried = tried.into();
        SystemError { tried, source }
    }

    /// From `errno`, right after the call that failed.
    pub fn last(tried: impl Into<String>) -> SystemError {
        SystemError::new(tried, io::Error::last_os_error())
    }

    /// An answer that makes no sense.
    pub fn strange(tried: impl Into<String>, why: impl Into<String>) -> SystemError {
        let source = io::Error::new(io::ErrorKind::InvalidData, why.into());
        SystemError::new(tried, source)
    }

    /// Whether it was refused for want of privileges.
    pub fn is_denied(&self) -> bool {
        matches!(self.source.raw_os_error(), Some(libc::EPERM | libc::EACCES))
    }

    /// Whether this host, its kernel or the privileges here do not have the thing, so that asking
    /// again would not help.
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
                f.write_str(" (needs root: run it with sudo)")
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

/// Reads a file of the kernel's, its line end taken off.
pub(super) fn read_trimmed(path: &Path) -> Result<String, SystemError> {
    std::fs::read_to_string(path)
        .map(|text| text.trim().to_string())
        .map_err(|error| SystemError::new(format!("read {}", path.display()), error))
}

/// Writes a file of the kernel's in one call.
pub(super) fn write(path: &Path, text: &str) -> Result<(), SystemError> {
    // Not `fs::write`: it would create the file where a fake root lacks it.
    let written = std::fs::OpenOptions::new()
        .write(true)
        .truncate(true)
        .open(path)
        .and_then(|mut file| io::Write::write_all(&mut file, text.as_bytes()));
    written
        .map_err(|error| SystemError::new(format!("write {text:?} to {}", path.display()), error))
}
