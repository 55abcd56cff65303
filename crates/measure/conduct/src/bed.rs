//! A bed: the agents of a topology's hosts, and the links between them.
//!
//! A host that is in an anonymous network namespace of its own leaves nothing behind: when its agent ends,
//! however it ends, the kernel removes namespace, devices, qdiscs and routes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use tcpcost_agent::protocol::{Answer, Ask, AttachedDevice};
use tcpcost_study::{
    Bed as Kind, CarrierAsked, Cell, DeviceOwner, Host, HostName, KnobError, Knobs, Link, LinkKind,
    Machine, Reach, Side, StackKind, Topology, WorkloadSettings,
};

use super::ask_error::{AskError, out_of_turn};
use super::events::Events;
use super::launcher::Launchers;
use super::nodes::Nodes;
use super::placement::{ONE_THREAD, Placement, place};

/// Agents and the links between them.
pub struct Bed {
    /// Kind of bed.
    pub kind: Kind,
    /// Hosts and links, as the study describes them.
    pub topology: Topology,
    /// Devices and addresses of named hosts, as their agents found them.
    found: BTreeMap<HostName, AttachedDevice>,
    /// Agents of the hosts.
    pub nodes: Nodes,
    /// Descriptions of the machines, by the kernel's boot id.
    pub machines: BTreeMap<String, Machine>,
    /// Process ids of the programs that carry the wires.
    pub wires: Vec<u32>,
    /// Carrier of wires that the study asks for.
    carrier: CarrierAsked,
    /// True if netem carries the wires.
    netem: bool,
    /// True if both ends take turns in one thread.
    turns: bool,
    /// Number of queues of the TAP; 0 without a TAP.
    queues: usize,
    /// Program of the agents. `None` is this program.
    program: Option<PathBuf>,
}

