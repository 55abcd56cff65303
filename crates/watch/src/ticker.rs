//! When the next line is due, and when to stop: a signal ends the wait.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::KeyCode;
use tcpcost_signals::Interrupt;

/// What ended a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The interval is over.
    Tick,
    /// A key was pressed.
    Key(KeyCode),
    /// The terminal has another size.
    Resize,
    /// It was asked to stop.
    End,
}

/// A source of events: a clock, a terminal, or a test's list.
pub trait Ticker {
    /// Waits for the next one.
    fn wait(&mut self) -> io::Result<Event>;
}

/// Ticks at a fixed distance; one that is missed is left out rather than made up for.
pub struct Clock {
    interval: Duration,
    next: Instant,
    interrupt: Interrupt,
}

impl Clock {
    /// The first tick is one interval from now.
    pub fn new(interval: Duration, interrupt: Interrupt) -> Clock {
        let next = Instant::now() + interval;
        Clock {
            interval,
            next,
            interrupt,
        }
    }

    /// Whether it is asked to stop within this time.
    pub fn is_ended(&self, within: Duration) -> bool {
        self.interrupt.wait(1, within)
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
            if self.is_ended(self.remaining(Duration::MAX)) {
                return Ok(Event::End);
            }
            if self.is_due() {
                return Ok(Event::Tick);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// So long that no test is late by one.
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_missed_tick_is_left_out() {
        let mut clock = Clock::new(HOUR, Interrupt::default());
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
