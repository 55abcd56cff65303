//! TCP_INFO of every connection in the calling thread's network namespace, by sock_diag(7).
//!
//! One dump reports all connections of all processes and needs no privileges; the kernel walks its table for
//! it. A connection is identified by its cookie, which no other socket ever gets. The last growth of
//! connections that end between two dumps is lost.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};

use netlink_packet_core::{
    DecodeError, NLM_F_DUMP, NLM_F_REQUEST, NetlinkDeserializable, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NetlinkSerializable, NlasIterator,
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
    /// Values of the first `known` [`FIELDS`]; 0 of those that the kernel lacks.
    totals: [u64; FIELDS.len()],
    known: usize,
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
        for (index, (quantity, _, width)) in FIELDS.iter().enumerate().take(self.known) {
            let (now, before) = (
                self.totals[index],
                earlier.map_or(0, |one| one.totals[index]),
            );
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

/// Passes each connection that is open or closing to `each`. Omits listeners, and connections in TIME_WAIT, which have
/// no counts.
///
/// # Errors
/// The kernel has no sock_diag for TCP (CONFIG_INET_DIAG), or its answer cannot be read.
pub fn connections(each: impl FnMut(Connection)) -> Result<(), MeterError> {
    dump(ALL_STATES & !(1 << LISTEN) & !(1 << TIME_WAIT), each)
}

/// Ports with listeners.
///
/// # Errors
/// See [`connections`].
pub fn listened() -> Result<BTreeSet<u16>, MeterError> {
    let mut ports = BTreeSet::new();
    dump(1 << LISTEN, |socket| {
        ports.insert(socket.local.port());
    })?;
    Ok(ports)
}

fn dump(states: u32, each: impl FnMut(Connection)) -> Result<(), MeterError> {
    ask(states, each).map_err(|source| MeterError::Call {
        call: "sock_diag",
        source,
    })
}

fn ask(states: u32, mut each: impl FnMut(Connection)) -> io::Result<()> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let request = NetlinkPayload::InnerMessage(Request { states });
    let mut message = NetlinkMessage::new(header, request);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    socket.send(&bytes, 0)?;
    // The kernel fills at most this much at a time (NLMSG_GOODSIZE, 32 KiB).
    let mut buffer = Vec::with_capacity(64 * 1024);
    loop {
        buffer.clear();
        socket.recv(&mut buffer, 0)?;
        if parse(&buffer, &mut each)? {
            return Ok(());
        }
    }
}

/// Passes the connections of one datagram to `each`. True if the datagram was the last one.
fn parse(mut rest: &[u8], each: &mut impl FnMut(Connection)) -> io::Result<bool> {
    while let Some(length) = rest.first_chunk().map(|four| u32::from_ne_bytes(*four)) {
        let strange = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
        let message = NetlinkMessage::<Answer>::deserialize(rest)
            .map_err(|error| strange(error.to_string()))?;
        match message.payload {
            NetlinkPayload::InnerMessage(Answer(Some(connection))) => each(connection),
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

/// Request for the sockets of both families. With SOCK_DIAG_BY_FAMILY, the newer request, the kernel walks through its
/// hash table once for each family: with 262,144 buckets the two walks were 13 % of the CPU time of `tcpcost watch`
/// beside 20,000 sockets, by perf(1).
struct Request {
    states: u32,
}

impl NetlinkSerializable for Request {
    fn message_type(&self) -> u16 {
        TCPDIAG_GETSOCK
    }

    /// Size of struct inet_diag_req (linux/inet_diag.h).
    fn buffer_len(&self) -> usize {
        60
    }

    fn serialize(&self, buffer: &mut [u8]) {
        buffer.fill(0);
        buffer[3] = 1 << (INET_DIAG_INFO - 1);
        buffer[52..56].copy_from_slice(&self.states.to_ne_bytes());
    }
}

/// A socket in the kernel's answer. `None`: it has no TCP_INFO, because it still waits for the last ACK of its handshake.
struct Answer(Option<Connection>);

impl NetlinkDeserializable for Answer {
    type Error = DecodeError;

    fn deserialize(_: &NetlinkHeader, payload: &[u8]) -> Result<Answer, DecodeError> {
        // struct inet_diag_msg (linux/inet_diag.h).
        let Some((message, attributes)) = payload.split_first_chunk::<72>() else {
            return Err(DecodeError::buffer_too_small(payload.len(), 72));
        };
        let mut info = None;
        let mut cgroup = None;
        for attribute in NlasIterator::new(attributes) {
            let attribute = attribute?;
            let value = attribute.value();
            match attribute.kind() {
                INET_DIAG_INFO => info = Some(totals(value)),
                INET_DIAG_CGROUP_ID => cgroup = value.try_into().ok().map(u64::from_ne_bytes),
                _ => {}
            }
        }
        Ok(Answer(info.map(|(totals, known)| Connection {
            cookie: u64::from_ne_bytes(part(message, 44)),
            inode: u32::from_ne_bytes(part(message, 68)),
            cgroup,
            local: address(message[0], part(message, 8), part(message, 4)),
            remote: address(message[0], part(message, 24), part(message, 6)),
            totals,
            known,
        })))
    }
}

/// `N` bytes at a fixed offset of struct inet_diag_msg.
fn part<const N: usize>(message: &[u8; 72], offset: usize) -> [u8; N] {
    std::array::from_fn(|index| message[offset + index])
}

fn address(family: u8, address: [u8; 16], port: [u8; 2]) -> SocketAddr {
    let address = match (family, address) {
        (AF_INET, [a, b, c, d, ..]) => IpAddr::from([a, b, c, d]),
        _ => IpAddr::from(address).to_canonical(),
    };
    SocketAddr::new(address, u16::from_be_bytes(port))
}

/// Counters of a struct tcp_info, and how many of them this kernel has.
fn totals(info: &[u8]) -> ([u64; FIELDS.len()], usize) {
    let has = |(_, offset, width): &&(Quantity, usize, usize)| offset + width <= info.len();
    let known = FIELDS.iter().take_while(has).count();
    let mut totals = [0; FIELDS.len()];
    for (total, (_, offset, width)) in totals.iter_mut().zip(&FIELDS[..known]) {
        let value = &info[*offset..offset + width];
        *total = match *width {
            4 => value
                .try_into()
                .map_or(0, |value| u32::from_ne_bytes(value).into()),
            _ => value.try_into().map_or(0, u64::from_ne_bytes),
        };
    }
    (totals, known)
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

/// Values from linux/inet_diag.h, linux/socket.h and net/tcp_states.h.
const TCPDIAG_GETSOCK: u16 = 18;
const INET_DIAG_INFO: u16 = 2;
const INET_DIAG_CGROUP_ID: u16 = 21;
const AF_INET: u8 = 2;
const ALL_STATES: u32 = 0xfff;
const TIME_WAIT: u32 = 6;
const LISTEN: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    fn find(local: SocketAddr) -> Connection {
        let mut found = None;
        let look = |one: Connection| found = (one.local == local).then_some(one).or(found.take());
        connections(look).unwrap();
        found.unwrap()
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

    fn with(totals: [u64; FIELDS.len()], known: usize) -> Connection {
        Connection {
            cookie: 1,
            inode: 1,
            cgroup: None,
            local: ([127, 0, 0, 1], 1).into(),
            remote: ([127, 0, 0, 1], 2).into(),
            totals,
            known,
        }
    }

    #[test]
    fn a_counter_of_32_bits_may_wrap_and_one_of_64_may_not() {
        let mut before = [5; FIELDS.len()];
        before[0] = u64::from(u32::MAX);
        let mut after = [7; FIELDS.len()];
        after[1] = 4;
        let growth = with(after, FIELDS.len()).since(Some(&with(before, FIELDS.len())));
        assert_eq!(growth[&Quantity::ConnSegmentsRetransmitted], 8);
        assert_eq!(growth[&Quantity::ConnSegmentsSent], 2);
        assert!(!growth.contains_key(&Quantity::ConnBytesAcked));
    }

    #[test]
    fn counters_that_an_old_kernel_lacks_are_absent() {
        let mut info = [0; 144];
        info[100] = 3;
        info[140] = 9;
        let (counters, known) = totals(&info);
        let growth = with(counters, known).since(None);
        assert_eq!(growth[&Quantity::ConnSegmentsRetransmitted], 3);
        assert_eq!(growth[&Quantity::ConnSegmentsReceived], 9);
        assert!(!growth.contains_key(&Quantity::ConnDataSegmentsReceived));
        assert_eq!(totals(&[0; 103]).1, 0);
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes, &mut |_| {});
        }

        #[test]
        fn no_answer_panics(
            fixed in prop::collection::vec(any::<u8>(), 60..80),
            kind in 0u16..32,
            value in prop::collection::vec(any::<u8>(), 0..240),
            claimed in 0u16..300,
        ) {
            let attribute = [&claimed.to_ne_bytes()[..], &kind.to_ne_bytes(), &value].concat();
            let payload = [&fixed[..], &attribute].concat();
            let _ = Answer::deserialize(&NetlinkHeader::default(), &payload);
        }
    }
}
