//! Socket options of open connections that affect acknowledgements, wake-ups and pacing.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, setsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily, SocketType, sockopt};

/// Longest delay of an ACK (linux/tcp.h, since Linux 6.15). The crate libc lacks it.
const TCP_DELACK_MAX_US: libc::c_int = 46;
/// Level of MPTCP's options (linux/socket.h). The crate libc lacks it.
const SOL_MPTCP: libc::c_int = 284;
/// State of an MPTCP connection (linux/mptcp.h). The crate libc lacks it.
const MPTCP_INFO: libc::c_int = 1;

// Options that neither rustix nor nix has.
sockopt_impl!(AckDelayMax, Both, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, u32);
sockopt_impl!(BusyPoll, Both, libc::SOL_SOCKET, libc::SO_BUSY_POLL, u32);
sockopt_impl!(
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);
sockopt_impl!(MptcpInfo, GetOnly, SOL_MPTCP, MPTCP_INFO, u128);
sockopt_impl!(
    NotsentLowWater,
    Both,
    libc::IPPROTO_TCP,
    libc::TCP_NOTSENT_LOWAT,
    u32
);
sockopt_impl!(
    ReceiveLowWater,
    Both,
    libc::SOL_SOCKET,
    libc::SO_RCVLOWAT,
    u32
);

/// Sets SO_RCVLOWAT: a reader is woken only when `bytes` bytes can be read.
///
/// # Errors
/// Errors of setsockopt.
pub fn set_receive_low_water(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    Ok(setsockopt(&fd, ReceiveLowWater, &bytes)?)
}

/// Sets the DSCP of packets sent from now on (IP_TOS, IPV6_TCLASS), 0 to 63. The two bits below it
/// stay with TCP, for ECN.
///
/// # Errors
/// Errors of setsockopt.
pub fn set_dscp(fd: BorrowedFd<'_>, dscp: u8) -> io::Result<()> {
    if sockopt::socket_domain(fd)? == AddressFamily::INET6 {
        sockopt::set_ipv6_tclass(fd, u32::from(dscp) << 2)?;
    }
    // Also for an IPv6 socket that is connected to an IPv4 address.
    Ok(sockopt::set_ip_tos(fd, dscp << 2)?)
}

/// DSCP of packets sent.
///
/// # Errors
/// Errors of getsockopt.
pub fn dscp(fd: BorrowedFd<'_>) -> io::Result<u8> {
    Ok(sockopt::ip_tos(fd)? >> 2)
}

/// Sets TCP_NOTSENT_LOWAT: a socket is writable only while fewer bytes are unsent.
///
/// # Errors
/// Errors of setsockopt.
pub fn set_notsent_low_water(fd: BorrowedFd<'_>, bytes: u32) -> io::Result<()> {
    Ok(setsockopt(&fd, NotsentLowWater, &bytes)?)
}

/// TCP_NOTSENT_LOWAT, bytes; see [`set_notsent_low_water`].
///
/// # Errors
/// Errors of getsockopt.
pub fn notsent_low_water(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(getsockopt(&fd, NotsentLowWater)?)
}

/// Sets SO_BUSY_POLL: microseconds that a read polls the device.
///
/// # Errors
/// EPERM for more than net.core.busy_read without CAP_NET_ADMIN.
pub fn set_busy_poll(fd: BorrowedFd<'_>, us: u32) -> io::Result<()> {
    Ok(setsockopt(&fd, BusyPoll, &us)?)
}

/// SO_BUSY_POLL, microseconds; see [`set_busy_poll`].
///
/// # Errors
/// Errors of getsockopt.
pub fn busy_poll(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(getsockopt(&fd, BusyPoll)?)
}

/// Sets SO_MAX_PACING_RATE, bytes per second.
///
/// # Errors
/// Errors of setsockopt.
pub fn set_max_pacing_rate(fd: BorrowedFd<'_>, bytes_per_s: u64) -> io::Result<()> {
    Ok(setsockopt(&fd, MaxPacingRate, &bytes_per_s)?)
}

/// SO_MAX_PACING_RATE, bytes per second.
///
/// # Errors
/// Errors of getsockopt.
pub fn max_pacing_rate(fd: BorrowedFd<'_>) -> io::Result<u64> {
    Ok(getsockopt(&fd, MaxPacingRate)?)
}

/// True if an MPTCP socket has fallen back to TCP because its peer does not support MPTCP
/// (MPTCP_INFO_FLAG_FALLBACK, linux/mptcp.h).
///
/// # Errors
/// EOPNOTSUPP if the socket is not MPTCP.
pub fn has_fallen_back(fd: BorrowedFd<'_>) -> io::Result<bool> {
    // The flags are the third word, after six counts of a byte and two bytes of padding.
    let bytes = getsockopt(&fd, MptcpInfo)?.to_ne_bytes();
    Ok(u32::from_ne_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]) & 1 == 1)
}

/// Sets TCP_DELACK_MAX_US: the longest delay of an ACK. The kernel rounds it up to its ticks.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15, EINVAL outside two ticks to 200 ms.
pub fn set_ack_delay_max(fd: BorrowedFd<'_>, delay: Duration) -> io::Result<()> {
    let us = u32::try_from(delay.as_micros()).unwrap_or(u32::MAX);
    Ok(setsockopt(&fd, AckDelayMax, &us)?)
}

/// Value that TCP_DELACK_MAX_US has on this host after it is set to `delay`.
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15, EINVAL outside two ticks to 200 ms.
pub fn ack_delay_max_here(delay: Duration) -> io::Result<Duration> {
    let fd = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
    set_ack_delay_max(fd.as_fd(), delay)?;
    ack_delay_max(fd.as_fd())
}

/// Longest delay of an ACK (TCP_DELACK_MAX_US).
///
/// # Errors
/// ENOPROTOOPT before Linux 6.15.
pub fn ack_delay_max(fd: BorrowedFd<'_>) -> io::Result<Duration> {
    let us = getsockopt(&fd, AckDelayMax)?;
    Ok(Duration::from_micros(us.into()))
}

/// SO_RCVLOWAT, bytes.
///
/// # Errors
/// Errors of getsockopt.
pub fn receive_low_water(fd: BorrowedFd<'_>) -> io::Result<u32> {
    Ok(getsockopt(&fd, ReceiveLowWater)?)
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
        // A millisecond is more than one tick only at HZ 1000.
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
