//! Machine, device and path that a trial ran on, as they are read back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Machine that hosts of a trial ran on: properties that do not change from trial to trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// Kernel release and version (uname -r, -v).
    pub kernel: String,
    /// Machine type (uname -m).
    pub machine: String,
    /// CPU model.
    pub cpu: String,
    /// Number of online CPUs.
    pub cpus: usize,
    /// True if cores have several threads (SMT). `None` if the kernel does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub smt: Option<bool>,
    /// Memory, bytes.
    pub memory_bytes: u64,
    /// Name of the hypervisor. `None` without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hypervisor: Option<String>,
    /// Frequency governors of the CPUs. `None` without cpufreq.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub governor: Option<String>,
    /// Clock source of the kernel.
    pub clocksource: String,
    /// Instructions in each nanosecond of the machine's clock, if that clock counts instructions.
    /// `None` for a machine whose clock measures time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions_per_ns: Option<u64>,
    /// Rate of the time-stamp counter, Hz. `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tsc_hz: Option<u64>,
    /// Method by which the kernel sums CPU time: `tick`, `irq-time`, `vtime`, `periodic` (its tick never stops, so idle time, too,
    /// is what ticks met), or `unknown`. CPUs of `nohz_full=` have `vtime`.
    pub cpu_accounting: String,
    /// Options on the kernel's command line that affect CPU cost (mitigations, isolated CPUs, idle
    /// states). The rest of it is omitted, because it may contain private data.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub cmdline: String,
    /// Sysctls that affect TCP's cost and exist only in the host's namespace.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// Version of tcpcost, with the profile that it was built by if that is not a release's: `0.1.0 (fast-build)`.
    pub tcpcost: String,
    /// True if tcpcost ran as root in the host's own user namespace.
    pub privileged: bool,
}

/// Device of a named host: properties that no trial changes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Name of the driver.
    pub driver: String,
    /// Version of the firmware. `None` if the device has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firmware: Option<String>,
    /// Bus address, such as `0000:3b:00.0`. `None` for a virtual device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus: Option<String>,
    /// Speed of the link, Mbit/s. `None` if the driver does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub speed_mbit_per_s: Option<u64>,
    /// NUMA node of the device. `None` for a virtual device, and if there is only one node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u64>,
    /// Number of receive queues.
    pub rx_queues: u64,
    /// Number of transmit queues.
    pub tx_queues: u64,
    /// Values of rings, coalescing, channels and RSS as read back, by knob. Absent if the driver
    /// does not have the value; the number of RSS queues also if the table does not name queues in
    /// turn.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub ethtool: BTreeMap<String, u64>,
    /// CPUs of each interrupt, as the kernel lists them, by the interrupt's number.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub irqs: BTreeMap<String, String>,
}

/// State of a host's port and of the path behind it, read back just before the trial.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Name of the device.
    pub device: String,
    /// MTU, bytes.
    pub mtu: u64,
    /// Segmentation regime that results from the device's state: `per-mss`, `software-gso` or
    /// `tso`.
    pub segmentation: String,
    /// Offloads as read back: `tso`, `gso`, `gro`, `sg`, `tx_checksum`, `rx_checksum`.
    pub offloads: BTreeMap<String, bool>,
    /// Limit of segments in a super-segment (gso_max_segs), as read back.
    pub gso_max_segs: u64,
    /// Limit of bytes in a super-segment (gso_max_size), as read back.
    pub gso_max_size: u64,
    /// Limit of bytes that GRO merges (gro_max_size), as read back. `None` before Linux 5.19.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gro_max_size: Option<u64>,
    /// True if the device's own threads do the receive work (threaded NAPI). `None` if that cannot
    /// be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threaded_napi: Option<bool>,
    /// Root qdisc and its parameters, in tc's words.
    pub qdisc: String,
    /// Route to the host that is reached through the device, in ip route's words.
    pub route: String,
    /// RPS mask of the device's receive queue. `None` if it cannot be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rps_cpus: Option<String>,
    /// How its NAPI waits and what its queues serve, as sysfs has it: `gro_flush_timeout` (ns),
    /// `napi_defer_hard_irqs`, and `rps_flow_cnt` and `xps_cpus` queue by queue. What cannot be read
    /// is absent.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, String>,
    /// Carrier of a wire: `own` or `netem`. `None` if the study sets no wire.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub carrier: Option<String>,
    /// Properties of the device, if it is a named host's and existed before the trial.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nic: Option<Nic>,
    /// Sysctls that affect TCP's cost, and all that the trial set, as read back.
    pub sysctls: BTreeMap<String, String>,
    /// Congestion control that the connections really had. `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub congestion_control: Option<String>,
    /// MSS of the connections, payload bytes per full segment. `None` if it is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mss: Option<u64>,
    /// Knobs of sockets and of our own TCP that the trial set, as read from its first connection.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub connection: BTreeMap<String, String>,
}
