//! Ethernet headers, ARP (RFC 826) and neighbour discovery (RFC 4861), without I/O: frames in,
//! frames out, time as an argument.
//!
//! The kernel's address is known from the interface, so by default all packets go to the kernel and
//! only requests are answered. In the networks of [`Ethernet::networks`] neighbours are requested,
//! as by a host on a bridge. Not here: duplicate address detection and router advertisements; the
//! kernel is the gateway.

mod cache;
mod messages;

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::Instant;

use super::virtio::HEADER_BYTES;
use crate::network::{contains, destination};
use cache::Cache;
use messages::{Mac, Message, advertisement, arp, multicast_mac, read_arp, read_discovery};

/// State of the link: our address, the kernel's, and the neighbours.
#[derive(Clone, Debug)]
pub(super) struct Ethernet {
    ours: Mac,
    kernels: Mac,
    /// IP addresses that we answer for.
    pub addresses: Vec<IpAddr>,
    /// Networks whose hosts are requested, as an address and a prefix length.
    pub networks: Vec<(IpAddr, u8)>,
    cache: Cache,
    /// Frames of our own to send, with their virtio headers.
    pub out: VecDeque<Vec<u8>>,
    pub answered: u64,
    /// Packets dropped because no host answered for their destination.
    pub unresolved: u64,
    /// Frames dropped because they were for another host.
    pub foreign: u64,
}

impl Ethernet {
    pub(super) fn new(kernels: Mac) -> Self {
        // Locally administered, and different from the kernel's address.
        let mut ours = kernels;
        ours[0] = (ours[0] | 2) & !1;
        ours[5] ^= 1;
        Self {
            ours,
            kernels,
            addresses: Vec::new(),
            networks: Vec::new(),
            cache: Cache::default(),
            out: VecDeque::new(),
            answered: 0,
            unresolved: 0,
            foreign: 0,
        }
    }

    /// Returns the Ethernet header for the packet that starts with these bytes; `None` if its
    /// neighbour is not known yet. Then pass it to [`keep`](Self::keep).
    pub(super) fn header_for(
        &mut self,
        packet: &[u8],
        now: Instant,
    ) -> Option<[u8; ETHERNET_BYTES]> {
        let kind = if packet.first().is_some_and(|first| first >> 4 == 6) {
            IPV6
        } else {
            IPV4
        };
        // Usual case: no neighbours to request.
        if self.networks.is_empty() {
            return Some(header(self.kernels, self.ours, kind));
        }
        let to = self.resolve(destination(packet)?, now)?;
        Some(header(to, self.ours, kind))
    }

    fn resolve(&mut self, address: IpAddr, now: Instant) -> Option<Mac> {
        if !self
            .networks
            .iter()
            .any(|network| contains(*network, address))
        {
            return Some(self.kernels);
        }
        let (mac, ask) = self.cache.look(address, now)?;
        if ask {
            self.ask(address);
        }
        mac
    }

    /// Keeps a packet that waits for its neighbour, with its virtio header.
    pub(super) fn keep(&mut self, virtio: &[u8], packet: &[u8]) {
        let Some(address) = destination(packet) else {
            return;
        };
        let kind = if address.is_ipv4() { IPV4 } else { IPV6 };
        let frame = [virtio, &header([0; 6], self.ours, kind), packet].concat();
        self.unresolved += u64::from(self.cache.keep(address, frame));
    }

    /// Repeats requests for neighbours that packets wait for.
    pub(super) fn on_time(&mut self, now: Instant) {
        if self.networks.is_empty() {
            return;
        }
        let (due, in_vain) = self.cache.due(now);
        due.into_iter().for_each(|address| self.ask(address));
        self.unresolved += in_vain as u64;
    }

    /// Time at which [`on_time`](Self::on_time) has work; `None` if no packet waits.
    pub(super) fn next_event(&self) -> Option<Instant> {
        self.cache.next()
    }

