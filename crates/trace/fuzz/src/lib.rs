//! Fuzz targets, which `cargo test` also runs over their corpus.
//!
//! Four targets read a capture (`pcap`, `pcapng`, `text`, `compressed`). They differ only in their
//! corpus, so that each format has its own share of the time.

use std::io::Read;

use tcpcost_trace::{
    Analysis, Causes, Connection, Endpoint, Filter, Graph, Host, Link, Options, PacketDirection,
    Pair, Passed, Reading, Report, Segment, Settings, Sink, Skipped, connection_text, csv, json,
    page, parse, read, text,
};

/// Reads any bytes as a capture, whole and in pieces as from a pipe. Both results must be equal,
/// except that a decompressor may return a little less before the place where it broke.
pub fn capture(data: &[u8]) {
    let mut analysis = watched();
    let mut whole = Vec::new();
    let (reading, outcome) = read(data, &mut |segment: &Segment| {
        whole.push(*segment);
        analysis.segment(segment);
    });
    let broken = outcome.as_ref().err().map(ToString::to_string);

    let mut in_pieces = Vec::new();
    let (pieces, ended) = read(Pipe(data, 7), &mut |segment: &Segment| {
        in_pieces.push(*segment)
    });
    let compressed = matches!(data, [0x1f, 0x8b, ..] | [0x28, 0xb5, ..] | [0x04, 0x22, ..]);
    if !compressed || broken.is_none() {
        let ended = ended.err().map(|error| error.to_string());
        assert_eq!(whole, in_pieces);
        assert_eq!((&reading, &broken), (&pieces, &ended));
    }

    let (connections, graph) = analysis.finish();
    told(&reading, outcome.as_ref().copied(), &connections, &graph);
}

/// Parses frames of one link type: its number, then each frame after its time, length on the wire
/// and captured length.
pub fn packets(data: &[u8]) {
    const LINKS: [u32; 13] = [1, 0, 101, 113, 276, 147, 9, 51, 105, 127, 239, 242, 10];
    let mut input = Input(data);
    let link = Link::from_number(LINKS[usize::from(input.byte()) % LINKS.len()]);
    let mut analysis = watched();
    let mut reading = Reading::default();
    let mut at_ns = 0;
    while !input.0.is_empty() {
        let time = input.byte();
        at_ns += u64::from(time) * 100_000;
        // Some packets are longer than 64 KiB, as in BIG TCP.
        let wire_len = u32::from(input.u16()) << if time > 250 { 4 } else { 0 };
        let captured = usize::from(input.byte()).min(input.0.len());
        let (frame, rest) = input.0.split_at(captured);
        input.0 = rest;
        reading.packets += 1;
        let mut skipped = Skipped::default();
        let segment = parse(link, frame, wire_len, at_ns, &mut skipped);
        // Each frame is a segment or counted as skipped.
        assert_eq!(u64::from(segment.is_none()), skipped.total());
        if let Some(segment) = segment {
            analysis.segment(&segment);
        }
    }
    let (connections, graph) = analysis.finish();
    told(&reading, Ok(()), &connections, &graph);
}

/// Parses IP packets that carry a tunnel: its number, the length of the rest, and the rest.
pub fn tunnels(data: &[u8]) {
    const PROTOCOLS: [u8; 5] = [4, 41, 47, 51, 17];
    const PORTS: [u16; 4] = [4789, 8472, 6081, 2152];
    let mut input = Input(data);
    let mut analysis = watched();
    let mut reading = Reading::default();
    while !input.0.is_empty() {
        let kind = usize::from(input.byte());
        let protocol = PROTOCOLS[kind % PROTOCOLS.len()];
        let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocol, 0, 0];
        packet.extend([192, 168, 0, 1, 192, 168, 0, 2]);
        if protocol == 17 {
            packet.extend(9u16.to_be_bytes());
            packet.extend(PORTS[kind / 5 % PORTS.len()].to_be_bytes());
            packet.extend([0; 4]);
        }
        let captured = usize::from(input.byte()).min(input.0.len());
        let (rest, next) = input.0.split_at(captured);
        input.0 = next;
        packet.extend(rest);
        if kind & 128 != 0 {
            // A whole inner packet, where the tunnel's header ends.
            packet.extend(INNER);
        }
        let wire_len = packet.len() as u32;
        packet[2..4].copy_from_slice(&(wire_len as u16).to_be_bytes());
        reading.packets += 1;
        let mut skipped = Skipped::default();
        let link = Link::from_number(101);
        let segment = parse(link, &packet, wire_len, reading.packets, &mut skipped);
        assert_eq!(u64::from(segment.is_none()), skipped.total());
        if let Some(segment) = segment {
            analysis.segment(&segment);
        }
    }
    let (connections, graph) = analysis.finish();
    told(&reading, Ok(()), &connections, &graph);
}

/// IPv4 and TCP headers and one byte of payload.
const INNER: [u8; 41] = [
    0x45, 0, 0, 41, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 9, 0, 80, 0, 0, 0, 1,
    0, 0, 0, 1, 0x50, 0x18, 0, 9, 0, 0, 0, 0, 7,
];

