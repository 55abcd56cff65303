//! Placement: the CPUs that the threads of each host run on.

use std::collections::{BTreeMap, BTreeSet};

use tcpcost_host::cpus::Cpus;
use tcpcost_study::{HostName, KnobError, Side, Topology};

/// Value of the knob `placement` with which both ends take turns in one thread.
pub const ONE_THREAD: &str = "one-thread";

/// CPUs by host.
pub type Placement = BTreeMap<HostName, Vec<usize>>;

/// Chooses the CPUs of the hosts of one machine. The knob `cpus` has priority. Otherwise `placement` gives one CPU to all hosts that
/// connect, one to all that listen, and a CPU of its own to a host in the middle if one is free.
///
/// `two-cpus` takes the highest CPU, because CPU 0 serves most interrupts and boot-time work, and the one that is nearest to it
/// ([`Cpus::further`]). `auto` is `two-cpus`, but `same-cpu` on a machine of one CPU.
///
/// # Errors
/// There are too few CPUs or no siblings, or a listed CPU cannot be used.
pub fn place(
    machine: &Cpus,
    placement: &str,
    topology: &Topology,
    hosts: &[HostName],
) -> Result<Placement, KnobError> {
    let placement = match placement {
        "auto" if machine.cpus.len() == 1 => "same-cpu",
        "auto" => "two-cpus",
        named => named,
    };
    let mut placed = Placement::new();
    for &host in hosts {
        if let Some(given) = topology.host(host).and_then(|host| host.cpus.as_ref()) {
            let given: BTreeSet<usize> = given.iter().copied().collect();
            if let Some(cpu) = given.iter().find(|cpu| !machine.cpus.contains(cpu)) {
                let there = &machine.cpus;
                let reason = format!(
                    "CPU {cpu} is not online here or not allowed to this process; available are {there:?}"
                );
                return Err(KnobError::new(format!("{host}.cpus"), reason));
            }
            placed.insert(host, given.into_iter().collect());
        }
    }
    if placement == "cpu-each" {
        for &host in hosts {
            if !placed.contains_key(&host) {
                let taken: Vec<usize> = placed.values().flatten().copied().collect();
                let cpus = further_cpus(machine, "two-cpus", &taken)?;
                placed.insert(host, cpus);
            }
        }
        return Ok(placed);
    }
    let of_side = |side: Side| {
        hosts
            .iter()
            .filter(move |&&host| topology.side(host) == Some(side))
    };
    // A host without `cpus` gets the CPUs that are listed for other hosts of its side.
    let given = |side: Side| {
        let given = of_side(side).filter_map(|host| placed.get(host)).flatten();
        let given: BTreeSet<usize> = given.copied().collect();
        (!given.is_empty()).then(|| given.into_iter().collect::<Vec<usize>>())
    };
    let has = |side: Side| of_side(side).next().is_some();
    let (connects, listens) = match (given(Side::Connects), given(Side::Listens)) {
        // All hosts of this machine are on one side: the other side needs no CPU here.
        (Some(cpus), None) | (None, Some(cpus)) if !(has(Side::Connects) && has(Side::Listens)) => {
            (cpus.clone(), cpus)
        }
        (None, None) if !(has(Side::Connects) && has(Side::Listens)) => {
            cpus_of_both_sides(machine, "same-cpu")?
        }
        (Some(connects), Some(listens)) => (connects, listens),
        (Some(connects), None) => {
            let listens = further_cpus(machine, placement, &connects)?;
            (connects, listens)
        }
        (None, Some(listens)) => (further_cpus(machine, placement, &listens)?, listens),
        (None, None) => cpus_of_both_sides(machine, placement)?,
    };
    for &host in hosts {
        let cpus = match topology.side(host) {
            Some(Side::Connects) => connects.clone(),
            Some(Side::Listens) => listens.clone(),
            None => {
                let taken = [&connects[..], &listens].concat();
                let own = further_cpus(machine, "two-cpus", &taken).ok();
                own.filter(|_| placement != "same-cpu")
                    .unwrap_or_else(|| connects.clone())
            }
        };
        placed.entry(host).or_insert(cpus);
    }
    Ok(placed)
}

