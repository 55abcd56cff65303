//! Warnings that a trial's own readings give: what was seen, and what to try.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_agent::protocol::Measured;
use tcpcost_host::cpu_quota::Stopped;
use tcpcost_report::{Values, derive};
use tcpcost_study::{
    CountOwner, Derived, Figure, HostName, HostRecord, Machine, MeterName, Quantity, Record, Scope,
    Side, Warning, WarningCode,
};

use super::phases::ByHost;

/// Share of stolen CPU time above which there is a warning. 1 % is as much as the difference that many knobs make.
const STEAL_MAX: f64 = 0.01;
/// Difference of two payload counts above which there is a warning. They differ by a few buffers, if receive queues fill or drain
/// between the snapshots; 1 % is more than that in an interval of a second.
const DISAGREEMENT_MAX: f64 = 0.01;
/// Share of the work at which a fixed rate counts as reached, because each end may be one write late.
const RATE_MET: f64 = 0.98;
/// Limit on the difference between wall time and the sum of the contexts of the meter `exact`. Reading its counters takes some µs.
const CLOSURE_MAX: f64 = 0.001;
/// Softirq time on other CPUs above which there is a warning, as a share of one CPU's time.
const SOFTIRQ_ELSEWHERE_MAX: f64 = 0.05;
/// Involuntary switches per second and thread above which there is a warning, because other tasks used the CPU.
const PREEMPTIONS_MAX_PER_S: f64 = 200.0;

/// All warnings of a measured trial. `others`: names of the busiest other tasks of each host.
pub fn judge(
    record: &Record,
    others_max: f64,
    others: &BTreeMap<HostName, Vec<String>>,
) -> Vec<Warning> {
    let derived = derive(record);
    let total = |kind| derived.get(&Derived::total(kind)).copied();
    let mut warnings = Vec::new();

    // eBPF first, because samples at ticks are only a guess in a short trial.
    let others_ratio = total(Figure::ExactOthersRatio).or_else(|| total(Figure::OthersRatio));
    if let Some(ratio) = others_ratio.filter(|&ratio| ratio > others_max) {
        let names: Vec<&str> = others
            .values()
            .flat_map(|names| names.iter().map(String::as_str))
            .take(3)
            .collect();
        let busiest = if names.is_empty() {
            String::new()
        } else {
            format!(
                " (busiest of the tasks that lived for the whole interval: {})",
                names.join(", ")
            )
        };
        let text = format!(
            "other tasks used {:.1} % of the trial's CPUs, more than {:.1} %{busiest}: stop them, or choose idle CPUs with client.cpus and server.cpus",
            ratio * 100.0,
            others_max * 100.0
        );
        warnings.push(Warning::new(WarningCode::Others, text).extent(ratio * 100.0));
    }
    for (host, found) in &record.hosts {
        let open = found
            .readings
            .iter()
            .filter_map(|reading| reading.closure())
            .find(|closure| (closure - 1.0).abs() > CLOSURE_MAX);
        if let Some(closure) = open {
            let text = format!(
                "the meter {} accounts for {:.2} % of the {host}'s CPU time: do not trust its figures here",
                MeterName::Exact,
                closure * 100.0
            );
            warnings.push(Warning::new(WarningCode::Other, text).of(vec![*host]));
        }
    }
    if let Some(ratio) = total(Figure::StealRatio).filter(|&ratio| ratio > STEAL_MAX) {
        let text = format!(
            "the hypervisor took {:.1} % of the trial's CPUs: repeat when the host is quiet, or use a machine of your own",
            ratio * 100.0
        );
        warnings.push(Warning::new(WarningCode::Steal, text).extent(ratio * 100.0));
    }
    if let Some(ratio) =
        total(Figure::PayloadDisagreement).filter(|&ratio| ratio > DISAGREEMENT_MAX)
    {
        let text = format!(
            "the kernel's and the workload's payload counts differ by {:.1} %: lengthen the duration; if they still differ, do not trust the number",
            ratio * 100.0
        );
        warnings.push(Warning::new(WarningCode::Disagreement, text).extent(ratio * 100.0));
    }
    warnings.extend(rate_missed(record, &derived));
    for (host, found) in &record.hosts {
        // Hosts that share a CPU preempt each other; `others` shows the tasks of others.
        if shares_cpus(record, *host) {
            continue;
        }
        let preempted = found.growth(
            MeterName::Rusage,
            &CountOwner::Threads,
            Quantity::InvoluntarySwitches,
        );
        if let Some(preempted) = preempted {
            let per_s =
                preempted as f64 * 1e9 / record.interval_ns as f64 / found.threads.max(1) as f64;
            if per_s > PREEMPTIONS_MAX_PER_S {
                let text = format!(
                    "the {host}'s threads were preempted {per_s:.0} times a second each: something shares CPU {:?}; give the hosts CPUs of their own",
                    found.cpus
                );
                let warning = Warning::new(WarningCode::Preempted, text);
                warnings.push(warning.extent(per_s).of(vec![*host]));
            }
        }
    }
    warnings.extend(stragglers(record));
    warnings.extend(softirq_elsewhere(record));
    warnings.extend(
        record
            .machines
            .values()
            .find_map(|machine| frequency(machine)),
    );
    warnings.extend(idle_by_ticks(record));
    warnings
}

