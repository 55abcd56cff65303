//! A bed: the agents of a topology's hosts, and the links between them.
//!
//! A host that is in an anonymous network namespace of its own leaves nothing behind: when its agent ends,
//! however it ends, the kernel removes namespace, devices, qdiscs and routes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tcpcost_agent::protocol::{Answer, Ask, AttachedDevice};
use tcpcost_study::{
    Bed as Kind, CarrierAsked, Cell, DeviceOwner, Host, HostName, Knobs, Link, LinkKind, Machine,
    Reach, Side, StackKind, Topology, WorkloadSettings,
};

use super::launcher::Launchers;
use super::nodes::{AskError, Events, Nodes, out_of_turn};
use super::placement::{ONE_THREAD, Placement, place};

/// Agents and the links between them.
pub struct Bed {
    /// Which description.
    pub kind: Kind,
    /// Its hosts and links, as the study has them.
    pub topology: Topology,
    /// Devices and addresses of named hosts, as their agents found them.
    found: BTreeMap<HostName, AttachedDevice>,
    /// The agents.
    pub nodes: Nodes,
    /// The machines, by the kernel's boot id.
    pub machines: BTreeMap<String, Machine>,
    /// Processes of its wires.
    pub wires: Vec<u32>,
    /// What may carry where the study sets a wire, and whether netem does.
    carrier: CarrierAsked,
    netem: bool,
    /// Whether both ends take turns in one thread.
    turns: bool,
    /// Queues of its TAP; 0 without one.
    queues: usize,
    /// The program of its agents; `None` is the one that runs.
    program: Option<PathBuf>,
}

impl Bed {
    /// Starts the agents and links them. `changes`: some trial changes settings of named hosts; `held_max`: how long who
    /// still holds these is waited for.
    pub fn make(
        kind: Kind,
        topology: &Topology,
        cell: &Cell,
        launchers: &Launchers,
        changes: bool,
        held_max: Duration,
        events: &mut Events,
    ) -> Result<Bed, AskError> {
        let turns = takes_turns(&cell.knobs);
        if turns {
            topology
                .takes_turns()
                .map_err(|reason| AskError::Unsupported {
                    knob: "placement".to_string(),
                    reason: format!("{ONE_THREAD}: {reason}"),
                })?;
        }
        let program = cell.program.as_deref();
        let nodes = Nodes::start(events, topology, launchers, program, turns)?;
        let machine = |host| {
            let hello = nodes.hello(host);
            (hello.machine.clone(), hello.environment.clone())
        };
        let mut bed = Bed {
            kind,
            topology: topology.clone(),
            machines: topology.names().map(machine).collect(),
            nodes,
            found: BTreeMap::new(),
            wires: Vec::new(),
            carrier: CarrierAsked::of(&cell.knobs),
            netem: false,
            turns,
            queues: 0,
            program: cell.program.clone(),
        };
        bed.queues = bed.queues_for(&cell.knobs);
        if bed.queues > TAP_QUEUES_MAX {
            let reason = format!("a TAP has at most {TAP_QUEUES_MAX} queues");
            let knob = "threads".to_string();
            return Err(AskError::Unsupported { knob, reason });
        }
        if kind == Kind::Hosts {
            bed.find_ports(changes, held_max, events)?;
        }
        for link in &topology.links {
            bed.join(link, events)?;
        }
        for host in topology.names() {
            bed.attach(host, events)?;
        }
        Ok(bed)
    }

    /// Whether this bed is the one that these hosts, links and knobs ask for, by the same program; CPUs are
    /// chosen for each trial anew.
    pub fn serves(&self, kind: Kind, topology: &Topology, cell: &Cell) -> bool {
        let without_cpus = |topology: &Topology| {
            let mut topology = topology.clone();
            topology.hosts.iter_mut().for_each(|host| host.cpus = None);
            if kind == Kind::Hosts {
                // Who talks with whom is a trial's own.
                topology.links.clear();
                topology.traffic.clear();
            }
            topology
        };
        self.kind == kind
            && without_cpus(&self.topology) == without_cpus(topology)
            && self.program == cell.program
            && self.turns == takes_turns(&cell.knobs)
            && (self.carrier == CarrierAsked::of(&cell.knobs) || !self.has_wire())
            && self.queues == self.queues_for(&cell.knobs)
    }

