//! Setting of the host that can be read and written: the unit of [`crate::apply`] and of the
//! [`crate::journal`].

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tcpcost_knobs::{DeviceName, SysctlName};

use crate::channels::{Channels, Rss};
use crate::error::SystemError;
use crate::port::{self, Port};
use crate::qdisc::Tbf;
use crate::{ethtool, irq, link, qdisc, route, rps, sysctl};

/// Kind of setting, with its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "setting")]
pub enum Setting {
    /// MTU.
    Mtu {
        /// Name of the device.
        device: DeviceName,
        /// Bytes.
        bytes: u32,
    },
    /// Offload of [`ethtool::OFFLOADS`].
    Offload {
        /// Name of the device.
        device: DeviceName,
        /// Name of its knob.
        name: String,
        /// True for on.
        on: bool,
    },
    /// Number of [`ethtool::NUMBERS`].
    Ethtool {
        /// Name of the device.
        device: DeviceName,
        /// Name of its knob.
        name: String,
        /// Value, in the knob's unit.
        number: u32,
    },
    /// Queues with interrupts of their own.
    Channels {
        /// Name of the device.
        device: DeviceName,
        /// Number of queues of each kind.
        channels: Channels,
    },
    /// Receive queue for each hash of a flow.
    Rss {
        /// Name of the device.
        device: DeviceName,
        /// RSS table.
        table: Rss,
    },
    /// CPUs that the device's interrupts arrive at.
    Interrupts {
        /// Name of the device.
        device: DeviceName,
        /// CPUs of each interrupt.
        placement: irq::Placement,
    },
    /// gso_max_segs.
    GsoMaxSegs {
        /// Name of the device.
        device: DeviceName,
        /// Limit of segments in a super-segment.
        segments: u32,
    },
    /// gso_max_size.
    GsoMaxSize {
        /// Name of the device.
        device: DeviceName,
        /// Limit of bytes in a super-segment.
        bytes: u32,
        /// IPv4's own limit, bytes. `None` on kernels before 6.3, which have one limit for both.
        ipv4_bytes: Option<u32>,
    },
    /// gro_max_size.
    GroMaxSize {
        /// Name of the device.
        device: DeviceName,
        /// Limit of bytes that GRO merges.
        bytes: u32,
        /// IPv4's own limit, bytes. `None` on kernels before 6.3.
        ipv4_bytes: Option<u32>,
    },
    /// Threaded NAPI.
    ThreadedNapi {
        /// Name of the device.
        device: DeviceName,
        /// True for on.
        on: bool,
    },
    /// Root qdisc.
    Qdisc {
        /// Name of the device.
        device: DeviceName,
        /// Kind of the qdisc. `None` for the device's default.
        kind: Option<String>,
    },
    /// Value of a sysctl.
    Sysctl {
        /// Dotted name of the sysctl.
        name: SysctlName,
        /// Value, with white space as [`sysctl::normal`] makes it.
        value: String,
    },
    /// `quickack` of a route.
    Quickack {
        /// Name of the device that the route is over.
        device: DeviceName,
        /// Address that the route leads to.
        peer: IpAddr,
        /// True for on.
        on: bool,
    },
    /// Token bucket as root qdisc.
    Bottleneck {
        /// Name of the device.
        device: DeviceName,
        /// Token bucket. `None` for the device's default qdisc.
        tbf: Option<Tbf>,
    },
    /// Device that is moved into another namespace.
    Port {
        /// Name of the device, here and there.
        device: DeviceName,
        /// State of the device.
        port: Port,
    },
    /// CPUs for receive work (RPS).
    Steering {
        /// Name of the device.
        device: DeviceName,
        /// CPUs; empty leaves the work where it arrives.
        cpus: Vec<usize>,
    },
}

