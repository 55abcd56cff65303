//! IPv4 and IPv6 headers, as far as TCP needs them.
//!
//! IPv6 extension headers are processed: options are skipped, and a routing header must have no
//! segments left.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use super::{DropReason, Sum};

/// ECN field of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// Not-ECT: the transport does not use ECN.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0).
    Capable0,
    /// CE: congestion experienced.
    Congested,
}

impl Ecn {
    const fn bits(self) -> u8 {
        match self {
            Self::NotCapable => 0,
            Self::Capable1 => 1,
            Self::Capable0 => 2,
            Self::Congested => 3,
        }
    }

    const fn from_bits(bits: u8) -> Self {
        match bits & 3 {
            0 => Self::NotCapable,
            1 => Self::Capable1,
            2 => Self::Capable0,
            _ => Self::Congested,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpHeader {
    pub source: IpAddr,
    pub dest: IpAddr,
    pub protocol: u8,
    pub ecn: Ecn,
    /// Differentiated services code point, 0 to 63.
    pub dscp: u8,
    /// Number of bytes in this header, including IPv6 extension headers.
    pub header_bytes: usize,
    /// Number of bytes in the packet after this header.
    pub body_bytes: usize,
}

impl IpHeader {
    /// Reads the header at the start of `bytes`. The packet has `total` bytes; bytes beyond the
    /// length in the header are link padding.
    pub(super) fn parse(bytes: &[u8], total: usize) -> Result<Self, DropReason> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(bytes, total),
            Some(6) => Self::parse_v6(bytes, total),
            _ => Err(DropReason::NotIp),
        }
    }

    /// Reads a header that an ICMP message quotes. The rest of the packet is missing, and address
    /// translators leave its checksum wrong, so neither is checked.
    pub(super) fn parse_quoted(bytes: &[u8]) -> Result<Self, DropReason> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::read_v4(bytes, usize::MAX),
            _ => Self::parse(bytes, usize::MAX),
        }
    }

    fn parse_v4(bytes: &[u8], total: usize) -> Result<Self, DropReason> {
        let header = Self::read_v4(bytes, total)?;
        if !Sum::new()
            .add_bytes(&bytes[..header.header_bytes])
            .is_valid()
        {
            return Err(DropReason::BadIpChecksum);
        }
        Ok(header)
    }

    /// Reads the header without checking the checksum.
    fn read_v4(bytes: &[u8], total: usize) -> Result<Self, DropReason> {
        let fixed: &[u8; 20] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let header_bytes = usize::from(fixed[0] & 15) * 4;
        let packet_bytes = usize::from(u16::from_be_bytes([fixed[2], fixed[3]]));
        if header_bytes < 20 || bytes.len() < header_bytes || packet_bytes < header_bytes {
            return Err(DropReason::BadIp);
        }
        if packet_bytes > total {
            return Err(DropReason::Truncated);
        }
        // More-fragments flag or a fragment offset.
        if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
            return Err(DropReason::Fragment);
        }
        Ok(Self {
            source: v4(&fixed[12..16]),
            dest: v4(&fixed[16..20]),
            protocol: fixed[9],
            ecn: Ecn::from_bits(fixed[1]),
            dscp: fixed[1] >> 2,
            header_bytes,
            body_bytes: packet_bytes - header_bytes,
        })
    }

    fn parse_v6(bytes: &[u8], total: usize) -> Result<Self, DropReason> {
        let fixed: &[u8; 40] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let body_bytes = usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
        if 40 + body_bytes > total {
            return Err(DropReason::Truncated);
        }
        let header = Self {
            source: v6(&fixed[8..24]),
            dest: v6(&fixed[24..40]),
            protocol: fixed[6],
            ecn: Ecn::from_bits(fixed[1] >> 4),
            dscp: (fixed[0] & 15) << 2 | fixed[1] >> 6,
            header_bytes: 40,
            body_bytes,
        };
        if is_extension(header.protocol) {
            header.behind_extensions(bytes)
        } else {
            Ok(header)
        }
    }

    /// Skips the extension headers (RFC 8200 §4).
    #[cold]
    fn behind_extensions(mut self, bytes: &[u8]) -> Result<Self, DropReason> {
        let end = self.header_bytes + self.body_bytes;
        while is_extension(self.protocol) {
            let at = self.header_bytes;
            let fixed: &[u8; 8] = bytes
                .get(at..)
                .and_then(<[u8]>::first_chunk)
                .ok_or(DropReason::Truncated)?;
            match self.protocol {
                // A fragment header on an unfragmented packet (atomic fragment) is allowed (RFC
                // 6946).
                FRAGMENT if u16::from_be_bytes([fixed[2], fixed[3]]) & 0xfff9 != 0 => {
                    return Err(DropReason::Fragment);
                }
                // RFC 8200 §4.4: unknown routing type with segments left.
                ROUTING if fixed[3] != 0 => return Err(DropReason::BadIp),
                // RFC 8200 §4.3: hop-by-hop options must follow the fixed header directly.
                HOP_BY_HOP if at != 40 => return Err(DropReason::BadIp),
                _ => {}
            }
            let len = match self.protocol {
                FRAGMENT => 8,
                _ => 8 + 8 * usize::from(fixed[1]),
            };
            if at + len > end {
                return Err(DropReason::BadIp);
            }
            self.protocol = fixed[0];
            self.header_bytes += len;
            self.body_bytes -= len;
        }
        Ok(self)
    }

    /// Length of the header that [`emit`](Self::emit) writes for `dest`.
    pub(super) const fn emitted_bytes(dest: IpAddr) -> usize {
        if dest.is_ipv4() { 20 } else { 40 }
    }

    /// Writes a header without options. The caller keeps packets below 64 KiB.
    pub(super) fn emit(&self, to: &mut [u8]) {
        // Type of service (IPv4) or traffic class (IPv6).
        let class = self.dscp << 2 | self.ecn.bits();
        match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                let total = (20 + self.body_bytes).min(0xffff) as u16;
                to[..4].copy_from_slice(&[0x45, class, (total >> 8) as u8, total as u8]);
                let hops_and_protocol = u16::from_be_bytes([HOPS, self.protocol]);
                // Summed from the values, not from the bytes in `to`: a load that spans stores of
                // other sizes waits for them.
                let checksum = Sum::new()
                    .add_word(0x4500 | u16::from(class))
                    .add_word(total)
                    .add_word(DONT_FRAGMENT)
                    .add_word(hops_and_protocol)
                    .add_bytes(&source.octets())
                    .add_bytes(&dest.octets())
                    .finish();
                // Identification 0: a packet that is never fragmented needs none (RFC 6864 §4.1).
                to[4..6].fill(0);
                to[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                to[8..10].copy_from_slice(&hops_and_protocol.to_be_bytes());
                to[10..12].copy_from_slice(&checksum.to_be_bytes());
                to[12..16].copy_from_slice(&source.octets());
                to[16..20].copy_from_slice(&dest.octets());
            }
            (source, dest) => {
                let body = self.body_bytes.min(0xffff) as u16;
                to[..4].copy_from_slice(&[0x60 | class >> 4, class << 4, 0, 0]);
                to[4..8].copy_from_slice(&[(body >> 8) as u8, body as u8, self.protocol, HOPS]);
                to[8..24].copy_from_slice(&octets_v6(source));
                to[24..40].copy_from_slice(&octets_v6(dest));
            }
        }
    }

    /// Returns the sum over the pseudo-header (RFC 9293 §3.1).
    pub(super) fn pseudo_sum(&self) -> Sum {
        let sum = match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => Sum::new()
                .add_bytes(&source.octets())
                .add_bytes(&dest.octets()),
            (source, dest) => Sum::new()
                .add_bytes(&octets_v6(source))
                .add_bytes(&octets_v6(dest)),
        };
        let body = self.body_bytes as u32;
        sum.add_word(u16::from(self.protocol))
            .add_word((body >> 16) as u16)
            .add_word(body as u16)
    }
}

