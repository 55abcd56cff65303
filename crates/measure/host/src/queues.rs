//! Numbers of a device and of its queues in /sys/class/net: how NAPI waits, and which CPUs a queue serves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use tcpcost_knobs::DeviceName;

use crate::error::{SystemError, read_trimmed, write};

/// Direction of a device's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Queues that receive.
    Receive,
    /// Queues that transmit.
    Transmit,
}

/// Reads a number of a device.
///
/// # Errors
/// ENOENT if the kernel does not have it, or if `root` (/sys) shows another namespace's devices.
pub fn read_number(root: &Path, device: &DeviceName, name: &str) -> Result<u32, SystemError> {
    number(&root.join("class/net").join(device).join(name))
}

/// Writes a number of a device.
///
/// # Errors
/// Errors of [`read_number`]; EPERM without CAP_NET_ADMIN; ERANGE.
pub fn set_number(
    root: &Path,
    device: &DeviceName,
    name: &str,
    to: u32,
) -> Result<(), SystemError> {
    let path = root.join("class/net").join(device).join(name);
    write(&path, &to.to_string())
}

/// CPUs whose packets each transmit queue takes (XPS), queue by queue.
///
/// # Errors
/// ENOENT for a device with one queue, or a kernel without CONFIG_XPS.
pub fn read_xps(root: &Path, device: &DeviceName) -> Result<Vec<Vec<usize>>, SystemError> {
    let queues = folders(root, device, Direction::Transmit)?;
    let read = |queue: PathBuf| {
        let path = queue.join("xps_cpus");
        let mask = read_trimmed(&path)?;
        from_mask(&mask).ok_or_else(|| {
            SystemError::strange(format!("read {}", path.display()), "not a CPU mask")
        })
    };
    queues.into_iter().map(read).collect()
}

/// Sets the CPUs of each transmit queue.
///
/// # Errors
/// Errors of [`read_xps`]; EPERM in an unprivileged user namespace.
pub fn set_xps(root: &Path, device: &DeviceName, cpus: &[Vec<usize>]) -> Result<(), SystemError> {
    let queues = folders(root, device, Direction::Transmit)?;
    let mut pairs = queues.iter().zip(cpus);
    pairs.try_for_each(|(queue, cpus)| write(&queue.join("xps_cpus"), &to_mask(cpus)))
}

/// How a device's NAPI waits and what its queues serve, by the names of the knobs, as sysfs has it. What cannot be read is
/// absent.
pub fn describe(root: &Path, device: &DeviceName) -> BTreeMap<String, String> {
    let numbers = NUMBERS.map(|name| {
        let number = read_number(root, device, name);
        (name, number.map(|number| number.to_string()))
    });
    let flows = read_flows(root, device).map(|flows| joined(flows.iter()));
    let cpus = read_xps(root, device);
    let cpus = cpus.map(|cpus| joined(cpus.iter().map(|cpus| to_mask(cpus))));
    let all = numbers
        .into_iter()
        .chain([("rps_flow_cnt", flows), ("xps_cpus", cpus)]);
    let known = all.filter_map(|(name, text)| Some((name.to_string(), text.ok()?)));
    known.collect()
}

fn joined(each: impl Iterator<Item = impl ToString>) -> String {
    let each: Vec<String> = each.map(|one| one.to_string()).collect();
    each.join(" ")
}

/// Numbers of a device's NAPI that are knobs.
pub(crate) const NUMBERS: [&str; 2] = ["gro_flush_timeout", "napi_defer_hard_irqs"];

/// Deals CPUs to queues in turn. If there are fewer CPUs than queues, a CPU has several queues.
pub fn in_turn(queues: usize, cpus: &[usize]) -> Vec<Vec<usize>> {
    let mut dealt = vec![Vec::new(); queues];
    if queues > 0 && !cpus.is_empty() {
        for turn in 0..queues.max(cpus.len()) {
            dealt[turn % queues].push(cpus[turn % cpus.len()]);
        }
    }
    for cpus in &mut dealt {
        cpus.sort_unstable();
        cpus.dedup();
    }
    dealt
}

/// Flows that RFS remembers for each receive queue.
///
/// # Errors
/// ENOENT on a kernel without CONFIG_RPS, or if `root` (/sys) shows another namespace's devices.
pub fn read_flows(root: &Path, device: &DeviceName) -> Result<Vec<u32>, SystemError> {
    let queues = folders(root, device, Direction::Receive)?.into_iter();
    queues
        .map(|queue| number(&queue.join("rps_flow_cnt")))
        .collect()
}

/// Sets the flows of each receive queue.
///
/// # Errors
/// Errors of [`read_flows`]; EPERM in an unprivileged user namespace.
pub fn set_flows(root: &Path, device: &DeviceName, flows: &[u32]) -> Result<(), SystemError> {
    let queues = folders(root, device, Direction::Receive)?;
    let mut pairs = queues.iter().zip(flows);
    pairs.try_for_each(|(queue, flows)| write(&queue.join("rps_flow_cnt"), &flows.to_string()))
}

