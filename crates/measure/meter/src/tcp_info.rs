//! TCP_INFO of the trial's own connections, summed.
//!
//! This takes one getsockopt for each connection: 0.15 µs each for 400 connections, 0.8 µs for 9,000, which
//! miss the caches (examples/cost.rs), so 25 ms for 30,000. The readings of the first and the last connection
//! are that far apart. The snapshot's time is after the last.
//!
//! The kernel's counters of segments have 32 bits and wrap within minutes on a fast connection. [`TcpInfo`]
//! remembers them and extends them to 64 bits. That works as long as no counter grows by 2^32 between two
//! snapshots (nine minutes at 8 million segments a second).

#![allow(unsafe_code, reason = "a socket option whose length is the kernel's")]

use std::io;
use std::mem::{offset_of, size_of};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd};

use nix::sys::socket::{getsockopt, sockopt};
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::bpf::connection_key;
use crate::{MeterError, snapshot_of};

/// The meter `tcp_info`: [`CountOwner::Connections`]. It is no [`crate::Meter`], because each snapshot takes the
/// connections as arguments.
#[derive(Debug, Default)]
pub struct TcpInfo {
    /// Counters of [`WRAPPING`] for each connection, extended to 64 bits.
    extended: Vec<[u64; WRAPPING.len()]>,
}

impl TcpInfo {
    /// Totals of these connections, which must be the same ones in the same order at every snapshot.
    ///
    /// A quantity that the kernel lacks for any connection is absent.
    ///
    /// # Errors
    /// A descriptor is no TCP socket, or the number of connections has changed.
    pub fn snapshot<'fd>(
        &mut self,
        connections: impl IntoIterator<Item = BorrowedFd<'fd>>,
    ) -> Result<Snapshot, MeterError> {
        let is_first = self.extended.is_empty();
        let mut wrapping = [Some(0_u64); WRAPPING.len()];
        let mut wide = [Some(0_u64); WIDE.len()];
        let mut seen = 0;
        for connection in connections {
            let info = Info::of(connection)?;
            if is_first {
                self.extended.push([0; WRAPPING.len()]);
            }
            let extended = self.extended.get_mut(seen).ok_or_else(changed)?;
            seen += 1;
            for (at, (_, offset)) in WRAPPING.iter().enumerate() {
                match info.u32_at(*offset) {
                    Some(now) => {
                        // The low 32 bits are the kernel's value at the last snapshot.
                        let last = extended[at] as u32;
                        extended[at] += u64::from(now.wrapping_sub(last));
                        wrapping[at] = wrapping[at].map(|sum| sum.wrapping_add(extended[at]));
                    }
                    None => wrapping[at] = None,
                }
            }
            for (sum, (_, offset, unit_ns)) in wide.iter_mut().zip(WIDE) {
                let now = info.u64_at(*offset);
                *sum = (*sum)
                    .zip(now)
                    .map(|(sum, now)| sum.wrapping_add(now.wrapping_mul(*unit_ns)));
            }
        }
        if seen != self.extended.len() {
            return Err(changed());
        }
        let mut counts = Counts::new();
        if seen > 0 {
            let wrapping = WRAPPING
                .iter()
                .zip(wrapping)
                .map(|((quantity, _), sum)| (quantity, sum));
            let wide = WIDE
                .iter()
                .zip(wide)
                .map(|((quantity, ..), sum)| (quantity, sum));
            counts.extend(
                wrapping
                    .chain(wide)
                    .filter_map(|(quantity, sum)| Some((*quantity, sum?))),
            );
        }
        Ok(snapshot_of(
            MeterName::TcpInfo,
            CountOwner::Connections,
            counts,
        ))
    }
}

/// Payload bytes per full segment of a connection, as it sends now (`tcpi_snd_mss`).
///
/// # Errors
/// The descriptor is no TCP socket.
pub fn mss(connection: BorrowedFd<'_>) -> Result<u64, MeterError> {
    let info = Info::of(connection)?;
    let mss = info.u32_at(offset_of!(Fields, snd_mss));
    mss.map(u64::from).ok_or_else(|| MeterError::Call {
        call: "getsockopt(TCP_INFO)",
        source: io::Error::other("the kernel does not report the MSS"),
    })
}

/// Reads TCP_INFO of a connection. Fields that an older kernel lacks are 0.
///
/// # Errors
/// The descriptor is no TCP socket.
pub fn fields(connection: BorrowedFd<'_>) -> Result<Fields, MeterError> {
    let bytes = Info::of(connection)?.bytes;
    // SAFETY: the bytes are as many as the structure has, and any bytes are numbers.
    Ok(unsafe { bytes.as_ptr().cast::<Fields>().read_unaligned() })
}

