//! Threads that stay on one CPU.

#![allow(unsafe_code, reason = "a set of CPUs longer than rustix has")]

use crate::MeterError;

/// Pins the calling thread to a CPU.
///
/// # Errors
/// The CPU is not there, is offline, or is outside of the cpuset of this process.
pub fn pin(cpu: usize) -> Result<(), MeterError> {
    let mut mask = vec![0_u64; cpu / 64 + 1];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the kernel reads the given number of bytes of `mask`.
    match unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(MeterError::last("sched_setaffinity of a thread to its CPU")),
    }
}
