//! Parser of a captured frame into a [`Segment`]: link layer, IP with its extension headers, TCP
//! with options.
//!
//! No checksum is verified: at a host that offloads checksums they are wrong by design. Nothing is
//! reassembled: a fragment is counted and skipped, except the first fragment of a tunnel's packet.

use std::net::{Ipv4Addr, Ipv6Addr};

use crate::links::{self, Link, LinkPayload, be16};
use crate::segment::{Endpoint, Host, Options, PacketDirection, Segment, Skipped, flag};
use crate::tunnels::{self, DEPTH_MOST, Tunnel, TunnelPayload};

/// Parses the segment in a captured frame. `wire_len`: length of the frame before it was cut,
/// bytes. `None` if the frame holds no segment; the reason is counted in `skipped`.
pub fn segment(
    link: Link,
    frame: &[u8],
    wire_len: u32,
    at_ns: u64,
    skipped: &mut Skipped,
) -> Option<Segment> {
    let mut found = Segment::unset();
    segment_into(link, frame, wire_len, at_ns, skipped, &mut found)?;
    Some(found)
}

/// Parses the segment in a captured frame into `found`, and sets all its fields but `frame`. `None` if the frame holds no
/// segment: `found` then has parts of it, or of the segment before.
// In place: a segment made elsewhere and then copied waits for its own stores, 7 % of all time.
#[inline(always)]
pub(crate) fn segment_into(
    link: Link,
    frame: &[u8],
    wire_len: u32,
    at_ns: u64,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    found.at_ns = Some(at_ns);
    (found.interface, found.direction, found.tunnel) = (0, PacketDirection::Unknown, None);
    // Form of nearly every packet: the offsets of its fields are known, and one check of its length
    // is enough for all of them.
    if link == Link::Ethernet
        && let Some(head) = frame.first_chunk::<PLAIN_HEADERS>()
        && head[12..15] == [8, 0, 0x45]
        && head[20] & 0x3f | head[21] == 0
        && head[23] == PROTOCOL_TCP
        && let Some(ip) = head[14..].first_chunk()
    {
        let wire = wire_len.saturating_sub(14);
        return ipv4_tcp(&frame[14..], ip, 20, wire, skipped, found);
    }
    behind_link(link, frame, wire_len, skipped, found)
}

/// Length of the headers of Ethernet, IPv4 and TCP without options, bytes.
const PLAIN_HEADERS: usize = 14 + 20 + 20;

/// Parses the segment in a frame of any link type.
#[inline(never)]
fn behind_link(
    link: Link,
    frame: &[u8],
    wire_len: u32,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    let ip_at = match links::find(link, frame) {
        LinkPayload::Ip(at) => at,
        LinkPayload::NotIp => {
            let reason = match link {
                Link::Unknown(_) => &mut skipped.link_unknown,
                _ => &mut skipped.not_ip,
            };
            *reason += 1;
            return None;
        }
        LinkPayload::Cut => {
            skipped.headers_cut += 1;
            return None;
        }
    };
    let Some(ip) = frame.get(ip_at..) else {
        skipped.headers_cut += 1;
        return None;
    };
    let ip_wire = wire_len.saturating_sub(ip_at as u32);
    datagram(ip, ip_wire, 0, skipped, found)?;
    match link {
        Link::Cooked1 => found.direction = direction(frame),
        Link::Cooked2 => found.interface = be16(frame, 6).map_or(0, u32::from),
        _ => {}
    }
    Some(())
}

