//! Settings of a peer, defaults included: the first line of `--format json`.

use std::collections::BTreeMap;

use serde::Serialize;
use tcpcost_knobs::units::nanos;
use tcpcost_knobs::{AppliesTo, KNOBS, UserSupport};
use tcpcost_link::{Impairment, Offloads};
use tcpcost_stack::UserSettings;
use tcpcost_tcp::CongestionControl;

use super::flags::{Flags, Task};

/// Settings as one JSON object.
#[derive(Debug, Serialize)]
pub struct Configuration {
    version: &'static str,
    interface: String,
    layer: &'static str,
    mtu: u32,
    checksum_offload: bool,
    segmentation_offload: bool,
    addresses: Vec<String>,
    instances: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    listen: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    connect: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    forward: Vec<String>,
    service: Option<&'static str>,
    tcp: Tcp,
    /// Values of the knobs of our TCP by name.
    policies: BTreeMap<&'static str, String>,
    seed: u64,
    wire_sent: Wire,
    wire_received: Wire,
}

#[derive(Debug, Serialize)]
struct Tcp {
    congestion_control: String,
    hystart: bool,
    mss: u16,
    send_buffer_bytes: u32,
    receive_buffer_bytes: u32,
    receive_buffer_bytes_max: u32,
    nodelay: bool,
    ecn: bool,
    sack: bool,
    timestamps: bool,
    dscp: u8,
}

/// Impairments of one direction; probabilities are per packet.
#[derive(Debug, Serialize)]
struct Wire {
    delay_ns: u64,
    jitter_ns: u64,
    rate_bits_per_s: Option<u64>,
    queue_bytes: Option<usize>,
    loss: f64,
    burst: f64,
    burst_goes_on: f64,
    reorder: f64,
    duplicate: f64,
    corrupt: f64,
}

impl Configuration {
    /// Collects the settings of a peer on this interface.
    pub fn new(flags: &Flags, interface: &str, mtu: u32, settings: &UserSettings) -> Self {
        let Offloads {
            checksum,
            segmentation,
        } = flags.set.offloads();
        let impairment = flags.set.wire.impairment();
        Self {
            version: env!("CARGO_PKG_VERSION"),
            interface: interface.to_string(),
            layer: if flags.tap.is_some() { "tap" } else { "tun" },
            mtu,
            checksum_offload: checksum,
            segmentation_offload: segmentation,
            addresses: flags
                .local
                .iter()
                .map(|own| format!("{}/{}", own.address, own.prefix))
                .collect(),
            instances: flags.instances,
            listen: flags.listen,
            connect: flags.connect.map(|remote| remote.to_string()),
            forward: flags
                .forward
                .iter()
                .map(|one| format!("{}={}", one.local, one.remote))
                .collect(),
            service: flags.service.as_ref().map(Task::name),
            tcp: Tcp::new(settings),
            policies: policies(settings),
            seed: flags.set.wire.wire_seed,
            wire_sent: Wire::new(&impairment.sent),
            wire_received: Wire::new(&impairment.received),
        }
    }
}

fn policies(settings: &UserSettings) -> BTreeMap<&'static str, String> {
    let row = |row: &'static tcpcost_knobs::Knob| match row.applies_to {
        AppliesTo::Tcp(_, UserSupport::Supported(which)) => {
            Some((row.name, settings.read(which)?.to_string()))
        }
        _ => None,
    };
    KNOBS.iter().filter_map(row).collect()
}

impl Tcp {
    fn new(settings: &UserSettings) -> Self {
        let config = &settings.config;
        Self {
            congestion_control: match config.congestion {
                CongestionControl::Cubic => "cubic".to_string(),
                CongestionControl::NewReno => "reno".to_string(),
                CongestionControl::Fixed(bytes) => format!("fixed:{bytes}B"),
            },
            hystart: config.hystart,
            mss: config.mss,
            send_buffer_bytes: config.send_buffer,
            receive_buffer_bytes: config.receive_buffer,
            receive_buffer_bytes_max: config.receive_buffer.max(config.receive_buffer_max),
            nodelay: config.segmentation.nagle == tcpcost_tcp::Nagle::Off,
            ecn: config.ecn,
            sack: config.sack,
            timestamps: config.timestamps,
            dscp: config.dscp,
        }
    }
}

impl Wire {
    fn new(impairment: &Impairment) -> Self {
        Self {
            delay_ns: nanos(impairment.delay),
            jitter_ns: nanos(impairment.jitter),
            rate_bits_per_s: impairment.rate_bits_per_s,
            queue_bytes: impairment.queue_bytes,
            loss: impairment.loss,
            burst: impairment.burst,
            burst_goes_on: impairment.burst_goes_on,
            reorder: impairment.reorder,
            duplicate: impairment.duplicate,
            corrupt: impairment.corrupt,
        }
    }
}
