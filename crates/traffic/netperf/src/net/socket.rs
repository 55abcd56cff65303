//! Data sockets with the options of a test (netperf's `nettest_bsd.c`, `create_data_socket`).

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::socket::{getsockopt, setsockopt, sockopt as option};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, sockopt};

use crate::options::Transport;

// Options that neither rustix nor nix has.
sockopt_impl!(
    MaxPacingRate,
    SetOnly,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u32
);
sockopt_impl!(Ipv6Mtu, GetOnly, libc::IPPROTO_IPV6, libc::IPV6_MTU, i32);

/// Options of a socket. The default leaves the system's values.
#[derive(Debug, Clone, Default)]
pub struct SocketOptions {
    pub transport: Transport,
    /// SO_SNDBUF, bytes; the kernel doubles it.
    pub send_buffer: Option<i32>,
    /// SO_RCVBUF, bytes; the kernel doubles it.
    pub receive_buffer: Option<i32>,
    pub nodelay: bool,
    pub cork: bool,
    pub mss: Option<i32>,
    /// Bytes per second.
    pub pacing: Option<u32>,
    pub keepalive: bool,
    pub priority: Option<i32>,
    pub tos: Option<i32>,
    /// Name of the congestion control; empty for the system's default.
    pub congestion: String,
    /// SO_DONTROUTE.
    pub unrouted: bool,
}

/// Sizes of socket buffers, as the kernel reports them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sizes {
    pub send: i32,
    pub receive: i32,
}

/// Makes a socket that is not connected. With a port or a specific address it is bound.
///
/// # Errors
/// The refused step, and the system's reason.
pub fn data_socket(local: SocketAddr, options: &SocketOptions) -> io::Result<OwnedFd> {
    let family = match local {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let (kind, protocol) = match options.transport {
        Transport::Tcp => (SocketType::STREAM, ipproto::TCP),
        Transport::Udp => (SocketType::DGRAM, ipproto::UDP),
    };
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, Some(protocol))?;
    let fd = socket.as_fd();
    apply(fd, local.ip(), options)?;
    if options.transport == Transport::Tcp {
        // With UDP, another user's socket could get this one's datagrams.
        sockopt::set_socket_reuseaddr(fd, true)?;
        apply_tcp(fd, options)?;
    }
    if local.is_ipv6() {
        sockopt::set_ipv6_v6only(fd, true)?;
    }
    // A specific address without a port is bound, too: data must come from that address.
    if local.port() != 0 || !local.ip().is_unspecified() {
        step(&format!("bind to {local}"), rustix::net::bind(fd, &local))?;
    }
    Ok(socket)
}

fn apply(fd: BorrowedFd<'_>, local: IpAddr, options: &SocketOptions) -> io::Result<()> {
    let size = |size: i32| usize::try_from(size).unwrap_or(0);
    if let Some(bytes) = options.send_buffer {
        step(
            "SO_SNDBUF",
            sockopt::set_socket_send_buffer_size(fd, size(bytes)),
        )?;
    }
    if let Some(bytes) = options.receive_buffer {
        step(
            "SO_RCVBUF",
            sockopt::set_socket_recv_buffer_size(fd, size(bytes)),
        )?;
    }
    if let Some(rate) = options.pacing.filter(|rate| *rate > 0) {
        step("SO_MAX_PACING_RATE", setsockopt(&fd, MaxPacingRate, &rate))?;
    }
    if options.keepalive {
        step("SO_KEEPALIVE", sockopt::set_socket_keepalive(fd, true))?;
    }
    if let Some(priority) = options.priority {
        match setsockopt(&fd, option::Priority, &priority) {
            // Not fatal, as in netperf: the output has −2.
            Err(Errno::EPERM | Errno::EACCES) => {}
            done => step("SO_PRIORITY", done)?,
        }
    }
    if let Some(tos) = options.tos.filter(|tos| *tos > 0) {
        step(
            "IP_TOS",
            match local {
                IpAddr::V4(_) => sockopt::set_ip_tos(fd, tos as u8),
                IpAddr::V6(_) => sockopt::set_ipv6_tclass(fd, u32::from(tos as u8)),
            },
        )?;
    }
    if options.unrouted {
        step("SO_DONTROUTE", setsockopt(&fd, option::DontRoute, &true))?;
    }
    Ok(())
}

