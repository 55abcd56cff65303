//! Ethernet to one neighbour, the kernel: headers, ARP (RFC 826) and neighbour discovery (RFC 4861).
//!
//! Only questions are answered; none is asked, because the kernel's address is known from the
//! interface. Not here: several neighbours, duplicate address detection, router advertisements.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::virtio::HEADER_BYTES;

/// The link between us and the kernel.
#[derive(Clone, Debug)]
pub(super) struct Ethernet {
    ours: [u8; 6],
    kernels: [u8; 6],
    /// Addresses we answer for.
    pub addresses: Vec<IpAddr>,
}

impl Ethernet {
    pub(super) fn new(kernels: [u8; 6]) -> Self {
        // Locally administered, and different from the kernel's.
        let mut ours = kernels;
        ours[0] = (ours[0] | 2) & !1;
        ours[5] ^= 1;
        Self {
            ours,
            kernels,
            addresses: Vec::new(),
        }
    }

    /// The header of a packet to the kernel.
    pub(super) fn header(&self, v6: bool) -> [u8; ETHERNET_BYTES] {
        self.header_of(if v6 { IPV6 } else { IPV4 })
    }

    fn header_of(&self, kind: u16) -> [u8; ETHERNET_BYTES] {
        let mut header = [0; ETHERNET_BYTES];
        header[..6].copy_from_slice(&self.kernels);
        header[6..12].copy_from_slice(&self.ours);
        header[12..].copy_from_slice(&kind.to_be_bytes());
        header
    }

    pub(super) fn carries_ip(header: &[u8; ETHERNET_BYTES]) -> bool {
        matches!(u16::from_be_bytes([header[12], header[13]]), IPV4 | IPV6)
    }

    /// The answer, with its virtio header, to a frame that asks for one of our addresses.
    pub(super) fn answer(&self, header: &[u8; ETHERNET_BYTES], body: &[u8]) -> Option<Vec<u8>> {
        let (kind, body) = match u16::from_be_bytes([header[12], header[13]]) {
            ARP => (ARP, self.answer_arp(body)?),
            IPV6 => (IPV6, self.answer_solicitation(body)?),
            _ => return None,
        };
        Some([&[0; HEADER_BYTES][..], &self.header_of(kind), &body].concat())
    }

    fn answer_arp(&self, request: &[u8]) -> Option<Vec<u8>> {
        let request: &[u8; 28] = request.first_chunk()?;
        // Ethernet, IPv4, lengths, request.
        if request[..8] != [0, 1, 8, 0, 6, 4, 0, 1] {
            return None;
        }
        let target = Ipv4Addr::new(request[24], request[25], request[26], request[27]);
        if !self.addresses.contains(&target.into()) {
            return None;
        }
        let (sender, wanted) = (&request[8..18], &request[24..28]);
        Some([&[0, 1, 8, 0, 6, 4, 0, 2], &self.ours[..], wanted, sender].concat())
    }

    fn answer_solicitation(&self, packet: &[u8]) -> Option<Vec<u8>> {
        // IPv6, hop limit 255 (RFC 4861 §7.1.1), ICMPv6, type 135, target at 48.
        let is_solicitation =
            packet.len() >= 64 && packet[6..8] == [58, 255] && packet[40..42] == [135, 0];
        if !is_solicitation {
            return None;
        }
        let target: [u8; 16] = packet[48..64].try_into().ok()?;
        let source: [u8; 16] = packet[8..24].try_into().ok()?;
        if !self.addresses.contains(&Ipv6Addr::from(target).into())
            || Ipv6Addr::from(source).is_unspecified()
        {
            return None;
        }
        // Advertisement: solicited and override, with our link-layer address.
        let mut message = [
            &[136, 0, 0, 0, 0x60, 0, 0, 0][..],
            &target,
            &[2, 1],
            &self.ours,
        ]
        .concat();
        let len = message.len() as u16;
        let pseudo = [
            &target[..],
            &source,
            &u32::from(len).to_be_bytes(),
            &[0, 0, 0, 58],
        ]
        .concat();
        let sum = checksum(&[&pseudo, &message]);
        message[2..4].copy_from_slice(&sum.to_be_bytes());
        Some(
            [
                &[0x60, 0, 0, 0][..],
                &len.to_be_bytes(),
                &[58, 255],
                &target,
                &source,
                &message,
            ]
            .concat(),
        )
    }
}

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

pub(super) const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

#[cfg(test)]
mod tests {
    use super::*;

    fn ethernet() -> Ethernet {
        let mut ethernet = Ethernet::new([2, 0, 0, 0, 0, 8]);
        ethernet.addresses = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
        ethernet
    }

    fn asked(kind: u16) -> [u8; ETHERNET_BYTES] {
        let mut header = [0xff; ETHERNET_BYTES];
        header[12..].copy_from_slice(&kind.to_be_bytes());
        header
    }

    #[test]
    fn who_has_our_address_is_told() {
        let question = |last| {
            [
                0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 8, 10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 0, 0,
                last,
            ]
        };
        let answer = ethernet().answer(&asked(ARP), &question(2)).unwrap();
        let body = &answer[HEADER_BYTES + ETHERNET_BYTES..];
        assert_eq!(
            body,
            [
                0, 1, 8, 0, 6, 4, 0, 2, 2, 0, 0, 0, 0, 9, 10, 0, 0, 2, 2, 0, 0, 0, 0, 8, 10, 0, 0,
                1
            ]
        );
        assert_eq!(ethernet().answer(&asked(ARP), &question(3)), None);
    }

    #[test]
    fn a_neighbour_solicitation_is_answered_with_a_valid_checksum() {
        let (target, source): (Ipv6Addr, Ipv6Addr) =
            ("fd00::2".parse().unwrap(), "fd00::1".parse().unwrap());
        let mut packet = [
            &[0x60, 0, 0, 0, 0, 24, 58, 255][..],
            &source.octets(),
            &target.octets(),
        ]
        .concat();
        packet.extend([&[135, 0, 0, 0, 0, 0, 0, 0][..], &target.octets()].concat());
        let answer = ethernet().answer(&asked(IPV6), &packet).unwrap();
        let ip = &answer[HEADER_BYTES + ETHERNET_BYTES..];
        assert_eq!(ip[40], 136);
        let message = &ip[40..];
        let pseudo = [&ip[8..40], &[0, 0, 0, message.len() as u8, 0, 0, 0, 58]].concat();
        assert_eq!(checksum(&[&pseudo, message]), 0);
    }

    #[test]
    fn garbage_is_not_answered() {
        for len in 0..80 {
            for kind in [ARP, IPV6, IPV4, 0] {
                assert_eq!(ethernet().answer(&asked(kind), &vec![58; len]), None);
            }
        }
    }
}
