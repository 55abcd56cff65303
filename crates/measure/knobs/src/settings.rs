//! Typed settings made from knobs: of the workload, and of each end's device.

use std::collections::BTreeMap;

use crate::ack_policies::AckKind;
use crate::choices::{Cork, ReceiveWith, Segmentation, SendWith, WaitsBy, WorkloadKind};
use crate::host_name::{HostName, HostNameError};
use crate::knob::Knobs;
use crate::knob_error::KnobError;
use crate::knobs::KNOBS;
use crate::program::{Operation, Program};
use crate::row::{AppliesTo, KernelSupport};
use crate::side::Side;
use crate::value::Value;
use crate::wire::WireSettings;

/// Rule for the pure ACKs of a kernel receiver that may leave its device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckFilterRule {
    /// One ACK of this many leaves.
    Acks(u32),
    /// One ACK for this many wire segments leaves.
    Segments(u32),
}

/// Workload of a cell, with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSettings {
    /// Kind of traffic.
    pub kind: WorkloadKind,
    /// Connections of each host that opens connections.
    pub flows: usize,
    /// Worker threads per end. `None` for one on each CPU of the end.
    pub threads: Option<usize>,
    /// Method by which a thread waits.
    pub io: WaitsBy,
    /// Bytes per sending call.
    pub write_bytes: usize,
    /// Bytes of the reader's buffer.
    pub read_bytes: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Bytes of a response.
    pub response_bytes: usize,
    /// Requests outstanding on each connection.
    pub in_flight: usize,
    /// Payload bits per second over all flows and per sending end. `None` for CPU-bound.
    pub rate_bits_per_s: Option<u64>,
    /// Transactions per second over all flows. `None` for CPU-bound.
    pub transactions_per_s: Option<u64>,
    /// Call that sends.
    pub send_with: SendWith,
    /// Call that receives.
    pub receive_with: ReceiveWith,
    /// Size of each file sent from, bytes.
    pub file_bytes: u64,
    /// Number of files that are sent one after the other.
    pub files: u64,
    /// Method of corking.
    pub cork: Cork,
    /// True for TCP_NODELAY.
    pub nodelay: bool,
    /// True for Multipath TCP.
    pub mptcp: bool,
    /// SO_SNDBUF, bytes. `None` leaves tuning on.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF, bytes. `None` leaves tuning on.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_CONGESTION.
    pub congestion_control: String,
    /// True to compare every byte on arrival.
    pub check: bool,
    /// Program of each connection, if `kind` is a program.
    pub program: Option<Program>,
    /// Host, or set of hosts, that connects. `None` for all that connect in the topology.
    pub on: Option<HostName>,
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the registry's ranges fit 32 bits")
}

impl WorkloadSettings {
    /// Makes the settings from a cell's knobs.
    ///
    /// # Errors
    /// Knobs that contradict each other, e.g. a rate in transactions for a stream.
    pub fn from_knobs(knobs: &Knobs) -> Result<WorkloadSettings, KnobError> {
        let word = |name: &str| knobs.word(name).expect("a choice has a default");
        let bytes = |name: &str| size(knobs.bytes(name).expect("a size has a default"));
        let count = |name: &str| size(knobs.count(name).expect("a count has a default"));
        let or_auto = |name: &str| knobs.bytes(name).map(size);
        let switch = |name: &str| knobs.is_on(name).expect("a switch has a default");
        let host = |name: &str| match knobs.get(name).and_then(Value::word) {
            None | Some("all") => Ok(None),
            Some(word) => word
                .parse()
                .map(Some)
                .map_err(|error: HostNameError| KnobError::new(name, error.to_string())),
        };
        const PARSED: &str = "the registry lists the same words";

        let kind = WorkloadKind::from_word(&word("workload")).expect(PARSED);
        let settings = WorkloadSettings {
            kind,
            flows: count("flows"),
            threads: Some(count("threads")).filter(|&threads| threads > 0),
            io: WaitsBy::from_word(&word("io")).expect(PARSED),
            write_bytes: bytes("write_size"),
            read_bytes: bytes("read_size"),
            request_bytes: bytes("request_size"),
            response_bytes: bytes("response_size"),
            in_flight: count("in_flight"),
            rate_bits_per_s: match knobs.value("rate") {
                Some(Value::BitsPerS(rate)) => Some(rate),
                _ => None,
            },
            transactions_per_s: match knobs.value("transaction_rate") {
                Some(Value::PerS(rate)) => Some(rate),
                _ => None,
            },
            send_with: SendWith::from_word(&word("send_with")).expect(PARSED),
            receive_with: ReceiveWith::from_word(&word("receive_with")).expect(PARSED),
            file_bytes: knobs.bytes("file_size").expect("a size has a default"),
            files: knobs.count("files").expect("a count has a default"),
            cork: Cork::from_word(&word("cork")).expect(PARSED),
            nodelay: switch("nodelay"),
            mptcp: knobs.word("protocol").as_deref() == Some("mptcp"),
            send_buffer_bytes: or_auto("send_buffer"),
            receive_buffer_bytes: or_auto("receive_buffer"),
            congestion_control: word("congestion_control"),
            check: switch("check"),
            program: knobs
                .value("program")
                .and_then(|value| value.program().cloned()),
            on: host("on")?,
        };
        if let Some(program) = &settings.program
            && settings.check
            && program.all().any(hides_bytes)
        {
            let reason = "it compares what was read, and the program receives by another call";
            return Err(KnobError::new("check", reason));
        }
        if settings.io == WaitsBy::BlockingThreads
            && let Some(reason) = settings.no_blocking_threads()
        {
            return Err(KnobError::new("io", format!("blocking-threads {reason}")));
        }
        if settings.io == WaitsBy::IoUring
            && let Some(reason) = settings.no_ring()
        {
            return Err(KnobError::new("io", format!("io-uring {reason}")));
        }
        match knobs.unmet().into_iter().next() {
            Some(unmet) => Err(KnobError::new(unmet.knob, unmet.reason)),
            None => Ok(settings),
        }
    }