/// Warning if a cost is made of idle time that the kernel does not measure.
fn idle_by_ticks(record: &Record) -> Option<Warning> {
    let mut hosts = record.hosts.iter().filter(|(_, found)| {
        let machine = record.machines.get(&found.machine);
        machine.is_some_and(|machine| machine.cpu_accounting == "periodic")
    });
    let is_exact = |found: &HostRecord| {
        let mut readings = found.readings.iter();
        readings.any(|reading| reading.meter == MeterName::Exact)
    };
    let (host, _) = hosts.find(|(_, found)| !is_exact(found))?;
    let text = format!(
        "the tick of the {host}'s kernel never stops (nohz=off), so idle time is what ticks met, not measured: do not trust the CPU time; measure it by the meter exact, or boot without nohz=off"
    );
    Some(Warning::new(WarningCode::Other, text).of(vec![*host]))
}

/// Warnings of CPU quotas that stopped tasks: of each machine the host that was stopped most, because most hosts of a machine share a
/// cgroup.
pub fn stopped(hosts: &ByHost<Measured>) -> Vec<Warning> {
    let mut worst: BTreeMap<&str, (HostName, Stopped)> = BTreeMap::new();
    for (&host, found) in hosts {
        let Some(stopped) = found.stopped else {
            continue;
        };
        let one = worst
            .entry(&found.record.machine)
            .or_insert((host, stopped));
        if stopped.share() > one.1.share() {
            *one = (host, stopped);
        }
    }
    let warning = |(host, stopped): &(HostName, Stopped)| {
        let text = format!(
            "the {host}'s {stopped}: throughput and response times are those of the quota; raise it, or measure below it at a fixed rate"
        );
        let warning = Warning::new(WarningCode::Quota, text);
        warning.extent(stopped.share() * 100.0).of(vec![*host])
    };
    worst.values().map(warning).collect()
}

/// True if another host of the machine has one of this host's CPUs, too.
fn shares_cpus(record: &Record, host: HostName) -> bool {
    let own = &record.hosts[&host];
    record.hosts.iter().any(|(name, other)| {
        *name != host
            && other.machine == own.machine
            && other.cpus.iter().any(|cpu| own.cpus.contains(cpu))
    })
}

fn rate_missed(record: &Record, derived: &Values) -> Option<Warning> {
    // Each group has its own rate, or none.
    if !record.knobs.group_names().is_empty() {
        return group_rate_missed(record, derived);
    }
    let asked = |name: &str| record.knobs.value(name)?.number();
    // Each client has the rate.
    let clients = record.topology.traffic.len().max(1) as f64;
    let (asked, kind) = match (asked("rate"), asked("transaction_rate")) {
        (Some(asked), _) => {
            let directions = if record.knobs.word("workload")? == "bidirectional" {
                2.0
            } else {
                1.0
            };
            (asked * directions * clients, Figure::Goodput)
        }
        (_, Some(asked)) => (asked * clients, Figure::TransactionsPerS),
        _ => return None,
    };
    missed(kind, *derived.get(&Derived::total(kind))?, asked, "")
}

