//! Tests of ARP and neighbour discovery by scripts in virtual time, in a notation like
//! packetdrill's: `exchanges/*.pkt`.
//!
//! `> FRAME` is sent at that time, `< FRAME` is received, `send ADDRESS` is a packet of ours.
//! Exactly the expected frames must be sent, at the expected times. We are 10.0.0.2 and fd00::2 at
//! 02:00:00:00:00:09; the kernel is at 02:00:00:00:00:08.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use super::*;

/// Reads an address from a script.
fn mac(text: &str) -> Mac {
    let bytes: Vec<u8> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    bytes.try_into().unwrap()
}

fn shown(mac: &[u8]) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

fn ethernet(networks: bool) -> Ethernet {
    let mut ethernet = Ethernet::new([2, 0, 0, 0, 0, 8]);
    ethernet.addresses = vec!["10.0.0.2".parse().unwrap(), "fd00::2".parse().unwrap()];
    if networks {
        ethernet.networks = vec![(ethernet.addresses[0], 24), (ethernet.addresses[1], 64)];
    }
    ethernet
}

#[test]
fn what_a_bridge_floods_is_not_for_us() {
    let mut ethernet = ethernet(true);
    let mut check = |to: Mac, kind| {
        let header = header(to, [2, 0, 0, 0, 0, 7], kind);
        (ethernet.is_for_us(&header), ethernet.is_ip_for_us(&header))
    };
    let (ours, other) = ([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]);
    assert_eq!(check(ours, IPV4), (true, true));
    assert_eq!(check(other, IPV4), (false, false));
    assert_eq!(check([0xff; 6], ARP), (true, false));
    assert_eq!(check([0xff; 6], IPV4), (true, false));
    assert_eq!(check(ours, 0x88cc), (true, false));
    assert_eq!(ethernet.foreign, 1);
}

/// Packet with nothing but addresses.
fn packet(to: IpAddr) -> Vec<u8> {
    match to {
        IpAddr::V4(to) => [&[0x45; 16][..], &to.octets()].concat(),
        IpAddr::V6(to) => [&[0x60; 24][..], &to.octets()].concat(),
    }
}

/// Describes a frame we sent in the scripts' notation.
fn describe(frame: &[u8]) -> String {
    let frame = &frame[HEADER_BYTES..];
    let body = &frame[ETHERNET_BYTES..];
    let what = match u16::from_be_bytes([frame[12], frame[13]]) {
        ARP => described("arp", read_arp(body)),
        IPV6 => match read_discovery(body) {
            None => format!("ip {}", destination(body).unwrap()),
            message => described("nd", message),
        },
        _ => format!("ip {}", destination(body).unwrap()),
    };
    format!("{} {what}", shown(&frame[..6]))
}

fn described(kind: &str, message: Option<Message>) -> String {
    match message.expect("what we send can be read") {
        Message::Request {
            target,
            sender,
            mac,
        } => {
            let mac = mac.expect("we say where we are");
            format!("{kind} who-has {target} tell {sender} at {}", shown(&mac))
        }
        Message::Reply { sender, mac, .. } => format!("{kind} {sender} is-at {}", shown(&mac)),
    }
}

/// Kind and body of a received frame, from the words of a script.
fn frame(words: &[&str]) -> (u16, Vec<u8>) {
    let ip = |at: usize| -> IpAddr { words[at].parse().unwrap() };
    let v6 = |at: usize| -> Ipv6Addr { words[at].parse().unwrap() };
    match words {
        ["arp", "who-has", _, "tell", _, "at", from] => {
            let body = arp(true, (mac(from), ip(4)), ([0; 6], ip(2)));
            (ARP, body.unwrap())
        }
        ["arp", _, "is-at", from, "for", _] => {
            let body = arp(false, (mac(from), ip(1)), ([0; 6], ip(5)));
            (ARP, body.unwrap())
        }
        ["nd", "who-has", _, "tell", _, "at", from] => {
            (IPV6, messages::solicitation(mac(from), v6(4), v6(2)))
        }
        ["nd", _, "is-at", from, flags @ ..] => {
            let mut packet = advertisement(mac(from), v6(1), "ff02::1".parse().unwrap());
            let wanted = [("solicited", 0x40), ("override", 0x20)];
            let bits: u8 = wanted
                .iter()
                .filter(|(flag, _)| flags.contains(flag))
                .map(|(_, bit)| bit)
                .sum();
            // The flags are the only bits of their word, so the checksum changes by the same
            // amount.
            let sum = u16::from_be_bytes([packet[42], packet[43]]);
            let sum = u32::from(sum) + u32::from(0x60 - bits) * 256;
            let sum = (sum & 0xffff) + (sum >> 16);
            packet[42..44].copy_from_slice(&(sum as u16).to_be_bytes());
            packet[44] = bits;
            (IPV6, packet)
        }
        _ => panic!("no such frame: {words:?}"),
    }
}

