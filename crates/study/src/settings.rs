//! Knobs as types: what the workload and each end's device are to be.

use std::collections::BTreeMap;

use crate::knob::{End, Knobs};
use crate::policy::{AckThinning, PolicySettings};
use crate::value::Value;
use crate::words::words;

words! {
    /// What traffic.
    WorkloadKind {
        /// The client sends.
        Stream = "stream",
        /// The server sends.
        Maerts = "maerts",
        /// Both send.
        Bidirectional = "bidirectional",
        /// Request and response on standing connections.
        Rr = "rr",
        /// Connect, request, response, close.
        Crr = "crr",
    }
}

impl WorkloadKind {
    /// Whether work is counted in transactions.
    pub fn has_transactions(self) -> bool {
        matches!(self, WorkloadKind::Rr | WorkloadKind::Crr)
    }

    /// Whether this end sends payload on its own account.
    pub fn sends(self, end: End) -> bool {
        match self {
            WorkloadKind::Stream => end == End::Client,
            WorkloadKind::Maerts => end == End::Server,
            WorkloadKind::Bidirectional | WorkloadKind::Rr | WorkloadKind::Crr => true,
        }
    }
}

words! {
    /// The call that sends payload.
    SendWith {
        /// write(2).
        Write = "write",
        /// send(2).
        Send = "send",
        /// sendfile(2) from a file on disk.
        Sendfile = "sendfile",
        /// sendfile(2) from a memfd.
        SendfileMemfd = "sendfile-memfd",
        /// splice(2): file pages into a pipe, the pipe into the socket.
        Splice = "splice",
        /// send(2) with MSG_ZEROCOPY.
        Zerocopy = "zerocopy",
    }
}

words! {
    /// The call that takes payload.
    ReceiveWith {
        /// read(2).
        Read = "read",
        /// recv(2) with MSG_TRUNC: TCP throws the data away uncopied.
        RecvTrunc = "recv-trunc",
        /// splice(2) into a pipe and from it to /dev/null.
        Splice = "splice",
    }
}

words! {
    /// How short segments are held back on purpose.
    Cork {
        /// Not at all.
        Off = "off",
        /// TCP_CORK.
        On = "on",
        /// MSG_MORE.
        MsgMore = "msg-more",
    }
}

words! {
    /// Who cuts a super-segment into wire segments.
    Segmentation {
        /// Nobody: TCP's output path handles one skb per MSS (gso_max_segs 1), as in 2005.
        PerMss = "per-mss",
        /// The kernel, just before the device (tso off): TCP itself still builds super-segments.
        SoftwareGso = "software-gso",
        /// The device.
        Tso = "tso",
    }
}

/// Knobs that do not go together.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SettingsError(String);

/// The workload of a cell, defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkloadSettings {
    /// What traffic.
    pub kind: WorkloadKind,
    /// Connections in all.
    pub flows: usize,
    /// Worker threads per end; `None` is one for each CPU of the end.
    pub threads: Option<usize>,
    /// Bytes per sending call.
    pub write_bytes: usize,
    /// Bytes of the reader's buffer.
    pub read_bytes: usize,
    /// Bytes of a request.
    pub request_bytes: usize,
    /// Bytes of a response.
    pub response_bytes: usize,
    /// Requests outstanding per connection.
    pub in_flight: usize,
    /// Payload bits per second over all flows and per sending end; `None` is CPU-bound.
    pub rate_bits_per_s: Option<u64>,
    /// Transactions per second over all flows; `None` is CPU-bound.
    pub transactions_per_s: Option<u64>,
    /// The call that sends.
    pub send_with: SendWith,
    /// The call that receives.
    pub receive_with: ReceiveWith,
    /// Size of the file sent from, bytes.
    pub file_bytes: u64,
    /// Corking.
    pub cork: Cork,
    /// TCP_NODELAY.
    pub nodelay: bool,
    /// SO_SNDBUF, bytes; `None` leaves tuning on.
    pub send_buffer_bytes: Option<usize>,
    /// SO_RCVBUF, bytes; `None` leaves tuning on.
    pub receive_buffer_bytes: Option<usize>,
    /// TCP_CONGESTION.
    pub congestion_control: String,
    /// Compare every byte on arrival.
    pub check: bool,
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("the registry's ranges fit 32 bits")
}

impl WorkloadSettings {
    /// Reads the workload out of a cell's knobs.
    ///
    /// # Errors
    /// Knobs that contradict each other, e.g. a rate in transactions for a stream.
    pub fn from_knobs(knobs: &Knobs) -> Result<WorkloadSettings, SettingsError> {
        let word = |name: &str| knobs.word(name).expect("a choice has a default");
        let bytes = |name: &str| size(knobs.bytes(name).expect("a size has a default"));
        let count = |name: &str| size(knobs.count(name).expect("a count has a default"));
        let or_auto = |name: &str| knobs.bytes(name).map(size);
        let switch = |name: &str| knobs.is_on(name).expect("a switch has a default");
        const PARSED: &str = "the registry lists the same words";

        let kind = WorkloadKind::from_word(&word("workload")).expect(PARSED);
        let settings = WorkloadSettings {
            kind,
            flows: count("flows"),
            threads: Some(count("threads")).filter(|&threads| threads > 0),
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
            cork: Cork::from_word(&word("cork")).expect(PARSED),
            nodelay: switch("nodelay"),
            send_buffer_bytes: or_auto("send_buffer"),
            receive_buffer_bytes: or_auto("receive_buffer"),
            congestion_control: word("congestion_control"),
            check: switch("check"),
        };
        settings
            .contradiction()
            .map_or(Ok(settings), |text| Err(SettingsError(text.to_string())))
    }

