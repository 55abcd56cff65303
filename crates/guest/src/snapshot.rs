//! Guests that were saved after their start, and the folder that keeps them.
//!
//! A boot takes 12 to 16 s of the host's CPU, a restore 1.2 s (Linux 6.12, AMD Zen 3). Two restores of
//! one snapshot differ only by their seed and task; two boots also differ by the kernel's layout.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::fs::{FlockOperation, flock};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::agreed::READY;
use crate::boot::Boot;
use crate::error::GuestError;
use crate::guest::{Guest, STATE_VARIABLE};
use crate::monitor::Monitor;
use crate::qemu::Machine;
use crate::running::{LOOK, Limit, Running, Silence};
use crate::symbols::Symbols;
use crate::task::{Order, Task};
use crate::temporary::temporary;

/// A saved guest. Nobody removes it while this value lives.
#[derive(Debug)]
pub struct Snapshot {
    machine: Machine,
    /// Release of its kernel.
    pub release: String,
    /// Functions of its kernel.
    pub symbols: Symbols,
    folder: PathBuf,
    _lock: File,
}

impl Snapshot {
    /// Restores the guest, gives it a task, and waits as [`Guest::boot`] does. The same snapshot, seed
    /// and task give the same counts, to the digit. `guest` must be the one that was saved.
    ///
    /// `seed` decides the guest's random numbers from here on, and the phase of its tick.
    /// `options` are added to QEMU's, e.g. a plugin's.
    ///
    /// # Errors
    /// QEMU cannot be started.
    pub fn restore(
        &self,
        guest: &Guest,
        seed: u64,
        task: &Task,
        options: &[String],
        limit: Limit,
        stop: &dyn Fn() -> bool,
    ) -> Result<Boot, GuestError> {
        let mut machine = self.machine.clone();
        machine.options.extend_from_slice(options);
        let order = Order::Go { seed, task };
        let boot = Boot::new(Some(self.release.clone()));
        let state = self.folder.join(STATE);
        guest.run(&machine, &order, (boot, Some(&state)), limit, stop)
    }

