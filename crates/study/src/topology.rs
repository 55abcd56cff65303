//! Which hosts take part in a trial, how each is reached, how they are linked, and who connects to whom.
//!
//! `loopback`, `netns`, `tap` and `memory` are four descriptions made of a cell's knobs; whatever makes
//! a bed knows hosts and links alone.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::host_name::HostName;
use crate::host_reach::Reach;
use crate::knob::Knobs;
use crate::side::Side;
use crate::traffic::Traffic;
use crate::words::words;

/// Whose TCP a host's connections have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StackKind {
    /// The kernel's.
    Kernel,
    /// Our own, in user space.
    User,
}

/// One host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Its name.
    pub name: HostName,
    /// How its agent is started.
    pub reach: Reach,
    /// Its TCP.
    pub stack: StackKind,
    /// CPUs asked for; `None` leaves them to `placement`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
}

/// What joins two hosts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LinkKind {
    /// The loopback device of a namespace that both are in.
    Loopback,
    /// A veth pair, an end in each namespace.
    Veth,
    /// A TAP: our TCP at one end, its device in the other's namespace.
    Tap,
    /// Two TAPs, an end in each namespace, and a wire of our own between them.
    Wire,
    /// A queue in memory each way.
    Memory,
    /// Whatever is between the devices of two hosts.
    Network,
}

/// Where a link meets a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// The host.
    pub host: HostName,
    /// The device's name there.
    pub device: String,
    /// The host's address on this link.
    pub address: IpAddr,
}

/// A link between two hosts: a network of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// What it is.
    pub kind: LinkKind,
    /// One end.
    pub a: Port,
    /// The other.
    pub b: Port,
}

impl Link {
    /// A host's end of it and the other end; `None` where the host has none.
    pub fn from(&self, host: HostName) -> Option<(&Port, &Port)> {
        if self.a.host == host {
            Some((&self.a, &self.b))
        } else if self.b.host == host {
            Some((&self.b, &self.a))
        } else {
            None
        }
    }

    /// Length of its network's prefix, bits: two addresses and what a network keeps for itself.
    pub fn prefix(&self) -> u8 {
        match self.a.address {
            IpAddr::V4(_) => 30,
            IpAddr::V6(_) => 126,
        }
    }

    /// Its network's first address.
    fn network(&self) -> IpAddr {
        match self.a.address {
            IpAddr::V4(address) => Ipv4Addr::from(u32::from(address) & !3).into(),
            IpAddr::V6(address) => Ipv6Addr::from(u128::from(address) & !3).into(),
        }
    }
}

/// A network that a host reaches through a neighbour.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// The network's first address.
    pub to: IpAddr,
    /// Length of its prefix, bits.
    pub prefix: u8,
    /// The neighbour's address.
    pub via: IpAddr,
}

words! {
    /// Which description of hosts and links.
    Bed {
        /// Network namespaces joined by veth pairs.
        Netns = "netns",
        /// The command's own loopback.
        Loopback = "loopback",
        /// Two namespaces joined by a TAP, our TCP in one of them.
        Tap = "tap",
        /// Our TCP twice in one process.
        Memory = "memory",
        /// Devices of hosts that the study names, as they are.
        Hosts = "hosts",
    }
}

/// Hosts, links, and the workload's direction. The hosts are in the order in which phases go through them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Topology {
    /// The hosts.
    pub hosts: Vec<Host>,
    /// The links between them.
    pub links: Vec<Link>,
    /// Who connects to whom. A host without any forwards.
    pub traffic: Vec<Traffic>,
    /// Hosts that end the connections that go through them, and make their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub relays: Vec<HostName>,
}

/// Whose the devices of a trial are: what may be set of them, and how it is put back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceOwner {
    /// The bed's: they end with it.
    Bed,
    /// The command's machine's loopback, which serves all.
    Loopback,
    /// A host's own, which others on that host may use, too.
    Host,
}

impl Bed {
    /// The bed of the hosts that a study names: `netns` where all are in namespaces of their own. One in a namespace of its own
    /// that has a `device` has one of the command's machine, which is moved there.
    ///
    /// # Errors
    /// In one line: some are, and others are not; nobody is where the device comes from.
    pub fn of_named(knobs: &Knobs) -> Result<Bed, String> {
        let hosts = knobs.named_hosts();
        let is_netns = |host: &&HostName| knobs.reach(**host) == Some(Reach::Netns);
        let has_device = |host: &&HostName| {
            let device = knobs.value_at(**host, "device");
            device.is_some_and(|word| word.to_string() != "auto")
        };
        let is_local = |host: &HostName| knobs.reach(*host) == Some(Reach::Local);
        let moved = hosts.iter().filter(is_netns).filter(has_device).count();
        if moved > 0 && !hosts.iter().any(is_local) {
            return Err("reach: a device is moved into a namespace (netns with device) of the machine of another host, which is reached by local".to_string());
        }
        match hosts.iter().filter(is_netns).count() - moved {
            0 => Ok(Bed::Hosts),
            count if count == hosts.len() => Ok(Bed::Netns),
            _ => Err("reach: either all hosts are in namespaces that are made for the trial (netns) or none: a namespace that is there already is reached by exec:ip netns exec NAME".to_string()),
        }
    }
}

