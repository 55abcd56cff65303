//! Knobs of a device, one row each: the state that a value asks for, and how a state is read and
//! written. What a knob accepts, and who may have it, is its row in `tcpcost_knobs`.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tcpcost_knobs::{DeviceName, DeviceSettings, Value};

use crate::channels::{Channels, Rss};
use crate::error::SystemError;
use crate::qdisc::Tbf;
use crate::{ethtool, irq, link, qdisc, queues, route, rps};

/// Knob of a device, with its state.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceSetting {
    /// Name of the knob in study files.
    pub knob: String,
    /// Name of the device.
    pub device: DeviceName,
    /// State that is read or written.
    pub state: State,
}

/// State of a device's knob, as the kernel has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Number, in the knob's unit.
    Number(u32),
    /// Switch: on or off.
    Switch(bool),
    /// Limit of bytes, and IPv4's own limit. `None` on kernels before 6.3, which have one limit for
    /// both.
    Limit(u32, Option<u32>),
    /// Queues with interrupts of their own.
    Channels(Channels),
    /// Receive queue for each hash of a flow.
    Rss(Rss),
    /// CPUs that the device's interrupts arrive at.
    Interrupts(irq::Placement),
    /// CPUs for receive work (RPS); empty leaves the work where it arrives.
    Cpus(Vec<usize>),
    /// CPUs of each transmit queue (XPS).
    QueueCpus(Vec<Vec<usize>>),
    /// Number of each receive queue.
    QueueNumbers(Vec<u32>),
    /// Kind of the root qdisc. `None` for the device's default.
    Qdisc(Option<String>),
    /// Token bucket as root qdisc. `None` for the device's default qdisc.
    Bottleneck(Option<Tbf>),
    /// `quickack` of the route to this address.
    Quickack(IpAddr, bool),
}

/// Knobs of a device that are read and written in the same way.
struct DeviceKnob {
    /// Names in study files, in the order in which the knobs are set.
    names: &'static [&'static str],
    /// State for the value of a knob.
    wanted: fn(&Asked<'_>) -> Result<State, SystemError>,
    /// Reads the current state of a setting.
    read: fn(&DeviceSetting) -> Result<State, SystemError>,
    /// Writes the state of a setting.
    write: fn(&DeviceSetting) -> Result<(), SystemError>,
}

/// Value of a knob for a device.
struct Asked<'a> {
    device: &'a DeviceName,
    /// Address that the device leads to.
    peer: IpAddr,
    value: &'a Value,
    /// Values of all knobs of the device.
    settings: &'a DeviceSettings,
}

use State::{
    Bottleneck, Cpus, Interrupts, Limit, Number, Qdisc, QueueCpus, QueueNumbers, Quickack, Switch,
};