struct Exchange {
    ethernet: Ethernet,
    start: Instant,
    now: Duration,
    sent: VecDeque<(Duration, String)>,
}

impl Exchange {
    /// Lets time pass until `until`, with all events in between.
    fn advance(&mut self, until: Duration) {
        loop {
            let out = std::mem::take(&mut self.ethernet.out);
            let now = self.now;
            self.sent
                .extend(out.iter().map(|frame| (now, describe(frame))));
            let next = self.ethernet.next_event().map(|at| at - self.start);
            let Some(next) = next.filter(|next| *next <= until) else {
                break;
            };
            self.now = self.now.max(next);
            self.ethernet.on_time(self.start + self.now);
        }
        self.now = until;
    }

    fn line(&mut self, line: &str) {
        let (time, event) = line.split_once(' ').unwrap();
        let after = Duration::from_secs_f64(time.trim_start_matches('+').parse().unwrap());
        let at = if time.starts_with('+') {
            self.now + after
        } else {
            after
        };
        self.advance(at);
        let now = self.start + at;
        let words: Vec<&str> = event.split_whitespace().collect();
        match words.as_slice() {
            ["send", to] => {
                let packet = packet(to.parse().unwrap());
                match self.ethernet.header_for(&packet, now) {
                    None => self.ethernet.keep(&[0; HEADER_BYTES], &packet),
                    Some(header) => {
                        let frame = [&[0; HEADER_BYTES][..], &header, &packet].concat();
                        self.advance(at);
                        self.sent.push_back((at, describe(&frame)));
                    }
                }
                self.advance(at);
            }
            ["<", frame_words @ ..] => {
                let (kind, body) = frame(frame_words);
                assert!(
                    self.ethernet
                        .on_frame(&header([9; 6], [9; 6], kind), &body, now)
                );
                self.advance(at);
            }
            [">", expected @ ..] => {
                let sent = self.sent.pop_front();
                assert_eq!(sent, Some((at, expected.join(" "))), "{line}");
            }
            _ => panic!("{line}"),
        }
    }
}

fn run(text: &str) {
    assert!(
        text.starts_with("// RFC "),
        "the first line names the clause"
    );
    #[allow(clippy::disallowed_methods, reason = "one Instant to count from")]
    let start = Instant::now();
    let mut exchange = Exchange {
        ethernet: ethernet(!text.contains("// the kernel alone")),
        start,
        now: Duration::ZERO,
        sent: VecDeque::new(),
    };
    for line in text.lines().filter(|line| !line.starts_with("//")) {
        exchange.line(line);
    }
    exchange.advance(exchange.now);
    assert_eq!(exchange.sent, [], "at the end");
}

#[test]
fn exchanges_run_as_written() {
    run(include_str!("exchanges/arp.pkt"));
    run(include_str!("exchanges/arp_retry.pkt"));
    run(include_str!("exchanges/arp_update.pkt"));
    run(include_str!("exchanges/discovery.pkt"));
    run(include_str!("exchanges/discovery_retry.pkt"));
    run(include_str!("exchanges/discovery_update.pkt"));
    run(include_str!("exchanges/kernel_alone.pkt"));
}

#[test]
fn of_packets_that_wait_the_latest_are_kept_and_neighbours_are_bounded() {
    #[allow(clippy::disallowed_methods, reason = "one Instant to count from")]
    let now = Instant::now();
    let mut ethernet = ethernet(true);
    ethernet.networks = vec![("10.0.0.0".parse().unwrap(), 8)];
    let send = |to: u32, ethernet: &mut Ethernet| {
        let packet = packet(Ipv4Addr::from(0x0a00_0000 + to).into());
        if ethernet.header_for(&packet, now).is_none() {
            ethernet.keep(&[0; HEADER_BYTES], &packet);
        }
    };
    for _ in 0..10 {
        send(9, &mut ethernet);
    }
    assert_eq!(ethernet.unresolved, 6);
    for to in 10..3000 {
        send(to, &mut ethernet);
    }
    // 1024 neighbours are requested; packets to the others are dropped.
    assert_eq!(ethernet.unresolved, 6 + 2990 - 1023);
}

#[test]
fn garbage_is_not_answered() {
    #[allow(clippy::disallowed_methods, reason = "one Instant to count from")]
    let now = Instant::now();
    let mut ethernet = ethernet(true);
    for len in 0..120 {
        for kind in [ARP, IPV6, IPV4, 0] {
            for byte in [0, 58, 255] {
                let asked = header([9; 6], [9; 6], kind);
                assert!(!ethernet.on_frame(&asked, &vec![byte; len], now));
            }
        }
    }
    // A damaged solicitation.
    let mut body = messages::solicitation([7; 6], Ipv6Addr::LOCALHOST, "fd00::2".parse().unwrap());
    body[50] ^= 1;
    assert!(!ethernet.on_frame(&header([9; 6], [9; 6], IPV6), &body, now));
    assert!(ethernet.out.is_empty());
}
