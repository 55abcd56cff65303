//! The host's own network settings during a run: who may touch them, and that they are put back.

use std::time::Duration;

use anyhow::bail;
use tcpcost_signals::Interrupt;
use tcpcost_study::{Cell, DeviceSettings, HostName};

use super::progress::Progress;
use crate::output::say;
use tcpcost_host::journal::{self, Restored};
use tcpcost_host::lock::{Hold, HostLock};

/// Between two tries to have the lock. Its end wakes nobody.
const PAUSE: Duration = Duration::from_millis(50);

/// Tries to have the journals of processes that are ending: a second, on a busy machine, too.
const ENDING_TRIES: u32 = 20;

/// The host's settings as this run holds them. Without a folder for journals there is no lock, and
/// nobody who could change anything either.
pub struct Held(#[allow(dead_code, reason = "held until it is dropped")] Option<HostLock>);

/// Waits until the host's settings can be held, and says for whom; `None` if interrupted before.
///
/// What an earlier holder left changed is put back before this returns.
pub fn hold(
    hold: Hold,
    interrupt: &Interrupt,
    progress: &Progress,
) -> anyhow::Result<Option<Held>> {
    let Ok(lock) = journal::folder().and_then(|folder| HostLock::open(&folder)) else {
        return Ok(Some(Held(None)));
    };
    let mut said = false;
    while !lock.try_hold(hold)? {
        if !said {
            let what = match hold {
                Hold::Alone => "changes the host's network settings",
                Hold::Shared => "measures with the host's network settings",
            };
            progress.say(&format!(
                "tcpcost: waits, since this run {what}, which are held by {}; Ctrl-C ends the wait",
                lock.holders()
            ));
            said = true;
        }
        if interrupt.wait(1, PAUSE) {
            return Ok(None);
        }
    }
    // A process that is killed lets go of the lock a moment before its journal.
    for _ in 0..ENDING_TRIES {
        if !said || put_back("a killed run")? == 0 || interrupt.wait(1, PAUSE) {
            break;
        }
    }
    Ok(Some(Held(Some(lock))))
}

/// How the cells of a study on the hosts' own devices need them.
pub fn need<'a>(mut cells: impl Iterator<Item = &'a Cell>, hosts: &[HostName]) -> Hold {
    let changes = |cell: &Cell| {
        hosts.iter().any(|&host| {
            let settings = DeviceSettings::from_knobs(&cell.knobs, host);
            let untouched = DeviceSettings {
                bottleneck_queue_bytes: settings.bottleneck_queue_bytes,
                ..DeviceSettings::default()
            };
            settings != untouched
        })
    };
    if cells.any(changes) {
        Hold::Alone
    } else {
        Hold::Shared
    }
}

/// Puts back what dead processes left changed and says so. Returns how many journals are of processes
/// that live.
///
/// # Errors
/// Something could not be put back: what is measured next would be measured with it.
pub fn put_back(whose: &str) -> anyhow::Result<usize> {
    // Without a place for a journal there never was one.
    let Ok(folder) = journal::folder() else {
        return Ok(0);
    };
    let restored = match journal::restore(&folder) {
        // A folder that is another user's has nothing that this one could have changed.
        Err(error) if error.is_denied() => Restored::default(),
        other => other?,
    };
    for line in restored.put_back {
        say!("tcpcost: put back what {whose} had changed: {line}");
    }
    if !restored.failed.is_empty() {
        bail!(
            "what {whose} had changed could not be put back ({}): see to it, then tcpcost doctor --restore",
            restored.failed.join("; ")
        );
    }
    Ok(restored.running)
}