/// CPUs of the hosts that connect and of the hosts that listen, if no CPU is listed.
fn cpus_of_both_sides(
    machine: &Cpus,
    placement: &str,
) -> Result<(Vec<usize>, Vec<usize>), KnobError> {
    let last = machine.cpus.last().copied();
    let last = last.ok_or_else(|| wrong("no CPU is allowed to this process"))?;
    match placement {
        "same-cpu" | ONE_THREAD => Ok((vec![last], vec![last])),
        "smt-sibling" => {
            let core = machine.cores.iter().rev().find(|core| core.len() > 1);
            let core = core.ok_or_else(|| no_siblings(machine))?;
            Ok((vec![core[0]], vec![core[1]]))
        }
        _ => {
            let listens = vec![last];
            let connects = further_cpus(machine, placement, &listens)?;
            Ok((connects, listens))
        }
    }
}

/// CPUs for further hosts, if the CPUs `taken` are in use.
fn further_cpus(machine: &Cpus, placement: &str, taken: &[usize]) -> Result<Vec<usize>, KnobError> {
    let core_of = |cpu: &usize| machine.cores.iter().find(|core| core.contains(cpu));
    match placement {
        "same-cpu" | ONE_THREAD => Ok(taken.to_vec()),
        "smt-sibling" => {
            let siblings = taken.iter().filter_map(core_of).flatten();
            let sibling = siblings.copied().find(|cpu| !taken.contains(cpu));
            Ok(vec![sibling.ok_or_else(|| no_siblings(machine))?])
        }
        "two-cpus" => {
            let cpu = machine.further(taken);
            Ok(vec![cpu.ok_or_else(|| {
                wrong(format!(
                    "a CPU other than {taken:?} is needed, but only {:?} can be used here; try placement = \"same-cpu\"",
                    machine.cpus
                ))
            })?])
        }
        other => Err(wrong(format!("no such placement: {other}"))),
    }
}

fn no_siblings(machine: &Cpus) -> KnobError {
    wrong(format!(
        "smt-sibling needs two threads of one core, and CPUs {:?} have none to spare (no SMT, or it is off, or hidden by the hypervisor)",
        machine.cpus
    ))
}

