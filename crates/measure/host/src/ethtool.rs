//! Offloads, rings, coalescing and drivers, by those ioctls of linux/ethtool.h that every kernel
//! and driver has.
//!
//! A setting that the driver or another offload does not allow is not made, often without an error:
//! read it back. Set sg and tx_checksum before tso, which needs both.

#![allow(unsafe_code, reason = "SIOCETHTOOL takes a pointer in a struct")]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::SystemError;

/// Offloads that are read and set, in the order in which they must be set.
pub const OFFLOADS: [&str; 6] = ["rx_checksum", "tx_checksum", "sg", "tso", "gso", "gro"];

/// Reads an offload of a device.
///
/// # Errors
/// ENODEV; EOPNOTSUPP if the driver has no such offload; a name that is not in [`OFFLOADS`].
pub fn read(device: &str, offload: &str) -> Result<bool, SystemError> {
    let (get, _) = commands(offload)?;
    let tried = || format!("read {offload} of {device}");
    call(device, get, 0)
        .map(|value| value != 0)
        .map_err(|error| SystemError::new(tried(), error))
}

/// Sets an offload of a device. The kernel may accept the request and ignore it: read it back.
///
/// # Errors
/// Those of [`read`], and EPERM without CAP_NET_ADMIN.
pub fn set(device: &str, offload: &str, on: bool) -> Result<(), SystemError> {
    let (_, set) = commands(offload)?;
    let tried = || {
        format!(
            "turn {offload} of {device} {}",
            if on { "on" } else { "off" }
        )
    };
    call(device, set, u32::from(on))
        .map(|_| ())
        .map_err(|error| SystemError::new(tried(), error))
}

/// Commands ETHTOOL_G… and ETHTOOL_S… of an offload.
fn commands(offload: &str) -> Result<(u32, u32), SystemError> {
    match offload {
        "rx_checksum" => Ok((0x14, 0x15)),
        "tx_checksum" => Ok((0x16, 0x17)),
        "sg" => Ok((0x18, 0x19)),
        "tso" => Ok((0x1e, 0x1f)),
        "gso" => Ok((0x23, 0x24)),
        "gro" => Ok((0x2b, 0x2c)),
        _ => Err(SystemError::strange(
            format!("offload {offload}"),
            "no such offload",
        )),
    }
}

/// struct ethtool_value.
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

fn call(device: &str, command: u32, data: u32) -> io::Result<u32> {
    let mut value = EthtoolValue { command, data };
    ioctl(device, &mut value)?;
    Ok(value.data)
}

/// Numbers of rings and coalescing, by the names of their knobs.
/// `adaptive_rx` is turned off first, because the driver chooses `rx_usecs` while it is on.
pub const NUMBERS: [&str; 6] = [
    "adaptive_rx",
    "rx_ring",
    "tx_ring",
    "rx_usecs",
    "rx_frames",
    "tx_usecs",
];

/// Commands ETHTOOL_G… and ETHTOOL_S… of a number, and its index among those that the commands
/// transfer. `None` for another name.
fn number_at(name: &str) -> Option<(u32, u32, usize)> {
    // Layout of struct ethtool_ringparam (four maxima, then the current values) or struct
    // ethtool_coalesce.
    Some(match name {
        "rx_ring" => (0x10, 0x11, 4),
        "tx_ring" => (0x10, 0x11, 7),
        "rx_usecs" => (0x0e, 0x0f, 0),
        "rx_frames" => (0x0e, 0x0f, 1),
        "tx_usecs" => (0x0e, 0x0f, 4),
        "adaptive_rx" => (0x0e, 0x0f, 9),
        _ => return None,
    })
}

/// Numbers of an ethtool command. struct ethtool_coalesce has 22; struct ethtool_ringparam and
/// struct ethtool_channels have 8, and the kernel transfers only those.
#[repr(C)]
pub(crate) struct EthtoolNumbers {
    pub(crate) command: u32,
    pub(crate) numbers: [u32; 22],
}

/// Reads a number of [`NUMBERS`] of a device.
///
/// # Errors
/// EOPNOTSUPP if the driver has none; ENODEV.
pub fn read_number(device: &str, name: &str) -> Result<u32, SystemError> {
    let tried = format!("read {name} of {device}");
    let Some((get, _, place)) = number_at(name) else {
        return Err(SystemError::strange(tried, "no such number"));
    };
    let mut all = EthtoolNumbers {
        command: get,
        numbers: [0; 22],
    };
    ioctl(device, &mut all).map_err(|error| SystemError::new(tried, error))?;
    Ok(all.numbers[place])
}

/// Sets a number of [`NUMBERS`] of a device and keeps the others. The driver may round: read it
/// back.
///
/// # Errors
/// Those of [`read_number`]; EINVAL for a number that the driver does not accept; EPERM without
/// CAP_NET_ADMIN.
pub fn set_number(device: &str, name: &str, number: u32) -> Result<(), SystemError> {
    let tried = format!("set {name} of {device} to {number}");
    let Some((get, set, place)) = number_at(name) else {
        return Err(SystemError::strange(tried, "no such number"));
    };
    let mut all = EthtoolNumbers {
        command: get,
        numbers: [0; 22],
    };
    let mut change = || {
        ioctl(device, &mut all)?;
        all.command = set;
        all.numbers[place] = number;
        ioctl(device, &mut all)
    };
    change().map_err(|error| SystemError::new(tried, error))
}

/// Driver of a device.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Driver {
    /// Name of the driver.
    pub name: String,
    /// Version of the device's firmware.
    pub firmware: String,
    /// Bus address of the device.
    pub bus: String,
}

/// struct ethtool_drvinfo.
#[repr(C)]
struct EthtoolDriver {
    command: u32,
    driver: [u8; 32],
    version: [u8; 32],
    firmware: [u8; 32],
    bus: [u8; 32],
    rom: [u8; 32],
    reserved: [u8; 12],
    counts: [u32; 5],
}

/// Reads the driver of a device.
///
/// # Errors
/// ENODEV; EOPNOTSUPP for a device without a driver.
pub fn driver(device: &str) -> Result<Driver, SystemError> {
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0);
        String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
    };
    let mut found = EthtoolDriver {
        command: 0x03, // ETHTOOL_GDRVINFO
        driver: [0; 32],
        version: [0; 32],
        firmware: [0; 32],
        bus: [0; 32],
        rom: [0; 32],
        reserved: [0; 12],
        counts: [0; 5],
    };
    ioctl(device, &mut found)
        .map_err(|error| SystemError::new(format!("read the driver of {device}"), error))?;
    Ok(Driver {
        name: text(&found.driver),
        firmware: text(&found.firmware),
        bus: text(&found.bus),
    })
}

/// Runs a command of SIOCETHTOOL. `data`: a struct that begins with the command's number and is as
/// large as the kernel's.
pub(crate) fn ioctl<T>(device: &str, data: &mut T) -> io::Result<()> {
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the terminating NUL.
    if device.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = std::ptr::from_mut(data).cast();

    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: SIOCETHTOOL reads and writes `request` and the struct of its command. `data` is that
    // struct, at least as large as linux/ethtool.h defines it; both outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Number from linux/sockios.h. Its C type differs between libcs.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
