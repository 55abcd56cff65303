//! Ticks at the end of each interval, and the signal that ends the wait.

use std::io;
use std::time::{Duration, Instant};

use ratatui::crossterm::event::KeyCode;
use tcpcost_signals::Interrupt;

/// End of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// The interval is over.
    Tick,
    /// The interval is over, but this much late: by more than a tenth of the interval, and more than 10 ms.
    LateTick(Duration),
    /// A key was pressed.
    Key(KeyCode),
    /// The terminal has another size.
    Resize,
    /// A stop was requested.
    End,
}

/// A source of events: a clock, a terminal, or a test's list.
pub trait Ticker {
    /// Waits for the next event.
    fn wait(&mut self) -> io::Result<Event>;
}

/// Ticks at a fixed distance. Missed ticks are omitted and not made up for.
pub struct Clock {
    interval: Duration,
    next: Instant,
    interrupt: Interrupt,
}

impl Clock {
    /// Makes a clock whose first tick is one interval from now.
    pub fn new(interval: Duration, interrupt: Interrupt) -> Clock {
        let next = Instant::now() + interval;
        Clock {
            interval,
            next,
            interrupt,
        }
    }

    /// True if a stop is requested within this time.
    pub fn is_ended(&self, within: Duration) -> bool {
        self.interrupt.wait(1, within)
    }

    /// Time until the next tick, limited to `most`.
    pub fn remaining(&self, most: Duration) -> Duration {
        self.next
            .saturating_duration_since(Instant::now())
            .min(most)
    }

    /// Returns the tick if it is due, and schedules the next.
    pub fn due(&mut self) -> Option<Event> {
        let now = Instant::now();
        let late = now.checked_duration_since(self.next)?;
        self.next += self.interval;
        if self.next <= now {
            self.next = now + self.interval;
        }
        Some(match late > (self.interval / 10).max(LATE) {
            true => Event::LateTick(late),
            false => Event::Tick,
        })
    }
}

/// Delay that a busy scheduler causes at times, and that is not reported.
const LATE: Duration = Duration::from_millis(10);

impl Ticker for Clock {
    fn wait(&mut self) -> io::Result<Event> {
        loop {
            if self.is_ended(self.remaining(Duration::MAX)) {
                return Ok(Event::End);
            }
            if let Some(tick) = self.due() {
                return Ok(tick);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An interval so long that no test is late by one.
    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_missed_tick_is_left_out_and_said() {
        let mut clock = Clock::new(HOUR, Interrupt::default());
        clock.next -= 3 * HOUR;
        let late = clock.due();
        assert!(
            matches!(late, Some(Event::LateTick(late)) if late > HOUR && late < 3 * HOUR),
            "{late:?}"
        );
        assert_eq!(clock.due(), None);
        assert_eq!(clock.remaining(HOUR / 2), HOUR / 2);
        // A tick in time keeps the distance.
        let next = Instant::now();
        clock.next = next;
        assert_eq!(clock.due(), Some(Event::Tick));
        assert_eq!(clock.next, next + HOUR);
    }
}
