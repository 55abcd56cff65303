//! The two ways in which eBPF programs can be idle between windows, and their costs over all CPUs.
//!
//! Attaching and detaching patches the kernel's code, for which it interrupts every other CPU. Programs that
//! stay attached are still called at each event and return at once. The cheaper way depends on the rate of
//! events and on the number of CPUs.

use std::time::Duration;

use tcpcost_meter::bpf::Idle;

/// The cheaper way to be idle for `time`, with `runs_per_s` runs of the programs per second and `cpus` CPUs.
pub fn cheaper(runs_per_s: f64, time: Duration, cpus: usize) -> Idle {
    match attached(runs_per_s, time) < ATTACH + detached(cpus) {
        true => Idle::Attached,
        false => Idle::Detached,
    }
}

/// CPU time of programs that stay attached but return at once.
pub fn attached(runs_per_s: f64, time: Duration) -> Duration {
    RUN.mul_f64(runs_per_s * time.as_secs_f64())
}

/// CPU time of the other CPUs for detaching and attaching all programs once.
pub fn detached(cpus: usize) -> Duration {
    let others = u32::try_from(cpus.saturating_sub(1)).unwrap_or(u32::MAX);
    (CALL * CALLS).saturating_mul(others)
}

/// Cost of calling a program that returns at once: 18 ns for the call by `examples/bpf_cost.rs`, and 1 to 2
/// ns in the program.
pub const RUN: Duration = Duration::from_nanos(19);
/// CPU time of the thread that detaches and attaches, by `examples/windows.rs` (n = 150, 2 CPUs): 250 µs for
/// each meter.
const ATTACH: Duration = Duration::from_micros(500);
/// Interrupts of each other CPU for that, by the same example: three for each patch, 54 for each meter.
const CALLS: u32 = 108;
/// CPU time of one of these interrupts, by the same example.
const CALL: Duration = Duration::from_nanos(1100);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(runs_per_s: f64, cpus: usize, expected: Idle) {
        let idle = cheaper(runs_per_s, Duration::from_millis(400), cpus);
        assert_eq!(idle, expected, "{runs_per_s} runs/s, {cpus} CPUs");
    }

    #[test]
    fn few_events_or_many_cpus_stay_attached() {
        check(0.0, 1, Idle::Attached);
        check(50_000.0, 2, Idle::Attached);
        check(150_000.0, 2, Idle::Detached);
        check(1e6, 16, Idle::Detached);
        check(1e6, 128, Idle::Attached);
        check(1e7, 128, Idle::Detached);
    }

    #[test]
    fn one_cpu_calls_no_other() {
        assert_eq!(detached(1), Duration::ZERO);
        assert_eq!(detached(128), Duration::from_nanos(1100 * 108 * 127));
        assert_eq!(
            attached(1e6, Duration::from_secs(1)),
            Duration::from_millis(19)
        );
    }
}
