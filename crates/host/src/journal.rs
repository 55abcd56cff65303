//! What was changed on this host and what it was before, on disk before each change.
//!
//! Each process that changes something has one append-only file of JSON lines, and holds it locked
//! (flock) as long as it lives; so a file that can be locked is a dead owner's, without guessing by
//! process ids that come around again. The process id and its start time are for the reader.
//! [`restore`] puts back what dead owners left, newest first; doing it twice does no harm.
//!
//! It does not guard against others who turn the same knobs in between: what it puts back is the
//! value it found. Nor against who can write to its folder: [`Folder::own`] makes sure that no user but root can write to root's.

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

/// One line: a value as it was before it was changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// Inode of the network namespace it was changed in.
    netns: u64,
    /// /proc/sys/kernel/random/boot_id.
    boot_id: String,
    /// The owner.
    pid: u32,
    /// When the owner started, clock ticks since boot (/proc/PID/stat, field 22).
    pid_started_ticks: u64,
    /// Time since boot, ns: the order among several files.
    at_ns: u64,
    /// What it was.
    former: Setting,
}

impl Entry {
    fn to_line(&self) -> String {
        serde_json::to_string(self).expect("an entry has only text keys") + "\n"
    }
}

/// The changes of this process.
#[derive(Debug)]
pub struct Journal {
    /// Oldest first.
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
    /// A journal that ends with the process: for a namespace of one's own.
    pub fn in_memory() -> Journal {
        let (entries, on_disk) = (Vec::new(), None);
        Journal { entries, on_disk }
    }

    /// Whether it is of the host's own settings, and not of a namespace that ends with its agent.
    pub fn is_of_host(&self) -> bool {
        self.on_disk.is_some()
    }

    /// This process' journal in a folder, which is made if need be.
    ///
    /// # Errors
    /// The folder cannot be made or written, or is refused ([`Folder::make`]).
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
            // Between its making and its locking a `restore` may have taken the empty file away.
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

    /// Notes what a setting was, synced to disk: to be called before it is changed.
    ///
    /// # Errors
    /// It could not be written; then the change must not be made.
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

    /// Puts everything back in reverse order; what failed stays in the journal.
    ///
    /// # Errors
    /// The first that failed; the others were tried all the same.
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
    /// Puts the host's settings back and takes the file away, if all went well; else the next
    /// [`restore`] finds it. A journal in memory leaves it to the end of its namespace.
    fn drop(&mut self) {
        if self.on_disk.is_some()
            && self.put_back().is_ok()
            && let Some(OnDisk { folder, name, .. }) = &self.on_disk
        {
            let _ = folder.remove(name);
        }
    }
}

/// What [`restore`] did, a line each.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Put back.
    pub put_back: Vec<String>,
    /// Left alone, and why.
    pub kept: Vec<String>,
    /// Could not be put back, and why; kept too.
    pub failed: Vec<String>,
    /// Entries that a reboot has made void.
    pub dropped: usize,
    /// Journals left alone because their processes live.
    pub running: usize,
}

impl fmt::Display for Restored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lists = [
            ("put back", &self.put_back),
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

/// A journal of a dead owner, locked.
struct Dead {
    name: OsString,
    file: File,
    /// Lines that stay in it.
    left: String,
}

/// Puts back what owners that have died left behind. Idempotent.
///
/// It keeps what belongs to a process that lives and what was changed in another network namespace,
/// and drops what was before the last boot. A last line that was torn by a crash was never acted on
/// and is passed over. A whole line that is not understood (a newer version's), or that no study could have
/// made necessary, is said and kept; and so is a file that is refused ([`Folder::append`]).
///
/// # Errors
/// The folder cannot be read, or is refused ([`Folder::own`]). A missing one is an empty one.
pub fn restore(folder: &Path) -> Result<Restored, SystemError> {
    let failed = |error| SystemError::new(format!("read {}", folder.display()), error);
    let mut restored = Restored::default();
    let folder = match Folder::own(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(restored),
        other => other.map_err(failed)?,
    };
    let netns = namespace::inode()?;
    // Held locked until all is done, so that two of us do not do the same.
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
            // In front of those that are newer.
            dead[owner].left.insert_str(0, &entry.to_line());
        }
    }
    for Dead { name, file, left } in dead {
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

/// An entry, and the place of its journal among the dead ones.
type Owned = (Entry, usize);

/// The journals of dead owners, and their entries.
fn read_dead(
    folder: &Folder,
    restored: &mut Restored,
) -> Result<(Vec<Dead>, Vec<Owned>), SystemError> {
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
        dead.push(Dead { name, file, left });
    }
    Ok((dead, entries))
}

/// Only the owner reads or writes there: what is written there is later written into sysctls.
pub(crate) const FOLDER_MODE: u32 = 0o700;
pub(crate) const FILE_MODE: u32 = 0o600;
/// A run changes some dozens of settings, of some hundred bytes each.
const BYTES_MAX: u64 = 16 << 20;

/// The lines of a journal, each with its entry if it is understood.
fn parse(bytes: &[u8]) -> Vec<(String, Result<Entry, serde_json::Error>)> {
    let text = String::from_utf8_lossy(bytes);
    // What follows the last line end is a line that a crash tore.
    let (lines, _torn) = text.rsplit_once('\n').unwrap_or_default();
    let with_entry = |line: &str| (line.to_string(), serde_json::from_str(line));
    lines.lines().map(with_entry).collect()
}

/// The settings of a journal that is `bytes`, oldest first. Changes nothing: for fuzzing.
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

/// Where journals are: $TCPCOST_STATE_DIR, else /run/tcpcost for root, else
/// $XDG_RUNTIME_DIR/tcpcost.
///
/// # Errors
/// None of them, with what to do.
pub fn folder() -> Result<PathBuf, String> {
    let is_root = rustix::process::geteuid().is_root();
    folder_from(|name| std::env::var_os(name).map(PathBuf::from), is_root)
}

fn folder_from(
    variable: impl Fn(&str) -> Option<PathBuf>,
    is_root: bool,
) -> Result<PathBuf, String> {
    if let Some(folder) = variable("TCPCOST_STATE_DIR") {
        return Ok(folder);
    }
    if is_root {
        return Ok("/run/tcpcost".into());
    }
    match variable("XDG_RUNTIME_DIR") {
        Some(folder) => Ok(folder.join("tcpcost")),
        None => Err(
            "no folder for the journal of changed settings: set TCPCOST_STATE_DIR (XDG_RUNTIME_DIR is not set)"
                .into(),
        ),
    }
}

/// Writes a former value and reads it back. A thing that is gone needs nothing.
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
    let why = format!("it is now {now}");
    Err(SystemError::strange(format!("put back {former}"), why))
}

fn rewrite(mut file: &File, lines: &str) -> io::Result<()> {
    // A crash between these two forgets entries; the caller has tried all of them, and what it
    // leaves are entries of other namespaces and failures.
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
    // Field 22; the command's name before the last parenthesis may hold anything.
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
