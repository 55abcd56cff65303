//! CPU time by mode, from /proc/stat, of everything that runs on a CPU.
//!
//! The kernel shows ticks of USER_HZ, 10 ms. With tick accounting, a whole tick is charged to what it
//! interrupted. With IRQ_TIME_ACCOUNTING or vtime the sums are exact, and only the display is in ticks. Idle time is exact
//! with NO_HZ (kernel/time/tick-sched.c, get_cpu_idle_time_us).
//!
//! A snapshot takes 4 µs on a host of 2 CPUs (examples/cost.rs). The time grows with the number of CPUs and
//! interrupt lines, because the kernel writes all of both for every reader.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use rustix::param::clock_ticks_per_second;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot, Totals};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `proc`: each of the given CPUs ([`CountOwner::Cpu`]), their sum ([`CountOwner::Cpus`]), and the whole host
/// ([`CountOwner::Host`]), which also includes other CPUs.
#[derive(Debug)]
pub struct Proc {
    path: PathBuf,
    cpus: Vec<usize>,
    /// True if the set of CPUs is that of all that are online at a snapshot.
    is_of_host: bool,
    user_hz: u64,
}

impl Proc {
    /// Reads these CPUs of this host.
    pub fn new(cpus: &[usize]) -> Proc {
        // USER_HZ is 100 except on alpha and ia64 (1024).
        Proc::at(Path::new("/proc"), cpus, clock_ticks_per_second())
    }

    /// Reads the host, and names the CPUs that are online at each snapshot. One step of 10 ms is that of the host, not of each CPU.
    pub fn of_host() -> Proc {
        Proc {
            is_of_host: true,
            ..Proc::new(&[])
        }
    }

    /// Reads a folder with the layout of /proc, with ticks of 1/`user_hz` s.
    pub fn at(root: &Path, cpus: &[usize], user_hz: u64) -> Proc {
        let (path, cpus) = (root.join("stat"), cpus.to_vec());
        let user_hz = user_hz.max(1);
        Proc {
            path,
            cpus,
            is_of_host: false,
            user_hz,
        }
    }

    fn counts(&self, line: &str) -> Result<Counts, MeterError> {
        let strange = || MeterError::format(&self.path, "columns of ticks", line);
        let mut columns = [None; COLUMNS];
        for (column, text) in columns
            .iter_mut()
            .zip(line.split_ascii_whitespace().skip(1))
        {
            *column = Some(text.parse::<u64>().map_err(|_| strange())?);
        }
        let [
            user,
            nice,
            system,
            idle,
            iowait,
            irq,
            softirq,
            steal,
            guest,
            guest_nice,
        ] = columns;
        // The kernel also counts a guest's time in `user` (or `nice`). If an old kernel lacks a guest column,
        // nothing is subtracted.
        let without =
            |all: Option<u64>, part: Option<u64>| Some(all?.saturating_sub(part.unwrap_or(0)));
        let guests = guest.map(|guest| guest.saturating_add(guest_nice.unwrap_or(0)));
        let named = [
            (Quantity::CpuUserNs, without(user, guest)),
            (Quantity::CpuNiceNs, without(nice, guest_nice)),
            (Quantity::CpuSystemNs, system),
            (Quantity::CpuIdleNs, idle),
            (Quantity::CpuIowaitNs, iowait),
            (Quantity::CpuIrqNs, irq),
            (Quantity::CpuSoftirqNs, softirq),
            (Quantity::CpuStealNs, steal),
            (Quantity::CpuGuestNs, guests),
        ];
        if idle.is_none() {
            return Err(strange());
        }
        let mut counts = Counts::new();
        for (quantity, ticks) in named {
            let Some(ticks) = ticks else { continue };
            let ns = u128::from(ticks) * 1_000_000_000 / u128::from(self.user_hz);
            counts.insert(quantity, u64::try_from(ns).map_err(|_| strange())?);
        }
        Ok(counts)
    }
}

/// Number of known columns of a `cpu` line, up to `guest_nice` of Linux 2.6.33.
const COLUMNS: usize = 10;

impl Meter for Proc {
    fn name(&self) -> MeterName {
        MeterName::Proc
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let text = fs::read_to_string(&self.path).map_err(|source| MeterError::Read {
            path: self.path.clone(),
            source,
        })?;
        let lacks = |expected| MeterError::format(&self.path, expected, &text);
        let names = text.lines().filter_map(|line| {
            let name = line.split_ascii_whitespace().next()?;
            Some((name.strip_prefix("cpu")?, line))
        });
        let lines: BTreeMap<&str, &str> = names.collect();
        let host = self.counts(lines.get("").ok_or_else(|| lacks("a line cpu"))?)?;
        if self.is_of_host {
            let online = lines.keys().filter_map(|cpu| cpu.parse().ok());
            let whose = CountOwner::Cpus(online.collect());
            return Ok(snapshot_of(self.name(), whose, host));
        }
        let mut snapshot = snapshot_of(self.name(), CountOwner::Host, host);
        let mut sum: Option<Counts> = None;
        for &cpu in &self.cpus {
            let line = lines.get(cpu.to_string().as_str());
            let line = line.ok_or_else(|| lacks("a line for each CPU asked for, online"))?;
            let counts = self.counts(line)?;
            sum = Some(match sum {
                None => counts.clone(),
                Some(sum) => add(&sum, &counts).ok_or_else(|| {
                    MeterError::format(&self.path, "ticks of some years at most", line)
                })?,
            });
            let whose = CountOwner::Cpu(cpu);
            snapshot.totals.push(Totals { whose, counts });
        }
        if let Some(counts) = sum {
            let whose = CountOwner::Cpus(self.cpus.clone());
            snapshot.totals.push(Totals { whose, counts });
        }
        Ok(snapshot)
    }
}

