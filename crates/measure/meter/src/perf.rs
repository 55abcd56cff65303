//! Core cycles, instructions, cache misses and branch misses of whole CPUs, by perf_event_open(2): user and
//! kernel, all tasks, including interrupts.
//!
//! Only hardware events are used, because the kernel's cpu-clock and task-clock are times, not cycles.
//! Without a PMU, as in most virtual machines, nothing is counted and [`MeterError`] says why. Cycles of the
//! time-stamp counter ([`crate::tsc`]) are reported separately, under their own name.
//!
//! A snapshot takes 37 µs for one CPU of a virtual machine (examples/cost.rs): the kernel reads each event on
//! its own CPU, by an inter-processor interrupt.
//!
//! A PMU with fewer counters than events multiplexes them. Each interval is scaled up by the share of time in
//! which an event was counted. Both times are counts of their own ([`Quantity::PmuEnabledNs`],
//! [`Quantity::PmuRunningNs`]): if they differ, a part is estimated.

#![allow(unsafe_code, reason = "perf_event_open has no safe wrapper")]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{FromRawFd, OwnedFd};

use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot, Totals};

use crate::{Meter, MeterError, Needs, snapshot_of};

/// The meter `perf`: totals of each CPU ([`CountOwner::Cpu`]), and the sum of the quantities that all CPUs have
/// ([`CountOwner::Cpus`]).
#[derive(Debug)]
pub struct Perf {
    cpus: Vec<usize>,
    counters: Vec<Counter>,
}

impl Perf {
    /// Counts on these CPUs from now on. An event that the PMU lacks is absent from the totals.
    ///
    /// # Errors
    /// Cycles cannot be counted on one of the CPUs.
    pub fn open(cpus: &[usize]) -> Result<Perf, MeterError> {
        Perf::of(cpus, EVENTS)
    }

    /// Counts only cycles and branch misses, because a read interrupts each CPU for each event.
    ///
    /// # Errors
    /// See [`Perf::open`].
    pub fn watched(cpus: &[usize]) -> Result<Perf, MeterError> {
        Perf::of(cpus, WATCHED)
    }

    fn of(cpus: &[usize], events: &[(u64, Quantity)]) -> Result<Perf, MeterError> {
        let mut counters = Vec::new();
        for &cpu in cpus {
            for &(event, quantity) in events {
                match open(event, cpu) {
                    Ok(source) => counters.push(Counter::new(cpu, quantity, source)),
                    Err(error) if quantity == Quantity::CoreCycles => {
                        return Err(why(cpu, error));
                    }
                    Err(_) => {}
                }
            }
        }
        let cpus = cpus.to_vec();
        Ok(Perf { cpus, counters })
    }
}

impl Meter for Perf {
    fn name(&self) -> MeterName {
        MeterName::Perf
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let mut each = vec![Counts::new(); self.cpus.len()];
        for counter in &mut self.counters {
            let Some(scaled) = counter.read()? else {
                continue;
            };
            let at = self.cpus.iter().position(|cpu| *cpu == counter.cpu);
            let counts = &mut each[at.expect("counters are of these CPUs")];
            counts.insert(counter.quantity, scaled);
            let times = [
                (Quantity::PmuEnabledNs, counter.last.enabled_ns),
                (Quantity::PmuRunningNs, counter.last.running_ns),
            ];
            for (quantity, ns) in times {
                let sum = counts.entry(quantity).or_insert(0);
                *sum = sum.saturating_add(ns);
            }
        }
        let sum = sum(&each);
        let mut snapshot = snapshot_of(self.name(), CountOwner::Cpus(self.cpus.clone()), sum);
        snapshot
            .totals
            .extend(self.cpus.iter().zip(each).map(|(&cpu, counts)| Totals {
                whose: CountOwner::Cpu(cpu),
                counts,
            }));
        Ok(snapshot)
    }
}

/// Sum of the quantities that every CPU has.
fn sum(each: &[Counts]) -> Counts {
    let Some((first, rest)) = each.split_first() else {
        return Counts::new();
    };
    let of = |(&quantity, &count): (&Quantity, &u64)| {
        let sum = rest.iter().try_fold(count, |sum, counts| {
            Some(sum.saturating_add(*counts.get(&quantity)?))
        });
        Some((quantity, sum?))
    };
    first.iter().filter_map(of).collect()
}

/// One event on one CPU.
#[derive(Debug)]
pub(crate) struct Counter {
    cpu: usize,
    pub(crate) quantity: Quantity,
    /// Each read returns the current totals.
    source: File,
    last: Raw,
    scaled: u64,
}

/// Values of a read with [`READ_FORMAT`].
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Raw {
    value: u64,
    enabled_ns: u64,
    running_ns: u64,
}

impl Counter {
    pub(crate) fn new(cpu: usize, quantity: Quantity, source: File) -> Counter {
        Counter {
            cpu,
            quantity,
            source,
            last: Raw::default(),
            scaled: 0,
        }
    }

