//! Reader of the text that tcpdump prints, in its forms before and since 2009 (4.0):
//! `P 1:257(256) ack 1 win 502` and `Flags [P.], seq 1:257, ack 1, win 502, length 256`.
//!
//! Accepts any of -#, -n, -S, -t to -ttttt, -e, -v. Relative sequence numbers are converted to
//! absolute numbers by the SYNs. Names of hosts and ports are kept as printed. Facts that a line
//! does not print are unknown: the IP header counts as 20 bytes (IPv6: 40), unless -v gives the
//! datagram's length.

mod clock;
mod forms;

use std::collections::HashMap;
use std::io::Read;
use std::net::IpAddr;

use self::clock::{Clock, Counts};
use self::forms::{new_form, numbered, old_form};
use tcpcost_counts::Printable;

use crate::bytes::Bytes;
use crate::read::{Names, ReadFailure, Reading, Sink};
use crate::segment::{Endpoint, Host, PacketDirection, Segment, flag};

/// Limit of a line, bytes. Longer lines are cut; tcpdump prints no segment that long.
const LONGEST_LINE: usize = 16 << 10;

/// Reads all lines.
pub(crate) fn read<R: Read>(
    bytes: &mut Bytes<R>,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), ReadFailure> {
    let mut text = Text::default();
    let mut understood = false;
    loop {
        let mut want = 1;
        let length = loop {
            let held = bytes
                .fill(want, sink, reading)
                .map_err(|error| ReadFailure::io(bytes.offset(), &error))?;
            let seen = want.saturating_sub(1);
            let tail = bytes.held().get(seen..).unwrap_or_default();
            if let Some(newline) = tail.iter().position(|byte| *byte == b'\n') {
                break seen + newline + 1;
            }
            if held < want || held >= LONGEST_LINE {
                break held;
            }
            want = held + 1;
        };
        let ended = bytes.held().get(length.saturating_sub(1)) == Some(&b'\n');
        if length == 0 || (bytes.stopped() && !ended) {
            break;
        }
        let line = String::from_utf8_lossy(&bytes.held()[..length]);
        if !line.trim().is_empty() {
            reading.packets += 1;
            match text.line(line.trim_end()) {
                Line::Segment(mut segment) => {
                    understood = true;
                    segment.frame = text.frame.unwrap_or(reading.packets);
                    text.give(segment, sink);
                }
                // First of the two lines that -v prints.
                Line::Header => reading.packets -= 1,
                Line::Other => reading.skipped.not_tcp += 1,
            }
        }
        bytes.consume(length);
        let known = reading.names.len();
        reading.names.extend_from_slice(&text.names[known..]);
    }
    text.release(sink);
    if understood {
        Ok(())
    } else {
        Err(ReadFailure::new(
            0,
            "a text without a TCP segment as tcpdump prints it",
        ))
    }
}

enum Line {
    Segment(Segment),
    Header,
    Other,
}

#[derive(Default)]
struct Text {
    names: Names,
    by_name: HashMap<String, u32>,
    /// SYN's sequence number of each direction whose SYN was seen, and the number to add to later
    /// ones. The first later number decides it.
    isn: HashMap<(Endpoint, Endpoint), (u32, Option<u32>)>,
    clock: Clock,
    /// Time, datagram length and IP id of a -v line before.
    header: Option<(Option<u64>, u32, u16)>,
    /// Number of the line, as -# prints it.
    frame: Option<u64>,
    /// Segments whose timestamps may be of either kind, as printed, each with the sum of timestamps
    /// until then.
    held: Vec<(Segment, u64)>,
}

impl Text {
    /// Passes a segment to the sink once the origin of its timestamp is known.
    fn give(&mut self, mut segment: Segment, sink: &mut impl Sink) {
        let sum_ns = self.clock.now_ns;
        match self.clock.counts {
            Counts::Absolute | Counts::SinceFirst => sink.segment(&segment),
            Counts::SinceLast => {
                self.release(sink);
                segment.at_ns = segment.at_ns.map(|_| sum_ns);
                sink.segment(&segment);
            }
            Counts::Unknown => {
                self.held.push((segment, sum_ns));
                if self.held.len() == HELD_MOST {
                    self.release(sink);
                }
            }
        }
    }

    /// Passes on the segments held. If timestamps never decreased in [`HELD_FEWEST`] lines or more,
    /// they count from the first line; else from the line before.
    fn release(&mut self, sink: &mut impl Sink) {
        if self.clock.counts == Counts::Unknown {
            let long = self.held.len() >= HELD_FEWEST;
            self.clock.counts = if long {
                Counts::SinceFirst
            } else {
                Counts::SinceLast
            };
        }
        for (mut segment, sum_ns) in std::mem::take(&mut self.held) {
            if self.clock.counts == Counts::SinceLast {
                segment.at_ns = segment.at_ns.map(|_| sum_ns);
            }
            sink.segment(&segment);
        }
    }

