//! TCP_INFO of every connection in the calling thread's network namespace, by sock_diag(7).
//!
//! One dump reports all connections of all processes and needs no privileges; the kernel walks its table for
//! it. A connection is identified by its cookie, which no other socket ever gets. The last growth of
//! connections that end between two dumps is lost.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;

use netlink_packet_core::{
    NLM_F_DUMP, NLM_F_REQUEST, NetlinkHeader, NetlinkMessage, NetlinkPayload, Nla as _,
};
use netlink_packet_sock_diag::SockDiagMessage;
use netlink_packet_sock_diag::constants::{AF_INET, AF_INET6, IPPROTO_TCP};
use netlink_packet_sock_diag::inet::nlas::Nla;
use netlink_packet_sock_diag::inet::{
    ExtensionFlags, InetRequest, InetResponse, SocketId, StateFlags,
};
use netlink_sys::{Socket, protocols::NETLINK_SOCK_DIAG};
use tcpcost_counts::{Counts, Quantity};

use crate::MeterError;

/// A connection and its totals at the instant of a dump.
#[derive(Debug, Clone, PartialEq)]
pub struct Connection {
    /// Unique number of the socket.
    pub cookie: u64,
    /// Inode as in `socket:[…]` of /proc/PID/fd; 0 once no process holds it.
    pub inode: u32,
    /// Id of the cgroup in which it was made: the inode of the cgroup's directory. From Linux 5.9.
    pub cgroup: Option<u64>,
    /// Address and port here. An IPv4 address on an IPv6 socket is in IPv4 form.
    pub local: SocketAddr,
    /// Address and port of the peer.
    pub remote: SocketAddr,
    totals: [Option<u64>; FIELDS.len()],
}

impl Connection {
    /// True if nothing moved over it since an earlier dump.
    pub fn is_idle_since(&self, earlier: &Connection) -> bool {
        self.totals == earlier.totals
    }

    /// Growth since an earlier dump, or since the connection began. Omits counters that the kernel lacks and
    /// counters that went backwards. Counters of 32 bits may have wrapped once.
    pub fn since(&self, earlier: Option<&Connection>) -> Counts {
        let mut counts = Counts::new();
        for (index, (quantity, _, width)) in FIELDS.iter().enumerate() {
            let before = earlier.map_or(Some(0), |earlier| earlier.totals[index]);
            let (Some(now), Some(before)) = (self.totals[index], before) else {
                continue;
            };
            let growth = match width {
                // Both are below 2^32, so the difference is right if the counter wrapped once.
                4 => Some(now.wrapping_sub(before) & u64::from(u32::MAX)),
                _ => now.checked_sub(before),
            };
            if let Some(growth) = growth {
                counts.insert(*quantity, growth);
            }
        }
        counts
    }
}

/// All connections that are open or closing. Omits listeners, and connections in TIME_WAIT, which have no
/// counts.
///
/// # Errors
/// The kernel has no sock_diag for TCP (CONFIG_INET_DIAG), or its answer cannot be read.
pub fn connections() -> Result<Vec<Connection>, MeterError> {
    all(StateFlags::all() - StateFlags::LISTEN - StateFlags::TIME_WAIT)
}

/// Ports with listeners.
///
/// # Errors
/// See [`connections`].
pub fn listened() -> Result<BTreeSet<u16>, MeterError> {
    let listeners = all(StateFlags::LISTEN)?.into_iter();
    Ok(listeners.map(|socket| socket.local.port()).collect())
}

fn all(states: StateFlags) -> Result<Vec<Connection>, MeterError> {
    let mut found = Vec::new();
    for (family, socket_id) in [
        (AF_INET, SocketId::new_v4()),
        (AF_INET6, SocketId::new_v6()),
    ] {
        match dump(family, socket_id, states.clone(), &mut found) {
            Ok(()) => {}
            // The kernel has no IPv6.
            Err(error) if family == AF_INET6 && error.kind() == io::ErrorKind::NotFound => {}
            Err(source) => {
                return Err(MeterError::Call {
                    call: "sock_diag",
                    source,
                });
            }
        }
    }
    Ok(found)
}

fn dump(
    family: u8,
    socket_id: SocketId,
    states: StateFlags,
    found: &mut Vec<Connection>,
) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    let request = InetRequest {
        family,
        protocol: IPPROTO_TCP,
        extensions: ExtensionFlags::INFO,
        states,
        socket_id,
    };
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let mut message = NetlinkMessage::new(header, SockDiagMessage::InetRequest(request).into());
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    // The kernel fills at most this much at a time (NLMSG_GOODSIZE, 32 KiB).
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        if parse(&buffer, found)? {
            return Ok(());
        }
    }
}

