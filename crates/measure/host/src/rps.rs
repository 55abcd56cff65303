//! Receive packet steering (RPS): the CPUs that do the receive work of a device.
//!
//! `veth_xmit` runs the peer's receive stack on the sender's CPU unless RPS moves it. XPS does not
//! matter here: it chooses among transmit queues, and a veth made without a queue count uses one.
//! RFS (`rps_flow_cnt`) and threaded NAPI would override RPS or move the work again, so both are
//! turned off; a study that sets one of them has `steering` off.
//!
//! In an unprivileged user namespace the kernel refuses to write rps_cpus (it requires
//! CAP_NET_ADMIN in the host's own user namespace).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use tcpcost_knobs::DeviceName;

use crate::error::{SystemError, read_trimmed, write};
use crate::queues::{Direction, folders, from_mask, to_mask};

/// CPUs that a device's receive work is steered to; empty means no steering. If queues differ, the
/// CPUs of all.
///
/// # Errors
/// ENOENT on a kernel without CONFIG_RPS, or if `root` (/sys) shows another namespace's devices.
pub fn read(root: &Path, device: &DeviceName) -> Result<Vec<usize>, SystemError> {
    let mut cpus = BTreeSet::new();
    for queue in folders(root, device, Direction::Receive)? {
        let path = queue.join("rps_cpus");
        let mask = read_trimmed(&path)?;
        let listed = from_mask(&mask).ok_or_else(|| {
            SystemError::strange(format!("read {}", path.display()), "not a CPU mask")
        })?;
        cpus.extend(listed);
    }
    Ok(cpus.into_iter().collect())
}

/// Steers the receive work of all queues of a device to these CPUs; an empty list leaves the work
/// where it arrives.
///
/// # Errors
/// Those of [`read`]; EPERM in an unprivileged user namespace.
pub fn set(root: &Path, device: &DeviceName, cpus: &[usize]) -> Result<(), SystemError> {
    for queue in folders(root, device, Direction::Receive)? {
        write(&queue.join("rps_cpus"), &to_mask(cpus))?;
        write_if_there(&queue.join("rps_flow_cnt"), "0")?;
    }
    write_if_there(&threaded(root, device), "0")
}

/// True if the device has threads of its own for receive work (threaded NAPI).
///
/// # Errors
/// ENOENT before Linux 5.12, or if `root` (/sys) shows another namespace's devices.
pub fn read_threaded(root: &Path, device: &DeviceName) -> Result<bool, SystemError> {
    Ok(read_trimmed(&threaded(root, device))? != "0")
}

/// Turns threaded NAPI of a device on or off.
///
/// # Errors
/// Those of [`read_threaded`]; EOPNOTSUPP for a device without NAPI.
pub fn set_threaded(root: &Path, device: &DeviceName, on: bool) -> Result<(), SystemError> {
    write(&threaded(root, device), if on { "1" } else { "0" })
}

fn threaded(root: &Path, device: &DeviceName) -> PathBuf {
    root.join("class/net").join(device).join("threaded")
}

fn write_if_there(path: &Path, text: &str) -> Result<(), SystemError> {
    // Writes only if the value differs, so that a kernel that refuses the write but has the right
    // value causes no error.
    match read_trimmed(path) {
        Ok(now) if now != text => write(path, text),
        _ => Ok(()),
    }
}

/// Returns /sys. After [`crate::namespace::enter_new`] it is the namespace's own.
pub fn root() -> &'static Path {
    Path::new("/sys")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn v0() -> DeviceName {
        "v0".parse().unwrap()
    }

    #[test]
    fn every_queue_is_set_and_flow_steering_goes_off() {
        let root = tempfile::tempdir().unwrap();
        let device = root.path().join("class/net/v0");
        for queue in ["rx-0", "rx-1"] {
            let queue = device.join("queues").join(queue);
            fs::create_dir_all(&queue).unwrap();
            fs::write(queue.join("rps_cpus"), "00000000,00000000\n").unwrap();
            fs::write(queue.join("rps_flow_cnt"), "4096\n").unwrap();
        }
        assert!(read(root.path(), &v0()).unwrap().is_empty());
        set(root.path(), &v0(), &[1, 33]).unwrap();
        assert_eq!(read(root.path(), &v0()).unwrap(), [1, 33]);
        let flows = fs::read_to_string(device.join("queues/rx-1/rps_flow_cnt"));
        assert_eq!(flows.unwrap(), "0");
    }

    #[test]
    fn a_device_that_is_not_there_is_an_error() {
        assert!(read(Path::new("/nonesuch"), &v0()).is_err());
    }
}
