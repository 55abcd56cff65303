//! The machines that records were made on, and the hosts that were not on one machine in one setting.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_study::{HostName, Machine, Record};

use crate::derive::facts::facts;

/// Machines of a study's records.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machines {
    /// Machines and settings, each once: equal machines of several hosts are one entry.
    pub each: Vec<Machine>,
    /// Hosts whose machine or setting changed between records, each with the fields that changed.
    pub changed: BTreeMap<HostName, BTreeSet<String>>,
}

impl Machines {
    /// Collects the machines of `records`. A host is compared with itself only: two hosts may differ.
    pub(crate) fn of(records: &[&Record]) -> Machines {
        let mut found = Machines::default();
        let mut by_host: BTreeMap<HostName, Machine> = BTreeMap::new();
        for record in records {
            for machine in record.machines.values() {
                let mut known = found.each.iter_mut();
                match known.find(|known| changes(known, machine).is_empty()) {
                    Some(known) => keep_common(known, machine),
                    None => found.each.push(Machine::clone(machine)),
                }
            }
            for (&host, of_host) in &record.hosts {
                let Some(machine) = record.machines.get(&of_host.machine) else {
                    continue;
                };
                let known = by_host
                    .entry(host)
                    .or_insert_with(|| Machine::clone(machine));
                let changes = changes(known, machine);
                if changes.is_empty() {
                    keep_common(known, machine);
                } else {
                    found.changed.entry(host).or_default().extend(changes);
                }
            }
        }
        found
    }
}

/// Names of the settings that differ. Measured fields are no settings: each process measures the rate of the time-stamp
/// counter anew, and a kernel reports a little more or less memory after each boot. A sysctl that only one of both has
/// is no difference: beds leave the machine more or fewer of them.
fn changes(one: &Machine, other: &Machine) -> BTreeSet<String> {
    let settings = |machine: &Machine| -> BTreeMap<String, String> {
        let set = Machine {
            tsc_hz: None,
            memory_bytes: 0,
            sysctls: BTreeMap::new(),
            ..machine.clone()
        };
        facts(&set).into_iter().collect()
    };
    let (before, after) = (settings(one), settings(other));
    let names = before.keys().chain(after.keys());
    let fields = names.filter(|name| before.get(*name) != after.get(*name));
    let sysctls = one.sysctls.iter().filter(|(name, value)| {
        let now = other.sysctls.get(*name);
        now.is_some_and(|now| now != *value)
    });
    let sysctls = sysctls.map(|(name, _)| name);
    fields.chain(sysctls).cloned().collect()
}

/// Keeps the sysctls that both have.
fn keep_common(known: &mut Machine, other: &Machine) {
    let sysctls = &mut known.sysctls;
    sysctls.retain(|name, _| other.sysctls.contains_key(name));
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::HostRecord;

    /// A record of a trial whose hosts were on these machines.
    fn record(hosts: &[(HostName, &str, Machine)]) -> Record {
        let text = r#"{"schema_version":2,"study":"s","cell":"c","knobs":{},"repetition":0,"attempt":0,
            "seed":1,"started":"","bed":"hosts","interval_ns":1,"outcome":"measured","topology":{"hosts":[],
            "links":[],"traffic":[]}}"#;
        let mut record = Record::from_line(text).unwrap();
        for (host, id, machine) in hosts {
            record
                .machines
                .insert(id.to_string(), machine.clone().into());
            let of_host = HostRecord {
                machine: id.to_string(),
                ..HostRecord::default()
            };
            record.hosts.insert(*host, of_host.into());
        }
        record
    }

    fn machine(kernel: &str, tsc_hz: u64) -> Machine {
        Machine {
            kernel: kernel.into(),
            tsc_hz: Some(tsc_hz),
            memory_bytes: tsc_hz,
            ..Machine::default()
        }
    }

    fn of(records: &[Record]) -> (usize, Vec<String>) {
        let found = Machines::of(&records.iter().collect::<Vec<_>>());
        let changed = found.changed.iter();
        let changed = changed.map(|(host, fields)| format!("{host} {fields:?}"));
        (found.each.len(), changed.collect())
    }

    #[test]
    fn a_host_is_compared_with_itself_and_by_what_is_set() {
        let [client, server] = HostName::PAIR;
        let pair = |client_kernel: &str, tsc_hz| {
            record(&[
                (client, "a", machine(client_kernel, tsc_hz)),
                (server, "b", machine("6.18", tsc_hz + 1)),
            ])
        };
        let resumed = [pair("6.12", 2_500_000_000), pair("6.12", 2_500_000_123)];
        assert_eq!(of(&resumed), (2, vec![]), "two machines, each as it was");
        let alike = [pair("6.18", 2_500_000_000), pair("6.18", 2_500_000_123)];
        assert_eq!(of(&alike), (1, vec![]), "two machines of one kind");
        let updated = [pair("6.12", 2_500_000_000), pair("6.18", 2_500_000_000)];
        assert_eq!(of(&updated), (2, vec![r#"client {"kernel"}"#.to_string()]));
    }

    #[test]
    fn beds_that_leave_the_host_other_sysctls_are_of_one_machine() {
        let record = |sysctls: &[(&str, &str)]| {
            let text = |&(name, value): &(&str, &str)| (name.to_string(), value.to_string());
            let machine = Machine {
                sysctls: sysctls.iter().map(text).collect(),
                ..Machine::default()
            };
            record(&[(HostName::CLIENT, "a", machine)])
        };
        let tap = record(&[("net.core.a", "1")]);
        let memory = record(&[("net.core.a", "1"), ("net.ipv4.b", "2")]);
        assert_eq!(of(&[memory.clone(), tap.clone()]), (1, vec![]));
        let changed = record(&[("net.core.a", "3"), ("net.ipv4.b", "2")]);
        let expected = vec![r#"client {"net.core.a"}"#.to_string()];
        assert_eq!(of(&[tap, memory, changed]), (2, expected));
    }
}