/// Sets the options that only TCP has.
fn apply_tcp(fd: BorrowedFd<'_>, options: &SocketOptions) -> io::Result<()> {
    if options.nodelay {
        step("TCP_NODELAY", sockopt::set_tcp_nodelay(fd, true))?;
    }
    if options.cork {
        step("TCP_CORK", sockopt::set_tcp_cork(fd, true))?;
    }
    if let Some(bytes) = options.mss {
        step(
            "TCP_MAXSEG",
            setsockopt(&fd, option::TcpMaxSeg, &bytes.cast_unsigned()),
        )?;
    }
    if !options.congestion.is_empty() {
        let name = &options.congestion;
        let done = sockopt::set_tcp_congestion(fd, name);
        step(&format!("congestion control {name}"), done)?;
    }
    Ok(())
}

/// Priority of the socket after one was asked for: −1 if none was, −2 if this user may not set it, as in
/// netperf.
pub fn priority(fd: BorrowedFd<'_>, asked: Option<i32>) -> i32 {
    let Some(asked) = asked else { return -1 };
    match getsockopt(&fd, option::Priority) {
        Ok(priority) if priority == asked => priority,
        _ => -2,
    }
}

/// Number of IP packets of a datagram of `bytes` on the way to an address; 1 if the path is unknown.
pub fn fragments(to: SocketAddr, bytes: usize) -> u64 {
    let any = match to {
        SocketAddr::V4(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
        SocketAddr::V6(_) => SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, 0)),
    };
    let options = SocketOptions {
        transport: Transport::Udp,
        ..SocketOptions::default()
    };
    let mtu = data_socket(any, &options).and_then(|socket| {
        rustix::net::connect(&socket, &to)?;
        Ok(match to {
            SocketAddr::V4(_) => getsockopt(&socket, option::IpMtu)?,
            SocketAddr::V6(_) => getsockopt(&socket, Ipv6Mtu)?,
        })
    });
    let header = if to.is_ipv4() { 20 } else { 40 };
    let room = mtu.map_or(0, |mtu| {
        usize::try_from(mtu).unwrap_or(0).saturating_sub(header)
    });
    let bytes = bytes + UDP_HEADER;
    match room {
        room if room < 8 || bytes <= room => 1,
        // All fragments but the last have a multiple of 8 bytes.
        room => bytes.div_ceil(room & !7) as u64,
    }
}

/// Makes a datagram for which the device's queue has no room an error of its send (ENOBUFS), where Linux would drop it
/// silently (IP_RECVERR).
///
/// # Errors
/// Errors of setsockopt.
pub fn receive_errors(fd: BorrowedFd<'_>, to: SocketAddr) -> io::Result<()> {
    let done = match to {
        SocketAddr::V4(_) => setsockopt(&fd, option::Ipv4RecvErr, &true),
        SocketAddr::V6(_) => setsockopt(&fd, option::Ipv6RecvErr, &true),
    };
    Ok(done?)
}

/// Bytes of a UDP header.
const UDP_HEADER: usize = 8;

/// Adds the step to the error of one that failed, but keeps its number.
fn step(what: &str, done: Result<(), impl Into<io::Error>>) -> io::Result<()> {
    done.map_err(|error| {
        let source = error.into();
        let what = what.to_string();
        io::Error::new(source.kind(), Tried { what, source })
    })
}

/// Error with the failed step; see [`errno`].
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}")]
struct Tried {
    what: String,
    source: io::Error,
}

/// The system's number of an error for an answer; EIO if there is none.
pub fn errno(error: &io::Error) -> i32 {
    let inner = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Tried>());
    inner
        .and_then(|tried| tried.source.raw_os_error())
        .or(error.raw_os_error())
        .unwrap_or(libc::EIO)
}

/// Current sizes of the socket's buffers. Linux changes them over time.
pub fn sizes(fd: BorrowedFd<'_>) -> Sizes {
    let size = |size: rustix::io::Result<usize>| {
        size.ok()
            .and_then(|size| i32::try_from(size).ok())
            .unwrap_or(-1)
    };
    Sizes {
        send: size(sockopt::socket_send_buffer_size(fd)),
        receive: size(sockopt::socket_recv_buffer_size(fd)),
    }
}

/// Name of the socket's congestion control.
pub fn congestion(fd: BorrowedFd<'_>) -> String {
    sockopt::tcp_congestion(fd).unwrap_or_default()
}

/// IP_TOS or traffic class of the socket; −1 if it was not set.
pub fn tos(fd: BorrowedFd<'_>, local: IpAddr, asked: Option<i32>) -> i32 {
    if asked.is_none_or(|tos| tos <= 0) {
        return asked.unwrap_or(-1);
    }
    match local {
        IpAddr::V4(_) => sockopt::ip_tos(fd).map_or(-1, i32::from),
        IpAddr::V6(_) => sockopt::ipv6_tclass(fd).map_or(-1, u32::cast_signed),
    }
}