/// Compares two captures of any segments. The first byte decides where the second begins.
pub fn pair(data: &[u8]) {
    let Some((&at, rest)) = data.split_first() else {
        return;
    };
    let (first, second) = rest.split_at(rest.len() * usize::from(at) / 256);
    let mut passed = [Passed::default(), Passed::default()];
    let mut reports = Vec::new();
    for (half, passed) in [first, second].into_iter().zip(&mut passed) {
        let mut analysis = Analysis::new(Settings::default());
        each_segment(half, &mut |segment: &Segment| {
            passed.segment(segment);
            analysis.segment(segment);
        });
        reports.push(analysis.into_report("fuzz", &Reading::default(), Ok(())).0);
    }
    let names = || ["a".to_string(), "b".to_string()];
    if let Some(pair) = Pair::of(names(), &passed[0], &passed[1], &Vec::new()) {
        pair.text();
        for direction in pair.connections.iter().flat_map(|of| &of.directions) {
            assert!(direction.bytes_lost <= direction.bytes_first);
        }
    }
    Causes::of(&reports[0], &reports[1]).text();
}

/// Analyses any segments between two ends, with numbers near each other.
pub fn segments(data: &[u8]) {
    let mut analysis = watched();
    each_segment(data, &mut analysis);
    let (connections, graph) = analysis.finish();
    told(&Reading::default(), Ok(()), &connections, &graph);
}

fn each_segment(data: &[u8], sink: &mut impl Sink) {
    let mut input = Input(data);
    let settings = input.byte();
    let base = if settings & 1 == 0 {
        7
    } else {
        u32::MAX - 5000
    };
    let timed = settings & 2 == 0;
    let mut at_ns = 1_000_000_000;
    while !input.0.is_empty() {
        let kind = input.byte();
        let number = |input: &mut Input<'_>| base.wrapping_add(u32::from(input.u16()) * 73);
        at_ns += u64::from(input.byte()).pow(3) * 1000;
        let ends = [1, 2].map(|last| Endpoint {
            host: Host::Address([10, 0, 0, last].into()),
            port: 80,
        });
        let from = usize::from(kind & 1);
        let payload = match kind >> 1 & 3 {
            0 => 0,
            1 => 1448,
            2 => u32::from(input.byte()),
            _ => u32::from(input.u16()),
        };
        let seq = number(&mut input);
        sink.segment(&Segment {
            at_ns: timed.then_some(at_ns),
            source: ends[from],
            destination: ends[1 - from],
            seq: (kind & 8 == 0).then_some(seq),
            ack: number(&mut input),
            window: input.u16(),
            flags: input.byte(),
            ip_id: u16::from(input.byte() & 3),
            hop_limit: 64 - (kind >> 6),
            interface: u32::from(kind >> 7),
            direction: PacketDirection::Unknown,
            tunnel: None,
            frame: 0,
            payload,
            ip_octets: payload + 52,
            options: Options {
                timestamps: (kind & 16 != 0).then(|| (input.byte().into(), input.byte().into())),
                sack: [(number(&mut input), number(&mut input)); 2],
                sack_blocks: kind >> 5 & 3,
                mss: (kind & 128 != 0).then(|| input.u16()),
                window_scale: (kind & 128 != 0).then(|| input.byte() & 15),
                sack_permitted: true,
                complete: true,
            },
        });
    }
}

fn watched() -> Analysis<Graph> {
    Analysis::watched(Settings::default(), Filter::default(), Graph::of(&[1]))
}

/// Checks that all formats of the result can be made, and that its counts are possible.
fn told(
    reading: &Reading,
    outcome: Result<(), &tcpcost_trace::ReadFailure>,
    connections: &[Connection],
    graph: &Graph,
) {
    for connection in connections {
        let duration = connection.duration_ns();
        if let Some(duration) = duration {
            assert_eq!(connection.waits().total_ns(), duration);
        }
        for (direction, other) in
            [(0, 1), (1, 0)].map(|(a, b)| (&connection.directions[a], &connection.directions[b]))
        {
            let sent = &direction.sent;
            assert!(sent.captured_data_packets + sent.pure_acks <= sent.captured_packets);
            assert!(sent.super_segments <= sent.captured_data_packets);
            assert!(
                sent.retransmitted_packets + sent.reordered_packets + sent.keepalives
                    <= sent.captured_packets
            );
            assert!(sent.tail_splits + sent.small_packets <= sent.captured_data_packets);
            assert!(sent.data_wire_segments >= sent.captured_data_packets);
            assert!(sent.retransmitted_bytes <= sent.payload_bytes);
            assert!(sent.window_updates + sent.duplicate_acks <= sent.pure_acks);
            assert!(direction.acks.wire_segments_per_pure_ack.n() <= sent.pure_acks);
            assert!(sent.delayed_ack_stalls <= other.sent.pure_acks);
            let limits = [
                sent.window_limited_ns,
                sent.receiver_limited_ns,
                sent.application_limited_ns,
                sent.limit_unknown_ns,
            ];
            if let Some(duration) = duration {
                assert_eq!(limits.iter().sum::<u64>(), duration);
                assert!(sent.delayed_ack_stall_ns <= duration && sent.zero_window_ns <= duration);
            }
        }
    }
    let report = Report::new("fuzz", reading, outcome, connections);
    text(&report);
    // Most of a page's time is spent on the charts' library, which is the same in each page.
    if report.total.captured_packets.is_multiple_of(16) {
        page(&report, graph);
    }
    for connection in &report.connections {
        connection_text(&report, connection, graph.of_connection(connection.number));
    }
    let reports = [report];
    csv(&reports);
    json(&reports);
}

/// Reader that returns its bytes a few at a time.
struct Pipe<'a>(&'a [u8], usize);

impl Read for Pipe<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = self.1.min(into.len()).min(self.0.len());
        into[..count].copy_from_slice(&self.0[..count]);
        self.0 = &self.0[count..];
        Ok(count)
    }
}

/// Input bytes, followed by zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        match self.0.split_first() {
            Some((first, rest)) => {
                self.0 = rest;
                *first
            }
            None => 0,
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}
