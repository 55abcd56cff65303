//! Lock of the host's own network settings, with one owner at a time.
//!
//! A run whose ends are on the host's devices holds the lock file of this network namespace as long
//! as one of its processes lives: shared if it only measures, alone if it changes settings. The
//! agents inherit the open file. If the command is killed, the lock is held until the agents have
//! restored what they changed.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::io::{Errno, FdFlags, fcntl_setfd};

use super::error::SystemError;
use super::folder::Folder;
use super::journal::{FILE_MODE, FOLDER_MODE};
use super::namespace;

/// Kind of the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockKind {
    /// Shared with other runs that change nothing.
    Shared,
    /// Exclusive.
    Exclusive,
}

/// Lock file, held or not. Processes started while it lives hold it too.
#[derive(Debug)]
pub struct HostLock {
    path: PathBuf,
    file: File,
}

impl HostLock {
    /// Opens the lock file of this network namespace in the journals' folder, which is created if
    /// it is missing.
    ///
    /// # Errors
    /// The folder or the file cannot be created, or is refused ([`Folder::make`]).
    pub fn open(folder: &Path) -> Result<HostLock, SystemError> {
        let path = folder.join(format!("{}.lock", namespace::inode()?));
        let file = open_file(&path)?;
        fcntl_setfd(&file, FdFlags::empty())
            .map_err(|error| SystemError::new(format!("open {}", path.display()), error.into()))?;
        Ok(HostLock { path, file })
    }

    /// Takes the lock. False if another process holds it in a conflicting way.
    ///
    /// # Errors
    /// The file system has no locks.
    pub fn try_hold(&self, hold: LockKind) -> Result<bool, SystemError> {
        let operation = match hold {
            LockKind::Shared => FlockOperation::NonBlockingLockShared,
            LockKind::Exclusive => FlockOperation::NonBlockingLockExclusive,
        };
        match flock(&self.file, operation) {
            Ok(()) => Ok(true),
            Err(Errno::WOULDBLOCK) => Ok(false),
            Err(error) => {
                let tried = format!("lock {}", self.path.display());
                Err(SystemError::new(tried, error.into()))
            }
        }
    }

    /// Processes that hold the lock, by command line and process id.
    pub fn holders(&self) -> String {
        holders(&self.file)
    }
}

/// Opens a lock file in the journals' folder, which is created if it is missing. No other user can
/// open the file, so none can hold the lock.
///
/// # Errors
/// The folder or the file cannot be created, or is refused ([`Folder::make`]).
pub fn open_file(path: &Path) -> Result<File, SystemError> {
    let failed = |error| SystemError::new(format!("open {}", path.display()), error);
    let name = path.file_name().and_then(|name| name.to_str());
    let (Some(folder), Some(name)) = (path.parent(), name) else {
        return Err(failed(io::ErrorKind::InvalidInput.into()));
    };
    let (folder, _) = Folder::make(folder, FOLDER_MODE).map_err(failed)?;
    folder.append_or_create(name, FILE_MODE).map_err(failed)
}

/// Processes that hold a lock on this file: command lines and process ids, or "another process" if
/// they are unknown.
pub fn holders(file: &File) -> String {
    let names = || -> io::Result<Vec<String>> {
        let inode = file.metadata()?.ino();
        let locks = fs::read_to_string("/proc/locks")?;
        let pids = locks.lines().filter_map(|line| pid_of(line, inode));
        Ok(pids.map(named).collect())
    };
    match names() {
        Ok(names) if !names.is_empty() => names.join(" and "),
        _ => "another process".to_string(),
    }
}

/// Process id in a line of /proc/locks that holds a flock on this inode, e.g.
/// `1: FLOCK  ADVISORY  WRITE 2431 fe:00:13127 0 EOF`. `None` for other lines; a process that waits
/// has `->` after the number.
fn pid_of(line: &str, inode: u64) -> Option<u32> {
    let mut words = line.split_whitespace().skip(1);
    if words.next()? != "FLOCK" {
        return None;
    }
    let pid = words.nth(2)?.parse().ok()?;
    let of: u64 = words.next()?.rsplit(':').next()?.parse().ok()?;
    (of == inode).then_some(pid)
}

fn named(pid: u32) -> String {
    let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let words = String::from_utf8_lossy(&line);
    let words: String = words
        .trim_end_matches('\0')
        .chars()
        .map(|char| if char.is_control() { ' ' } else { char })
        .collect();
    if words.is_empty() {
        format!("the agents of a run that has ended (process {pid})")
    } else {
        format!("`{words}` (process {pid})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_changes_is_alone_and_who_does_not_is_with_others() {
        let folder = tempfile::tempdir().unwrap();
        let open = || HostLock::open(folder.path()).unwrap();
        let (one, two) = (open(), open());
        assert!(one.try_hold(LockKind::Shared).unwrap());
        assert!(two.try_hold(LockKind::Shared).unwrap());
        let three = open();
        assert!(!three.try_hold(LockKind::Exclusive).unwrap());
        drop((one, two));
        // A process that another test starts has the files of this one until it executes its program.
        tcpcost_testbed::until("both have let go", || {
            three.try_hold(LockKind::Exclusive).unwrap().then_some(())
        });
        let four = open();
        assert!(!four.try_hold(LockKind::Shared).unwrap());
        let named = format!("(process {})", std::process::id());
        assert!(four.holders().contains(&named), "{}", four.holders());
    }

    #[test]
    fn a_line_of_the_kernels_names_a_holder_and_not_one_who_waits() {
        let line = "1: FLOCK  ADVISORY  WRITE 2431 fe:00:13127 0 EOF";
        assert_eq!(pid_of(line, 13127), Some(2431));
        assert_eq!(pid_of(line, 1312), None);
        let waits = "1: -> FLOCK  ADVISORY  WRITE 2431 fe:00:13127 0 EOF";
        assert_eq!(pid_of(waits, 13127), None);
        assert_eq!(
            pid_of("2: POSIX  ADVISORY  READ 1 fe:00:13127 0 EOF", 13127),
            None
        );
    }
}