/// Position of a fragment in its packet.
pub(super) struct FragmentPlace {
    pub source: IpAddr,
    pub dest: IpAddr,
    pub protocol: u8,
    pub id: u32,
    /// Offset of the fragment in the original packet's body, in bytes.
    pub at: usize,
    /// True if it is not the last fragment.
    pub more: bool,
    pub ecn: Ecn,
    /// Range of the fragment's body in its bytes.
    pub body: Range<usize>,
}

/// Reads the headers of a fragment.
#[cold]
pub(super) fn fragment_place(bytes: &[u8]) -> Result<FragmentPlace, DropReason> {
    match bytes.first().map(|first| first >> 4) {
        Some(4) => {
            let mut whole = bytes.to_vec();
            let field = whole.get_mut(6..8).ok_or(DropReason::Truncated)?;
            let word = u16::from_be_bytes([field[0], field[1]]);
            let length = usize::from(whole[0] & 15) * 4;
            let header = whole.get(..length).ok_or(DropReason::Truncated)?;
            if !Sum::new().add_bytes(header).is_valid() {
                return Err(DropReason::BadIpChecksum);
            }
            // Fragment fields cleared, so that the other checks treat it as a whole packet.
            whole[6..8].fill(0);
            let ip = IpHeader::read_v4(&whole, bytes.len())?;
            Ok(FragmentPlace {
                source: ip.source,
                dest: ip.dest,
                protocol: ip.protocol,
                id: u32::from(u16::from_be_bytes([whole[4], whole[5]])),
                at: usize::from(word & 0x1fff) * 8,
                more: word & 0x2000 != 0,
                ecn: ip.ecn,
                body: ip.header_bytes..ip.header_bytes + ip.body_bytes,
            })
        }
        _ => fragment_place_v6(bytes),
    }
}

fn fragment_place_v6(bytes: &[u8]) -> Result<FragmentPlace, DropReason> {
    let fixed: &[u8; 40] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
    let end = 40 + usize::from(u16::from_be_bytes([fixed[4], fixed[5]]));
    let (mut protocol, mut at) = (fixed[6], 40);
    loop {
        let header: &[u8; 8] = bytes
            .get(at..end.min(bytes.len()))
            .and_then(<[u8]>::first_chunk)
            .ok_or(DropReason::Truncated)?;
        if protocol == FRAGMENT {
            let word = u16::from_be_bytes([header[2], header[3]]);
            return Ok(FragmentPlace {
                source: v6(&fixed[8..24]),
                dest: v6(&fixed[24..40]),
                protocol: header[0],
                id: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
                at: usize::from(word & 0xfff8),
                more: word & 1 != 0,
                ecn: Ecn::from_bits(fixed[1] >> 4),
                body: at + 8..end,
            });
        }
        if !is_extension(protocol) {
            return Err(DropReason::BadIp);
        }
        (protocol, at) = (header[0], at + 8 + 8 * usize::from(header[1]));
    }
}

/// True for extension headers that are processed.
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION)
}

fn v4(bytes: &[u8]) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]))
}

fn v6(bytes: &[u8]) -> IpAddr {
    let mut octets = [0; 16];
    octets.copy_from_slice(bytes);
    IpAddr::V6(Ipv6Addr::from(octets))
}

fn octets_v6(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION: u8 = 60;
const DONT_FRAGMENT: u16 = 0x4000;
/// Time to live and hop limit, as recommended by RFC 1700.
const HOPS: u8 = 64;