    /// The scaled total. `None` if the event was not counted since the last known total. Its count is then
    /// unknown, not 0, and the next counted part stands for the whole time.
    pub(crate) fn read(&mut self) -> Result<Option<u64>, MeterError> {
        let mut bytes = [0; 24];
        self.source
            .read_exact(&mut bytes)
            .map_err(|source| MeterError::Call {
                call: "read of a perf event",
                source,
            })?;
        let word = |at: usize| {
            let word = bytes[at..at + 8].try_into().expect("eight bytes");
            u64::from_ne_bytes(word)
        };
        let (value, enabled_ns, running_ns) = (word(0), word(8), word(16));
        Ok(self.grow(Raw {
            value,
            enabled_ns,
            running_ns,
        }))
    }

    /// Scales each interval separately, because a total scaled as a whole could shrink when the share of time
    /// changes.
    fn grow(&mut self, now: Raw) -> Option<u64> {
        let grown = now.value.saturating_sub(self.last.value);
        let enabled_ns = now.enabled_ns.saturating_sub(self.last.enabled_ns);
        let running_ns = now.running_ns.saturating_sub(self.last.running_ns);
        if running_ns == 0 && enabled_ns > 0 {
            return None;
        }
        let scaled = u128::from(grown) * u128::from(enabled_ns) / u128::from(running_ns.max(1));
        let scaled = u64::try_from(scaled).unwrap_or(u64::MAX);
        self.scaled = self.scaled.saturating_add(scaled);
        self.last = now;
        Some(self.scaled)
    }
}

/// Starts an event on a CPU.
fn open(event: u64, cpu: usize) -> io::Result<File> {
    let attributes = Attributes {
        kind: PERF_TYPE_HARDWARE,
        config: event,
        read_format: READ_FORMAT,
        ..Attributes::default()
    };
    let cpu = libc::c_int::try_from(cpu).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    Ok(perf_event_open(attributes, -1, cpu)?.into())
}

