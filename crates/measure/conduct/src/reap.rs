//! The end of an agent's process: waits for its exit, or kills it.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tcpcost_signals::Interrupt;

/// Limit on the wait for an agent's exit. Restoring settings takes milliseconds, and closing 30,000 connections some seconds. An agent
/// that takes longer hangs; what it leaves changed is in its journal.
pub const LEAVE_MAX: Duration = Duration::from_secs(20);
/// Interval between checks; a process usually ends after a few.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits until `until` for a process whose input was closed, then kills it. A second request to stop kills it at once.
pub fn reap(child: &mut Child, leads_group: bool, until: Instant, interrupt: &Interrupt) {
    // An error means that the process was already waited for.
    while let Ok(None) = child.try_wait() {
        if interrupt.wait(2, PAUSE) || Instant::now() >= until {
            end(child, leads_group);
        }
    }
}

/// Kills a process, with its whole process group if it leads one, and waits for it.
pub fn end(child: &mut Child, leads_group: bool) {
    // The process group of an ended process may be another process's by now.
    if leads_group
        && let Ok(None) = child.try_wait()
        && let Some(group) = Pid::from_raw(child.id().cast_signed())
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// True if a process ends by itself within this time.
pub fn ended_within(child: &mut Child, within: Duration) -> bool {
    let until = Instant::now() + within;
    while let Ok(None) = child.try_wait() {
        if Instant::now() >= until {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
    true
}
