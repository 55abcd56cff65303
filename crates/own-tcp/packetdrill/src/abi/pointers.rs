//! packetdrill's pointers as values and slices.

use std::ffi::{c_int, c_void};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use libc::{size_t, sockaddr, socklen_t};

/// Reads a socket address.
///
/// # Safety
/// `address` is null or a socket address of `len` bytes.
pub(super) unsafe fn read_address(
    address: *const sockaddr,
    len: socklen_t,
) -> Result<SocketAddr, c_int> {
    if address.is_null() || (len as usize) < size_of::<libc::sockaddr_in>() {
        return Err(libc::EINVAL);
    }
    // SAFETY: as the caller promises; read without regard to alignment.
    unsafe {
        match c_int::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = address.cast::<libc::sockaddr_in>().read_unaligned();
                let ip = Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr));
                Ok(SocketAddr::from((ip, u16::from_be(v4.sin_port))))
            }
            libc::AF_INET6 if len as usize >= size_of::<libc::sockaddr_in6>() => {
                let v6 = address.cast::<libc::sockaddr_in6>().read_unaligned();
                let ip = Ipv6Addr::from(v6.sin6_addr.s6_addr);
                let port = u16::from_be(v6.sin6_port);
                Ok(SocketAddr::new(ip.to_canonical(), port))
            }
            _ => Err(libc::EAFNOSUPPORT),
        }
    }
}

/// Writes a socket address and its length; nothing if there is no room.
///
/// # Safety
/// `address` and `len` are null or have room for what `len` says.
pub(super) unsafe fn write_address(
    remote: SocketAddr,
    address: *mut sockaddr,
    len: *mut socklen_t,
) {
    // SAFETY: as the caller promises.
    unsafe {
        if address.is_null() || len.is_null() {
            return;
        }
        let room = *len as usize;
        match remote {
            SocketAddr::V4(remote) if room >= size_of::<libc::sockaddr_in>() => {
                let mut v4: libc::sockaddr_in = std::mem::zeroed();
                v4.sin_family = libc::AF_INET as u16;
                v4.sin_port = remote.port().to_be();
                v4.sin_addr.s_addr = u32::from(*remote.ip()).to_be();
                address.cast::<libc::sockaddr_in>().write_unaligned(v4);
                *len = size_of::<libc::sockaddr_in>() as socklen_t;
            }
            SocketAddr::V6(remote) if room >= size_of::<libc::sockaddr_in6>() => {
                let mut v6: libc::sockaddr_in6 = std::mem::zeroed();
                v6.sin6_family = libc::AF_INET6 as u16;
                v6.sin6_port = remote.port().to_be();
                v6.sin6_addr.s6_addr = remote.ip().octets();
                address.cast::<libc::sockaddr_in6>().write_unaligned(v6);
                *len = size_of::<libc::sockaddr_in6>() as socklen_t;
            }
            _ => {}
        }
    }
}

/// Converts a pointer to a slice; null becomes an empty slice.
///
/// # Safety
/// `data` is null or has `len` bytes.
pub(super) unsafe fn bytes<'a>(data: *const c_void, len: size_t) -> &'a [u8] {
    if data.is_null() {
        return &[];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

/// Converts a pointer to a mutable slice; null becomes an empty slice.
///
/// # Safety
/// `data` is null or has room for `len` bytes.
pub(super) unsafe fn room<'a>(data: *mut c_void, len: size_t) -> &'a mut [u8] {
    if data.is_null() {
        return &mut [];
    }
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts_mut(data.cast(), len) }
}

/// Copies the bytes of a vector.
///
/// # Safety
/// `iov` has `count` entries that describe readable memory.
pub(super) unsafe fn gathered(iov: *const libc::iovec, count: usize) -> Vec<u8> {
    // SAFETY: as the caller promises.
    unsafe {
        let parts = std::slice::from_raw_parts(iov, count);
        parts
            .iter()
            .flat_map(|part| bytes(part.iov_base, part.iov_len))
            .copied()
            .collect()
    }
}
