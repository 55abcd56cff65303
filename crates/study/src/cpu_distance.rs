//! The distance of two CPUs, as a cache line's round trip; trials whose CPUs the hypervisor ran far from each other are
//! found by comparison with the other trials of the run.

use std::collections::BTreeMap;

use crate::record::{CpuDistance, Record, Warning, WarningCode};

/// CPUs are far from each other if a round trip takes more than this many times the shortest one. Clock rates move it
/// by a half; two threads of one core (30 to 40 ns) and two cores (60 to 75 ns) are within 2.5, and the same work cost the
/// same in both; another last-level cache, or socket, is five to ten times as far (300 to 510 ns).
const FAR: u64 = 3;

/// Two CPUs of a machine.
type Between = (String, [usize; 2]);

impl CpuDistance {
    fn both(&self) -> impl Iterator<Item = u64> {
        [self.before_ns, self.after_ns].into_iter().flatten()
    }

    /// Between which CPUs of which machine, in this trial.
    fn between(&self, record: &Record) -> Option<Between> {
        let (machine, _) = record.place_of(self.cpus[0])?;
        Some((machine.to_string(), self.cpus.map(|id| id.cpu)))
    }

    /// Whether a round trip is far above the shortest of these CPUs.
    pub fn is_far(ns: u64, nearest: u64) -> bool {
        ns > FAR * nearest
    }

    /// The shortest round trip between two CPUs of a machine that any of the trials saw, ns.
    pub fn nearest(records: &[Record], machine: &str, cpus: [usize; 2]) -> Option<u64> {
        let of_trial = |record: &Record| {
            let same = record.cpu_distances.iter().filter(|distance| {
                let between = distance.between(record);
                between.is_some_and(|(on, between)| on == machine && between == cpus)
            });
            same.flat_map(CpuDistance::both).min()
        };
        records.iter().filter_map(of_trial).min()
    }

    /// Marks the trials of a run before or after which a round trip took more than three times the run's
    /// shortest of the same CPUs. As a run goes on a shorter one may mark earlier trials, so this is asked
    /// again whenever all are looked at; a trial is marked once.
    pub fn mark_far(records: &mut [Record]) {
        let mut nearest: BTreeMap<Between, u64> = BTreeMap::new();
        for record in records.iter() {
            for distance in &record.cpu_distances {
                let Some(between) = distance.between(record) else {
                    continue;
                };
                if let Some(ns) = distance.both().min() {
                    let least = nearest.entry(between).or_insert(ns);
                    *least = ns.min(*least);
                }
            }
        }
        for record in records.iter_mut() {
            let mut codes = record.warnings.iter().map(|warning| warning.code);
            if codes.any(|code| code == WarningCode::CpusFar) {
                continue;
            }
            let far = |distance: &CpuDistance| {
                let nearest = *nearest.get(&distance.between(record)?)?;
                let farthest = distance.both().max()?;
                CpuDistance::is_far(farthest, nearest).then(|| {
                    let [one, other] = distance.cpus.map(|id| id.cpu);
                    let text = format!(
                        "a cache line went from CPU {one} to CPU {other} and back in {farthest} ns, in {nearest} ns in the nearest trial: the hypervisor ran them far from each other, where the same work costs more cycles"
                    );
                    Warning::new(WarningCode::CpusFar, text).extent(farthest as f64)
                })
            };
            let warning = record.cpu_distances.iter().find_map(far);
            record.warnings.extend(warning);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host_name::HostName;
    use crate::record::CpuId;
    use crate::record::HostRecord;

    fn record(cpus: [usize; 2], before_ns: Option<u64>, after_ns: Option<u64>) -> Record {
        of_machine("a", cpus, before_ns, after_ns)
    }

    fn of_machine(
        machine: &str,
        cpus: [usize; 2],
        before_ns: Option<u64>,
        after_ns: Option<u64>,
    ) -> Record {
        let text = r#"{"schema_version":2,"study":"s","cell":"c","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"netns","interval_ns":1,"outcome":"measured","topology":{"hosts":[],
            "links":[],"traffic":[]}}"#;
        let mut record = Record::from_line(text).unwrap();
        let [client, server] = HostName::PAIR;
        let cpu = |host, cpu| CpuId { host, cpu };
        for host in HostName::PAIR {
            let machine = machine.to_string();
            record.hosts.insert(
                host,
                HostRecord {
                    machine,
                    ..HostRecord::default()
                },
            );
        }
        record.cpu_distances = vec![CpuDistance {
            cpus: [cpu(client, cpus[0]), cpu(server, cpus[1])],
            before_ns,
            after_ns,
        }];
        record
    }

    #[test]
    fn a_trial_is_marked_by_either_round_trip_against_the_shortest_of_the_same_cpus() {
        let mut records = [
            record([0, 1], Some(510), Some(505)),
            record([0, 1], Some(50), Some(150)),
            record([0, 1], Some(52), Some(151)),
            record([0, 1], Some(510), None),
            record([0, 1], None, None),
            record([2, 3], Some(510), Some(520)),
            of_machine("b", [0, 1], Some(510), Some(520)),
        ];
        CpuDistance::mark_far(&mut records[..1]);
        assert!(!records[0].is_marked(), "nothing to compare with");
        CpuDistance::mark_far(&mut records);
        CpuDistance::mark_far(&mut records);
        let warned: Vec<usize> = records.iter().map(|record| record.warnings.len()).collect();
        assert_eq!(warned, [1, 0, 1, 1, 0, 0, 0]);
        assert!(records[2].is_marked());
        let line = records[3].to_line();
        assert_eq!(Record::from_line(&line).unwrap(), records[3]);
    }
}
