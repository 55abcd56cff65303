//! CPU time and context switches of the calling thread, by getrusage(RUSAGE_THREAD).
//!
//! Not a [`crate::Meter`]: only a thread itself can ask, and the caller adds its threads up
//! ([`tcpcost_counts::Whose::Threads`]). A call takes 0.15 µs (examples/cost.rs).

#![allow(unsafe_code, reason = "getrusage has no safe wrapper")]

use tcpcost_counts::{Counts, Quantity};

use crate::MeterError;

/// The calling thread's totals since it began.
///
/// # Errors
/// None that Linux has for a good pointer.
pub fn thread_counts() -> Result<Counts, MeterError> {
    counts_of(libc::RUSAGE_THREAD)
}

/// The calling process's totals, those of threads that have ended included.
///
/// # Errors
/// As of [`thread_counts`].
pub fn process_counts() -> Result<Counts, MeterError> {
    counts_of(libc::RUSAGE_SELF)
}

fn counts_of(who: libc::c_int) -> Result<Counts, MeterError> {
    // SAFETY: rusage is plain data, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    if unsafe { libc::getrusage(who, &mut usage) } != 0 {
        return Err(MeterError::last("getrusage"));
    }
    // None of them is ever negative.
    let ns = |time: libc::timeval| {
        let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
        seconds * 1_000_000_000 + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    let count = |count: libc::c_long| u64::try_from(count).unwrap_or(0);
    Ok(Counts::from([
        (Quantity::TaskUserNs, ns(usage.ru_utime)),
        (Quantity::TaskSystemNs, ns(usage.ru_stime)),
        (Quantity::VoluntarySwitches, count(usage.ru_nvcsw)),
        (Quantity::InvoluntarySwitches, count(usage.ru_nivcsw)),
    ]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_charged_its_own_work_alone() {
        let busy = std::thread::spawn(|| {
            let spent = || {
                let counts = thread_counts().unwrap();
                counts[&Quantity::TaskUserNs] + counts[&Quantity::TaskSystemNs]
            };
            // Until the kernel has noticed, however slow this machine is.
            while spent() < 30_000_000 {}
            spent()
        });
        let busy = busy.join().unwrap();
        let idle = std::thread::spawn(|| thread_counts().unwrap())
            .join()
            .unwrap();
        assert!(idle[&Quantity::TaskUserNs] < busy);
        assert_eq!(idle.len(), 4);
    }
}
