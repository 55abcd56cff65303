//! Published traces, compared with counts made by hand.

use std::fmt::Write as _;

use tcpcost_study::Study;
use tcpcost_trace::{
    AckEvent, Analysis, BurstEvent, Connection, Filter, MssSource, OpeningWatch, PacketEvent,
    Policy, Settings, Watch, read,
};

#[derive(Default)]
struct Log {
    packets: Vec<PacketEvent>,
    acks: Vec<(usize, AckEvent)>,
    bursts: Vec<(usize, BurstEvent, usize)>,
}

impl Watch for Log {
    fn on_packet(&mut self, _: usize, packet: &PacketEvent) {
        self.packets.push(*packet);
    }
    fn on_ack(&mut self, connection: usize, ack: &AckEvent) {
        self.acks.push((connection, *ack));
    }
    fn on_burst(&mut self, connection: usize, burst: &BurstEvent) {
        self.bursts.push((connection, *burst, self.packets.len()));
    }
}

fn data(name: &str) -> String {
    let path = format!("{}/tests/data/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(path).unwrap()
}

fn analyse(name: &str) -> (Vec<Connection>, Log) {
    analyse_with(name, Settings::default())
}

fn analyse_with(name: &str, settings: Settings) -> (Vec<Connection>, Log) {
    let mut analysis = Analysis::watched(settings, Filter::default(), Log::default());
    let (_, outcome) = read(data(name).as_bytes(), &mut analysis);
    outcome.unwrap();
    analysis.finish()
}

/// Rows of an expected file that begin with this word, without the word.
fn expected(name: &str, first: &str) -> String {
    let rows = data(name);
    let rows = rows
        .lines()
        .filter_map(|row| row.strip_prefix(&format!("{first},")));
    rows.fold(String::new(), |all, row| all + row + "\n")
}

const SERVER: usize = 1;

#[test]
fn every_packet_of_the_tso_traces_is_split_as_counted() {
    for phase in ["before", "after"] {
        let (connections, log) = analyse(&format!("dumazet2013_trace_{phase}.txt"));
        let mut found = String::new();
        for packet in &log.packets {
            let ends = if packet.from == 0 { "A,B" } else { "B,A" };
            let PacketEvent {
                seq,
                payload_bytes: bytes,
                wire_segments,
                full_segments,
                ..
            } = *packet;
            let (push, range) = match bytes {
                0 => ("", ",".to_string()),
                _ => (
                    if packet.push { "PSH" } else { "" },
                    format!("{seq},{}", seq + bytes),
                ),
            };
            let tail = bytes - full_segments * 1448;
            let ack = packet.ack.unwrap().0;
            writeln!(
                found,
                "{ends},{push},{range},{bytes},{full_segments},{tail},{wire_segments},{ack}"
            )
            .unwrap();
        }
        assert_eq!(
            found,
            expected("expected_dumazet2013_skbs.csv", phase),
            "{phase}"
        );
        let total = connections[0].total();
        let (tails, octets) = if phase == "before" {
            (3, 4252.0 / 3.0)
        } else {
            (0, 2100.0)
        };
        assert_eq!(total.tail_splits, tails, "{phase}");
        let mean = total.ip_octets as f64 / total.captured_packets as f64;
        assert!((mean - octets).abs() < 1e-9, "{phase}: {mean}");
        let source = if phase == "before" {
            MssSource::Inferred
        } else {
            MssSource::Assumed
        };
        assert!(
            connections[0]
                .directions
                .iter()
                .all(|direction| direction.mss.bytes == 1448 && direction.mss.source == source)
        );
        assert_eq!(
            (connections[0].first_ns, connections[0].duration_ns()),
            (None, None)
        );
    }
}

#[test]
fn every_ack_of_the_ack_traces_covers_what_was_counted() {
    for trace in ["ack_avoidance", "ack_every_other"] {
        let (connections, log) = analyse(&format!("jones2005_trace_{trace}.txt"));
        let data = connections.len() - 1;
        let mut found = String::new();
        // Numbers relative to the SYN, as in the text.
        let isn = log.packets.iter().find(|packet| packet.seq > 3_000_000_000);
        let isn = isn.map_or(0, |_| 3_760_261_556_u32);
        for (_, ack) in log
            .acks
            .iter()
            .filter(|(at, ack)| *at == data && ack.from == 0)
        {
            let kind = if ack.pure {
                "pure"
            } else {
                "piggyback_on_request"
            };
            let AckEvent {
                previous,
                ack,
                bytes,
                wire_segments,
                full_segments,
                ..
            } = *ack;
            let (previous, ack) = (previous.wrapping_sub(isn), ack.wrapping_sub(isn));
            writeln!(
                found,
                "{kind},{previous},{ack},{bytes},{wire_segments},{full_segments}"
            )
            .unwrap();
        }
        assert_eq!(
            found,
            expected("expected_jones2005_acks.csv", trace),
            "{trace}"
        );
        let server = &connections[data].directions[SERVER];
        let client = &connections[data].directions[0];
        let (data_segments, pure_acks) = if trace == "ack_avoidance" {
            (48, 8)
        } else {
            (24, 10)
        };
        assert_eq!(server.sent.data_wire_segments, data_segments);
        assert_eq!(client.sent.pure_acks, pure_acks);
        let expected = match trace {
            "ack_avoidance" => Policy::GrowingAvoidance { most: 8 },
            _ => Policy::EverySegments { segments: 2 },
        };
        assert_eq!(client.acks.policy().policy, expected);
        assert_eq!(
            (server.mss.bytes, server.mss.source),
            (1460, MssSource::Inferred)
        );
        assert_eq!(connections[data].total().retransmitted_packets, 0);
    }
}

#[test]
fn every_burst_of_the_ack_traces_is_as_long_as_counted() {
    // The usual gap, and then only packets of the other end, end a burst.
    let gaps = [Settings::default().burst_gap_ns, u64::MAX];
    let traces = [("ack_avoidance", 1), ("ack_every_other", 2)];
    for ((trace, first_transaction), burst_gap_ns) in traces
        .into_iter()
        .flat_map(|trace| gaps.map(|gap| (trace, gap)))
    {
        let settings = Settings {
            burst_gap_ns,
            ..Settings::default()
        };
        let (connections, log) = analyse_with(&format!("jones2005_trace_{trace}.txt"), settings);
        let data = connections.len() - 1;
        let requests = |until: usize| {
            // Requests of the connection itself: the client's packets with payload.
            let of_client = log.packets[..until]
                .iter()
                .filter(|packet| packet.from == 0);
            of_client
                .filter(|packet| packet.payload_bytes == 128)
                .count()
        };
        let mut found = String::new();
        for (kind, is_data, from) in [("data_segments", true, SERVER), ("pure_acks", false, 0)] {
            let of_kind = log.bursts.iter().filter(|(at, burst, _)| {
                *at == data && burst.data == is_data && burst.from == from
            });
            for (index, (_, burst, until)) in of_kind.enumerate() {
                let transaction = requests(*until) + first_transaction - 1;
                writeln!(found, "{kind},{transaction},{index},{}", burst.packets).unwrap();
            }
        }
        assert_eq!(
            found,
            expected("expected_jones2005_bursts.csv", trace),
            "{trace}"
        );
    }
}

/// Checks the definition that is used for a study's captures, on the published one.
#[test]
fn the_opening_of_the_avoidance_trace_is_the_published_sequence() {
    let filter = Filter {
        ports: vec![32_970],
        ..Filter::default()
    };
    let settings = Settings {
        burst_gap_ns: u64::MAX,
        ..Settings::default()
    };
    let mut analysis = Analysis::watched(settings, filter, OpeningWatch::of(4));
    let trace = data("jones2005_trace_ack_avoidance.txt");
    read(trace.as_bytes(), &mut analysis).1.unwrap();
    let opening = analysis.finish().1.opening(0);
    let study = concat!(env!("CARGO_MANIFEST_DIR"), "/../../studies/ack-bursts.toml");
    let published = &std::fs::read_to_string(study).unwrap();
    let published = Study::parse("ack-bursts", published, "ack-bursts.toml").unwrap();
    let published = published.published_opening.unwrap();
    assert_eq!(opening.client.pure_acks, published.pure_acks);
    assert_eq!(opening.server.data_bursts, published.data_bursts);
    assert_eq!(
        opening.client.pure_acks,
        [vec![1, 2, 3, 4], vec![5, 6], vec![7], vec![8]]
    );
}