/// Knobs of a device, in the order in which they are set: a later one may depend on an earlier one.
const DEVICE_KNOBS: &[DeviceKnob] = &[
    DeviceKnob {
        names: &["mtu"],
        wanted: |asked| Ok(Number(asked.number())),
        read: |setting| Ok(Number(link::read(&setting.device)?.mtu)),
        write: |setting| link::set_mtu(&setting.device, setting.number()?),
    },
    DeviceKnob {
        names: &ethtool::OFFLOADS,
        wanted: |asked| Ok(Switch(asked.is_on())),
        read: |setting| Ok(Switch(ethtool::read(&setting.device, &setting.knob)?)),
        write: |setting| ethtool::set(&setting.device, &setting.knob, setting.is_on()?),
    },
    DeviceKnob {
        names: &["gso_max_segs"],
        wanted: |asked| Ok(Number(asked.number())),
        read: |setting| Ok(Number(link::read(&setting.device)?.gso_max_segs)),
        write: |setting| link::set_gso_max_segs(&setting.device, setting.number()?),
    },
    DeviceKnob {
        names: &["gso_max_size"],
        wanted: |asked| {
            let bytes = asked.number();
            let ipv4 = link::read(asked.device)?.gso_ipv4_max_size.map(|_| bytes);
            if bytes > GSO_LEGACY_MAX_SIZE && ipv4.is_none() {
                let error = std::io::Error::from_raw_os_error(libc::EOPNOTSUPP);
                let tried = "beyond 65536 bytes IPv4 needs gso_ipv4_max_size, of Linux 6.3";
                return Err(SystemError::new(tried, error));
            }
            Ok(Limit(bytes, ipv4))
        },
        read: |setting| {
            let link = link::read(&setting.device)?;
            Ok(Limit(link.gso_max_size, link.gso_ipv4_max_size))
        },
        write: |setting| match setting.state {
            Limit(bytes, ipv4) => link::set_gso_max_size(&setting.device, bytes, ipv4),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["gro_max_size"],
        wanted: |asked| {
            let bytes = asked.number();
            let ipv4 = link::read(asked.device)?.gro_ipv4_max_size.map(|_| bytes);
            Ok(Limit(bytes, ipv4))
        },
        read: |setting| {
            let link = link::read(&setting.device)?;
            Ok(Limit(link.gro_max_size, link.gro_ipv4_max_size))
        },
        write: |setting| match setting.state {
            Limit(bytes, ipv4) => link::set_gro_max_size(&setting.device, bytes, ipv4),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["threaded_napi"],
        wanted: |asked| Ok(Switch(asked.is_on())),
        read: |setting| Ok(Switch(rps::read_threaded(rps::root(), &setting.device)?)),
        write: |setting| rps::set_threaded(rps::root(), &setting.device, setting.is_on()?),
    },
    DeviceKnob {
        names: &queues::NUMBERS,
        wanted: |asked| match asked.value.time() {
            Some(time) => Ok(Number(time.as_nanos().try_into().expect(KIND))),
            None => Ok(Number(asked.number())),
        },
        read: |setting| {
            let number = queues::read_number(rps::root(), &setting.device, &setting.knob)?;
            Ok(Number(number))
        },
        write: |setting| {
            queues::set_number(
                rps::root(),
                &setting.device,
                &setting.knob,
                setting.number()?,
            )
        },
    },
    DeviceKnob {
        names: &ethtool::NUMBERS,
        wanted: |asked| Ok(Number(asked.number())),
        read: |setting| {
            Ok(Number(ethtool::read_number(
                &setting.device,
                &setting.knob,
            )?))
        },
        write: |setting| ethtool::set_number(&setting.device, &setting.knob, setting.number()?),
    },
    DeviceKnob {
        names: &["channels"],
        wanted: |asked| {
            let channels = Channels::for_device(asked.device, asked.number())?;
            Ok(State::Channels(channels))
        },
        read: |setting| Ok(State::Channels(Channels::read(&setting.device)?)),
        write: |setting| match setting.state {
            State::Channels(channels) => channels.set(&setting.device),
            _ => setting.wrong(),
        },
    },
    // After the channels, because the table names their queues.
    DeviceKnob {
        names: &["rss_queues"],
        wanted: |asked| Ok(State::Rss(Rss::Even(asked.number()))),
        read: |setting| Ok(State::Rss(Rss::read(&setting.device)?)),
        write: |setting| match &setting.state {
            State::Rss(table) => table.set(&setting.device),
            _ => setting.wrong(),
        },
    },
    // After the channels, which make the queues.
    DeviceKnob {
        names: &["xps_cpus"],
        wanted: |asked| {
            let queues = queues::read_xps(rps::root(), asked.device)?.len();
            Ok(QueueCpus(queues::in_turn(queues, asked.cpus())))
        },
        read: |setting| Ok(QueueCpus(queues::read_xps(rps::root(), &setting.device)?)),
        write: |setting| match &setting.state {
            QueueCpus(cpus) => queues::set_xps(rps::root(), &setting.device, cpus),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["rps_flow_cnt"],
        wanted: |asked| {
            let queues = queues::read_flows(rps::root(), asked.device)?.len();
            let flows = match asked.number() {
                0 => 0,
                flows => flows.next_power_of_two(),
            };
            Ok(QueueNumbers(vec![flows; queues]))
        },
        read: |setting| {
            let flows = queues::read_flows(rps::root(), &setting.device)?;
            Ok(QueueNumbers(flows))
        },
        write: |setting| match &setting.state {
            QueueNumbers(flows) => queues::set_flows(rps::root(), &setting.device, flows),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["qdisc"],
        wanted: |asked| Ok(Qdisc(asked.value.word().map(str::to_string))),
        read: |setting| Ok(Qdisc(qdisc::read_kind(&setting.device)?)),
        write: |setting| match &setting.state {
            Qdisc(Some(kind)) => qdisc::set_kind(&setting.device, kind),
            Qdisc(None) => qdisc::delete_root(&setting.device),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["quickack"],
        wanted: |asked| Ok(Quickack(asked.peer, asked.is_on())),
        read: |setting| match setting.state {
            Quickack(peer, _) => {
                let is_on = route::read_quickack(&setting.device, peer)?;
                Ok(Quickack(peer, is_on))
            }
            _ => setting.wrong(),
        },
        write: |setting| match setting.state {
            Quickack(peer, on) => route::set_quickack(&setting.device, peer, on),
            _ => setting.wrong(),
        },
    },
    // After gso_max_size, because a super-segment must fit the burst.
    DeviceKnob {
        names: &["bottleneck"],
        wanted: |asked| {
            let rate = asked.value.whole().expect(KIND);
            let queue = number(&asked.settings.values["bottleneck_queue"]);
            let gso_max_size = link::read(asked.device)?.gso_max_size;
            Ok(Bottleneck(Some(Tbf::new(rate, queue, gso_max_size))))
        },
        read: |setting| Ok(Bottleneck(qdisc::read_tbf(&setting.device)?)),
        write: |setting| match setting.state {
            Bottleneck(Some(tbf)) => qdisc::set_tbf(&setting.device, tbf),
            Bottleneck(None) => qdisc::delete_root(&setting.device),
            _ => setting.wrong(),
        },
    },
    // After the channels, because a device's interrupts change with them.
    DeviceKnob {
        names: &["irq_cpus"],
        wanted: |asked| {
            let irqs = irq::of_device(Path::new("/sys"), asked.device)?;
            Ok(Interrupts(irq::in_turn(&irqs, asked.cpus())))
        },
        read: |setting| match &setting.state {
            Interrupts(placement) => {
                let irqs = placement.iter().map(|(irq, _)| *irq);
                Ok(Interrupts(irq::read(irq::root(), irqs)?))
            }
            _ => setting.wrong(),
        },
        write: |setting| match &setting.state {
            Interrupts(placement) => irq::set(irq::root(), placement),
            _ => setting.wrong(),
        },
    },
    DeviceKnob {
        names: &["steering"],
        wanted: |asked| {
            let mut cpus = asked.cpus().to_vec();
            cpus.sort_unstable();
            cpus.dedup();
            Ok(Cpus(cpus))
        },
        read: |setting| Ok(Cpus(rps::read(rps::root(), &setting.device)?)),
        write: |setting| match &setting.state {
            Cpus(cpus) => rps::set(rps::root(), &setting.device, cpus),
            _ => setting.wrong(),
        },
    },
];

/// Limit for IPv4 on kernels without a limit of its own (linux/netdevice.h).
const GSO_LEGACY_MAX_SIZE: u32 = 65536;

/// Settings that the values of a device's knobs ask for, in the order in which they must be made.
/// The iterator reads from the device what a setting depends on: make each before the next is
/// taken.
pub(crate) fn in_order<'a>(
    device: &'a DeviceName,
    peer: IpAddr,
    settings: &'a DeviceSettings,
) -> impl Iterator<Item = (&'static str, Result<DeviceSetting, SystemError>)> + 'a {
    let names = |row: &'static DeviceKnob| row.names.iter().map(move |name| (row, *name));
    let knobs = DEVICE_KNOBS.iter().flat_map(names);
    knobs.filter_map(move |(row, knob)| {
        let value = settings.values.get(knob)?;
        let asked = Asked {
            device,
            peer,
            value,
            settings,
        };
        let setting = (row.wanted)(&asked).map(|state| DeviceSetting {
            knob: knob.to_string(),
            device: device.clone(),
            state,
        });
        Some((knob, setting))
    })
}

impl Asked<'_> {
    fn number(&self) -> u32 {
        number(self.value)
    }

    fn is_on(&self) -> bool {
        self.value.is_on().expect(KIND)
    }

    fn cpus(&self) -> &[usize] {
        self.value.cpus().expect(KIND)
    }
}

fn number(value: &Value) -> u32 {
    let number = value.whole().and_then(|number| u32::try_from(number).ok());
    number.expect(KIND)
}

const KIND: &str = "the row of the knob has values of this kind and size";

impl DeviceSetting {
    /// Reads the current state.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn now(&self) -> Result<State, SystemError> {
        (self.row()?.read)(self)
    }

    /// Writes the state. The kernel may accept it and ignore it.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn write(&self) -> Result<(), SystemError> {
        (self.row()?.write)(self)
    }

    /// True if two settings are the same except for the kernel's rounding.
    pub fn is_same(&self, other: &DeviceSetting) -> bool {
        let is_near = match (&self.state, &other.state) {
            (Bottleneck(Some(a)), Bottleneck(Some(b))) => a.is_near(*b),
            (State::Rss(a), State::Rss(b)) => a.is_same(b),
            (a, b) => a == b,
        };
        is_near && (&self.knob, &self.device) == (&other.knob, &other.device)
    }

    fn row(&self) -> Result<&'static DeviceKnob, SystemError> {
        let mut rows = DEVICE_KNOBS.iter();
        let row = rows.find(|row| row.names.contains(&self.knob.as_str()));
        row.ok_or_else(|| SystemError::strange(format!("find {self}"), "no such knob of a device"))
    }

    fn number(&self) -> Result<u32, SystemError> {
        match self.state {
            Number(number) => Ok(number),
            _ => self.wrong(),
        }
    }

    fn is_on(&self) -> Result<bool, SystemError> {
        match self.state {
            Switch(on) => Ok(on),
            _ => self.wrong(),
        }
    }

    /// Error: the state is that of another knob, which only a forged journal can have.
    fn wrong<T>(&self) -> Result<T, SystemError> {
        let tried = format!("set {self}");
        Err(SystemError::strange(tried, "a state of another knob"))
    }
}

impl fmt::Display for DeviceSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} of {}", self.knob, self.state, self.device)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let switch = |on: bool| if on { "on" } else { "off" };
        match self {
            Number(number) => write!(f, "{number}"),
            Switch(on) => f.write_str(switch(*on)),
            Limit(bytes, Some(ipv4)) if ipv4 != bytes => write!(f, "{bytes} (IPv4 {ipv4})"),
            Limit(bytes, _) => write!(f, "{bytes}"),
            State::Channels(Channels { rx, tx, combined }) => {
                write!(f, "{rx} rx, {tx} tx, {combined} combined")
            }
            State::Rss(table) => match table.queues() {
                Some(queues) => write!(f, "{queues}"),
                None => f.write_str("by a table"),
            },
            Interrupts(placement) => {
                let each = placement.iter();
                let each: Vec<String> = each
                    .map(|(irq, cpus)| format!("{cpus} for {irq}"))
                    .collect();
                f.write_str(&each.join(", "))
            }
            Cpus(cpus) => write!(f, "to CPUs {cpus:?}"),
            QueueCpus(queues) => write!(f, "queues of CPUs {queues:?}"),
            QueueNumbers(numbers) => write!(f, "{numbers:?}"),
            Qdisc(kind) => f.write_str(kind.as_deref().unwrap_or("default")),
            Bottleneck(None) => f.write_str("none"),
            Bottleneck(Some(tbf)) => write!(
                f,
                "{} bit/s, queue {} bytes, burst {} bytes",
                tbf.rate_bits_per_s, tbf.queue_bytes, tbf.burst_bytes
            ),
            Quickack(peer, on) => write!(f, "{} to {peer}", switch(*on)),
        }
    }
}

