//! Totals at an instant, and the growth between two instants.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::keyed::Keyed;
use crate::meter_name::MeterName;
use crate::quantity::Quantity;
use crate::source::{Source, ratio, sum};

/// Counts by quantity. A quantity that was not measured is absent, never 0.
pub type Counts = BTreeMap<Quantity, u64>;

/// Owner of a count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountOwner {
    /// These CPUs together, everything that ran on them.
    Cpus(Vec<usize>),
    /// One CPU of the trial.
    Cpu(usize),
    /// The workload's own threads.
    Threads,
    /// A host's process: its tasks, and softirqs and hard interrupts for its sockets, on any CPU of
    /// the trial.
    Process,
    /// A network namespace with all its connections, those of the trial and others.
    Namespace,
    /// The trial's own connections.
    Connections,
    /// The workload itself, by its own count.
    Workload,
    /// One group of the workload's connections, by their own count.
    Group(String),
    /// The whole host.
    Host,
    /// tcpcost itself: the cost of measuring.
    Tcpcost,
}

/// Totals of one owner.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Owner of the counts.
    pub whose: CountOwner,
    /// Total of each quantity.
    pub counts: Counts,
}

/// Totals of a meter at one instant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Snapshot {
    /// Meter that reports the totals.
    pub meter: MeterName,
    /// Monotonic time of the host, ns.
    pub at_ns: u64,
    /// Totals by owner.
    pub totals: Vec<Totals>,
}

/// Growth of one owner's counts between two snapshots of one meter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// Meter: the method of counting.
    pub meter: MeterName,
    /// Owner of the counts.
    pub whose: CountOwner,
    /// Time between the snapshots, ns.
    pub duration_ns: u64,
    /// Growth of each quantity.
    pub counts: Keyed<Quantity, u64>,
}

impl Reading {
    /// Quality of the meter `exact`: the sum over all contexts divided by wall time times CPUs. 1
    /// except for the microsecond between reading the clock and reading a CPU. `None` for readings
    /// that are not of CPUs or lack a context.
    pub fn closure(&self) -> Option<f64> {
        let all_ns = self.cpus(self.meter)? * self.duration_ns as f64;
        let wire_ns = self.count(self.meter, Quantity::ExactWireNs);
        let told_ns = sum(self, self.meter, Quantity::EXACT_CONTEXTS)?;
        ratio(told_ns + wire_ns.unwrap_or(0.0), all_ns)
    }
}

/// A reading as a source: counts of other meters are `None`.
impl Source for Reading {
    fn count(&self, by: MeterName, of: Quantity) -> Option<f64> {
        let count = self.counts.get(&of).filter(|_| by == self.meter)?;
        Some(*count as f64)
    }

    fn per_s(&self, by: MeterName, of: Quantity) -> Option<f64> {
        ratio(self.count(by, of)? * 1e9, self.duration_ns as f64)
    }

    fn time_ns(&self, by: MeterName) -> Option<f64> {
        let is_all_cpus = by == MeterName::Proc && self.whose == CountOwner::Host;
        match self.cpus(by) {
            Some(cpus) => Some(cpus * self.duration_ns as f64),
            // Roughly: see `CPU_MODES`.
            None if is_all_cpus => Some(self.counts.values().sum::<u64>() as f64),
            None => (by == self.meter).then_some(self.duration_ns as f64),
        }
    }

    fn cpus(&self, by: MeterName) -> Option<f64> {
        match &self.whose {
            _ if by != self.meter => None,
            CountOwner::Cpus(cpus) => Some(cpus.len() as f64),
            CountOwner::Cpu(_) => Some(1.0),
            _ => None,
        }
    }
}

/// A total that shrank: the source was reset or is broken, so a difference would be wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("meter {meter}: {quantity} of {whose:?} decreased from {before} to {after}")]
pub struct WentBackwards {
    /// Meter that reported the totals.
    pub meter: MeterName,
    /// Quantity that shrank.
    pub quantity: Quantity,
    /// Owner of the count.
    pub whose: CountOwner,
    /// Earlier total.
    pub before: u64,
    /// Later, smaller total.
    pub after: u64,
}

