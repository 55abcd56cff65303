//! The host's own network settings during a run: the lock on them, and their restoration.

use std::time::Duration;

use anyhow::bail;
use tcpcost_console::output::say;
use tcpcost_signals::Interrupt;
use tcpcost_study::{Cell, DeviceSettings, HostName};

use super::progress::Progress;
use tcpcost_host::journal::{self, Restored};
use tcpcost_host::lock::{HostLock, LockKind};

/// Interval between attempts to take the lock, because its release wakes no process.
const PAUSE: Duration = Duration::from_millis(50);

/// Attempts to restore from the journals of processes that are ending: one second in all, which is enough on a busy machine.
const RESTORE_ATTEMPTS: u32 = 20;

/// Lock on the host's settings, as long as this exists. Without a folder for journals there is no lock, and no run can change
/// settings.
pub struct SettingsLock(#[allow(dead_code, reason = "held until it is dropped")] Option<HostLock>);

/// Waits for the lock on the host's settings, and prints which processes hold it. Then restores what an earlier holder left changed.
/// `None` if interrupted before.
pub fn hold(
    hold: LockKind,
    interrupt: &Interrupt,
    progress: &Progress,
) -> anyhow::Result<Option<SettingsLock>> {
    let Ok(lock) = journal::folder()
        .map_err(anyhow::Error::msg)
        .and_then(|folder| Ok(HostLock::open(&folder)?))
    else {
        return Ok(Some(SettingsLock(None)));
    };
    let mut said = false;
    while !lock.try_hold(hold)? {
        if !said {
            let what = match hold {
                LockKind::Exclusive => "changes the host's network settings",
                LockKind::Shared => "measures with the host's network settings",
            };
            progress.say(&format!(
                "tcpcost: waiting: this run {what}, and they are held by {}; Ctrl-C ends the wait",
                lock.holders()
            ));
            said = true;
        }
        if interrupt.wait(1, PAUSE) {
            return Ok(None);
        }
    }
    // A killed process releases the lock a moment before its journal.
    for _ in 0..RESTORE_ATTEMPTS {
        if !said || restore("a killed run")? == 0 || interrupt.wait(1, PAUSE) {
            break;
        }
    }
    Ok(Some(SettingsLock(Some(lock))))
}

/// Kind of lock that cells on the hosts' own devices need: `Alone` if a cell changes a setting.
pub fn lock_needed<'a>(mut cells: impl Iterator<Item = &'a Cell>, hosts: &[HostName]) -> LockKind {
    let changes = |cell: &Cell| {
        hosts
            .iter()
            .any(|&host| DeviceSettings::from_knobs(&cell.knobs, host) != DeviceSettings::default())
    };
    if cells.any(changes) {
        LockKind::Exclusive
    } else {
        LockKind::Shared
    }
}

/// Restores what dead processes left changed, and prints each setting; `whose` names the processes. Returns how many journals belong to
/// living processes.
///
/// # Errors
/// A setting could not be restored, and would change the next measurement.
pub fn restore(whose: &str) -> anyhow::Result<usize> {
    // Without a folder for journals there is no journal.
    let Ok(folder) = journal::folder() else {
        return Ok(0);
    };
    let restored = match journal::restore(&folder) {
        // A folder of another user has no journal of this user.
        Err(error) if error.is_denied() => Restored::default(),
        other => other?,
    };
    for line in restored.put_back {
        say!("tcpcost: restored what {whose} had changed: {line}");
    }
    if !restored.failed.is_empty() {
        bail!(
            "what {whose} had changed could not be restored ({}): remove the cause, then run tcpcost doctor --restore",
            restored.failed.join("; ")
        );
    }
    Ok(restored.running)
}
