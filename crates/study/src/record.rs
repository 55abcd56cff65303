//! What a trial found, in the form in which it is kept: one JSON object a line.

use std::collections::BTreeMap;

use crate::measure::FixedWork;
use serde::{Deserialize, Serialize};
use tcpcost_counts::{
    ByConnection, CallChains, MeterName, Quantity, Reading, Whose, printable_json,
};

use crate::capture::Capture;
use crate::host_name::HostName;
use crate::knob::Knobs;
use crate::series::ConnectionSeries;
use crate::topology::Topology;

/// Version of the record's fields. It grows when a field's meaning changes or a field goes; fields
/// may be added without.
pub const SCHEMA_VERSION: u32 = 2;

/// How a trial ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// It ran its interval and was measured.
    Measured,
    /// It could not be run as asked (connections missing, an end died), or did not do its work: no numbers.
    Failed {
        /// What went wrong, one line.
        reason: String,
    },
    /// A knob of it cannot be had here: not an error, not a number.
    Skipped {
        /// Which, and why.
        reason: String,
    },
}

/// What may make a trial's numbers worse than they look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// Tasks that are not the trial's used its CPUs above the study's `others_max`. Marks the trial.
    Others,
    /// The hypervisor ran the CPUs of two hosts farther from each other than in other trials of the run, and such trials cost
    /// more. Marks the trial.
    CpusFar,
    /// The hypervisor took more than 1 % of the trial's CPUs.
    Steal,
    /// The CPU's frequency is not held: governor or turbo.
    Frequency,
    /// Softirqs ran on a CPU that is neither end's, or receive work of one end on the other's CPU.
    SoftirqElsewhere,
    /// The workload's byte count and the kernel's disagree.
    Disagreement,
    /// The workload could not keep up with its fixed rate. Fails the trial.
    RateMissed,
    /// No byte moved, or a host ran for less than half of the interval. Fails the trial.
    Incomplete,
    /// The workload's threads were preempted often.
    Preempted,
    /// A host did much less than others of its side.
    Straggler,
    /// Something else that the text says.
    Other,
}

impl WarningCode {
    /// What it is, for a list of how many trials had which: `other tasks`.
    pub fn label(self) -> &'static str {
        match self {
            WarningCode::Others => "other tasks ran",
            WarningCode::CpusFar => "distant CPUs",
            WarningCode::Steal => "time taken by the hypervisor",
            WarningCode::Frequency => "frequency not held",
            WarningCode::SoftirqElsewhere => "softirqs elsewhere",
            WarningCode::Disagreement => "counts disagree",
            WarningCode::RateMissed => "rate missed",
            WarningCode::Incomplete => "work not done",
            WarningCode::Preempted => "preempted",
            WarningCode::Straggler => "stragglers",
            WarningCode::Other => "other",
        }
    }

    /// Unit of [`Warning::extent`]; `None` if warnings of this code have no extent.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            WarningCode::Others | WarningCode::Steal | WarningCode::Disagreement => Some("%"),
            WarningCode::CpusFar => Some("ns"),
            WarningCode::SoftirqElsewhere => Some("ms"),
            WarningCode::RateMissed => Some("% of the rate"),
            WarningCode::Incomplete => Some("% of the interval"),
            WarningCode::Preempted => Some("times a second"),
            WarningCode::Straggler => Some("% of the median"),
            WarningCode::Frequency | WarningCode::Other => None,
        }
    }

    /// True if the smaller of two extents is the worse one.
    pub fn less_is_worse(self) -> bool {
        matches!(
            self,
            WarningCode::RateMissed | WarningCode::Incomplete | WarningCode::Straggler
        )
    }

    /// True if the warning says that the machine or the path was not as the trial needed it.
    pub fn is_about_the_machine(self) -> bool {
        self != WarningCode::Other
    }

    /// Whether a trial with this warning is marked: repeated, and left out of the estimates as long
    /// as unmarked ones exist.
    pub fn marks(self) -> bool {
        matches!(self, WarningCode::Others | WarningCode::CpusFar)
    }
}

/// A warning: what was seen and what to try.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Which.
    pub code: WarningCode,
    /// One line for a person.
    pub text: String,
    /// How much of it was seen, in the unit of [`WarningCode::unit`]; absent where the code has none, and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<f64>,
    /// The hosts that the text names; empty if it is about the whole trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
}

/// A trial that reached less than this of its rate, in percent, is a failed one.
const RATE_LEAST: f64 = 50.0;

