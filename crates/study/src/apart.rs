//! Trials whose CPUs the hypervisor ran far apart: told by comparison with the other trials of a run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::record::{Record, Warning, WarningCode};

/// How often as long as the shortest a round trip must be for the CPUs to be apart. Clock rates move it
/// by a half; another last-level cache, or socket, by three to ten times.
const APART: u64 = 2;

/// The round trip of a cache line between the first CPU of the client and that of the server, just
/// before a trial's traffic and just after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CoreToCore {
    /// The client's CPU, then the server's.
    pub cpus: [usize; 2],
    /// Before, ns; absent where a CPU was not free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<u64>,
    /// After, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<u64>,
}

impl CoreToCore {
    fn both(&self) -> impl Iterator<Item = u64> {
        [self.before_ns, self.after_ns].into_iter().flatten()
    }

    /// Whether a round trip is far above the shortest of these CPUs.
    pub fn is_apart(ns: u64, nearest: u64) -> bool {
        ns > APART * nearest
    }

    /// The shortest round trip between two CPUs that any of the trials saw, ns.
    pub fn nearest(records: &[Record], cpus: [usize; 2]) -> Option<u64> {
        let trials = records
            .iter()
            .filter_map(|record| record.core_to_core.as_ref());
        let same = trials.filter(|trial| trial.cpus == cpus);
        same.flat_map(CoreToCore::both).min()
    }

    /// Marks the trials of a run before or after which a round trip took more than twice the run's
    /// shortest of the same CPUs. As a run goes on a shorter one may mark earlier trials, so this is asked
    /// again whenever all are looked at; a trial is marked once.
    pub fn mark_apart(records: &mut [Record]) {
        let mut nearest: BTreeMap<[usize; 2], u64> = BTreeMap::new();
        for trial in records
            .iter()
            .filter_map(|record| record.core_to_core.as_ref())
        {
            for ns in trial.both() {
                let least = nearest.entry(trial.cpus).or_insert(ns);
                *least = ns.min(*least);
            }
        }
        let is_unmarked = |record: &&mut Record| {
            let mut codes = record.warnings.iter().map(|warning| warning.code);
            !codes.any(|code| code == WarningCode::CpusApart)
        };
        for record in records.iter_mut().filter(is_unmarked) {
            let Some(trial) = &record.core_to_core else {
                continue;
            };
            let (Some(&nearest), Some(farthest)) = (nearest.get(&trial.cpus), trial.both().max())
            else {
                continue;
            };
            if CoreToCore::is_apart(farthest, nearest) {
                let [client, server] = trial.cpus;
                let text = format!(
                    "a cache line went from CPU {client} to CPU {server} and back in {farthest} ns, in {nearest} ns in the nearest trial: the hypervisor ran them far apart, where the same work costs more cycles"
                );
                let code = WarningCode::CpusApart;
                record.warnings.push(Warning { code, text });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(cpus: [usize; 2], before_ns: Option<u64>, after_ns: Option<u64>) -> Record {
        let text = r#"{"schema_version":1,"study":"s","cell":"c","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"netns","interval_ns":1,"outcome":"measured","host":{"kernel":"",
            "machine":"","cpu":"","cpus":2,"memory_bytes":1,"clocksource":"","cpu_accounting":"",
            "cmdline":"","tcpcost":"","privileged":true}}"#;
        let mut record = Record::from_line(text).unwrap();
        assert_eq!(record.core_to_core, None, "older records have none");
        record.core_to_core = Some(CoreToCore {
            cpus,
            before_ns,
            after_ns,
        });
        record
    }

    #[test]
    fn a_trial_is_marked_by_either_round_trip_against_the_shortest_of_the_same_cpus() {
        let mut records = [
            record([0, 1], Some(510), Some(505)),
            record([0, 1], Some(50), Some(100)),
            record([0, 1], Some(52), Some(101)),
            record([0, 1], Some(510), None),
            record([0, 1], None, None),
            record([2, 3], Some(510), Some(520)),
        ];
        CoreToCore::mark_apart(&mut records[..1]);
        assert!(!records[0].is_marked(), "nothing to compare with");
        CoreToCore::mark_apart(&mut records);
        CoreToCore::mark_apart(&mut records);
        let warned: Vec<usize> = records.iter().map(|record| record.warnings.len()).collect();
        assert_eq!(warned, [1, 0, 1, 1, 0, 0]);
        assert!(records[2].is_marked());
        let line = records[3].to_line();
        assert_eq!(Record::from_line(&line).unwrap(), records[3]);
    }
}
