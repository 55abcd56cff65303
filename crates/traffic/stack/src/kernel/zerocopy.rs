//! MSG_ZEROCOPY: sends, and their completions from the error queue.
//!
//! Documentation/networking/msg_zerocopy.rst: each successful call takes the next 32-bit id. A
//! notification reports a range of ids [ee_info, ee_data], and ranges may come in any order.

#![allow(
    unsafe_code,
    reason = "MSG_ZEROCOPY reports in control messages of its own"
)]

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::sys::socket::setsockopt;
use nix::{setsockopt_impl, sockopt_impl};
use rustix::net::SendFlags;

use crate::kernel::Socket;
use crate::stack::Completions;

// linux/errqueue.h; the crate libc has neither.
const SO_EE_ORIGIN_ZEROCOPY: u8 = 5;
const SO_EE_CODE_ZEROCOPY_COPIED: u8 = 1;

sockopt_impl!(ZeroCopy, SetOnly, libc::SOL_SOCKET, libc::SO_ZEROCOPY, bool);

pub(super) fn enable(fd: &OwnedFd) -> io::Result<()> {
    Ok(setsockopt(fd, ZeroCopy, &true)?)
}

/// Sends by reference. ENOBUFS means that this socket's notifications fill net.core.optmem_max, or
/// that the user's pinned pages fill RLIMIT_MEMLOCK. Then completions are taken and the call is
/// made again. If that fails with sends outstanding, their completion is the next edge
/// (`WouldBlock`). With none outstanding no edge would ever come, so the bytes are sent by copy.
#[inline]
pub(super) fn send(
    socket: &mut Socket,
    completions: &mut Completions,
    bytes: &[u8],
    flags: SendFlags,
) -> io::Result<usize> {
    let by_reference = flags | SendFlags::from_bits_retain(libc::MSG_ZEROCOPY as u32);
    let mut result = rustix::net::send(&socket.fd, bytes, by_reference);
    if result == Err(rustix::io::Errno::NOBUFS) {
        reap(socket, completions)?;
        result = rustix::net::send(&socket.fd, bytes, by_reference);
    }
    match result {
        Ok(sent) => {
            socket.zerocopy_sent = socket.zerocopy_sent.wrapping_add(1);
            Ok(sent)
        }
        Err(rustix::io::Errno::NOBUFS) if socket.zerocopy_sent != socket.zerocopy_completed => {
            Err(io::ErrorKind::WouldBlock.into())
        }
        Err(rustix::io::Errno::NOBUFS) => Ok(rustix::net::send(&socket.fd, bytes, flags)?),
        Err(error) => Err(error.into()),
    }
}

/// Room for one notification: sock_extended_err (16) and a sockaddr_in6 (28) after a cmsghdr (16),
/// rounded up. An array of u64 for the alignment of cmsghdr.
type Control = [u64; 16];

/// Takes all notifications of a socket. Returns the number of sends that they complete.
pub(super) fn reap(socket: &mut Socket, completions: &mut Completions) -> io::Result<u32> {
    let mut completed: u32 = 0;
    loop {
        let mut control: Control = [0; 16];
        // SAFETY: msghdr is plain data for which all zeroes is valid: no name, no buffers.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of::<Control>() as _;
        // SAFETY: the fd is open; msg_control points to msg_controllen writable bytes.
        let result = unsafe {
            libc::recvmsg(
                socket.fd.as_raw_fd(),
                &raw mut message,
                libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT,
            )
        };
        if result < 0 {
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::WouldBlock {
                return Err(error);
            }
            socket.zerocopy_completed = socket.zerocopy_completed.wrapping_add(completed);
            return Ok(completed);
        }
        if let Some(error) = extended_error(&message)
            && error.ee_origin == SO_EE_ORIGIN_ZEROCOPY
        {
            let sends = error.ee_data.wrapping_sub(error.ee_info).wrapping_add(1);
            completed = completed.wrapping_add(sends);
            completions.sends += u64::from(sends);
            if error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED != 0 {
                completions.copied += u64::from(sends);
            }
        }
    }
}

fn extended_error(message: &libc::msghdr) -> Option<libc::sock_extended_err> {
    // SAFETY: the kernel has filled msg_control and set msg_controllen to what it wrote.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: CMSG_FIRSTHDR returns null, or a header that lies wholly inside the control buffer,
    // which is aligned for it.
    let header = unsafe { header.as_ref() }?;
    let is_error = matches!(
        (header.cmsg_level, header.cmsg_type),
        (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR)
    );
    // SAFETY: only computes the length of a header with this payload.
    let needed = unsafe { libc::CMSG_LEN(mem::size_of::<libc::sock_extended_err>() as u32) };
    if !is_error || (header.cmsg_len as u64) < u64::from(needed) {
        return None;
    }
    // SAFETY: the length was checked; the struct is plain data; read_unaligned needs no alignment.
    Some(unsafe {
        libc::CMSG_DATA(header)
            .cast::<libc::sock_extended_err>()
            .read_unaligned()
    })
}