/// Sum of the quantities that both have. `None` on overflow.
fn add(one: &Counts, other: &Counts) -> Option<Counts> {
    one.iter()
        .filter_map(|(quantity, count)| Some((*quantity, count.checked_add(*other.get(quantity)?))))
        .map(|(quantity, sum)| Some((quantity, sum?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use rustix::time::ClockId;

    fn read(stat: &str, cpus: &[usize]) -> Result<Snapshot, MeterError> {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("stat"), stat).unwrap();
        Proc::at(root.path(), cpus, 100).snapshot()
    }

    fn of(snapshot: &Snapshot, whose: &CountOwner) -> Counts {
        let totals = snapshot.totals.iter().find(|totals| totals.whose == *whose);
        totals.unwrap().counts.clone()
    }

    const STAT: &str = "cpu  30 6 3 9 0 0 7 1 10 2\n\
                        cpu0 10 2 1 4 0 0 3 0 0 0\n\
                        cpu1 20 4 2 5 0 0 4 1 10 2\n\
                        intr 1 2 3\nctxt 5\n";

    #[test]
    fn guests_are_taken_out_of_user_and_nice() {
        let snapshot = read(STAT, &[0, 1]).unwrap();
        let one = of(&snapshot, &CountOwner::Cpu(1));
        assert_eq!(one[&Quantity::CpuUserNs], 100_000_000);
        assert_eq!(one[&Quantity::CpuNiceNs], 20_000_000);
        assert_eq!(one[&Quantity::CpuGuestNs], 120_000_000);
        assert_eq!(one[&Quantity::CpuStealNs], 10_000_000);
    }

    #[test]
    fn the_set_is_the_sum_of_its_cpus_and_the_host_is_beside() {
        let snapshot = read(STAT, &[1, 0]).unwrap();
        let both = of(&snapshot, &CountOwner::Cpus(vec![1, 0]));
        assert_eq!(both[&Quantity::CpuSoftirqNs], 70_000_000);
        assert_eq!(both, of(&snapshot, &CountOwner::Host));
    }

    #[test]
    fn of_a_host_the_cpus_are_those_that_are_online() {
        let root = tempfile::tempdir().unwrap();
        // The kernel keeps the ticks of CPUs that went offline in the host's line.
        let stat = STAT.replace("cpu1 20 4 2 5 0 0 4 1 10 2\n", "cpu7 1 0 0 1 0 0 0 0 0 0\n");
        fs::write(root.path().join("stat"), stat).unwrap();
        let mut meter = Proc::of_host();
        meter.path = root.path().join("stat");
        let snapshot = meter.snapshot().unwrap();
        let both = of(&snapshot, &CountOwner::Cpus(vec![0, 7]));
        let tick_ns = 1_000_000_000 / meter.user_hz;
        assert_eq!(both[&Quantity::CpuIdleNs], 9 * tick_ns);
        assert_eq!(snapshot.totals.len(), 1);
    }

    #[test]
    fn columns_that_an_old_kernel_lacks_are_absent() {
        // Linux 2.6.10 has no steal and no guest.
        let snapshot = read("cpu 5 1 2 9 0 0 1\ncpu0 5 1 2 9 0 0 1\n", &[0]).unwrap();
        let counts = of(&snapshot, &CountOwner::Cpu(0));
        assert_eq!(counts[&Quantity::CpuUserNs], 50_000_000);
        assert!(!counts.contains_key(&Quantity::CpuStealNs));
        assert!(!counts.contains_key(&Quantity::CpuGuestNs));
    }

    #[test]
    fn columns_of_a_newer_kernel_are_passed_over() {
        assert!(read("cpu 1 1 1 1 1 1 1 1 0 0 99 x\n", &[]).is_ok());
    }

    #[test]
    fn a_cpu_that_is_offline_or_garbage_is_an_error() {
        assert!(read(STAT, &[2]).is_err());
        for torn in [
            "",
            "cpu",
            "cpu 1 2",
            "cpu 1 2 3 x",
            "cpu 1 2 3 -4",
            "\0\u{fffd}",
        ] {
            assert!(read(torn, &[]).is_err(), "{torn:?}");
        }
        let huge = format!("cpu {0} {0} {0} {0}\n", u64::MAX);
        assert!(read(&huge, &[]).is_err());
    }

    #[test]
    fn the_real_hosts_totals_are_of_the_size_of_its_uptime() {
        let stat = fs::read_to_string("/proc/stat").unwrap();
        let cpus: Vec<usize> = stat
            .lines()
            .filter_map(|line| line.split(' ').next()?.strip_prefix("cpu")?.parse().ok())
            .collect();
        let mut meter = Proc::new(&cpus);
        let before = meter.snapshot().unwrap();
        let after = meter.snapshot().unwrap();
        assert_eq!(after.since(&before).unwrap().len(), cpus.len() + 2);
        let counted: u64 = of(&after, &CountOwner::Cpus(cpus.clone())).values().sum();
        let up_ns = crate::clock::now_ns(ClockId::Boottime);
        // A generous limit, which still detects ticks of a wrong unit: that would be a factor of ten.
        let most = (up_ns + 10_000_000_000) * 2 * cpus.len() as u64;
        assert!((1..=most).contains(&counted), "{counted} in {up_ns}");
    }

    proptest! {
        #[test]
        fn no_content_panics(text in "[cpu0-9 \n\\-x\u{0}é]{0,200}") {
            let _ = read(&text, &[0, 1]);
        }

        #[test]
        fn no_cut_panics(end in 0..STAT.len()) {
            let _ = read(&STAT[..end], &[0, 1]);
        }
    }
}
