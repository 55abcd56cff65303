//! A captured frame to a [`Segment`]: link layer, IP with its extension headers, TCP with options.
//!
//! No checksum is verified: at a host that offloads them they are wrong by design. Nothing is
//! reassembled: a fragment is counted and left out.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::links::{self, Found, be16};
use crate::segment::{Endpoint, Host, Options, Segment, Skipped, Way, flag};
use crate::tunnels::{self, DEPTH_MOST, Inner, Tunnel};

/// Link types that are read, with the numbers of libpcap's LINKTYPE_ registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// 1: Ethernet, with any number of VLAN tags, MPLS labels, PPPoE or LLC/SNAP.
    Ethernet,
    /// 0 and 108: the four-byte family of BSD's loopback.
    Null,
    /// 12, 14, 101, 228, 229: IP and nothing before it.
    Raw,
    /// 113: Linux cooked, version 1.
    Cooked1,
    /// 276: Linux cooked, version 2.
    Cooked2,
    /// 9 and 50: PPP.
    Ppp,
    /// 51: PPPoE without Ethernet.
    PppPppoe,
    /// 105: 802.11, data that are not encrypted.
    Wireless,
    /// 127: the same behind radiotap's header.
    Radiotap,
    /// 239: Linux's NFLOG.
    NetfilterLog,
    /// 242: IP over InfiniBand.
    InfiniBand,
    /// Another one, by its number; its packets are counted and left out.
    Unknown(u32),
}

impl Link {
    /// The link type of a LINKTYPE_ number.
    pub fn from_number(number: u32) -> Link {
        match number {
            1 => Link::Ethernet,
            0 | 108 => Link::Null,
            9 | 50 => Link::Ppp,
            12 | 14 | 101 | 228 | 229 => Link::Raw,
            51 => Link::PppPppoe,
            105 => Link::Wireless,
            113 => Link::Cooked1,
            127 => Link::Radiotap,
            239 => Link::NetfilterLog,
            242 => Link::InfiniBand,
            276 => Link::Cooked2,
            _ => Link::Unknown(number),
        }
    }
}

/// The segment in a captured frame. `wire_len` is the frame's length before it was cut. What is no
/// segment is counted in `skipped`.
#[inline]
pub fn segment(
    link: Link,
    frame: &[u8],
    wire_len: u32,
    at_ns: u64,
    skipped: &mut Skipped,
) -> Option<Segment> {
    let is_plain = link == Link::Ethernet && frame.get(12..14) == Some(&[8, 0]);
    let found = if is_plain {
        Found::Ip(14)
    } else {
        links::find(link, frame)
    };
    let ip_at = match found {
        Found::Ip(at) => at,
        Found::NotIp => {
            let reason = match link {
                Link::Unknown(_) => &mut skipped.link_unknown,
                _ => &mut skipped.not_ip,
            };
            *reason += 1;
            return None;
        }
        Found::Cut => {
            skipped.headers_cut += 1;
            return None;
        }
    };
    let Some(ip) = frame.get(ip_at..) else {
        skipped.headers_cut += 1;
        return None;
    };
    let ip_wire = wire_len.saturating_sub(ip_at as u32);
    let found = datagram(ip, ip_wire, at_ns, 0, skipped);
    match link {
        // A segment that is changed is copied: 5 % of all instructions.
        Link::Cooked1 | Link::Cooked2 => found.map(|mut segment| {
            if link == Link::Cooked1 {
                segment.way = way(frame);
            } else {
                segment.interface = be16(frame, 6).map_or(0, u32::from);
            }
            segment
        }),
        _ => found,
    }
}

#[inline]
fn datagram(
    ip: &[u8],
    ip_wire: u32,
    at_ns: u64,
    depth: u8,
    skipped: &mut Skipped,
) -> Option<Segment> {
    match ip.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(ip, ip_wire, at_ns, depth, skipped),
        Some(6) => ipv6(ip, ip_wire, at_ns, depth, skipped),
        Some(_) => {
            skipped.not_ip += 1;
            None
        }
        None => {
            skipped.headers_cut += 1;
            None
        }
    }
}

/// The segment within a tunnel, behind an IP header whose packet has this protocol.
#[cold]
fn within(
    protocol: u8,
    rest: &[u8],
    wire: u32,
    at_ns: u64,
    depth: u8,
    skipped: &mut Skipped,
) -> Option<Segment> {
    let inner = tunnels::inner(protocol, rest).filter(|_| depth < DEPTH_MOST);
    let Some(Inner::Ip(tunnel, at)) = inner else {
        skipped.not_tcp += 1;
        return None;
    };
    let Some(ip) = rest.get(at..) else {
        skipped.headers_cut += 1;
        return None;
    };
    let wire = wire.saturating_sub(at as u32);
    let mut segment = datagram(ip, wire, at_ns, depth + 1, skipped)?;
    // Of tunnels within tunnels the innermost is named.
    segment.tunnel = segment.tunnel.or(Some(tunnel));
    Some(segment)
}

