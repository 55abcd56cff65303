//! The clocks of clock_gettime(2).

/// A clock, ns. Some 30 ns per call.
pub(crate) fn now_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call. With the clocks that every kernel has it cannot fail.
    unsafe { libc::clock_gettime(clock, &mut time) };
    // Neither part of a monotonic clock is negative.
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap_or(0)
}
