//! Checks of the CPUs: counters, core distance, siblings, frequency, clock, and stolen time.

use std::path::Path;
use std::time::Duration;

use tcpcost_meter::core_to_core::round_trip_ns;
use tcpcost_meter::perf::Perf;
use tcpcost_meter::proc::Proc;
use tcpcost_meter::{Meter, MeterError};
use tcpcost_study::{
    CountOwner, Counts, Figure, MeterName, NearAndFar, Quantity, Reading, Snapshot,
};

use super::Check;
use tcpcost_host::cpu_quota::CpuQuota;
use tcpcost_host::cpus::Cpus;

pub fn proc_stat(root: &Path) -> Check {
    const NAME: &str = "proc_stat";
    match snapshot(root) {
        Ok(_) => Check::ok(NAME, "/proc/stat is understood"),
        Err(error) => Check::missing(
            NAME,
            error.to_string(),
            "no CPU time of the trial's CPUs: nothing to report",
            "mount /proc",
        ),
    }
}

fn snapshot(root: &Path) -> Result<Snapshot, MeterError> {
    // The length of a tick does not matter, because only ratios are computed.
    Proc::at(&root.join("proc"), &[], 100).snapshot()
}

pub fn pmu() -> Check {
    let cpu = tcpcost_host::cpus::allowed()
        .ok()
        .and_then(|cpus| cpus.first().copied())
        .unwrap_or(0);
    // Opening and reading run on that CPU, so a counter that works has counted by then.
    let counts = Perf::open(&[cpu]).and_then(|mut perf| {
        let snapshot = perf.snapshot()?;
        let totals = snapshot.totals.into_iter().next();
        Ok(totals.map(|totals| totals.counts).unwrap_or_default())
    });
    counts.map_or_else(|error| no_pmu(&error.cause()), |counts| counted(&counts))
}

const PMU: &str = "pmu";

fn no_pmu(why: &str) -> Check {
    Check::missing(
        PMU,
        why,
        "no core cycles, instructions or cache misses",
        "cost in CPU time and in cycles of the time-stamp counter is measured nevertheless",
    )
}

fn counted(counts: &Counts) -> Check {
    const EVENTS: [Quantity; 3] = [
        Quantity::CoreCycles,
        Quantity::Instructions,
        Quantity::CacheMisses,
    ];
    // A hypervisor may show a PMU whose counters do not count.
    if counts
        .get(&Quantity::CoreCycles)
        .is_none_or(|cycles| *cycles == 0)
    {
        return no_pmu("the PMU does not count cycles, though it can be opened");
    }
    let counted = EVENTS.iter().filter(|event| counts.contains_key(event));
    let names: Vec<&str> = counted.map(|event| event.name()).collect();
    if names.len() == EVENTS.len() {
        return Check::ok(PMU, format!("counts {}", names.join(", ")));
    }
    Check::degraded(
        PMU,
        format!("counts {} only", names.join(", ")),
        "counts that it lacks are absent",
        "run on metal",
    )
}

pub fn count(root: &Path) -> Check {
    const NAME: &str = "cpus";
    let count = Cpus::read(&root.join("sys")).map(|topology| topology.cpus.len());
    match count {
        Ok(count) if count >= 2 => Check::ok(NAME, format!("{count} for this process")),
        Ok(_) => Check::degraded(
            NAME,
            match read(root, "sys/devices/system/cpu/isolated").filter(|cpus| !cpus.is_empty()) {
                Some(isolated) => {
                    format!("one for this process; isolcpus keeps {isolated} from it")
                }
                None => "one for this process".to_string(),
            },
            "both ends share it, so CPU time cannot be separated by end",
            "allow it two CPUs (taskset, cpuset)",
        ),
        Err(error) => Check::degraded(
            NAME,
            error.to_string(),
            "the CPUs of the ends cannot be chosen",
            "allow sched_getaffinity",
        ),
    }
}

/// Looks for a CPU quota, as containers have.
pub fn quota() -> Check {
    const NAME: &str = "cpu_quota";
    match CpuQuota::find() {
        None => Check::ok(NAME, "none found"),
        Some(quota) => Check::degraded(
            NAME,
            format!("{:.2} CPUs for the cgroup of this process", quota.cpus()),
            "once it is used up, tasks are stopped until its period is over: throughput and response times are those of the quota",
            "raise it (cpu.max, docker --cpus, CPUQuota), or measure below it at a fixed rate",
        ),
    }
}

/// Measures the distance between the CPUs that studies use by default, and checks if it changes.
pub fn distance(root: &Path) -> Check {
    let pair = Cpus::read(&root.join("sys")).ok().and_then(|cpus| {
        let last = *cpus.cpus.last()?;
        Some([cpus.further(&[last])?, last])
    });
    let Some([first, last]) = pair else {
        return distance_check([0, 0], &[]);
    };
    // Half a second in all. A state that comes and goes is seen; one that lasts for seconds may be
    // missed.
    const SAMPLES: usize = 25;
    let samples = (0..SAMPLES).filter_map(|_| {
        std::thread::sleep(Duration::from_millis(20));
        round_trip_ns([first, last]).ok().flatten()
    });
    distance_check([first, last], &samples.collect::<Vec<u64>>())
}