/// The way that the first two bytes of Linux cooked, version 1, tell: 4 is what this host sent.
fn way(frame: &[u8]) -> Way {
    match be16(frame, 0) {
        Some(4) => Way::Out,
        Some(0) => Way::In,
        _ => Way::Unknown,
    }
}

const PROTOCOL_TCP: u8 = 6;

#[inline]
fn ipv4(ip: &[u8], ip_wire: u32, at_ns: u64, depth: u8, skipped: &mut Skipped) -> Option<Segment> {
    let Some(head) = ip.first_chunk::<20>() else {
        skipped.headers_cut += 1;
        return None;
    };
    // More fragments, or an offset.
    let is_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    let header = usize::from(head[0] & 15) * 4;
    if head[9] != PROTOCOL_TCP {
        return ipv4_other(ip, head, is_fragment, ip_wire, at_ns, depth, skipped);
    }
    if is_fragment {
        skipped.fragments += 1;
        return None;
    }
    ipv4_tcp(ip, head, header, ip_wire, at_ns, skipped)
}

/// A protocol that may carry TCP.
#[cold]
fn ipv4_other(
    ip: &[u8],
    head: &[u8; 20],
    is_fragment: bool,
    ip_wire: u32,
    at_ns: u64,
    depth: u8,
    skipped: &mut Skipped,
) -> Option<Segment> {
    let mut header = usize::from(head[0] & 15) * 4;
    let mut protocol = head[9];
    let mut rest = ip
        .get(header..)
        .filter(|_| !is_fragment)
        .unwrap_or_default();
    let is_authenticated = protocol == 51;
    if let Some(Inner::Protocol(next, length)) = tunnels::inner(protocol, rest) {
        (protocol, header) = (next, header + length);
        rest = rest.get(length..).unwrap_or_default();
    }
    if protocol != PROTOCOL_TCP || !is_authenticated {
        let wire = ip_wire.saturating_sub(header as u32);
        return within(protocol, rest, wire, at_ns, depth, skipped);
    }
    if is_fragment {
        skipped.fragments += 1;
        return None;
    }
    let mut segment = ipv4_tcp(ip, head, header, ip_wire, at_ns, skipped)?;
    segment.tunnel = Some(Tunnel::AuthenticationHeader);
    Some(segment)
}

/// The segment behind this header, or behind more of this length in all.
#[inline]
fn ipv4_tcp(
    ip: &[u8],
    head: &[u8; 20],
    header: usize,
    ip_wire: u32,
    at_ns: u64,
    skipped: &mut Skipped,
) -> Option<Segment> {
    // 0 stands in a super-segment beyond 64 KiB (BIG TCP) and in what some drivers segment.
    let octets = match u16::from_be_bytes([head[2], head[3]]) {
        0 => ip_wire,
        length => u32::from(length),
    };
    if header < 20 || octets < header as u32 {
        skipped.malformed += 1;
        return None;
    }
    let address = |at: usize| {
        Host::from(Ipv4Addr::new(
            head[at],
            head[at + 1],
            head[at + 2],
            head[at + 3],
        ))
    };
    let id = (u16::from_be_bytes([head[4], head[5]]), head[8]);
    let hosts = (address(12), address(16));
    tcp(ip, header, octets, id, hosts, at_ns, skipped)
}

