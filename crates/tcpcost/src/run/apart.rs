//! Waits until the hypervisor runs the CPUs of hosts that talk with each other near each other, if it ever
//! did.

use std::time::{Duration, Instant};

use tcpcost_study::{Distance, Record};

use super::bed::Bed;
use super::nodes::{Events, Halt};
use super::phases::{ask_distance, far_cpus};
use tcpcost_study::{Knobs, Topology};

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
    /// an end, or it was asked to stop.
    pub fn wait(
        &mut self,
        bed: &mut Bed,
        topology: &Topology,
        knobs: &Knobs,
        records: &[Record],
        events: &Events,
    ) -> Result<(), Halt> {
        // What is wrong with the knobs is said, with its reason, when the trial is prepared.
        let Ok(placed) = bed.place(topology, knobs) else {
            return Ok(());
        };
        for cpus in far_cpus(bed, topology, &placed) {
            let machine = bed.nodes.hello(cpus[0].host).machine.clone();
            let numbers = cpus.map(|id| id.cpu);
            let Some(nearest) = Distance::nearest(records, &machine, numbers) else {
                continue;
            };
            let allowed = WAIT_MAX + self.began.elapsed() / SHARE;
            let until = Instant::now() + WAIT_MAX.min(allowed.saturating_sub(self.waited));
            let begun = Instant::now();
            while Instant::now() < until
                && ask_distance(bed, cpus, events)?
                    .is_some_and(|ns| Distance::is_apart(ns, nearest))
                && !events.interrupt.wait(1, PAUSE)
            {}
            self.waited += begun.elapsed();
        }
        Ok(())
    }
}
