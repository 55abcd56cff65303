//! A worker's clock: nanoseconds in which the worker ran.
//!
//! Between two calls of `run_until` the caller takes its snapshots. That pause is no part of any
//! response time or schedule, so the clock is stopped.

use std::time::Instant;

#[derive(Debug)]
pub(crate) struct Clock {
    /// Instant at which the clock reads 0; moved forward by each pause.
    zero: Instant,
    /// Reading when the clock was stopped.
    stopped_ns: u64,
}

impl Clock {
    /// Makes a stopped clock that reads 0.
    pub(crate) fn new(now: Instant) -> Clock {
        Clock {
            zero: now,
            stopped_ns: 0,
        }
    }

    /// Continues from the reading at the stop.
    pub(crate) fn resume(&mut self, now: Instant) {
        self.zero = now
            .checked_sub(std::time::Duration::from_nanos(self.stopped_ns))
            .unwrap_or(now);
    }

    pub(crate) fn stop(&mut self, now: Instant) {
        self.stopped_ns = self.at_ns(now);
    }

    /// Reading at an instant; 0 for an instant before the start.
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