fn ipv6(ip: &[u8], ip_wire: u32, at_ns: u64, depth: u8, skipped: &mut Skipped) -> Option<Segment> {
    let Some(head) = ip.first_chunk::<40>() else {
        skipped.headers_cut += 1;
        return None;
    };
    // 0: a jumbogram (RFC 2675, BIG TCP).
    let octets = match u16::from_be_bytes([head[4], head[5]]) {
        0 => ip_wire,
        length => u32::from(length) + 40,
    };
    let mut next = head[6];
    let mut at = 40;
    while next != PROTOCOL_TCP {
        let length = match next {
            // Hop-by-hop, routing, destination options, mobility: in units of 8 after the first.
            0 | 43 | 60 | 135 => ip.get(at + 1).map(|units| usize::from(*units) * 8 + 8),
            // Authentication: in units of 4, less 2.
            51 => ip.get(at + 1).map(|units| usize::from(*units) * 4 + 8),
            44 => {
                // An atomic fragment (RFC 6946) is a whole datagram.
                match be16(ip, at + 2) {
                    Some(offset) if offset & 0xfff9 != 0 => {
                        skipped.fragments += 1;
                        return None;
                    }
                    Some(_) => Some(8),
                    None => None,
                }
            }
            _ => {
                let rest = ip.get(at..).unwrap_or_default();
                let wire = ip_wire.saturating_sub(at as u32);
                return within(next, rest, wire, at_ns, depth, skipped);
            }
        };
        let (Some(length), Some(&following)) = (length, ip.get(at)) else {
            skipped.headers_cut += 1;
            return None;
        };
        next = following;
        at += length;
    }
    let address = |at: usize| {
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&head[at..at + 16]);
        Host::from(Ipv6Addr::from(bytes))
    };
    let id = (0, head[7]);
    tcp(
        ip,
        at,
        octets,
        id,
        (address(8), address(24)),
        at_ns,
        skipped,
    )
}

#[inline(always)]
fn tcp(
    ip: &[u8],
    at: usize,
    ip_octets: u32,
    (ip_id, hop_limit): (u16, u8),
    (source, destination): (Host, Host),
    at_ns: u64,
    skipped: &mut Skipped,
) -> Option<Segment> {
    let Some((tcp, head)) = ip
        .get(at..)
        .and_then(|tcp| Some((tcp, tcp.first_chunk::<20>()?)))
    else {
        skipped.headers_cut += 1;
        return None;
    };
    let header = usize::from(head[12] >> 4) * 4;
    let headers = (at + header) as u32;
    if header < 20 || ip_octets < headers {
        skipped.malformed += 1;
        return None;
    }
    let be32 = |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let end = |host, at: usize| Endpoint {
        host,
        port: u16::from_be_bytes([head[at], head[at + 1]]),
    };
    let held = header.min(tcp.len());
    Some(Segment {
        at_ns: Some(at_ns),
        source: end(source, 0),
        destination: end(destination, 2),
        seq: Some(be32(4)),
        ack: be32(8),
        window: u16::from_be_bytes([head[14], head[15]]),
        flags: head[13],
        ip_id,
        hop_limit,
        interface: 0,
        way: Way::Unknown,
        tunnel: None,
        frame: 0,
        payload: ip_octets - headers,
        ip_octets,
        options: options(&tcp[20..held], held == header, head[13] & flag::SYN != 0),
    })
}

#[inline(always)]
fn options(bytes: &[u8], complete: bool, syn: bool) -> Options {
    let none = Options {
        complete,
        ..Options::default()
    };
    // What nearly every segment has: nothing, or NOP NOP timestamps.
    match bytes.first_chunk::<12>() {
        _ if bytes.is_empty() => none,
        Some(&[1, 1, 8, 10, a, b, c, d, e, f, g, h]) if bytes.len() == 12 => Options {
            timestamps: Some((
                u32::from_be_bytes([a, b, c, d]),
                u32::from_be_bytes([e, f, g, h]),
            )),
            ..none
        },
        _ => any_options(bytes, none, syn),
    }
}

