//! Record of a trial: one JSON object a line.

use std::collections::BTreeMap;

use crate::measure::FixedWork;
use serde::{Deserialize, Serialize};
use tcpcost_counts::{
    ByConnection, CallChains, CountOwner, Environment, Machine, MeterName, Quantity, Reading,
    Shared, printable_json,
};

use crate::capture::Capture;
use crate::series::ConnectionSeries;
use crate::topology::Topology;
use tcpcost_knobs::{HostName, Knobs};

/// Version of the record's fields. It is raised when the meaning of a field changes or a field is
/// removed; fields may be added without that.
pub const SCHEMA_VERSION: u32 = 2;

/// Result of a trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "outcome")]
pub enum Outcome {
    /// Measured: the trial ran for its interval.
    Measured,
    /// Failed: the trial could not be run as requested (connections missing, an end died), or did
    /// not do its work. It has no numbers.
    Failed {
        /// Reason, in one line.
        reason: String,
    },
    /// Skipped: a knob is not available here. That is neither an error nor a number.
    Skipped {
        /// Knob and reason.
        reason: String,
    },
}

/// Kind of a condition that may make a trial's numbers worse than they look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WarningCode {
    /// Other tasks used the trial's CPUs above the study's `others_max`. Marks the trial.
    Others,
    /// Distant CPUs: the hypervisor ran the CPUs of two hosts at a larger core distance than in
    /// other trials of the run, and such trials cost more. Marks the trial.
    CpusFar,
    /// The hypervisor took more than 1 % of the trial's CPUs.
    Steal,
    /// Frequency of the CPU is not fixed: governor or turbo.
    Frequency,
    /// Softirqs ran on a CPU of neither end, or receive work of one end on the other's CPU.
    SoftirqElsewhere,
    /// Disagreement between the byte counts of the workload and the kernel.
    Disagreement,
    /// Rate missed: the workload could not keep its fixed rate. Fails the trial if less than half
    /// of the rate was reached.
    RateMissed,
    /// Incomplete work: no byte moved, or a host ran for less than half of the interval. Fails the
    /// trial.
    Incomplete,
    /// Preemption of the workload's threads was frequent.
    Preempted,
    /// CPU quota: the cgroup of the run had used it up in some periods, and its tasks were stopped.
    Quota,
    /// Straggler: a host did much less than others of its side.
    Straggler,
    /// Other condition, which the text describes.
    Other,
}

impl WarningCode {
    /// Label for a list of warnings with their number of trials: `other tasks ran`.
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
            WarningCode::Quota => "stopped by a CPU quota",
            WarningCode::Straggler => "stragglers",
            WarningCode::Other => "other",
        }
    }

    /// Unit of [`Warning::extent`]. `None` if warnings of this code have no extent.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            WarningCode::Others | WarningCode::Steal | WarningCode::Disagreement => Some("%"),
            WarningCode::Quota => Some("% of the quota's periods"),
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

    /// True if the warning means that the machine or the path was not as the trial needed it.
    pub fn is_about_the_machine(self) -> bool {
        self != WarningCode::Other
    }

    /// True if a trial with this warning is marked: it is repeated, and omitted from the
    /// estimates as long as there are unmarked trials.
    pub fn marks(self) -> bool {
        matches!(self, WarningCode::Others | WarningCode::CpusFar)
    }
}

/// Warning: the condition, and a remedy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Warning {
    /// Kind of the condition.
    pub code: WarningCode,
    /// Description in one line.
    pub text: String,
    /// Extent of the condition, in the unit of [`WarningCode::unit`]. `None` if the code has none,
    /// and in older records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extent: Option<f64>,
    /// Hosts that the text names. Empty if the warning is about the whole trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<HostName>,
}

/// Share of its rate, in percent, below which a trial counts as failed.
const RATE_LEAST: f64 = 50.0;

impl Warning {
    /// True if a trial with this warning did not do its work, so that it failed. If most of a rate
    /// was reached, the cost per unit of work is still valid; comparisons ensure that both sides
    /// did equal work.
    pub fn fails(&self) -> bool {
        match self.code {
            WarningCode::Incomplete => true,
            WarningCode::RateMissed => self.extent.is_some_and(|percent| percent < RATE_LEAST),
            _ => false,
        }
    }

    /// Creates a warning about the whole trial, without an extent.
    pub fn new(code: WarningCode, text: impl Into<String>) -> Warning {
        Warning {
            code,
            text: text.into(),
            extent: None,
            hosts: Vec::new(),
        }
    }