    fn contradiction(&self) -> Option<&'static str> {
        let transactions = self.kind.has_transactions();
        if transactions && self.rate_bits_per_s.is_some() {
            return Some("rate is of streams; for rr and crr set transaction_rate = \"10000/s\"");
        }
        if !transactions && self.transactions_per_s.is_some() {
            return Some("transaction_rate is of rr and crr; for a stream set rate = \"941Mbit\"");
        }
        if self.in_flight > 1 && self.kind != WorkloadKind::Rr {
            return Some("in_flight is of rr alone");
        }
        if self.check && self.receive_with != ReceiveWith::Read {
            return Some("check compares what was read: it needs receive_with = \"read\"");
        }
        if self.cork == Cork::MsgMore && self.send_with == SendWith::Write {
            return Some("MSG_MORE needs send_with = \"send\" (write has no flags)");
        }
        if self.cork == Cork::MsgMore
            && matches!(self.send_with, SendWith::Sendfile | SendWith::SendfileMemfd)
        {
            return Some("sendfile takes no MSG_MORE; use cork = \"on\"");
        }
        None
    }
}

/// What one end's device, route and sysctls are to be; `None` and absent leave them as they are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Segmentation regime, applied before the single offloads.
    pub segmentation: Option<Segmentation>,
    /// Offloads by knob name: `tso`, `gso`, `gro`, `sg`, `tx_checksum`.
    pub offloads: BTreeMap<&'static str, bool>,
    /// gso_max_segs.
    pub gso_max_segs: Option<u32>,
    /// gso_max_size, bytes.
    pub gso_max_bytes: Option<u32>,
    /// Rate of the bottleneck, bits per second.
    pub bottleneck_bits_per_s: Option<u64>,
    /// Queue of the bottleneck, bytes.
    pub bottleneck_queue_bytes: u32,
    /// quickack of the route to the peer.
    pub quickack: Option<bool>,
    /// Which pure ACKs leave.
    pub ack_thinning: Option<AckThinning>,
    /// Sysctls, in their dotted names.
    pub sysctls: BTreeMap<String, String>,
}

impl DeviceSettings {
    /// Reads one end's settings out of a cell's knobs.
    pub fn from_knobs(knobs: &Knobs, end: End) -> DeviceSettings {
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
            offloads: ["tx_checksum", "sg", "tso", "gso", "gro"]
                .into_iter()
                .filter_map(|name| Some((name, switch(name)?)))
                .collect(),
            gso_max_segs: number("gso_max_segs"),
            gso_max_bytes: number("gso_max_size"),
            bottleneck_bits_per_s: match knobs.value_at(end, "bottleneck") {
                Some(Value::BitsPerS(rate)) => Some(rate),
                _ => None,
            },
            bottleneck_queue_bytes: number("bottleneck_queue").expect("a size has a default"),
            quickack: switch("quickack"),
            ack_thinning: number("ack_thin").map(AckThinning::Acks),
            sysctls: BTreeMap::new(),
        };
        if knobs.value_at(end, "stack") == Some(Value::Word("kernel".to_string())) {
            let policies = PolicySettings::from_knobs(knobs, end);
            settings.sysctls = policies.sysctls();
            if let Some(segments) = policies.kernel_every() {
                // What the study sets itself stands: the agent refuses what does not go together.
                settings.quickack.get_or_insert(true);
                settings.offloads.entry("gro").or_insert(false);
                if segments > 1 {
                    settings
                        .ack_thinning
                        .get_or_insert(AckThinning::Segments(segments));
                }
            }
        }
        settings.sysctls.extend(knobs.sysctls(end));
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
        let device = DeviceSettings::from_knobs(&Knobs::default(), End::Client);
        assert_eq!(
            device,
            DeviceSettings {
                bottleneck_queue_bytes: 1 << 20,
                ..DeviceSettings::default()
            }
        );
    }

    #[test]
    fn every_word_of_the_registry_is_a_variant() {
        let words = |name: &str| match crate::find(name).unwrap().kind {
            crate::Kind::Choice(words) => words,
            _ => panic!("{name} is a choice"),
        };
        assert!(
            words("workload")
                .iter()
                .all(|word| WorkloadKind::from_word(word).is_some())
        );
        assert!(
            words("send_with")
                .iter()
                .all(|word| SendWith::from_word(word).is_some())
        );
        assert!(
            words("receive_with")
                .iter()
                .all(|word| ReceiveWith::from_word(word).is_some())
        );
        assert!(
            words("cork")
                .iter()
                .all(|word| Cork::from_word(word).is_some())
        );
        assert!(
            words("segmentation")
                .iter()
                .all(|word| Segmentation::from_word(word).is_some())
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
    fn one_end_can_differ() {
        let knobs = knobs(&[
            ("gro", "on"),
            ("server.gro", "off"),
            ("client.gso_max_segs", "1"),
        ]);
        assert!(DeviceSettings::from_knobs(&knobs, End::Client).offloads["gro"]);
        assert!(!DeviceSettings::from_knobs(&knobs, End::Server).offloads["gro"]);
        assert_eq!(
            DeviceSettings::from_knobs(&knobs, End::Client).gso_max_segs,
            Some(1)
        );
        assert_eq!(
            DeviceSettings::from_knobs(&knobs, End::Server).gso_max_segs,
            None
        );
    }
}
