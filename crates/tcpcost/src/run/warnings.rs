//! What a trial's own readings say against it: what was seen, and what to try.

use std::collections::BTreeMap;

use tcpcost_report::derive;
use tcpcost_study::{
    Derived, DerivedKind, End, HostEnvironment, Quantity, Record, Warning, WarningCode, Whose,
};

/// Above this share of the CPUs' time, steal is worth a warning: 1 % of CPU is as much as the
/// difference between many knobs.
const STEAL_MAX: f64 = 0.01;
/// Receive queues filled or drained between snapshots let the counts differ by some buffers'
/// worth; 1 % is more than that for intervals of a second.
const DISAGREEMENT_MAX: f64 = 0.01;
/// A fixed rate is met if 98 % of the work was done: the schedule may be a write behind at each end.
const RATE_MET: f64 = 0.98;
/// The contexts of the meter `exact` add up to wall time within this: reading the cells takes some µs.
const CLOSURE_MAX: f64 = 0.001;
/// Involuntary switches per second and thread above which the CPU was not the trial's alone.
const PREEMPTIONS_MAX_PER_S: f64 = 200.0;

/// All warnings of a measured trial. `others` names the busiest foreign tasks of each end.
pub fn judge(
    record: &Record,
    others_max: f64,
    others: &BTreeMap<End, Vec<String>>,
) -> Vec<Warning> {
    let derived = derive(record);
    let of = |kind| derived.get(&Derived::both(kind)).copied();
    let mut warnings = Vec::new();
    let mut warn = |code, text: String| warnings.push(Warning { code, text });

    // The tick's sampling of a short trial is a guess; eBPF's is not.
    let of_others = of(DerivedKind::ExactOthersRatio).or_else(|| of(DerivedKind::OthersRatio));
    if let Some(ratio) = of_others.filter(|&ratio| ratio > others_max) {
        let names: Vec<&str> = others
            .values()
            .flat_map(|names| names.iter().map(String::as_str))
            .take(3)
            .collect();
        let busiest = if names.is_empty() {
            String::new()
        } else {
            format!(
                " (busiest of those that lived throughout: {})",
                names.join(", ")
            )
        };
        warn(
            WarningCode::Others,
            format!(
                "tasks of others used {:.1} % of the trial's CPUs, more than {:.1} %{busiest}: stop them, or choose idle CPUs with client_cpus and server_cpus",
                ratio * 100.0,
                others_max * 100.0
            ),
        );
    }
    for (end, found) in &record.ends {
        let open = found
            .readings
            .iter()
            .filter_map(|reading| reading.closure())
            .find(|closure| (closure - 1.0).abs() > CLOSURE_MAX);
        if let Some(closure) = open {
            warn(
                WarningCode::Other,
                format!(
                    "the meter exact accounts for {:.2} % of the {end}'s CPU time: its figures are not to be trusted here",
                    closure * 100.0
                ),
            );
        }
    }
    if let Some(ratio) = of(DerivedKind::StealRatio).filter(|&ratio| ratio > STEAL_MAX) {
        warn(
            WarningCode::Steal,
            format!(
                "the hypervisor took {:.1} % of the trial's CPUs: repeat when the host is quiet, or use a machine of your own",
                ratio * 100.0
            ),
        );
    }
    if let Some(ratio) =
        of(DerivedKind::PayloadDisagreement).filter(|&ratio| ratio > DISAGREEMENT_MAX)
    {
        warn(
            WarningCode::Disagreement,
            format!(
                "the kernel's and the workload's payload counts differ by {:.1} %: lengthen the duration; if it stays, the number is not to be trusted",
                ratio * 100.0
            ),
        );
    }
    if let Some(text) = rate_missed(record, &derived) {
        warn(WarningCode::RateMissed, text);
    }
    for (end, found) in &record.ends {
        let preempted = found.growth("rusage", &Whose::Threads, Quantity::InvoluntarySwitches);
        if let Some(preempted) = preempted {
            let per_s = preempted as f64 * 1e9 / record.interval_ns as f64 / found.threads as f64;
            if per_s > PREEMPTIONS_MAX_PER_S {
                warn(
                    WarningCode::Preempted,
                    format!(
                        "the {end}'s threads were put off their CPU {per_s:.0} times a second each: something shares CPU {:?}; give the ends CPUs of their own",
                        found.cpus
                    ),
                );
            }
        }
    }
    if let Some(text) = softirq_elsewhere(record) {
        warn(WarningCode::SoftirqElsewhere, text);
    }
    if let Some(text) = frequency(&record.host) {
        warn(WarningCode::Frequency, text);
    }
    warnings
}

