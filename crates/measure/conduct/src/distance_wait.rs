//! The wait for near CPUs before a trial. The CPUs of hosts that talk with each other may be near or distant at different times; if the
//! run has seen both, a trial waits until they are near.

use std::time::{Duration, Instant};

use tcpcost_study::{CpuDistance, Record};

use super::ask_error::AskError;
use super::bed::Bed;
use super::events::Events;
use super::phases::{ask_distance, cpu_pairs};
use tcpcost_study::{Knobs, Topology};

/// Interval between measurements of the distance, each of which uses both CPUs for two thirds of a millisecond.
const PAUSE: Duration = Duration::from_millis(20);
/// Limit on the wait of a trial. CPUs were seen to be distant for 3 to 6 s at a time.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// Divisor of the run's time that limits the waits of all trials to a fifth, so that the study takes about the announced time. A trial
/// whose CPUs are still distant is marked.
const SHARE: u32 = 5;

/// The time that one run has waited for near CPUs.
pub struct DistanceWait {
    began: Instant,
    waited: Duration,
}

impl DistanceWait {
    /// Starts the run's time.
    pub fn new() -> DistanceWait {
        DistanceWait {
            began: Instant::now(),
            waited: Duration::ZERO,
        }
    }

    /// Waits until the CPUs of a trial are near, the limit is reached, or the run was asked to stop. `left`: the rest of the run's time, of
    /// which the wait may take a tenth.
    pub fn wait(
        &mut self,
        bed: &mut Bed,
        topology: &Topology,
        knobs: &Knobs,
        records: &[Record],
        left: Option<Duration>,
        events: &Events,
    ) -> Result<(), AskError> {
        // Wrong knobs are reported when the trial is prepared.
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
