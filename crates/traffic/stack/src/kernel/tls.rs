//! Kernel TLS (Documentation/networking/tls.rst): the kernel makes, encrypts and decrypts records,
//! in software.
//!
//! Both ends have one fixed key, because the path of the bytes is measured and not a handshake:
//! never for secrets.

#![allow(unsafe_code, reason = "socket options that rustix does not have")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use rustix::net::{AddressFamily, SocketType};

/// Constants of linux/tls.h and linux/socket.h.
const SOL_TLS: libc::c_int = 282;
const TLS_TX: libc::c_int = 1;
const TLS_RX: libc::c_int = 2;
const TLS_1_2_VERSION: u16 = 0x0303;
const TLS_CIPHER_AES_GCM_128: u16 = 51;

/// struct tls12_crypto_info_aes_gcm_128.
#[repr(C)]
struct CryptoInfo {
    version: u16,
    cipher_type: u16,
    iv: [u8; 8],
    key: [u8; 16],
    salt: [u8; 4],
    rec_seq: [u8; 8],
}

static FIXED: CryptoInfo = CryptoInfo {
    version: TLS_1_2_VERSION,
    cipher_type: TLS_CIPHER_AES_GCM_128,
    iv: [1; 8],
    key: [2; 16],
    salt: [3; 4],
    rec_seq: [0; 8],
};

/// Makes a connection send and receive TLS 1.2 records by AES-128-GCM from now on. The peer must do
/// the same before either sends.
///
/// # Errors
/// ENOENT without the module tls; ENOTCONN before the connection is established.
pub(super) fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    set(fd, libc::IPPROTO_TCP, libc::TCP_ULP, b"tls")?;
    // SAFETY: a structure of plain bytes, without padding: 2 + 2 + 8 + 16 + 4 + 8 are 40.
    let bytes = unsafe {
        std::slice::from_raw_parts((&raw const FIXED).cast::<u8>(), size_of::<CryptoInfo>())
    };
    set(fd, SOL_TLS, TLS_TX, bytes)?;
    set(fd, SOL_TLS, TLS_RX, bytes)
}

/// True if the connection uses kernel TLS.
///
/// # Errors
/// Errors of getsockopt.
pub(super) fn is_on(fd: BorrowedFd<'_>) -> io::Result<bool> {
    let mut name = [0_u8; 16];
    let mut length = name.len() as libc::socklen_t;
    // SAFETY: the fd is open; name and length live through the call, and the length is the name's.
    let result = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_ULP,
            name.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match result {
        0 => Ok(name.starts_with(b"tls\0")),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reason why this kernel does not support kernel TLS; `None` if it does.
pub fn ktls_refusal() -> Option<String> {
    let fresh = match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None) {
        Ok(fresh) => fresh,
        Err(error) => return Some(error.to_string()),
    };
    match set(fresh.as_fd(), libc::IPPROTO_TCP, libc::TCP_ULP, b"tls") {
        // Answer of the module for a socket that is not connected.
        Err(error) if error.raw_os_error() == Some(libc::ENOTCONN) => None,
        Ok(()) => None,
        Err(error) => Some(format!(
            "this kernel has no module tls ({error}): modprobe tls"
        )),
    }
}

fn set(fd: BorrowedFd<'_>, level: libc::c_int, name: libc::c_int, value: &[u8]) -> io::Result<()> {
    // SAFETY: the fd is open, and the value lives through the call, which reads `value.len()` bytes
    // of it.
    let result = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            value.as_ptr().cast(),
            value.len() as libc::socklen_t,
        )
    };
    match result {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn records_carry_the_bytes_where_the_kernel_has_them() {
        assert_eq!(size_of::<CryptoInfo>(), 40);
        if let Some(reason) = ktls_refusal() {
            assert!(reason.contains("tls"), "{reason}");
            return tcpcost_testbed::skip(&reason);
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        assert!(!is_on(client.as_fd()).unwrap());
        enable(client.as_fd()).unwrap();
        enable(server.as_fd()).unwrap();
        assert!(is_on(client.as_fd()).unwrap());
        client.write_all(&[7; 50_000]).unwrap();
        let mut read = vec![0; 50_000];
        server.read_exact(&mut read).unwrap();
        assert_eq!(read, [7; 50_000]);
    }
}
