//! IPv4 and IPv6 headers, as much of them as TCP needs.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{DropReason, Sum};

/// The two ECN bits of an IP header (RFC 3168 §5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ecn {
    /// The transport does not take part.
    #[default]
    NotCapable,
    /// ECT(1).
    Capable1,
    /// ECT(0).
    Capable0,
    /// Congestion experienced.
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

/// What an IP header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct IpHeader {
    pub source: IpAddr,
    pub dest: IpAddr,
    pub protocol: u8,
    pub ecn: Ecn,
    /// Bytes of this header.
    pub header_bytes: usize,
    /// Bytes after this header that belong to the packet.
    pub body_bytes: usize,
}

impl IpHeader {
    /// Reads the header at the beginning of `bytes`, of a packet of `total` bytes; bytes beyond
    /// what the header claims are padding of the link.
    pub(super) fn parse(bytes: &[u8], total: usize) -> Result<Self, DropReason> {
        match bytes.first().map(|first| first >> 4) {
            Some(4) => Self::parse_v4(bytes, total),
            Some(6) => Self::parse_v6(bytes, total),
            _ => Err(DropReason::NotIp),
        }
    }

    /// Reads the header at the beginning of `bytes`, which an ICMP message quotes: the rest of the
    /// packet is missing, and translators of addresses leave its checksum wrong.
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

    /// All but the checksum.
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
        // More-fragments or a fragment offset.
        if u16::from_be_bytes([fixed[6], fixed[7]]) & 0x3fff != 0 {
            return Err(DropReason::Fragment);
        }
        Ok(Self {
            source: v4(&fixed[12..16]),
            dest: v4(&fixed[16..20]),
            protocol: fixed[9],
            ecn: Ecn::from_bits(fixed[1]),
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
        Ok(Self {
            source: v6(&fixed[8..24]),
            dest: v6(&fixed[24..40]),
            // Extension headers are not followed: a packet with one is not TCP to us.
            protocol: fixed[6],
            ecn: Ecn::from_bits(fixed[1] >> 4),
            header_bytes: 40,
            body_bytes,
        })
    }

    /// Bytes of the header [`emit`](Self::emit) writes for `dest`.
    pub(super) const fn emitted_bytes(dest: IpAddr) -> usize {
        if dest.is_ipv4() { 20 } else { 40 }
    }

    /// Writes a header without options for `body_bytes` more. The lengths of a super-segment may
    /// exceed nothing: callers keep packets under 64 KiB.
    pub(super) fn emit(&self, to: &mut [u8]) {
        match (self.source, self.dest) {
            (IpAddr::V4(source), IpAddr::V4(dest)) => {
                let total = (20 + self.body_bytes).min(0xffff) as u16;
                to[..4].copy_from_slice(&[0x45, self.ecn.bits(), (total >> 8) as u8, total as u8]);
                let hops_and_protocol = u16::from_be_bytes([HOPS, self.protocol]);
                // Of what is written, not of what lies there: a load from bytes just stored in
                // other sizes waits for them.
                let checksum = Sum::new()
                    .add_word(0x4500 | u16::from(self.ecn.bits()))
                    .add_word(total)
                    .add_word(DONT_FRAGMENT)
                    .add_word(hops_and_protocol)
                    .add_bytes(&source.octets())
                    .add_bytes(&dest.octets())
                    .finish();
                // Identification 0: RFC 6864 §4.1, a packet that is never fragmented needs none.
                to[4..6].fill(0);
                to[6..8].copy_from_slice(&DONT_FRAGMENT.to_be_bytes());
                to[8..10].copy_from_slice(&hops_and_protocol.to_be_bytes());
                to[10..12].copy_from_slice(&checksum.to_be_bytes());
                to[12..16].copy_from_slice(&source.octets());
                to[16..20].copy_from_slice(&dest.octets());
            }
            (source, dest) => {
                let body = self.body_bytes.min(0xffff) as u16;
                to[..4].copy_from_slice(&[0x60, self.ecn.bits() << 4, 0, 0]);
                to[4..8].copy_from_slice(&[(body >> 8) as u8, body as u8, self.protocol, HOPS]);
                to[8..24].copy_from_slice(&octets_v6(source));
                to[24..40].copy_from_slice(&octets_v6(dest));
            }
        }
    }

    /// The sum over the pseudo-header (RFC 9293 §3.1).
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

const DONT_FRAGMENT: u16 = 0x4000;
/// Time to live and hop limit: the value RFC 1700 recommends.
const HOPS: u8 = 64;