    /// True if this side sends payload.
    pub fn sends(&self, side: Side) -> bool {
        match &self.program {
            Some(program) => program.sends(side),
            None => self.kind.sends(side),
        }
    }

    /// Connections of each flow: 1, except for programs that use several.
    pub fn connections_each(&self) -> usize {
        let program = self.program.as_ref();
        program.map_or(1, |program| program.connections())
    }

    /// Connections of all flows.
    pub fn connections(&self) -> usize {
        self.flows * self.connections_each()
    }

    /// True if a program sets the calls by which it sends or receives.
    fn has_calls(&self) -> bool {
        let mut operations = self.program.iter().flat_map(Program::all);
        operations.any(|operation| {
            matches!(
                operation,
                Operation::Send { with: Some(_), .. } | Operation::Receive { with: Some(_), .. }
            )
        })
    }

    /// Reason why a ring does not support these settings. `None` if it does.
    fn no_ring(&self) -> Option<&'static str> {
        match self {
            _ if self.send_with != SendWith::Send || self.receive_with != ReceiveWith::Read => {
                Some(
                    "sends by send and receives into its own buffers: leave send_with and receive_with out",
                )
            }
            _ if self.has_calls() => {
                Some("sends by send and receives into its own buffers: leave with out")
            }
            _ if self.cork == Cork::On => Some(
                "hands sends over later than TCP_CORK would be set and cleared: use cork = \"msg-more\"",
            ),
            _ => None,
        }
    }

    /// Reason why a blocking thread does not support these settings. `None` if it does.
    fn no_blocking_threads(&self) -> Option<&'static str> {
        let is_paced_from_afar =
            self.kind == WorkloadKind::Maerts && self.rate_bits_per_s.is_some();
        match self {
            _ if self.kind == WorkloadKind::Bidirectional => {
                Some("cannot send and receive at a time: use rr, or two groups")
            }
            _ if self.in_flight > 1 => Some("wait for each response: leave in_flight out"),
            _ if self.send_with != SendWith::Send || self.receive_with != ReceiveWith::Read => {
                Some("send by send and receive by read: leave send_with and receive_with out")
            }
            _ if self.has_calls() => Some("send by send and receive by read: leave with out"),
            _ if self.cork != Cork::Off => Some("do not cork: leave cork out"),
            _ if is_paced_from_afar => {
                Some("have no rate for maerts: the side that connects keeps it")
            }
            _ => None,
        }
    }

    /// True if the connections are made before the traffic and stay open.
    pub fn stands(&self) -> bool {
        match &self.program {
            Some(program) => program.stands(),
            None => self.kind != WorkloadKind::Crr,
        }
    }

    /// Workload of a host that exchanges data with `hosts` hosts: the flows and the rate of each.
    #[must_use]
    pub fn times(self, hosts: usize) -> WorkloadSettings {
        let rate = |rate: Option<u64>| rate.map(|rate| rate.saturating_mul(hosts as u64));
        WorkloadSettings {
            flows: self.flows * hosts,
            rate_bits_per_s: rate(self.rate_bits_per_s),
            transactions_per_s: rate(self.transactions_per_s),
            ..self
        }
    }
}

