//! Offloads, by the ioctls of linux/ethtool.h that every kernel and driver has.
//!
//! What a device's driver or another offload does not allow is not set, often without an error:
//! read it back. sg and tx_checksum come before tso, which needs both.

#![allow(unsafe_code, reason = "SIOCETHTOOL takes a pointer in a struct")]

use std::io;
use std::os::fd::AsRawFd;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use crate::error::SystemError;

/// The offloads that are read and set, in the order in which they are to be set.
pub const OFFLOADS: [&str; 6] = ["rx_checksum", "tx_checksum", "sg", "tso", "gso", "gro"];

/// Reads an offload of a device.
///
/// # Errors
/// ENODEV, or EOPNOTSUPP where the driver has no such offload; a name that is not in [`OFFLOADS`].
pub fn read(device: &str, offload: &str) -> Result<bool, SystemError> {
    let (get, _) = commands(offload)?;
    let tried = || format!("read {offload} of {device}");
    call(device, get, 0)
        .map(|value| value != 0)
        .map_err(|error| SystemError::new(tried(), error))
}

/// Sets an offload of a device. The kernel may take the order without following it: read it back.
///
/// # Errors
/// As [`read`], and EPERM without CAP_NET_ADMIN.
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

/// ETHTOOL_G… and ETHTOOL_S… of an offload.
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
    // SAFETY: ifreq is plain data, for which all zeros is a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    // One byte is left for the NUL that ends the name.
    if device.len() >= request.ifr_name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(device.bytes()) {
        *to = libc::c_char::from_ne_bytes([from]);
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();

    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)?;
    // SAFETY: SIOCETHTOOL reads and writes `request` and, for these commands, the eight bytes of
    // `value` that it points to; both outlive the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if done < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(value.data)
}

/// linux/sockios.h. Its C type differs between libcs.
const SIOCETHTOOL: libc::Ioctl = 0x8946;