impl Snapshot {
    /// Growth since an earlier snapshot of the same meter. A quantity or an owner that only one of
    /// the two snapshots has is absent.
    ///
    /// # Errors
    /// A total shrank. /proc/stat's idle and iowait may shrink by design
    /// (Documentation/filesystems/proc.rst): for these two a step back counts as no growth.
    pub fn since(&self, earlier: &Snapshot) -> Result<Vec<Reading>, WentBackwards> {
        let duration_ns = self.at_ns.saturating_sub(earlier.at_ns);
        let mut readings = Vec::new();
        for later in &self.totals {
            let Some(before) = earlier
                .totals
                .iter()
                .find(|totals| totals.whose == later.whose)
            else {
                continue;
            };
            let mut counts = Counts::new();
            for (&quantity, &after) in &later.counts {
                let Some(&before) = before.counts.get(&quantity) else {
                    continue;
                };
                let may_step_back = matches!(quantity, Quantity::CpuIdleNs | Quantity::CpuIowaitNs);
                let growth = match after.checked_sub(before) {
                    Some(growth) => growth,
                    None if may_step_back => 0,
                    None => {
                        let (meter, whose) = (self.meter, later.whose.clone());
                        return Err(WentBackwards {
                            meter,
                            quantity,
                            whose,
                            before,
                            after,
                        });
                    }
                };
                counts.insert(quantity, growth);
            }
            readings.push(Reading {
                meter: self.meter,
                whose: later.whose.clone(),
                duration_ns,
                counts: counts.into(),
            });
        }
        Ok(readings)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(at_ns: u64, counts: &[(Quantity, u64)]) -> Snapshot {
        let totals = vec![Totals {
            whose: CountOwner::Cpu(0),
            counts: counts.iter().copied().collect(),
        }];
        Snapshot {
            meter: MeterName::Proc,
            at_ns,
            totals,
        }
    }

    #[test]
    fn growth_is_the_difference_and_what_one_side_lacks_is_absent() {
        let before = snapshot(5, &[(Quantity::CpuUserNs, 10)]);
        let after = snapshot(25, &[(Quantity::CpuUserNs, 14), (Quantity::CpuIrqNs, 7)]);
        let readings = after.since(&before).unwrap();
        assert_eq!(readings[0].duration_ns, 20);
        assert_eq!(readings[0].counts, [(Quantity::CpuUserNs, 4)].into());
    }

    #[test]
    fn closure_is_the_sum_over_contexts_by_wall_time() {
        let mut reading = Reading {
            meter: MeterName::Exact,
            whose: CountOwner::Cpus(vec![0, 1]),
            duration_ns: 80,
            counts: Quantity::EXACT_CONTEXTS.iter().map(|&q| (q, 10)).collect(),
        };
        assert_eq!(reading.closure(), Some(1.0));
        reading.duration_ns = 85;
        reading.counts.insert(Quantity::ExactWireNs, 10);
        assert_eq!(reading.closure(), Some(1.0));
        let told = reading.counts.iter().map(|(&of, &ns)| (of, ns));
        reading.counts = told
            .filter(|(of, _)| *of != Quantity::ExactIdleNs)
            .collect();
        assert_eq!(reading.closure(), None);
        let (whose, counts) = (CountOwner::Cpu(0), [].into());
        assert_eq!(
            Reading {
                whose,
                counts,
                ..reading
            }
            .closure(),
            None
        );
    }

    #[test]
    fn a_total_that_shrank_is_an_error_except_idle() {
        let before = snapshot(0, &[(Quantity::CpuUserNs, 10), (Quantity::CpuIdleNs, 9)]);
        assert!(
            snapshot(1, &[(Quantity::CpuUserNs, 9)])
                .since(&before)
                .is_err()
        );
        let idle = snapshot(1, &[(Quantity::CpuIdleNs, 8)])
            .since(&before)
            .unwrap();
        assert_eq!(idle[0].counts[&Quantity::CpuIdleNs], 0);
    }
}
