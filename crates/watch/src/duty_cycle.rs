//! How eBPF programs are idle between two windows, and what that takes of all CPUs together.
//!
//! Attaching and detaching patches the kernel's code, for which it calls every other CPU. Programs that stay attached are
//! called at each event only to leave at once. Which is cheaper depends on the events and on the CPUs.

use std::time::Duration;

use tcpcost_meter::bpf::Idle;

/// The cheaper way to be idle for so long, where programs would run so often a second.
pub fn cheaper(runs_per_s: f64, time: Duration, cpus: usize) -> Idle {
    match attached(runs_per_s, time) < ATTACH + detached(cpus) {
        true => Idle::Attached,
        false => Idle::Detached,
    }
}

/// What programs that stay attached take in this time.
pub fn attached(runs_per_s: f64, time: Duration) -> Duration {
    RUN.mul_f64(runs_per_s * time.as_secs_f64())
}

/// What detaching and attaching all programs once takes of the other CPUs.
pub fn detached(cpus: usize) -> Duration {
    let others = u32::try_from(cpus.saturating_sub(1)).unwrap_or(u32::MAX);
    (CALL * CALLS).saturating_mul(others)
}

/// The kernel's way to a program that leaves at once, and back: by `examples/bpf_cost.rs`, 18 ns, and 1 to 2 in it.
pub const RUN: Duration = Duration::from_nanos(19);
/// CPU time of the thread that detaches and attaches, by `examples/windows.rs` (n = 150, 2 CPUs): 250 µs a meter.
const ATTACH: Duration = Duration::from_micros(500);
/// Calls that each other CPU gets for it, by the same: three a patch, 54 a meter.
const CALLS: u32 = 108;
/// A call takes so much of the CPU that is called, in hard interrupts, by the same.
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
