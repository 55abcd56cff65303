//! A bed: the agents of a topology's hosts, and the links between them.
//!
//! A host that is in an anonymous network namespace of its own leaves nothing behind: when its agent ends,
//! however it ends, the kernel removes namespace, devices, qdiscs and routes.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tcpcost_agent::protocol::{Answer, Ask, Attached};
use tcpcost_study::{
    Bed as Kind, CarrierAsked, Cell, Host, HostName, Knobs, Link, LinkKind, Machine, Reach, Side,
    StackKind, Topology, WorkloadSettings,
};

use super::launcher::Launchers;
use super::nodes::{AskError, Events, Nodes, out_of_turn};
use super::placement::{Placement, place};

/// Agents and the links between them.
pub struct Bed {
    /// Which description.
    pub kind: Kind,
    /// Its hosts and links.
    pub topology: Topology,
    /// The agents.
    pub nodes: Nodes,
    /// The machines, by the kernel's boot id.
    pub machines: BTreeMap<String, Machine>,
    /// Processes of its wires.
    pub wires: Vec<u32>,
    /// What may carry where the study sets a wire, and whether netem does.
    carrier: CarrierAsked,
    netem: bool,
    /// Queues of its TAP; 0 without one.
    queues: usize,
    /// The program of its agents; `None` is the one that runs.
    program: Option<PathBuf>,
}

impl Bed {
    /// Starts the agents and links them.
    pub fn make(
        kind: Kind,
        topology: &Topology,
        cell: &Cell,
        launchers: &Launchers,
        events: &mut Events,
    ) -> Result<Bed, AskError> {
        let nodes = Nodes::start(events, topology, launchers, cell.program.as_deref())?;
        let machine = |host| {
            let hello = nodes.hello(host);
            (hello.machine.clone(), hello.environment.clone())
        };
        let mut bed = Bed {
            kind,
            topology: topology.clone(),
            machines: topology.names().map(machine).collect(),
            nodes,
            wires: Vec::new(),
            carrier: CarrierAsked::of(&cell.knobs),
            netem: false,
            queues: 0,
            program: cell.program.clone(),
        };
        bed.queues = bed.queues_for(&cell.knobs);
        if bed.queues > TAP_QUEUES_MAX {
            let reason = format!("a TAP has at most {TAP_QUEUES_MAX} queues");
            let knob = "threads".to_string();
            return Err(AskError::Unsupported { knob, reason });
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
            topology
        };
        self.kind == kind
            && without_cpus(&self.topology) == without_cpus(topology)
            && self.program == cell.program
            && (self.carrier == CarrierAsked::of(&cell.knobs) || !self.has_wire())
            && self.queues == self.queues_for(&cell.knobs)
    }

    /// Makes a link.
    fn join(&mut self, link: &Link, events: &Events) -> Result<(), AskError> {
        match link.kind {
            LinkKind::Loopback | LinkKind::Memory => Ok(()),
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
                    Some(Attached {
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

    /// Whether netem carries what its study sets of a wire.
    pub fn by_netem(&self) -> bool {
        self.netem
    }

    /// Whether the kernel's TCP at this host is in a namespace of its own.
    pub fn owns(&self, host: HostName) -> bool {
        let owns = |host: &Host| host.reach == Reach::Netns && host.stack == StackKind::Kernel;
        self.topology.host(host).is_some_and(owns)
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

fn stack(topology: &Topology, host: HostName) -> StackKind {
    let host = topology.host(host);
    host.map_or(StackKind::Kernel, |host| host.stack)
}

/// MAX_TAP_QUEUES of drivers/net/tun.c.
const TAP_QUEUES_MAX: usize = 256;
