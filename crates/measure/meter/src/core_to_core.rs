//! Core distance: the time that a cache line takes to another CPU and back.
//!
//! A payload that one CPU writes and another reads crosses this distance, cache line by cache line. On bare
//! metal the distance depends on which cores share a last-level cache. A hypervisor may run two virtual CPUs
//! on cores of one cache now, and on two sockets a second later. The same instructions with the same cache
//! misses then cost two to three times the cycles: 50 ns against 510 ns for the round trip, 3,000 against
//! 9,000 cycles per KiB on the virtual machine where this was found. A trial measured there shows the
//! hypervisor, not the knob.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::MeterError;
use crate::affinity::pin;

/// Round trips per block: 3 µs if near, 25 µs if distant. An interrupt disturbs one block, but not the
/// median.
const TRIPS: u64 = 50;
/// Number of blocks, whose median counts. The first ones include the wait for the other thread.
const BLOCKS: usize = 15;
/// Limit on the total time, far above the slowest one observed (0.6 ms). If it is exceeded, another task uses
/// one of the CPUs.
const LIMIT: Duration = Duration::from_millis(20);

/// One cache line, and the neighbour that a prefetcher may fetch with it.
#[repr(align(128))]
struct SharedLine(AtomicU64);

/// Measures the round trip of a cache line between two CPUs, ns: median of 15 blocks of 50 trips. Takes 0.1
/// to 1 ms of both CPUs. `None` if it took longer than 20 ms because one of them was not free.
///
/// # Errors
/// A thread could not be pinned or started.
pub fn round_trip_ns(cpus: [usize; 2]) -> Result<Option<u64>, MeterError> {
    let line = SharedLine(AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let until = Instant::now() + LIMIT;
    let give_up = |_: &MeterError| over.store(true, Ordering::Relaxed);
    thread::scope(|scope| {
        let echo = || {
            pin(cpus[1]).inspect_err(give_up)?;
            for trip in 0..TRIPS * BLOCKS as u64 {
                if !wait(&line, 2 * trip + 1, until, &over) {
                    break;
                }
                line.0.store(2 * trip + 2, Ordering::Release);
            }
            Ok(())
        };
        let ask = || {
            pin(cpus[0]).inspect_err(give_up)?;
            let mut blocks = [0; BLOCKS];
            let mut trip = 0;
            for block in &mut blocks {
                let begun = Instant::now();
                for _ in 0..TRIPS {
                    line.0.store(2 * trip + 1, Ordering::Release);
                    if !wait(&line, 2 * trip + 2, until, &over) {
                        return Ok(None);
                    }
                    trip += 1;
                }
                *block = u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX) / TRIPS;
            }
            blocks.sort_unstable();
            Ok(Some(blocks[BLOCKS / 2]))
        };
        let failed = |source| MeterError::Call {
            call: "start a thread",
            source,
        };
        let echo = thread::Builder::new().spawn_scoped(scope, echo);
        let ask = thread::Builder::new().spawn_scoped(scope, ask);
        let ended = "neither thread panics: they compare and store numbers";
        let echoed = echo.map_err(failed)?.join().expect(ended);
        let asked = ask.map_err(failed)?.join().expect(ended);
        echoed.and(asked)
    })
}

/// Spins until the line holds `value`. False at the time limit, or if the other side gave up.
fn wait(line: &SharedLine, value: u64, until: Instant, over: &AtomicBool) -> bool {
    let mut turns = 0_u32;
    while line.0.load(Ordering::Acquire) != value {
        std::hint::spin_loop();
        turns += 1;
        // Reading the clock in each turn would take half of the measured time.
        if turns.is_multiple_of(1024) && (over.load(Ordering::Relaxed) || Instant::now() > until) {
            over.store(true, Ordering::Relaxed);
            return false;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_cpus_have_a_distance_and_a_cpu_that_is_not_there_is_an_error() {
        if thread::available_parallelism().map_or(1, usize::from) < 2 {
            tcpcost_testbed::skip("one CPU");
            return;
        }
        // A busy machine gives no answer, but never a wrong one.
        if let Some(ns) = round_trip_ns([0, 1]).unwrap() {
            assert!((1..1_000_000).contains(&ns), "{ns}");
        }
        let error = round_trip_ns([0, 1 << 15]).unwrap_err();
        assert!(error.to_string().contains("sched_setaffinity"), "{error}");
        assert!(round_trip_ns([1 << 15, 0]).is_err());
    }
}
