//! The clocks of clock_gettime(2).

use rustix::time::{ClockId, clock_gettime};

/// Reads a clock, ns. Takes about 30 ns.
pub(crate) fn now_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Seconds and nanoseconds of these clocks are never negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