#[inline]
fn datagram(
    ip: &[u8],
    ip_wire: u32,
    depth: u8,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    match ip.first().map(|byte| byte >> 4) {
        Some(4) => ipv4(ip, ip_wire, depth, skipped, found),
        Some(6) => ipv6(ip, ip_wire, depth, skipped, found),
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

/// Parses the segment within a tunnel. `protocol` is that of the outer packet, `rest` its payload.
#[cold]
fn within(
    protocol: u8,
    rest: &[u8],
    wire: u32,
    depth: u8,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    let inner = tunnels::inner(protocol, rest).filter(|_| depth < DEPTH_MOST);
    let Some(TunnelPayload::Ip(tunnel, at)) = inner else {
        skipped.not_tcp += 1;
        return None;
    };
    let Some(ip) = rest.get(at..) else {
        skipped.headers_cut += 1;
        return None;
    };
    let wire = wire.saturating_sub(at as u32);
    datagram(ip, wire, depth + 1, skipped, found)?;
    // If tunnels are nested, the innermost one is named.
    found.tunnel = found.tunnel.or(Some(tunnel));
    Some(())
}

/// Way of a packet in Linux cooked capture, version 1, from its first two bytes: 4 means sent by
/// this host.
fn direction(frame: &[u8]) -> PacketDirection {
    match be16(frame, 0) {
        Some(4) => PacketDirection::Out,
        Some(0) => PacketDirection::In,
        _ => PacketDirection::Unknown,
    }
}

const PROTOCOL_TCP: u8 = 6;

#[inline]
fn ipv4(
    ip: &[u8],
    ip_wire: u32,
    depth: u8,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    let Some(head) = ip.first_chunk::<20>() else {
        skipped.headers_cut += 1;
        return None;
    };
    // More fragments, or an offset.
    let is_fragment = u16::from_be_bytes([head[6], head[7]]) & 0x3fff != 0;
    let header = usize::from(head[0] & 15) * 4;
    if head[9] != PROTOCOL_TCP {
        return ipv4_other(ip, head, is_fragment, ip_wire, depth, skipped, found);
    }
    if is_fragment {
        skipped.fragments += 1;
        return None;
    }
    ipv4_tcp(ip, head, header, ip_wire, skipped, found)
}

/// Handles an IPv4 packet of another protocol, which may carry TCP.
#[cold]
fn ipv4_other(
    ip: &[u8],
    head: &[u8; 20],
    is_fragment: bool,
    ip_wire: u32,
    depth: u8,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    let mut header = usize::from(head[0] & 15) * 4;
    let mut protocol = head[9];
    // The first fragment of a tunnel's packet has the inner headers, and those give the lengths.
    let is_first = u16::from_be_bytes([head[6], head[7]]) & 0x1fff == 0;
    let mut rest = ip.get(header..).filter(|_| is_first).unwrap_or_default();
    let is_authenticated = protocol == 51;
    if let Some(TunnelPayload::Protocol(next, length)) = tunnels::inner(protocol, rest) {
        (protocol, header) = (next, header + length);
        rest = rest.get(length..).unwrap_or_default();
    }
    if protocol != PROTOCOL_TCP || !is_authenticated {
        let wire = ip_wire.saturating_sub(header as u32);
        return within(protocol, rest, wire, depth, skipped, found);
    }
    if is_fragment {
        skipped.fragments += 1;
        return None;
    }
    ipv4_tcp(ip, head, header, ip_wire, skipped, found)?;
    found.tunnel = Some(Tunnel::AuthenticationHeader);
    Some(())
}

/// Parses the TCP segment after IP headers of `header` bytes in all.
#[inline(always)]
fn ipv4_tcp(
    ip: &[u8],
    head: &[u8; 20],
    header: usize,
    ip_wire: u32,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    // The length field is 0 in a super-segment longer than 64 KiB (BIG TCP), and in packets that
    // some drivers segment.
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
    tcp(ip, header, octets, id, hosts, skipped, found)
}

fn ipv6(
    ip: &[u8],
    ip_wire: u32,
    depth: u8,
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
    let Some(head) = ip.first_chunk::<40>() else {
        skipped.headers_cut += 1;
        return None;
    };
    // 0: a jumbogram (RFC 2675, BIG TCP).
    let octets = match u16::from_be_bytes([head[4], head[5]]) {
        0 => ip_wire,
        length => u32::from(length) + 40,
    };
    let Upper {
        protocol,
        at,
        is_fragment,
    } = after_extensions(ip, head[6], skipped)?;
    if protocol != PROTOCOL_TCP {
        let rest = ip.get(at..).unwrap_or_default();
        let wire = ip_wire.saturating_sub(at as u32);
        return within(protocol, rest, wire, depth, skipped, found);
    }
    if is_fragment {
        skipped.fragments += 1;
        return None;
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
        skipped,
        found,
    )
}

/// Header after the extension headers of IPv6.
struct Upper {
    protocol: u8,
    at: usize,
    /// True for the first of several fragments.
    is_fragment: bool,
}

/// Finds the header after the extension headers, of which the first has the number `protocol`.
/// `None` for a later fragment, or if a header is cut.
#[inline(always)]
fn after_extensions(ip: &[u8], mut protocol: u8, skipped: &mut Skipped) -> Option<Upper> {
    let mut at = 40;
    let mut is_fragment = false;
    loop {
        let length = match protocol {
            // Hop-by-hop, routing, destination options, mobility: length in units of 8, without the
            // first 8.
            0 | 43 | 60 | 135 => ip.get(at + 1).map(|units| usize::from(*units) * 8 + 8),
            // Authentication header: length in units of 4, minus 2.
            51 => ip.get(at + 1).map(|units| usize::from(*units) * 4 + 8),
            // An atomic fragment (RFC 6946) is a whole datagram; a first fragment may be a
            // tunnel's.
            44 => match be16(ip, at + 2) {
                Some(offset) if offset & 0xfff8 != 0 => {
                    skipped.fragments += 1;
                    return None;
                }
                Some(more) => {
                    is_fragment |= more & 1 != 0;
                    Some(8)
                }
                None => None,
            },
            _ => {
                return Some(Upper {
                    protocol,
                    at,
                    is_fragment,
                });
            }
        };
        let (Some(length), Some(&following)) = (length, ip.get(at)) else {
            skipped.headers_cut += 1;
            return None;
        };
        protocol = following;
        at += length;
    }
}

#[inline(always)]
fn tcp(
    ip: &[u8],
    at: usize,
    ip_octets: u32,
    (ip_id, hop_limit): (u16, u8),
    (source, destination): (Host, Host),
    skipped: &mut Skipped,
    found: &mut Segment,
) -> Option<()> {
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
    let be16_at = |at: usize| u16::from_be_bytes([head[at], head[at + 1]]);
    let be32_at =
        |at: usize| u32::from_be_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    let end = |host, at| Endpoint {
        host,
        port: be16_at(at),
    };
    (found.source, found.destination) = (end(source, 0), end(destination, 2));
    (found.seq, found.ack, found.window) = (Some(be32_at(4)), be32_at(8), be16_at(14));
    found.flags = head[13];
    (found.ip_id, found.hop_limit) = (ip_id, hop_limit);
    (found.ip_octets, found.payload) = (ip_octets, ip_octets - headers);
    let options = &tcp[20..header.min(tcp.len())];
    found.options = Options {
        complete: header <= tcp.len(),
        ..Options::default()
    };
    // Options of nearly every segment: NOP NOP timestamps, or none.
    if let Some(&[1, 1, 8, 10, a, b, c, d, e, f, g, h]) = options.first_chunk()
        && options.len() == 12
    {
        let value = u32::from_be_bytes([a, b, c, d]);
        found.options.timestamps = Some((value, u32::from_be_bytes([e, f, g, h])));
    } else if !options.is_empty() {
        any_options(options, found.flags & flag::SYN != 0, &mut found.options);
    }
    Some(())
}

#[cold]
fn any_options(mut bytes: &[u8], syn: bool, options: &mut Options) {
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
}

#[cfg(test)]
mod tests;
