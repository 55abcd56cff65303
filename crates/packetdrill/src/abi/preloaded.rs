//! Functions of the C library that packetdrill calls whatever it has loaded: preloaded, these are they.

use std::ffi::{c_char, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::ExitStatusExt;

use libc::{size_t, socklen_t, ssize_t};

use super::shim::SHIM;
use super::sockets::get_option;
use super::writing::send_all;

/// packetdrill calls the C library's, as for [`getsockopt`].
///
/// # Safety
/// As the function of the same name.
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
    // SAFETY: as the caller promises; as many bytes as there is room for.
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

/// The commands of scripts. One that clears what the kernel remembers of other hosts means us.
///
/// # Safety
/// As the function of the same name.
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

/// packetdrill asks for TCP_INFO by the C library's function, whatever it has loaded: preloaded, this is
/// it.
///
/// # Safety
/// As the function of the same name.
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
