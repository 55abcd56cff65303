//! Steps of a trial that concern all hosts: connections, shared CPUs, distances of CPUs, and offsets of clocks.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use tcpcost_agent::protocol::{Answer, Ask, clock_ns};
use tcpcost_study::{
    Bed as Kind, ClockOffset, CpuDistance, CpuId, Environment, HostName, MeterName, Side, Topology,
};

use super::ask_error::{AskError, out_of_turn};
use super::bed::Bed;
use super::events::Events;
use super::placement::Placement;

/// A value for each host.
pub type ByHost<T> = BTreeMap<HostName, T>;

/// State of a host's ports, by device.
pub type Ports = BTreeMap<String, Environment>;

/// Number of questions for an agent's clock, of which the quickest answer counts.
const CLOCK_QUESTIONS: usize = 3;
/// Number of questions for the clock of a named host. There are more, because the path to the host may be slow at times.
const REMOTE_CLOCK_QUESTIONS: usize = 8;

/// Makes the connections of a trial: starts the hosts that listen, then those that connect, then those that forward.
pub fn connect(
    bed: &mut Bed,
    topology: &Topology,
    events: &Events,
    groups: usize,
    ports: &mut ByHost<Ports>,
) -> Result<(), AskError> {
    let mut listening = ByHost::new();
    // Loaded eBPF programs, by machine.
    let mut loaded: BTreeMap<String, BTreeMap<MeterName, String>> = BTreeMap::new();
    for host in topology.of_side(Side::Listens) {
        let answer = bed.nodes.call(events, host, &Ask::Listen)?;
        let Answer::Listening {
            addresses,
            loaded: more,
        } = answer
        else {
            return Err(out_of_turn(host, &answer));
        };
        let machine = bed.nodes.hello(host).machine.clone();
        loaded.entry(machine).or_default().extend(more);
        listening.insert(host, addresses);
    }
    let of_machine = |bed: &Bed, host| {
        let machine = &bed.nodes.hello(host).machine;
        loaded.get(machine).cloned().unwrap_or_default()
    };
    let mut answers = Vec::new();
    let mut connecting = ByHost::new();
    for on in topology.of_side(Side::Connects) {
        let mut each = Vec::new();
        for traffic in topology.traffic.iter().filter(|traffic| traffic.on == on) {
            let mut targets = listening[&traffic.to].clone();
            let mut from = traffic.to;
            if let Some(relay) = topology.relay_between(on, traffic.to) {
                set_address(&mut targets, topology, traffic.to, relay);
                let ask = Ask::Relay { targets };
                let answer = bed.nodes.call(events, relay, &ask)?;
                let Answer::Listening { addresses, .. } = answer else {
                    return Err(out_of_turn(relay, &answer));
                };
                (targets, from) = (addresses, relay);
            }
            set_address(&mut targets, topology, from, on);
            each.push(targets);
        }
        let targets = interleave(&each, groups);
        let loaded = of_machine(bed, on);
        let connect = Ask::Connect { targets, loaded };
        if bed.kind == Kind::Hosts {
            // Separate machines connect at the same time.
            connecting.insert(on, connect);
        } else {
            answers.push((on, bed.nodes.call(events, on, &connect)?));
        }
    }
    let hosts: Vec<HostName> = connecting.keys().copied().collect();
    let all = bed
        .nodes
        .call_all(events, &hosts, |host| connecting[&host].clone());
    answers.extend(all.map_err(|error| unreached(error, topology, &listening))?);
    for host in topology.of_side(Side::Listens) {
        answers.push((host, bed.nodes.call(events, host, &Ask::Accepted)?));
    }
    for host in topology.names().filter(|&host| topology.forwards(host)) {
        let loaded = of_machine(bed, host);
        answers.push((
            host,
            bed.nodes.call(events, host, &Ask::Observe { loaded })?,
        ));
    }
    for (host, answer) in answers {
        let Answer::Connected {
            congestion_control,
            mss,
            connection,
            ..
        } = answer
        else {
            return Err(out_of_turn(host, &answer));
        };
        for port in ports
            .get_mut(&host)
            .into_iter()
            .flat_map(BTreeMap::values_mut)
        {
            port.congestion_control.clone_from(&congestion_control);
            port.mss = mss;
            port.connection.clone_from(&connection);
        }
    }
    Ok(())
}