/// Warning if `got` is less than `asked`, both in the figure's unit. The text `whose` follows the numbers.
fn missed(kind: Figure, got: f64, asked: f64, whose: &str) -> Option<Warning> {
    let (unit, scale, decimals) = match kind {
        Figure::Goodput if asked >= 1e9 => ("Gbit/s", 1e9, 3),
        Figure::Goodput if asked >= 1e6 => ("Mbit/s", 1e6, 2),
        Figure::Goodput => ("kbit/s", 1e3, 2),
        _ => ("transactions/s", 1.0, 0),
    };
    (got < asked * RATE_MET).then(|| {
        let text = format!(
            "only {:.decimals$} of {} {unit}{whose} were reached: these CPUs or the path cannot carry the rate; lower it",
            got / scale,
            asked / scale
        );
        Warning::new(WarningCode::RateMissed, text).extent(100.0 * got / asked)
    })
}

/// Warning about hosts that did much less than the others of their side, if at least three hosts should do the same.
fn stragglers(record: &Record) -> Option<Warning> {
    // With groups the hosts may have different shares.
    if !record.knobs.group_names().is_empty() {
        return None;
    }
    let rate = |name: HostName| {
        let host = record.hosts.get(&name)?;
        let mut readings = host.readings.iter();
        let reading = readings.find(|reading| {
            reading.meter == MeterName::Workload && reading.whose == CountOwner::Workload
        })?;
        let count = |quantity| reading.counts.get(&quantity).copied();
        let bytes = [Quantity::PayloadBytesSent, Quantity::PayloadBytesReceived];
        let bytes: u64 = bytes.into_iter().filter_map(count).sum();
        let work = count(Quantity::Transactions).unwrap_or(bytes);
        let times = record.topology.times(name).max(1) as f64;
        Some((
            name,
            work as f64 / reading.duration_ns.max(1) as f64 / times,
        ))
    };
    Side::BOTH.into_iter().find_map(|side| {
        let mut rates: Vec<(HostName, f64)> =
            record.topology.of_side(side).filter_map(rate).collect();
        if rates.len() < HOSTS_MIN {
            return None;
        }
        rates.sort_by(|(_, a), (_, b)| a.total_cmp(b));
        let median = rates[rates.len() / 2].1;
        let slow: Vec<(HostName, f64)> = rates
            .iter()
            .take_while(|(_, rate)| *rate < median * STRAGGLER_MAX)
            .map(|(name, rate)| (*name, rate / median * 100.0))
            .collect();
        let (_, slowest) = *slow.first()?;
        let shares = slow.iter().map(|(name, share)| format!("{name} {share:.0} %"));
        let text = format!(
            "stragglers, relative to the median of {} hosts: {}: compare their links, CPUs and retransmissions with the others'",
            rates.len(),
            shares.collect::<Vec<_>>().join(", ")
        );
        let warning = Warning::new(WarningCode::Straggler, text);
        let hosts = slow.iter().map(|(name, _)| *name).collect();
        Some(warning.extent(slowest).of(hosts))
    })
}

/// Fewest hosts of a side for a warning: of two hosts, the slow one is not known.
const HOSTS_MIN: usize = 3;
/// Share of the median below which a host is a straggler. Flows that share a bottleneck differ by about a fifth for a second.
const STRAGGLER_MAX: f64 = 0.7;

/// Warning about the group that is farthest below its rate.
fn group_rate_missed(record: &Record, derived: &Values) -> Option<Warning> {
    let groups = record.knobs.groups().ok()?;
    let missed = groups.iter().filter_map(|group| {
        let name = group.name?;
        let settings = &group.settings;
        let talks = record.topology.traffic.iter();
        let clients = talks.filter(|traffic| group.is_on(traffic.on)).count() as f64;
        let directions = Side::BOTH
            .iter()
            .filter(|&&side| settings.sends(side))
            .count();
        let (asked, kind) = match (settings.rate_bits_per_s, settings.transactions_per_s) {
            (Some(rate), _) => (rate as f64 * directions as f64, Figure::Goodput),
            (_, Some(rate)) => (rate as f64, Figure::TransactionsPerS),
            _ => return None,
        };
        let scope = Scope::Group(name);
        let got = derived.get(&Derived { kind, scope })?;
        missed(
            kind,
            *got,
            asked * clients,
            &format!(" of the group {name}"),
        )
    });
    missed.min_by(|one, other| {
        f64::total_cmp(&one.extent.unwrap_or(0.0), &other.extent.unwrap_or(0.0))
    })
}