fn hides_bytes(operation: &Operation) -> bool {
    matches!(operation, Operation::Receive { with: Some(with), .. } if *with != ReceiveWith::Read)
}

/// Settings of one end's device, route and sysctls. `None` and absent ones are left as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Segmentation regime, applied before the single offloads.
    pub segmentation: Option<Segmentation>,
    /// Offloads by the names of their knobs: `tso`, `gso`, `gro`, `sg`, `tx_checksum`.
    pub offloads: BTreeMap<&'static str, bool>,
    /// Limit of segments in a super-segment (gso_max_segs).
    pub gso_max_segs: Option<u32>,
    /// Limit of bytes in a super-segment (gso_max_size).
    pub gso_max_bytes: Option<u32>,
    /// Limit of bytes that GRO merges (gro_max_size).
    pub gro_max_bytes: Option<u32>,
    /// True turns threaded NAPI on.
    pub threaded_napi: Option<bool>,
    /// Values of rings, coalescing, channels and RSS by the names of their knobs: `rx_ring`,
    /// `rx_usecs`, `channels`.
    pub ethtool: BTreeMap<&'static str, u32>,
    /// CPUs for the device's interrupts.
    pub irq_cpus: Option<Vec<usize>>,
    /// Kind of the root qdisc.
    pub qdisc: Option<String>,
    /// Rate of the bottleneck, bits per second.
    pub bottleneck_bits_per_s: Option<u64>,
    /// Limit of bytes in the bottleneck's queue.
    pub bottleneck_queue_bytes: u32,
    /// True sets quickack on the route to the peer.
    pub quickack: Option<bool>,
    /// Rule for the pure ACKs that may leave the device.
    pub ack_filter: Option<AckFilterRule>,
    /// Sysctls by their dotted names.
    pub sysctls: BTreeMap<String, String>,
}

