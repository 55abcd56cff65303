//! Journal of changed settings of this host: each former value is on disk before the change.
//!
//! Each process that changes settings has one append-only file of JSON lines, and holds it locked
//! (flock) as long as it lives. A file that can be locked is therefore a dead owner's; no guess by
//! process ids, which are reused, is needed. The process id and its start time are for human
//! readers.
//!
//! [`restore`] restores the values that dead owners left, newest first; restoring twice does no
//! harm.
//!
//! The journal does not protect against other programs that change the same settings in between: it
//! restores the value that it found. Nor does it protect against users who can write to its folder:
//! [`Folder::own`] ensures that no user but root can write to root's.

use std::ffi::OsString;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::error::{SystemError, read_trimmed};
use crate::folder::Folder;
use crate::namespace;
use crate::setting::Setting;

/// Line of a journal: a value before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Inode of the network namespace in which it was changed.
    netns: u64,
    /// /proc/sys/kernel/random/boot_id.
    boot_id: String,
    /// Process id of the owner.
    pid: u32,
    /// Start time of the owner, clock ticks since boot (/proc/PID/stat, field 22).
    pid_started_ticks: u64,
    /// Time since boot, ns: the order of entries of several files.
    at_ns: u64,
    /// Former value.
    former: Setting,
}

impl Entry {
    fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an entry has only text keys") + "\n"
    }
}

/// Changes of this process.
#[derive(Debug)]
pub struct Journal {
    /// Entries, oldest first.
    entries: Vec<Entry>,
    on_disk: Option<OnDisk>,
}

#[derive(Debug)]
struct OnDisk {
    folder: Folder,
    name: OsString,
    file: File,
}

impl OnDisk {
    fn failed(&self, error: io::Error) -> SystemError {
        let path = self.folder.path().join(&self.name);
        SystemError::new(format!("write {}", path.display()), error)
    }
}

impl Journal {
    /// Creates a journal that ends with the process, for a namespace of its own.
    pub fn in_memory() -> Journal {
        let (entries, on_disk) = (Vec::new(), None);
        Journal { entries, on_disk }
    }

    /// True if the journal is for the host's own settings, and not for a namespace that ends with
    /// its agent.
    pub fn is_of_host(&self) -> bool {
        self.on_disk.is_some()
    }

    /// Creates this process's journal in a folder, which is created if it is missing.
    ///
    /// # Errors
    /// The folder cannot be created or written, or is refused ([`Folder::make`]).
    pub fn open(folder: &Path) -> Result<Journal, SystemError> {
        let failed =
            |error| SystemError::new(format!("make a journal in {}", folder.display()), error);
        let (folder, _) = Folder::make(folder, FOLDER_MODE).map_err(failed)?;
        for count in 0_u32.. {
            let name = format!("{}-{count}.journal", std::process::id());
            let file = match folder.create(&name, FILE_MODE) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                other => other.map_err(failed)?,
            };
            // Between creating and locking, a `restore` may have removed the empty file.
            if try_lock(&file) && is_linked(&file) {
                let synced = folder.handle().and_then(|folder| folder.sync_all());
                synced.map_err(failed)?;
                let name = name.into();
                let on_disk = Some(OnDisk { folder, name, file });
                let entries = Vec::new();
                return Ok(Journal { entries, on_disk });
            }
        }
        unreachable!("no process opens 2^32 journals")
    }

    /// Notes the former value of a setting, synced to disk. Call it before the change.
    ///
    /// # Errors
    /// The entry could not be written; then the change must not be made.
    pub fn note(&mut self, former: Setting) -> Result<(), SystemError> {
        let entry = Entry {
            netns: namespace::inode()?,
            boot_id: boot_id()?,
            pid: std::process::id(),
            pid_started_ticks: started_ticks()?,
            at_ns: since_boot_ns(),
            former,
        };
        if let Some(on_disk) = &self.on_disk {
            let mut file = &on_disk.file;
            file.write_all(entry.to_line().as_bytes())
                .and_then(|()| file.sync_data())
                .map_err(|error| on_disk.failed(error))?;
        }
        self.entries.push(entry);
        Ok(())
    }

    /// Restores all former values in reverse order. Failed entries stay in the journal.
    ///
    /// # Errors
    /// The first error; the other entries were tried nevertheless.
    pub fn put_back(&mut self) -> Result<(), SystemError> {
        let mut first_error = None;
        let mut left = Vec::new();
        while let Some(entry) = self.entries.pop() {
            if let Err(error) = put_back(&entry.former) {
                first_error.get_or_insert(error);
                left.push(entry);
            }
        }
        left.reverse();
        self.entries = left;
        if let Some(on_disk) = &self.on_disk {
            let lines: String = self.entries.iter().map(Entry::to_line).collect();
            rewrite(&on_disk.file, &lines).map_err(|error| on_disk.failed(error))?;
        }
        first_error.map_or(Ok(()), Err)
    }
}