    fn line(&mut self, line: &str) -> Line {
        let (number, line) = numbered(line);
        self.frame = number;
        let continued = line.starts_with([' ', '\t']) && self.header.is_some();
        let header = self.header.take();
        let at_ns = if continued {
            header.and_then(|header| header.0)
        } else {
            self.clock.read(line)
        };
        if !continued && line.contains("proto TCP (6)") {
            let number = |key: &str| after(line, key).and_then(leading::<u32>);
            let octets = number("length ");
            let id = number(" id ").unwrap_or(0) as u16;
            self.header = octets.map(|octets| (at_ns, octets, id));
            if !line.contains("Flags [") {
                return Line::Header;
            }
        }
        let known = self.header.take().or(if continued { header } else { None });
        match self.segment(line, at_ns, known.map(|(_, octets, id)| (octets, id))) {
            Some(segment) => Line::Segment(segment),
            None => Line::Other,
        }
    }

    fn segment(
        &mut self,
        line: &str,
        at_ns: Option<u64>,
        known: Option<(u32, u16)>,
    ) -> Option<Segment> {
        // Searches the last " > " whose right side ends in ": ", because a link-layer header (-e)
        // may be before it.
        let (left, right) = line.rmatch_indices(" > ").find_map(|(at, _)| {
            let right = &line[at + 3..];
            // Only the first word is examined: in a line of arrows alone the whole line would be
            // searched for each arrow.
            let (word, rest) = right.split_at(right.find([' ', ','])?);
            let (destination, rest) = (word.strip_suffix(':')?, rest.strip_prefix(' ')?);
            let source = line[..at].rsplit([' ', '\t']).next()?;
            (!source.is_empty()).then_some(((source, destination), rest))
        })?;
        let (source, destination) = (self.endpoint(left.0), self.endpoint(left.1));
        let numbers = if right.starts_with("Flags [") {
            new_form(right)?
        } else {
            old_form(right)?
        };
        let flags = flag::SYN | flag::FIN;
        if numbers.seq.is_none() && (numbers.payload > 0 || numbers.flags & flags != 0) {
            return None;
        }
        let ipv6 = matches!(source.host, Host::Address(IpAddr::V6(_)));
        let ip_header = if ipv6 { 40 } else { 20 };
        let (ip_octets, ip_id) = known.unwrap_or((
            (ip_header + 20 + numbers.option_bytes).saturating_add(numbers.payload),
            0,
        ));
        let mut segment = Segment {
            at_ns,
            source,
            destination,
            seq: numbers.seq,
            ack: numbers.ack,
            window: numbers.window,
            flags: numbers.flags,
            ip_id,
            hop_limit: 0,
            interface: 0,
            direction: PacketDirection::Unknown,
            tunnel: None,
            frame: 0,
            payload: numbers.payload,
            ip_octets,
            options: numbers.options,
        };
        self.make_absolute(&mut segment);
        Some(segment)
    }

    fn endpoint(&mut self, text: &str) -> Endpoint {
        let split = text
            .rsplit_once('.')
            .and_then(|(host, port)| Some((host, port.parse().ok()?)));
        if let Some((host, port)) = split
            && let Ok(address) = host.parse()
        {
            return Endpoint {
                host: Host::Address(address),
                port,
            };
        }
        let (name, port) = split.unwrap_or((text, 0));
        let next = self.names.len() as u32;
        let index = *self.by_name.entry(name.to_string()).or_insert(next);
        if index == next {
            self.names.push(Printable::from(name));
        }
        Endpoint {
            host: Host::Named(index),
            port,
        }
    }

    fn make_absolute(&mut self, segment: &mut Segment) {
        let here = (segment.source, segment.destination);
        if segment.any(flag::SYN) {
            if let Some(seq) = segment.seq {
                self.isn.insert(here, (seq, None));
            }
            return;
        }
        // Without -S, numbers count from the SYN: then the first number is nearer to 0 than to the
        // SYN's.
        let mut absolute = |number: u32, direction| match self.isn.get_mut(&direction) {
            Some((isn, add)) => {
                let nearer_to_syn = number.wrapping_sub(*isn) < number;
                number.wrapping_add(*add.get_or_insert(if nearer_to_syn { 0 } else { *isn }))
            }
            None => number,
        };
        segment.seq = segment.seq.map(|seq| absolute(seq, here));
        if segment.any(flag::ACK) {
            let there = (here.1, here.0);
            segment.ack = absolute(segment.ack, there);
            for (left, right) in &mut segment.options.sack {
                (*left, *right) = (absolute(*left, there), absolute(*right, there));
            }
        }
    }
}

