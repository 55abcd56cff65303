//! Messages between the command and its agents. Each line is a host's name and one JSON object.
//!
//! The command asks, and an agent answers each question once, in order. An agent whose standard input ends
//! restores what it changed and exits, because its command is gone. The same lines can come over ssh, so
//! times are in the agent's own clock, which the command asks for ([`Ask::Clock`]).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tcpcost_host::cpu_quota::Stopped;
use tcpcost_host::cpus::Cpus;
use tcpcost_host::folder::Folder;
use tcpcost_study::{
    Capture, CarrierAsked, DeviceName, DeviceOwner, Environment, HostName, HostRecord,
    KernelNameError, KnobError, Knobs, Machine, MeterName, Needs, Reading, Route, Side,
};

/// Version of these messages, which must be the same at both sides.
pub const PROTOCOL: u32 = 10;

/// Limit on the bytes of an answer's line. Call chains of a host take some 200 KiB and at most some 2 MiB.
/// Histograms of response times take some 10 KiB for each group and operation, a connection's series 70 bytes
/// a sample. A host that sends more counts as broken.
pub const ANSWER_BYTES_MAX: usize = 8 << 20;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Ask {
    /// Asks for the agent's version and machine.
    Hello {
        /// [`PROTOCOL`] of the command.
        protocol: u32,
    },
    /// Asks for the agent's clock.
    Clock,
    /// Asks for the core distance of two CPUs of the agent's machine.
    Distance {
        /// The CPUs.
        cpus: [usize; 2],
    },
    /// Asks for the host's device and address on the network of a study's hosts. Until the input ends, no
    /// other run may change the settings of this network namespace. Settings that a dead agent left changed
    /// are restored.
    Port {
        /// The device; absent where the study leaves it open.
        device: Option<String>,
        /// The address; absent where the study leaves it open.
        address: Option<IpAddr>,
        /// True if the address must be of IPv6.
        is_v6: bool,
        /// True if any trial changes settings; then no other run may even measure here.
        changes: bool,
        /// How long to wait for another run that still holds the settings, ns.
        held_max_ns: u64,
    },
    /// Moves a device to the namespace of a process of the same machine, until the agent exits.
    Lend {
        /// The device.
        device: String,
        /// The process.
        pid: u32,
    },
    /// Makes a veth pair, one end here, the other in the namespace of a process.
    Veth {
        /// Name of the end here.
        device: String,
        /// Name of the other end.
        peer_device: String,
        /// A process of the other namespace.
        peer_pid: u32,
    },
    /// Makes a TAP for our own TCP with this address, and moves its device to the namespace of a process.
    Tap {
        /// Name of the device.
        device: String,
        /// Address of our TCP.
        address: IpAddr,
        /// Number of queues: one for each instance of our TCP.
        queues: usize,
        /// A process of the other namespace.
        peer_pid: u32,
    },
    /// Makes a wire with delay and loss: an interface here, an interface in the namespace of another process,
    /// and a separate process that carries packets between them.
    Wire {
        /// The interface here.
        device: String,
        /// The interface in the other namespace.
        peer_device: String,
        /// The host that has the other interface.
        peer: HostName,
        /// A process of the other namespace.
        peer_pid: u32,
        /// States if netem may, or must, carry the packets.
        by: CarrierAsked,
    },
    /// Gives devices their addresses, takes them up, and sets the routes through neighbours.
    Attach {
        /// The devices.
        ports: Vec<AttachedDevice>,
        /// Networks that are reached through neighbours.
        routes: Vec<Route>,
        /// True if the host must forward packets that are not for it.
        forwards: bool,
    },
    /// Prepares a trial: sets the knobs and reads them back.
    Prepare(Box<Prepare>),
    /// Starts the workers of a host that listens.
    Listen,
    /// Starts the workers of a host that connects, and sets up all connections.
    Connect {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
        /// eBPF programs that another host of this machine has loaded, to share: handles by meter.
        loaded: BTreeMap<MeterName, String>,
    },
    /// Starts to relay connections to another host. [`Answer::Listening`] has the addresses of the relay.
    Relay {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
    },
    /// Starts a worker without connections, which reads the meters of a host that forwards.
    Observe {
        /// See [`Ask::Connect`].
        loaded: BTreeMap<MeterName, String>,
    },
    /// Waits until a host that listens has all its connections.
    Accepted,
    /// Starts the soaker and calibrates it. All hosts must be idle.
    Soak,
    /// Runs traffic and measures.
    Run(Span),
    /// Closes the connections, ends the workers and the capture.
    Finish,
}

