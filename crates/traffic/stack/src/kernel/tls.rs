//! Kernel TLS (Documentation/networking/tls.rst): the kernel makes, encrypts and decrypts records,
//! in software.
//!
//! Both ends have one fixed key, because the path of the bytes is measured and not a handshake:
//! never for secrets.

use std::ffi::OsString;
use std::io;
use std::os::fd::BorrowedFd;

use nix::errno::Errno;
use nix::sys::socket::sockopt::{GetOsString, TcpTlsRx, TcpTlsTx, TcpUlp, TlsCryptoInfo};
use nix::sys::socket::{getsockopt, setsockopt};
use nix::{getsockopt_impl, sockopt_impl};
use rustix::net::{AddressFamily, SocketType};

const FIXED: TlsCryptoInfo = TlsCryptoInfo::Aes128Gcm(libc::tls12_crypto_info_aes_gcm_128 {
    info: libc::tls_crypto_info {
        version: libc::TLS_1_2_VERSION,
        cipher_type: libc::TLS_CIPHER_AES_GCM_128,
    },
    iv: [1; 8],
    key: [2; 16],
    salt: [3; 4],
    rec_seq: [0; 8],
});

sockopt_impl!(
    /// Name of a connection's upper-layer protocol, to read: nix only sets it.
    UlpName,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_ULP,
    OsString,
    GetOsString<[u8; 16]>
);

/// Makes a connection send and receive TLS 1.2 records by AES-128-GCM from now on. The peer must do
/// the same before either sends.
///
/// # Errors
/// ENOENT without the module tls; ENOTCONN before the connection is established.
pub(super) fn enable(fd: BorrowedFd<'_>) -> io::Result<()> {
    setsockopt(&fd, TcpUlp::default(), b"tls")?;
    setsockopt(&fd, TcpTlsTx, &FIXED)?;
    Ok(setsockopt(&fd, TcpTlsRx, &FIXED)?)
}

/// True if the connection uses kernel TLS.
///
/// # Errors
/// Errors of getsockopt.
pub(super) fn is_on(fd: BorrowedFd<'_>) -> io::Result<bool> {
    Ok(getsockopt(&fd, UlpName)? == "tls")
}

/// Reason why this kernel does not support kernel TLS; `None` if it does.
pub fn ktls_refusal() -> Option<String> {
    let fresh = match rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None) {
        Ok(fresh) => fresh,
        Err(error) => return Some(error.to_string()),
    };
    match setsockopt(&fresh, TcpUlp::default(), b"tls") {
        // Answer of the module for a socket that is not connected.
        Err(Errno::ENOTCONN) | Ok(()) => None,
        Err(error) => Some(format!(
            "this kernel has no module tls ({error}): modprobe tls"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn records_carry_the_bytes_where_the_kernel_has_them() {
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
