//! Interrupts of a device, and the CPUs that they arrive at.
//!
//! All interrupts of the device are handled alike. Which of them belong to queues is not known,
//! because each driver names them in its own way (/proc/interrupts); the other ones are rare.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use tcpcost_knobs::DeviceName;

use crate::error::{SystemError, read_trimmed, write};

/// CPUs of each interrupt, as the kernel lists them: `0-3,8`.
pub type Placement = Vec<(u32, String)>;

/// Finds the interrupts of a device, in the order of their numbers. `sys` is /sys.
///
/// # Errors
/// EOPNOTSUPP for a device without interrupts of its own, such as a virtual device.
pub fn of_device(sys: &Path, device: &DeviceName) -> Result<Vec<u32>, SystemError> {
    let own = sys.join("class/net").join(device).join("device");
    for place in places(&own) {
        let irqs = listed(&place);
        if !irqs.is_empty() {
            return Ok(irqs);
        }
    }
    let tried = format!("find the interrupts of {device}, which has none of its own");
    let error = io::Error::from_raw_os_error(libc::EOPNOTSUPP);
    Err(SystemError::new(tried, error))
}

/// Interrupts that a device of a bus lists: message-signalled ones, else its interrupt line.
fn listed(place: &Path) -> Vec<u32> {
    let names = fs::read_dir(place.join("msi_irqs")).into_iter().flatten();
    let number = |entry: io::Result<fs::DirEntry>| entry.ok()?.file_name().to_str()?.parse().ok();
    let mut irqs: Vec<u32> = names.filter_map(number).collect();
    irqs.sort_unstable();
    if irqs.is_empty() {
        let line = read_trimmed(&place.join("irq")).ok();
        let line = line.and_then(|text| text.parse().ok());
        irqs.extend(line.filter(|&irq: &u32| irq != 0)); // 0 means no line.
    }
    irqs
}

/// Folders in which a device's interrupts are listed: its own, and for a virtio device that of the
/// carrier device.
fn places(own: &Path) -> Vec<PathBuf> {
    let bus = fs::canonicalize(own.join("subsystem")).ok();
    let is_virtio = bus.is_some_and(|bus| bus.ends_with("virtio"));
    let carrier = fs::canonicalize(own).ok().filter(|_| is_virtio);
    let carrier = carrier.and_then(|path| Some(path.parent()?.to_path_buf()));
    std::iter::once(own.to_path_buf()).chain(carrier).collect()
}

/// Reads the CPUs that these interrupts arrive at. `proc` is /proc.
///
/// # Errors
/// ENODEV for an interrupt that does not exist any more.
pub fn read(proc: &Path, irqs: impl IntoIterator<Item = u32>) -> Result<Placement, SystemError> {
    let one = |irq| {
        let cpus = read_trimmed(&file(proc, irq));
        let cpus = cpus.map_err(|error| match error.source.kind() {
            // ENODEV, as for a device that is gone: its driver has removed the interrupt.
            io::ErrorKind::NotFound => {
                SystemError::new(error.tried, io::Error::from_raw_os_error(libc::ENODEV))
            }
            _ => error,
        });
        Ok((irq, cpus?))
    };
    irqs.into_iter().map(one).collect()
}

/// Placement of these interrupts on these CPUs in turn, each on one CPU.
pub fn in_turn(irqs: &[u32], cpus: &[usize]) -> Placement {
    let cpus = cpus.iter().cycle().map(ToString::to_string);
    irqs.iter().copied().zip(cpus).collect()
}

/// Sets the CPUs of each interrupt.
///
/// # Errors
/// EOPNOTSUPP for an interrupt that the kernel places itself (managed interrupts); EINVAL for CPUs
/// that do not exist; EPERM.
pub fn set(proc: &Path, placement: &[(u32, String)]) -> Result<(), SystemError> {
    for (irq, cpus) in placement {
        let written = write(&file(proc, *irq), cpus);
        written.map_err(|error| match error.source.raw_os_error() {
            Some(libc::EIO) => SystemError::new(
                format!(
                    "{}: the kernel chooses the CPU of this interrupt",
                    error.tried
                ),
                io::Error::from_raw_os_error(libc::EOPNOTSUPP),
            ),
            _ => error,
        })?;
    }
    Ok(())
}

fn file(proc: &Path, irq: u32) -> PathBuf {
    let folder = proc.join("irq").join(irq.to_string());
    folder.join("smp_affinity_list")
}

/// Returns /proc.
pub fn root() -> &'static Path {
    Path::new("/proc")
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Test root for /sys in which `eth0` has this path below devices, on this bus.
    fn tree(path: &str, bus: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("devices").join(path);
        let bus = root.path().join("bus").join(bus);
        fs::create_dir_all(&own).unwrap();
        fs::create_dir_all(&bus).unwrap();
        symlink(&bus, own.join("subsystem")).unwrap();
        let net = root.path().join("class/net/eth0");
        fs::create_dir_all(&net).unwrap();
        symlink(&own, net.join("device")).unwrap();
        root
    }

    fn messages(root: &Path, path: &str, irqs: &[u32]) {
        let folder = root.join("devices").join(path).join("msi_irqs");
        fs::create_dir_all(&folder).unwrap();
        for irq in irqs {
            fs::write(folder.join(irq.to_string()), "msix\n").unwrap();
        }
    }

    #[test]
    fn interrupts_are_those_of_the_device_or_of_what_carries_a_virtio_one() {
        let pci = tree("pci/0000:3b:00.0", "pci");
        messages(pci.path(), "pci/0000:3b:00.0", &[101, 99, 100]);
        assert_eq!(
            of_device(pci.path(), &"eth0".parse().unwrap()).unwrap(),
            [99, 100, 101]
        );

        let virtio = tree("pci/0000:00:03.0/virtio2", "virtio");
        messages(virtio.path(), "pci/0000:00:03.0", &[37, 38]);
        assert_eq!(
            of_device(virtio.path(), &"eth0".parse().unwrap()).unwrap(),
            [37, 38]
        );

        // A bridge has interrupts, too, but they are not the device's.
        let behind = tree("pci/0000:00:1c.0/0000:03:00.0", "pci");
        messages(behind.path(), "pci/0000:00:1c.0", &[24]);
        let line = behind.path().join("class/net/eth0/device/irq");
        fs::write(line, "17\n").unwrap();
        assert_eq!(
            of_device(behind.path(), &"eth0".parse().unwrap()).unwrap(),
            [17]
        );
    }

    #[test]
    fn a_device_without_interrupts_is_told_by_name() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("class/net/veth0")).unwrap();
        let error = of_device(root.path(), &"veth0".parse().unwrap()).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().contains("veth0"), "{error}");
    }

    #[test]
    fn each_interrupt_is_placed_on_a_cpu_in_turn_and_read_back() {
        let root = tempfile::tempdir().unwrap();
        for irq in [37, 38, 39] {
            fs::create_dir_all(root.path().join(format!("irq/{irq}"))).unwrap();
            fs::write(file(root.path(), irq), "0-3\n").unwrap();
        }
        let placement = in_turn(&[37, 38, 39], &[2, 0]);
        set(root.path(), &placement).unwrap();
        let found = read(root.path(), [37, 38, 39]).unwrap();
        let expected = [(37, "2"), (38, "0"), (39, "2")];
        assert_eq!(found, expected.map(|(irq, cpu)| (irq, cpu.to_string())));
        assert!(read(root.path(), [40]).is_err());
    }
}