/// Adds the name of the server that a host could not connect to, if the reason has the server's address.
fn unreached(
    error: AskError,
    topology: &Topology,
    listening: &ByHost<Vec<SocketAddr>>,
) -> AskError {
    let AskError::Failed(on, reason) = error else {
        return error;
    };
    let servers = topology.traffic.iter().filter(|traffic| traffic.on == on);
    let found = servers.into_iter().find_map(|traffic| {
        let mut targets = listening.get(&traffic.to)?.clone();
        set_address(&mut targets, topology, traffic.to, on);
        targets.into_iter().find_map(|target| {
            let (_, said) = reason.split_once(&format!(" {target}: "))?;
            Some((traffic.to, target, said.to_string()))
        })
    });
    match found {
        Some((to, target, reason)) => AskError::Unreached {
            on,
            to,
            target,
            reason,
        },
        None => AskError::Failed(on, reason),
    }
}

/// Interleaves the sockets of several hosts to one list, from which connections take their targets in turn. Each host gets the same number of
/// connections, and each of its sockets as many as if the host were the only one. Both in `each` and in the result, sockets are sorted by
/// group.
fn interleave(each: &[Vec<SocketAddr>], groups: usize) -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for group in 0..groups {
        let of_group = |sockets: &'_ Vec<SocketAddr>| {
            let ports = sockets.len() / groups;
            sockets[group * ports..(group + 1) * ports].to_vec()
        };
        let hosts: Vec<Vec<SocketAddr>> = each.iter().map(of_group).collect();
        let turns = hosts.iter().map(Vec::len).fold(1, least_common_multiple);
        for turn in 0..turns {
            all.extend(hosts.iter().map(|sockets| sockets[turn % sockets.len()]));
        }
    }
    all
}

fn least_common_multiple(a: usize, b: usize) -> usize {
    let (mut greater, mut less) = (a.max(b), a.min(b));
    while less > 0 {
        (greater, less) = (less, greater % less);
    }
    a / greater * b
}

/// Sets the address of sockets of `host` to the one by which `from` reaches it.
fn set_address(sockets: &mut [SocketAddr], topology: &Topology, host: HostName, from: HostName) {
    if let Some(address) = topology.address_of(host, from) {
        sockets.iter_mut().for_each(|socket| socket.set_ip(address));
    }
}

/// CPUs of each host without those of earlier hosts in the topology's order, and true if no earlier host has any of its CPUs.
pub struct OwnCpus(ByHost<(Vec<usize>, bool)>);

impl OwnCpus {
    /// Finds the CPUs of all hosts.
    pub fn new(bed: &Bed, topology: &Topology, placed: &Placement) -> OwnCpus {
        let mut taken: Vec<(&str, usize)> = Vec::new();
        let mut first = ByHost::new();
        for host in topology.names() {
            let machine = bed.nodes.hello(host).machine.as_str();
            let own = |cpu: &&usize| !taken.contains(&(machine, **cpu));
            let own: Vec<usize> = placed[&host].iter().filter(own).copied().collect();
            taken.extend(own.iter().map(|&cpu| (machine, cpu)));
            let has_all = own.len() == placed[&host].len();
            first.insert(host, (own, has_all));
        }
        OwnCpus(first)
    }

    /// CPUs of a host that no earlier host has.
    pub fn own(&self, host: HostName) -> Vec<usize> {
        self.0[&host].0.clone()
    }

    /// True if no earlier host has any CPU of this host.
    pub fn has_all(&self, host: HostName) -> bool {
        self.0[&host].1
    }
}

/// Measures the distance of each pair of CPUs of [`cpu_pairs`].
pub fn distances(
    bed: &mut Bed,
    topology: &Topology,
    placed: &Placement,
    events: &Events,
) -> Result<Vec<CpuDistance>, AskError> {
    let mut distances = Vec::new();
    for cpus in cpu_pairs(bed, topology, placed) {
        distances.push(CpuDistance {
            cpus,
            before_ns: ask_distance(bed, cpus, events)?,
            after_ns: None,
        });
    }
    Ok(distances)
}