/// CPU mask as the kernel prints it: groups of 32 bits in hexadecimal, highest first, separated by
/// commas.
pub fn to_mask(cpus: &[usize]) -> String {
    let groups = cpus.iter().max().map_or(1, |highest| highest / 32 + 1);
    let mut words = vec![0_u32; groups];
    for &cpu in cpus {
        words[cpu / 32] |= 1 << (cpu % 32);
    }
    let mut words = words.iter().rev();
    let first = words
        .next()
        .map_or(String::new(), |word| format!("{word:x}"));
    words.fold(first, |mask, word| format!("{mask},{word:08x}"))
}

/// CPUs of a mask. `None` if the text is no mask.
pub fn from_mask(mask: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for (group, word) in mask.split(',').rev().enumerate() {
        let word = u32::from_str_radix(word, 16).ok()?;
        let bits = (0..32).filter(|bit| word >> bit & 1 == 1);
        cpus.extend(bits.map(|bit| group * 32 + bit));
    }
    Some(cpus)
}

fn number(path: &Path) -> Result<u32, SystemError> {
    read_trimmed(path)?.parse().map_err(|_| {
        SystemError::strange(format!("read {}", path.display()), "not a 32-bit number")
    })
}

/// Folders of a device's queues, in the order of their numbers.
///
/// # Errors
/// ENOENT if `root` shows another namespace's devices.
pub(crate) fn folders(
    root: &Path,
    device: &DeviceName,
    direction: Direction,
) -> Result<Vec<PathBuf>, SystemError> {
    let folder = root.join("class/net").join(device).join("queues");
    let failed = |error| SystemError::new(format!("read {}", folder.display()), error);
    let begin = match direction {
        Direction::Receive => "rx-",
        Direction::Transmit => "tx-",
    };
    let mut queues: Vec<(u32, PathBuf)> = Vec::new();
    for entry in fs::read_dir(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(begin));
        if let Some(number) = number.and_then(|number| number.parse().ok()) {
            queues.push((number, entry.path()));
        }
    }
    queues.sort();
    Ok(queues.into_iter().map(|(_, path)| path).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(cpus: &[usize], mask: &str) {
        assert_eq!(to_mask(cpus), mask);
        assert_eq!(from_mask(mask).unwrap(), cpus);
    }

    #[test]
    fn masks_are_groups_of_32_bits() {
        check(&[], "0");
        check(&[0], "1");
        check(&[1, 4], "12");
        check(&[31], "80000000");
        check(&[0, 32], "1,00000001");
        check(&[95], "80000000,00000000,00000000");
    }

    #[test]
    fn what_is_no_mask_is_refused() {
        for text in ["", "x", "1,,2", "1ffffffff", "-1"] {
            assert_eq!(from_mask(text), None, "{text:?}");
        }
    }

    #[test]
    fn queues_are_in_the_order_of_their_numbers_and_keep_what_they_are_given() {
        let root = tempfile::tempdir().unwrap();
        let device: DeviceName = "v0".parse().unwrap();
        let folder = root.path().join("class/net/v0/queues");
        for number in [10, 2, 0] {
            for (queue, file) in [("tx", "xps_cpus"), ("rx", "rps_flow_cnt")] {
                let queue = folder.join(format!("{queue}-{number}"));
                fs::create_dir_all(&queue).unwrap();
                fs::write(queue.join(file), "0\n").unwrap();
            }
        }
        assert_eq!(read_flows(root.path(), &device).unwrap(), [0; 3]);
        set_flows(root.path(), &device, &[1, 2, 4]).unwrap();
        assert_eq!(read_flows(root.path(), &device).unwrap(), [1, 2, 4]);
        let tenth = fs::read_to_string(folder.join("rx-10/rps_flow_cnt"));
        assert_eq!(tenth.unwrap(), "4");
        let cpus = [vec![0], vec![1, 33], vec![]];
        set_xps(root.path(), &device, &cpus).unwrap();
        assert_eq!(read_xps(root.path(), &device).unwrap(), cpus);
        assert!(read_number(root.path(), &device, "nonesuch").is_err());
    }

    #[test]
    fn cpus_are_dealt_to_queues_in_turn() {
        let none: [Vec<usize>; 0] = [];
        assert_eq!(in_turn(0, &[1]), none);
        assert_eq!(in_turn(2, &[3, 1]), [[3], [1]]);
        assert_eq!(in_turn(3, &[0, 1]), [[0], [1], [0]]);
        assert_eq!(in_turn(2, &[0, 1, 2]), [vec![0, 2], vec![1]]);
    }
}
