//! Set-up of a network device in a guest: its address, and its state up. Uses the old ioctls:
//! netlink would need one more crate in each guest.
#![allow(unsafe_code, reason = "rustix has no ioctls of sockets")]

use std::io;
use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;

/// Sets a device's address and sets the device up. Format of the line: `eth0 10.0.0.1 24`.
pub(crate) fn take_up(line: &str) -> io::Result<()> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, format!("{line:?}"));
    let [device, address, prefix] = words[..] else {
        return Err(wrong());
    };
    let address: Ipv4Addr = address.parse().map_err(|_| wrong())?;
    let prefix: u32 = prefix.parse().map_err(|_| wrong())?;
    let mask = u32::MAX.checked_shl(32 - prefix.min(32)).unwrap_or(0);
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{device}: {error}"));
    request(device, libc::SIOCSIFADDR, &Value::Address(address)).map_err(named)?;
    request(device, libc::SIOCSIFNETMASK, &Value::Address(mask.into())).map_err(named)?;
    request(device, libc::SIOCSIFFLAGS, &Value::Flags(libc::IFF_UP)).map_err(named)
}

enum Value {
    Address(Ipv4Addr),
    Flags(libc::c_int),
}

fn request(device: &str, what: libc::c_ulong, value: &Value) -> io::Result<()> {
    // Any IPv4 socket accepts these ioctls.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    // SAFETY: a C struct of integers and bytes, for which zeros are values.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, byte) in request.ifr_name.iter_mut().zip(device.bytes().take(room)) {
        *to = byte as libc::c_char;
    }
    match value {
        Value::Flags(flags) => request.ifr_ifru.ifru_flags = *flags as libc::c_short,
        Value::Address(address) => {
            let address = libc::sockaddr_in {
                sin_family: libc::AF_INET as libc::sa_family_t,
                sin_port: 0,
                sin_addr: libc::in_addr {
                    s_addr: u32::from_ne_bytes(address.octets()),
                },
                sin_zero: [0; 8],
            };
            // SAFETY: both have 16 bytes, and the family says which the kernel reads.
            request.ifr_ifru.ifru_addr =
                unsafe { std::mem::transmute::<libc::sockaddr_in, libc::sockaddr>(address) };
        }
    }
    // SAFETY: the kernel reads the request, which lives through the call.
    match unsafe { libc::ioctl(socket.as_raw_fd(), what, &raw const request) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
