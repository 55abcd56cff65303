//! What the command and its agents say to each other: a host's name, then one JSON object, a line each.
//!
//! The command asks, an agent answers each question once, in order. An agent whose standard input
//! ends puts back what it changed and exits: nobody is left to want its work. The same lines could
//! come over ssh, so times are in the agent's own clock, which the command asks for ([`Ask::Clock`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tcpcost_host::cpus::Cpus;
use tcpcost_host::folder::Folder;
use tcpcost_study::{
    Capture, CarrierAsked, DeviceName, DeviceOwner, Environment, HostName, HostRecord,
    KernelNameError, Knobs, Machine, MeterName, Needs, Reading, Route, Side,
};

/// Version of these messages; both sides must be of one.
pub const PROTOCOL: u32 = 9;

/// Most bytes of an answer's line. Call chains of a host take some 200 KiB and at most some 2 MiB, histograms of response times some
/// 10 KiB for each group and operation, a connection's series 70 bytes for each look. A host that says more is taken for broken.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Ask {
    /// Who are you?
    Hello {
        /// [`PROTOCOL`] of the command.
        protocol: u32,
    },
    /// What time is it?
    Clock,
    /// What is the core distance of two CPUs of your machine?
    Distance {
        /// The CPUs.
        cpus: [usize; 2],
    },
    /// Which device and address are yours on the network of a study's hosts? From then on until the end of the input nobody
    /// else is to change the settings of your network namespace, and what somebody who died has left changed is put back.
    Port {
        /// The device; absent where the study leaves it open.
        device: Option<String>,
        /// The address; absent where the study leaves it open.
        address: Option<IpAddr>,
        /// Whether it is to be of IPv6.
        is_v6: bool,
        /// Whether any trial changes settings, so that nobody else may even measure with them.
        changes: bool,
        /// How long somebody is waited for who still holds them, ns.
        held_max_ns: u64,
    },
    /// Move this device of yours to the namespace of a process of your machine, until you leave.
    Lend {
        /// The device.
        device: String,
        /// The process.
        pid: u32,
    },
    /// Make a veth pair, one end here, the other in the namespace of a process.
    Veth {
        /// Name of the end here.
        device: String,
        /// Name of the other end.
        peer_device: String,
        /// A process of the other namespace.
        peer_pid: u32,
    },
    /// Make a TAP whose wire ends here, for our own TCP with this address, and move its device to
    /// the namespace of a process.
    Tap {
        /// Name of the device.
        device: String,
        /// Our address.
        address: IpAddr,
        /// Its queues: one for each instance of our TCP.
        queues: usize,
        /// A process of the other namespace.
        peer_pid: u32,
    },
    /// Make a wire with delay and loss: an interface here, one in the namespace of another process, and a process of the
    /// wire's own between them.
    Wire {
        /// The interface here.
        device: String,
        /// The other.
        peer_device: String,
        /// The host that has it.
        peer: HostName,
        /// The process in whose network namespace it is.
        peer_pid: u32,
        /// Whether netem may, or must, carry instead.
        by: CarrierAsked,
    },
    /// Give the devices their addresses and take them up; set the routes through neighbours.
    Attach {
        /// The devices.
        ports: Vec<Attached>,
        /// Networks behind neighbours.
        routes: Vec<Route>,
        /// Whether to pass on what is not for this host.
        forwards: bool,
    },
    /// Make ready for a trial: turn the knobs, read them back.
    Prepare(Box<Prepare>),
    /// Start the workers of a host that listens.
    Listen,
    /// Start the workers of a host that connects, and set up all connections.
    Connect {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
        /// eBPF programs that another host of this machine has loaded, to share: handles by meter.
        loaded: BTreeMap<MeterName, String>,
    },
    /// Start to relay connections to another host; [`Answer::Listening`] tells where they are taken.
    Relay {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
    },
    /// Start a worker that has no connections and reads the meters: of a host that forwards.
    Observe {
        /// As of [`Ask::Connect`].
        loaded: BTreeMap<MeterName, String>,
    },
    /// Wait until a host that listens has all its connections.
    Accepted,
    /// Start the soaker and calibrate it: all hosts are idle.
    Soak,
    /// Run traffic and measure.
    Run(Span),
    /// Close the connections, end the workers and the capture.
    Finish,
}

