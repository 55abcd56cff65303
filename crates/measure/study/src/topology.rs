//! Topology of a trial: its hosts, the way to reach each, their links, and which host connects to
//! which.
//!
//! Beds are descriptions made from a cell's knobs. The code that builds a bed only uses hosts and
//! links.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use tcpcost_knobs::{Bed, HostName, KnobError, Knobs, Reach, Side, Traffic};

/// TCP of a host's connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackKind {
    /// TCP of the kernel.
    Kernel,
    /// Our own TCP, in user space.
    User,
}

/// Host of a topology.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Name of the host.
    pub name: HostName,
    /// Way to start its agent.
    pub reach: Reach,
    /// TCP of its connections.
    pub stack: StackKind,
    /// CPUs requested. `None` leaves the choice to `placement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
}

/// Kind of a link between two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// Loopback device of a namespace that both hosts are in.
    Loopback,
    /// veth pair, with an end in each namespace.
    Veth,
    /// TAP: our TCP at one end, and its device in the other host's namespace.
    Tap,
    /// Two TAPs, one in each namespace, and a wire of our own between them.
    Wire,
    /// Queue in memory for each direction.
    Memory,
    /// Network between the devices of two hosts, whatever it is.
    Network,
}

/// End of a link at a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Name of the host.
    pub host: HostName,
    /// Name of the device on the host.
    pub device: String,
    /// Address of the host on this link.
    pub address: IpAddr,
}

/// Link between two hosts: a network of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Kind of the link.
    pub kind: LinkKind,
    /// First end.
    pub a: Port,
    /// Second end.
    pub b: Port,
}

impl Link {
    /// Returns a host's end of the link, then the other end. `None` if the host has no end of it.
    pub fn from(&self, host: HostName) -> Option<(&Port, &Port)> {
        if self.a.host == host {
            Some((&self.a, &self.b))
        } else if self.b.host == host {
            Some((&self.b, &self.a))
        } else {
            None
        }
    }

    /// Length of its network's prefix, bits: for two addresses and those that a network reserves.
    pub fn prefix(&self) -> u8 {
        match self.a.address {
            IpAddr::V4(_) => 30,
            IpAddr::V6(_) => 126,
        }
    }

    /// First address of its network.
    fn network(&self) -> IpAddr {
        match self.a.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & !3).into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !3).into(),
        }
    }
}

/// Network that a host reaches through a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// First address of the network.
    pub to: IpAddr,
    /// Length of its prefix, bits.
    pub prefix: u8,
    /// Address of the neighbour.
    pub via: IpAddr,
}

/// Hosts, links and traffic of a trial. The hosts are in the order in which the phases of a trial
/// go through them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// Hosts of the trial.
    pub hosts: Vec<Host>,
    /// Links between the hosts.
    pub links: Vec<Link>,
    /// Pairs of hosts that talk. A host without traffic forwards.
    pub traffic: Vec<Traffic>,
    /// Hosts that terminate the connections that go through them, and make their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<HostName>,
}