#[cfg(test)]
mod tests {
    use tcpcost_knobs::{HostName, KNOBS, Knobs, find};

    use super::*;

    #[test]
    fn every_knob_of_a_device_has_a_row_and_every_row_a_knob() {
        let rows = DEVICE_KNOBS.iter().flat_map(|row| row.names);
        let rows: Vec<&str> = rows.copied().collect();
        // Sets other knobs; is set with the bottleneck; is a program of the trial.
        let without = ["segmentation", "bottleneck_queue", "ack_filter"];
        for knob in KNOBS.iter().filter(|knob| knob.is_of_device()) {
            let is_without = without.contains(&knob.name);
            assert!(is_without != rows.contains(&knob.name), "{}", knob.name);
        }
        for name in rows {
            // A device's checksums of what it receives are read, but are no knob.
            assert!(name == "rx_checksum" || find(name).is_some(), "{name}");
        }
    }

    #[test]
    fn offloads_are_set_in_the_order_that_tso_needs() {
        let mut knobs = Knobs::default();
        for (name, text) in [("segmentation", "tso"), ("gro", "on"), ("sg", "off")] {
            knobs.set(name, text).unwrap();
        }
        let settings = DeviceSettings::from_knobs(&knobs, HostName::CLIENT);
        let device = "lo".parse().unwrap();
        let made = in_order(&device, IpAddr::from([10, 0, 0, 2]), &settings);
        let made: Vec<String> = made.map(|(_, one)| one.unwrap().to_string()).collect();
        let expected = ["tx_checksum on", "sg off", "tso on", "gso on", "gro on"];
        assert_eq!(made, expected.map(|word| format!("{word} of lo")));
    }
}
