//! CPU time of a set of CPUs, each counted once.

use std::collections::BTreeSet;

use tcpcost_study::{EndRecord, Quantity, Reading, Whose};

/// What one meter told of a set of CPUs, each once.
pub(crate) struct CpuTime<'a> {
    readings: Vec<&'a Reading>,
    /// CPUs.
    pub(crate) count: f64,
    /// CPUs times the time between the snapshots.
    pub(crate) available_ns: f64,
}

impl<'a> CpuTime<'a> {
    /// `None` where a CPU of these ends has no reading, or one of two ends is missing.
    pub(crate) fn new(
        meter: &str,
        ends: impl Iterator<Item = &'a EndRecord>,
        complete: bool,
    ) -> Option<Self> {
        if !complete {
            return None;
        }
        let ends: Vec<&EndRecord> = ends.collect();
        let wanted: BTreeSet<usize> = ends.iter().flat_map(|end| &end.cpus).copied().collect();
        let proc = || {
            ends.iter()
                .flat_map(|end| &end.readings)
                .filter(|reading| reading.meter == meter)
        };
        let single = |cpu: usize| proc().find(move |reading| reading.whose == Whose::Cpu(cpu));
        let (readings, count): (Vec<&Reading>, usize) = match wanted
            .iter()
            .map(|&cpu| single(cpu))
            .collect::<Option<Vec<_>>>()
        {
            Some(readings) => (readings, wanted.len()),
            // A record may have the sums alone: good where they are of just these CPUs, each once.
            None => {
                let mut left = wanted.clone();
                let mut sums = Vec::new();
                for reading in proc() {
                    if let Whose::Cpus(cpus) = &reading.whose
                        && !cpus.is_empty()
                        && cpus.iter().all(|cpu| left.contains(cpu))
                    {
                        left.retain(|cpu| !cpus.contains(cpu));
                        sums.push(reading);
                    }
                }
                (left.is_empty()).then_some((sums, wanted.len()))?
            }
        };
        if readings.is_empty() {
            return None;
        }
        let available_ns = readings
            .iter()
            .map(|reading| {
                let cpus = match &reading.whose {
                    Whose::Cpus(cpus) => cpus.len(),
                    _ => 1,
                };
                reading.duration_ns as f64 * cpus as f64
            })
            .sum();
        Some(CpuTime {
            readings,
            count: count as f64,
            available_ns,
        })
    }

    /// Time of these kinds, ns. Absent where a CPU has none of one kind.
    pub(crate) fn sum(&self, of: &[Quantity]) -> Option<f64> {
        let mut sum = 0.0;
        for reading in &self.readings {
            for quantity in of {
                sum += *reading.counts.get(quantity)? as f64;
            }
        }
        Some(sum)
    }
}
