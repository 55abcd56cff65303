//! Tunnels whose inner connections are analysed.

use serde::Serialize;

use crate::links::{LinkPayload, be16, ethertype, mpls, ppp};

/// Tunnel that carried a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Tunnel {
    /// IP in IPv4 or IPv6 (RFC 2003, RFC 2473).
    Ipip,
    /// IPv6 in IPv4 or IPv6 (6in4, RFC 4213).
    SixInFour,
    /// GRE (RFC 2784) that carries IP, Ethernet, MPLS or PPTP's PPP.
    Gre,
    /// ERSPAN, types I to III.
    Erspan,
    /// Authentication header without encryption (RFC 4302).
    AuthenticationHeader,
    /// VXLAN (RFC 7348), also on Linux's older port.
    Vxlan,
    /// Geneve (RFC 8926).
    Geneve,
    /// GTP user data (3GPP TS 29.281).
    GtpU,
}

impl Tunnel {
    /// Name in a text.
    pub fn name(self) -> &'static str {
        match self {
            Tunnel::Ipip => "IPIP",
            Tunnel::SixInFour => "6in4",
            Tunnel::Gre => "GRE",
            Tunnel::Erspan => "ERSPAN",
            Tunnel::AuthenticationHeader => "AH",
            Tunnel::Vxlan => "VXLAN",
            Tunnel::Geneve => "Geneve",
            Tunnel::GtpU => "GTP-U",
        }
    }
}

/// Content of a tunnel's packet: an IP header at an offset after the outer one, or the header of
/// another protocol there.
pub(crate) enum TunnelPayload {
    Ip(Tunnel, usize),
    /// Protocol after an authentication header, in the same packet, with its offset.
    Protocol(u8, usize),
}

/// Limit of tunnels within tunnels that are read.
pub(crate) const DEPTH_MOST: u8 = 4;

/// Finds what a packet carries after its IP header. `None` if that is no known tunnel, or was cut.
pub(crate) fn inner(protocol: u8, payload: &[u8]) -> Option<TunnelPayload> {
    let ip = |tunnel, found| match found {
        LinkPayload::Ip(at) => Some(TunnelPayload::Ip(tunnel, at)),
        LinkPayload::NotIp | LinkPayload::Cut => None,
    };
    match protocol {
        4 => ip(Tunnel::Ipip, LinkPayload::Ip(0)),
        41 => ip(Tunnel::SixInFour, LinkPayload::Ip(0)),
        47 => {
            let (tunnel, found) = gre(payload)?;
            ip(tunnel, found)
        }
        51 => {
            let (&next, &length) = (payload.first()?, payload.get(1)?);
            Some(TunnelPayload::Protocol(next, usize::from(length) * 4 + 8))
        }
        17 => {
            let (tunnel, found) = udp(payload)?;
            ip(tunnel, found)
        }
        _ => None,
    }
}

fn gre(header: &[u8]) -> Option<(Tunnel, LinkPayload)> {
    let (flags, kind) = (be16(header, 0)?, be16(header, 2)?);
    let has = |bit: u16| usize::from(flags & bit != 0);
    let (checksum, key, sequence) = (has(0x8000), has(0x2000), has(0x1000));
    if flags & 7 == 1 {
        // GRE of PPTP always has a key, and may have an acknowledgment (RFC 2637).
        let at = 8 + 4 * (sequence + has(0x80));
        return Some((Tunnel::Gre, ppp(header, at)));
    }
    let at = 4 + 4 * (checksum.max(has(0x4000)) + key + sequence);
    Some(match kind {
        0x0800 | 0x86dd => (Tunnel::Gre, LinkPayload::Ip(at)),
        0x6558 => (Tunnel::Gre, ethertype(header, at + 12)),
        0x8847 | 0x8848 => (Tunnel::Gre, mpls(header, at)),
        0x880b => (Tunnel::Gre, ppp(header, at)),
        // Type I has no header of its own and no sequence number; type II has both.
        0x88be => (Tunnel::Erspan, ethertype(header, at + 8 * sequence + 12)),
        0x22eb => {
            let optional = usize::from(header.get(at + 11)? & 1) * 8;
            (Tunnel::Erspan, ethertype(header, at + 12 + optional + 12))
        }
        _ => return None,
    })
}

fn udp(header: &[u8]) -> Option<(Tunnel, LinkPayload)> {
    let ports = [be16(header, 0)?, be16(header, 2)?];
    match ports[1] {
        4789 | 8472 if header.get(8)? & 8 != 0 => {
            Some((Tunnel::Vxlan, ethertype(header, 8 + 8 + 12)))
        }
        6081 => {
            let at = 8 + 8 + usize::from(header.get(8)? & 63) * 4;
            let found = match be16(header, 10)? {
                0x0800 | 0x86dd => LinkPayload::Ip(at),
                0x6558 => ethertype(header, at + 12),
                _ => return None,
            };
            Some((Tunnel::Geneve, found))
        }
        2152 => gtp(header).map(|at| (Tunnel::GtpU, LinkPayload::Ip(at))),
        _ => None,
    }
}

/// Offset of the user's packet after UDP and GTP-U.
fn gtp(header: &[u8]) -> Option<usize> {
    const USER_PACKET: u8 = 255;
    let (flags, kind) = (*header.get(8)?, *header.get(9)?);
    // Version 1, and not GTP', which is for charging.
    if flags >> 4 != 3 || kind != USER_PACKET {
        return None;
    }
    let mut at = 8 + 8;
    if flags & 7 != 0 {
        at += 4;
        let mut next = if flags & 4 != 0 {
            *header.get(at - 1)?
        } else {
            0
        };
        while next != 0 {
            let length = usize::from(*header.get(at)?) * 4;
            if length == 0 {
                return None;
            }
            at += length;
            next = *header.get(at - 1)?;
        }
    }
    Some(at)
}