impl Drop for Journal {
    /// Restores the host's settings and removes the file if all went well; else the next
    /// [`restore`] finds it. A journal in memory leaves its settings to the end of the namespace.
    fn drop(&mut self) {
        if self.on_disk.is_some()
            && self.put_back().is_ok()
            && let Some(OnDisk { folder, name, .. }) = &self.on_disk
        {
            let _ = folder.remove(name);
        }
    }
}

/// Result of [`restore`], with a line for each entry.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Restored settings.
    pub put_back: Vec<String>,
    /// Entries left alone, with the reason.
    pub kept: Vec<String>,
    /// Settings that could not be restored, with the reason. Their entries are kept.
    pub failed: Vec<String>,
    /// Number of entries that a reboot made void.
    pub dropped: usize,
    /// Number of journals left alone because their processes live.
    pub running: usize,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("restored", &self.put_back),
            ("kept", &self.kept),
            ("failed", &self.failed),
        ];
        for (what, lines) in lists {
            for line in lines {
                writeln!(f, "{what}: {line}")?;
            }
        }
        if self.dropped > 0 {
            writeln!(f, "dropped: {} of an earlier boot", self.dropped)?;
        }
        Ok(())
    }
}

/// Journal of a dead owner, locked.
struct DeadJournal {
    name: OsString,
    file: File,
    /// Lines that stay in the file.
    left: String,
}

/// Restores the values that dead owners left. Idempotent.
///
/// Entries of a living process, and entries of another network namespace, are kept. Entries from
/// before the last boot are dropped. A last line that a crash cut is ignored: its change was never
/// made. A whole line that cannot be parsed (a newer version's), or that no study could have
/// caused, is reported and kept; so is a file that is refused ([`Folder::append`]).
///
/// # Errors
/// The folder cannot be read, or is refused ([`Folder::own`]). A missing folder counts as empty.
pub fn restore(folder: &Path) -> Result<Restored, SystemError> {
    let failed = |error| SystemError::new(format!("read {}", folder.display()), error);
    let mut restored = Restored::default();
    let folder = match Folder::own(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(restored),
        other => other.map_err(failed)?,
    };
    let netns = namespace::inode()?;
    // All files stay locked until the end, so that two processes do not restore the same entries.
    let (mut dead, mut entries) = read_dead(&folder, &mut restored)?;
    entries.sort_by_key(|(entry, _)| std::cmp::Reverse(entry.at_ns));
    for (entry, owner) in entries {
        let former = &entry.former;
        let stays = if entry.netns != netns {
            let line = format!(
                "{former}: of network namespace {}, not this one",
                entry.netns
            );
            restored.kept.push(line);
            true
        } else {
            match put_back(former) {
                Ok(()) => {
                    restored.put_back.push(former.to_string());
                    false
                }
                Err(error) => {
                    restored.failed.push(format!("{former}: {error}"));
                    true
                }
            }
        };
        if stays {
            // In front of the newer entries.
            dead[owner].left.insert_str(0, &entry.to_line());
        }
    }
    for DeadJournal { name, file, left } in dead {
        let done = if left.is_empty() {
            folder.remove(&name)
        } else {
            rewrite(&file, &left)
        };
        let path = folder.path().join(&name);
        done.map_err(|error| SystemError::new(format!("write {}", path.display()), error))?;
    }
    Ok(restored)
}

/// Entry, and the index of its journal among the dead ones.
type Owned = (Entry, usize);

/// Reads the journals of dead owners, and their entries.
fn read_dead(
    folder: &Folder,
    restored: &mut Restored,
) -> Result<(Vec<DeadJournal>, Vec<Owned>), SystemError> {
    let failed = |error| SystemError::new(format!("read {}", folder.path().display()), error);
    let boot_id = boot_id()?;
    let (mut dead, mut entries) = (Vec::new(), Vec::new());
    for name in folder.names().map_err(failed)? {
        if !name.as_encoded_bytes().ends_with(b".journal") {
            continue;
        }
        let path = folder.path().join(&name);
        let path = path.display();
        let file = match folder.append(&name) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => {
                restored.failed.push(format!("{path}: {error}"));
                continue;
            }
            Ok(file) => file,
        };
        if !try_lock(&file) {
            restored
                .kept
                .push(format!("{path}: its process is running"));
            restored.running += 1;
            continue;
        }
        let mut bytes = Vec::new();
        let read = (&file).take(BYTES_MAX + 1).read_to_end(&mut bytes);
        if read.map_err(failed)? as u64 > BYTES_MAX {
            let limit = BYTES_MAX >> 20;
            restored
                .failed
                .push(format!("{path}: longer than {limit} MiB"));
            continue;
        }
        let mut left = String::new();
        for (line, entry) in parse(&bytes) {
            match entry {
                Ok(entry) if entry.boot_id != boot_id => restored.dropped += 1,
                Ok(entry) => entries.push((entry, dead.len())),
                Err(error) => {
                    restored.failed.push(format!("a line of {path}: {error}"));
                    left.push_str(&line);
                    left.push('\n');
                }
            }
        }
        dead.push(DeadJournal { name, file, left });
    }
    Ok((dead, entries))
}