#[cold]
fn any_options(mut bytes: &[u8], mut options: Options, syn: bool) -> Options {
    let be32 = |value: &[u8]| u32::from_be_bytes([value[0], value[1], value[2], value[3]]);
    while let Some((&kind, rest)) = bytes.split_first() {
        match kind {
            0 => break,
            1 => {
                bytes = rest;
                continue;
            }
            _ => {}
        }
        let Some(value) = rest
            .first()
            .and_then(|&length| bytes.get(2..usize::from(length)))
        else {
            break;
        };
        match (kind, value.len()) {
            (2, 2) if syn => options.mss = Some(u16::from_be_bytes([value[0], value[1]])),
            (3, 1) if syn => options.window_scale = Some(value[0].min(14)),
            (4, 0) if syn => options.sack_permitted = true,
            (5, length) if length % 8 == 0 => {
                options.sack_blocks = (length / 8) as u8;
                for (block, kept) in value.chunks_exact(8).zip(&mut options.sack) {
                    *kept = (be32(block), be32(&block[4..]));
                }
            }
            (8, 8) => options.timestamps = Some((be32(value), be32(&value[4..]))),
            _ => {}
        }
        bytes = &bytes[2 + value.len()..];
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// IPv4 and TCP headers with these options before a payload of `payload` bytes.
    fn ipv4_tcp(options: &[u8], payload: u16) -> Vec<u8> {
        let header = 20 + options.len();
        let total = (20 + header) as u16 + payload;
        let mut ip = vec![0x45, 0];
        ip.extend(total.to_be_bytes());
        ip.extend([0, 7, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
        ip.extend([
            0x30,
            0x39,
            0,
            80,
            0,
            0,
            0,
            5,
            0,
            0,
            0,
            9,
            (header as u8 / 4) << 4,
            0x18,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        ip.extend(options);
        ip
    }

    fn read(link: Link, frame: &[u8]) -> (Option<Segment>, Skipped) {
        let mut skipped = Skipped::default();
        let wire = frame.len() as u32 + 1000;
        (segment(link, frame, wire, 1, &mut skipped), skipped)
    }

    fn framed(before: &[u8], ip: &[u8]) -> Vec<u8> {
        [before, ip].concat()
    }

    #[test]
    fn every_link_type_leads_to_the_same_segment() {
        let ip = ipv4_tcp(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0, 0, 2], 1000);
        let (expected, _) = read(Link::Raw, &ip);
        let segment = expected.unwrap();
        assert_eq!((segment.payload, segment.ip_octets), (1000, 1052));
        assert_eq!(segment.options.timestamps, Some((1, 2)));
        assert_eq!((segment.source.port, segment.destination.port), (12345, 80));
        let ether = [0; 12];
        for (link, before) in [
            (Link::Ethernet, [&ether[..], &[8, 0]].concat()),
            (
                Link::Ethernet,
                [&ether[..], &[0x81, 0, 0, 5, 8, 0]].concat(),
            ),
            (
                Link::Ethernet,
                [&ether[..], &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 8, 0]].concat(),
            ),
            (Link::Null, vec![2, 0, 0, 0]),
            // Neither in nor out: to all.
            (Link::Cooked1, [&[0, 1][..], &[0; 12], &[8, 0]].concat()),
            (Link::Cooked2, [&[8, 0][..], &[0; 18]].concat()),
            (
                Link::Ethernet,
                [&ether[..], &[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]].concat(),
            ),
            (
                Link::Ethernet,
                [&ether[..], &[0x88, 0x64, 0x11, 0, 0, 1, 0, 99, 0, 0x21]].concat(),
            ),
            (
                Link::Ethernet,
                [&ether[..], &[0, 99, 0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
            ),
            (Link::Ppp, vec![0xff, 3, 0, 0x21]),
            (Link::Ppp, vec![0x21]),
            (
                Link::Wireless,
                [&[0x88, 1][..], &[0; 24], &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0]].concat(),
            ),
            (
                Link::Radiotap,
                [
                    &[0, 0, 8, 0, 0, 0, 0, 0, 8, 2][..],
                    &[0; 22],
                    &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0],
                ]
                .concat(),
            ),
            (
                Link::NetfilterLog,
                vec![2, 0, 0, 0, 8, 0, 1, 0, 0, 8, 1, 0, 0x30, 4, 9, 0],
            ),
            (Link::InfiniBand, [&[0; 40][..], &[8, 0, 0, 0]].concat()),
            (Link::InfiniBand, vec![8, 0, 0, 0]),
        ] {
            let (found, skipped) = read(link, &framed(&before, &ip));
            assert_eq!((found, skipped.total()), (expected, 0), "{link:?}");
        }
    }

    #[test]
    fn tunnels_are_looked_into_and_named() {
        let ip = ipv4_tcp(&[], 1000);
        let plain = read(Link::Raw, &ip).0.unwrap();
        let ethernet = [&[0; 12][..], &[8, 0]].concat();
        let udp =
            |port: u16, rest: &[u8]| [&[9, 9][..], &port.to_be_bytes(), &[0; 4], rest].concat();
        let vxlan = udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &ethernet].concat());
        let geneve = udp(
            6081,
            &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 9, 9, 9, 0][..], &ethernet].concat(),
        );
        let gtp = udp(
            2152,
            &[0x34, 255, 0, 9, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0],
        );
        let erspan = [&[0x10, 0, 0x88, 0xbe, 0, 0, 0, 1][..], &[0; 8], &ethernet].concat();
        for (tunnel, protocol, between) in [
            (Tunnel::Ipip, 4, vec![]),
            (Tunnel::Gre, 47, vec![0x20, 0, 8, 0, 0, 0, 0, 7]),
            (
                Tunnel::Gre,
                47,
                [&[0, 0, 0x65, 0x58][..], &ethernet].concat(),
            ),
            (
                Tunnel::Gre,
                47,
                vec![
                    0x30, 0x81, 0x88, 0x0b, 0, 9, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 0x21,
                ],
            ),
            (Tunnel::Erspan, 47, erspan),
            (Tunnel::Vxlan, 17, vxlan),
            (Tunnel::Geneve, 17, geneve),
            (Tunnel::GtpU, 17, gtp),
        ] {
            let mut outer = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol, 0, 0];
            outer.extend([192, 168, 0, 1, 192, 168, 0, 2]);
            outer.extend(&between);
            outer.extend(&ip);
            let length = outer.len() as u16 + 1000;
            outer[2..4].copy_from_slice(&length.to_be_bytes());
            let (found, skipped) = read(Link::Raw, &outer);
            let named = Segment {
                tunnel: Some(tunnel),
                ..plain
            };
            assert_eq!((found, skipped.total()), (Some(named), 0), "{tunnel:?}");
        }
        // IPv6 in IPv4, and an authentication header in IPv4.
        let mut six = vec![0x60, 0, 0, 0, 0, 20 + 50, 6, 64];
        six.extend([0; 32]);
        six.extend(&ip[20..]);
        let mut outer = ipv4_tcp(&[], 0)[..20].to_vec();
        outer[9] = 41;
        let found = read(Link::Raw, &framed(&outer, &six)).0.unwrap();
        assert_eq!((found.payload, found.tunnel), (50, Some(Tunnel::SixInFour)));
        let mut authenticated = ip[..20].to_vec();
        authenticated[9] = 51;
        authenticated.extend([6, 4]);
        authenticated.extend([0; 22]);
        authenticated.extend(&ip[20..]);
        let length = 20 + 24 + 20 + 1000u16;
        authenticated[2..4].copy_from_slice(&length.to_be_bytes());
        let found = read(Link::Raw, &authenticated).0.unwrap();
        assert_eq!(
            (found.payload, found.tunnel),
            (1000, Some(Tunnel::AuthenticationHeader))
        );
    }

    #[test]
    fn extension_headers_are_passed_over_and_fragments_counted() {
        let tcp = &ipv4_tcp(&[], 0)[20..];
        let mut ip = vec![0x60, 0, 0, 0, 0, 8 + 8 + 20 + 50, 0, 64];
        ip.extend([0; 32]);
        ip.extend([44, 0, 0, 0, 0, 0, 0, 0]);
        ip.extend([6, 0, 0, 0, 0, 0, 0, 9]);
        let cut = ip.len();
        ip.extend(tcp);
        assert_eq!(read(Link::Raw, &ip).0.unwrap().payload, 50);
        ip[cut - 5] = 1;
        assert_eq!(read(Link::Raw, &ip).1.fragments, 1);
    }

    #[test]
    fn a_snap_length_that_cuts_the_options_is_noticed_and_one_that_cuts_headers_skips() {
        let ip = ipv4_tcp(&[2, 4, 5, 180, 1, 3, 3, 7], 0);
        assert!(read(Link::Raw, &ip).0.unwrap().options.complete);
        let cut = read(Link::Raw, &ip[..44]).0.unwrap();
        assert!(!cut.options.complete);
        let (none, skipped) = read(Link::Raw, &ip[..39]);
        assert_eq!((none, skipped.headers_cut), (None, 1));
    }

    #[test]
    fn a_length_field_of_zero_means_the_length_on_the_wire() {
        // BIG TCP: a super-segment of 190 wire segments, its headers as a snap length of 96 leaves them.
        const PAYLOAD: u32 = 190 * 1448;
        let big = |link, frame: &[u8], headers: u32| {
            let mut skipped = Skipped::default();
            let wire = frame.len() as u32 + PAYLOAD;
            let segment = segment(link, frame, wire, 1, &mut skipped).unwrap();
            assert_eq!((segment.payload, skipped.total()), (PAYLOAD, 0));
            assert_eq!(segment.ip_octets, headers + PAYLOAD);
        };
        let mut ip = ipv4_tcp(&[], 0);
        ip[2..4].fill(0);
        big(Link::Raw, &ip, 40);
        let vlan = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x81, 0, 0, 5, 8, 0];
        big(Link::Ethernet, &framed(&vlan, &ip), 40);
        // IPv6, with the jumbo payload option (RFC 2675), and without, as newer kernels.
        let tcp = &ip[20..];
        let mut jumbo = vec![0x60, 0, 0, 0, 0, 0, 0, 64];
        jumbo.extend([0; 32]);
        let mut bare = jumbo.clone();
        jumbo.extend([6, 0, 0xc2, 4]);
        jumbo.extend((PAYLOAD + 28).to_be_bytes());
        bare[6] = 6;
        big(Link::Raw, &framed(&jumbo, tcp), 68);
        big(Link::Raw, &framed(&bare, tcp), 60);
    }
}
