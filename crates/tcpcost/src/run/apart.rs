//! Waits until the hypervisor runs the two ends' CPUs near each other, if it ever did.

use std::thread;
use std::time::{Duration, Instant};

use tcpcost_meter::core_to_core::round_trip_ns;
use tcpcost_study::{CoreToCore, Knobs, Record};

use super::ends::Events;
use super::trial;

/// Between looks: two thirds of a millisecond of both CPUs each.
const PAUSE: Duration = Duration::from_millis(20);
/// A trial waits at most this long: they were seen apart for 3 to 6 s at a time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// All trials together wait at most a fifth of the run: a study's time stays what it was said to be, and
/// what is apart then is marked.
const SHARE: u32 = 5;

/// Of one run.
pub struct Patience {
    began: Instant,
    waited: Duration,
}

impl Patience {
    /// At the run's begin.
    pub fn new() -> Patience {
        Patience {
            began: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    /// Returns once the CPUs of a trial are as near as they were in an earlier one, or patience is at
    /// an end.
    pub fn wait(&mut self, knobs: &Knobs, records: &[Record], events: &mut Events) {
        let Some(cpus) = trial::two_cpus(knobs) else {
            return;
        };
        let Some(nearest) = CoreToCore::nearest(records, cpus) else {
            return;
        };
        let allowed = WAIT_MAX + self.began.elapsed() / SHARE;
        let until = Instant::now() + WAIT_MAX.min(allowed.saturating_sub(self.waited));
        let begun = Instant::now();
        while Instant::now() < until
            && round_trip_ns(cpus)
                .ok()
                .flatten()
                .is_some_and(|ns| CoreToCore::is_apart(ns, nearest))
            && !events.interrupted()
        {
            thread::sleep(PAUSE);
        }
        self.waited += begun.elapsed();
    }
}