/// Modes of the folder and of its files: only the owner may read or write there, because values
/// written there are later written into sysctls.
pub(crate) const FOLDER_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// Limit of a journal. A run changes a few dozen settings, of a few hundred bytes each.
const BYTES_MAX: u64 = 16 << 20;

/// Lines of a journal, each with its entry or the error of parsing it.
fn parse(bytes: &[u8]) -> Vec<(String, Result<Entry, serde_json::Error>)> {
    let text = String::from_utf8_lossy(bytes);
    // Text after the last line end is a line that a crash cut.
    let (lines, _torn) = text.rsplit_once('\n').unwrap_or_default();
    let with_entry = |line: &str| (line.to_string(), serde_json::from_str(line));
    lines.lines().map(with_entry).collect()
}

/// Settings of the journal in `bytes`, oldest first. Nothing is changed; for fuzzing.
#[doc(hidden)]
pub fn settings(bytes: &[u8]) -> Vec<Setting> {
    let entries = parse(bytes).into_iter().filter_map(|(_, entry)| entry.ok());
    let again = |entry: Entry| {
        let line = entry.to_line();
        let read = parse(line.as_bytes())
            .pop()
            .and_then(|(_, entry)| entry.ok());
        assert_eq!(read.as_ref(), Some(&entry), "{line}");
        entry.former
    };
    entries.map(again).collect()
}

/// Folder of the journals: $TCPCOST_STATE_DIR, else /run/tcpcost for root, else
/// $XDG_RUNTIME_DIR/tcpcost.
///
/// # Errors
/// A remedy, if there is none of these.
pub fn folder() -> Result<PathBuf, SystemError> {
    let is_root = rustix::process::geteuid().is_root();
    folder_from(|name| std::env::var_os(name).map(PathBuf::from), is_root)
}

fn folder_from(
    variable: impl Fn(&str) -> Option<PathBuf>,
    is_root: bool,
) -> Result<PathBuf, SystemError> {
    if let Some(folder) = variable("TCPCOST_STATE_DIR") {
        return Ok(folder);
    }
    if is_root {
        return Ok("/run/tcpcost".into());
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(folder) => Ok(folder.join("tcpcost")),
        None => {
            let remedy = "set TCPCOST_STATE_DIR (XDG_RUNTIME_DIR is not set)";
            Err(SystemError::new(
                "no folder for the journal of changed settings",
                io::Error::new(io::ErrorKind::NotFound, remedy),
            ))
        }
    }
}

/// Writes a former value and reads it back. Nothing is needed for a device that is gone.
fn put_back(former: &Setting) -> Result<(), SystemError> {
    match former.now() {
        Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
        Ok(now) if now.is_same(former) => return Ok(()),
        _ => match former.write() {
            Err(error) if error.source.raw_os_error() == Some(libc::ENODEV) => return Ok(()),
            other => other?,
        },
    }
    let now = former.now()?;
    if now.is_same(former) {
        return Ok(());
    }
    let why = format!("current value {now}");
    Err(SystemError::strange(format!("restore {former}"), why))
}

fn rewrite(mut file: &File, lines: &str) -> io::Result<()> {
    // A crash between these two calls loses entries. The caller has tried all of them, and those
    // left belong to other namespaces or failed.
    file.set_len(0)?;
    file.write_all(lines.as_bytes())?;
    file.sync_data()
}

fn try_lock(file: &File) -> bool {
    flock(file, FlockOperation::NonBlockingLockExclusive).is_ok()
}

fn is_linked(file: &File) -> bool {
    file.metadata().is_ok_and(|metadata| metadata.nlink() > 0)
}

fn boot_id() -> Result<String, SystemError> {
    read_trimmed(Path::new("/proc/sys/kernel/random/boot_id"))
}

fn started_ticks() -> Result<u64, SystemError> {
    let path = Path::new("/proc/self/stat");
    let stat = read_trimmed(path)?;
    // Field 22 is counted after the last parenthesis, because the command's name before it may hold
    // any characters.
    stat.rsplit_once(") ")
        .and_then(|(_, rest)| rest.split(' ').nth(19)?.parse().ok())
        .ok_or_else(|| SystemError::strange("read /proc/self/stat", "no start time"))
}

fn since_boot_ns() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}

#[cfg(test)]
mod tests;
