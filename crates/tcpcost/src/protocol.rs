//! What the command and its agents say to each other: one JSON object a line.
//!
//! The command asks, an agent answers each question once, in order. An agent whose standard input
//! ends puts back what it changed and exits: nobody is left to want its work. The same lines could
//! come over ssh, so times are in the agent's own clock (`clock_ns` of its hello).

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tcpcost_study::{Brackets, End, EndRecord, Environment, HostEnvironment, Knobs};

/// Version of these messages; both sides must be of one.
pub const PROTOCOL: u32 = 1;

/// A question.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
pub enum Ask {
    /// Who are you?
    Hello {
        /// [`PROTOCOL`] of the command.
        protocol: u32,
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
        address: Ipv4Addr,
        /// Its queues: one for each instance of our TCP.
        queues: usize,
        /// A process of the other namespace.
        peer_pid: u32,
    },
    /// Give the device its address and take it up.
    Attach {
        /// The device.
        device: String,
        /// Its address.
        address: Ipv4Addr,
        /// Length of the network's prefix, bits.
        prefix: u8,
    },
    /// Make ready for a trial: turn the knobs, read them back.
    Prepare(Box<Prepare>),
    /// Start the server's workers.
    Listen,
    /// Start the client's workers and set up all connections.
    Connect {
        /// Where the server listens.
        targets: Vec<SocketAddr>,
        /// eBPF programs that the server has loaded, to share: handles by meter.
        loaded: BTreeMap<String, String>,
    },
    /// Wait until the server has all its connections.
    Accepted,
    /// Start the soaker and calibrate it: both ends are idle.
    Soak,
    /// Run traffic and measure.
    Run(Span),
    /// Close the connections, end the workers and the capture.
    Finish,
}

/// What a trial needs of one end.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Prepare {
    /// Which end this is.
    pub end: End,
    /// The cell's knobs.
    pub knobs: Knobs,
    /// CPUs of the workers.
    pub cpus: Vec<usize>,
    /// Instances of our own TCP at this end, one worker each; 0 where the kernel's is under test.
    pub instances: usize,
    /// The device under test.
    pub device: String,
    /// This end's address.
    pub address: IpAddr,
    /// The other end's address.
    pub peer: IpAddr,
    /// Whether device and namespace are the bed's own, to change without a journal on disk.
    pub owned: bool,
    /// Whether this end sets the device's knobs. On loopback one end does, for both.
    pub changes_device: bool,
    /// Whether receive work is steered to `cpus`.
    pub steering: bool,
    /// Meters to use.
    pub meters: Vec<String>,
    /// Whether the meter `segments` counts by connection.
    pub by_connection: bool,
    /// Where and how often the meter `profile` samples; absent where it is not wanted.
    pub sampling: Option<Sampling>,
    /// The capture, of a captured trial.
    pub capture: Option<Capturing>,
    /// Processes of the trial, this one included: not "others".
    pub own_pids: Vec<u32>,
    /// The trial's token, hex: data connections without it are refused.
    pub token: String,
    /// Seed of the payload.
    pub seed: u64,
}

/// What is captured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Capturing {
    /// Into this file.
    pub file: PathBuf,
    /// Bytes of each packet; 0 for all.
    pub snap_len: u32,
    /// What the file says of itself.
    pub comment: String,
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
    /// CPUs. One that both ends share is sampled by the client alone, for both.
    pub cpus: Vec<usize>,
}

/// When traffic is measured, ns of the agent's monotonic clock.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Span {
    /// The first snapshot.
    pub from_ns: u64,
    /// The second snapshot.
    pub to_ns: u64,
    /// Traffic goes on until here, so that neither end is alone while the other reads its meters.
    pub stop_ns: u64,
}

/// An answer.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "is", rename_all = "snake_case")]
pub enum Answer {
    /// Who I am.
    Hello {
        /// [`PROTOCOL`] of the agent.
        protocol: u32,
        /// Version of tcpcost.
        version: String,
        /// Process id, in the command's PID namespace where that is the same.
        pid: u32,
        /// Monotonic clock now, ns.
        clock_ns: u64,
        /// The machine.
        host: Box<HostEnvironment>,
    },
    /// Done.
    Done,
    /// Ready for the trial.
    Prepared {
        /// The state read back.
        environment: Box<Environment>,
        /// What may go wrong at this size, one line each.
        cautions: Vec<String>,
    },
    /// Listening.
    Listening {
        /// Addresses of the workers.
        addresses: Vec<SocketAddr>,
        /// eBPF programs that this end has loaded, for the other end if it is on this host: handles by meter.
        loaded: BTreeMap<String, String>,
    },
    /// All connections are up.
    Connected {
        /// How many.
        connections: usize,
        /// Congestion control of the first; absent where there is none yet (crr).
        congestion_control: Option<String>,
        /// MSS of the first.
        mss: Option<u64>,
    },
    /// Measured.
    Measured(Box<Measured>),
    /// The trial is over.
    Finished {
        /// Its capture, if there was one.
        capture: Option<Stopped>,
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

/// What an end found.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Measured {
    /// For the record.
    pub record: EndRecord,
    /// The busiest tasks of others, `name share`, largest first.
    pub others: Vec<String>,
    /// Meters that could not be had, one line each.
    pub cautions: Vec<String>,
    /// When the meters were read.
    pub snapshots: Brackets,
    /// When TCP_INFO was.
    pub tcp_info: Option<Brackets>,
}

/// Monotonic clock of this host, ns.
pub fn clock_ns() -> u64 {
    clock(libc::CLOCK_MONOTONIC)
}

/// Time since the epoch, ns, by the clock that stamps captured packets.
pub fn realtime_ns() -> u64 {
    clock(libc::CLOCK_REALTIME)
}

fn clock(id: libc::clockid_t) -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is valid for the call to write; both clocks exist on every Linux.
    let status = unsafe { libc::clock_gettime(id, &mut time) };
    assert_eq!(status, 0, "both clocks exist on every Linux");
    time.tv_sec.cast_unsigned() * 1_000_000_000 + time.tv_nsec.cast_unsigned()
}
