//! Calls that write. A blocking call continues until all is written.

use std::ffi::{c_int, c_longlong, c_void};
use std::net::SocketAddr;

use libc::{size_t, sockaddr, socklen_t, ssize_t};

use super::pointers::{bytes, gathered, read_address};
use super::shim::{finish, shim};
use crate::calls::{Failure, Sockets, Write};

pub(super) fn send_all(fd: c_int, data: &[u8], flags: c_int) -> ssize_t {
    let deferred = shim().lock().sockets.deferred(fd);
    if let Some(remote) = deferred {
        return send_first(fd, data, flags, remote);
    }
    send_from(fd, data, flags, 0)
}

/// Sends the caller's bytes; EFAULT for null.
///
/// # Safety
/// `data` is null or has `len` bytes.
unsafe fn send_bytes(fd: c_int, data: *const c_void, len: size_t, flags: c_int) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: as the caller promises.
    send_all(fd, unsafe { bytes(data, len) }, flags)
}

/// Notes a successful write for the error queue.
fn note_written(fd: c_int, flags: c_int, result: &Result<i64, c_int>) {
    if matches!(result, Ok(written) if *written > 0) {
        let zerocopy = flags & libc::MSG_ZEROCOPY != 0;
        shim().lock().sockets.on_written(fd, zerocopy);
    }
}

/// Sends the bytes from `done` on.
fn send_from(fd: c_int, data: &[u8], flags: c_int, mut done: usize) -> ssize_t {
    let mut waited = false;
    let result = shim().call_with(fd, flags, |sockets| {
        let waited = std::mem::replace(&mut waited, true);
        push_on(sockets, fd, data, flags, waited, &mut done)
    });
    let result = match result {
        Err(libc::EAGAIN) if done > 0 => Ok(done as i64),
        result => result,
    };
    note_written(fd, flags, &result);
    finish(result)
}

fn push_on(
    sockets: &mut Sockets,
    fd: c_int,
    data: &[u8],
    flags: c_int,
    waited: bool,
    done: &mut usize,
) -> Result<i64, Failure> {
    let waits = !sockets.is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
    let how = Write {
        more: flags & libc::MSG_MORE != 0,
        ends_record: flags & libc::MSG_EOR != 0,
        waited,
    };
    match sockets.write(fd, &data[*done..], how) {
        Ok(written) => {
            *done += written as usize;
            if *done < data.len() && waits {
                Err(Failure::Again)
            } else {
                Ok(*done as i64)
            }
        }
        Err(Failure::Again) if *done > 0 && !waits => Ok(*done as i64),
        Err(failure) => Err(failure),
    }
}

pub(super) unsafe extern "C" fn write(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    len: size_t,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { send_bytes(fd, data, len, 0) }
}

pub(super) unsafe extern "C" fn writev(
    _: *mut c_void,
    fd: c_int,
    iov: *const libc::iovec,
    count: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's vector.
    send_all(fd, &unsafe { gathered(iov, count.max(0) as usize) }, 0)
}

pub(super) unsafe extern "C" fn send(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's buffer.
    unsafe { send_bytes(fd, data, len, flags) }
}

/// MSG_FASTOPEN: bytes that the SYN does not carry follow when the connection is open.
fn send_first(fd: c_int, data: &[u8], flags: c_int, remote: SocketAddr) -> ssize_t {
    let mut done = None;
    let result = shim().call_with(fd, flags, |sockets| {
        let waits = !sockets.is_nonblocking(fd) && flags & libc::MSG_DONTWAIT == 0;
        let done = match &mut done {
            Some(done) => done,
            none => match sockets.connect_with_data(fd, remote, data, waits) {
                Ok(sent) if !waits => return Ok(sent),
                Ok(sent) => none.insert(sent as usize),
                Err(Failure::Again) => none.insert(0),
                Err(failure) => return Err(failure),
            },
        };
        sockets.connected(fd)?;
        if *done == data.len() {
            return Ok(*done as i64);
        }
        push_on(sockets, fd, data, flags, false, done)
    });
    note_written(fd, flags, &result);
    match result {
        Err(libc::EAGAIN) => finish::<i64, _>(Err(libc::EINPROGRESS)),
        result => finish(result),
    }
}

pub(super) unsafe extern "C" fn sendto(
    _: *mut c_void,
    fd: c_int,
    data: *const c_void,
    len: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_len: socklen_t,
) -> ssize_t {
    if data.is_null() && len > 0 {
        return finish::<i64, _>(Err(libc::EFAULT));
    }
    // SAFETY: packetdrill's buffer and address.
    let (data, address) = unsafe { (bytes(data, len), read_address(address, address_len)) };
    match address {
        Ok(remote) if flags & libc::MSG_FASTOPEN != 0 => send_first(fd, data, flags, remote),
        // Like the kernel's `tcp_sendmsg_fastopen` without an address.
        Err(libc::EAFNOSUPPORT) if flags & libc::MSG_FASTOPEN != 0 => {
            finish::<i64, _>(Err(libc::EOPNOTSUPP))
        }
        Err(errno) if flags & libc::MSG_FASTOPEN != 0 => finish::<i64, _>(Err(errno)),
        _ => send_all(fd, data, flags),
    }
}

pub(super) unsafe extern "C" fn sendmsg(
    _: *mut c_void,
    fd: c_int,
    message: *const libc::msghdr,
    flags: c_int,
) -> ssize_t {
    // SAFETY: packetdrill's message.
    let (data, address) = unsafe {
        let address = read_address((*message).msg_name.cast(), (*message).msg_namelen);
        (gathered((*message).msg_iov, (*message).msg_iovlen), address)
    };
    match address {
        Ok(remote) if flags & libc::MSG_FASTOPEN != 0 => send_first(fd, &data, flags, remote),
        _ => send_all(fd, &data, flags),
    }
}

pub(super) unsafe extern "C" fn pipe(_: *mut c_void, to: *mut c_int) -> c_int {
    let ends = shim().lock().sockets.pipe();
    // SAFETY: packetdrill's array of two.
    unsafe { to.cast::<[c_int; 2]>().write(ends) };
    0
}

/// Splices; offsets are ignored, because sockets and pipes have none.
pub(super) extern "C" fn splice(
    _: *mut c_void,
    from: c_int,
    _: *mut c_longlong,
    to: c_int,
    _: *mut c_longlong,
    len: size_t,
    _: std::ffi::c_uint,
) -> ssize_t {
    finish(shim().call(from, |sockets| sockets.splice(from, to, len)))
}