/// A device and its address.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AttachedDevice {
    /// The device.
    pub device: String,
    /// The host's address on this device.
    pub address: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
}

/// A device under test.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TestedPort {
    /// Name of the device.
    pub device: String,
    /// The host's address on this device.
    pub address: IpAddr,
    /// Length of the network's prefix, bits.
    pub prefix: u8,
    /// Address of the host that is reached through this device.
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

/// Parameters of a trial for one host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepare {
    /// The host.
    pub host: HostName,
    /// Side of its connections; `None` for a host that forwards.
    pub side: Option<Side>,
    /// Number of hosts that it talks with. It has the workload's flows once for each.
    pub times: usize,
    /// The cell's knobs.
    pub knobs: Knobs,
    /// CPUs of the workers.
    pub cpus: Vec<usize>,
    /// Instances of our own TCP, one worker each; 0 if the kernel's TCP is under test.
    pub instances: usize,
    /// The devices under test.
    pub ports: Vec<TestedPort>,
    /// Owner of the devices. The bed's own devices are changed without a journal on disk.
    pub owner: DeviceOwner,
    /// True if this host sets the devices' knobs. On loopback one host sets them for all.
    pub changes_device: bool,
    /// Connections of the trial on this machine, and the number of filled queues of each. Set for the host
    /// that checks whether the kernel's TCP has memory for them.
    pub held: Option<(usize, u64)>,
    /// Needs of all hosts of this machine. Set for the host that checks them.
    pub needs: Option<Needs>,
    /// True if netem must be set at its devices, each for the packets that it sends.
    pub netem: bool,
    /// True if receive work is steered to `cpus`.
    pub steering: bool,
    /// Meters to use.
    pub meters: Vec<MeterName>,
    /// True if the meter `segments` counts by connection.
    pub by_connection: bool,
    /// Time between samples of the first connection of our own TCP, ns; `None` for no series.
    pub series_ns: Option<u64>,
    /// Where and how often the meter `profile` samples; `None` if it is not wanted.
    pub sampling: Option<Sampling>,
    /// The capture; `None` if the trial is not captured.
    pub capture: Option<CaptureRequest>,
    /// Processes of the trial on this machine, including this one. The meter `others` ignores them.
    pub own_pids: Vec<u32>,
    /// Place of this host among the hosts of this machine that have CPU time by owner; `None` if it has none.
    pub cpu_owner: Option<CpuOwner>,
    /// Number of the trial's hosts on this machine, including this one. Their namespaces share one copy of
    /// the eBPF programs.
    pub mates: u32,
    /// Addresses of the trial's hosts. The agent connects to no others.
    pub addresses: Vec<IpAddr>,
    /// The trial's token in hex. Data connections without it are refused.
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

/// Parameters of a capture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaptureRequest {
    /// The file. An existing file is replaced.
    pub file: PathBuf,
    /// Bytes kept of each packet; 0 for all.
    pub snap_len: u32,
    /// Comment in the header of the file.
    pub comment: String,
}

impl CaptureRequest {
    /// The folder of the file, and its name in the folder.
    ///
    /// # Errors
    /// The folder cannot be opened ([`Folder::open`]), or the path does not end in a name.
    pub fn place(&self) -> io::Result<(Folder, &OsStr)> {
        let (Some(folder), Some(name)) = (self.file.parent(), self.file.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        Ok((Folder::open(folder)?, name))
    }
}

/// A capture that has ended.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct StoppedCapture {
    /// Where packets were seen, and by which means.
    pub place: String,
    /// Packets in the file.
    pub packets: u64,
    /// Packets that did not fit into the ring; `None` if none can be lost.
    pub dropped: Option<u64>,
}

/// Parameters of the meter `profile`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sampling {
    /// Samples per second.
    pub hz: u32,
    /// CPUs to sample. A CPU that several hosts share is sampled only by the first of them.
    pub cpus: Vec<usize>,
}