    /// Asks named hosts for their devices; nobody else changes these from now on.
    fn find_ports(
        &mut self,
        changes: bool,
        held_max: Duration,
        events: &Events,
    ) -> Result<(), AskError> {
        let mut asks = BTreeMap::new();
        let mut each = self.topology.hosts.iter();
        // Whose device is moved is changed.
        let changes = changes || each.any(|host| host.reach == Reach::Netns);
        for link in &self.topology.links {
            for port in [&link.a, &link.b] {
                let ask = Ask::Port {
                    device: Some(port.device.clone()).filter(|device| !device.is_empty()),
                    address: Some(port.address).filter(|address| !address.is_unspecified()),
                    is_v6: port.address.is_ipv6(),
                    changes,
                    held_max_ns: held_max.as_nanos() as u64,
                };
                // A machine's halves have one device.
                asks.insert(port.host.half_of().unwrap_or(port.host), ask);
            }
        }
        let hosts: Vec<HostName> = asks.keys().copied().collect();
        self.stand_apart(&hosts)?;
        let is_moved = |host: &HostName| {
            let host = self.topology.host(*host);
            host.is_some_and(|host| host.reach == Reach::Netns)
        };
        // A device that is moved is first one of the host that it comes from.
        let (moved, own): (Vec<HostName>, Vec<HostName>) = hosts.into_iter().partition(is_moved);
        self.ask_ports(&own, &asks, events)?;
        for &host in &moved {
            if let Ask::Port {
                device: Some(device),
                is_v6,
                ..
            } = &asks[&host]
            {
                self.lend(host, device, *is_v6, events)?;
            }
        }
        self.ask_ports(&moved, &asks, events)
    }

    /// Moves a device of the command's machine into the namespace of a host, with its addresses.
    fn lend(
        &mut self,
        to: HostName,
        device: &str,
        is_v6: bool,
        events: &Events,
    ) -> Result<(), AskError> {
        let mut hosts = self.topology.hosts.iter();
        let from = hosts.find(|host| host.reach == Reach::Local);
        let from = from.expect("a study has one, or is refused").name;
        let lend = Ask::Lend {
            device: device.to_string(),
            pid: self.nodes.hello(to).pid,
        };
        let answer = self.nodes.call(events, from, &lend)?;
        let Answer::Lent { mut ports } = answer else {
            return Err(out_of_turn(from, &answer));
        };
        ports.retain(|port| port.address.is_ipv6() == is_v6);
        let attach = Ask::Attach {
            ports,
            routes: Vec::new(),
            forwards: false,
        };
        self.nodes.call(events, to, &attach).map(drop)
    }

    fn ask_ports(
        &mut self,
        hosts: &[HostName],
        asks: &BTreeMap<HostName, Ask>,
        events: &Events,
    ) -> Result<(), AskError> {
        for (host, answer) in self
            .nodes
            .call_all(events, hosts, |host| asks[&host].clone())?
        {
            let Answer::Port { port, restored } = answer else {
                return Err(out_of_turn(host, &answer));
            };
            for line in restored {
                crate::output::say!(
                    "tcpcost: {host} put back what a dead agent had changed: {line}"
                );
            }
            self.found.insert(host, port);
        }
        Ok(())
    }

    /// Two hosts of one network namespace would count each other's segments.
    fn stand_apart(&self, hosts: &[HostName]) -> Result<(), AskError> {
        let mut seen: BTreeMap<(&str, u64), HostName> = BTreeMap::new();
        for &host in hosts {
            let hello = self.nodes.hello(host);
            let is_local = self
                .topology
                .host(host)
                .is_some_and(|host| host.reach == Reach::Local);
            if let Some(other) = seen.insert((hello.machine.as_str(), hello.netns), host)
                && !is_local
            {
                let text = format!(
                    "is in one network namespace of one machine with {other}: name another host, or leave one out"
                );
                return Err(AskError::Unfit(host, text));
            }
        }
        Ok(())
    }

    /// A trial's hosts and links with the devices and addresses that were found.
    pub fn with_ports(&self, mut topology: Topology) -> Topology {
        let ports = topology
            .links
            .iter_mut()
            .flat_map(|link| [&mut link.a, &mut link.b]);
        for port in ports {
            let machine = port.host.half_of().unwrap_or(port.host);
            if let Some(found) = self.found.get(&machine) {
                port.device.clone_from(&found.device);
                port.address = found.address;
            }
        }
        topology
    }

    /// Makes a link.
    fn join(&mut self, link: &Link, events: &Events) -> Result<(), AskError> {
        match link.kind {
            LinkKind::Loopback | LinkKind::Memory | LinkKind::Network => Ok(()),
            LinkKind::Veth => {
                let veth = Ask::Veth {
                    device: link.a.device.clone(),
                    peer_device: link.b.device.clone(),
                    peer_pid: self.nodes.hello(link.b.host).pid,
                };
                self.nodes.call(events, link.a.host, &veth).map(drop)
            }
            LinkKind::Wire => {
                let wire = Ask::Wire {
                    device: link.a.device.clone(),
                    peer_device: link.b.device.clone(),
                    peer: link.b.host,
                    peer_pid: self.nodes.hello(link.b.host).pid,
                    by: self.carrier,
                };
                match self.nodes.call(events, link.a.host, &wire)? {
                    Answer::Wired { pid } => {
                        self.netem = pid.is_none();
                        self.wires.extend(pid);
                    }
                    other => return Err(out_of_turn(link.a.host, &other)),
                }
                Ok(())
            }
            LinkKind::Tap => {
                let is_ours = |host| stack(&self.topology, host) == StackKind::User;
                let (ours, kernels) = match is_ours(link.a.host) {
                    true => (&link.a, &link.b),
                    false => (&link.b, &link.a),
                };
                let tap = Ask::Tap {
                    device: ours.device.clone(),
                    address: ours.address,
                    queues: self.queues,
                    peer_pid: self.nodes.hello(kernels.host).pid,
                };
                self.nodes.call(events, ours.host, &tap).map(drop)
            }
        }
    }

