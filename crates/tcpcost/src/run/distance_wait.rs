//! Before a trial: waits until the CPUs of hosts that talk with each other are near each other, if the run saw them near
//! and far.

use std::time::{Duration, Instant};

use tcpcost_study::{CpuDistance, Record};

use super::bed::Bed;
use super::nodes::{AskError, Events};
use super::phases::{ask_distance, cpu_pairs};
use tcpcost_study::{Knobs, Topology};

/// Between looks: two thirds of a millisecond of both CPUs each.
const PAUSE: Duration = Duration::from_millis(20);
/// A trial waits at most this long: CPUs were seen to be far from each other for 3 to 6 s at a time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// All trials together wait at most a fifth of the run: a study's time stays what it was said to be, and
/// a trial whose CPUs are still far from each other is marked.
const SHARE: u32 = 5;

/// The time that one run has waited for near CPUs.
pub struct DistanceWait {
    began: Instant,
    waited: Duration,
}

impl DistanceWait {
    /// At the run's begin.
    pub fn new() -> DistanceWait {
        DistanceWait {
            began: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    /// Returns once the CPUs of a trial are near, or the time to wait is used up, or the run was asked to stop. Of the time
    /// that is left of the run it waits a tenth at most.
    pub fn wait(
        &mut self,
        bed: &mut Bed,
        topology: &Topology,
        knobs: &Knobs,
        records: &[Record],
        left: Option<Duration>,
        events: &Events,
    ) -> Result<(), AskError> {
        // What is wrong with the knobs is said, with its reason, when the trial is prepared.
        let Ok(placed) = bed.place(topology, knobs) else {
            return Ok(());
        };
        for cpus in cpu_pairs(bed, topology, &placed) {
            let machine = bed.nodes.hello(cpus[0].host).machine.clone();
            let numbers = cpus.map(|id| id.cpu);
            let Some(groups) = CpuDistance::near_and_far(records, &machine, numbers) else {
                continue;
            };
            let allowed = WAIT_MAX + self.began.elapsed() / SHARE;
            let allowed = allowed.saturating_sub(self.waited);
            let of_left = left.map_or(WAIT_MAX, |left| left / 10);
            let until = Instant::now() + WAIT_MAX.min(allowed).min(of_left);
            let begun = Instant::now();
            while Instant::now() < until
                && ask_distance(bed, cpus, events)?.is_some_and(|ns| ns >= groups.far_from_ns)
                && !events.interrupt.wait(1, PAUSE)
            {}
            self.waited += begun.elapsed();
        }
        Ok(())
    }
}