    /// Sets the extent, in the unit of [`WarningCode::unit`].
    pub fn extent(self, extent: f64) -> Warning {
        Warning {
            extent: Some(extent),
            ..self
        }
    }

    /// Sets the hosts that the warning is about.
    pub fn of(self, hosts: Vec<HostName>) -> Warning {
        Warning { hosts, ..self }
    }
}

/// CPU of the machine that a host runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CpuId {
    /// Name of the host.
    pub host: HostName,
    /// Number of the CPU on the machine.
    pub cpu: usize,
}

/// Buffer sizes of a socket as read back, bytes. For the kernel they are the results of getsockopt
/// for SO_SNDBUF and SO_RCVBUF, with bookkeeping, so that a requested size is doubled (socket(7)).
/// For our TCP they are payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BufferSizes {
    /// Send buffer (SO_SNDBUF), bytes.
    pub send_bytes: u64,
    /// Receive buffer (SO_RCVBUF), bytes.
    pub receive_bytes: u64,
}

/// Buffer sizes before and after tuning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct BuffersFound {
    /// Sizes before the traffic, when the connection is up.
    pub before: BufferSizes,
    /// Sizes after the second snapshot.
    pub after: BufferSizes,
}

/// Results of one host of a trial. Fields that few trials have are boxed, because a run has thousands of records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HostRecord {
    /// Machine: a key of [`Record::machines`]. Hosts of one machine share its CPUs.
    pub machine: String,
    /// States of the host's ports, by device.
    pub ports: Shared<BTreeMap<String, Shared<Environment>>>,
    /// CPUs of the host's threads.
    pub cpus: Vec<usize>,
    /// Number of worker threads.
    pub threads: usize,
    /// Readings, by meter and owner.
    pub readings: Vec<Reading>,
    /// Buffer sizes of its first connection's socket. `None` if no connection stays open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffers: Option<BuffersFound>,
    /// Samples of its first connection over time. Only if the study requests them, and only for our
    /// own TCP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub series: Option<Box<ConnectionSeries>>,
    /// Response times, ns, as an HdrHistogram (V2, deflate-free, base64). Only of `rr` and `crr`
    /// clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_time_hdr: Option<String>,
    /// Response times of each group of connections, in the same encoding, if there are several
    /// groups. Their counts are in the readings.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub response_time_hdr_by_group: BTreeMap<HostName, String>,
    /// Operations of the host's programs, in their order; only for the side that is their author.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub operations: Vec<OperationRecord>,
    /// Call chains sampled between the snapshots, by the meter `profile`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<Box<CallChains>>,
    /// Counts of the meter `segments` for the host's connections. Only if the study requests them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by_connection: Option<ByConnection>,
    /// Capture, if the trial is a captured one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capture: Option<Box<Capture>>,
    /// Offsets of the host's clock from the command's. Only for a named host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock: Option<ClockOffsets>,
    /// Connections that were refused because they did not know the trial's token.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub strangers: u64,
}

/// Offset of a host's monotonic clock from that of the command's machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffset {
    /// Offset, ns, positive if the host's clock is ahead; measured half-way between the question
    /// and the quickest of several answers.
    pub offset_ns: i64,
    /// Error of the offset in either direction, ns: half the time of that answer.
    pub error_ns: u64,
}

/// Clock offsets around a trial, and the delay of its start on a host.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockOffsets {
    /// Offset before the order to run.
    pub before: ClockOffset,
    /// Offset after the last host was done.
    pub after: ClockOffset,
    /// Delay between the ordered time and the host's first reading of its meters, ns of its own
    /// clock.
    pub late_ns: u64,
}

/// Times of an operation of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationRecord {
    /// Group of connections that does the operation. `None` for the only group, without a name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<HostName>,
    /// Place in the program: its number, from 1, after those of the loops that contain it, e.g.
    /// `2.1`.
    pub place: String,
    /// Label of the operation in a few words: `send 90B`.
    pub operation: String,
    /// Number of times that it was done.
    pub count: u64,
    /// Number of times that it failed, if the program goes on then.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// Times of the operation, ns, encoded like response times, with two digits. `None` if it was
    /// not done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_hdr: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn is_empty<T>(map: &BTreeMap<String, T>) -> bool {
    map.is_empty()
}