    /// Gives the devices of a namespace of ours their addresses and routes.
    fn attach(&mut self, host: HostName, events: &Events) -> Result<(), AskError> {
        if !self.owns(host) {
            return Ok(());
        }
        let links = self.topology.links.iter();
        let attach = Ask::Attach {
            ports: links
                .filter_map(|link| {
                    let (port, _) = link.from(host)?;
                    Some(AttachedDevice {
                        device: port.device.clone(),
                        address: port.address,
                        prefix: link.prefix(),
                    })
                })
                .collect(),
            routes: self.topology.routes(host),
            forwards: self.topology.forwards(host),
        };
        self.nodes.call(events, host, &attach).map(drop)
    }

    fn has_wire(&self) -> bool {
        let mut links = self.topology.links.iter();
        links.any(|link| link.kind == LinkKind::Wire)
    }

    /// Whether what a host reads of its namespace is in the other's interval: where a guest's clock counts instructions, and two
    /// processes have the ends, the text of these counters is a million of them.
    pub fn reads_into(&self, host: HostName) -> bool {
        let machine = &self.nodes.hello(host).environment;
        machine.instructions_per_ns.is_some() && !self.turns
    }

    /// Whether netem carries what its study sets of a wire.
    pub fn by_netem(&self) -> bool {
        self.netem
    }

    /// Whether the kernel's TCP at this host is in a namespace of its own.
    pub fn owns(&self, host: HostName) -> bool {
        let owns = |host: &Host| host.reach == Reach::Netns && host.stack == StackKind::Kernel;
        self.kind != Kind::Hosts && self.topology.host(host).is_some_and(owns)
    }

    /// True if a host's receive work is steered to its CPUs.
    pub fn steers(&self, host: HostName, knobs: &Knobs) -> bool {
        let is_asked = knobs.is_on("steering").expect("a switch has a default");
        is_asked && (self.owns(host) || self.kind == Kind::Hosts)
    }

    /// Whose the devices of a host are.
    pub fn owner(&self, host: HostName) -> DeviceOwner {
        match self.kind {
            Kind::Hosts => DeviceOwner::Host,
            _ if self.owns(host) => DeviceOwner::Bed,
            _ => DeviceOwner::Loopback,
        }
    }

    /// CPUs of each host by the cell's knobs, machine by machine.
    pub fn place(&self, topology: &Topology, knobs: &Knobs) -> Result<Placement, AskError> {
        let placement = knobs.word("placement").expect("a choice has a default");
        let mut placed = Placement::new();
        for machine in self.machines.keys() {
            let hosts = self.nodes.on_machine(machine);
            let cpus = &self.nodes.hello(hosts[0]).cpus;
            let of_machine = place(cpus, &placement, topology, &hosts)
                .map_err(|(knob, reason)| AskError::Unsupported { knob, reason })?;
            placed.extend(of_machine);
        }
        Ok(placed)
    }

    /// How many instances of our own TCP each of its hosts has: one for each CPU unless the study
    /// says. In memory each has a partner, so the host with fewer CPUs decides.
    pub fn instances(&self, topology: &Topology, knobs: &Knobs) -> usize {
        // What is wrong with the knobs is said, with its reason, when the trial is prepared.
        let (Ok(settings), Ok(placed)) = (
            WorkloadSettings::from_knobs(knobs),
            self.place(topology, knobs),
        ) else {
            return 1;
        };
        let ours = topology
            .hosts
            .iter()
            .filter(|host| host.stack == StackKind::User);
        // A relay has one for each port of the hosts behind it, of which each of their threads has one.
        let behind = || {
            let listen = topology.of_side(Side::Listens);
            listen.map(|host| placed[&host].len()).sum()
        };
        let cpus = ours.map(|host| match topology.relays.contains(&host.name) {
            true => behind(),
            false => placed[&host.name].len(),
        });
        let threads = settings.threads.or(cpus.min()).unwrap_or(1);
        threads.min(settings.flows).max(1)
    }

    fn queues_for(&self, knobs: &Knobs) -> usize {
        let mut links = self.topology.links.iter();
        match links.any(|link| link.kind == LinkKind::Tap) {
            true => self.instances(&self.topology, knobs),
            false => 0,
        }
    }
}

fn takes_turns(knobs: &Knobs) -> bool {
    knobs.word("placement").as_deref() == Some(ONE_THREAD)
}

fn stack(topology: &Topology, host: HostName) -> StackKind {
    let host = topology.host(host);
    host.map_or(StackKind::Kernel, |host| host.stack)
}

/// MAX_TAP_QUEUES of drivers/net/tun.c.
const TAP_QUEUES_MAX: usize = 256;