/// Name of the congestion control of a connection.
///
/// # Errors
/// The descriptor is no TCP socket.
pub fn congestion_control(connection: BorrowedFd<'_>) -> Result<String, MeterError> {
    let name =
        getsockopt(&connection, sockopt::TcpCongestion).map_err(|error| MeterError::Call {
            call: "getsockopt(TCP_CONGESTION)",
            source: error.into(),
        })?;
    Ok(name.to_string_lossy().into_owned())
}

/// Key of a connection in the meter `segments`. `None` if it has no peer any more.
pub fn key(connection: BorrowedFd<'_>) -> Option<u64> {
    let stream = TcpStream::from(connection.try_clone_to_owned().ok()?);
    Some(connection_key(
        stream.local_addr().ok()?,
        stream.peer_addr().ok()?,
    ))
}

fn changed() -> MeterError {
    MeterError::Call {
        call: "getsockopt TCP_INFO",
        source: io::Error::other("not the connections of the snapshot before"),
    }
}

/// Bytes that the kernel has filled in. Older kernels return fewer.
struct Info {
    bytes: [u8; size_of::<Fields>()],
    length: usize,
}

impl Info {
    fn of(connection: BorrowedFd<'_>) -> Result<Info, MeterError> {
        let mut bytes = [0; size_of::<Fields>()];
        let mut length = size_of::<Fields>() as libc::socklen_t;
        // SAFETY: the kernel writes at most `length` bytes into `bytes`, which outlives the call.
        let done = unsafe {
            libc::getsockopt(
                connection.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                bytes.as_mut_ptr().cast(),
                &raw mut length,
            )
        };
        if done != 0 {
            return Err(MeterError::Call {
                call: "getsockopt(TCP_INFO)",
                source: io::Error::last_os_error(),
            });
        }
        let length = (length as usize).min(bytes.len());
        Ok(Info { bytes, length })
    }

    fn u32_at(&self, offset: usize) -> Option<u32> {
        let known = &self.bytes[..self.length];
        let four = known.get(offset..offset + 4)?;
        four.try_into().ok().map(u32::from_ne_bytes)
    }

    fn u64_at(&self, offset: usize) -> Option<u64> {
        let known = &self.bytes[..self.length];
        let eight = known.get(offset..offset + 8)?;
        eight.try_into().ok().map(u64::from_ne_bytes)
    }
}

/// Start of struct tcp_info (linux/tcp.h), up to the last field that is read, with the kernel's names and
/// units. New fields are only ever appended.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[allow(missing_docs, reason = "linux/tcp.h has them")]
pub struct Fields {
    /// Fields state to delivery_rate_app_limited.
    small: [u8; 8],
    pub rto: u32,
    pub ato: u32,
    pub snd_mss: u32,
    /// Fields rcv_mss to last_ack_recv.
    levels: [u32; 10],
    pub pmtu: u32,
    pub rcv_ssthresh: u32,
    pub rtt: u32,
    pub rttvar: u32,
    pub snd_ssthresh: u32,
    pub snd_cwnd: u32,
    advmss: u32,
    pub reordering: u32,
    receiver: [u32; 2],
    pub total_retrans: u32,
    pacing_rates: [u64; 2],
    pub bytes_acked: u64,
    bytes_received: u64,
    pub segs_out: u32,
    segs_in: u32,
    notsent_bytes: u32,
    min_rtt: u32,
    data_segs_in: u32,
    data_segs_out: u32,
    delivery_rate: u64,
    busy_time: u64,
    rwnd_limited: u64,
    sndbuf_limited: u64,
    delivered: [u32; 2],
    bytes_sent: u64,
    bytes_retrans: u64,
    dsack_dups: u32,
    reord_seen: u32,
    rcv_ooopack: u32,
    snd_wnd: u32,
}

/// Counters of 32 bits.
const WRAPPING: [(Quantity, usize); 7] = [
    (Quantity::ConnSegmentsSent, offset_of!(Fields, segs_out)),
    (Quantity::ConnSegmentsReceived, offset_of!(Fields, segs_in)),
    (
        Quantity::ConnDataSegmentsSent,
        offset_of!(Fields, data_segs_out),
    ),
    (
        Quantity::ConnDataSegmentsReceived,
        offset_of!(Fields, data_segs_in),
    ),
    (
        Quantity::ConnSegmentsRetransmitted,
        offset_of!(Fields, total_retrans),
    ),
    (Quantity::ConnDsacks, offset_of!(Fields, dsack_dups)),
    (
        Quantity::ConnOutOfOrderPackets,
        offset_of!(Fields, rcv_ooopack),
    ),
];