fn wrong(reason: impl Into<String>) -> KnobError {
    KnobError::new("placement", reason)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_study::{Bed, Knobs};

    fn machine(cores: &[&[usize]]) -> Cpus {
        let mut cpus: Vec<usize> = cores.concat();
        cpus.sort_unstable();
        Cpus {
            cpus,
            cores: cores.iter().map(|core| core.to_vec()).collect(),
            caches: Vec::new(),
            packages: Vec::new(),
        }
    }

    fn placed(
        cores: &[&[usize]],
        placement: &str,
        topology: &str,
        knobs: &[(&str, &str)],
    ) -> Result<String, KnobError> {
        let mut set = Knobs::default();
        for (name, text) in knobs {
            set.set(name, text).unwrap();
        }
        set.set("topology", topology).unwrap();
        let topology = Topology::of(Bed::Netns, &set).unwrap();
        let hosts: Vec<HostName> = topology.names().collect();
        let placed = place(&machine(cores), placement, &topology, &hosts)?;
        let show = |(host, cpus): (&HostName, &Vec<usize>)| format!("{host} {cpus:?}");
        Ok(placed.iter().map(show).collect::<Vec<_>>().join(", "))
    }

    fn check(cores: &[&[usize]], placement: &str, expected: Option<(usize, usize)>) {
        let placed = placed(cores, placement, "pair", &[]).ok();
        let expected =
            expected.map(|(client, server)| format!("client [{client}], server [{server}]"));
        assert_eq!(placed, expected, "{cores:?} {placement}");
    }

    #[test]
    fn two_cpus_are_two_cores_where_there_are_two() {
        check(&[&[0], &[1]], "two-cpus", Some((0, 1)));
        check(&[&[0, 2], &[1, 3]], "two-cpus", Some((2, 3)));
        check(&[&[0, 1], &[2, 3]], "two-cpus", Some((1, 3)));
        check(&[&[0, 1]], "two-cpus", Some((0, 1)));
        check(&[&[5]], "two-cpus", None);
        check(&[&[0], &[1]], "auto", Some((0, 1)));
        check(&[&[5]], "auto", Some((5, 5)));
    }

    #[test]
    fn two_cpus_are_in_one_socket_and_share_their_cache_where_they_can() {
        let topology = Topology::of(Bed::Netns, &Knobs::default()).unwrap();
        let of = |caches: &[&[usize]], packages: &[&[usize]]| {
            let groups = |groups: &[&[usize]]| groups.iter().map(|group| group.to_vec()).collect();
            let machine = Cpus {
                caches: groups(caches),
                packages: groups(packages),
                ..machine(&[&[0], &[1], &[2], &[3], &[4], &[5]])
            };
            let placed = place(&machine, "two-cpus", &topology, &HostName::PAIR).unwrap();
            HostName::PAIR.map(|host| placed[&host][0])
        };
        // Sockets that have numbers alternately.
        assert_eq!(of(&[], &[&[0, 2, 4], &[1, 3, 5]]), [3, 5]);
        // Two caches in a socket.
        let all: &[&[usize]] = &[&[0, 1, 2, 3, 4, 5]];
        assert_eq!(of(&[&[0, 1, 5], &[2, 3, 4]], all), [1, 5]);
        assert_eq!(of(&[&[5], &[0, 1, 2, 3, 4]], all), [4, 5]);
    }

    #[test]
    fn siblings_are_two_threads_of_one_core() {
        check(&[&[0, 2], &[1, 3]], "smt-sibling", Some((1, 3)));
        check(&[&[0], &[1]], "smt-sibling", None);
        check(&[&[0], &[1]], "same-cpu", Some((1, 1)));
    }

    #[test]
    fn a_given_list_wins_and_the_others_follow_it() {
        let four: &[&[usize]] = &[&[0, 2], &[1, 3]];
        let pair = |placement, knobs: &[(&str, &str)]| placed(four, placement, "pair", knobs);
        let given = |placement, knobs: &[(&str, &str)]| pair(placement, knobs).unwrap();
        assert_eq!(
            given("two-cpus", &[("client.cpus", "[3]")]),
            "client [3], server [2]"
        );
        assert_eq!(
            given("smt-sibling", &[("server.cpus", "[0]")]),
            "client [2], server [0]"
        );
        let twice = given("same-cpu", &[("client_cpus", "[1,0,1]")]);
        assert_eq!(twice, "client [0, 1], server [0, 1]");
        let error = pair("two-cpus", &[("client.cpus", "[9]")]).unwrap_err();
        assert_eq!(error.knob, "client.cpus");
        assert!(error.reason.contains("CPU 9"), "{error}");
        let error = pair("two-cpus", &[("client.cpus", "[0,1,2,3]")]).unwrap_err();
        assert_eq!(error.knob, "placement");
        assert!(error.reason.contains("same-cpu"), "{error}");
    }

    #[test]
    fn a_machine_of_one_side_needs_no_cpu_for_the_other() {
        let topology = Topology::of(Bed::Netns, &Knobs::default()).unwrap();
        for host in HostName::PAIR {
            let placed = place(&machine(&[&[5]]), "two-cpus", &topology, &[host]).unwrap();
            assert_eq!(placed, Placement::from([(host, vec![5])]));
        }
    }

    #[test]
    fn clients_share_a_cpu_or_have_one_each_and_the_middle_has_what_is_left() {
        let three: &[&[usize]] = &[&[0], &[1], &[2]];
        let two = [("clients", "2")];
        let star = |placement, knobs: &[(&str, &str)]| placed(three, placement, "star", knobs);
        assert_eq!(
            star("two-cpus", &two).unwrap(),
            "client1 [1], client2 [1], server [2]"
        );
        assert_eq!(
            star("cpu-each", &two).unwrap(),
            "client1 [2], client2 [1], server [0]"
        );
        assert!(star("cpu-each", &[("clients", "3")]).is_err());
        let chain = |cores| placed(cores, "two-cpus", "chain", &[]).unwrap();
        assert_eq!(chain(three), "client [1], relay [0], server [2]");
        assert_eq!(chain(&three[..2]), "client [0], relay [0], server [1]");
    }
}