impl Warning {
    /// True if a trial with this warning did not do its work, so that it failed. Where most of a rate was reached a cost per unit of work is
    /// one; comparisons see to it that both sides did equal work.
    pub fn fails(&self) -> bool {
        match self.code {
            WarningCode::Incomplete => true,
            WarningCode::RateMissed => self.extent.is_some_and(|percent| percent < RATE_LEAST),
            _ => false,
        }
    }

    /// Makes a warning about the whole trial, without an extent.
    pub fn new(code: WarningCode, text: impl Into<String>) -> Warning {
        Warning {
            code,
            text: text.into(),
            extent: None,
            hosts: Vec::new(),
        }
    }

    /// The same with this extent, in the unit of [`WarningCode::unit`].
    pub fn extent(self, extent: f64) -> Warning {
        Warning {
            extent: Some(extent),
            ..self
        }
    }

    /// The same about these hosts.
    pub fn of(self, hosts: Vec<HostName>) -> Warning {
        Warning { hosts, ..self }
    }
}

/// A machine that hosts of a trial ran on: what does not change from trial to trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release and version (uname -r, -v).
    pub kernel: String,
    /// Machine (uname -m).
    pub machine: String,
    /// CPU model.
    pub cpu: String,
    /// Online CPUs.
    pub cpus: usize,
    /// Threads per core that are siblings, by CPU; absent where the kernel does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<bool>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// The hypervisor, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Frequency governors of the CPUs; absent where there is no cpufreq.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// The kernel's clock source.
    pub clocksource: String,
    /// Instructions that the CPU executes in each nanosecond of the machine's clock, which counts them; absent of a machine whose
    /// clock tells time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_ns: Option<u64>,
    /// Rate of the time-stamp counter, Hz; absent where it is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc_hz: Option<u64>,
    /// How the kernel accounts CPU time: `tick`, `irq-time` or `vtime`; `unknown` where it does not tell.
    pub cpu_accounting: String,
    /// What the kernel was started with of options that move CPU cost (mitigations, isolated CPUs,
    /// idle states); nothing else of its command line, which may tell what is nobody's business.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
    /// Sysctls that move TCP's cost and are the host's alone: a namespace does not show them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Version of tcpcost.
    pub tcpcost: String,
    /// Whether it ran as root in the host's own user namespace.
    pub privileged: bool,
}

/// What a device of a named host is: what no trial changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its driver.
    pub driver: String,
    /// Version of its firmware; absent where it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Its place on a bus, such as `0000:3b:00.0`; absent of a virtual one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Speed of its link, Mbit/s; absent where the driver does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_per_s: Option<u64>,
    /// NUMA node that it is at; absent of a virtual one, and where there is only one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u64>,
    /// Receive queues.
    pub rx_queues: u64,
    /// Transmit queues.
    pub tx_queues: u64,
    /// Rings, coalescing, channels and RSS as read back, by knob; what the driver has not is absent, and so is the number of
    /// queues of an RSS table that does not name them in turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ethtool: BTreeMap<String, u64>,
    /// CPUs of each of its interrupts, as the kernel lists them, by the interrupt's number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub irqs: BTreeMap<String, String>,
}

/// The state of a port of a host, and of what is behind it, as it was read back just before the trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Device name.
    pub device: String,
    /// MTU, bytes.
    pub mtu: u64,
    /// Segmentation regime that the device's state amounts to: `per-mss`, `software-gso` or `tso`.
    pub segmentation: String,
    /// Offloads as read back: `tso`, `gso`, `gro`, `sg`, `tx_checksum`, `rx_checksum`.
    pub offloads: BTreeMap<String, bool>,
    /// gso_max_segs as read back.
    pub gso_max_segs: u64,
    /// gso_max_size as read back, bytes.
    pub gso_max_size: u64,
    /// gro_max_size as read back, bytes; absent before Linux 5.19.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_max_size: Option<u64>,
    /// Whether receive work is done by threads of the device's own; absent where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded_napi: Option<bool>,
    /// The root qdisc and its parameters, in tc's words.
    pub qdisc: String,
    /// The route to the host that is reached through it, in ip route's words.
    pub route: String,
    /// RPS mask of the device's receive queue; absent where it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps_cpus: Option<String>,
    /// What carried where the study sets a wire: `own` or `netem`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// What it is; of a device that was there before the trial, of a named host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<Nic>,
    /// Sysctls that move TCP's cost, and every one that the trial set, as read back.
    pub sysctls: BTreeMap<String, String>,
    /// Congestion control that the connections really had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// MSS of the connections, payload bytes per full segment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u64>,
    /// Knobs of sockets and of our own TCP that the trial set, as its first connection has them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connection: BTreeMap<String, String>,
}

