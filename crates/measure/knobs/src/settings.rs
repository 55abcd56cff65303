//! Typed settings made from knobs: of the workload, and of each end's device.

use std::collections::BTreeMap;

use crate::ack_policies::AckKind;
use crate::choices::{
    Cork, FileSpread, ReceiveWith, Segmentation, SendWith, WaitsBy, WorkloadKind,
};
use crate::host_name::{HostName, HostNameError};
use crate::knob::Knobs;
use crate::knob_error::KnobError;
use crate::knobs::KNOBS;
use crate::program::Program;
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
    /// How their sizes differ.
    pub file_sizes: FileSpread,
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
            file_sizes: FileSpread::from_word(&word("file_sizes")).expect(PARSED),
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

/// Settings of one end's device, route and sysctls. What is absent is left as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Values by the names of their knobs. In place of `segmentation`, the knobs that it sets.
    pub values: BTreeMap<&'static str, Value>,
    /// Rule for the pure ACKs that may leave the device.
    pub ack_filter: Option<AckFilterRule>,
    /// Sysctls by their dotted names.
    pub sysctls: BTreeMap<String, String>,
}

impl DeviceSettings {
    /// Makes one end's settings from a cell's knobs.
    pub fn from_knobs(knobs: &Knobs, end: HostName) -> DeviceSettings {
        let small = |value: &Value| {
            let number = value.whole()?;
            Some(u32::try_from(number).expect("the registry's ranges fit 32 bits"))
        };
        let rows = KNOBS.iter().filter(|row| row.is_of_device());
        let set = rows.filter_map(|row| {
            let value = knobs.value_at(end, row.name)?;
            (!row.leaves_alone(&value)).then_some((row.name, value))
        });
        let mut values: BTreeMap<_, _> = set.collect();
        if !values.contains_key("bottleneck") {
            values.remove("bottleneck_queue");
        }
        let ack_filter = values.remove("ack_filter");
        let regime = values.remove("segmentation");
        let mut regime = regime.and_then(|value| Segmentation::from_word(value.word()?));
        let mut settings = DeviceSettings {
            values,
            ack_filter: ack_filter.as_ref().and_then(small).map(AckFilterRule::Acks),
            sysctls: BTreeMap::new(),
        };
        if knobs.is_user(end) {
            return settings;
        }
        let is_cut = regime.is_some() || settings.values.contains_key("tso");
        if WireSettings::of(knobs, end).is_by_packet() && !is_cut {
            // The kernel cuts super-segments before the wire, so that a loss affects one packet and
            // not forty-five.
            regime = Some(Segmentation::SoftwareGso);
        }
        for (name, value) in regime.into_iter().flat_map(set_by) {
            settings.values.entry(name).or_insert(value);
        }
        settings.sysctls = knobs.kernel_sysctls(end);
        let every = Value::Word(AckKind::Every.word().to_string());
        if knobs.value_at(end, "ack_policy") == Some(every) {
            // The route's quickack makes an ACK for each segment, and the filter lets one of
            // `segments` pass.
            let segments = knobs.value_at(end, "ack_segments");
            let segments = segments.as_ref().and_then(small);
            let segments = segments.or(AckKind::Every.row().segments);
            let own = [
                ("quickack", Value::Switch(true)),
                ("gro", Value::Switch(false)),
            ];
            settings.values.extend(own);
            settings.ack_filter = segments.filter(|&n| n > 1).map(AckFilterRule::Segments);
        }
        settings
    }
}

/// Knobs that a segmentation regime sets where they are not set. `per-mss` sets no offload:
/// gso_max_segs 1 suffices, whichever component would split.
fn set_by(regime: Segmentation) -> Vec<(&'static str, Value)> {
    let on = |name| (name, Value::Switch(true));
    match regime {
        Segmentation::PerMss => vec![("gso_max_segs", Value::Count(1))],
        Segmentation::SoftwareGso => vec![("tso", Value::Switch(false)), on("gso")],
        Segmentation::Tso => ["tx_checksum", "sg", "tso", "gso"].map(on).to_vec(),
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
        assert_eq!(device, DeviceSettings::default());
    }

    /// Values of the client's device, as text.
    fn values(pairs: &[(&str, &str)]) -> Vec<String> {
        let settings = DeviceSettings::from_knobs(&knobs(pairs), HostName::CLIENT);
        let values = settings.values.iter();
        values
            .map(|(name, value)| format!("{name} {value}"))
            .collect()
    }

    #[test]
    fn a_single_knob_overrides_the_segmentation_regime() {
        let all = [("segmentation", "tso"), ("gro", "on"), ("sg", "off")];
        let expected = ["gro on", "gso on", "sg off", "tso on", "tx_checksum on"];
        assert_eq!(values(&all), expected);
        let mut per_mss = vec![("segmentation", "per-mss")];
        assert_eq!(values(&per_mss), ["gso_max_segs 1"]);
        per_mss.push(("gso_max_segs", "2"));
        assert_eq!(values(&per_mss), ["gso_max_segs 2"]);
    }

    #[test]
    fn a_bottleneck_has_a_queue() {
        let expected = ["bottleneck 1Gbit", "bottleneck_queue 1MiB"];
        assert_eq!(values(&[("bottleneck", "1Gbit")]), expected);
        assert_eq!(values(&[("bottleneck_queue", "2MiB")]), [""; 0]);
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
        let at = |end, name: &str| {
            let settings = DeviceSettings::from_knobs(&knobs, end);
            settings.values.get(name).map(Value::to_string)
        };
        let (on, off, one) = ("on".to_string(), "off".to_string(), "1".to_string());
        assert_eq!(at(HostName::CLIENT, "gro"), Some(on));
        assert_eq!(at(HostName::SERVER, "gro"), Some(off));
        assert_eq!(at(HostName::CLIENT, "gso_max_segs"), Some(one));
        assert_eq!(at(HostName::SERVER, "gso_max_segs"), None);
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
        let switches = [
            ("gro", Value::Switch(false)),
            ("quickack", Value::Switch(true)),
        ];
        assert_eq!(server.values, switches.into());
        let client = DeviceSettings::from_knobs(&knobs("8"), HostName::CLIENT);
        assert_eq!(client, DeviceSettings::default());
        let each = DeviceSettings::from_knobs(&knobs("1"), HostName::SERVER);
        assert_eq!((each.ack_filter, each.values), (None, server.values));
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