impl Topology {
    /// Names of the hosts, in order.
    pub fn names(&self) -> impl Iterator<Item = HostName> + '_ {
        self.hosts.iter().map(|host| host.name)
    }

    /// A host.
    pub fn host(&self, name: HostName) -> Option<&Host> {
        self.hosts.iter().find(|host| host.name == name)
    }

    /// Which side of its connections a host is; `None` of one that forwards.
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

    /// How often a host has the workload's flows: once for each host that it talks with.
    pub fn times(&self, name: HostName) -> usize {
        let is_its = |one: &&Traffic| one.on == name || one.to == name;
        self.traffic.iter().filter(is_its).count()
    }

    /// A host's ports, each behind its link and before the link's other end.
    pub fn ports(&self, name: HostName) -> impl Iterator<Item = (&Link, &Port, &Port)> {
        self.links.iter().filter_map(move |link| {
            let (port, far) = link.from(name)?;
            Some((link, port, far))
        })
    }

    /// The sets that have members, with these.
    pub fn sets(&self) -> BTreeMap<HostName, Vec<HostName>> {
        let mut sets: BTreeMap<HostName, Vec<HostName>> = BTreeMap::new();
        for name in self.names() {
            if let Some(set) = name.set() {
                sets.entry(set).or_default().push(name);
            }
        }
        sets
    }

    /// The hosts that a name means: a host, or the members of a set. Empty where it means none.
    pub fn members(&self, name: HostName) -> Vec<HostName> {
        let is_meant = |host: &HostName| *host == name || host.set() == Some(name);
        self.names().filter(is_meant).collect()
    }

    /// The links from one host to another, the fewest that there are; `None` where there is no way.
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

    /// The address by which a host reaches another.
    pub fn address_of(&self, to: HostName, from: HostName) -> Option<IpAddr> {
        let path = self.path(from, to)?;
        let (port, _) = path.last()?.from(to)?;
        Some(port.address)
    }

    /// The relay between two hosts, the first that the connection meets.
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

    /// The networks that a host reaches through others: those of the hosts that it talks with, or
    /// forwards for.
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

    /// Whether a host passes on what is not for it.
    pub fn forwards(&self, host: HostName) -> bool {
        self.side(host).is_none()
    }

    /// The hosts and links of a bed.
    ///
    /// # Errors
    /// In one line: the bed has no such topology, or a knob is set for a host that is not in it.
    pub fn of(bed: Bed, knobs: &Knobs) -> Result<Topology, String> {
        Topology::in_repetition(bed, knobs, 0)
    }

    /// As of [`Topology::of`], with the pairs of a repetition where hosts go round. A host that rests then is linked to itself
    /// alone, and [`Topology::without_resting`] leaves it out.
    ///
    /// # Errors
    /// As of [`Topology::of`].
    pub fn in_repetition(bed: Bed, knobs: &Knobs, repetition: u32) -> Result<Topology, String> {
        if knobs.get("reach").is_some() {
            return Err(
                "reach: it is of each host by its name: [hosts], or client.reach".to_string(),
            );
        }
        let word = knobs.word("topology").expect("a choice has a default");
        let topology = match (bed, word.as_str()) {
            (Bed::Netns, "pair") if knobs.names_hosts() => Topology::mesh(knobs)?,
            (Bed::Netns, "star") => Topology::star(knobs),
            (Bed::Netns, "chain") => Topology::chain(knobs),
            (Bed::Netns, _) => Topology::pair(knobs),
            (_, "star" | "chain") => {
                let bed = bed.word();
                return Err(format!(
                    "topology: {word} is of the netns bed, not of {bed}"
                ));
            }
            (Bed::Loopback, _) => Topology::loopback(knobs),
            (Bed::Tap, _) => Topology::tap(knobs),
            (Bed::Memory, _) => Topology::memory(knobs),
            (Bed::Hosts, _) => Topology::named(knobs, repetition)?,
        };
        if knobs.get("placement").is_some() && topology.hosts.iter().all(|host| host.cpus.is_some())
        {
            return Err("placement: every host has CPUs of its own by cpus".to_string());
        }
        if let Some((_, knob)) = knobs.named().find(|(_, knob)| *knob == "relay.stack") {
            return Err(format!(
                "{knob}: the host in the middle has our TCP by relay_mode = \"user\""
            ));
        }
        let mut named = knobs.named();
        match named.find(|(host, _)| topology.members(*host).is_empty()) {
            None => Ok(topology),
            Some((host, knob)) => {
                let names: Vec<String> = topology.names().map(|name| name.to_string()).collect();
                let names = names.join(", ");
                Err(format!(
                    "{knob}: no host is called {host} here; there are {names}"
                ))
            }
        }
    }

    /// Without these hosts: who would have talked with one of them rests.
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

    /// Of hosts that go round those that do not rest.
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