/// Calls perf_event_open(2) for a thread (0: this one) and a CPU; -1 means all.
pub(crate) fn perf_event_open(
    mut attributes: Attributes,
    thread: libc::pid_t,
    cpu: libc::c_int,
) -> io::Result<OwnedFd> {
    attributes.size = size_of::<Attributes>() as u32;
    // SAFETY: `attributes` outlives the call and is as long as its `size` says.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            thread,
            cpu,
            -1,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    match libc::c_int::try_from(descriptor) {
        // SAFETY: a new descriptor that nothing else owns.
        Ok(descriptor) if descriptor >= 0 => Ok(unsafe { OwnedFd::from_raw_fd(descriptor) }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn why(cpu: usize, error: io::Error) -> MeterError {
    let needs = match error.raw_os_error() {
        Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV) => Some(Needs::Pmu),
        Some(libc::EACCES | libc::EPERM) => Some(Needs::Capabilities(
            "CAP_PERFMON, or sysctl kernel.perf_event_paranoid at most 0",
        )),
        Some(libc::ENOSYS) => Some(Needs::Kernel("a kernel with CONFIG_PERF_EVENTS")),
        Some(libc::EBUSY) => Some(Needs::Free("a running perf, or the NMI watchdog")),
        _ => None,
    };
    MeterError::Unavailable {
        meter: MeterName::Perf,
        tried: format!("count cycles of CPU {cpu}"),
        source: Some(error),
        needs,
    }
}

/// Values PERF_COUNT_HW_… of linux/perf_event.h.
const EVENTS: &[(u64, Quantity)] = &[
    (0, Quantity::CoreCycles),
    (1, Quantity::Instructions),
    (3, Quantity::CacheMisses),
    (5, Quantity::BranchMisses),
];
/// Events that `watch` reads in each interval.
const WATCHED: &[(u64, Quantity)] = &[(0, Quantity::CoreCycles), (5, Quantity::BranchMisses)];

pub(crate) const PERF_TYPE_HARDWARE: u32 = 0;
/// PERF_FORMAT_TOTAL_TIME_ENABLED and PERF_FORMAT_TOTAL_TIME_RUNNING.
pub(crate) const READ_FORMAT: u64 = 1 | 2;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// struct perf_event_attr in its first version (PERF_ATTR_SIZE_VER0, 64 bytes), which every kernel accepts.
/// With all flags 0 it counts at once, in user and kernel mode.
#[repr(C)]
#[derive(Default)]
pub(crate) struct Attributes {
    pub kind: u32,
    /// Set by [`perf_event_open`].
    pub size: u32,
    pub config: u64,
    pub sample_period: u64,
    pub sample_type: u64,
    pub read_format: u64,
    pub flags: u64,
    pub wakeup_events: u32,
    pub breakpoint_type: u32,
    pub config1: u64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Seek, Write};

    /// A counter with these successive reads.
    fn counter(cpu: usize, quantity: Quantity, reads: &[[u64; 3]]) -> Counter {
        let mut source = tempfile::tempfile().unwrap();
        for word in reads.as_flattened() {
            source.write_all(&word.to_ne_bytes()).unwrap();
        }
        source.rewind().unwrap();
        Counter::new(cpu, quantity, source)
    }

    fn totals(snapshot: &Snapshot, whose: &CountOwner) -> Counts {
        let found = snapshot.totals.iter().find(|totals| totals.whose == *whose);
        found.unwrap().counts.clone()
    }

    #[test]
    fn the_attributes_are_the_kernels_first_version() {
        assert_eq!(size_of::<Attributes>(), 64);
    }

    #[test]
    fn an_event_with_all_the_time_is_not_scaled() {
        let mut counter = counter(0, Quantity::CoreCycles, &[[100, 50, 50], [180, 90, 90]]);
        assert_eq!(counter.read().unwrap(), Some(100));
        assert_eq!(counter.read().unwrap(), Some(180));
    }

    #[test]
    fn each_stretch_is_scaled_by_its_own_share_and_never_goes_back() {
        let reads = [[100, 100, 50], [200, 200, 150], [200, 300, 250]];
        let mut counter = counter(0, Quantity::CoreCycles, &reads);
        // Half of the time was counted, then all of it. Scaled as a whole, the second total would be 266.
        assert_eq!(counter.read().unwrap(), Some(200));
        assert_eq!(counter.read().unwrap(), Some(300));
        // Scaled as a whole, this would be 240.
        assert_eq!(counter.read().unwrap(), Some(300));
    }

    #[test]
    fn an_event_without_a_turn_is_absent_and_its_time_is_not_lost() {
        let reads = [[100, 100, 100], [100, 200, 100], [150, 300, 150]];
        let mut counter = counter(0, Quantity::CoreCycles, &reads);
        assert_eq!(counter.read().unwrap(), Some(100));
        assert_eq!(counter.read().unwrap(), None);
        assert_eq!(counter.read().unwrap(), Some(100 + 50 * 200 / 50));
    }

    #[test]
    fn an_event_in_its_error_state_is_an_error() {
        // A read of zero bytes, as documented in perf_event_open(2).
        assert!(counter(0, Quantity::CoreCycles, &[]).read().is_err());
    }

    #[test]
    fn the_sum_has_what_every_cpu_has() {
        let mut meter = Perf {
            cpus: vec![2, 5],
            counters: vec![
                counter(2, Quantity::CoreCycles, &[[10, 4, 4]]),
                counter(2, Quantity::Instructions, &[[30, 4, 2]]),
                counter(5, Quantity::CoreCycles, &[[7, 4, 4]]),
            ],
        };
        let snapshot = meter.snapshot().unwrap();
        let both = totals(&snapshot, &CountOwner::Cpus(vec![2, 5]));
        assert_eq!(both[&Quantity::CoreCycles], 17);
        assert!(!both.contains_key(&Quantity::Instructions));
        let one = totals(&snapshot, &CountOwner::Cpu(2));
        assert_eq!(one[&Quantity::Instructions], 60);
        assert_eq!(one[&Quantity::PmuEnabledNs], 8);
        assert_eq!(one[&Quantity::PmuRunningNs], 6);
    }

    #[test]
    fn this_machine_counts_or_says_why_not() {
        match Perf::open(&[0]) {
            Ok(mut meter) => {
                let before = meter.snapshot().unwrap();
                let total: u64 = std::hint::black_box((0..1_000_000u64).fold(0, |a, b| a ^ b));
                let after = meter.snapshot().unwrap();
                let cycles = after.since(&before).unwrap()[0]
                    .counts
                    .get(&Quantity::CoreCycles)
                    .copied();
                // No CPU has less than a tenth of a cycle or more than ten cycles per ns.
                let most = after.at_ns.saturating_sub(before.at_ns).saturating_mul(10);
                assert!(
                    cycles.is_none_or(|cycles| cycles <= most + 1_000_000),
                    "{cycles:?} {total}"
                );
            }
            Err(error) => {
                let why = error.to_string();
                tcpcost_testbed::skip(&why);
                assert!(
                    why.starts_with("meter perf: count cycles of CPU 0: "),
                    "{why}"
                );
                assert!(!why.contains('\n'));
            }
        }
    }

    #[test]
    fn each_refusal_says_what_it_needs() {
        for (code, part) in [
            (libc::ENOENT, "needs a PMU"),
            (libc::EACCES, "CAP_PERFMON"),
            (libc::ENOSYS, "CONFIG_PERF_EVENTS"),
            (libc::EINVAL, "Invalid argument"),
        ] {
            let why = why(3, io::Error::from_raw_os_error(code)).to_string();
            assert!(why.contains(part) && why.contains("CPU 3"), "{why}");
        }
    }
}
