//! When the next line is due, and when to stop: Ctrl-C and SIGTERM end the wait.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::KeyCode;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The interval is over.
    Tick,
    /// A key was pressed.
    Key(KeyCode),
    /// The terminal has another size.
    Resize,
    /// Ctrl-C or SIGTERM.
    End,
}

/// A source of events: a clock, a terminal, or a test's list.
pub trait Ticker {
    /// Waits for the next one.
    fn wait(&mut self) -> io::Result<Event>;
}

/// Ticks at a fixed distance; one that is missed is left out rather than made up for.
#[derive(Debug)]
pub struct Clock {
    interval: Duration,
    next: Instant,
}

impl Clock {
    /// The first tick is one interval from now.
    pub fn new(interval: Duration) -> Clock {
        let next = Instant::now() + interval;
        Clock { interval, next }
    }

    /// Time until the next tick, at most this.
    pub fn remaining(&self, most: Duration) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .min(most)
    }

    /// Whether the next tick is due; it then is the one after.
    pub fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next += self.interval;
            if self.next <= now {
                self.next = now + self.interval;
            }
        }
        is_due
    }
}

impl Ticker for Clock {
    fn wait(&mut self) -> io::Result<Event> {
        loop {
            if is_ended(self.remaining(Duration::MAX))? {
                return Ok(Event::End);
            }
            if self.is_due() {
                return Ok(Event::Tick);
            }
        }
    }
}

/// Makes SIGINT and SIGTERM wait for [`is_ended`], in this thread and those that it starts later.
pub fn block_signals() {
    // SAFETY: `set` is initialised, both signals may be blocked, a null pointer asks for nothing.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, &set(), std::ptr::null_mut());
    }
}

/// Whether SIGINT or SIGTERM comes within this time.
pub fn is_ended(within: Duration) -> io::Result<bool> {
    // A day at a time fits every time_t.
    let within = within.min(Duration::from_secs(86_400));
    let timeout = libc::timespec {
        tv_sec: within.as_secs() as libc::time_t,
        tv_nsec: within.subsec_nanos() as libc::c_long,
    };
    // SAFETY: `set` and `timeout` are initialised and outlive the call; no siginfo is asked for.
    if unsafe { libc::sigtimedwait(&set(), std::ptr::null_mut(), &timeout) } > 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EINTR) => Ok(false),
        _ => Err(error),
    }
}

fn set() -> libc::sigset_t {
    // SAFETY: an all-zero sigset_t is valid to be initialised by sigemptyset.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, libc::SIGINT);
        libc::sigaddset(&mut set, libc::SIGTERM);
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long that no test is late by one.
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_missed_tick_is_left_out() {
        let mut clock = Clock::new(HOUR);
        clock.next -= 3 * HOUR;
        assert!(clock.is_due());
        assert!(!clock.is_due());
        assert_eq!(clock.remaining(HOUR / 2), HOUR / 2);
        // On time, the distance is kept.
        let next = Instant::now();
        clock.next = next;
        assert!(clock.is_due());
        assert_eq!(clock.next, next + HOUR);
    }
}