    /// Identifier: the same for two snapshots only if kernel, modules, program, emulator and seed
    /// of the boot were the same.
    pub fn key(&self) -> String {
        let name = self.folder.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// The folder of saved guests: a folder for each, named by a hash of all that decides its state.
#[derive(Debug)]
pub struct Snapshots {
    folder: PathBuf,
}

/// State of a guest, as QEMU migrates it.
const STATE: &str = "state";
/// Release of its kernel.
const RELEASE: &str = "release";
/// Lines with the symbols of its kernel.
const SYMBOLS: &str = "symbols";

/// Ending of the name of an unfinished snapshot's folder.
const PART: &str = "part";

/// Limit of all snapshots together. One has 160 to 190 MB, and a kernel has 3 by default.
const BYTES_MAX: u64 = 12 << 30;
/// Free space without which no guest is saved.
const FREE_MIN: u64 = 1 << 30;
/// Limit of a boot that is saved, some ten times what it takes.
const LIMIT: Limit = Limit {
    cpu: Duration::from_secs(200),
    wall: Duration::from_secs(3600),
};

impl Snapshots {
    /// Opens `snapshots` in this user's cache folder: `$XDG_CACHE_HOME/tcpcost`, or
    /// `~/.cache/tcpcost`.
    ///
    /// # Errors
    /// There is neither variable, or the folder cannot be made.
    pub fn open() -> Result<Snapshots, GuestError> {
        let named = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        let cache = named("XDG_CACHE_HOME").map(PathBuf::from);
        let cache = cache.or_else(|| Some(PathBuf::from(named("HOME")?).join(".cache")));
        let cache = cache.ok_or_else(|| {
            GuestError::Missing(
                "no folder for saved guests: neither XDG_CACHE_HOME nor HOME is set".to_string(),
            )
        })?;
        Snapshots::at(cache.join("tcpcost/snapshots"))
    }

    /// Opens this folder.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn at(folder: PathBuf) -> Result<Snapshots, GuestError> {
        fs::create_dir_all(&folder).map_err(GuestError::file("create", &folder))?;
        Ok(Snapshots { folder })
    }

    /// Finds the snapshot of a guest on this machine, or boots the guest and saves it. If another
    /// process is saving the same, waits for that.
    ///
    /// # Errors
    /// The guest does not come up ([`GuestError::DidNotComeUp`]), the state cannot be written, or
    /// `stop` returned true ([`GuestError::Stopped`]).
    pub fn get(
        &self,
        guest: &Guest,
        machine: &Machine,
        stop: &dyn Fn() -> bool,
    ) -> Result<Snapshot, GuestError> {
        let key = key(guest, machine)?;
        let folder = self.folder.join(&key);
        let lock = lock(&folder, FlockOperation::NonBlockingLockShared, stop)?;
        if let Some(found) = load(&folder, machine, lock) {
            return Ok(found);
        }
        let lock = lock_alone(&folder, stop)?;
        if !folder.is_dir() {
            let saved = self.save(guest, machine, &folder, stop);
            saved.inspect_err(|_| {
                let _ = fs::remove_file(with_ending(&folder, ".lock"));
            })?;
        }
        flock(&lock, FlockOperation::NonBlockingLockShared)
            .map_err(|error| GuestError::file("lock", &folder)(error.into()))?;
        self.make_room(BYTES_MAX);
        load(&folder, machine, lock).ok_or_else(|| {
            let lost = io::Error::from(io::ErrorKind::InvalidData);
            GuestError::file("read", &folder)(lost)
        })
    }

    /// Removes all snapshots that nobody uses. Returns the number of bytes.
    pub fn clean(&self) -> u64 {
        self.make_room(0)
    }

    /// Removes the snapshots that were used longest ago, until the rest has at most this size.
    /// Returns the number of bytes that were removed.
    fn make_room(&self, most: u64) -> u64 {
        let mut kept: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(&self.folder)
            .into_iter()
            .flatten()
            .flatten()
            .filter(|entry| entry.path().is_dir())
            .map(|entry| {
                let path = entry.path();
                let used = entry.metadata().and_then(|folder| folder.modified());
                (used.unwrap_or(SystemTime::UNIX_EPOCH), size(&path), path)
            })
            .collect();
        kept.sort();
        let mut bytes: u64 = kept.iter().map(|(_, size, _)| size).sum();
        let before = bytes;
        for (_, size, path) in kept {
            if bytes > most && remove(&path) {
                bytes -= size;
            }
        }
        before - bytes
    }

    /// Saves a guest in a folder beside, which then gets its name. The caller has locked the name.
    fn save(
        &self,
        guest: &Guest,
        machine: &Machine,
        folder: &Path,
        stop: &dyn Fn() -> bool,
    ) -> Result<(), GuestError> {
        let space = rustix::fs::statvfs(&self.folder);
        let space = space.map_err(|error| GuestError::file("read", &self.folder)(error.into()))?;
        if space.f_bavail * space.f_frsize < FREE_MIN {
            return Err(GuestError::NoRoom(self.folder.clone()));
        }
        let part = folder.with_extension(PART);
        // A process that was killed may have left one.
        let _ = fs::remove_dir_all(&part);
        fs::create_dir(&part).map_err(GuestError::file("create", &part))?;
        let saved = save_in(&part, guest, machine, stop)
            .and_then(|()| fs::rename(&part, folder).map_err(GuestError::file("rename", &part)));
        saved.inspect_err(|_| {
            let _ = fs::remove_dir_all(&part);
        })
    }
}

/// Hash of all that decides the state of a saved guest.
fn key(guest: &Guest, machine: &Machine) -> Result<String, GuestError> {
    let image = &guest.kernel.image;
    let mut hash = Sha256::new();
    hash.update(fs::read(image).map_err(GuestError::file("read", image))?);
    hash.update(guest.image.hash());
    hash.update(&guest.emulator);
    let nothing = Path::new("");
    let command = guest.command(machine, nothing, nothing);
    // The initramfs is in by its content, its path differs between runs.
    let arguments = command
        .get_args()
        .filter(|word| *word != guest.image.path());
    for argument in arguments.filter(|word| *word != image.as_os_str()) {
        hash.update(argument.as_encoded_bytes());
        hash.update([0]);
    }
    let hash = hash.finalize();
    Ok(hash
        .iter()
        .take(16)
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Reads what a folder has; `None` if it is not there.
fn load(folder: &Path, machine: &Machine, lock: File) -> Option<Snapshot> {
    let release = fs::read_to_string(folder.join(RELEASE)).ok()?;
    let symbols = fs::read_to_string(folder.join(SYMBOLS)).ok()?;
    // The time of the last use.
    let _ = File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
    Some(Snapshot {
        machine: machine.clone(),
        release,
        symbols: Symbols::decode(symbols.lines()),
        folder: folder.to_path_buf(),
        _lock: lock,
    })
}

/// Boots a guest, and writes its state when it is ready.
fn save_in(
    part: &Path,
    guest: &Guest,
    machine: &Machine,
    stop: &dyn Fn() -> bool,
) -> Result<(), GuestError> {
    let (console, order) = (temporary(&[])?, temporary(&Order::Save.packed())?);
    let sockets = tempfile::tempdir();
    let sockets = sockets.map_err(GuestError::file("create", &std::env::temp_dir()))?;
    let socket = sockets.path().join("monitor");
    let mut command = guest.command(machine, order.path(), console.path());
    command
        .env(STATE_VARIABLE, part.join(STATE))
        .arg("-qmp")
        .arg(format!("unix:{},server=on,wait=off", socket.display()));
    let mut running = Running::start(command, guest.kernel.architecture, LIMIT)?;
    let mut boot = Boot::new(None);
    let mut symbols = String::new();
    let silence = loop {
        match running.line(stop) {
            Ok(line) if line.trim_end() == READY => break None,
            Ok(line) => match line.strip_prefix("symbols ") {
                Some(piece) => symbols += &format!("{piece}\n"),
                None => boot.take(&line),
            },
            Err(silence) => break Some(silence),
        }
    };
    let migrated = match silence {
        None => migrate(&socket, &mut running, stop),
        Some(silence) => Err(Unsaved::Silent(silence)),
    };
    match migrated {
        Ok(()) => {}
        Err(Unsaved::Silent(Silence::Stopped)) => return Err(GuestError::Stopped),
        Err(Unsaved::Silent(silence)) => {
            boot.end(running, silence, console.path());
            let failure = boot
                .failure()
                .unwrap_or_else(|| "the guest ended".to_string());
            return Err(GuestError::DidNotComeUp(failure));
        }
        Err(Unsaved::Refused(error)) => {
            // The reason of `cat`, e.g. that the disk is full.
            let said = running.end().join(" | ");
            let error = match said.is_empty() {
                true => error,
                false => io::Error::other(format!("{error}: {said}")),
            };
            return Err(GuestError::file("save a guest in", part)(error));
        }
    }
    let write = |name: &str, text: &str| {
        let path = part.join(name);
        fs::write(&path, text).map_err(GuestError::file("write", &path))
    };
    write(SYMBOLS, &symbols)?;
    write(RELEASE, boot.release.as_deref().unwrap_or_default())
}

/// Reason why a guest was not saved.
enum Unsaved {
    /// It sent no further line.
    Silent(Silence),
    /// QEMU, or the command that writes the state, failed.
    Refused(io::Error),
}

impl From<io::Error> for Unsaved {
    fn from(error: io::Error) -> Unsaved {
        Unsaved::Refused(error)
    }
}

/// Writes the state of a running guest. A guest that is stopped first would come back stopped.
fn migrate(socket: &Path, running: &mut Running, stop: &dyn Fn() -> bool) -> Result<(), Unsaved> {
    const LOOK_AGAIN: Duration = Duration::from_millis(20);
    let mut monitor = Monitor::connect(socket)?;
    // By default 128 MiB a second.
    monitor.ask(
        "migrate-set-parameters",
        json!({ "max-bandwidth": 4u64 << 30 }),
    )?;
    let to = format!("exec:cat > \"${STATE_VARIABLE}\"");
    monitor.ask("migrate", json!({ "uri": to }))?;
    loop {
        let now = monitor.ask("query-migrate", json!({}))?;
        match now["status"].as_str() {
            Some("completed") => break,
            Some("failed" | "cancelled") => {
                let reason = now["error-desc"].as_str().unwrap_or("QEMU gives no reason");
                return Err(Unsaved::Refused(io::Error::other(reason.to_string())));
            }
            _ => running.look(stop).map_err(Unsaved::Silent)?,
        }
        std::thread::sleep(LOOK_AGAIN);
    }
    monitor.ask("quit", json!({}))?;
    // QEMU ends after the command that writes the state.
    loop {
        match running.line(stop) {
            Ok(_) => {}
            Err(Silence::Ended) => return Ok(()),
            Err(silence) => return Err(Unsaved::Silent(silence)),
        }
    }
}

/// Bytes of the files in a folder.
fn size(folder: &Path) -> u64 {
    let files = fs::read_dir(folder).into_iter().flatten().flatten();
    files
        .filter_map(|file| Some(file.metadata().ok()?.len()))
        .sum()
}

/// Removes a snapshot, or what is left of an unfinished one, unless somebody uses or saves it. True if
/// it is gone.
fn remove(folder: &Path) -> bool {
    // Who saves has locked the snapshot's own name.
    let name = match folder.extension() {
        Some(ending) if ending == PART => folder.with_extension(""),
        _ => folder.to_path_buf(),
    };
    let Ok(_alone) = lock_alone(&name, &|| true) else {
        return false;
    };
    let removed = fs::remove_dir_all(folder).is_ok();
    let _ = fs::remove_file(with_ending(&name, ".lock"));
    removed
}

fn lock_alone(folder: &Path, stop: &dyn Fn() -> bool) -> Result<File, GuestError> {
    lock(folder, FlockOperation::NonBlockingLockExclusive, stop)
}

/// Locks the name of a snapshot; waits for others, until `stop` returns true.
fn lock(
    folder: &Path,
    operation: FlockOperation,
    stop: &dyn Fn() -> bool,
) -> Result<File, GuestError> {
    let path = with_ending(folder, ".lock");
    loop {
        let mut options = OpenOptions::new();
        let file = options.write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(GuestError::file("create", &path))?;
        if flock(&file, operation).is_ok() {
            // Who removed the snapshot has removed this file, too.
            let inode = |data: io::Result<fs::Metadata>| data.map(|data| data.ino()).ok();
            if inode(file.metadata()) == inode(fs::metadata(&path)) {
                return Ok(file);
            }
            continue;
        }
        if stop() {
            return Err(GuestError::Stopped);
        }
        std::thread::sleep(LOOK);
    }
}

fn with_ending(folder: &Path, ending: &str) -> PathBuf {
    let mut name = folder.as_os_str().to_os_string();
    name.push(ending);
    PathBuf::from(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stored(snapshots: &Snapshots, name: &str, bytes: usize, age_s: u64) -> PathBuf {
        let folder = snapshots.folder.join(name);
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join(STATE), vec![0; bytes]).unwrap();
        fs::write(folder.join(RELEASE), "6.1").unwrap();
        fs::write(folder.join(SYMBOLS), "").unwrap();
        let used = SystemTime::now() - Duration::from_secs(age_s);
        File::open(&folder).unwrap().set_modified(used).unwrap();
        folder
    }

    #[test]
    fn the_oldest_go_first_and_none_that_is_in_use() {
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::at(folder.path().join("snapshots")).unwrap();
        let old = stored(&snapshots, "old", 100, 300);
        let used = stored(&snapshots, "used", 100, 200);
        let new = stored(&snapshots, "new", 100, 100);
        let shared = FlockOperation::NonBlockingLockShared;
        let in_use = load(
            &used,
            &Machine::new(1),
            lock(&used, shared, &|| true).unwrap(),
        );
        let in_use = in_use.unwrap();
        assert_eq!(snapshots.make_room(250), 103);
        assert!(!old.exists() && used.exists() && new.exists());
        assert_eq!(snapshots.clean(), 103);
        assert!(used.exists() && !new.exists());
        drop(in_use);
        assert_eq!(snapshots.clean(), 103);
        assert_eq!(
            fs::read_dir(&snapshots.folder).unwrap().count(),
            0,
            "no lock is left"
        );
    }

    #[test]
    fn an_unfinished_snapshot_stays_while_it_is_being_saved() {
        let folder = tempfile::tempdir().unwrap();
        let snapshots = Snapshots::at(folder.path().join("snapshots")).unwrap();
        let name = snapshots.folder.join("key");
        let part = stored(&snapshots, "key.part", 100, 0);
        let saving = lock_alone(&name, &|| true).unwrap();
        assert_eq!(snapshots.clean(), 0);
        assert!(part.exists());
        drop(saving);
        assert_eq!(snapshots.clean(), 103);
        assert_eq!(fs::read_dir(&snapshots.folder).unwrap().count(), 0);
    }

    #[test]
    fn two_that_save_the_same_take_turns() {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().join("key");
        let first = lock_alone(&name, &|| true).unwrap();
        let refused = lock_alone(&name, &|| true).unwrap_err();
        assert!(matches!(refused, GuestError::Stopped), "{refused}");
        drop(first);
        lock_alone(&name, &|| true).unwrap();
    }
}
