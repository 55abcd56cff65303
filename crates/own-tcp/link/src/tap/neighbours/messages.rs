//! Messages of ARP (RFC 826) and neighbour discovery (RFC 4861 §4.3, §4.4), as bytes.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) type Mac = [u8; 6];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// Request for the link-layer address of `target`, from `sender` at `mac`. An unspecified
    /// `sender` tests whether `target` is in use (RFC 5227, RFC 4862).
    Request {
        target: IpAddr,
        sender: IpAddr,
        mac: Option<Mac>,
    },
    /// Report that `sender` is at `mac`.
    Reply {
        sender: IpAddr,
        mac: Mac,
        /// True if it answers a request.
        solicited: bool,
        /// True if it replaces a known address.
        replaces: bool,
    },
}

/// Reads the body of an ARP frame; `None` if malformed or of another kind.
pub(super) fn read_arp(body: &[u8]) -> Option<Message> {
    let body: &[u8; 28] = body.first_chunk()?;
    // Ethernet, IPv4, and address lengths.
    if body[..6] != [0, 1, 8, 0, 6, 4] {
        return None;
    }
    let ip = |at: usize| Ipv4Addr::new(body[at], body[at + 1], body[at + 2], body[at + 3]);
    let mac: Mac = body[8..14].try_into().ok()?;
    let (sender, target) = (ip(14), ip(24));
    match body[6..8] {
        // RFC 5227 §3: an announcement is a request for the sender's own address.
        [0, 1] if sender == target => Some(Message::Reply {
            sender: sender.into(),
            mac,
            solicited: false,
            replaces: true,
        }),
        [0, 1] => Some(Message::Request {
            target: target.into(),
            sender: sender.into(),
            mac: Some(mac),
        }),
        [0, 2] => Some(Message::Reply {
            sender: sender.into(),
            mac,
            solicited: sender != target,
            replaces: true,
        }),
        _ => None,
    }
}

/// Makes the body of an ARP frame; `None` if an address is not IPv4.
pub(super) fn arp(request: bool, from: (Mac, IpAddr), to: (Mac, IpAddr)) -> Option<Vec<u8>> {
    let (IpAddr::V4(sender), IpAddr::V4(target)) = (from.1, to.1) else {
        return None;
    };
    let kind = if request { 1 } else { 2 };
    let body = [
        &[0, 1, 8, 0, 6, 4, 0, kind],
        &from.0[..],
        &sender.octets(),
        &to.0,
        &target.octets(),
    ];
    Some(body.concat())
}

/// Reads an IPv6 packet with a solicitation or advertisement; `None` for others and for malformed
/// ones.
pub(super) fn read_discovery(packet: &[u8]) -> Option<Message> {
    // IPv6, hop limit 255 (RFC 4861 §7.1.1: not forwarded), ICMPv6, code 0, target at offset 48.
    if packet.len() < 64 || packet[6..8] != [58, 255] || packet[41] != 0 {
        return None;
    }
    let body = usize::from(u16::from_be_bytes([packet[4], packet[5]]));
    let message = packet.get(40..40 + body)?;
    if checksum(&[&pseudo(packet[8..40].try_into().ok()?, body), message]) != 0 {
        return None;
    }
    let address = |bytes: &[u8]| Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?));
    let (source, target) = (address(&packet[8..24])?, address(message.get(8..24)?)?);
    let option = |kind| link_layer_option(&message[24..], kind);
    match message[0] {
        SOLICITATION if !target.is_multicast() => Some(Message::Request {
            target: target.into(),
            sender: source.into(),
            mac: option(1),
        }),
        ADVERTISEMENT if !target.is_multicast() => Some(Message::Reply {
            sender: target.into(),
            mac: option(2)?,
            solicited: message[4] & 0x40 != 0,
            replaces: message[4] & 0x20 != 0,
        }),
        _ => None,
    }
}

fn link_layer_option(mut options: &[u8], wanted: u8) -> Option<Mac> {
    while let &[kind, words, ..] = options {
        let len = usize::from(words) * 8;
        let option = options.get(..len).filter(|option| !option.is_empty())?;
        if kind == wanted {
            return option.get(2..8)?.try_into().ok();
        }
        options = &options[len..];
    }
    None
}

/// Makes an IPv6 packet that requests the address of `target`, to its solicited-node address (RFC
/// 4291 §2.7.1).
pub(super) fn solicitation(mac: Mac, source: Ipv6Addr, target: Ipv6Addr) -> Vec<u8> {
    let message = [
        &[SOLICITATION, 0, 0, 0, 0, 0, 0, 0],
        &target.octets()[..],
        &[1, 1],
        &mac,
    ];
    packet(source, solicited_node(target), message.concat())
}

/// Makes the answer to a solicitation: solicited and override flags, with our link-layer address.
pub(super) fn advertisement(mac: Mac, target: Ipv6Addr, to: Ipv6Addr) -> Vec<u8> {
    let message = [
        &[ADVERTISEMENT, 0, 0, 0, 0x60, 0, 0, 0],
        &target.octets()[..],
        &[2, 1],
        &mac,
    ];
    packet(target, to, message.concat())
}

fn solicited_node(target: Ipv6Addr) -> Ipv6Addr {
    let [.., a, b, c] = target.octets();
    Ipv6Addr::from([0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, a, b, c])
}

/// Ethernet address for the solicited-node multicast address of `target` (RFC 2464 §7).
pub(super) fn multicast_mac(target: Ipv6Addr) -> Mac {
    let [.., a, b, c] = target.octets();
    [0x33, 0x33, 0xff, a, b, c]
}

fn packet(source: Ipv6Addr, dest: Ipv6Addr, mut message: Vec<u8>) -> Vec<u8> {
    let len = message.len() as u16;
    let mut addresses = [0; 32];
    addresses[..16].copy_from_slice(&source.octets());
    addresses[16..].copy_from_slice(&dest.octets());
    let sum = checksum(&[&pseudo(addresses, message.len()), &message]);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    let [high, low] = len.to_be_bytes();
    [
        &[0x60, 0, 0, 0, high, low, 58, 255][..],
        &addresses,
        &message,
    ]
    .concat()
}

/// Pseudo-header (RFC 8200 §8.1).
fn pseudo(addresses: [u8; 32], bytes: usize) -> Vec<u8> {
    let len = (bytes as u32).to_be_bytes();
    [&addresses[..], &len, &[0, 0, 0, 58]].concat()
}

/// Internet checksum of consecutive parts. All parts except the last must have an even length.
fn checksum(parts: &[&[u8]]) -> u16 {
    let words = parts.iter().flat_map(|part| part.chunks(2));
    let mut sum: u32 = words
        .map(|pair| u32::from(pair[0]) << 8 | pair.get(1).map_or(0, |low| u32::from(*low)))
        .sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

const SOLICITATION: u8 = 135;
const ADVERTISEMENT: u8 = 136;
