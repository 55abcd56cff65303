//! Distance of two CPUs, measured as a cache line's round trip. Within a run it may take two
//! clearly different times, because a hypervisor moves the CPUs; this module finds the trials that
//! met the longer one.

use std::collections::BTreeMap;

use crate::record::{CpuDistance, CpuId, Record};

/// Least ratio of the medians of far and near round trips. Clock rates change a round trip by a
/// half. Two threads of one core (30 to 40 ns) and two cores (60 to 75 ns) are within 2.5, and the
/// same work cost the same in both. Another last-level cache or socket is five to ten times as
/// distant (300 to 510 ns).
const FAR: f64 = 3.0;
/// Least share and least number of round trips in either group: one rare reading makes no group.
const SHARE_LEAST: f64 = 0.1;
const GROUP_LEAST: usize = 3;

/// Two CPUs of a machine.
type CpuPair = (String, [usize; 2]);

/// Two groups of the round trips between two CPUs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NearAndFar {
    /// Median of the near group, ns.
    pub near_ns: u64,
    /// Shortest of the far group, ns.
    pub far_from_ns: u64,
}

impl NearAndFar {
    /// Splits round trips into two groups so that their logarithms vary least within each. `None`
    /// if a group is too small, or the groups are too close to each other.
    pub fn of(round_trips_ns: impl IntoIterator<Item = u64>) -> Option<NearAndFar> {
        let mut sorted: Vec<u64> = round_trips_ns.into_iter().collect();
        sorted.sort_unstable();
        let logs: Vec<f64> = sorted.iter().map(|&ns| (ns.max(1) as f64).ln()).collect();
        let (n, all) = (logs.len(), logs.iter().sum::<f64>());
        let mut best: Option<(f64, usize)> = None;
        let mut below = 0.0;
        for at in 1..n {
            below += logs[at - 1];
            let (low, high) = (at as f64, (n - at) as f64);
            // Variance between the groups, except for a constant factor.
            let between = low * high * (below / low - (all - below) / high).powi(2);
            if best.is_none_or(|(most, _)| between > most) {
                best = Some((between, at));
            }
        }
        let (_, at) = best?;
        let (near, far) = sorted.split_at(at);
        let least = GROUP_LEAST.max((SHARE_LEAST * n as f64).ceil() as usize);
        let median = |group: &[u64]| group[group.len() / 2];
        let is_apart = median(far) as f64 > FAR * median(near) as f64;
        (near.len().min(far.len()) >= least && is_apart).then(|| NearAndFar {
            near_ns: median(near),
            far_from_ns: far[0],
        })
    }
}

/// CPUs of a trial that is in the far group of the run's round trips.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DistantCpus {
    /// Both CPUs.
    pub cpus: [CpuId; 2],
    /// Longer of the trial's round trips, ns.
    pub ns: u64,
    /// Median of the near trials, ns.
    pub near_ns: u64,
}

impl CpuDistance {
    /// Longer of both round trips, ns. `None` if neither was measured.
    fn longest(&self) -> Option<u64> {
        self.before_ns.max(self.after_ns)
    }

    /// Machine and CPUs of this distance. `None` if the record does not have the host.
    fn between(&self, record: &Record) -> Option<CpuPair> {
        let (machine, _) = record.place_of(self.cpus[0])?;
        Some((machine.to_string(), self.cpus.map(|id| id.cpu)))
    }

    /// Two groups of the round trips between two CPUs of a machine. `None` if there are not two
    /// groups.
    pub fn near_and_far(records: &[Record], machine: &str, cpus: [usize; 2]) -> Option<NearAndFar> {
        let place = (machine.to_string(), cpus);
        let of_trial = |record: &Record| {
            let mut distances = record.cpu_distances.iter();
            distances
                .find(|distance| distance.between(record).as_ref() == Some(&place))?
                .longest()
        };
        NearAndFar::of(records.iter().filter_map(of_trial))
    }

    /// Distant CPUs of each trial, compared with all given trials. `None` for a trial whose CPUs
    /// were not distant.
    pub fn distant(records: &[Record]) -> Vec<Option<DistantCpus>> {
        let mut round_trips: BTreeMap<CpuPair, Vec<u64>> = BTreeMap::new();
        for record in records {
            for distance in &record.cpu_distances {
                if let Some((between, ns)) = distance.between(record).zip(distance.longest()) {
                    round_trips.entry(between).or_default().push(ns);
                }
            }
        }
        let groups: BTreeMap<CpuPair, NearAndFar> = round_trips
            .into_iter()
            .filter_map(|(between, all)| Some((between, NearAndFar::of(all)?)))
            .collect();
        let distant = |record: &Record| {
            record.cpu_distances.iter().find_map(|distance| {
                let groups = groups.get(&distance.between(record)?)?;
                let ns = distance.longest()?;
                (ns >= groups.far_from_ns).then_some(DistantCpus {
                    cpus: distance.cpus,
                    ns,
                    near_ns: groups.near_ns,
                })
            })
        };
        records.iter().map(distant).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::CpuId;
    use crate::record::HostRecord;
    use tcpcost_knobs::HostName;

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
                }
                .into(),
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
    fn a_trial_is_distant_by_either_round_trip_compared_with_the_same_cpus() {
        let near = || record([0, 1], Some(60), Some(70));
        let mut records = vec![record([0, 1], None, None), record([2, 3], Some(510), None)];
        records.push(of_machine("b", [0, 1], Some(510), Some(520)));
        records.extend([near(), near(), near()]);
        assert_eq!(CpuDistance::distant(&records), [None; 6]);
        let far = [
            (Some(420), Some(60)),
            (Some(60), Some(400)),
            (Some(410), None),
        ];
        records.extend(far.map(|(before, after)| record([0, 1], before, after)));
        let found = CpuDistance::distant(&records);
        let ns: Vec<Option<u64>> = found.iter().map(|one| Some(one.as_ref()?.ns)).collect();
        let expected = [Some(420), Some(400), Some(410)];
        assert_eq!((&ns[..6], &ns[6..]), (&[None; 6][..], &expected[..]));
        assert_eq!(found[6].unwrap().near_ns, 70);
        let groups = CpuDistance::near_and_far(&records, "a", [0, 1]).unwrap();
        assert_eq!(groups.far_from_ns, 400);
        assert_eq!(CpuDistance::near_and_far(&records, "b", [0, 1]), None);
    }

    #[test]
    fn a_rare_short_reading_and_a_spread_make_no_groups() {
        let spread = (0..57).map(|place| 112 + place);
        assert_eq!(NearAndFar::of(spread.clone().chain([36])), None);
        assert_eq!(
            NearAndFar::of(spread.chain([36, 37, 36])),
            None,
            "below a tenth"
        );
        assert_eq!(
            NearAndFar::of([65, 65, 65, 30, 30, 30]),
            None,
            "threads of one core"
        );
        assert_eq!(NearAndFar::of([510; 9]), None);
        assert_eq!(NearAndFar::of([]), None);
        let both = NearAndFar::of([70, 72, 75, 79, 80, 425, 430, 440, 449]);
        let expected = NearAndFar {
            near_ns: 75,
            far_from_ns: 425,
        };
        assert_eq!(both, Some(expected));
    }
}
