//! Who may load the eBPF programs of the meter `exact`: one test of a network namespace at a time.
//!
//! It is a lock on a file in the folder of the journals, which only its user may enter. A name that anybody can take, such as an
//! abstract socket's, would let anybody keep root from its better meter.

use std::fs::File;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{FlockOperation, flock};
use tcpcost_host::lock::{holders, open_file};
use tcpcost_host::{journal, namespace};

/// The lock file, and whether a test of this process holds it.
struct Lock {
    file: File,
    is_held: AtomicBool,
}

static LOCK: OnceLock<Result<Lock, String>> = OnceLock::new();

/// The lock, held. Dropping it frees it.
pub struct Held(&'static Lock);

/// Opens the file now: a process that becomes another user cannot do so later.
pub fn open() {
    lock();
}

/// Takes the lock.
///
/// # Errors
/// Who holds it; there is no folder for it.
pub fn hold() -> Result<Held, String> {
    let lock = lock().as_ref().map_err(String::clone)?;
    if lock.is_held.swap(true, Ordering::Acquire) {
        return Err("another test of this process has it".to_string());
    }
    match flock(&lock.file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Held(lock)),
        Err(_) => {
            lock.is_held.store(false, Ordering::Release);
            Err(format!("{} has it", holders(&lock.file)))
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = flock(&self.0.file, FlockOperation::Unlock);
        self.0.is_held.store(false, Ordering::Release);
    }
}

fn lock() -> &'static Result<Lock, String> {
    LOCK.get_or_init(|| {
        let netns = namespace::inode().map_err(|error| error.to_string())?;
        let path = journal::folder()?.join(format!("netperf-exact-{netns}.lock"));
        let file = open_file(&path).map_err(|error| error.to_string())?;
        let is_held = AtomicBool::new(false);
        Ok(Lock { file, is_held })
    })
}