impl Topology {
    /// Names of the hosts, in order.
    pub fn names(&self) -> impl Iterator<Item = HostName> + '_ {
        self.hosts.iter().map(|host| host.name)
    }

    /// Host of this name. `None` if there is none.
    pub fn host(&self, name: HostName) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Side of a host. `None` for a host that forwards.
    pub fn side(&self, name: HostName) -> Option<Side> {
        self.traffic.iter().find_map(|traffic| {
            if traffic.on == name {
                Some(Side::Connects)
            } else {
                (traffic.to == name).then_some(Side::Listens)
            }
        })
    }

    /// Hosts of one side, in order.
    pub fn of_side(&self, side: Side) -> impl Iterator<Item = HostName> + '_ {
        self.names()
            .filter(move |&name| self.side(name) == Some(side))
    }

    /// Number of times that a host has the workload's flows: once for each host that it talks with.
    pub fn times(&self, name: HostName) -> usize {
        let is_its = |one: &&Traffic| one.on == name || one.to == name;
        self.traffic.iter().filter(is_its).count()
    }

    /// Ports of a host, each with its link before it and the link's other end after it.
    pub fn ports(&self, name: HostName) -> impl Iterator<Item = (&Link, &Port, &Port)> {
        self.links.iter().filter_map(move |link| {
            let (port, far) = link.from(name)?;
            Some((link, port, far))
        })
    }

    /// Sets that have members, with their members.
    pub fn sets(&self) -> BTreeMap<HostName, Vec<HostName>> {
        let mut sets: BTreeMap<HostName, Vec<HostName>> = BTreeMap::new();
        for name in self.names() {
            if let Some(set) = name.set() {
                sets.entry(set).or_default().push(name);
            }
        }
        sets
    }

    /// Hosts that a name stands for: a host, or the members of a set. Empty if there are none.
    pub fn members(&self, name: HostName) -> Vec<HostName> {
        let is_meant = |host: &HostName| *host == name || host.set() == Some(name);
        self.names().filter(is_meant).collect()
    }

    /// Shortest path of links from one host to another. `None` if there is none.
    fn path(&self, from: HostName, to: HostName) -> Option<Vec<&Link>> {
        let ends = |link: &&Link| link.from(from).is_some_and(|(_, far)| far.host == to);
        if let Some(link) = self.links.iter().find(ends) {
            return Some(vec![link]);
        }
        let mut ways = VecDeque::from([(from, Vec::new())]);
        let mut seen = vec![from];
        while let Some((at, way)) = ways.pop_front() {
            if at == to {
                return Some(way);
            }
            for link in &self.links {
                if let Some((_, far)) = link.from(at)
                    && !seen.contains(&far.host)
                {
                    seen.push(far.host);
                    let mut longer = way.clone();
                    longer.push(link);
                    ways.push_back((far.host, longer));
                }
            }
        }
        None
    }

    /// Address by which host `from` reaches host `to`. `None` if there is no path.
    pub fn address_of(&self, to: HostName, from: HostName) -> Option<IpAddr> {
        let path = self.path(from, to)?;
        let (port, _) = path.last()?.from(to)?;
        Some(port.address)
    }

    /// Relay between two hosts, the first on the path. `None` if there is none.
    pub fn relay_between(&self, on: HostName, to: HostName) -> Option<HostName> {
        if self.relays.is_empty() {
            return None;
        }
        let mut at = on;
        self.path(on, to)?.into_iter().find_map(|link| {
            let (_, far) = link.from(at)?;
            at = far.host;
            self.relays.contains(&at).then_some(at)
        })
    }

    /// Routes of a host through neighbours to further networks: those of hosts that it talks with,
    /// or forwards for.
    pub fn routes(&self, host: HostName) -> Vec<Route> {
        let mut routes: Vec<Route> = Vec::new();
        for link in &self.links {
            if link.from(host).is_some() {
                continue;
            }
            let ways = [link.a.host, link.b.host].map(|end| self.path(host, end));
            let nearest = ways.into_iter().flatten().min_by_key(Vec::len);
            let first = nearest.and_then(|way| way.first()?.from(host));
            routes.extend(first.map(|(_, neighbour)| Route {
                to: link.network(),
                prefix: link.prefix(),
                via: neighbour.address,
            }));
        }
        routes
    }

    /// True if a host forwards packets that are not for it.
    pub fn forwards(&self, host: HostName) -> bool {
        self.side(host).is_none()
    }

    /// Makes the hosts and links of a bed.
    ///
    /// # Errors
    /// The bed has no such topology, or a knob is set for a host that is not in it.
    pub fn of(bed: Bed, knobs: &Knobs) -> Result<Topology, KnobError> {
        Topology::in_repetition(bed, knobs, 0)
    }

    /// Makes the topology of [`Topology::of`] for a repetition, with its pairs if hosts go round. A
    /// host that rests then is only linked to itself, and [`Topology::without_resting`] removes it.
    ///
    /// # Errors
    /// Those of [`Topology::of`].
    pub fn in_repetition(bed: Bed, knobs: &Knobs, repetition: u32) -> Result<Topology, KnobError> {
        let wrong = |knob: &str, reason: &str| Err(KnobError::new(knob, reason));
        if knobs.get("reach").is_some() {
            let reason = "belongs to a named host: use [hosts], or client.reach";
            return wrong("reach", reason);
        }
        let word = knobs.word("topology").expect("a choice has a default");
        let topology = match (bed, word.as_str()) {
            (Bed::Netns, "pair") if knobs.names_hosts() => Topology::mesh(knobs)?,
            (Bed::Netns, "star") => Topology::star(knobs),
            (Bed::Netns, "chain") => Topology::chain(knobs),
            (Bed::Netns, _) => Topology::pair(knobs),
            (_, "star" | "chain") => {
                let reason = format!("{word} is of the netns bed, not of {}", bed.word());
                return wrong("topology", &reason);
            }
            (Bed::Loopback, _) => Topology::loopback(knobs),
            (Bed::Tap, _) => Topology::tap(knobs),
            (Bed::Memory, _) => Topology::memory(knobs),
            (Bed::Hosts, _) => Topology::named(knobs, repetition)?,
        };
        if knobs.get("placement").is_some() && topology.hosts.iter().all(|host| host.cpus.is_some())
        {
            return wrong("placement", "every host has CPUs of its own by cpus");
        }
        if let Some((_, knob)) = knobs.named().find(|(_, knob)| *knob == "relay.stack") {
            let reason = "the host in the middle has our TCP by relay_mode = \"user\"";
            return wrong(knob, reason);
        }
        let mut named = knobs.named();
        match named.find(|(host, _)| topology.members(*host).is_empty()) {
            None => Ok(topology),
            Some((host, knob)) => {
                let names: Vec<String> = topology.names().map(|name| name.to_string()).collect();
                let names = names.join(", ");
                wrong(
                    knob,
                    &format!("no host is called {host} here; there are {names}"),
                )
            }
        }
    }

    /// Removes hosts. Hosts that would have talked with one of them rest.
    #[must_use]
    pub fn without(mut self, lost: impl Fn(HostName) -> bool) -> Topology {
        self.hosts.retain(|host| !lost(host.name));
        self.traffic.retain(|one| !lost(one.on) && !lost(one.to));
        self.links.retain_mut(|link| {
            match (lost(link.a.host), lost(link.b.host)) {
                (true, true) => return false,
                (true, false) => link.a = link.b.clone(),
                (false, true) => link.b = link.a.clone(),
                (false, false) => {}
            }
            true
        });
        self
    }

    /// Removes resting hosts, if hosts go round.
    pub fn without_resting(mut self, knobs: &Knobs) -> Topology {
        if knobs.go_round() {
            let traffic = &self.traffic;
            let talks = |host: HostName| traffic.iter().any(|one| one.on == host || one.to == host);
            self.hosts.retain(|host| talks(host.name));
            self.links.retain(|link| talks(link.a.host));
        }
        self
    }
}

mod beds;
mod turns;

#[cfg(test)]
mod tests;