/// A CPU of the machine that a host runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpuId {
    /// The host.
    pub host: HostName,
    /// Its number there.
    pub cpu: usize,
}

/// The buffers of a socket as it has them, bytes. The kernel's are what getsockopt tells of SO_SNDBUF and SO_RCVBUF, bookkeeping
/// included, so that one that was asked for is doubled (socket(7)); those of our TCP hold so much payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferSizes {
    /// SO_SNDBUF.
    pub send_bytes: u64,
    /// SO_RCVBUF.
    pub receive_bytes: u64,
}

/// What tuning made of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuffersFound {
    /// Before the traffic, its connection being up.
    pub before: BufferSizes,
    /// After the second snapshot.
    pub after: BufferSizes,
}

/// What one host of a trial found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// The machine: a key of [`Record::machines`]. Hosts of one machine share its CPUs.
    pub machine: String,
    /// State read back, by device.
    pub ports: BTreeMap<String, Environment>,
    /// CPUs of the host's threads.
    pub cpus: Vec<usize>,
    /// Worker threads.
    pub threads: usize,
    /// Readings, by meter and owner.
    pub readings: Vec<Reading>,
    /// Buffers of the socket of its first connection; absent where none stands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<BuffersFound>,
    /// Its first connection over time; only where the study asks for it, and of our own TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<ConnectionSeries>,
    /// Response times, ns, as an HdrHistogram (V2, deflate-free, base64); `rr` and `crr` clients only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_hdr: Option<String>,
    /// The same by group of connections, where there are several; their counts are in the readings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_time_hdr_by_group: BTreeMap<HostName, String>,
    /// Operations of the host's programs, in their order; only of the side that they are written for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRecord>,
    /// Call chains sampled between the snapshots, by the meter `profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<CallChains>,
    /// What the meter `segments` saw, spread over the host's connections; only where the study asks for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_connection: Option<ByConnection>,
    /// The capture, of a captured trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Capture>,
    /// The host's clock against the command's; of a named host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffsets>,
    /// Connections that did not know the trial's token and were refused.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strangers: u64,
}

/// How far the monotonic clock of a host is ahead of that of the command's machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// So far, ns: half-way between the question and the quickest of several answers.
    pub offset_ns: i64,
    /// It may be so much more or less, ns: half the time of that answer.
    pub error_ns: u64,
}

/// A host's clock around a trial, and when the host began.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffsets {
    /// Before the order to run.
    pub before: ClockOffset,
    /// After the last host was done.
    pub after: ClockOffset,
    /// How much later than it was told to the host first read its meters, ns of its own clock.
    pub late_ns: u64,
}

/// How long an operation of a program took.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// The group of connections that does it; absent where there is but one, without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<HostName>,
    /// Its place in the program: its number, from 1, behind those of the loops that it is in, as `2.1`.
    pub place: String,
    /// The operation in a few words: `send 90B`.
    pub operation: String,
    /// How often it was done.
    pub count: u64,
    /// How often it failed, where the program goes on then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Its times, ns, encoded as response times are, with two digits; absent where it was not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_hdr: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl HostRecord {
    /// The growth of a quantity by this meter of this owner.
    pub fn growth(&self, meter: MeterName, whose: &Whose, quantity: Quantity) -> Option<u64> {
        self.readings
            .iter()
            .find(|reading| reading.meter == meter && reading.whose == *whose)
            .and_then(|reading| reading.counts.get(&quantity))
            .copied()
    }

    /// The state of the first of its ports.
    pub fn port(&self) -> Option<&Environment> {
        self.ports.values().next()
    }
}

/// The round trip of a cache line between CPUs of two hosts of one machine, just before a trial's
/// traffic and just after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDistance {
    /// The first CPU of the host that connects, then that of the host that listens.
    pub cpus: [CpuId; 2],
    /// Before, ns; absent where a CPU was not free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<u64>,
    /// After, ns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<u64>,
}

