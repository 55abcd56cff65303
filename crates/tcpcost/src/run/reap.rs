//! The end of an agent: it puts back what it changed and leaves by itself, or it is ended.

use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use tcpcost_signals::Interrupt;

/// Putting back takes milliseconds, closing 30,000 connections some seconds. One that takes longer hangs, and
/// what it leaves changed is in its journal.
pub const LEAVE_MAX: Duration = Duration::from_secs(20);
/// Between two looks: it is over after a few.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for a process whose input was closed. A second request to stop ends it at once.
pub fn reap(child: &mut Child, leads_group: bool, until: Instant, interrupt: &Interrupt) {
    // One that was waited for already is an error of no interest.
    while let Ok(None) = child.try_wait() {
        if interrupt.wait(2, PAUSE) || Instant::now() >= until {
            end(child, leads_group);
        }
    }
}

/// Kills a process, with its whole process group if it leads one, and waits for it.
pub fn end(child: &mut Child, leads_group: bool) {
    // The group of one that has ended may be another's.
    if leads_group
        && let Ok(None) = child.try_wait()
        && let Some(group) = Pid::from_raw(child.id().cast_signed())
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

/// Whether a process that has nothing left to do ends by itself so soon.
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