fn distance_check([first, last]: [usize; 2], round_trips_ns: &[u64]) -> Check {
    const NAME: &str = "core_to_core";
    let shortest = round_trips_ns.iter().min();
    let (Some(&shortest), Some(&longest)) = (shortest, round_trips_ns.iter().max()) else {
        return Check::degraded(
            NAME,
            "unknown: there is one CPU, or never two that were free",
            "it is not seen whether the hypervisor runs the CPUs far from each other, which doubles the cost of the same work",
            "stop the tasks that keep the CPUs busy",
        );
    };
    if NearAndFar::of(round_trips_ns.iter().copied()).is_some() {
        return Check::degraded(
            NAME,
            format!(
                "a cache line went from CPU {first} to CPU {last} and back in {shortest} to {longest} ns"
            ),
            "the hypervisor runs them now near each other, now far from each other: the same work costs up to three times as much in some trials",
            "studies wait for it to pass and mark trials that it hit; pin virtual CPUs where you can",
        );
    }
    Check::ok(
        NAME,
        format!(
            "a cache line goes from CPU {first} to CPU {last} and back in {shortest} to {longest} ns"
        ),
    )
}

pub fn smt(root: &Path) -> Check {
    const NAME: &str = "smt";
    match read(root, "sys/devices/system/cpu/smt/active").as_deref() {
        Some("1") => Check::degraded(
            NAME,
            "on",
            "a CPU's speed depends on what its sibling does, and soakers slow each other",
            "keep siblings idle (client_cpus, server_cpus), or echo off > /sys/devices/system/cpu/smt/control",
        ),
        Some(_) => Check::ok(NAME, "off, or there is none"),
        // Cannot tell: a hypervisor may show two threads of one core as two cores.
        None => Check::ok(NAME, "this kernel does not say"),
    }
}

pub fn governor(root: &Path) -> Check {
    const NAME: &str = "frequency_governor";
    match tcpcost_host::machine::governor(root) {
        None => Check::ok(NAME, "none: the kernel does not set the frequency here"),
        Some(governor) if governor == "performance" => Check::ok(NAME, governor),
        Some(governor) => Check::degraded(
            NAME,
            governor,
            "a CPU with little load runs slower, so the same work takes more CPU time",
            "cpupower frequency-set -g performance",
        ),
    }
}

pub fn clock_source(root: &Path) -> Check {
    const NAME: &str = "clock_source";
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    match read(root, path) {
        // Clocks that are read without a system call.
        Some(source)
            if [
                "tsc",
                "kvm-clock",
                "arch_sys_counter",
                "hyperv_clocksource_tsc_page",
            ]
            .contains(&source.as_str()) =>
        {
            Check::ok(NAME, source)
        }
        Some(source) => Check::degraded(
            NAME,
            source,
            "reading the clock is a system call or worse, which every transaction pays",
            "boot with clocksource=tsc if the counter is reliable",
        ),
        None => Check::degraded(
            NAME,
            "unknown",
            "the cost of reading the clock is not known",
            "mount /sys",
        ),
    }
}

pub fn steal(root: &Path) -> Check {
    let counts = || {
        let totals = snapshot(root).ok()?.totals;
        let host = totals
            .into_iter()
            .find(|totals| totals.whose == CountOwner::Host);
        Some(host?.counts)
    };
    let before = counts();
    if before.is_some() {
        // Ten ticks show a neighbour that takes a CPU away now.
        std::thread::sleep(Duration::from_millis(100));
    }
    stolen(before, counts())
}

fn stolen(before: Option<Counts>, after: Option<Counts>) -> Check {
    const NAME: &str = "steal";
    let unknown = || {
        Check::degraded(
            NAME,
            "unknown: not in /proc/stat",
            "time that the hypervisor takes is charged to the task that runs",
            "run without a hypervisor, or on one that reports steal time",
        )
    };
    let (Some(before), Some(after)) = (before, after) else {
        return unknown();
    };
    let Some(since_boot) = ratio(&after, None) else {
        return unknown();
    };
    let now = ratio(&after, Some(&before));
    let found = match now {
        Some(now) => format!(
            "{:.2} % since boot, {:.1} % now",
            since_boot * 100.0,
            now * 100.0
        ),
        // No tick passed between the two readings.
        None => format!("{:.2} % since boot", since_boot * 100.0),
    };
    if since_boot.max(now.unwrap_or(0.0)) > STEAL_MAX {
        return Check::degraded(
            NAME,
            found,
            "the hypervisor takes CPU away: throughput falls, and stolen time may be charged to what ran",
            "use a host of your own, or more repetitions",
        );
    }
    Check::ok(NAME, found)
}

