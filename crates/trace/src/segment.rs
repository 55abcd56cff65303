//! One captured TCP segment or super-segment: its header fields, without payload.

use crate::tunnels::Tunnel;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use tcpcost_counts::Printable;

/// Bits of TCP's flags, as on the wire.
pub mod flag {
    /// FIN: no more data from the sender.
    pub const FIN: u8 = 0x01;
    /// SYN: synchronizes sequence numbers.
    pub const SYN: u8 = 0x02;
    /// RST: resets the connection.
    pub const RST: u8 = 0x04;
    /// PSH: push.
    pub const PSH: u8 = 0x08;
    /// ACK: the acknowledgment number is valid.
    pub const ACK: u8 = 0x10;
    /// ECE: ECN echo.
    pub const ECE: u8 = 0x40;
    /// CWR: congestion window reduced.
    pub const CWR: u8 = 0x80;
}

/// Host: an address, or a name in a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An IPv4 or IPv6 address.
    Address(IpAddr),
    /// Name in a text trace, by its index in [`crate::Names`].
    Named(u32),
}

/// One end of a connection: host and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Endpoint {
    /// Address or name.
    pub host: Host,
    /// Port; 0 if a text has none.
    pub port: u16,
}

/// Hashes an IPv4 endpoint as one word. The derived implementation hashes five, and the address
/// byte by byte.
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

/// Values of a segment's options.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Options {
    /// TSval and TSecr. `None` without the option.
    pub timestamps: Option<(u32, u32)>,
    /// First two SACK blocks, which are all that DSACK needs (RFC 2883).
    pub sack: [(u32, u32); 2],
    /// Number of SACK blocks.
    pub sack_blocks: u8,
    /// Maximum segment size, bytes. `None` without the option.
    pub mss: Option<u16>,
    /// Window scale, as a shift. `None` without the option.
    pub window_scale: Option<u8>,
    /// True if SACK is permitted.
    pub sack_permitted: bool,
    /// True if all options were seen: not cut by the snap length, and not omitted in a text.
    pub complete: bool,
}

/// Way of a packet relative to the capturing host, used where nothing else distinguishes interfaces
/// (Linux cooked, version 1).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PacketDirection {
    /// Unknown, or not needed because the interface is known.
    #[default]
    Unknown,
    /// Received by this host.
    In,
    /// Sent by this host.
    Out,
}

/// Captured segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// Time of capture, ns since the epoch. `None` if a text has no times.
    pub at_ns: Option<u64>,
    /// Sender.
    pub source: Endpoint,
    /// Receiver.
    pub destination: Endpoint,
    /// Sequence number. `None` for a pure ACK in tcpdump's older texts, which omit it.
    pub seq: Option<u32>,
    /// Acknowledgment number. It has no meaning without [`flag::ACK`].
    pub ack: u32,
    /// Window as on the wire, not scaled.
    pub window: u16,
    /// Bits of [`flag`].
    pub flags: u8,
    /// Identification of the IPv4 datagram; 0 in IPv6.
    pub ip_id: u16,
    /// Time to live, or hop limit; 0 if a text has none.
    pub hop_limit: u8,
    /// Interface of the capture, as far as known. Equal numbers are one interface.
    pub interface: u32,
    /// Way of the packet at that interface.
    pub direction: PacketDirection,
    /// Innermost tunnel that carried the segment. `None` without a tunnel.
    pub tunnel: Option<Tunnel>,
    /// Number of the packet in the capture, from 1: Wireshark's `frame.number`.
    pub frame: u64,
    /// Payload bytes.
    pub payload: u32,
    /// Length of the IP datagram, headers included, bytes.
    pub ip_octets: u32,
    /// Options.
    pub options: Options,
}

impl Segment {
    /// Creates a segment without values, for `segment_into` to fill.
    pub(crate) fn unset() -> Segment {
        let nobody = Endpoint {
            host: Host::Named(0),
            port: 0,
        };
        Segment {
            at_ns: None,
            source: nobody,
            destination: nobody,
            seq: None,
            ack: 0,
            window: 0,
            flags: 0,
            ip_id: 0,
            hop_limit: 0,
            interface: 0,
            direction: PacketDirection::Unknown,
            tunnel: None,
            frame: 0,
            payload: 0,
            ip_octets: 0,
            options: Options::default(),
        }
    }

    /// True if all of these flags are set.
    pub fn has(&self, flags: u8) -> bool {
        self.flags & flags == flags
    }

    /// True if any of these flags is set.
    pub fn any(&self, flags: u8) -> bool {
        self.flags & flags != 0
    }

    /// True if the segment only acknowledges: an ACK without payload, SYN, FIN or RST.
    pub fn is_pure_ack(&self) -> bool {
        self.payload == 0
            && self.flags & (flag::SYN | flag::FIN | flag::RST | flag::ACK) == flag::ACK
    }
}

/// Packets that could not be analysed as TCP segments, by reason.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct Skipped {
    /// Packets that are neither IPv4 nor IPv6.
    pub not_ip: u64,
    /// IP packets of another protocol than TCP.
    pub not_tcp: u64,
    /// IP fragments.
    pub fragments: u64,
    /// Packets whose headers were cut by the snap length.
    pub headers_cut: u64,
    /// Packets with an impossible length or version.
    pub malformed: u64,
    /// Packets of an unsupported link type.
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

    /// Sum of all reasons.
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