/// Warning if a machine has more softirq time on CPUs of no host than on the hosts' CPUs, and more than 5 % of a CPU. Compares shares of
/// time, because each host has an interval of its own.
fn softirq_elsewhere(record: &Record) -> Option<Warning> {
    record.machines.keys().find_map(|machine| {
        let hosts = record.hosts.values().map(|host| &**host);
        let hosts: Vec<&HostRecord> = hosts.filter(|host| host.machine == *machine).collect();
        let share = |whose: CountOwner| {
            let mut readings = hosts.iter().flat_map(|host| &host.readings);
            let found = readings.find(|reading| reading.meter == MeterName::Proc && reading.whose == whose)?;
            Some(*found.counts.get(&Quantity::CpuSoftirqNs)? as f64 / found.duration_ns as f64)
        };
        let cpus: BTreeSet<usize> = hosts.iter().flat_map(|host| &host.cpus).copied().collect();
        let inside = cpus.into_iter().map(|cpu| share(CountOwner::Cpu(cpu)));
        let inside = inside.sum::<Option<f64>>()?;
        let outside = share(CountOwner::Host)? - inside;
        (outside > inside && outside > SOFTIRQ_ELSEWHERE_MAX).then(|| {
            let ms = |share: f64| share * record.interval_ns as f64 / 1e6;
            let text = format!(
                "{:.0} ms of softirq ran on CPUs of no host and {:.0} ms on the hosts' CPUs: other traffic, or receive work that is not steered; see rps_cpus in the record",
                ms(outside),
                ms(inside)
            );
            Warning::new(WarningCode::SoftirqElsewhere, text).extent(ms(outside))
        })
    })
}