fn rate_missed(record: &Record, derived: &BTreeMap<Derived, f64>) -> Option<String> {
    let asked = |name: &str| record.knobs.value(name)?.number();
    let got = |kind| derived.get(&Derived::both(kind)).copied();
    let (asked, got, unit) = match (asked("rate"), asked("transaction_rate")) {
        (Some(asked), _) => {
            let directions = if record.knobs.word("workload")? == "bidirectional" {
                2.0
            } else {
                1.0
            };
            (asked * directions, got(DerivedKind::Goodput)?, "bit/s")
        }
        (_, Some(asked)) => (asked, got(DerivedKind::TransactionsPerS)?, "transactions/s"),
        _ => return None,
    };
    (got < asked * RATE_MET).then(|| {
        format!("only {got:.3e} of {asked:.3e} {unit} were done: the rate is above what these CPUs or the path carry; lower it")
    })
}

/// More softirq time on CPUs of neither end than on both ends', and more than 5 % of a CPU.
fn softirq_elsewhere(record: &Record) -> Option<String> {
    let softirq = |end: End, whose: &Whose| {
        record
            .ends
            .get(&end)?
            .growth("proc", whose, Quantity::CpuSoftirqNs)
    };
    let mut inside = 0;
    let mut seen = Vec::new();
    for (end, found) in &record.ends {
        for &cpu in found
            .cpus
            .iter()
            .filter(|cpu| !seen.contains(*cpu))
            .collect::<Vec<_>>()
        {
            seen.push(cpu);
            inside += softirq(*end, &Whose::Cpu(cpu))?;
        }
    }
    let outside = softirq(End::Client, &Whose::Host)?.saturating_sub(inside);
    (outside > inside && outside > record.interval_ns / 20).then(|| {
        format!(
            "{} ms of softirq ran on CPUs of neither end and {} ms on theirs: other traffic, or receive work that is not steered; see rps_cpus in the record",
            outside / 1_000_000,
            inside / 1_000_000
        )
    })
}

fn frequency(host: &HostEnvironment) -> Option<String> {
    let governor = host.governor.as_deref()?;
    (governor != "performance").then(|| {
        format!("the CPU frequency governor is {governor}: times vary with it; cpupower frequency-set -g performance")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{EndRecord, Environment, Knobs, Outcome, Reading, SCHEMA_VERSION};

    fn record(idle_ns: u64) -> Record {
        let mut counts: BTreeMap<Quantity, u64> = Quantity::EXACT_CONTEXTS
            .iter()
            .map(|&context| (context, 0))
            .collect();
        counts.insert(Quantity::ExactIdleNs, idle_ns);
        let end = EndRecord {
            cpus: vec![0],
            threads: 1,
            environment: Environment::default(),
            readings: vec![Reading {
                meter: "exact".into(),
                whose: Whose::Cpus(vec![0]),
                duration_ns: 1_000_000,
                counts,
            }],
            response_time_hdr: None,
            profile: None,
            capture: None,
        };
        Record {
            schema_version: SCHEMA_VERSION,
            study: "x".into(),
            cell: "x".into(),
            knobs: Knobs::default(),
            repetition: 0,
            attempt: 0,
            seed: 1,
            started: "2026-01-01T00:00:00Z".into(),
            bed: "netns".into(),
            captured: false,
            interval_ns: 1_000_000,
            outcome: Outcome::Measured,
            warnings: vec![],
            core_to_core: None,
            host: HostEnvironment::default(),
            ends: [(End::Server, end)].into(),
        }
    }

    #[test]
    fn exact_time_that_does_not_add_up_to_wall_time_is_not_to_be_trusted() {
        for (idle_ns, expected) in [(999_100, 0), (1_000_900, 0), (998_000, 1), (1_002_000, 1)] {
            let warnings = judge(&record(idle_ns), 1.0, &BTreeMap::new());
            let told = warnings
                .iter()
                .filter(|warning| warning.text.contains("meter exact"));
            assert_eq!(told.count(), expected, "{idle_ns}");
        }
    }
}
