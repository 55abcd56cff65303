//! Growth of one host's counts between two readings of its meters.

use std::collections::BTreeMap;

use crate::meter_name::MeterName;
use crate::quantity::Quantity;
use crate::reading::{CountOwner, Counts, Reading, Snapshot, WentBackwards};
use crate::source::{Source, sum};

/// Growth of one host's counts between two readings of its meters.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Growth {
    /// Time between the readings, ns: the longest of all meters.
    pub duration_ns: u64,
    /// Growth by meter, for its widest owner: all CPUs, the host, or the namespace.
    pub counts: BTreeMap<MeterName, Counts>,
    /// Number of CPUs that `proc` covers. `None` if it is not known.
    pub cpus: Option<f64>,
    /// Units of work that were counted meanwhile. `None` if they were not counted.
    pub units: Option<f64>,
    /// Relative standard error of payload bytes. `None` if they are not sampled.
    pub sampling_error: Option<f64>,
    /// Reasons for values that are absent, one line each.
    pub warnings: Vec<String>,
}

impl Growth {
    /// Growth between two readings. A meter that only one of them has is absent, and a meter that went backwards is absent with
    /// a warning.
    pub fn between(earlier: &[Snapshot], later: &[Snapshot]) -> Growth {
        let mut growth = Growth::default();
        for readings in readings_between(earlier, later) {
            match readings {
                // A meter lists its widest owner after single CPUs.
                Ok(readings) => readings
                    .into_iter()
                    .filter(|reading| !matches!(reading.whose, CountOwner::Cpu(_)))
                    .for_each(|reading| growth.add(reading)),
                Err(error) => growth.warnings.push(error.to_string()),
            }
        }
        growth
    }

    fn add(&mut self, reading: Reading) {
        self.duration_ns = self.duration_ns.max(reading.duration_ns);
        self.cpus = reading.cpus(MeterName::Proc).or(self.cpus);
        self.counts.insert(reading.meter, reading.counts.into());
    }
}

/// Growth of each meter that both readings have, for all its owners.
pub fn readings_between(
    earlier: &[Snapshot],
    later: &[Snapshot],
) -> impl Iterator<Item = Result<Vec<Reading>, WentBackwards>> {
    later.iter().filter_map(|after| {
        let before = earlier.iter().find(|before| before.meter == after.meter)?;
        Some(after.since(before))
    })
}

impl Source for Growth {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        Some(*self.counts.get(&by)?.get(&of)? as f64)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let count = self.count(by, of)?;
        (self.duration_ns > 0).then(|| count * 1e9 / self.duration_ns as f64)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        let counts = self.counts.get(&by)?;
        Some(match by {
            MeterName::Proc => match self.cpus {
                Some(cpus) => cpus * self.duration_ns as f64,
                None => counts.values().sum::<u64>() as f64,
            },
            // Each ns of a CPU is in one of the contexts.
            MeterName::Exact => {
                let wire_ns = counts.get(&Quantity::ExactWireNs).copied();
                sum(self, by, Quantity::EXACT_CONTEXTS)? + wire_ns.unwrap_or(0) as f64
            }
            _ => self.duration_ns as f64,
        })
    }

    fn work(&self, of: Quantity) -> Option<f64> {
        self.units.filter(|_| of == Quantity::Transactions)
    }

    fn sampling_error(&self) -> Option<f64> {
        self.sampling_error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reading::Totals;
    use crate::source::{busy_ns, ticked_ratio};

    fn snapshot(meter: MeterName, whose: CountOwner, count: u64) -> Snapshot {
        Snapshot {
            meter,
            at_ns: count,
            totals: vec![Totals {
                whose,
                counts: Counts::from([(Quantity::SegmentsRetransmitted, count)]),
            }],
        }
    }

    /// Totals of `proc` at a time: idle and user mode, the other modes 0.
    fn of_two_cpus(at_ns: u64, idle_ns: u64, user_ns: u64, whose: CountOwner) -> Snapshot {
        let modes = Quantity::CPU_MODES.iter().map(|&mode| (mode, 0));
        let mut counts: Counts = modes.collect();
        counts.insert(Quantity::CpuIdleNs, idle_ns);
        counts.insert(Quantity::CpuUserNs, user_ns);
        let totals = vec![Totals { whose, counts }];
        let meter = MeterName::Proc;
        Snapshot {
            meter,
            at_ns,
            totals,
        }
    }

    #[test]
    fn cost_is_the_time_that_was_not_idle_whatever_the_ticks_met() {
        for ticked_ns in [0, 50_000_000, 900_000_000] {
            let whose = || CountOwner::Cpus(vec![0, 1]);
            let before = of_two_cpus(0, 0, 0, whose());
            let after = of_two_cpus(500_000_000, 700_000_000, ticked_ns, whose());
            let growth = Growth::between(&[before], &[after]);
            assert_eq!(busy_ns(&growth), Some(3e8), "{ticked_ns}");
            assert_eq!(ticked_ratio(&growth), Some(ticked_ns as f64 / 1e9));
        }
        let idle = |at_ns| of_two_cpus(at_ns, 2 * at_ns + 1, 0, CountOwner::Cpus(vec![0, 1]));
        let growth = Growth::between(
            &[of_two_cpus(0, 0, 0, CountOwner::Cpus(vec![0, 1]))],
            &[idle(5)],
        );
        assert_eq!(
            busy_ns(&growth),
            Some(0.0),
            "idle for a step longer than it lasted"
        );
        // Without the number of CPUs the modes together are their time.
        let host = |at_ns| of_two_cpus(at_ns, at_ns, at_ns / 2, CountOwner::Host);
        let growth = Growth::between(&[host(0)], &[host(8)]);
        assert_eq!(busy_ns(&growth), Some(4.0));
    }

    #[test]
    fn a_total_that_went_backwards_is_absent_with_a_note() {
        let netstat = |count| snapshot(MeterName::Netstat, CountOwner::Namespace, count);
        let growth = Growth::between(&[netstat(2)], &[netstat(1)]);
        assert!(growth.counts.is_empty());
        assert!(growth.warnings[0].contains("decreased from 2 to 1"));
    }

    #[test]
    fn counts_are_those_of_the_widest_owner_and_of_meters_that_both_readings_have() {
        let proc = |count| {
            let mut proc = snapshot(MeterName::Proc, CountOwner::Cpu(0), count);
            let all = snapshot(MeterName::Proc, CountOwner::Cpus(vec![0]), 3 * count);
            proc.totals.extend(all.totals);
            proc
        };
        let only_later = snapshot(MeterName::Vmstat, CountOwner::Host, 9);
        let growth = Growth::between(&[proc(1)], &[only_later, proc(5)]);
        let (meters, of) = (&growth.counts, Quantity::SegmentsRetransmitted);
        assert_eq!((meters.len(), growth.duration_ns), (1, 4));
        assert_eq!(growth.count(MeterName::Proc, of), Some(12.0));
        assert_eq!(growth.per_s(MeterName::Proc, of), Some(3e9));
    }
}