    fn ask(&mut self, target: IpAddr) {
        let own = |own: &&IpAddr| own.is_ipv4() == target.is_ipv4();
        let Some(&source) = self.addresses.iter().find(own) else {
            return;
        };
        match (source, target) {
            (IpAddr::V6(source), IpAddr::V6(target)) => {
                let body = messages::solicitation(self.ours, source, target);
                self.send(multicast_mac(target), IPV6, &body);
            }
            _ => {
                if let Some(body) = arp(true, (self.ours, source), ([0; 6], target)) {
                    self.send([0xff; 6], ARP, &body);
                }
            }
        }
    }

    fn send(&mut self, to: Mac, kind: u16, body: &[u8]) {
        // Beyond the limit the frame is dropped; requests are repeated by both sides.
        if self.out.len() < OUT_MAX {
            let header = header(to, self.ours, kind);
            self.out
                .push_back([&[0; HEADER_BYTES][..], &header, body].concat());
        }
    }

    /// True if a frame is addressed to us or to a group. Counts others as foreign.
    pub(super) fn is_for_us(&mut self, header: &[u8; ETHERNET_BYTES]) -> bool {
        let ours = header[..6] == self.ours || header[0] & GROUP != 0;
        self.foreign += u64::from(!ours);
        ours
    }

    /// True if the frame carries an IP packet addressed to us alone. TCP does not use groups.
    pub(super) fn is_ip_for_us(&self, header: &[u8; ETHERNET_BYTES]) -> bool {
        header[..6] == self.ours
            && matches!(u16::from_be_bytes([header[12], header[13]]), IPV4 | IPV6)
    }

    /// Processes a frame. True if it was about neighbours and so needs no further processing.
    pub(super) fn on_frame(
        &mut self,
        header: &[u8; ETHERNET_BYTES],
        body: &[u8],
        now: Instant,
    ) -> bool {
        let message = match u16::from_be_bytes([header[12], header[13]]) {
            ARP => read_arp(body),
            IPV6 => read_discovery(body),
            _ => return false,
        };
        match message {
            None => return false,
            Some(Message::Request {
                target,
                sender,
                mac,
            }) => self.on_request(target, sender, mac, now),
            Some(Message::Reply {
                sender,
                mac,
                replaces,
                ..
            }) => self.learn(sender, mac, false, replaces, now),
        }
        true
    }

    fn on_request(&mut self, target: IpAddr, sender: IpAddr, mac: Option<Mac>, now: Instant) {
        let for_us = self.addresses.contains(&target);
        if let Some(mac) = mac
            && !sender.is_unspecified()
        {
            self.learn(sender, mac, for_us, true, now);
        }
        if !for_us {
            return;
        }
        let to = mac.unwrap_or(self.kernels);
        let answer = match (target, sender) {
            // RFC 4861 §7.2.4 answers a host without an address to all nodes. We do not answer: the
            // address is ours.
            (IpAddr::V6(_), IpAddr::V6(sender)) if sender.is_unspecified() => None,
            (IpAddr::V6(target), IpAddr::V6(sender)) => {
                Some((IPV6, advertisement(self.ours, target, sender)))
            }
            _ => arp(false, (self.ours, target), (to, sender)).map(|body| (ARP, body)),
        };
        if let Some((kind, body)) = answer {
            self.answered += 1;
            self.send(to, kind, &body);
        }
    }

    fn learn(&mut self, sender: IpAddr, mac: Mac, asks_us: bool, replaces: bool, now: Instant) {
        if !self
            .networks
            .iter()
            .any(|network| contains(*network, sender))
        {
            return;
        }
        for mut frame in self.cache.tell(sender, mac, asks_us, replaces, now) {
            frame[HEADER_BYTES..HEADER_BYTES + 6].copy_from_slice(&mac);
            self.out.push_back(frame);
        }
    }
}

fn header(to: Mac, from: Mac, kind: u16) -> [u8; ETHERNET_BYTES] {
    let mut header = [0; ETHERNET_BYTES];
    header[..6].copy_from_slice(&to);
    header[6..12].copy_from_slice(&from);
    header[12..].copy_from_slice(&kind.to_be_bytes());
    header
}

/// Bit in the first byte of a group address.
const GROUP: u8 = 1;
pub(super) const ETHERNET_BYTES: usize = 14;
const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;
/// Limit of requests and answers that wait for the device.
const OUT_MAX: usize = 256;