fn frequency(host: &Machine) -> Option<Warning> {
    let governor = host.governor.as_deref()?;
    (governor != "performance").then(|| {
        let text = format!("the CPU frequency governor is {governor}: times vary with it; set it by: cpupower frequency-set -g performance");
        Warning::new(WarningCode::Frequency, text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Knobs, Outcome, Reading, SCHEMA_VERSION, Shared, Topology};

    fn record(idle_ns: u64) -> Record {
        let mut counts: BTreeMap<Quantity, u64> = Quantity::EXACT_CONTEXTS
            .iter()
            .map(|&context| (context, 0))
            .collect();
        counts.insert(Quantity::ExactIdleNs, idle_ns);
        let server = HostRecord {
            cpus: vec![0],
            threads: 1,
            readings: vec![Reading {
                meter: MeterName::Exact,
                whose: CountOwner::Cpus(vec![0]),
                duration_ns: 1_000_000,
                counts: counts.into(),
            }],
            ..HostRecord::default()
        };
        Record {
            schema_version: SCHEMA_VERSION,
            study: "x".into(),
            cell: "x".into(),
            knobs: Knobs::default().into(),
            repetition: 0,
            attempt: 0,
            seed: 1,
            started: "2026-01-01T00:00:00Z".into(),
            bed: "netns".into(),
            captured: false,
            interval_ns: 1_000_000,
            took_ns: None,
            work: None,
            outcome: Outcome::Measured,
            warnings: vec![],
            cpu_distances: vec![],
            topology: Topology::default().into(),
            machines: Shared::default(),
            hosts: [(HostName::SERVER, server.into())].into(),
        }
    }

    #[test]
    fn exact_time_that_does_not_add_up_to_wall_time_gives_a_warning() {
        for (idle_ns, expected) in [(999_100, 0), (1_000_900, 0), (998_000, 1), (1_002_000, 1)] {
            let warnings = judge(&record(idle_ns), 1.0, &BTreeMap::new());
            let found = warnings
                .iter()
                .filter(|warning| warning.text.contains("meter exact"));
            assert_eq!(found.count(), expected, "{idle_ns}");
        }
    }

    #[test]
    fn a_missed_rate_has_the_studys_units() {
        let text = |kind, got, asked| missed(kind, got, asked, "").map(|warning| warning.text);
        let is = |kind, got, asked, expected: &str| {
            let text = text(kind, got, asked).unwrap();
            assert!(text.starts_with(expected), "{text}");
        };
        is(
            Figure::Goodput,
            6.087e7,
            1e8,
            "only 60.87 of 100 Mbit/s were",
        );
        is(
            Figure::Goodput,
            9.41e8,
            2.5e9,
            "only 0.941 of 2.5 Gbit/s were",
        );
        let rate = Figure::TransactionsPerS;
        is(rate, 963.4, 1000.0, "only 963 of 1000 transactions/s were");
        assert_eq!(text(rate, 981.0, 1000.0), None);
    }

    #[test]
    fn a_host_that_did_much_less_than_the_others_is_named() {
        let mut knobs = Knobs::default();
        knobs.set("topology", "star").unwrap();
        knobs.set("clients", "4").unwrap();
        let warning_of = |sent: [u64; 4]| {
            let mut record = record(1_000_000);
            record.topology = Topology::of(tcpcost_study::Bed::Netns, &knobs)
                .unwrap()
                .into();
            let client = |(index, bytes): (usize, u64)| {
                let name = HostName::CLIENT.numbered(index + 1).unwrap();
                let reading = Reading {
                    meter: MeterName::Workload,
                    whose: CountOwner::Workload,
                    duration_ns: 1_000_000,
                    counts: [(Quantity::PayloadBytesSent, bytes)].into(),
                };
                let host = HostRecord {
                    readings: vec![reading],
                    ..HostRecord::default()
                };
                (name, host.into())
            };
            record.hosts = sent.into_iter().enumerate().map(client).collect();
            stragglers(&record)
        };
        assert_eq!(warning_of([100, 90, 110, 80]), None);
        let warning = warning_of([100, 90, 40, 110]).unwrap();
        assert_eq!(warning.hosts, [HostName::CLIENT.numbered(3).unwrap()]);
        let text = warning.text;
        assert!(text.contains("median of 4 hosts: client3 40 %:"), "{text}");
    }

    #[test]
    fn softirqs_of_hosts_that_were_read_over_other_intervals_are_not_elsewhere() {
        let reading = |whose, softirq_ms: u64, duration_ms: u64| Reading {
            meter: MeterName::Proc,
            whose,
            duration_ns: duration_ms * 1_000_000,
            counts: [(Quantity::CpuSoftirqNs, softirq_ms * 1_000_000)].into(),
        };
        let host = |cpu, readings| HostRecord {
            machine: "a".into(),
            cpus: vec![cpu],
            threads: 1,
            readings,
            ..HostRecord::default()
        };
        let warning_of = |all_ms| {
            let mut record = record(1_000_000);
            record.interval_ns = 1_000_000_000;
            record
                .machines
                .insert("a".to_string(), Machine::default().into());
            let client = vec![
                reading(CountOwner::Cpu(0), 20, 1000),
                reading(CountOwner::Host, all_ms, 1000),
            ];
            let server = vec![reading(CountOwner::Cpu(1), 20, 100)];
            let hosts = [
                (HostName::CLIENT, host(0, client).into()),
                (HostName::SERVER, host(1, server).into()),
            ];
            record.hosts = hosts.into();
            softirq_elsewhere(&record)
        };
        assert_eq!(warning_of(220), None, "20 ms of a second, and 20 ms of 100");
        let text = warning_of(500).unwrap().text;
        assert!(
            text.starts_with("280 ms of softirq ran on CPUs of no host and 220 ms"),
            "{text}"
        );
    }

    #[test]
    fn of_each_machine_the_host_whose_quota_stopped_it_most_has_a_warning() {
        let found = |machine: &str, stopped: u64| Measured {
            record: HostRecord {
                machine: machine.to_string(),
                ..HostRecord::default()
            },
            others: Vec::new(),
            warnings: Vec::new(),
            stopped: (stopped > 0).then_some(Stopped {
                cpus: 0.5,
                all: 10,
                stopped,
            }),
            late_ns: 0,
            took_ns: 0,
        };
        let host = |name: &str| name.parse::<HostName>().unwrap();
        let hosts = ByHost::from([
            (host("client1"), found("a", 2)),
            (host("client2"), found("a", 3)),
            (host("client3"), found("b", 1)),
            (host("server"), found("c", 0)),
        ]);
        let warnings = stopped(&hosts);
        let extents: Vec<_> = warnings
            .iter()
            .map(|one| (one.extent, one.hosts.clone()))
            .collect();
        assert_eq!(
            extents,
            [
                (Some(30.0), vec![host("client2")]),
                (Some(10.0), vec![host("client3")])
            ]
        );
        assert!(warnings.iter().all(|one| one.code == WarningCode::Quota));
        assert!(
            warnings[0]
                .text
                .starts_with("the client2's CPU quota (0.50 CPUs) was used up in 3 of 10 periods")
        );
    }
}