/// One trial, done: everything needed to judge it and to do it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// The study's name.
    pub study: String,
    /// The cell's name in tables.
    pub cell: String,
    /// What was asked for; what is not here had its default.
    pub knobs: Knobs,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Try of this repetition, from 0: a marked trial is tried again.
    pub attempt: u32,
    /// The study's seed.
    pub seed: u64,
    /// RFC 3339, UTC.
    pub started: String,
    /// The bed it ran in: `netns`, `loopback`, `tap`, `memory` or `hosts`.
    pub bed: String,
    /// Whether it was captured: a trial for what passed, whose CPU time is not the cell's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub captured: bool,
    /// Interval asked for, ns; where `work` is there it is no limit of it.
    pub interval_ns: u64,
    /// Time of the run that the trial took, ns: from the end of the trial before (of the first from the run's start), with
    /// preparation, waits and calibration. Absent in guests, whose clock counts instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ns: Option<u64>,
    /// Work asked for in place of an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<FixedWork>,
    /// How it ended.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Distances of CPUs of hosts that talk with each other; none of hosts that share a CPU, or of
    /// two machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_distances: Vec<CpuDistance>,
    /// Hosts, links, who connects to whom.
    pub topology: Topology,
    /// The machines that the hosts ran on, by the kernel's boot id; empty where no agent was asked.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub machines: BTreeMap<String, Machine>,
    /// What each host found; empty unless the trial ran to its end.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<HostName, HostRecord>,
}

/// A line of a records file that is not a record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Not JSON, or fields missing.
    #[error("not a record: {0}")]
    Syntax(#[from] serde_json::Error),
    /// Written by a version with other fields.
    #[error("schema_version {0} is not read: this version reads {SCHEMA_VERSION}")]
    Schema(u32),
}

impl Record {
    /// Reads one line of a records file. A trial that did not do its work becomes a failed one. Texts become printable lines,
    /// because they may come from any host.
    ///
    /// # Errors
    /// The line is not a record, or has another schema.
    pub fn from_line(line: &str) -> Result<Record, RecordError> {
        #[derive(Deserialize)]
        struct Version {
            schema_version: u32,
        }
        let line = &*printable_json(line);
        let Version { schema_version } = serde_json::from_str(line)?;
        if schema_version != SCHEMA_VERSION {
            return Err(RecordError::Schema(schema_version));
        }
        let mut record: Record = serde_json::from_str(line)?;
        record.fail_if_incomplete();
        Ok(record)
    }

    /// The record as one line, without the line end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a record has only text keys and finite numbers")
    }

    /// Whether it was measured, so that it has numbers.
    pub fn is_measured(&self) -> bool {
        self.outcome == Outcome::Measured
    }

    /// Instructions that a nanosecond is, where the clock of its machines counts them.
    pub fn instructions_per_ns(&self) -> Option<f64> {
        let mut machines = self.machines.values();
        let first = machines.next()?.instructions_per_ns?;
        machines
            .all(|machine| machine.instructions_per_ns == Some(first))
            .then_some(first as f64)
    }

    /// The machine's CPU that this is; `None` where the host found nothing.
    pub fn place_of(&self, cpu: CpuId) -> Option<(&str, usize)> {
        let host = self.hosts.get(&cpu.host)?;
        Some((host.machine.as_str(), cpu.cpu))
    }

    /// The CPUs of a host, each with its machine.
    pub fn cpus_of(&self, host: HostName) -> impl Iterator<Item = (&str, usize)> {
        let found = self.hosts.get(&host).into_iter();
        found.flat_map(|found| {
            let of_machine = |&cpu: &usize| (found.machine.as_str(), cpu);
            found.cpus.iter().map(of_machine)
        })
    }

    /// Whether a warning marks it.
    pub fn is_marked(&self) -> bool {
        self.warnings.iter().any(|warning| warning.code.marks())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_line_and_a_newer_schema_is_refused() {
        let record = Record {
            schema_version: SCHEMA_VERSION,
            study: "tour".into(),
            cell: "stream".into(),
            knobs: Knobs::default(),
            repetition: 2,
            attempt: 0,
            seed: 1,
            started: "2026-01-01T00:00:00Z".into(),
            bed: "loopback".into(),
            captured: false,
            interval_ns: 5,
            took_ns: None,
            work: None,
            outcome: Outcome::Failed {
                reason: "no".into(),
            },
            warnings: vec![],
            cpu_distances: Vec::new(),
            topology: Topology::default(),
            machines: BTreeMap::new(),
            hosts: BTreeMap::new(),
        };
        let line = record.to_line();
        assert_eq!(Record::from_line(&line).unwrap(), record);
        let newer = line.replace("\"schema_version\":2", "\"schema_version\":3");
        assert!(matches!(
            Record::from_line(&newer),
            Err(RecordError::Schema(3))
        ));
        assert!(
            Record::from_line("{\"schema_version\":2").is_err(),
            "a torn line"
        );
    }
}
