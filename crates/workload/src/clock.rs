//! A worker's own time: nanoseconds in which somebody ran it.
//!
//! Between two calls of `run_until` a caller takes its snapshots. That pause is no part of any
//! response time or schedule, so the clock stands still in it.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    /// The instant that reads 0; moved on by each pause.
    zero: Instant,
    /// What the clock showed when it was stopped.
    stopped_ns: u64,
}

impl Clock {
    /// Stopped, showing 0.
    pub(crate) fn new(now: Instant) -> Clock {
        Clock {
            zero: now,
            stopped_ns: 0,
        }
    }

    /// Goes on from where it was stopped.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.zero = now
            .checked_sub(std::time::Duration::from_nanos(self.stopped_ns))
            .unwrap_or(now);
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopped_ns = self.at_ns(now);
    }

    /// The reading at an instant; 0 for one before it started.
    #[inline]
    pub(crate) fn at_ns(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.zero).as_nanos() as u64
    }

    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        self.at_ns(Instant::now())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn it_stands_still_while_nobody_runs_it() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut clock = Clock::new(at(0));
        clock.resume(at(5));
        assert_eq!(clock.at_ns(at(15)), 10_000_000);
        clock.stop(at(15));
        clock.resume(at(100));
        assert_eq!(clock.at_ns(at(101)), 11_000_000);
    }
}
