//! Hosts and links of each bed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Host, Link, LinkKind, Port, StackKind, Topology};
use tcpcost_knobs::{HostName, Knobs, Reach, Traffic, Value, WireSettings};

impl Topology {
    /// Two hosts in namespaces of their own.
    pub(super) fn pair(knobs: &Knobs) -> Topology {
        let mut topology = Topology::of_hosts(knobs, &Reach::Netns, &HostName::PAIR);
        topology.join(
            between_kernels(knobs),
            HostName::CLIENT,
            HostName::SERVER,
            knobs,
        );
        topology
    }

    /// Clients in namespaces of their own, each linked to the server.
    pub(super) fn star(knobs: &Knobs) -> Topology {
        let names = knobs.host_names();
        let mut topology = Topology::of_hosts(knobs, &Reach::Netns, &names);
        for &client in &names[..names.len() - 1] {
            topology.join(between_kernels(knobs), client, HostName::SERVER, knobs);
        }
        topology
    }

    /// Client and server, each linked to a host in the middle that forwards or relays. The links
    /// are TAPs if it relays by our TCP.
    pub(super) fn chain(knobs: &Knobs) -> Topology {
        let mut topology = Topology::of_hosts(knobs, &Reach::Netns, &knobs.host_names());
        let kind = match knobs.is_user(HostName::RELAY) {
            true => LinkKind::Tap,
            false => between_kernels(knobs),
        };
        topology.join(kind, HostName::CLIENT, HostName::RELAY, knobs);
        topology.join(kind, HostName::RELAY, HostName::SERVER, knobs);
        if knobs.relay_mode().is_some() {
            topology.relays.push(HostName::RELAY);
        }
        topology
    }

    /// Client and server on the command's own loopback.
    pub(super) fn loopback(knobs: &Knobs) -> Topology {
        let mut topology = Topology::of_hosts(knobs, &Reach::Local, &HostName::PAIR);
        let address = match is_v6(knobs) {
            false => Ipv4Addr::LOCALHOST.into(),
            true => Ipv6Addr::LOCALHOST.into(),
        };
        let port = |host| Port {
            host,
            device: "lo".to_string(),
            address,
        };
        topology.links = vec![Link {
            kind: LinkKind::Loopback,
            a: port(HostName::CLIENT),
            b: port(HostName::SERVER),
        }];
        topology
    }

    /// Two hosts in namespaces of their own, one of them with our TCP, connected by a TAP.
    pub(super) fn tap(knobs: &Knobs) -> Topology {
        let mut topology = Topology::of_hosts(knobs, &Reach::Netns, &HostName::PAIR);
        topology.join(LinkKind::Tap, HostName::CLIENT, HostName::SERVER, knobs);
        for port in topology
            .links
            .iter_mut()
            .flat_map(|link| [&mut link.a, &mut link.b])
        {
            port.device = "tc-tap".to_string();
        }
        topology
    }

    /// Two hosts with our TCP in one process.
    pub(super) fn memory(knobs: &Knobs) -> Topology {
        let mut topology = Topology::of_hosts(knobs, &Reach::Memory, &HostName::PAIR);
        for host in &mut topology.hosts {
            host.stack = StackKind::User;
        }
        topology.join(LinkKind::Memory, HostName::CLIENT, HostName::SERVER, knobs);
        for port in topology
            .links
            .iter_mut()
            .flat_map(|link| [&mut link.a, &mut link.b])
        {
            port.device = "memory".to_string();
        }
        topology
    }

    /// Hosts that the study names, in namespaces of their own, with a veth pair between each two
    /// that talk.
    pub(super) fn mesh(knobs: &Knobs) -> Result<Topology, String> {
        if knobs.go_round() {
            return Err("pattern: rounds are of hosts that have a network, not of ones in namespaces of ours".to_string());
        }
        let arranged = knobs
            .arranged()
            .map_err(|error| format!("pattern: {error}"))?;
        let mut topology = Topology::of_hosts(knobs, &Reach::Netns, &arranged.hosts);
        topology.traffic.clone_from(&arranged.traffic);
        if arranged.traffic.len() > MESH_MAX {
            let links = arranged.traffic.len();
            return Err(format!(
                "hosts: each two that talk have a link of their own, {MESH_MAX} at most, and this would be {links}"
            ));
        }
        for Traffic { on, to } in arranged.traffic {
            topology.join(LinkKind::Veth, on, to, knobs);
        }
        Ok(topology)
    }

