//! One captured TCP segment, or super-segment, as the analysis sees it: numbers only, no bytes.

use crate::tunnels::Tunnel;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcpcost_counts::Printable;

/// TCP's flags as on the wire.
pub mod flag {
    /// No more data from the sender.
    pub const FIN: u8 = 0x01;
    /// Synchronize sequence numbers.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// The acknowledgment field counts.
    pub const ACK: u8 = 0x10;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// A host: an address, or a name that stood in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// A name of a text trace, by its place in [`crate::Names`].
    Named(u32),
}

/// One end of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// The host.
    pub host: Host,
    /// The port; 0 where a text names none.
    pub port: u16,
}

/// In one word where it fits: the derived one has five, and an address byte by byte.
impl Hash for Endpoint {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        let port = u64::from(self.port);
        match self.host {
            Host::Address(IpAddr::V4(address)) => {
                state.write_u64(u64::from(u32::from(address)) << 16 | port);
            }
            Host::Address(IpAddr::V6(address)) => {
                state.write_u128(u128::from(address));
                state.write_u64(port);
            }
            Host::Named(index) => state.write_u64(u64::from(index) << 16 | port),
        }
    }
}

impl From<Ipv4Addr> for Host {
    fn from(address: Ipv4Addr) -> Host {
        Host::Address(IpAddr::V4(address))
    }
}

impl From<Ipv6Addr> for Host {
    fn from(address: Ipv6Addr) -> Host {
        Host::Address(IpAddr::V6(address))
    }
}

/// What the options of a segment say.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// TSval and TSecr.
    pub timestamps: Option<(u32, u32)>,
    /// The first two SACK blocks: all that DSACK needs (RFC 2883).
    pub sack: [(u32, u32); 2],
    /// How many SACK blocks there are.
    pub sack_blocks: u8,
    /// Maximum segment size.
    pub mss: Option<u16>,
    /// Window scale.
    pub window_scale: Option<u8>,
    /// SACK permitted.
    pub sack_permitted: bool,
    /// Whether all options were seen: neither cut by the snap length nor left out of a text.
    pub complete: bool,
}

/// Which way a packet passed the host that captured it, where only that tells one interface from
/// another (Linux cooked, version 1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Way {
    /// Not told, or not needed: the interface is.
    #[default]
    Unknown,
    /// To this host.
    In,
    /// From it.
    Out,
}

/// One captured segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Time of capture since the epoch, ns; `None` where a text tells none.
    pub at_ns: Option<u64>,
    /// Sender.
    pub source: Endpoint,
    /// Receiver.
    pub destination: Endpoint,
    /// Sequence number; `None` for a pure ACK of tcpdump's older texts, which leave it out.
    pub seq: Option<u32>,
    /// Acknowledgment number; means nothing without [`flag::ACK`].
    pub ack: u32,
    /// Window as on the wire, not scaled.
    pub window: u16,
    /// Flags.
    pub flags: u8,
    /// Identification of the IPv4 datagram; 0 in IPv6.
    pub ip_id: u16,
    /// Time to live, or hop limit; 0 where a text tells none.
    pub hop_limit: u8,
    /// Where it was captured, as far as the capture tells: equal numbers are one interface.
    pub interface: u32,
    /// Which way it passed that place.
    pub way: Way,
    /// The innermost tunnel that carried it.
    pub tunnel: Option<Tunnel>,
    /// Its number in the capture, from 1 on, as Wireshark's `frame.number`.
    pub frame: u64,
    /// Payload bytes.
    pub payload: u32,
    /// Length of the IP datagram, headers included.
    pub ip_octets: u32,
    /// Options.
    pub options: Options,
}

impl Segment {
    /// Whether all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// Whether any of these flags is set.
    pub fn any(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// A segment that only acknowledges.
    pub fn is_pure_ack(&self) -> bool {
        self.payload == 0
            && self.flags & (flag::SYN | flag::FIN | flag::RST | flag::ACK) == flag::ACK
    }
}

/// Packets that are no TCP segment that could be analysed, by why.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// Neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// IP, but not TCP.
    pub not_tcp: u64,
    /// IP fragments: the payload of one stands in several packets.
    pub fragments: u64,
    /// The snap length cut into the headers.
    pub headers_cut: u64,
    /// A length or version that cannot be.
    pub malformed: u64,
    /// Of a link type that is not read.
    pub link_unknown: u64,
}

impl Skipped {
    pub(crate) fn add(&mut self, other: &Skipped) {
        self.not_ip += other.not_ip;
        self.not_tcp += other.not_tcp;
        self.fragments += other.fragments;
        self.headers_cut += other.headers_cut;
        self.malformed += other.malformed;
        self.link_unknown += other.link_unknown;
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.not_ip
            + self.not_tcp
            + self.fragments
            + self.headers_cut
            + self.malformed
            + self.link_unknown
    }
}

pub(crate) fn endpoint_name(end: Endpoint, names: &[Printable]) -> String {
    let name = match end.host {
        Host::Address(std::net::IpAddr::V6(address)) => format!("[{address}]"),
        Host::Address(address) => address.to_string(),
        Host::Named(index) => names
            .get(index as usize)
            .map(ToString::to_string)
            .unwrap_or_default(),
    };
    if end.port == 0 {
        name
    } else {
        format!("{name}:{}", end.port)
    }
}
