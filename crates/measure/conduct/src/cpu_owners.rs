//! Choice of the hosts that get CPU time by owner: hosts of a machine where a CPU works for several hosts.

use std::collections::BTreeSet;

use tcpcost_agent::protocol::CpuOwner;
use tcpcost_study::{HostName, Knobs, Reach, StackKind, Topology};

use super::bed::Bed;
use super::phases::ByHost;
use super::placement::Placement;

/// Places of the hosts for which `exact` counts CPU time by owner. Hosts of a machine have none if each has its own CPUs, because counting
/// by owner costs CPU time, or if time would be counted for the wrong host.
pub fn cpu_owners(
    bed: &Bed,
    topology: &Topology,
    placed: &Placement,
    knobs: &Knobs,
) -> ByHost<CpuOwner> {
    let mut owners = ByHost::new();
    for machine in bed.machines.keys() {
        let mut hosts = bed.nodes.on_machine(machine);
        hosts.retain(|&host| topology.host(host).is_some() && placed.contains_key(&host));
        let machine = MachineHosts {
            hosts: &hosts,
            topology,
            placed,
        };
        let steers = |host| bed.steers(host, knobs);
        let process = |host| bed.nodes.process(host);
        if machine.needs_owners(steers) && machine.can_have_owners(steers, process) {
            let count = u32::try_from(hosts.len()).expect("there are at most some hundred hosts");
            let places = (0..count).map(|index| CpuOwner { index, count });
            owners.extend(hosts.iter().copied().zip(places));
        }
    }
    owners
}

/// Hosts of one machine.
struct MachineHosts<'a> {
    hosts: &'a [HostName],
    topology: &'a Topology,
    placed: &'a Placement,
}

impl MachineHosts<'_> {
    /// True if a CPU works for several hosts, because they share it or because receive work is done on the sender's CPU.
    fn needs_owners(&self, steers: impl Fn(HostName) -> bool) -> bool {
        let mut cpus = BTreeSet::new();
        let mut of_hosts = self.hosts.iter().flat_map(|host| &self.placed[host]);
        let shares_cpu = !of_hosts.all(|cpu| cpus.insert(cpu));
        let works_elsewhere = |host| self.is_local(host) || !steers(host);
        let mut kernels = self.of_stack(StackKind::Kernel);
        self.hosts.len() > 1 && (shares_cpu || kernels.any(works_elsewhere))
    }

    /// True if all work of each host is in tasks of its own process or for sockets of its own.
    fn can_have_owners(
        &self,
        steers: impl Fn(HostName) -> bool,
        process: impl Fn(HostName) -> usize,
    ) -> bool {
        let processes: BTreeSet<usize> = self.hosts.iter().map(|&host| process(host)).collect();
        // Forwarded packets have no socket at the host that forwards.
        let has_sockets =
            |&host| self.topology.side(host).is_some() || self.topology.relays.contains(&host);
        // Without steering the kernel receives a packet from a TAP in the task that writes it.
        let is_written = self.of_stack(StackKind::User).next().is_some();
        let in_writer = is_written && !self.of_stack(StackKind::Kernel).all(steers);
        processes.len() == self.hosts.len() && self.hosts.iter().all(has_sockets) && !in_writer
    }

    fn of_stack(&self, stack: StackKind) -> impl Iterator<Item = HostName> {
        let hosts = self.hosts.iter().copied();
        hosts.filter(move |&host| {
            let found = self.topology.host(host);
            found.is_some_and(|found| found.stack == stack)
        })
    }

    fn is_local(&self, host: HostName) -> bool {
        let found = self.topology.host(host);
        found.is_some_and(|found| found.reach == Reach::Local)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::Bed as Kind;

    fn topology(bed: Kind, set: &[(&str, &str)]) -> Topology {
        let mut knobs = Knobs::default();
        for (name, value) in set {
            knobs.set(name, value).unwrap();
        }
        Topology::of(bed, &knobs).unwrap()
    }

    /// Results of `needs_owners` and `can_have_owners`. `is_one`: one process is all hosts.
    fn owners(topology: &Topology, cpus: &[usize], steers: bool, is_one: bool) -> (bool, bool) {
        let hosts: Vec<HostName> = topology.names().collect();
        let placed = hosts.iter().copied().zip(cpus.iter().map(|&cpu| vec![cpu]));
        let machine = MachineHosts {
            hosts: &hosts,
            topology,
            placed: &placed.collect(),
        };
        let process = |host| match is_one {
            true => 0,
            false => hosts.iter().position(|&one| one == host).unwrap(),
        };
        let needs = machine.needs_owners(|_| steers);
        (needs, machine.can_have_owners(|_| steers, process))
    }

    #[test]
    fn owners_are_needed_where_a_cpu_works_for_two_hosts() {
        let pair = topology(Kind::Netns, &[]);
        assert_eq!(owners(&pair, &[0, 1], true, false), (false, true));
        assert_eq!(owners(&pair, &[0, 0], true, false), (true, true));
        assert_eq!(owners(&pair, &[0, 1], false, false), (true, true));
        let local = topology(Kind::Loopback, &[]);
        assert_eq!(owners(&local, &[0, 1], true, false), (true, true));
    }

    #[test]
    fn owners_cannot_be_had_where_work_has_no_socket_or_no_process_of_its_own() {
        let pair = topology(Kind::Netns, &[]);
        assert_eq!(owners(&pair, &[0, 0], true, true), (true, false));
        let tap = topology(Kind::Tap, &[("client.stack", "user")]);
        assert_eq!(owners(&tap, &[0, 0], true, false), (true, true));
        assert_eq!(owners(&tap, &[0, 0], false, false), (true, false));
        let chain = topology(Kind::Netns, &[("topology", "chain")]);
        assert_eq!(owners(&chain, &[0, 0, 0], true, false), (true, false));
        let relays = [("topology", "chain"), ("relay_mode", "copy")];
        let relayed = topology(Kind::Netns, &relays);
        assert_eq!(owners(&relayed, &[0, 0, 0], true, false), (true, true));
    }
}