/// A device and its address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Attached {
    /// The device.
    pub device: String,
    /// Its address.
    pub address: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
}

/// A device under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TestedPort {
    /// Its name.
    pub device: String,
    /// The host's address there.
    pub address: IpAddr,
    /// Length of its network's prefix, bits.
    pub prefix: u8,
    /// The address of the host that is reached through it.
    pub peer: IpAddr,
}

impl TestedPort {
    /// The device's name, which may become a part of a path.
    ///
    /// # Errors
    /// No device can have this name.
    pub fn device(&self) -> Result<DeviceName, KernelNameError> {
        self.device.parse()
    }
}

/// What a trial needs of one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepare {
    /// The host.
    pub host: HostName,
    /// Which side of its connections it is; `None` of one that forwards.
    pub side: Option<Side>,
    /// Hosts that it talks with: so often it has the workload's flows.
    pub times: usize,
    /// The cell's knobs.
    pub knobs: Knobs,
    /// CPUs of the workers.
    pub cpus: Vec<usize>,
    /// Instances of our own TCP, one worker each; 0 where the kernel's is under test.
    pub instances: usize,
    /// The devices under test.
    pub ports: Vec<TestedPort>,
    /// Whose the devices are: what is the bed's own is changed without a journal on disk.
    pub owner: DeviceOwner,
    /// Whether this host sets the devices' knobs. On loopback one does, for all.
    pub changes_device: bool,
    /// Connections of the trial on this machine, and filled queues of each, for the host that checks
    /// whether the memory of the kernel's TCP can hold them.
    pub held: Option<(usize, u64)>,
    /// Needs of all hosts of this machine, for the host that checks them.
    pub needs: Option<Needs>,
    /// Whether netem is to be set at its devices, each for what it sends.
    pub netem: bool,
    /// Whether receive work is steered to `cpus`.
    pub steering: bool,
    /// Meters to use.
    pub meters: Vec<MeterName>,
    /// Whether the meter `segments` counts by connection.
    pub by_connection: bool,
    /// Time between looks at the first connection of our own TCP, ns; absent without.
    pub series_ns: Option<u64>,
    /// Where and how often the meter `profile` samples; absent where it is not wanted.
    pub sampling: Option<Sampling>,
    /// The capture, of a captured trial.
    pub capture: Option<Capturing>,
    /// Processes of the trial on this machine, this one included: not "others".
    pub own_pids: Vec<u32>,
    /// Place of this host among the hosts of this machine that have CPU time by owner; `None` if it has none.
    pub cpu_owner: Option<CpuOwner>,
    /// Hosts of the trial on this machine, this one included: so many namespaces count by one copy of eBPF programs.
    pub mates: u32,
    /// Addresses of the trial's hosts: it connects to no other.
    pub addresses: Vec<IpAddr>,
    /// The trial's token, hex: data connections without it are refused.
    pub token: String,
    /// Seed of the payload.
    pub seed: u64,
}

/// Place of a process among the processes of one machine that own CPU time in the programs of `exact`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuOwner {
    /// Place, from 0 on.
    pub index: u32,
    /// Number of these processes.
    pub count: u32,
}

/// What is captured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capturing {
    /// Into this file, which is made anew.
    pub file: PathBuf,
    /// Bytes of each packet; 0 for all.
    pub snap_len: u32,
    /// What the file says of itself.
    pub comment: String,
}

impl Capturing {
    /// The folder of the file, and its name there.
    ///
    /// # Errors
    /// The folder cannot be opened ([`Folder::open`]), or the path ends in no name.
    pub fn place(&self) -> io::Result<(Folder, &OsStr)> {
        let (Some(folder), Some(name)) = (self.file.parent(), self.file.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((Folder::open(folder)?, name))
    }
}

/// A capture that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Stopped {
    /// Where packets were seen, and by what.
    pub place: String,
    /// Packets in the file.
    pub packets: u64,
    /// Packets that had no room; absent where it cannot lose any.
    pub dropped: Option<u64>,
}

