//! ICMP (RFC 792) and ICMPv6 (RFC 4443) errors about segments of ours.
//!
//! Not implemented: redirects, source quench (RFC 6633: must be ignored), the plateau table for
//! routers that do not report their MTU (RFC 1191 §7.1).

use std::net::{IpAddr, SocketAddr};

use super::ip::IpHeader;
use super::packet::TCP;
use super::{FourTuple, Packet, Sum};
use crate::SeqNum;

/// Error about one of our segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Icmp {
    /// Connection of the segment.
    pub path: FourTuple,
    /// SEG.SEQ of the segment.
    pub seq: SeqNum,
    pub says: IcmpSays,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IcmpSays {
    /// The packet was too big (RFC 1191 §4, RFC 4443 §3.2). Holds the MTU of the next hop in bytes,
    /// including headers.
    TooBig(u32),
    Unreachable(Unreachable),
}

/// Reason why a segment did not arrive, reported by the host or router that dropped it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// No route to the network, or the hop limit was exceeded.
    Network,
    /// No host answers at the address.
    Host,
    /// The host has no TCP.
    Protocol,
    /// No process listens on the port.
    Port,
    /// A filter forbids the packet.
    Prohibited,
}

impl IcmpSays {
    fn read(protocol: u8, icmp: &[u8; 8]) -> Option<Self> {
        use Unreachable::{Host, Network, Port, Prohibited, Protocol};
        let says = match (protocol, icmp) {
            (ICMP, &[3, 4, _, _, _, _, a, b]) => {
                return Some(Self::TooBig(u16::from_be_bytes([a, b]).into()));
            }
            (ICMPV6, &[2, _, _, _, a, b, c, d]) => {
                return Some(Self::TooBig(u32::from_be_bytes([a, b, c, d])));
            }
            // RFC 792; RFC 1122 §3.2.2.1 for later codes.
            (ICMP, &[3, code, ..]) => match code {
                0 | 6 | 11 => Network,
                1 | 5 | 7 | 8 | 12 => Host,
                2 => Protocol,
                3 => Port,
                9 | 10 | 13..=15 => Prohibited,
                _ => return None,
            },
            (ICMP, &[11, 0, ..]) | (ICMPV6, &[3, 0, ..]) => Network,
            (ICMPV6, &[1, code, ..]) => match code {
                0 => Network,
                1 | 5 | 6 => Prohibited,
                2 | 3 => Host,
                4 => Port,
                _ => return None,
            },
            // Code 1: unrecognized next header.
            (ICMPV6, &[4, 1, ..]) => Protocol,
            _ => return None,
        };
        Some(Self::Unreachable(says))
    }
}

/// Reads an ICMP error; `None` for other messages, a wrong checksum, or an error not about TCP.
pub(crate) fn parse_icmp(packet: &Packet) -> Option<Icmp> {
    let head = packet.head();
    let ip = IpHeader::parse(head, packet.len()).ok()?;
    let icmp = head.get(ip.header_bytes..ip.header_bytes + ip.body_bytes)?;
    let says = IcmpSays::read(ip.protocol, icmp.first_chunk()?)?;
    let sum = if ip.protocol == ICMPV6 {
        ip.pseudo_sum()
    } else {
        Sum::new()
    };
    if !sum.add_bytes(icmp).is_valid() {
        return None;
    }
    // The start of the dropped packet: its IP header and at least eight bytes of TCP.
    let inner = &icmp[8..];
    let inner_ip = IpHeader::parse_quoted(inner).ok()?;
    let tcp: &[u8; 8] = inner.get(inner_ip.header_bytes..)?.first_chunk()?;
    if inner_ip.protocol != TCP {
        return None;
    }
    let end =
        |ip: IpAddr, at: usize| SocketAddr::new(ip, u16::from_be_bytes([tcp[at], tcp[at + 1]]));
    Some(Icmp {
        path: FourTuple {
            local: end(inner_ip.source, 0),
            remote: end(inner_ip.dest, 2),
        },
        seq: SeqNum::new(u32::from_be_bytes([tcp[4], tcp[5], tcp[6], tcp[7]])),
        says,
    })
}

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_type_and_code_says() {
        let check = |protocol, kind, code, says| {
            let read = IcmpSays::read(protocol, &[kind, code, 0, 0, 0, 0, 5, 220]);
            assert_eq!(read, says, "{protocol} {kind} {code}");
        };
        let unreachable = |why| Some(IcmpSays::Unreachable(why));
        check(ICMP, 3, 0, unreachable(Unreachable::Network));
        check(ICMP, 3, 1, unreachable(Unreachable::Host));
        check(ICMP, 3, 2, unreachable(Unreachable::Protocol));
        check(ICMP, 3, 3, unreachable(Unreachable::Port));
        check(ICMP, 3, 4, Some(IcmpSays::TooBig(1500)));
        check(ICMP, 3, 13, unreachable(Unreachable::Prohibited));
        check(ICMP, 11, 0, unreachable(Unreachable::Network));
        check(ICMP, 4, 0, None);
        check(ICMP, 5, 1, None);
        check(ICMPV6, 1, 0, unreachable(Unreachable::Network));
        check(ICMPV6, 1, 3, unreachable(Unreachable::Host));
        check(ICMPV6, 1, 4, unreachable(Unreachable::Port));
        check(ICMPV6, 2, 0, Some(IcmpSays::TooBig(1500)));
        check(ICMPV6, 3, 1, None);
        check(ICMPV6, 4, 1, unreachable(Unreachable::Protocol));
    }
}