impl Setting {
    /// Name of the knob in study files.
    pub fn knob(&self) -> String {
        match self {
            Setting::Mtu { .. } => "mtu".into(),
            Setting::Offload { name, .. } | Setting::Ethtool { name, .. } => name.clone(),
            Setting::Channels { .. } => "channels".into(),
            Setting::Rss { .. } => "rss_queues".into(),
            Setting::Interrupts { .. } => "irq_cpus".into(),
            Setting::GsoMaxSegs { .. } => "gso_max_segs".into(),
            Setting::GsoMaxSize { .. } => "gso_max_size".into(),
            Setting::GroMaxSize { .. } => "gro_max_size".into(),
            Setting::ThreadedNapi { .. } => "threaded_napi".into(),
            Setting::Qdisc { .. } => "qdisc".into(),
            Setting::Sysctl { name, .. } => format!("sysctl.{name}"),
            Setting::Quickack { .. } => "quickack".into(),
            Setting::Bottleneck { .. } => "bottleneck".into(),
            Setting::Port { .. } => "device".into(),
            Setting::Steering { .. } => "steering".into(),
        }
    }

    /// Reads the current value: the same setting with that value.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn now(&self) -> Result<Setting, SystemError> {
        let mut now = self.clone();
        match &mut now {
            Setting::Mtu { device, bytes } => *bytes = link::read(device)?.mtu,
            Setting::Offload { device, name, on } => *on = ethtool::read(device, name)?,
            Setting::Ethtool {
                device,
                name,
                number,
            } => *number = ethtool::read_number(device, name)?,
            Setting::Channels { device, channels } => *channels = Channels::read(device)?,
            Setting::Rss { device, table } => *table = Rss::read(device)?,
            Setting::Interrupts { placement, .. } => {
                let irqs = placement.iter().map(|(irq, _)| *irq);
                *placement = irq::read(irq::root(), irqs)?;
            }
            Setting::GsoMaxSegs { device, segments } => {
                *segments = link::read(device)?.gso_max_segs;
            }
            Setting::GsoMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => {
                let link = link::read(device)?;
                (*bytes, *ipv4_bytes) = (link.gso_max_size, link.gso_ipv4_max_size);
            }
            Setting::GroMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => {
                let link = link::read(device)?;
                (*bytes, *ipv4_bytes) = (link.gro_max_size, link.gro_ipv4_max_size);
            }
            Setting::ThreadedNapi { device, on } => *on = rps::read_threaded(rps::root(), device)?,
            Setting::Qdisc { device, kind } => *kind = qdisc::read_kind(device)?,
            Setting::Sysctl { name, value } => *value = sysctl::read(sysctl::root(), name)?,
            Setting::Quickack { device, peer, on } => *on = route::read_quickack(device, *peer)?,
            Setting::Bottleneck { device, tbf } => *tbf = qdisc::read_tbf(device)?,
            Setting::Port { device, port } => *port = port::read(device, &port.borrower)?,
            Setting::Steering { device, cpus } => *cpus = rps::read(rps::root(), device)?,
        }
        Ok(now)
    }

    /// Writes the value. The kernel may accept a request and ignore it: compare with
    /// [`Setting::now`].
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self) -> Result<(), SystemError> {
        match self {
            Setting::Mtu { device, bytes } => link::set_mtu(device, *bytes),
            Setting::Offload { device, name, on } => ethtool::set(device, name, *on),
            Setting::Ethtool {
                device,
                name,
                number,
            } => ethtool::set_number(device, name, *number),
            Setting::Channels { device, channels } => channels.set(device),
            Setting::Rss { device, table } => table.set(device),
            Setting::Interrupts { placement, .. } => irq::set(irq::root(), placement),
            Setting::GsoMaxSegs { device, segments } => link::set_gso_max_segs(device, *segments),
            Setting::GsoMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => link::set_gso_max_size(device, *bytes, *ipv4_bytes),
            Setting::GroMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => link::set_gro_max_size(device, *bytes, *ipv4_bytes),
            Setting::ThreadedNapi { device, on } => rps::set_threaded(rps::root(), device, *on),
            Setting::Qdisc { device, kind } => match kind {
                Some(kind) => qdisc::set_kind(device, kind),
                None => qdisc::delete_root(device),
            },
            Setting::Sysctl { name, value } => sysctl::set(sysctl::root(), name, value),
            Setting::Quickack { device, peer, on } => route::set_quickack(device, *peer, *on),
            Setting::Bottleneck { device, tbf } => match tbf {
                Some(tbf) => qdisc::set_tbf(device, *tbf),
                None => qdisc::delete_root(device),
            },
            Setting::Port { device, port } => port.put_back(device),
            Setting::Steering { device, cpus } => rps::set(rps::root(), device, cpus),
        }
    }

    /// True if two settings are the same except for the kernel's rounding.
    pub fn is_same(&self, other: &Setting) -> bool {
        match (self, other) {
            (
                Setting::Bottleneck { tbf: Some(a), .. },
                Setting::Bottleneck { tbf: Some(b), .. },
            ) => a.is_near(*b),
            (
                Setting::Rss { device, table },
                Setting::Rss {
                    device: of,
                    table: other,
                },
            ) => device == of && table.is_same(other),
            _ => self == other,
        }
    }
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: &bool| if *on { "on" } else { "off" };
        match self {
            Setting::Mtu { device, bytes } => write!(f, "mtu {bytes} of {device}"),
            Setting::Offload { device, name, on } => write!(f, "{name} {} of {device}", switch(on)),
            Setting::Ethtool {
                device,
                name,
                number,
            } => write!(f, "{name} {number} of {device}"),
            Setting::Channels { device, channels } => {
                let Channels { rx, tx, combined } = channels;
                write!(
                    f,
                    "{rx} rx, {tx} tx and {combined} combined channels of {device}"
                )
            }
            Setting::Rss { device, table } => match table.queues() {
                Some(queues) => write!(f, "RSS of {device} over {queues} queues"),
                None => write!(f, "an RSS table of {device}"),
            },
            Setting::Interrupts { device, placement } => {
                let each = placement.iter();
                let each: Vec<String> =
                    each.map(|(irq, cpus)| format!("{irq} on {cpus}")).collect();
                write!(f, "interrupts of {device}: {}", each.join(", "))
            }
            Setting::GsoMaxSegs { device, segments } => {
                write!(f, "gso_max_segs {segments} of {device}")
            }
            Setting::GsoMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => match ipv4_bytes.filter(|ipv4_bytes| ipv4_bytes != bytes) {
                Some(ipv4) => write!(f, "gso_max_size {bytes} (IPv4 {ipv4}) of {device}"),
                None => write!(f, "gso_max_size {bytes} of {device}"),
            },
            Setting::GroMaxSize {
                device,
                bytes,
                ipv4_bytes,
            } => match ipv4_bytes.filter(|ipv4_bytes| ipv4_bytes != bytes) {
                Some(ipv4) => write!(f, "gro_max_size {bytes} (IPv4 {ipv4}) of {device}"),
                None => write!(f, "gro_max_size {bytes} of {device}"),
            },
            Setting::ThreadedNapi { device, on } => {
                write!(f, "threaded NAPI {} of {device}", switch(on))
            }
            Setting::Qdisc { device, kind } => match kind {
                Some(kind) => write!(f, "qdisc {kind} of {device}"),
                None => write!(f, "the default qdisc of {device}"),
            },
            Setting::Sysctl { name, value } => write!(f, "sysctl {name} = {value}"),
            Setting::Quickack { device, peer, on } => {
                write!(
                    f,
                    "quickack {} of the route over {device} to {peer}",
                    switch(on)
                )
            }
            Setting::Bottleneck { device, tbf } => match tbf {
                Some(tbf) => write!(
                    f,
                    "tbf of {} bit/s, queue {} bytes, burst {} bytes on {device}",
                    tbf.rate_bits_per_s, tbf.queue_bytes, tbf.burst_bytes
                ),
                None => write!(f, "no tbf on {device}"),
            },
            Setting::Port { device, port } => {
                let addresses = port.addresses.iter();
                let addresses = addresses.map(|(address, prefix)| format!(" {address}/{prefix}"));
                let addresses: String = addresses.collect();
                match (port.is_here, port.is_up) {
                    (false, _) => write!(f, "{device} in another namespace"),
                    (true, true) => write!(f, "{device} here, up,{addresses}"),
                    (true, false) => write!(f, "{device} here, down,{addresses}"),
                }
            }
            Setting::Steering { device, cpus } => {
                write!(f, "steering of {device} to CPUs {cpus:?}")
            }
        }
    }
}
