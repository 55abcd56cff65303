//! Functions of the C library that packetdrill calls directly, not through the interface. The
//! shared object is preloaded, so that these are called instead.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

use libc::{size_t, socklen_t, ssize_t};

use super::shim::SHIM;
use super::sockets::get_option;
use super::writing::send_all;

/// Replaces the C library's sendfile(2).
///
/// # Safety
/// The same as that of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn sendfile(
    to: c_int,
    from: c_int,
    offset: *mut libc::off_t,
    count: size_t,
) -> ssize_t {
    if !SHIM.get().is_some_and(|shim| shim.lock().sockets.knows(to)) {
        // SAFETY: as the caller promises.
        return unsafe { libc::syscall(libc::SYS_sendfile, to, from, offset, count) as ssize_t };
    }
    let mut data = vec![0_u8; count];
    // SAFETY: as the caller promises; no more bytes than there is room for.
    let read = unsafe {
        let at = if offset.is_null() { 0 } else { *offset };
        libc::pread(from, data.as_mut_ptr().cast(), count, at)
    };
    let Ok(read) = usize::try_from(read) else {
        return -1;
    };
    let sent = send_all(to, &data[..read], 0);
    if sent > 0 && !offset.is_null() {
        // SAFETY: as the caller promises.
        unsafe { *offset += sent as libc::off_t };
    }
    sent
}

/// Replaces the C library's system(3), for the commands of scripts. `tcp_metrics flush` also clears
/// the Fast Open cookies of our endpoint.
///
/// # Safety
/// The same as that of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    if command.is_null() {
        return 1;
    }
    // SAFETY: as the caller promises.
    let command = unsafe { std::ffi::CStr::from_ptr(command) };
    let status = std::process::Command::new("/bin/sh")
        .arg("-c")
        .arg(std::ffi::OsStr::from_bytes(command.to_bytes()))
        .status();
    if command.to_string_lossy().contains("tcp_metrics flush")
        && let Some(shim) = SHIM.get()
    {
        shim.lock().sockets.host.endpoint.forget_cookies();
    }
    status.map_or(-1, ExitStatusExt::into_raw)
}

/// Replaces the C library's getsockopt(2), by which packetdrill asks for TCP_INFO.
///
/// # Safety
/// The same as that of the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    len: *mut socklen_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        if SHIM.get().is_some_and(|shim| shim.lock().sockets.knows(fd)) {
            return get_option(std::ptr::null_mut(), fd, level, name, value, len);
        }
        libc::syscall(libc::SYS_getsockopt, fd, level, name, value, len) as c_int
    }
}
