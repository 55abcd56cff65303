//! CPU time, context switches and page faults of the calling thread, by getrusage(RUSAGE_THREAD), and its
//! migrations, by /proc/thread-self/sched.
//!
//! A thread's own totals are no [`crate::Meter`], because only the thread itself can ask for them. The caller
//! adds up its threads ([`tcpcost_counts::CountOwner::Threads`]). The totals of children are a meter:
//! [`Children`]. getrusage takes 0.15 µs (examples/cost.rs). The text file with the migrations takes some
//! tens of µs, so it is read before the first snapshot and after the last.

#![allow(unsafe_code, reason = "getrusage has no safe wrapper")]

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `rusage` of children: those that this process has waited for, and those that they have waited
/// for. Needs no privileges.
#[derive(Debug)]
pub struct Children;

impl Meter for Children {
    fn name(&self) -> MeterName {
        MeterName::Rusage
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let counts = counts_of(libc::RUSAGE_CHILDREN)?;
        Ok(snapshot_of(self.name(), CountOwner::Threads, counts))
    }
}

/// The calling thread's totals since it began.
///
/// # Errors
/// Linux has none for a valid pointer.
pub fn thread_counts() -> Result<Counts, MeterError> {
    counts_of(libc::RUSAGE_THREAD)
}

/// Number of times that the calling thread moved to another CPU since it began. `None` if the kernel lacks
/// CONFIG_SCHED_DEBUG.
pub fn thread_migrations() -> Option<u64> {
    let sched = std::fs::read_to_string("/proc/thread-self/sched");
    sched.ok().as_deref().and_then(migrations)
}

/// Zeros in the same quantities, for an end without a thread of its own.
pub fn nobodys_counts() -> Counts {
    let quantities = counts_of(libc::RUSAGE_THREAD).unwrap_or_default();
    quantities.into_keys().map(|of| (of, 0)).collect()
}

/// Parses the line `se.nr_migrations                             :                    3`.
fn migrations(sched: &str) -> Option<u64> {
    let mut lines = sched.lines();
    let line = lines.find_map(|line| line.strip_prefix("se.nr_migrations"))?;
    line.trim_start().strip_prefix(':')?.trim().parse().ok()
}

/// The calling process's totals, including threads that have ended.
///
/// # Errors
/// See [`thread_counts`].
pub fn process_counts() -> Result<Counts, MeterError> {
    counts_of(libc::RUSAGE_SELF)
}

/// CPU time of the calling thread without the interrupts that hit it, ns: the sum of its user and system time
/// as the kernel accounts them. With tick accounting it grows in steps of a tick (4 ms at 250 Hz).
/// [`thread_counts`] does not have this time: its sum is scaled to what the scheduler counted, which includes
/// softirqs unless the kernel was built with IRQ_TIME_ACCOUNTING.
///
/// # Errors
/// Linux has none.
pub fn thread_ns_without_interrupts() -> Result<u64, MeterError> {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` outlives the call.
    if unsafe { libc::clock_gettime(THREAD_PROF_CLOCK, &raw mut time) } != 0 {
        return Err(MeterError::last(
            "clock_gettime of the thread's user and system time",
        ));
    }
    let part = |part: i64| u64::try_from(part).unwrap_or(0);
    Ok(part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec))
}

/// CPUCLOCK_PROF of the calling thread (include/linux/posix-timers_types.h, kernel/time/posix-cpu-timers.c):
/// the complement of id 0, shifted by three bits, in which CPUCLOCK_PERTHREAD_MASK is set and CPUCLOCK_PROF
/// is 0.
const THREAD_PROF_CLOCK: libc::clockid_t = (!0 << 3) | 4;

fn counts_of(who: libc::c_int) -> Result<Counts, MeterError> {
    // SAFETY: rusage is plain data, for which all zeros is a value.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` outlives the call.
    if unsafe { libc::getrusage(who, &mut usage) } != 0 {
        return Err(MeterError::last("getrusage"));
    }
    // None of the values is ever negative.
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
        (Quantity::MinorFaults, count(usage.ru_minflt)),
        (Quantity::MajorFaults, count(usage.ru_majflt)),
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
            // Runs until the kernel has counted this much, however slow the machine is.
            while spent() < 30_000_000 {}
            spent()
        });
        let busy = busy.join().unwrap();
        let idle = std::thread::spawn(|| thread_counts().unwrap())
            .join()
            .unwrap();
        assert!(idle[&Quantity::TaskUserNs] < busy);
    }

    /// A shell that waits for another one, which works. Other tests of this process start no child that
    /// works.
    #[test]
    fn children_have_their_own_and_their_childrens_time() {
        let before = Children.snapshot().unwrap();
        let counts = "sh -c 'i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; :'; :";
        let status = std::process::Command::new("sh")
            .args(["-c", counts])
            .status();
        assert!(status.unwrap().success());
        let grown = Children
            .snapshot()
            .unwrap()
            .since(&before)
            .unwrap()
            .remove(0);
        let ns = grown.counts[&Quantity::TaskUserNs] + grown.counts[&Quantity::TaskSystemNs];
        assert!(ns > 1_000_000, "{grown:?}");
        assert!(grown.counts[&Quantity::MinorFaults] > 0, "{grown:?}");
    }

    #[test]
    fn memory_that_is_touched_for_the_first_time_faults() {
        let faults = || thread_counts().unwrap()[&Quantity::MinorFaults];
        let before = faults();
        // More than an allocator keeps, so the pages come fresh from the kernel.
        let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(faults() > before, "{}", pages.len());
    }

    #[test]
    fn time_without_interrupts_grows_with_work() {
        let before = thread_ns_without_interrupts().unwrap();
        let began = std::time::Instant::now();
        // Waits for the first growth, which comes with a tick.
        while thread_ns_without_interrupts().unwrap() == before {
            assert!(began.elapsed().as_secs() < 60, "no tick hit the thread");
        }
    }

    #[test]
    fn migrations_are_read_where_the_kernel_tells_them() {
        let sched = "tcpcost (7, #threads: 1)\n---\nse.exec_start        :       1.5\nse.nr_migrations     :          3\nnr_switches : 9\n";
        assert_eq!(migrations(sched), Some(3));
        for torn in ["", "se.nr_migrations", "se.nr_migrations : many\n"] {
            assert_eq!(migrations(torn), None, "{torn:?}");
        }
        let has_file = std::path::Path::new("/proc/thread-self/sched").exists();
        assert_eq!(thread_migrations().is_some(), has_file);
        // A process's migrations are those of all its threads, and are not added up.
        assert!(
            !process_counts()
                .unwrap()
                .contains_key(&Quantity::CpuMigrations)
        );
    }
}