/// Times of the measured interval, ns of the agent's monotonic clock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Span {
    /// Time of the first snapshot.
    pub from_ns: u64,
    /// Time of the second snapshot.
    pub to_ns: u64,
    /// End of the traffic, later than `to_ns` so that no host is alone while another reads its meters.
    pub stop_ns: u64,
    /// Bytes that the host must send and receive before the first snapshot, and again between the two
    /// snapshots. If set, `from_ns` and `to_ns` have no meaning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work_bytes: Option<u64>,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// Answers [`Ask::Hello`].
    Hello(Box<Hello>),
    /// Answers [`Ask::Clock`].
    Clock {
        /// The monotonic clock, ns.
        now_ns: u64,
    },
    /// Answers [`Ask::Distance`].
    Distance {
        /// Round trip of a cache line, ns; `None` if one of the CPUs was not free.
        round_trip_ns: Option<u64>,
    },
    /// Answers [`Ask::Port`].
    Port {
        /// The device and its address.
        port: AttachedDevice,
        /// Settings that were restored, one line each.
        restored: Vec<String>,
    },
    /// Answers [`Ask::Lend`]: the device was moved.
    Lent {
        /// Addresses that the device had here. It has none in the other namespace.
        ports: Vec<AttachedDevice>,
    },
    /// Answers a question that has no result.
    Done,
    /// Answers [`Ask::Wire`].
    Wired {
        /// Process of the wire; `None` if it is a veth pair for netem.
        pid: Option<u32>,
    },
    /// Answers [`Ask::Prepare`].
    Prepared {
        /// State of each device, as read back.
        ports: BTreeMap<String, Environment>,
        /// Limits that the size of this trial may exceed, one line each.
        warnings: Vec<String>,
    },
    /// Answers [`Ask::Listen`] and [`Ask::Relay`].
    Listening {
        /// Addresses of the workers or relays.
        addresses: Vec<SocketAddr>,
        /// eBPF programs that this host has loaded, for other hosts of this machine: handles by meter.
        loaded: BTreeMap<MeterName, String>,
    },
    /// All connections are up.
    Connected {
        /// Number of connections.
        connections: usize,
        /// Congestion control of the first connection; `None` if there is none yet (crr).
        congestion_control: Option<String>,
        /// MSS of the first connection.
        mss: Option<u64>,
        /// Values of the knobs that were set, as read back from the first connection.
        connection: BTreeMap<String, String>,
    },
    /// Answers [`Ask::Run`].
    Measured(Box<Measured>),
    /// Answers [`Ask::Finish`]: the trial is over.
    Finished {
        /// The capture and its results, if the trial was captured.
        captured: Option<Box<CaptureResult>>,
    },
    /// A knob is unavailable here.
    Unsupported(KnobError),
    /// The question could not be answered.
    Failed {
        /// Reason, in one line.
        reason: String,
    },
}

/// Version and machine of an agent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Hello {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// Version of tcpcost.
    pub version: String,
    /// Process id in the agent's PID namespace. Thread id if the process has several hosts.
    pub pid: u32,
    /// Boot id of the kernel, which identifies the machine.
    pub machine: String,
    /// Inode of the network namespace; 0 from older versions.
    #[serde(default)]
    pub netns: u64,
    /// Properties that do not change from trial to trial.
    pub environment: Machine,
    /// CPUs that this agent may use.
    pub cpus: Cpus,
}

/// Results of a host's trial.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// The host's part of the record. The command adds the state of its ports.
    pub record: HostRecord,
    /// Busiest tasks of other programs, `name share`, largest first.
    pub others: Vec<String>,
    /// Meters that are unavailable, one line each.
    pub warnings: Vec<String>,
    /// CPU quota of the agent's cgroup, if it stopped tasks.
    pub stopped: Option<Stopped>,
    /// Delay between the ordered time of the first snapshot and its start, ns.
    pub late_ns: u64,
    /// Time from the start of the first snapshot to the start of the second, ns.
    pub took_ns: u64,
}

/// Results of a capture.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CaptureResult {
    /// The record's entry of the capture.
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