/// Limits of lines held until timestamps decrease. With fewer than the second number nothing is
/// known, and -ttt is assumed, because it is used more often.
const HELD_MOST: usize = 64;
const HELD_FEWEST: usize = 5;

fn after<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    text.find(key).map(|at| &text[at + key.len()..])
}

/// Number at the start of the text.
fn leading<T: std::str::FromStr>(text: &str) -> Option<T> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    text[..digits].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Segment {
        match Text::default().line(line) {
            Line::Segment(segment) => segment,
            _ => panic!("no segment: {line}"),
        }
    }

    #[test]
    fn both_forms_and_every_switch_tell_the_same() {
        let expected = one(
            "12:00:00.5 IP 10.0.0.1.80 > 10.0.0.2.9: Flags [P.], seq 1:257, ack 7, win 502, options [nop,nop,TS val 1 ecr 2], length 256",
        );
        assert_eq!((expected.payload, expected.ip_octets), (256, 308));
        assert_eq!(expected.flags, flag::PSH | flag::ACK);
        for line in [
            "12:00:00.500000 10.0.0.1.80 > 10.0.0.2.9: P 1:257(256) ack 7 win 502 <nop,nop,timestamp 1 2> (DF)",
            "43200.500000 IP 10.0.0.1.80 > 10.0.0.2.9: Flags [P.], seq 1:257, ack 7, win 502, options [nop,nop,TS val 1 ecr 2], length 256: HTTP",
            "1970-01-01 12:00:00.500000 eth0  In  IP 10.0.0.1.80 > 10.0.0.2.9: Flags [P.], seq 1:257, ack 7, win 502, options [nop,nop,TS val 1 ecr 2], length 256",
            "12:00:00.500000 02:00:00:00:00:01 > 02:00:00:00:00:02, ethertype IPv4 (0x0800), length 322: 10.0.0.1.80 > 10.0.0.2.9: Flags [P.], seq 1:257, ack 7, win 502, options [nop,nop,TS val 1 ecr 2], length 256",
        ] {
            assert_eq!(one(line), expected, "{line}");
        }
    }

    #[test]
    fn two_lines_of_v_are_one_segment_with_the_datagram_length() {
        let mut text = Text::default();
        assert!(matches!(text.line("12:00:00.5 IP (tos 0x0, ttl 64, id 17, offset 0, flags [DF], proto TCP (6), length 324)"), Line::Header));
        let Line::Segment(segment) = text.line("    10.0.0.1.80 > 10.0.0.2.9: Flags [P.], cksum 0x1 (correct), seq 1:257, ack 7, win 502, length 256") else {
            panic!("no segment");
        };
        assert_eq!((segment.ip_octets, segment.ip_id), (324, 17));
        assert_eq!(segment.at_ns, Some(43_200_500_000_000));
    }

    #[test]
    fn relative_numbers_become_absolute_by_the_syn() {
        let mut text = Text::default();
        for line in [
            "000000 1.1.1.1.5 > 2.2.2.2.6: S 4294967290:4294967290(0) win 32768 (DF)",
            "000005 2.2.2.2.6 > 1.1.1.1.5: S 100:100(0) ack 4294967291 win 5840 (DF)",
        ] {
            text.line(line);
        }
        let Line::Segment(segment) =
            text.line("000010 1.1.1.1.5 > 2.2.2.2.6: P 1:11(10) ack 1 win 1 (DF)")
        else {
            panic!("no segment");
        };
        assert_eq!(
            (segment.seq, segment.ack, segment.at_ns),
            (Some(4294967291), 101, Some(15_000))
        );
    }

    #[test]
    fn names_and_sack_blocks_are_read() {
        let mut text = Text::default();
        let Line::Segment(segment) =
            text.line("IP A > B.example.80: . ack 98 win 2 <nop,nop,sack 2 {1:5}{7:9}>")
        else {
            panic!("no segment");
        };
        assert_eq!(segment.options.sack, [(1, 5), (7, 9)]);
        assert_eq!(
            (segment.source.host, segment.destination.port),
            (Host::Named(0), 80)
        );
        assert_eq!(text.names, ["A", "B.example"].map(Printable::from));
        assert_eq!((segment.seq, segment.at_ns), (None, None));
    }
}
