//! Offset of the IP header in a frame, by link type: the link's own header, and layers that carry
//! Ethernet or IP within Ethernet (VLAN tags, MPLS, PPPoE, FabricPath, LLC/SNAP).

/// Link types that are read, with the numbers of libpcap's LINKTYPE_ registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Link {
    /// 1: Ethernet, with any number of VLAN tags, MPLS labels, PPPoE or LLC/SNAP.
    Ethernet,
    /// 0 and 108: the four-byte address family of BSD's loopback.
    Null,
    /// 12, 14, 101, 228, 229: IP without a link header.
    Raw,
    /// 113: Linux cooked, version 1.
    Cooked1,
    /// 276: Linux cooked, version 2.
    Cooked2,
    /// 9 and 50: PPP.
    Ppp,
    /// 10: FDDI.
    Fddi,
    /// 51: PPPoE without Ethernet.
    PppPppoe,
    /// 105: 802.11; only data frames that are not encrypted.
    Wireless,
    /// 127: 802.11 after a radiotap header.
    Radiotap,
    /// 239: Linux's NFLOG.
    NetfilterLog,
    /// 242: IP over InfiniBand.
    InfiniBand,
    /// Any other link type, by its number. Its packets are counted and skipped.
    Unknown(u32),
}

impl Link {
    /// The link type of a LINKTYPE_ number.
    pub fn from_number(number: u32) -> Link {
        match number {
            1 => Link::Ethernet,
            0 | 108 => Link::Null,
            9 | 50 => Link::Ppp,
            10 => Link::Fddi,
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

/// Content after a link's headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkPayload {
    /// IP header at this offset.
    Ip(usize),
    /// Another protocol, or encrypted data.
    NotIp,
    /// The frame ends before its content is known.
    Cut,
}

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Finds the IP header in a frame of this link type.
pub(crate) fn find(link: Link, frame: &[u8]) -> LinkPayload {
    match link {
        Link::Ethernet => ethertype(frame, 12),
        Link::Null => LinkPayload::Ip(4),
        Link::Raw => LinkPayload::Ip(0),
        Link::Cooked1 => cooked(frame, 14, 16),
        Link::Cooked2 => cooked(frame, 0, 20),
        Link::Ppp => ppp(frame, 0),
        Link::Fddi => fddi(frame),
        Link::PppPppoe => ppp(frame, 6),
        Link::Wireless => wireless(frame, 0),
        Link::Radiotap => match le16(frame, 2) {
            Some(length) => wireless(frame, usize::from(length)),
            None => LinkPayload::Cut,
        },
        Link::NetfilterLog => netfilter_log(frame),
        Link::InfiniBand => infiniband(frame),
        Link::Unknown(_) => LinkPayload::NotIp,
    }
}

/// Finds the IP header from the type field at `at`.
pub(crate) fn ethertype(frame: &[u8], mut at: usize) -> LinkPayload {
    loop {
        let Some(kind) = be16(frame, at) else {
            return LinkPayload::Cut;
        };
        match kind {
            IPV4 | IPV6 => return LinkPayload::Ip(at + 2),
            // 802.1Q, 802.1ad, and QinQ's older number.
            0x8100 | 0x88a8 | 0x9100 => at += 4,
            0x8847 | 0x8848 => return mpls(frame, at + 2),
            // Cisco's FabricPath: a tag, then the addresses of the inner frame.
            0x8903 => at += 4 + 12,
            // PPPoE's session stage: six bytes, then PPP.
            0x8864 => return ppp(frame, at + 8),
            // A length: LLC follows.
            0..=1500 => match llc(frame, at + 2) {
                Ok(inner) => at = inner,
                Err(found) => return found,
            },
            _ => return LinkPayload::NotIp,
        }
    }
}

/// FDDI: frame control and two addresses, then LLC if it carries data (RFC 1390).
fn fddi(frame: &[u8]) -> LinkPayload {
    match frame.first() {
        Some(0x50..=0x5f) => match llc(frame, 13) {
            Ok(at) => ethertype(frame, at),
            Err(found) => found,
        },
        Some(_) => LinkPayload::NotIp,
        None => LinkPayload::Cut,
    }
}

/// LLC with SNAP (RFC 1042): offset of the type field.
fn llc(frame: &[u8], at: usize) -> Result<usize, LinkPayload> {
    match frame.get(at..at + 8) {
        Some([0xaa, 0xaa, 3, 0, 0, 0 | 0xf8, ..]) => Ok(at + 6),
        // The LSAP number of IP.
        Some([6, 6, 3, ..]) => Err(LinkPayload::Ip(at + 3)),
        Some(_) => Err(LinkPayload::NotIp),
        None => Err(LinkPayload::Cut),
    }
}

/// MPLS labels up to the bottom of the stack (RFC 3032). Only the first bytes after them show what
/// follows.
pub(crate) fn mpls(frame: &[u8], mut at: usize) -> LinkPayload {
    loop {
        let Some(label) = frame.get(at..at + 4) else {
            return LinkPayload::Cut;
        };
        at += 4;
        if label[2] & 1 == 0 {
            continue;
        }
        return match frame.get(at).map(|byte| byte >> 4) {
            Some(4 | 6) => LinkPayload::Ip(at),
            // A pseudowire's control word (RFC 4385), then Ethernet.
            Some(0) => ethertype(frame, at + 4 + 12),
            Some(_) => LinkPayload::NotIp,
            None => LinkPayload::Cut,
        };
    }
}

/// PPP (RFC 1661), with or without address and control bytes; its protocol is in two bytes, or
/// compressed to one.
pub(crate) fn ppp(frame: &[u8], at: usize) -> LinkPayload {
    let at = match frame.get(at..at + 2) {
        Some([0xff, 3]) => at + 2,
        _ => at,
    };
    match frame.get(at..at + 2) {
        Some([0, 0x21 | 0x57]) => LinkPayload::Ip(at + 2),
        Some([0x21 | 0x57, _]) => LinkPayload::Ip(at + 1),
        // MPLS, unicast and multicast.
        Some([2, 0x81 | 0x83]) => mpls(frame, at + 2),
        Some(_) => LinkPayload::NotIp,
        None => LinkPayload::Cut,
    }
}

fn cooked(frame: &[u8], protocol_at: usize, header: usize) -> LinkPayload {
    match be16(frame, protocol_at) {
        Some(IPV4 | IPV6) => LinkPayload::Ip(header),
        // The type of a tagged packet is after the tag.
        Some(0x8100 | 0x88a8) => ethertype(frame, header + 2),
        Some(0x8847 | 0x8848) => mpls(frame, header),
        Some(0x8864) => ppp(frame, header + 6),
        Some(_) => LinkPayload::NotIp,
        None => LinkPayload::Cut,
    }
}

/// 802.11: data frames that are not encrypted. Only the first part of an aggregate (A-MSDU) is
/// read.
fn wireless(frame: &[u8], start: usize) -> LinkPayload {
    let Some(control) = le16(frame, start) else {
        return LinkPayload::Cut;
    };
    let (kind, subtype) = (control >> 2 & 3, control >> 4 & 15);
    let (to_ap, from_ap) = (control & 0x100 != 0, control & 0x200 != 0);
    let (encrypted, ordered) = (control & 0x4000 != 0, control & 0x8000 != 0);
    // Subtypes with this bit carry no data.
    if kind != 2 || subtype & 4 != 0 || encrypted {
        return LinkPayload::NotIp;
    }
    let mut at = start + 24 + if to_ap && from_ap { 6 } else { 0 };
    if subtype & 8 != 0 {
        let Some(quality) = le16(frame, at) else {
            return LinkPayload::Cut;
        };
        at += if ordered { 6 } else { 2 };
        if quality & 0x80 != 0 {
            at += 14;
        }
    }
    // Some drivers pad the header to four bytes.
    let padded = start + (at - start).next_multiple_of(4);
    match llc(frame, at).or_else(|_| llc(frame, padded)) {
        Ok(at) => ethertype(frame, at),
        Err(found) => found,
    }
}

/// RFC 4391 §6: a type and two reserved bytes, then IP. tcpdump and Wireshark expect 40 bytes
/// before it, as in Solaris captures: the global route header, or the receiver's address in the
/// second half. The registry of link types names only the RFC, so the header may also be at the
/// start.
fn infiniband(frame: &[u8]) -> LinkPayload {
    let mut found = LinkPayload::Cut;
    for at in [40, 0] {
        let kind = match (be16(frame, at), frame.get(at + 4)) {
            (Some(kind), Some(first)) => (kind, first >> 4),
            _ => continue,
        };
        found = match kind {
            (IPV4, 4) | (IPV6, 6) => return LinkPayload::Ip(at + 4),
            _ => LinkPayload::NotIp,
        };
    }
    found
}

/// NFLOG: four bytes, then values after their length and type, in the byte order of the capturing
/// host.
fn netfilter_log(frame: &[u8]) -> LinkPayload {
    const PAYLOAD: u16 = 9;
    for big in [false, true] {
        let u16_at = |at| {
            if big {
                be16(frame, at)
            } else {
                le16(frame, at)
            }
        };
        let mut at = 4;
        while let (Some(length), Some(kind)) = (u16_at(at), u16_at(at + 2)) {
            if kind & 0x7fff == PAYLOAD {
                return LinkPayload::Ip(at + 4);
            }
            if length < 4 {
                break;
            }
            at += usize::from(length).next_multiple_of(4);
        }
    }
    LinkPayload::Cut
}

pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

fn le16(bytes: &[u8], at: usize) -> Option<u16> {
    be16(bytes, at).map(u16::swap_bytes)
}