/// What the meter `profile` does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sampling {
    /// Samples per second.
    pub hz: u32,
    /// CPUs. One that several hosts share is sampled by the first of them alone.
    pub cpus: Vec<usize>,
}

/// When traffic is measured, ns of the agent's monotonic clock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Span {
    /// The first snapshot.
    pub from_ns: u64,
    /// The second snapshot.
    pub to_ns: u64,
    /// Traffic goes on until here, so that no host is alone while another reads its meters.
    pub stop_ns: u64,
    /// Bytes that the host is to send and receive before the first snapshot, and as many between both; then `from_ns` and `to_ns`
    /// are of no meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_bytes: Option<u64>,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// Who I am.
    Hello(Box<Hello>),
    /// My clock.
    Clock {
        /// The monotonic clock, ns.
        now_ns: u64,
    },
    /// The core distance of two CPUs.
    Distance {
        /// The round trip of a cache line, ns; absent where one of them was not free.
        round_trip_ns: Option<u64>,
    },
    /// The device.
    Port {
        /// Its name and address.
        port: Attached,
        /// What was put back, one line each.
        restored: Vec<String>,
    },
    /// It is there.
    Lent {
        /// What it had here: it has no address there.
        ports: Vec<Attached>,
    },
    /// Done.
    Done,
    /// The wire is there.
    Wired {
        /// Its process; none where it is a veth pair for netem.
        pid: Option<u32>,
    },
    /// Ready for the trial.
    Prepared {
        /// The state read back, by device.
        ports: BTreeMap<String, Environment>,
        /// What may go wrong at this size, one line each.
        warnings: Vec<String>,
    },
    /// Listening.
    Listening {
        /// Addresses of the workers.
        addresses: Vec<SocketAddr>,
        /// eBPF programs that this host has loaded, for others of this machine: handles by meter.
        loaded: BTreeMap<MeterName, String>,
    },
    /// All connections are up.
    Connected {
        /// How many.
        connections: usize,
        /// Congestion control of the first; absent where there is none yet (crr).
        congestion_control: Option<String>,
        /// MSS of the first.
        mss: Option<u64>,
        /// What the first has of the knobs that are set.
        connection: BTreeMap<String, String>,
    },
    /// Measured.
    Measured(Box<Measured>),
    /// The trial is over.
    Finished {
        /// Its capture, if there was one, and what it says.
        captured: Option<Box<Captured>>,
    },
    /// A knob cannot be had here.
    Unsupported {
        /// The knob.
        knob: String,
        /// Why.
        reason: String,
    },
    /// It went wrong.
    Failed {
        /// One line.
        reason: String,
    },
}

/// Who an agent is.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Version of tcpcost.
    pub version: String,
    /// Process id, in the command's PID namespace where that is the same.
    pub pid: u32,
    /// Which machine: the kernel's boot id.
    pub machine: String,
    /// Which network namespace of it: the inode. Other versions have not told it.
    #[serde(default)]
    pub netns: u64,
    /// What does not change from trial to trial.
    pub environment: Machine,
    /// CPUs that this agent may use.
    pub cpus: Cpus,
}

/// What a host found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// For the record; the state of its ports is the command's to add.
    pub record: HostRecord,
    /// The busiest tasks of others, `name share`, largest first.
    pub others: Vec<String>,
    /// Meters that could not be had, one line each.
    pub warnings: Vec<String>,
    /// How much later than it was told to it began to read its meters, ns.
    pub late_ns: u64,
    /// Time from there to the second reading, ns.
    pub took_ns: u64,
}

/// What a capture says.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Captured {
    /// For the record.
    pub capture: Capture,
    /// Growth between the two readings of the meters, as the meter `trace`.
    pub readings: Vec<Reading>,
}

/// Splits a line into the host's name and the message. `None` without a space.
pub fn addressed(line: &str) -> Option<(&str, &str)> {
    line.split_once(' ')
}

/// Monotonic clock of this host, ns.
pub fn clock_ns() -> u64 {
    clock(ClockId::Monotonic)
}

/// Time since the epoch, ns, by the clock that stamps captured packets.
pub fn realtime_ns() -> u64 {
    clock(ClockId::Realtime)
}

fn clock(id: ClockId) -> u64 {
    let time = clock_gettime(id);
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
