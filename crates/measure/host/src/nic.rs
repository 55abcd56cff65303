//! Properties of a network device: driver, firmware, NUMA node, queues, rings.

use std::fs;
use std::path::Path;

use tcpcost_counts::Nic;
use tcpcost_knobs::DeviceName;

use crate::channels::{Channels, Rss};
use crate::cpus::from_list;
use crate::error::read_trimmed;
use crate::{ethtool, irq};

/// Reads the properties of a device. Values that the driver does not report are absent. `root` is
/// /sys of this network namespace.
pub fn read(root: &Path, device: &DeviceName) -> Nic {
    let folder = root.join("class/net").join(device);
    let text = |name: &str| read_trimmed(&folder.join(name)).ok();
    // The file has -1 if the number is unknown.
    let number = |name: &str| text(name)?.parse::<u64>().ok();
    let queues = |kind: &str| {
        let listed = fs::read_dir(folder.join("queues"));
        let names = listed.into_iter().flatten().flatten();
        let names = names.filter(|entry| entry.file_name().to_string_lossy().starts_with(kind));
        names.count() as u64
    };
    let driver = ethtool::driver(device).unwrap_or_default();
    let ethtool = ethtool::NUMBERS.iter().filter_map(|&name| {
        let number = ethtool::read_number(device, name).ok()?;
        Some((name.to_string(), number.into()))
    });
    let channels = Channels::read(device).map(Channels::receiving).ok();
    let rss_queues = Rss::read(device).ok().and_then(|table| table.queues());
    let queues_of = [("channels", channels), ("rss_queues", rss_queues)];
    let queues_of = queues_of
        .into_iter()
        .filter_map(|(name, number)| Some((name.to_string(), number?.into())));
    let irqs = irq::of_device(root, device).unwrap_or_default();
    Nic {
        driver: driver.name,
        firmware: Some(driver.firmware).filter(|text| !text.is_empty() && text != "N/A"),
        bus: Some(driver.bus).filter(|text| !text.is_empty() && text != "N/A"),
        // Reading fails if the link is down, and a virtual link reports an invented speed.
        speed_mbit_per_s: number("speed"),
        // A virtio device has the node of the PCI device that it is part of.
        numa_node: number("device/numa_node").or_else(|| number("device/../numa_node")),
        rx_queues: queues("rx-"),
        tx_queues: queues("tx-"),
        ethtool: ethtool.chain(queues_of).collect(),
        irqs: irq::read(irq::root(), irqs)
            .unwrap_or_default()
            .into_iter()
            .map(|(irq, cpus)| (irq.to_string(), cpus))
            .collect(),
    }
}

/// Words about CPUs on another NUMA node than the device, where its packets are in the other node's memory. `None` if all are near, or if
/// that is not known. `root` is /sys.
pub fn far_from(root: &Path, device: &str, nic: &Nic, cpus: &[usize]) -> Option<String> {
    let node = nic.numa_node?;
    let list = read_trimmed(&root.join(format!("devices/system/node/node{node}/cpulist"))).ok()?;
    let near = from_list(&list)?;
    let far: Vec<&usize> = cpus.iter().filter(|cpu| !near.contains(cpu)).collect();
    (!far.is_empty()).then(|| {
        format!("CPUs {far:?} are not on NUMA node {node} of the NIC {device}, so its packets cross between the nodes: choose CPUs of {list}")
    })
}

/// True if [`read`] has the state of a knob.
pub fn shows(knob: &str) -> bool {
    ethtool::NUMBERS.contains(&knob) || ["channels", "rss_queues", "irq_cpus"].contains(&knob)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_sysfs_tells_is_read_and_the_rest_is_absent() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("class/net/no-such0");
        for queue in ["rx-0", "rx-1", "tx-0"] {
            fs::create_dir_all(folder.join("queues").join(queue)).unwrap();
        }
        fs::create_dir_all(folder.join("device")).unwrap();
        fs::write(folder.join("speed"), "25000\n").unwrap();
        fs::write(folder.join("device/numa_node"), "-1\n").unwrap();
        let found = read(root.path(), &"no-such0".parse().unwrap());
        let expected = Nic {
            speed_mbit_per_s: Some(25_000),
            rx_queues: 2,
            tx_queues: 1,
            ..Nic::default()
        };
        assert_eq!(found, expected);
    }

    #[test]
    fn cpus_on_another_node_than_the_nic_are_named() {
        let root = tempfile::tempdir().unwrap();
        let node = root.path().join("devices/system/node/node0");
        fs::create_dir_all(&node).unwrap();
        fs::write(node.join("cpulist"), "0-1,4\n").unwrap();
        let of = |numa_node, cpus: &[usize]| {
            let nic = Nic {
                numa_node,
                ..Nic::default()
            };
            far_from(root.path(), "eth0", &nic, cpus)
        };
        let words = of(Some(0), &[1, 2, 3]).unwrap();
        assert!(
            words.starts_with("CPUs [2, 3] are not on NUMA node 0 of the NIC eth0"),
            "{words}"
        );
        assert!(words.ends_with("choose CPUs of 0-1,4"), "{words}");
        assert_eq!(of(Some(0), &[4]), None);
        assert_eq!(of(Some(1), &[4]), None, "no such node is known");
        assert_eq!(of(None, &[4]), None);
    }
}