/// Adds the connections of one datagram. True if it was the last one.
fn parse(mut rest: &[u8], found: &mut Vec<Connection>) -> io::Result<bool> {
    while let Some(length) = rest.first_chunk().map(|four| u32::from_ne_bytes(*four)) {
        let strange = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let message = NetlinkMessage::<SockDiagMessage>::deserialize(rest)
            .map_err(|error| strange(error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(SockDiagMessage::InetResponse(response)) => {
                found.extend(connection(&response));
            }
            NetlinkPayload::Done(_) => return Ok(true),
            NetlinkPayload::Error(error) => return Err(error.to_io()),
            NetlinkPayload::Overrun(_) => return Err(strange("overrun".to_string())),
            _ => {}
        }
        // Messages are aligned to four bytes, but the last one may lack its padding.
        let length = (length.max(16) as usize).next_multiple_of(4);
        rest = rest.get(length..).unwrap_or_default();
    }
    Ok(false)
}

/// Converts an answer. `None` for a socket without TCP_INFO: a request that waits for its last ACK.
fn connection(response: &InetResponse) -> Option<Connection> {
    let mut info = None;
    let mut cgroup = None;
    for attribute in &response.nlas {
        match attribute {
            Nla::TcpInfo(bytes) => info = Some(bytes),
            Nla::Other(other) if other.kind() == INET_DIAG_CGROUP_ID => {
                let mut bytes = [0; 8];
                if other.value_len() == bytes.len() {
                    other.emit_value(&mut bytes);
                    cgroup = Some(u64::from_ne_bytes(bytes));
                }
            }
            _ => {}
        }
    }
    let info = info?;
    let id = &response.header.socket_id;
    let address = |address: std::net::IpAddr, port| SocketAddr::new(address.to_canonical(), port);
    Some(Connection {
        cookie: u64::from_ne_bytes(id.cookie),
        inode: response.header.inode,
        cgroup,
        local: address(id.source_address, id.source_port),
        remote: address(id.destination_address, id.destination_port),
        totals: FIELDS.map(|(_, offset, width)| total(info, offset, width)),
    })
}

/// Reads a counter of struct tcp_info. `None` if an old kernel's struct is shorter.
fn total(info: &[u8], offset: usize, width: usize) -> Option<u64> {
    let bytes = info.get(offset..offset + width)?;
    match width {
        4 => bytes.try_into().ok().map(u32::from_ne_bytes).map(u64::from),
        _ => bytes.try_into().ok().map(u64::from_ne_bytes),
    }
}

/// Quantity, offset in struct tcp_info (linux/tcp.h), which only ever grows at its end, and width in bytes.
const FIELDS: [(Quantity, usize, usize); 7] = [
    (Quantity::ConnSegmentsRetransmitted, 100, 4),
    (Quantity::ConnBytesAcked, 120, 8),
    (Quantity::ConnBytesReceived, 128, 8),
    (Quantity::ConnSegmentsSent, 136, 4),
    (Quantity::ConnSegmentsReceived, 140, 4),
    (Quantity::ConnDataSegmentsReceived, 152, 4),
    (Quantity::ConnDataSegmentsSent, 156, 4),
];

/// Value from linux/inet_diag.h.
const INET_DIAG_CGROUP_ID: u16 = 21;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn find(local: SocketAddr) -> Connection {
        let mut all = connections().unwrap().into_iter();
        all.find(|connection| connection.local == local).unwrap()
    }

    #[test]
    fn the_growth_of_a_connection_is_what_went_over_it() {
        for address in ["127.0.0.1:0", "[::1]:0", "[::ffff:127.0.0.1]:0"] {
            let Ok(listener) = TcpListener::bind(address) else {
                tcpcost_testbed::skip(&format!("no {address} here"));
                continue;
            };
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (mut server, _) = listener.accept().unwrap();
            let local = client.local_addr().unwrap();
            let canonical = SocketAddr::new(local.ip().to_canonical(), local.port());
            client.write_all(&[1; 1000]).unwrap();
            server.read_exact(&mut [0; 1000]).unwrap();
            let before = find(canonical);
            server.write_all(&[1; 500]).unwrap();
            client.read_exact(&mut [0; 500]).unwrap();
            let after = find(canonical);
            assert_eq!(after.cookie, before.cookie);
            assert!(after.inode > 0);
            let growth = after.since(Some(&before));
            assert_eq!(growth[&Quantity::ConnBytesReceived], 500);
            assert_eq!(growth[&Quantity::ConnDataSegmentsReceived], 1);
            assert_eq!(growth[&Quantity::ConnDataSegmentsSent], 0);
            let all = after.since(None);
            // The sequence number of the SYN counts as acknowledged.
            assert_eq!(all[&Quantity::ConnBytesAcked], 1001);
        }
    }

    fn with(totals: [Option<u64>; FIELDS.len()]) -> Connection {
        Connection {
            cookie: 1,
            inode: 1,
            cgroup: None,
            local: ([127, 0, 0, 1], 1).into(),
            remote: ([127, 0, 0, 1], 2).into(),
            totals,
        }
    }

    #[test]
    fn a_counter_of_32_bits_may_wrap_and_one_of_64_may_not() {
        let mut before = [Some(5); FIELDS.len()];
        before[0] = Some(u64::from(u32::MAX));
        let mut after = [Some(7); FIELDS.len()];
        after[1] = Some(4);
        after[2] = None;
        let growth = with(after).since(Some(&with(before)));
        assert_eq!(growth[&Quantity::ConnSegmentsRetransmitted], 8);
        assert_eq!(growth[&Quantity::ConnSegmentsSent], 2);
        assert!(!growth.contains_key(&Quantity::ConnBytesAcked));
        assert!(!growth.contains_key(&Quantity::ConnBytesReceived));
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &mut Vec::new());
        }
    }
}