/// Counters of 64 bits, with their factors: times are in µs.
const WIDE: &[(Quantity, usize, u64)] = &[
    (Quantity::ConnBytesSent, offset_of!(Fields, bytes_sent), 1),
    (Quantity::ConnBytesAcked, offset_of!(Fields, bytes_acked), 1),
    (
        Quantity::ConnBytesReceived,
        offset_of!(Fields, bytes_received),
        1,
    ),
    (Quantity::ConnBusyNs, offset_of!(Fields, busy_time), 1000),
    (
        Quantity::ConnReceiveWindowLimitedNs,
        offset_of!(Fields, rwnd_limited),
        1000,
    ),
    (
        Quantity::ConnSendBufferLimitedNs,
        offset_of!(Fields, sndbuf_limited),
        1000,
    ),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn the_layout_is_the_kernels() {
        // Values of offsetof in linux/tcp.h.
        assert_eq!(offset_of!(Fields, snd_mss), 16);
        assert_eq!(offset_of!(Fields, pmtu), 60);
        assert_eq!(offset_of!(Fields, snd_cwnd), 80);
        assert_eq!(offset_of!(Fields, reordering), 88);
        assert_eq!(offset_of!(Fields, total_retrans), 100);
        assert_eq!(offset_of!(Fields, bytes_acked), 120);
        assert_eq!(offset_of!(Fields, segs_out), 136);
        assert_eq!(offset_of!(Fields, data_segs_in), 152);
        assert_eq!(offset_of!(Fields, busy_time), 168);
        assert_eq!(offset_of!(Fields, bytes_sent), 200);
        assert_eq!(offset_of!(Fields, rcv_ooopack), 224);
    }

    #[test]
    fn what_two_connections_sent_is_summed() {
        let (mut one, mut other) = (pair(), pair());
        let mut meter = TcpInfo::default();
        let both = [&one.0, &other.0];
        let before = meter.snapshot(both.map(AsFd::as_fd)).unwrap();
        one.0.write_all(&[1; 3000]).unwrap();
        other.0.write_all(&[1; 500]).unwrap();
        one.1.read_exact(&mut [0; 3000]).unwrap();
        other.1.read_exact(&mut [0; 500]).unwrap();
        let both = [&one.0, &other.0];
        let after = meter.snapshot(both.map(AsFd::as_fd)).unwrap();
        let growth = &after.since(&before).unwrap()[0].counts;
        if let Some(&sent) = growth.get(&Quantity::ConnBytesSent) {
            assert_eq!(sent, 3500);
        }
        assert_eq!(
            growth[&Quantity::ConnDataSegmentsSent],
            2,
            "MSS of lo is 64 KiB"
        );
        assert!(meter.snapshot([one.0.as_fd()]).is_err(), "one has gone");
    }

    #[test]
    fn fields_are_those_of_the_connection() {
        let (mut client, mut server) = pair();
        let before = fields(client.as_fd()).unwrap();
        assert!(before.snd_mss > 500, "{before:?}");
        assert_eq!(before.total_retrans, 0);
        client.write_all(&[0; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        // The segment with the answer acknowledges the thousand bytes at the latest.
        server.write_all(&[0]).unwrap();
        client.read_exact(&mut [0]).unwrap();
        let after = fields(client.as_fd()).unwrap();
        assert_eq!(after.bytes_acked - before.bytes_acked, 1000);
        assert!(after.segs_out > before.segs_out);
    }

    #[test]
    fn a_counter_that_wrapped_goes_on() {
        let (client, _server) = pair();
        let mut meter = TcpInfo::default();
        let first = meter.snapshot([client.as_fd()]).unwrap();
        // Pretends that the kernel's counter was just below 2^32 and has wrapped since.
        let raw = meter.extended[0][0];
        meter.extended[0][0] = u64::from(u32::MAX) - 9;
        let wrapped = meter.snapshot([client.as_fd()]).unwrap();
        assert_eq!(first.totals[0].counts[&Quantity::ConnSegmentsSent], raw);
        assert_eq!(
            wrapped.totals[0].counts[&Quantity::ConnSegmentsSent],
            (1 << 32) + raw
        );
    }

    #[test]
    fn what_a_shorter_struct_lacks_is_unknown() {
        let info = Info {
            bytes: [1; size_of::<Fields>()],
            length: offset_of!(Fields, segs_in) + 2,
        };
        assert!(info.u32_at(offset_of!(Fields, segs_out)).is_some());
        assert!(info.u32_at(offset_of!(Fields, segs_in)).is_none());
        assert!(info.u64_at(offset_of!(Fields, bytes_sent)).is_none());
    }

    #[test]
    fn a_connection_tells_its_mss_and_congestion_control() {
        let (client, _server) = pair();
        assert!(mss(client.as_fd()).unwrap() > 500);
        let name = congestion_control(client.as_fd()).unwrap();
        let available =
            std::fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
        assert!(
            available
                .unwrap()
                .split_whitespace()
                .any(|known| known == name),
            "{name}"
        );
    }

    #[test]
    fn what_is_no_tcp_socket_is_an_error() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(TcpInfo::default().snapshot([file.as_fd()]).is_err());
        assert!(mss(file.as_fd()).is_err());
        assert!(
            TcpInfo::default().snapshot([]).unwrap().totals[0]
                .counts
                .is_empty()
        );
    }
}
