//! Kernel sockets that std cannot make.

use std::ffi::CStr;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Makes a connection that uses cubic from its start. A connection that begins with bbr (where that
/// is the default) keeps pacing after a change, and then sends from timers, in the CPU time of the
/// interrupted process.
pub fn cubic(address: [u8; 4], port: u16) -> TcpStream {
    let name = b"cubic";
    // SAFETY: plain calls; the name and the address live until the call ends; the descriptor is new
    // and ours.
    unsafe {
        let fd = libc::socket(libc::AF_INET, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0);
        assert!(fd >= 0, "{}", std::io::Error::last_os_error());
        let stream = TcpStream::from_raw_fd(fd);
        let result = libc::setsockopt(
            fd,
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        );
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        let mut to: libc::sockaddr_in = std::mem::zeroed();
        to.sin_family = libc::AF_INET as u16;
        to.sin_port = port.to_be();
        to.sin_addr.s_addr = u32::from_ne_bytes(address);
        let size = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        let result = libc::connect(fd, (&raw const to).cast(), size);
        assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        stream
    }
}

/// Link-layer socket whose packets have virtio-net headers (packet(7)).
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    pub fn new(interface: &CStr) -> Self {
        // SAFETY: plain calls; the address and the option live until the call ends; the descriptor
        // is new and ours.
        unsafe {
            let fd = libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0);
            assert!(fd >= 0, "{}", std::io::Error::last_os_error());
            let socket = Self(OwnedFd::from_raw_fd(fd));
            let on: libc::c_int = 1;
            for option in [PACKET_VNET_HDR, libc::PACKET_QDISC_BYPASS] {
                let size = size_of::<libc::c_int>() as libc::socklen_t;
                let result =
                    libc::setsockopt(fd, libc::SOL_PACKET, option, (&raw const on).cast(), size);
                assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            }
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = libc::if_nametoindex(interface.as_ptr()) as i32;
            let size = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            let result = libc::bind(fd, (&raw const address).cast(), size);
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
            socket
        }
    }

    pub fn send(&self, unit: &[u8]) {
        // SAFETY: the bytes live until the call ends.
        let sent = unsafe { libc::send(self.0.as_raw_fd(), unit.as_ptr().cast(), unit.len(), 0) };
        assert_eq!(
            sent,
            unit.len() as isize,
            "{}",
            std::io::Error::last_os_error()
        );
    }
}

/// Value of linux/if_packet.h.
const PACKET_VNET_HDR: libc::c_int = 15;
