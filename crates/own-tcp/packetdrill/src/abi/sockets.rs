//! Calls that open, close and set options: all but those that move bytes.

use std::ffi::{c_int, c_long, c_void};

use libc::{sockaddr, socklen_t};

use super::pointers::{bytes, read_address, room, write_address};
use super::shim::{finish, shim};

pub(super) extern "C" fn socket(_: *mut c_void, _: c_int, _: c_int, _: c_int) -> c_int {
    shim().lock().sockets.socket()
}

pub(super) unsafe extern "C" fn bind(
    _: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's address.
    let address = unsafe { read_address(address, len) };
    finish(address.and_then(|address| shim().call(fd, |sockets| sockets.bind(fd, address))))
}

pub(super) extern "C" fn listen(_: *mut c_void, fd: c_int, backlog: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.listen(fd, backlog)))
}

pub(super) unsafe extern "C" fn accept(
    _: *mut c_void,
    fd: c_int,
    address: *mut sockaddr,
    len: *mut socklen_t,
) -> c_int {
    let accepted = shim().call(fd, |sockets| sockets.accept(fd));
    finish(accepted.map(|(fd, remote)| {
        // SAFETY: packetdrill's buffer.
        unsafe { write_address(remote, address, len) };
        fd
    }))
}

pub(super) unsafe extern "C" fn connect(
    _: *mut c_void,
    fd: c_int,
    address: *const sockaddr,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's address.
    let address = unsafe { read_address(address, len) };
    let mut begun = false;
    let result = address.and_then(|remote| {
        shim().call(fd, |sockets| {
            if std::mem::replace(&mut begun, true) {
                sockets.connected(fd)
            } else {
                sockets.connect(fd, remote)
            }
        })
    });
    finish(result.map_err(|errno| {
        if errno == libc::EAGAIN {
            libc::EINPROGRESS
        } else {
            errno
        }
    }))
}

pub(super) extern "C" fn fcntl(
    _: *mut c_void,
    fd: c_int,
    command: c_int,
    argument: c_long,
) -> c_int {
    finish(shim().call(fd, |sockets| sockets.fcntl(fd, command, argument as c_int)))
}

pub(super) unsafe extern "C" fn ioctl(
    _: *mut c_void,
    fd: c_int,
    request: u64,
    to: *mut c_int,
) -> c_int {
    let result = shim().call(fd, |sockets| sockets.ioctl(fd, request));
    finish(result.map(|value| {
        // SAFETY: all known requests answer with an int.
        unsafe { *to = value };
        0
    }))
}

pub(super) extern "C" fn close(_: *mut c_void, fd: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.close(fd)))
}

pub(super) extern "C" fn shutdown(_: *mut c_void, fd: c_int, how: c_int) -> c_int {
    finish(shim().call(fd, |sockets| sockets.shutdown(fd, how)))
}

pub(super) unsafe extern "C" fn get_option(
    _: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    let result = shim().call(fd, |sockets| sockets.option(fd, level, name));
    finish(result.map(|answer| {
        // SAFETY: packetdrill's buffer of `*len` bytes.
        unsafe {
            let to = room(value, *len as usize);
            let here = to.len().min(answer.len());
            to[..here].copy_from_slice(&answer[..here]);
            *len = here as socklen_t;
        }
        0
    }))
}

pub(super) unsafe extern "C" fn set_option(
    _: *mut c_void,
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: socklen_t,
) -> c_int {
    // SAFETY: packetdrill's buffer.
    let value = unsafe { bytes(value, len as usize) };
    let number = value
        .first_chunk()
        .map_or(0, |bytes| c_int::from_ne_bytes(*bytes));
    finish(shim().call(fd, |sockets| match (level, name) {
        (libc::IPPROTO_TCP, TCP_FASTOPEN_KEY) => sockets.set_keys(value),
        _ => sockets.set_option(fd, level, name, number),
    }))
}

const TCP_FASTOPEN_KEY: c_int = 33;
