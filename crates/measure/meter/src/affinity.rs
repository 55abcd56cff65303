//! Pins threads to CPUs, and lets a thread run before all others.

#![allow(unsafe_code, reason = "a set of CPUs longer than rustix has")]

use crate::MeterError;

/// Lets the calling thread run before all ordinary threads (SCHED_FIFO, lowest priority), so that it reads
/// meters in time even if thousands of threads are runnable. Threads that it starts are ordinary ones.
///
/// # Errors
/// CAP_SYS_NICE is missing.
pub fn run_first() -> Result<(), MeterError> {
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: the kernel reads the parameters, which live through the call.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(MeterError::last(
            "sched_setscheduler of a thread that reads meters",
        )),
    }
}

/// Pins the calling thread to a CPU.
///
/// # Errors
/// The CPU does not exist, is offline, or is outside the cpuset of this process.
pub fn pin(cpu: usize) -> Result<(), MeterError> {
    let mut mask = vec![0_u64; cpu / 64 + 1];
    mask[cpu / 64] = 1 << (cpu % 64);
    // SAFETY: the kernel reads the given number of bytes of `mask`.
    match unsafe { libc::sched_setaffinity(0, mask.len() * 8, mask.as_ptr().cast()) } {
        0 => Ok(()),
        _ => Err(MeterError::last("sched_setaffinity of a thread to its CPU")),
    }
}