    /// Hosts that the study names, each with its device. Devices and addresses that the study does
    /// not name are found when the agents are asked; until then they are empty and unspecified.
    pub(super) fn named(knobs: &Knobs, repetition: u32) -> Result<Topology, String> {
        let arranged = knobs
            .arranged_in(repetition)
            .map_err(|error| format!("pattern: {error}"))?;
        let word = |host: HostName, name: &str| match knobs.value_at(host, name) {
            Some(Value::Word(word)) if word != "auto" => Some(word),
            _ => None,
        };
        let unspecified: IpAddr = match is_v6(knobs) {
            false => Ipv4Addr::UNSPECIFIED.into(),
            true => Ipv6Addr::UNSPECIFIED.into(),
        };
        let port = |host| {
            let address = word(host, "address").and_then(|word| word.parse().ok());
            let address: IpAddr = address.unwrap_or(unspecified);
            if address.is_ipv6() != unspecified.is_ipv6() {
                return Err(format!(
                    "{host}.address: {address} is not of ip = \"{}\"",
                    knobs.word("ip").unwrap_or_default()
                ));
            }
            Ok(Port {
                host,
                device: word(host, "device").unwrap_or_default(),
                address,
            })
        };
        let mut topology = Topology::of_hosts(knobs, &Reach::Local, &arranged.hosts);
        for host in &mut topology.hosts {
            let reach = knobs.reach(host.name);
            host.reach = reach.expect("a host is named by how it is reached");
            if host.stack == StackKind::User {
                return Err(format!(
                    "{}.stack: our TCP has a wire of its own in the beds tap and memory, not a host's device",
                    host.name
                ));
            }
        }
        for traffic in &arranged.traffic {
            topology.links.push(Link {
                kind: LinkKind::Network,
                a: port(traffic.on)?,
                b: port(traffic.to)?,
            });
        }
        topology.traffic = arranged.traffic;
        let resting: Vec<HostName> = topology
            .names()
            .filter(|&host| topology.forwards(host))
            .collect();
        for host in resting {
            topology.links.push(Link {
                kind: LinkKind::Network,
                a: port(host)?,
                b: port(host)?,
            });
        }
        Ok(topology)
    }

    /// Hosts without links. Each host except server and relay connects to the server.
    fn of_hosts(knobs: &Knobs, reach: &Reach, names: &[HostName]) -> Topology {
        let host = |&name: &HostName| Host {
            name,
            reach: reach.clone(),
            stack: stack(knobs, name),
            cpus: match knobs.value_at(name, "cpus") {
                Some(Value::Cpus(cpus)) => Some(cpus),
                _ => None,
            },
        };
        let others = names
            .iter()
            .copied()
            .filter(|name| *name != HostName::SERVER);
        let clients = others.filter(|name| *name != HostName::RELAY);
        Topology {
            hosts: names.iter().map(host).collect(),
            links: Vec::new(),
            traffic: clients
                .map(|on| Traffic {
                    on,
                    to: HostName::SERVER,
                })
                .collect(),
            relays: Vec::new(),
        }
    }

    /// Adds a link between two hosts, with a network of its own. The only device of a host is named
    /// after the host; one of several is named after the host at its other end.
    fn join(&mut self, kind: LinkKind, a: HostName, b: HostName, knobs: &Knobs) {
        let number = u8::try_from(self.links.len()).expect("the registry's range leaves room");
        let address = |host: u8| match is_v6(knobs) {
            false => IpAddr::from([10, 0, number, host]),
            true => IpAddr::from([0xfd00, 0, 0, number.into(), 0, 0, 0, host.into()]),
        };
        let links_of = |name: HostName| {
            let all = self.traffic.iter();
            let as_star = all
                .filter(|traffic| traffic.to == name || traffic.on == name)
                .count();
            if self.forwards(name) { 2 } else { as_star }
        };
        let device = |host: HostName, far: HostName| {
            let after = if links_of(host) > 1 { far } else { host };
            format!("tc-{after}")
        };
        let (a_device, b_device) = (device(a, b), device(b, a));
        self.links.push(Link {
            kind,
            a: Port {
                host: a,
                device: a_device,
                address: address(1),
            },
            b: Port {
                host: b,
                device: b_device,
                address: address(2),
            },
        });
    }
}

/// Link between two namespaces: a wire if a knob of the wire is set, else a veth pair.
fn between_kernels(knobs: &Knobs) -> LinkKind {
    match WireSettings::are_set(knobs) {
        true => LinkKind::Wire,
        false => LinkKind::Veth,
    }
}

/// TCP of a host.
fn stack(knobs: &Knobs, host: HostName) -> StackKind {
    match knobs.is_user(host) {
        true => StackKind::User,
        false => StackKind::Kernel,
    }
}

fn is_v6(knobs: &Knobs) -> bool {
    knobs.word("ip").as_deref() == Some("v6")
}

/// Limit of links: the networks in 10.0.0.0/16, as [`Topology::join`] numbers them.
const MESH_MAX: usize = 256;