impl HostRecord {
    /// Growth of a quantity, as counted by this meter for this owner. `None` if it was not counted.
    pub fn growth(&self, meter: MeterName, whose: &CountOwner, quantity: Quantity) -> Option<u64> {
        self.readings
            .iter()
            .find(|reading| reading.meter == meter && reading.whose == *whose)
            .and_then(|reading| reading.counts.get(&quantity))
            .copied()
    }

    /// State of the first of its ports.
    pub fn port(&self) -> Option<&Environment> {
        self.ports.values().next().map(|port| &**port)
    }
}

/// Round trip of a cache line between CPUs of two hosts of one machine, just before a trial's
/// traffic and just after it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDistance {
    /// First CPU of the host that connects, then of the host that listens.
    pub cpus: [CpuId; 2],
    /// Round trip before the traffic, ns. `None` if a CPU was not free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_ns: Option<u64>,
    /// Round trip after the traffic, ns. `None` if a CPU was not free.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_ns: Option<u64>,
}

/// Record of one trial: all that is needed to judge it and to repeat it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// [`SCHEMA_VERSION`] of the writer.
    pub schema_version: u32,
    /// Name of the study.
    pub study: String,
    /// Name of the cell in tables.
    pub cell: String,
    /// Knobs that were set. All others had their defaults.
    pub knobs: Shared<Knobs>,
    /// Repetition, from 0.
    pub repetition: u32,
    /// Attempt of this repetition, from 0: a marked trial is repeated.
    pub attempt: u32,
    /// Seed of the study.
    pub seed: u64,
    /// Start, RFC 3339, UTC.
    pub started: String,
    /// Bed: `netns`, `loopback`, `tap`, `memory` or `hosts`.
    pub bed: String,
    /// True for a captured trial, whose CPU time is not the cell's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub captured: bool,
    /// Requested interval, ns. No limit if `work` is present.
    pub interval_ns: u64,
    /// Time of the run that the trial took, ns: from the end of the trial before (for the first,
    /// from the start of the run), with preparation, waits and calibration. `None` in guests, whose
    /// clock counts instructions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub took_ns: Option<u64>,
    /// Requested work, instead of an interval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<FixedWork>,
    /// Result of the trial.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Warnings about the trial.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<Warning>,
    /// Distances between CPUs of hosts that talk with each other. None for hosts that share a CPU,
    /// or are on two machines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cpu_distances: Vec<CpuDistance>,
    /// Hosts, links and traffic.
    pub topology: Shared<Topology>,
    /// Machines that the hosts ran on, by the kernel's boot id. Empty if no agent was started.
    #[serde(default, skip_serializing_if = "is_empty")]
    pub machines: Shared<BTreeMap<String, Shared<Machine>>>,
    /// Results of each host. Empty unless the trial ran to its end. Boxed, because a map has room for eleven at once.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hosts: BTreeMap<HostName, Box<HostRecord>>,
}

/// Error for a line of a records file that is no record.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// Line that is not JSON, or has missing fields.
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
        // A list that grew has room for up to twice what it holds.
        for host in record.hosts.values_mut() {
            host.readings.shrink_to_fit();
        }
        Ok(record)
    }

    /// Renders the record as one line, without the line end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).expect("a record has only text keys and finite numbers")
    }

    /// True if it was measured, so that it has numbers.
    pub fn is_measured(&self) -> bool {
        self.outcome == Outcome::Measured
    }

    /// Instructions in a nanosecond, if the clock of all its machines counts instructions. `None`
    /// otherwise.
    pub fn instructions_per_ns(&self) -> Option<f64> {
        let mut machines = self.machines.values();
        let first = machines.next()?.instructions_per_ns?;
        machines
            .all(|machine| machine.instructions_per_ns == Some(first))
            .then_some(first as f64)
    }

    /// Machine and number of this CPU. `None` if the host has no results.
    pub fn place_of(&self, cpu: CpuId) -> Option<(&str, usize)> {
        let host = self.hosts.get(&cpu.host)?;
        Some((host.machine.as_str(), cpu.cpu))
    }

    /// CPUs of a host, each with its machine.
    pub fn cpus_of(&self, host: HostName) -> impl Iterator<Item = (&str, usize)> {
        let found = self.hosts.get(&host).into_iter();
        found.flat_map(|found| {
            let of_machine = |&cpu: &usize| (found.machine.as_str(), cpu);
            found.cpus.iter().map(of_machine)
        })
    }

    /// True if a warning marks the trial.
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
            knobs: Knobs::default().into(),
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
            topology: Topology::default().into(),
            machines: Shared::default(),
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
