//! Finds the hosts of a trial that had CPUs of their own, so that CPU time can be attributed to them.

use std::collections::BTreeSet;

use tcpcost_study::{HostName, HostRecord, Reach, Record, Scope, StackKind};

use crate::derive::scope::scopes;

/// True if the CPUs of these hosts worked for no other host: no other host on their machines uses these CPUs,
/// and receive work runs where it belongs. The kernel's receive work in a namespace runs where it is steered
/// to. Our own TCP's runs in its own thread. On a loopback it runs on the sender's CPU.
pub(crate) fn has_own_cpus(record: &Record, scope: Scope) -> bool {
    let (inside, others): (Vec<HostName>, Vec<HostName>) =
        record.hosts.keys().partition(|host| scope.holds(**host));
    let machine = |host: &HostName| record.hosts[host].machine.as_str();
    let machines: BTreeSet<&str> = inside.iter().map(machine).collect();
    let mut neighbours = others
        .into_iter()
        .filter(|host| machines.contains(machine(host)))
        .peekable();
    if neighbours.peek().is_none() {
        return !inside.is_empty();
    }
    let own: BTreeSet<_> = inside
        .iter()
        .flat_map(|&host| record.cpus_of(host))
        .collect();
    let works_there = |host: HostName| {
        let topology = record.topology.host(host);
        topology.is_some_and(|of| match (of.stack, &of.reach) {
            (StackKind::User, _) => true,
            (StackKind::Kernel, Reach::Local | Reach::Memory) => false,
            (StackKind::Kernel, _) => is_steered(&record.hosts[&host]),
        })
    };
    let disjoint = |host: HostName| !record.cpus_of(host).any(|cpu| own.contains(&cpu));
    inside.iter().all(|&host| works_there(host))
        && neighbours.all(|host| disjoint(host) && works_there(host))
}

/// True if the receive work of all the host's ports is steered to CPUs. The runner chooses these CPUs.
fn is_steered(host: &HostRecord) -> bool {
    let is_set =
        |mask: &str| mask.contains(|digit: char| digit.is_ascii_hexdigit() && digit != '0');
    let masks = host.ports.values().map(|port| port.rps_cpus.as_deref());
    masks.map(Option::unwrap_or_default).all(is_set)
}

/// Smallest scopes to which CPU time can be attributed and that together cover all hosts: hosts, sets of
/// hosts, or all hosts together.
pub(crate) fn separable_scopes(record: &Record) -> Vec<Scope> {
    let hosts: BTreeSet<HostName> = record.hosts.keys().copied().collect();
    let mut left = hosts.clone();
    let mut separable = Vec::new();
    // Each host comes before the set that it belongs to.
    for scope in scopes(&hosts).into_iter().rev() {
        let holds_left = left.iter().any(|&host| scope.holds(host));
        if scope != Scope::All && holds_left && has_own_cpus(record, scope) {
            left.retain(|&host| !scope.holds(host));
            separable.push(scope);
        }
    }
    if left.is_empty() && !separable.is_empty() {
        separable.reverse();
        separable
    } else {
        vec![Scope::All]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    use tcpcost_study::{Bed, Environment, Knobs, Outcome, SCHEMA_VERSION, Shared, Topology};

    /// A star of two clients, with machine and CPU of client1, client2 and server.
    fn record(cpus: [(&str, usize); 3]) -> Record {
        let mut knobs = Knobs::default();
        knobs.set("topology", "star").unwrap();
        knobs.set("clients", "2").unwrap();
        let topology = Topology::of(Bed::Netns, &knobs).unwrap();
        let port = Environment {
            rps_cpus: Some("2".into()),
            ..Environment::default()
        };
        let host = |(machine, cpu): (&str, usize)| HostRecord {
            machine: machine.into(),
            cpus: vec![cpu],
            ports: BTreeMap::from([("tc".to_string(), port.clone().into())]).into(),
            ..HostRecord::default()
        };
        Record {
            schema_version: SCHEMA_VERSION,
            study: String::new(),
            cell: String::new(),
            knobs: knobs.into(),
            repetition: 0,
            attempt: 0,
            seed: 1,
            started: String::new(),
            bed: "netns".into(),
            captured: false,
            interval_ns: 1,
            took_ns: None,
            work: None,
            outcome: Outcome::Measured,
            warnings: Vec::new(),
            cpu_distances: Vec::new(),
            hosts: topology
                .names()
                .zip(cpus.map(|at| Box::new(host(at))))
                .collect(),
            topology: topology.into(),
            machines: Shared::default(),
        }
    }

    fn separable(record: &Record) -> Vec<String> {
        let names = separable_scopes(record).into_iter();
        names.map(crate::derive::scope::whose).collect()
    }

    #[test]
    fn hosts_with_cpus_of_their_own_are_told_apart_and_sets_where_members_share() {
        let each = record([("a", 0), ("a", 1), ("a", 2)]);
        assert_eq!(separable(&each), ["client1", "client2", "server"]);
        let shared = record([("a", 0), ("a", 0), ("a", 1)]);
        assert_eq!(separable(&shared), ["clients", "server"]);
        let with_server = record([("a", 0), ("a", 1), ("a", 1)]);
        assert_eq!(separable(&with_server), ["all hosts together"]);
    }

    #[test]
    fn the_same_number_on_two_machines_is_two_cpus() {
        let two = record([("a", 0), ("b", 0), ("c", 0)]);
        assert_eq!(separable(&two), ["client1", "client2", "server"]);
    }

    #[test]
    fn without_steering_only_hosts_alone_on_their_machine_are_told_apart() {
        let unsteered = |cpus| {
            let mut record = record(cpus);
            for host in record.hosts.values_mut() {
                host.ports.clear();
                host.ports
                    .insert("tc".into(), Environment::default().into());
            }
            separable(&record)
        };
        assert_eq!(
            unsteered([("a", 0), ("a", 1), ("a", 2)]),
            ["all hosts together"]
        );
        assert_eq!(
            unsteered([("a", 0), ("b", 1), ("c", 2)]),
            ["client1", "client2", "server"]
        );
    }
}
