//! Settings of packetdrill's device, which a script or its caller has made.

#![allow(unsafe_code, reason = "ioctls that no safe crate here has")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// `struct ethtool_value`.
#[repr(C)]
struct Value {
    command: u32,
    data: u32,
}

/// True if the device cuts super-segments (generic segmentation), unless a script has switched that
/// off.
pub fn cuts() -> bool {
    let mut value = Value {
        command: ETHTOOL_GGSO,
        data: 0,
    };
    let answer = ask(SIOCETHTOOL, |request| {
        request.ifr_ifru.ifru_data = (&raw mut value).cast();
    });
    answer.is_none() || value.data != 0
}

/// MTU of the device.
pub fn mtu() -> Option<u16> {
    let answer = ask(libc::SIOCGIFMTU, |_| {})?;
    // SAFETY: the field that this request fills.
    u16::try_from(unsafe { answer.ifr_ifru.ifru_mtu }).ok()
}

fn ask(what: libc::Ioctl, set: impl FnOnce(&mut libc::ifreq)) -> Option<libc::ifreq> {
    let socket = UdpSocket::bind("127.0.0.1:0").ok()?;
    // SAFETY: all zero is a valid `ifreq`, a structure of integers and a pointer.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(DEVICE) {
        *to = *from as libc::c_char;
    }
    set(&mut request);
    // SAFETY: a request in the kernel's layout, whose value outlives the call.
    let answer = unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw mut request) };
    (answer == 0).then_some(request)
}

const DEVICE: &[u8] = b"tun0";
const SIOCETHTOOL: libc::Ioctl = 0x8946;
const ETHTOOL_GGSO: u32 = 0x23;
