//! One thing of the host that can be read and written: the unit of [`crate::apply`] and of the
//! [`crate::journal`].

use std::fmt;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use tcpcost_study::{DeviceName, SysctlName};

use crate::channels::{Channels, Rss};
use crate::error::SystemError;
use crate::port::{self, Port};
use crate::qdisc::Tbf;
use crate::{ethtool, irq, link, qdisc, route, rps, sysctl};

/// A thing and its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "setting")]
pub enum Setting {
    /// MTU.
    Mtu {
        /// Of this device.
        device: DeviceName,
        /// Bytes.
        bytes: u32,
    },
    /// One of [`ethtool::OFFLOADS`].
    Offload {
        /// Of this device.
        device: DeviceName,
        /// Its knob's name.
        name: String,
        /// On or off.
        on: bool,
    },
    /// One of [`ethtool::NUMBERS`].
    Ethtool {
        /// Of this device.
        device: DeviceName,
        /// Its knob's name.
        name: String,
        /// As the knob has it.
        number: u32,
    },
    /// Queues with interrupts of their own.
    Channels {
        /// Of this device.
        device: DeviceName,
        /// How many of each kind.
        channels: Channels,
    },
    /// Which receive queue a flow is hashed to.
    Rss {
        /// Of this device.
        device: DeviceName,
        /// The table.
        table: Rss,
    },
    /// Where the device's interrupts arrive.
    Interrupts {
        /// Of this device.
        device: DeviceName,
        /// CPUs of each.
        placement: irq::Placement,
    },
    /// gso_max_segs.
    GsoMaxSegs {
        /// Of this device.
        device: DeviceName,
        /// Segments.
        segments: u32,
    },
    /// gso_max_size.
    GsoMaxSize {
        /// Of this device.
        device: DeviceName,
        /// Bytes.
        bytes: u32,
        /// IPv4's own limit, bytes; `None` on kernels before 6.3, which have one for both.
        ipv4_bytes: Option<u32>,
    },
    /// gro_max_size.
    GroMaxSize {
        /// Of this device.
        device: DeviceName,
        /// Bytes.
        bytes: u32,
        /// IPv4's own limit, bytes; `None` on kernels before 6.3.
        ipv4_bytes: Option<u32>,
    },
    /// Threaded NAPI.
    ThreadedNapi {
        /// Of this device.
        device: DeviceName,
        /// On or off.
        on: bool,
    },
    /// The qdisc at the root.
    Qdisc {
        /// Of this device.
        device: DeviceName,
        /// Its kind; `None` is the device's default.
        kind: Option<String>,
    },
    /// A sysctl.
    Sysctl {
        /// Its dotted name.
        name: SysctlName,
        /// Its value, white space normal.
        value: String,
    },
    /// `quickack` of a route.
    Quickack {
        /// The route over this device
        device: DeviceName,
        /// to this address.
        peer: IpAddr,
        /// On or off.
        on: bool,
    },
    /// A token bucket at the root.
    Bottleneck {
        /// Of this device.
        device: DeviceName,
        /// `None` is the device's default qdisc.
        tbf: Option<Tbf>,
    },
    /// A device that is moved into another namespace.
    Port {
        /// Its name, here and there.
        device: DeviceName,
        /// Where it is and what it has.
        port: Port,
    },
    /// Where receive work goes.
    Steering {
        /// Of this device.
        device: DeviceName,
        /// CPUs; none leaves it where it arrives.
        cpus: Vec<usize>,
    },
}

impl Setting {
    /// The knob, by its name in study files.
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

    /// The same thing with the value that it has now.
    ///
    /// # Errors
    /// What the kernel said.
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

    /// Makes it so. The kernel may take the order without following it: compare with [`Setting::now`].
    ///
    /// # Errors
    /// What the kernel said.
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

    /// Whether two values are the same but for the kernel's rounding.
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
