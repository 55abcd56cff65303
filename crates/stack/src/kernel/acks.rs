//! Socket options that change when a receiver acknowledges, for connections that stand.

#![allow(unsafe_code, reason = "socket options that rustix does not have")]

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketType, sockopt};

/// linux/tcp.h, of Linux 6.15; the crate libc does not have it yet.
const TCP_DELACK_MAX_US: libc::c_int = 46;

/// SO_RCVLOWAT: a reader is woken only when so many bytes can be read.
///
/// # Errors
/// What the kernel said.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT, bytes)
}

/// IP_TOS or IPV6_TCLASS: the code point of what is sent from now on. The two bits below it stay
/// TCP's, for ECN.
///
/// # Errors
/// What the kernel said.
pub fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    if sockopt::socket_domain(fd)? == AddressFamily::INET6 {
        sockopt::set_ipv6_tclass(fd, u32::from(dscp) << 2)?;
    }
    // Of an IPv6 socket that is connected to an IPv4 address, too.
    Ok(sockopt::set_ip_tos(fd, dscp << 2)?)
}

/// The code point of what is sent.
///
/// # Errors
/// What the kernel said.
pub fn dscp(fd: BorrowedFd<'_>) -> io::Result<u8> {
    Ok(sockopt::ip_tos(fd)? >> 2)
}

/// TCP_NOTSENT_LOWAT: a socket is writable only while fewer bytes wait to be sent.
///
/// # Errors
/// What the kernel said.
pub fn set_notsent_low_water(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, bytes)
}

/// See [`set_notsent_low_water`].
///
/// # Errors
/// What the kernel said.
pub fn notsent_low_water(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
}

/// SO_BUSY_POLL: microseconds that a read polls the device.
///
/// # Errors
/// EPERM for more than net.core.busy_read without CAP_NET_ADMIN.
pub fn set_busy_poll(fd: BorrowedFd<'_>, us: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, us)
}

/// See [`set_busy_poll`].
///
/// # Errors
/// What the kernel said.
pub fn busy_poll(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL)
}

/// SO_MAX_PACING_RATE, bytes per second.
///
/// # Errors
/// What the kernel said.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, bytes_per_s)
}

/// See [`set_max_pacing_rate`].
///
/// # Errors
/// What the kernel said.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<u64> {
    get(fd, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE)
}

/// MPTCP_INFO's flag that an MPTCP socket speaks TCP, since its peer knows nothing else (linux/mptcp.h).
///
/// # Errors
/// EOPNOTSUPP of a socket that is none of MPTCP's.
pub fn has_fallen_back(fd: BorrowedFd<'_>) -> io::Result<bool> {
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    // The flags are the third word, after six counts of a byte and two of padding.
    let start: u128 = get(fd, SOL_MPTCP, MPTCP_INFO)?;
    let bytes = start.to_ne_bytes();
    Ok(u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) & 1 == 1)
}

/// TCP_DELACK_MAX_US: the longest that an ACK waits. The kernel rounds it up to its ticks.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15, EINVAL outside two ticks to 200 ms.
pub fn set_ack_delay_max(fd: BorrowedFd<'_>, delay: Duration) -> io::Result<()> {
    let us = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
    set(fd, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, us)
}

/// What TCP_DELACK_MAX_US makes of a delay on a socket of this host.
///
/// # Errors
/// As there.
pub fn ack_delay_max_here(delay: Duration) -> io::Result<Duration> {
    let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_ack_delay_max(fd.as_fd(), delay)?;
    ack_delay_max(fd.as_fd())
}

/// What the longest wait of an ACK is.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15.
pub fn ack_delay_max(fd: BorrowedFd<'_>) -> io::Result<Duration> {
    let us: u32 = get(fd, libc::IPPROTO_TCP, TCP_DELACK_MAX_US)?;
    Ok(Duration::from_micros(us.into()))
}

/// How many bytes a reader is woken for.
///
/// # Errors
/// What the kernel said.
pub fn receive_low_water(fd: BorrowedFd<'_>) -> io::Result<u32> {
    get(fd, libc::SOL_SOCKET, libc::SO_RCVLOWAT)
}

/// So many bytes as the kernel fills in or reads: it goes by the length.
trait Number: Copy + Default {}
impl Number for u32 {}
impl Number for u64 {}
impl Number for u128 {}

fn get<N: Number>(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int) -> io::Result<N> {
    let mut value = N::default();
    let mut length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the fd is open; value and length live through the call, and the length is the value's.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set<N: Number>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: N,
) -> io::Result<()> {
    // SAFETY: the fd is open, and the value is a number that lives through the call.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_is_taken_as_it_is_rounded_up_or_refused() {
        match ack_delay_max_here(Duration::from_millis(40)) {
            Ok(delay) => assert_eq!(delay, Duration::from_millis(40), "a multiple of every tick"),
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT));
                return tcpcost_testbed::skip("TCP_DELACK_MAX_US needs Linux 6.15");
            }
        }
        // A millisecond is more than one tick at HZ 1000 alone.
        let rounded = ack_delay_max_here(Duration::from_micros(20_100)).unwrap();
        assert!(rounded >= Duration::from_micros(20_100), "{rounded:?}");
        let error = ack_delay_max_here(Duration::from_millis(201)).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn low_water_is_taken() {
        let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        set_receive_low_water(fd.as_fd(), 4096).unwrap();
    }
}
