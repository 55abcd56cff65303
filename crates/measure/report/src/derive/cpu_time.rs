//! CPU time of a set of CPUs, with each CPU counted once.

use std::collections::BTreeSet;

use tcpcost_counts::{CountOwner, MeterName, Quantity, Reading, Source};
use tcpcost_study::HostRecord;

/// Readings of one meter for a set of CPUs, one for each CPU.
pub(crate) struct CpuTime<'a> {
    readings: Vec<&'a Reading>,
    /// Number of CPUs.
    pub(crate) count: f64,
    /// Number of CPUs times the time between the snapshots, ns.
    pub(crate) available_ns: f64,
}

impl<'a> CpuTime<'a> {
    /// `None` if a CPU of these hosts has no reading, or if `complete` is false because a host is
    /// missing.
    pub(crate) fn new(
        meter: MeterName,
        hosts: Vec<&'a HostRecord>,
        complete: bool,
    ) -> Option<Self> {
        if !complete {
            return None;
        }
        // CPU 0 of two machines is two CPUs; CPU 0 of two hosts on one machine is one.
        let of_host = |host: &'a HostRecord| {
            host.cpus
                .iter()
                .map(move |&cpu| (host.machine.as_str(), cpu))
        };
        let wanted: BTreeSet<(&str, usize)> = hosts.iter().flat_map(|host| of_host(host)).collect();
        let all: Vec<(&str, &Reading)> = hosts
            .iter()
            .flat_map(|host| {
                host.readings
                    .iter()
                    .map(|reading| (host.machine.as_str(), reading))
            })
            .filter(|(_, reading)| reading.meter == meter)
            .collect();
        let single = |&(machine, cpu): &(&str, usize)| {
            let is_it = |(on, reading): &&(&str, &'a Reading)| {
                *on == machine && reading.whose == CountOwner::Cpu(cpu)
            };
            all.iter().find(is_it).map(|(_, reading)| *reading)
        };
        let (readings, count): (Vec<&Reading>, usize) =
            match wanted.iter().map(single).collect::<Option<Vec<_>>>() {
                Some(readings) => (readings, wanted.len()),
                // A record may have only sums. They are used if they cover exactly these CPUs, each
                // once.
                None => {
                    let mut left = wanted.clone();
                    let mut sums = Vec::new();
                    for (machine, reading) in all {
                        if let CountOwner::Cpus(cpus) = &reading.whose
                            && !cpus.is_empty()
                            && cpus.iter().all(|&cpu| left.contains(&(machine, cpu)))
                        {
                            left.retain(|(on, cpu)| *on != machine || !cpus.contains(cpu));
                            sums.push(reading);
                        }
                    }
                    (left.is_empty()).then_some((sums, wanted.len()))?
                }
            };
        if readings.is_empty() {
            return None;
        }
        let times = readings.iter().map(|reading| reading.time_ns(meter));
        let available_ns = times.sum::<Option<f64>>()?;
        Some(CpuTime {
            readings,
            count: count as f64,
            available_ns,
        })
    }

    /// Sum of a quantity over the CPUs. `None` if a CPU lacks the quantity.
    pub(crate) fn sum(&self, of: Quantity) -> Option<f64> {
        let counts = self.readings.iter().map(|reading| reading.counts.get(&of));
        counts.map(|count| count.map(|&count| count as f64)).sum()
    }
}
