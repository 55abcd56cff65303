//! Beds: where a trial's two ends are, and over which device they meet.
//!
//! A bed is two agents: in `memory` both in one process, else a process each. In `netns` and `tap`
//! each is alone in an anonymous network namespace, so when they end, however they end, the kernel
//! removes namespaces, devices, qdiscs and routes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr};

use tcpcost_study::{End, HostEnvironment};

use super::ends::{Ends, Events, Halt, Processes};
use crate::host::{environment, sysctl};
use crate::protocol::{Answer, Ask, PROTOCOL};

/// Which bed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BedKind {
    /// Two namespaces joined by a veth pair.
    Netns,
    /// This host's loopback.
    Loopback,
    /// Two namespaces; our own TCP in that of this end, with a TAP of so many queues into the other.
    Tap(End, usize),
    /// Our own TCP at both ends, in one process.
    Memory,
}

impl BedKind {
    /// Its name in records.
    pub fn name(self) -> &'static str {
        match self {
            BedKind::Netns => "netns",
            BedKind::Loopback => "loopback",
            BedKind::Tap(..) => "tap",
            BedKind::Memory => "memory",
        }
    }

    /// Whether the kernel's TCP at this end is in a namespace of its own.
    pub fn owns(self, end: End) -> bool {
        match self {
            BedKind::Netns => true,
            BedKind::Tap(ours, _) => end != ours,
            BedKind::Loopback | BedKind::Memory => false,
        }
    }

    fn processes(self) -> Processes {
        match self {
            BedKind::Netns | BedKind::Tap(..) => Processes::Isolated,
            BedKind::Loopback => Processes::Two,
            BedKind::Memory => Processes::One,
        }
    }
}

/// Two agents and the path between them.
pub struct Bed {
    /// Which.
    pub kind: BedKind,
    /// The agents.
    pub ends: Ends,
    /// The machine.
    pub host: HostEnvironment,
}

/// Both namespaces are ours alone, so any network will do; a /30 holds just the two ends.
const NETNS_PREFIX: u8 = 30;

impl Bed {
    /// Makes a bed.
    pub fn make(kind: BedKind, events: &mut Events) -> Result<Bed, Halt> {
        let mut ends = Ends::start(events, kind.processes())
            .map_err(|error| Halt::Gone(End::Client, format!("{error:#}")))?;
        let hellos = ends.call_both(events, |_| Ask::Hello { protocol: PROTOCOL })?;
        let [Answer::Hello { host, protocol, .. }, Answer::Hello { .. }] = hellos else {
            return Err(Halt::Gone(End::Client, "did not say hello".to_string()));
        };
        if protocol != PROTOCOL {
            let text =
                format!("speaks protocol {protocol}, this command {PROTOCOL}: install one version");
            return Err(Halt::Gone(End::Client, text));
        }
        let mut host = *host;
        // The agents may be in namespaces, which do not show them all; the command is not.
        host.sysctls = environment::sysctls(sysctl::root(), &BTreeSet::new());
        let bed = Bed { kind, ends, host };
        match kind {
            BedKind::Netns => bed.join(events),
            BedKind::Tap(ours, queues) => bed.tap(ours, queues, events),
            BedKind::Loopback | BedKind::Memory => Ok(bed),
        }
    }

    /// Makes the TAP at our end and gives the kernel's its address.
    fn tap(mut self, ours: End, queues: usize, events: &Events) -> Result<Bed, Halt> {
        let [client_pid, server_pid] = self.ends.pids();
        let device = self.device(ours).to_string();
        let tap = Ask::Tap {
            device: device.clone(),
            address: address(self.kind, ours),
            queues,
            peer_pid: if ours == End::Client {
                server_pid
            } else {
                client_pid
            },
        };
        self.ends.call(events, ours, &tap)?;
        let attach = Ask::Attach {
            device,
            address: address(self.kind, ours.peer()),
            prefix: NETNS_PREFIX,
        };
        self.ends.call(events, ours.peer(), &attach)?;
        Ok(self)
    }

    /// Makes the veth pair and gives both ends their addresses.
    fn join(mut self, events: &Events) -> Result<Bed, Halt> {
        let [_, server_pid] = self.ends.pids();
        let veth = Ask::Veth {
            device: self.device(End::Client).to_string(),
            peer_device: self.device(End::Server).to_string(),
            peer_pid: server_pid,
        };
        self.ends.call(events, End::Client, &veth)?;
        let kind = self.kind;
        self.ends.call_both(events, |end| Ask::Attach {
            device: device(kind, end).to_string(),
            address: address(kind, end),
            prefix: NETNS_PREFIX,
        })?;
        Ok(self)
    }

    /// Name of an end's device.
    pub fn device(&self, end: End) -> &'static str {
        device(self.kind, end)
    }

    /// An end's address.
    pub fn address(&self, end: End) -> IpAddr {
        address(self.kind, end).into()
    }
}

fn device(kind: BedKind, end: End) -> &'static str {
    match (kind, end) {
        (BedKind::Loopback, _) => "lo",
        (BedKind::Netns, End::Client) => "tc-client",
        (BedKind::Netns, End::Server) => "tc-server",
        (BedKind::Tap(..), _) => "tc-tap",
        (BedKind::Memory, _) => "memory",
    }
}

fn address(kind: BedKind, end: End) -> Ipv4Addr {
    match (kind, end) {
        (BedKind::Loopback, _) => Ipv4Addr::LOCALHOST,
        (_, End::Client) => Ipv4Addr::new(10, 0, 0, 1),
        (_, End::Server) => Ipv4Addr::new(10, 0, 0, 2),
    }
}
