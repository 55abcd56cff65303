//! The end of an agent: it puts back what it changed and leaves by itself, or it is ended.

use std::process::Child;
use std::time::{Duration, Instant};

use tcpcost_signals::Interrupt;

/// Putting back takes milliseconds, closing 30,000 connections some seconds. One that takes longer hangs, and
/// what it leaves changed is in its journal.
const LEAVE_MAX: Duration = Duration::from_secs(20);
/// Between two looks: it is over after a few.
const PAUSE: Duration = Duration::from_millis(2);

/// Waits for a process whose input was closed. A second request to stop ends it at once.
pub fn reap(child: &mut Child, interrupt: &Interrupt) {
    let until = Instant::now() + LEAVE_MAX;
    // One that was waited for already is an error of no interest.
    while let Ok(None) = child.try_wait() {
        if interrupt.wait(2, PAUSE) || Instant::now() >= until {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