impl Bed {
    /// Starts the agents and makes the links. `changes`: a trial changes settings of named hosts; `held_max`: limit on the wait for another
    /// run that holds these settings.
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
            let wrong = |reason| KnobError::new("placement", format!("{ONE_THREAD}: {reason}"));
            topology.takes_turns().map_err(wrong)?;
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
            return Err(KnobError::new("threads", reason).into());
        }
        if kind == Kind::Hosts {
            bed.find_ports(changes, held_max, events)?;
        }
        for link in &topology.links {
            bed.make_link(link, events)?;
        }
        for host in topology.names() {
            bed.attach(host, events)?;
        }
        bed.log_how_to_watch();
        Ok(bed)
    }

    /// Logs the commands that show the bed's namespaces live. These have no names, so a process in each names it.
    fn log_how_to_watch(&self) {
        let owned = self.topology.names().filter(|&host| self.owns(host));
        for host in owned.take(WATCHED_MAX) {
            let pid = self.nodes.hello(host).pid;
            tracing::info!("watch {host} live: tcpcost watch --netns {pid}");
        }
    }

    /// True if a trial with these hosts, links, knobs and program can use this bed. CPUs do not matter, because each trial chooses its own.
    pub fn serves(&self, kind: Kind, topology: &Topology, cell: &Cell) -> bool {
        let without_cpus = |topology: &Topology| {
            let mut topology = topology.clone();
            topology.hosts.iter_mut().for_each(|host| host.cpus = None);
            if kind == Kind::Hosts {
                // Each trial has its own traffic between the hosts.
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

    /// Asks named hosts for their devices. From then on no other run changes these.
    fn find_ports(
        &mut self,
        changes: bool,
        held_max: Duration,
        events: &Events,
    ) -> Result<(), AskError> {
        let mut asks = BTreeMap::new();
        let mut each = self.topology.hosts.iter();
        // Moving a device changes it.
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
                // Both halves of a machine have the same device.
                asks.insert(port.host.half_of().unwrap_or(port.host), ask);
            }
        }
        let hosts: Vec<HostName> = asks.keys().copied().collect();
        self.require_own_namespaces(&hosts)?;
        let is_moved = |host: &HostName| {
            let host = self.topology.host(*host);
            host.is_some_and(|host| host.reach == Reach::Netns)
        };
        // Hosts that keep their devices come first, among them the local host, from which devices are moved.
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
        let from = from.expect("a study without a local host is refused").name;
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
                tcpcost_console::output::say!(
                    "tcpcost: {host} restored what a dead agent had changed: {line}"
                );
            }
            self.found.insert(host, port);
        }
        Ok(())
    }

    /// Refuses two hosts in one network namespace, because they would count each other's segments.
    fn require_own_namespaces(&self, hosts: &[HostName]) -> Result<(), AskError> {
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
                    "is in the same network namespace as {other}: name another host, or remove one"
                );
                return Err(AskError::Unfit(host, text));
            }
        }
        Ok(())
    }

    /// Fills in the devices and addresses that the agents found.
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
    fn make_link(&mut self, link: &Link, events: &Events) -> Result<(), AskError> {
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

    /// Sets addresses and routes of the devices in a namespace that this bed made.
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

    /// True if reading a host's namespace counters adds to the interval of the other host. This is so in a guest whose clock counts
    /// instructions, if each end has its own process: reading these counters takes a million instructions.
    pub fn disturbs_other(&self, host: HostName) -> bool {
        let machine = &self.nodes.hello(host).environment;
        machine.instructions_per_ns.is_some() && !self.turns
    }

    /// True if netem carries the wires.
    pub fn by_netem(&self) -> bool {
        self.netem
    }

    /// True if this host uses the kernel's TCP in a namespace that this bed made.
    pub fn owns(&self, host: HostName) -> bool {
        let owns = |host: &Host| host.reach == Reach::Netns && host.stack == StackKind::Kernel;
        self.kind != Kind::Hosts && self.topology.host(host).is_some_and(owns)
    }

    /// True if a host's receive work is steered to its CPUs.
    pub fn steers(&self, host: HostName, knobs: &Knobs) -> bool {
        let is_asked = knobs.is_on("steering").expect("a switch has a default");
        is_asked && (self.owns(host) || self.kind == Kind::Hosts)
    }

    /// Owner of a host's devices.
    pub fn owner(&self, host: HostName) -> DeviceOwner {
        match self.kind {
            Kind::Hosts => DeviceOwner::Host,
            _ if self.owns(host) => DeviceOwner::Bed,
            _ => DeviceOwner::Loopback,
        }
    }

    /// CPUs of each host according to the cell's knobs.
    pub fn place(&self, topology: &Topology, knobs: &Knobs) -> Result<Placement, KnobError> {
        let placement = knobs.word("placement").expect("a choice has a default");
        let mut placed = Placement::new();
        for machine in self.machines.keys() {
            let hosts = self.nodes.on_machine(machine);
            let cpus = &self.nodes.hello(hosts[0]).cpus;
            placed.extend(place(cpus, &placement, topology, &hosts)?);
        }
        Ok(placed)
    }

    /// CPU that all hosts of a machine share although the cell does not ask for that. `None` if there is none.
    pub fn only_cpu(&self, placed: &Placement, knobs: &Knobs) -> Option<usize> {
        let is_auto = knobs.word("placement").as_deref() == Some("auto");
        let mut machines = self.machines.keys().filter(|_| is_auto);
        machines.find_map(|machine| {
            let hosts = self.nodes.on_machine(machine);
            let mut cpus = hosts.iter().filter_map(|host| placed.get(host));
            let first = cpus.next()?;
            let are_shared = hosts.len() > 1 && cpus.all(|cpus| cpus == first);
            first.first().copied().filter(|_| are_shared)
        })
    }

    /// Number of instances of our TCP on each of its hosts: the knob `threads`, or else one for each CPU. The host with the fewest CPUs
    /// decides, because in memory each instance has a partner.
    pub fn instances(&self, topology: &Topology, knobs: &Knobs) -> usize {
        // Wrong knobs are reported when the trial is prepared.
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
        // A relay has an instance for each port of the hosts behind it, and each thread of these has one port.
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

/// Hosts whose command to watch them is logged: a star has up to two hundred that are alike.
const WATCHED_MAX: usize = 4;

/// `MAX_TAP_QUEUES` of drivers/net/tun.c.
const TAP_QUEUES_MAX: usize = 256;
