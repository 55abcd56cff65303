//! Whether the device that a script uses cuts super-segments: it says so by `ethtool -K`.

#![allow(unsafe_code, reason = "an ioctl that no safe crate here has")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// Generic segmentation of packetdrill's device. It is there unless a script has switched it off.
pub fn cuts() -> bool {
    let Ok(socket) = UdpSocket::bind("127.0.0.1:0") else {
        return true;
    };
    let mut value = Value {
        command: ETHTOOL_GGSO,
        data: 0,
    };
    // SAFETY: all zero is a valid `ifreq`, a structure of integers and a pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE) {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_data = (&raw mut value).cast();
    // SAFETY: a request of the kernel's layout, whose value outlives the call.
    let answered = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    answered != 0 || value.data != 0
}

const DEVICE: &[u8] = b"tun0";
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GGSO: u32 = 0x23;
