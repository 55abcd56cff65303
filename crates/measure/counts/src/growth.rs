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
            // Each ns of a CPU is in one of the modes or contexts.
            MeterName::Proc => counts.values().sum::<u64>() as f64,
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
