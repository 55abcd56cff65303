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

/// TCP_INFO of a connection (`struct tcp_info` of linux/tcp.h).
#[derive(Debug, Clone, Copy)]
pub struct Info([u8; INFO_BYTES]);

const INFO_BYTES: usize = 256;

/// Reads TCP_INFO. Fields that an older kernel lacks are 0.
pub fn info(fd: BorrowedFd<'_>) -> io::Result<Info> {
    let mut info = Info([0; INFO_BYTES]);
    let mut length = INFO_BYTES as libc::socklen_t;
    // SAFETY: the kernel writes at most `length` bytes, which are there.
    let status = unsafe {
        libc::getsockopt(
            fd.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.0.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    match status {
        0 => Ok(info),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Info {
    /// Reads a field by its offset in bytes. The structure only ever grows at its end.
    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes(self.0[at..at + 4].try_into().expect("four bytes"))
    }

    /// Payload of a full segment that this end sends.
    pub fn mss(&self) -> u32 {
        self.word(16)
    }

    /// Number of retransmitted segments.
    pub fn retransmits(&self) -> u32 {
        self.word(100)
    }

    /// Bytes that the other side has acknowledged, including SYN and FIN.
    pub fn acknowledged(&self) -> u64 {
        u64::from_ne_bytes(self.0[120..128].try_into().expect("eight bytes"))
    }

    /// Number of segments sent on the wire.
    pub fn segments_sent(&self) -> u64 {
        u64::from(self.word(136))
    }

    /// Lines that netperf prints if DUMP_TCP_INFO is set; flent reads them.
    pub fn dump(&self) -> String {
        let line = |fields: &[(&str, usize)]| {
            let fields = fields
                .iter()
                .map(|(name, at)| format!("{name} {}", self.word(*at)));
            fields.collect::<Vec<_>>().join(" ") + "\n"
        };
        line(&[
            ("tcpi_rto", 8),
            ("tcpi_ato", 12),
            ("tcpi_pmtu", 60),
            ("tcpi_rcv_ssthresh", 64),
        ]) + &line(&[
            ("tcpi_rtt", 68),
            ("tcpi_rttvar", 72),
            ("tcpi_snd_ssthresh", 76),
            ("tcpi_snd_cwnd", 80),
        ]) + &line(&[("tcpi_reordering", 88), ("tcpi_total_retrans", 100)])
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn the_places_are_those_of_the_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let before = info(client.as_fd()).unwrap();
        assert!(before.mss() > 500, "{}", before.mss());
        assert_eq!(before.retransmits(), 0);
        client.write_all(&[0; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        // The segment with the answer acknowledges the thousand bytes at the latest.
        server.write_all(&[0]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let after = info(client.as_fd()).unwrap();
        assert_eq!(after.acknowledged() - before.acknowledged(), 1000);
        assert!(after.segments_sent() > before.segments_sent());
        assert!(after.dump().contains("tcpi_snd_cwnd "));
    }
}