/// The first CPUs of each two hosts of one machine that talk with each other and share no CPU. Each pair of CPUs is there once.
pub fn cpu_pairs(bed: &Bed, topology: &Topology, placed: &Placement) -> Vec<[CpuId; 2]> {
    let mut seen = Vec::new();
    let mut pairs = Vec::new();
    for traffic in &topology.traffic {
        let (on, to) = (&placed[&traffic.on], &placed[&traffic.to]);
        let machine = &bed.nodes.hello(traffic.on).machine;
        let is_one = *machine == bed.nodes.hello(traffic.to).machine;
        let between = (machine.clone(), on[0], to[0]);
        if is_one && !on.iter().any(|cpu| to.contains(cpu)) && !seen.contains(&between) {
            seen.push(between);
            let id = |host, cpus: &[usize]| CpuId { host, cpu: cpus[0] };
            pairs.push([id(traffic.on, on), id(traffic.to, to)]);
        }
    }
    pairs
}

/// Measures the distance of two CPUs, by the agent of the first one's host. `None` if a CPU is not free.
pub fn ask_distance(
    bed: &mut Bed,
    cpus: [CpuId; 2],
    events: &Events,
) -> Result<Option<u64>, AskError> {
    let host = cpus[0].host;
    let ask = Ask::Distance {
        cpus: cpus.map(|id| id.cpu),
    };
    match bed.nodes.call(events, host, &ask)? {
        Answer::Distance { round_trip_ns } => Ok(round_trip_ns),
        answer => Err(out_of_turn(host, &answer)),
    }
}

/// Measures how far an agent's clock is ahead of the command's.
pub fn clock_offset(
    bed: &mut Bed,
    host: HostName,
    events: &Events,
) -> Result<ClockOffset, AskError> {
    let asked = match bed.kind {
        Kind::Hosts => REMOTE_CLOCK_QUESTIONS,
        _ => CLOCK_QUESTIONS,
    };
    let mut best: Option<ClockOffset> = None;
    for _ in 0..asked {
        let asked_ns = clock_ns();
        let answer = bed.nodes.call(events, host, &Ask::Clock)?;
        let answered_ns = clock_ns();
        let Answer::Clock { now_ns } = answer else {
            return Err(out_of_turn(host, &answer));
        };
        // The error is half of the round trip, so the quickest answer has the smallest error.
        let error_ns = (answered_ns - asked_ns).div_ceil(2);
        let offset_ns = now_ns.wrapping_sub(asked_ns + error_ns).cast_signed();
        // An agent on this machine uses the same clock, unless it is in a time namespace. On a busy machine an answer is late by some
        // time slices, and half of that would look like an offset.
        let is_own = bed.kind != Kind::Hosts && offset_ns.unsigned_abs() <= error_ns;
        let offset_ns = if is_own { 0 } else { offset_ns };
        if best.is_none_or(|best| error_ns < best.error_ns) {
            best = Some(ClockOffset {
                offset_ns,
                error_ns,
            });
        }
    }
    Ok(best.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_host_gets_as_many_connections_as_if_it_were_the_only_one() {
        let sockets = |host: u16, count: u16| -> Vec<SocketAddr> {
            let socket = |port| SocketAddr::from(([10, 0, 0, 1], 100 * host + port));
            (0..count).map(socket).collect()
        };
        // Two groups; the second host has twice as many ports for each.
        let each = [sockets(1, 2), sockets(2, 4), sockets(3, 4)];
        let all = interleave(&each, 2);
        let (flows, hosts) = (8, each.len());
        for (group, targets) in all.chunks(all.len() / 2).enumerate() {
            for (host, sockets) in each.iter().enumerate() {
                let ports = sockets.len() / 2;
                for (port, socket) in sockets[group * ports..(group + 1) * ports]
                    .iter()
                    .enumerate()
                {
                    let to = (0..flows * hosts)
                        .filter(|number| targets[number % targets.len()] == *socket);
                    let alone = (0..flows).filter(|number| number % ports == port).count();
                    assert_eq!(to.count(), alone, "group {group}, host {host}, port {port}");
                }
            }
        }
        assert_eq!(interleave(&each[..1], 2), each[0]);
    }
}