impl DeviceSettings {
    /// Makes one end's settings from a cell's knobs.
    pub fn from_knobs(knobs: &Knobs, end: HostName) -> DeviceSettings {
        let small = |value: u64| u32::try_from(value).expect("the registry's ranges fit 32 bits");
        let number = |name: &str| match knobs.value_at(end, name) {
            Some(Value::Bytes(n) | Value::Count(n)) => Some(small(n)),
            _ => None,
        };
        let switch = |name: &str| match knobs.value_at(end, name) {
            Some(Value::Switch(on)) => Some(on),
            _ => None,
        };
        let mut settings = DeviceSettings {
            mtu: number("mtu"),
            segmentation: match knobs.value_at(end, "segmentation") {
                Some(Value::Word(word)) => Segmentation::from_word(&word),
                _ => None,
            },
            offloads: KNOBS
                .iter()
                .filter(|row| matches!(row.applies_to, AppliesTo::Link(KernelSupport::Offload, _)))
                .filter_map(|row| Some((row.name, switch(row.name)?)))
                .collect(),
            gso_max_segs: number("gso_max_segs"),
            gso_max_bytes: number("gso_max_size"),
            gro_max_bytes: number("gro_max_size"),
            threaded_napi: switch("threaded_napi"),
            ethtool: KNOBS
                .iter()
                .filter(|row| {
                    matches!(
                        row.applies_to,
                        AppliesTo::Link(KernelSupport::RealDevice("ethtool"), _)
                    )
                })
                .filter_map(|row| Some((row.name, number(row.name)?)))
                .collect(),
            irq_cpus: match knobs.value_at(end, "irq_cpus") {
                Some(Value::Cpus(cpus)) => Some(cpus),
                _ => None,
            },
            qdisc: match knobs.value_at(end, "qdisc") {
                Some(Value::Word(kind)) if kind != "leave" => Some(kind),
                _ => None,
            },
            bottleneck_bits_per_s: match knobs.value_at(end, "bottleneck") {
                Some(Value::BitsPerS(rate)) => Some(rate),
                _ => None,
            },
            bottleneck_queue_bytes: number("bottleneck_queue").expect("a size has a default"),
            quickack: switch("quickack"),
            ack_filter: number("ack_filter").map(AckFilterRule::Acks),
            sysctls: BTreeMap::new(),
        };
        if knobs.is_user(end) {
            return settings;
        }
        let is_cut = settings.segmentation.is_some() || settings.offloads.contains_key("tso");
        if WireSettings::of(knobs, end).is_by_packet() && !is_cut {
            // The kernel cuts super-segments before the wire, so that a loss affects one packet and
            // not forty-five.
            settings.segmentation = Some(Segmentation::SoftwareGso);
        }
        settings.sysctls = knobs.kernel_sysctls(end);
        let every = Value::Word(AckKind::Every.word().to_string());
        if knobs.value_at(end, "ack_policy") == Some(every) {
            // The route's quickack makes an ACK for each segment, and the filter lets one of
            // `segments` pass.
            let segments = number("ack_segments").or(AckKind::Every.row().segments);
            settings.quickack = Some(true);
            settings.offloads.insert("gro", false);
            settings.ack_filter = segments.filter(|&n| n > 1).map(AckFilterRule::Segments);
        }
        settings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs(pairs: &[(&str, &str)]) -> Knobs {
        let mut knobs = Knobs::default();
        for (name, text) in pairs {
            knobs.set(name, text).unwrap();
        }
        knobs
    }

    #[test]
    fn defaults_make_one_cpu_bound_stream() {
        let settings = WorkloadSettings::from_knobs(&Knobs::default()).unwrap();
        assert_eq!(settings.kind, WorkloadKind::Stream);
        assert_eq!((settings.flows, settings.write_bytes), (1, 65536));
        assert_eq!(settings.rate_bits_per_s, None);
        let device = DeviceSettings::from_knobs(&Knobs::default(), HostName::CLIENT);
        assert_eq!(
            device,
            DeviceSettings {
                bottleneck_queue_bytes: 1 << 20,
                ..DeviceSettings::default()
            }
        );
    }

    #[test]
    fn contradictions_are_refused() {
        for pairs in [
            [("workload", "rr"), ("rate", "1Gbit")],
            [("workload", "stream"), ("transaction_rate", "10/s")],
            [("check", "on"), ("receive_with", "recv-trunc")],
            [("cork", "msg-more"), ("send_with", "sendfile")],
        ] {
            assert!(
                WorkloadSettings::from_knobs(&knobs(&pairs)).is_err(),
                "{pairs:?}"
            );
        }
    }

    #[test]
    fn what_sends_out_of_files_has_their_knobs() {
        for with in SendWith::WORDS {
            let is_from_files = SendWith::from_word(with).unwrap().is_from_files();
            let set = knobs(&[("send_with", with), ("files", "63")]);
            assert_eq!(
                WorkloadSettings::from_knobs(&set).is_ok(),
                is_from_files,
                "{with}"
            );
        }
    }

    #[test]
    fn one_end_can_differ() {
        let knobs = knobs(&[
            ("gro", "on"),
            ("server.gro", "off"),
            ("client.gso_max_segs", "1"),
        ]);
        assert!(DeviceSettings::from_knobs(&knobs, HostName::CLIENT).offloads["gro"]);
        assert!(!DeviceSettings::from_knobs(&knobs, HostName::SERVER).offloads["gro"]);
        assert_eq!(
            DeviceSettings::from_knobs(&knobs, HostName::CLIENT).gso_max_segs,
            Some(1)
        );
        assert_eq!(
            DeviceSettings::from_knobs(&knobs, HostName::SERVER).gso_max_segs,
            None
        );
    }

    #[test]
    fn every_is_made_of_quickack_no_gro_and_an_ack_filter_at_the_kernels_end_alone() {
        let knobs = |segments| {
            knobs(&[
                ("ack_policy", "every"),
                ("ack_segments", segments),
                ("client.stack", "user"),
            ])
        };
        let server = DeviceSettings::from_knobs(&knobs("8"), HostName::SERVER);
        assert_eq!(server.ack_filter, Some(AckFilterRule::Segments(8)));
        assert_eq!(
            (server.quickack, server.offloads["gro"]),
            (Some(true), false)
        );
        let client = DeviceSettings::from_knobs(&knobs("8"), HostName::CLIENT);
        assert_eq!(
            (client.ack_filter, client.quickack, client.offloads.len()),
            (None, None, 0)
        );
        let each = DeviceSettings::from_knobs(&knobs("1"), HostName::SERVER);
        assert_eq!((each.ack_filter, each.quickack), (None, Some(true)));
    }

    #[test]
    fn the_kernels_divisor_is_a_sysctl_and_ours_is_not() {
        let knobs = knobs(&[("tso_win_divisor", "8"), ("server.stack", "user")]);
        let sysctls = |end| DeviceSettings::from_knobs(&knobs, end).sysctls;
        assert_eq!(
            sysctls(HostName::CLIENT)["net.ipv4.tcp_tso_win_divisor"],
            "8"
        );
        assert!(sysctls(HostName::SERVER).is_empty());
    }
}
