//! Socket options that rustix lacks.

#![allow(
    unsafe_code,
    reason = "getsockopt and setsockopt with options that rustix does not know"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Sets an option of type int.
fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    let length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel reads `length` bytes of `value`, which lives through the call.
    let status = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            length,
        )
    };
    match status {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// SO_PRIORITY.
pub fn set_priority(fd: BorrowedFd<'_>, priority: i32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_PRIORITY, priority)
}

/// SO_MAX_PACING_RATE, bytes per second.
pub fn set_pacing(fd: BorrowedFd<'_>, bytes_per_s: u32) -> io::Result<()> {
    set(
        fd,
        libc::SOL_SOCKET,
        libc::SO_MAX_PACING_RATE,
        bytes_per_s.cast_signed(),
    )
}

/// SO_DONTROUTE.
pub fn set_unrouted(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_DONTROUTE, 1)
}

/// TCP_MAXSEG.
pub fn set_mss(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_MAXSEG, bytes)
}

/// IP_RECVERR: a datagram for which the device's queue has no room is an error of its send (ENOBUFS), where
/// Linux would drop it silently.
pub fn set_receive_errors(fd: BorrowedFd<'_>, is_v4: bool) -> io::Result<()> {
    match is_v4 {
        true => set(fd, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
        false => set(fd, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
    }
}

/// Value of SO_PRIORITY.
pub fn priority(fd: BorrowedFd<'_>) -> io::Result<i32> {
    get(fd, libc::SOL_SOCKET, libc::SO_PRIORITY)
}

/// MTU of the path of a connected socket, bytes.
pub fn path_mtu(fd: BorrowedFd<'_>, is_v4: bool) -> io::Result<i32> {
    match is_v4 {
        true => get(fd, libc::IPPROTO_IP, libc::IP_MTU),
        false => get(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU),
    }
}

/// Value of an option of type int.
fn get(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<i32> {
    let mut value = 0;
    let mut length = size_of::<i32>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which `value` has.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    match status {
        0 => Ok(value),
        _ => Err(io::Error::last_os_error()),
    }
}
