//! Calls that read.

use std::ffi::{c_int, c_void};

use libc::{size_t, sockaddr, socklen_t, ssize_t};

use super::pointers::room;
use super::shim::{finish, shim};
use crate::calls::Report;
use crate::control::Control;

fn read_into(fd: c_int, to: &mut [u8], flags: c_int) -> Result<i64, c_int> {
    let peek = flags & libc::MSG_PEEK != 0;
    shim().call_with(fd, flags, |sockets| sockets.read(fd, to, peek))
}

pub(super) unsafe extern "C" fn read(
    this: *mut c_void,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { recv(this, fd, data, len, 0) }
}

pub(super) unsafe extern "C" fn readv(
    _: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's vector.
    finish(unsafe { scattered(fd, iov, count.max(0) as usize, 0) })
}

/// Reads into a vector.
///
/// # Safety
/// `iov` has `count` entries that describe writable memory.
unsafe fn scattered(
    fd: c_int,
    iov: *const libc::iovec,
    count: usize,
    flags: c_int,
) -> Result<i64, c_int> {
    // SAFETY: as the caller promises.
    let parts = unsafe { std::slice::from_raw_parts(iov, count) };
    let mut buffer = vec![0; parts.iter().map(|part| part.iov_len).sum()];
    let read = read_into(fd, &mut buffer, flags)?;
    let mut left = &buffer[..read as usize];
    for part in parts {
        // SAFETY: as the caller promises.
        let to = unsafe { room(part.iov_base, part.iov_len) };
        let here = to.len().min(left.len());
        to[..here].copy_from_slice(&left[..here]);
        left = &left[here..];
    }
    Ok(read)
}

pub(super) unsafe extern "C" fn recv(
    _: *mut c_void,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: packetdrill's buffer.
    let to = unsafe { room(data, len) };
    finish(read_into(fd, to, flags))
}

pub(super) unsafe extern "C" fn recvfrom(
    this: *mut c_void,
    fd: c_int,
    data: *mut c_void,
    len: size_t,
    flags: c_int,
    _: *mut sockaddr,
    _: *mut socklen_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { recv(this, fd, data, len, flags) }
}

pub(super) unsafe extern "C" fn recvmsg(
    _: *mut c_void,
    fd: c_int,
    message: *mut libc::msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's message.
    let (to, iov, count) = unsafe {
        let to = room((*message).msg_control, (*message).msg_controllen);
        (to, (*message).msg_iov, (*message).msg_iovlen)
    };
    let mut control = Control::new(to);
    let mut said = 0;
    let result = if flags & libc::MSG_ERRQUEUE != 0 {
        let report = shim().call_with(fd, libc::MSG_DONTWAIT, |sockets| sockets.report(fd));
        report.map(|(report, is_v4)| {
            said = libc::MSG_ERRQUEUE;
            if matches!(report, Report::Stamp { .. }) {
                // The kernel returns the segment, too, which finds no room.
                said |= libc::MSG_TRUNC;
            }
            control.report(report, is_v4);
            0
        })
    } else {
        // SAFETY: packetdrill's message.
        let read = unsafe { scattered(fd, iov, count, flags) };
        if read.is_ok()
            && let Some(left) = shim().lock().sockets.left(fd)
        {
            control.left(left);
        }
        read
    };
    if result.is_ok() {
        // SAFETY: packetdrill's message.
        unsafe {
            (*message).msg_controllen = control.len();
            (*message).msg_flags = said;
        }
    }
    finish(result)
}