/// Limit of the stolen share: about the error that ticks cause in a trial.
const STEAL_MAX: f64 = 0.01;

/// Returns the stolen share of the time that was counted since `before`, or since boot. `None` if
/// no time was counted.
fn ratio(after: &Counts, before: Option<&Counts>) -> Option<f64> {
    let grown = |quantity: &Quantity| {
        let earlier = before.and_then(|before| before.get(quantity)).unwrap_or(&0);
        Some(after.get(quantity)?.saturating_sub(*earlier))
    };
    let counts = after.keys().filter_map(|of| Some((*of, grown(of)?)));
    Figure::StealRatio.value(&Reading {
        meter: MeterName::Proc,
        whose: CountOwner::Host,
        duration_ns: 0,
        counts: counts.collect(),
    })
}

fn read(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_string())
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, fake_root};
    use super::*;

    fn counts(idle: u64, steal: u64) -> Option<Counts> {
        let counts = [(Quantity::CpuIdleNs, idle), (Quantity::CpuStealNs, steal)];
        Some(Counts::from(counts))
    }

    #[test]
    fn cpus_that_are_near_and_far_by_turns_are_told() {
        for (seen, verdict) in [
            (&[50, 55, 61][..], Verdict::Ok),
            (&[500, 510], Verdict::Ok),
            // One rare reading does not make a second group.
            (&[50, 510, 52], Verdict::Ok),
            (&[50, 510, 52, 505, 51, 500], Verdict::Degraded),
            (&[], Verdict::Degraded),
        ] {
            assert_eq!(distance_check([0, 1], seen).verdict, verdict, "{seen:?}");
        }
    }

    #[test]
    fn steal_counts_since_boot_and_now() {
        let quiet = stolen(counts(1000, 0), counts(1100, 0));
        assert_eq!(quiet.verdict, Verdict::Ok);
        let now = stolen(counts(100_000, 0), counts(100_090, 10));
        assert_eq!(now.verdict, Verdict::Degraded);
        assert!(now.found.contains("10.0 % now"), "{now:?}");
        let no_tick = stolen(counts(95, 5), counts(95, 5));
        assert_eq!(no_tick.verdict, Verdict::Degraded);
        assert_eq!(no_tick.found, "5.00 % since boot");
        let untold = Some(Counts::from([(Quantity::CpuIdleNs, 5)]));
        assert!(stolen(untold.clone(), untold).found.starts_with("unknown"));
    }

    #[test]
    fn proc_stat_that_is_torn_is_missing() {
        let whole = fake_root(&[("proc/stat", "cpu  1 2 3 4 0 0 0 0 0 0\n")]);
        assert_eq!(proc_stat(whole.path()).verdict, Verdict::Ok);
        let torn = fake_root(&[("proc/stat", "cpu  1 2\n")]);
        assert_eq!(proc_stat(torn.path()).verdict, Verdict::Missing);
    }

    #[test]
    fn siblings_governor_and_clock_are_read() {
        let noisy = fake_root(&[
            ("sys/devices/system/cpu/smt/active", "1\n"),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "powersave\n",
            ),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "hpet\n",
            ),
        ]);
        let noisy = noisy.path();
        for check in [smt(noisy), governor(noisy), clock_source(noisy)] {
            assert_eq!(check.verdict, Verdict::Degraded, "{check:?}");
        }
        let calm = fake_root(&[
            ("sys/devices/system/cpu/smt/active", "0\n"),
            (
                "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
                "performance\n",
            ),
            (
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
                "tsc\n",
            ),
        ]);
        let calm = calm.path();
        for check in [smt(calm), governor(calm), clock_source(calm)] {
            assert_eq!(check.verdict, Verdict::Ok, "{check:?}");
        }
    }

    #[test]
    fn without_cycles_the_reason_is_kept() {
        let check = no_pmu("count cycles of CPU 0: no PMU");
        assert_eq!(check.verdict, Verdict::Missing);
        assert_eq!(check.found, "count cycles of CPU 0: no PMU");
        assert_eq!(counted(&Counts::new()).verdict, Verdict::Missing);
        let cycles = [(Quantity::CoreCycles, 0)];
        assert_eq!(counted(&cycles.into()).verdict, Verdict::Missing);
        let cycles = [(Quantity::CoreCycles, 9)];
        assert_eq!(counted(&cycles.into()).verdict, Verdict::Degraded);
        let all = [
            Quantity::CoreCycles,
            Quantity::Instructions,
            Quantity::CacheMisses,
        ];
        let all = all.map(|event| (event, 9)).into();
        assert_eq!(counted(&all).verdict, Verdict::Ok);
    }
}
