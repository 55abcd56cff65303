//! Captures made by other programs: the smallest one of each kind that was once read wrongly.

mod common;

use std::io::Write;

use common::{CLIENT, ISN, Packet, SERVER, Script, pcap, told};
use tcpcost_trace::flag::{ACK, PSH, RST, SYN};
use tcpcost_trace::{
    Analysis, Handshake, MssSource, Policy, Reading, Report, Segment, Settings, Wait, read,
};

fn mss(bytes: u16) -> Vec<u8> {
    [&[2, 4][..], &bytes.to_be_bytes()].concat()
}

/// Options NOP, NOP, timestamps.
fn stamps(value: u32, echo: u32) -> Vec<u8> {
    [
        &[1, 1, 8, 10][..],
        &value.to_be_bytes(),
        &echo.to_be_bytes(),
    ]
    .concat()
}

fn opened(client_mss: u16, server_mss: u16) -> Script {
    let mut script = Script::default();
    script.raw(CLIENT, SYN, ISN[0], 0, 0).options = mss(client_mss);
    let answer = script
        .after(100)
        .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
    answer.options = mss(server_mss);
    script.after(1).ack(CLIENT, 0);
    script
}

/// Adds full segments of this size without PSH, each acknowledged.
fn bulk(script: &mut Script, segments: u32, payload: u32) {
    for segment in 0..segments {
        let seq = ISN[0] + 1 + segment * payload;
        script.after(10).raw(CLIENT, ACK, seq, ISN[1] + 1, payload);
        script.after(50).ack(SERVER, (segment + 1) * payload);
    }
}

#[test]
fn the_others_mss_option_binds_and_the_own_does_not() {
    // `ip route ... advmss 1400` at the client: its segments are limited by the server's 1460.
    let mut script = opened(1400, 1460);
    bulk(&mut script, 20, 1460);
    let client = &script.one().directions[CLIENT];
    assert_eq!(
        (client.mss.bytes, client.mss.source),
        (1460, MssSource::Handshake)
    );
    let counts = (client.sent.data_wire_segments, client.sent.super_segments);
    assert_eq!(counts, (20, 0));
    // The server's segments are limited by the 1400.
    assert_eq!(script.one().directions[SERVER].mss.bytes, 1400);
}

#[test]
fn packets_of_one_size_above_the_mss_show_that_it_is_wrong() {
    // A middlebox lowered the option after the sender's answer.
    let mut script = opened(1200, 1200);
    bulk(&mut script, 20, 1448);
    let client = &script.one().directions[CLIENT];
    assert_eq!(
        (client.mss.bytes, client.mss.source),
        (1448, MssSource::Inferred)
    );
    let counts = (client.sent.data_wire_segments, client.sent.super_segments);
    assert_eq!(counts, (20, 0));
    assert_eq!(client.wire_segments_per_packet.max(), Some(1));
    // Super-segments are multiples of the MSS, and do not show another one.
    let mut script = opened(1200, 1200);
    bulk(&mut script, 20, 3600);
    assert_eq!(script.sent(CLIENT).data_wire_segments, 60);
}

/// Analyses ten segments, the fourth sent again after `after_us`, all acknowledged at the end.
/// Returns the numbers of retransmissions and of copies.
fn sent_again(after_us: u64, change: impl Fn(usize, &mut Packet)) -> (u64, u64) {
    let mut script = opened(1460, 1460);
    for segment in 0..10 {
        script.after(10).data(CLIENT, segment * 1460, 1460).ip_id = 100 + segment as u16;
    }
    script.after(after_us).data(CLIENT, 3 * 1460, 1460).ip_id = 110;
    script.after(10).ack(SERVER, 14_600);
    for (at, packet) in script.packets.iter_mut().enumerate() {
        change(at, packet);
    }
    let sent = script.sent(CLIENT);
    (sent.retransmitted_packets, sent.captured_twice)
}

#[test]
fn what_is_sent_again_within_half_a_millisecond_is_no_copy() {
    // RACK on a short path; timestamps do not change within a millisecond.
    assert_eq!(sent_again(200, |_, packet| packet.ipv6 = true), (1, 0));
    assert_eq!(sent_again(200, |_, packet| packet.ip_id = 0), (1, 0));
    assert_eq!(sent_again(200, |_, _| ()), (1, 0));
    let with_timestamps = |_: usize, packet: &mut Packet| {
        packet.ipv6 = true;
        packet.options.extend(stamps(7, 7));
    };
    assert_eq!(sent_again(200, with_timestamps), (1, 0));
}

/// Transfer whose packets all pass a second place, `after_us` later. `second` makes the differences
/// there.
fn passed_twice(after_us: u64, second: impl Fn(&mut Packet)) -> Script {
    let mut once = opened(1460, 1460);
    for round in 0..20 {
        for segment in 0..20 {
            once.after(10)
                .data(CLIENT, (round * 20 + segment) * 1460, 1460);
        }
        once.after(50_000).ack(SERVER, (round + 1) * 20 * 1460);
    }
    let mut both = Script::default();
    for packet in &once.packets {
        both.packets.push(packet.clone());
        let mut copy = packet.clone();
        copy.at_us += after_us;
        second(&mut copy);
        both.packets.push(copy);
    }
    both.packets.sort_by_key(|packet| packet.at_us);
    both
}

fn is_counted_once(script: &Script, link: u32) {
    let connections = script.analyse_of(link);
    assert_eq!(connections.len(), 1);
    let total = connections[0].total();
    let counts = (
        total.captured_packets,
        total.captured_twice,
        total.retransmitted_packets,
    );
    let packets = script.packets.len() as u64 / 2;
    assert_eq!(
        (counts, total.duplicate_acks),
        ((packets, packets, 0), 0),
        "link {link}"
    );
}

#[test]
fn copies_that_waited_in_a_queue_are_copies() {
    // 40 ms later, after hundreds of others: recognised by the id.
    is_counted_once(&passed_twice(40_000, |_| ()), 101);
    is_counted_once(&passed_twice(40_000, |copy| copy.hops = 1), 101);
    // Without ids: recognised by the interface.
    let other_side = |copy: &mut Packet| {
        copy.interface = 2;
        copy.hops = 1;
    };
    let mut script = passed_twice(40_000, other_side);
    for packet in &mut script.packets {
        packet.ipv6 = true;
    }
    is_counted_once(&script, 276);
    // A router under `-i any`, version 1: in on one side, out on the other.
    let mut script = passed_twice(40_000, |copy| copy.outgoing = true);
    for packet in &mut script.packets {
        packet.ipv6 = true;
    }
    is_counted_once(&script, 113);
}

#[test]
fn a_super_segment_and_its_own_pieces_are_one() {
    for pieces_first in [false, true] {
        let mut script = opened(1460, 1460);
        for segment in 0..8 {
            script.after(10).data(CLIENT, segment * 1460, 1460).ip_id = 50 + segment as u16;
        }
        let start = 8 * 1460;
        let whole = |script: &mut Script| script.after(5).data(CLIENT, start, 4 * 1460).ip_id = 58;
        let pieces = |script: &mut Script| {
            for piece in 0..4 {
                let packet = script.after(5).data(CLIENT, start + piece * 1460, 1460);
                packet.ip_id = 58 + piece as u16;
            }
        };
        if pieces_first {
            pieces(&mut script);
            whole(&mut script);
        } else {
            whole(&mut script);
            pieces(&mut script);
        }
        script.after(50).ack(SERVER, 12 * 1460);
        let sent = script.sent(CLIENT);
        let copies = if pieces_first { 1 } else { 4 };
        assert_eq!(
            (sent.captured_twice, sent.retransmitted_packets),
            (copies, 0)
        );
    }
}

#[test]
fn an_ack_captured_before_its_data_makes_nothing_missing_or_sent_again() {
    let mut script = opened(1460, 1460);
    script.after(10).data(CLIENT, 0, 1460);
    script.after(10).ack(SERVER, 2 * 1460);
    script.after(5).data(CLIENT, 1460, 1460);
    script.after(10).data(CLIENT, 2 * 1460, 1460);
    script.after(50).ack(SERVER, 3 * 1460);
    let sent = script.sent(CLIENT);
    let wrong = (sent.bytes_missing_from_capture, sent.retransmitted_packets);
    assert_eq!((wrong, sent.reordered_packets), ((0, 0), 0));
    // Data that never come are missing.
    script.packets.remove(5);
    assert_eq!(script.sent(CLIENT).bytes_missing_from_capture, 1460);
}

#[test]
fn acks_captured_before_a_part_of_a_super_segment_make_nothing_missing_or_sent_again() {
    const M: u32 = 1460;
    let check = |script: &Script, missing: u64| {
        let sent = script.sent(CLIENT);
        let again = (sent.retransmitted_packets, sent.reordered_packets);
        assert_eq!((sent.bytes_missing_from_capture, again), (missing, (0, 0)));
        sent
    };
    // One ACK covers half of the packet after it, or two ACKs cover a third each.
    for acks in [&[2][..], &[2, 3]] {
        let mut script = opened(1460, 1460);
        script.after(10).data(CLIENT, 0, M);
        for ack in acks {
            script.after(10).ack(SERVER, ack * M);
        }
        script.after(5).data(CLIENT, M, 3 * M);
        script.after(10).data(CLIENT, 4 * M, M);
        script.after(50).ack(SERVER, 5 * M);
        let sent = check(&script, 0);
        assert_eq!(sent.payload_bytes, 5 * u64::from(M));
    }
    // A part came before the ACK: its gap is filled after the ACK.
    let mut script = opened(1460, 1460);
    script.after(10).data(CLIENT, 0, M);
    script.after(5).data(CLIENT, 3 * M, M);
    script.after(10).ack(SERVER, 4 * M);
    script.after(5).data(CLIENT, M, 2 * M);
    script.after(10).data(CLIENT, 4 * M, M);
    script.after(50).ack(SERVER, 5 * M);
    check(&script, 0);
    // The later part comes first, then the part before it; or that part never comes.
    let mut script = opened(1460, 1460);
    script.after(10).data(CLIENT, 0, M);
    script.after(10).ack(SERVER, 4 * M);
    script.after(5).data(CLIENT, 2 * M, 3 * M);
    script.after(5).data(CLIENT, M, M);
    script.after(50).ack(SERVER, 5 * M);
    check(&script, 0);
    let first_part = script.packets.len() - 2;
    script.packets.remove(first_part);
    check(&script, u64::from(M));
}

#[test]
fn without_sack_an_outage_begins_with_its_first_duplicate_ack() {
    const SECOND: u64 = 1_000_000;
    let mut script = opened(1460, 1460);
    script.after(10).data(CLIENT, 0, 1000);
    script.after(100).ack(SERVER, 1000);
    script.after(100_000).data(CLIENT, 1000, 1000);
    script.after(10).data(CLIENT, 2000, 1000);
    // The first of the two did not arrive, and nothing passes for 20 s.
    script.after(100).ack(SERVER, 1000);
    script.after(20 * SECOND).data(CLIENT, 3000, 1000);
    script.after(100).ack(SERVER, 1000);
    script.after(5 * SECOND).data(CLIENT, 1000, 1000);
    script.after(100).ack(SERVER, 4000);
    let waits = script.one().waits();
    let loss = [Wait::LossFast, Wait::LossProbe, Wait::LossTimeout].map(|of| waits.of(of));
    assert!(loss.iter().sum::<u64>() > 25 * SECOND * 1000, "{waits:?}");
    assert!(waits.of(Wait::Idle) < SECOND, "{waits:?}");
}

/// An upload through a long queue, captured at the client: all data were sent, and most still wait
/// in the queue.
#[test]
fn no_answer_is_awaited_while_acks_tell_that_the_request_is_under_way() {
    let mut script = opened(1460, 1460);
    for segment in 0..8 {
        script.after(10).data(CLIENT, segment * 1460, 1460);
    }
    for arrived in [2, 4, 6] {
        script.after(100_000).ack(SERVER, arrived * 1460);
    }
    script.after(130_000).data(SERVER, 0, 100).ack += 8 * 1460;
    let waits = script.one().waits();
    let server = waits.of(Wait::ServerApplication);
    // Time after the last of the ACKs may be the server's.
    assert_eq!(server, 130_000_000, "{waits:?}");
    assert!(waits.of(Wait::CongestionWindow) > 299_000_000, "{waits:?}");
    assert_eq!(waits.total_ns(), script.one().duration_ns().unwrap());
    // An ACK of all data shows when the kernel had them; the time after it is the server's.
    let before_answer = script.packets.len() - 1;
    script.packets[before_answer - 1].ack += 2 * 1460;
    let waits = script.one().waits();
    assert_eq!(waits.of(Wait::ServerApplication), 230_000_000, "{waits:?}");
}

#[test]
fn every_form_of_tcpdumps_stamps_tells_the_same_times() {
    let times = |lines: &[&str]| {
        let text: String = lines
            .iter()
            .enumerate()
            .map(|(at, stamp)| {
                let seq = 1 + 10 * at;
                format!("{stamp} IP 10.0.0.1.5 > 10.0.0.2.80: Flags [P.], seq {seq}:{}, ack 1, win 9, length 10\n", seq + 10)
            })
            .collect();
        let mut times = Vec::new();
        read(text.as_bytes(), &mut |segment: &Segment| {
            times.push(segment.at_ns.map(|ns| ns / 1000));
        })
        .1
        .unwrap();
        times
    };
    let expected = [0, 1_000_000, 1_000_100, 3_000_000, 3_500_000, 4_000_000].map(Some);
    let since_last = [
        " 00:00:00.000000",
        " 00:00:01.000000",
        " 00:00:00.000100",
        " 00:00:01.999900",
        " 00:00:00.500000",
        " 00:00:00.500000",
    ];
    let since_first = [
        " 00:00:00.000000",
        " 00:00:01.000000",
        " 00:00:01.000100",
        " 00:00:03.000000",
        " 00:00:03.500000",
        " 00:00:04.000000",
    ];
    assert_eq!(times(&since_last), expected, "-ttt");
    assert_eq!(times(&since_first), expected, "-ttttt");
    for stamps in [since_last, since_first] {
        let numbered: Vec<String> = (1..)
            .zip(stamps)
            .map(|(number, stamp)| format!("{number:5}  {stamp}"))
            .collect();
        let lines: Vec<&str> = numbered.iter().map(String::as_str).collect();
        assert_eq!(times(&lines), expected, "-# as well");
    }
    let of_day = ["    1  00:00:00.000000", "    2  00:00:01.000000"];
    assert_eq!(times(&of_day), expected[..2]);
}

#[test]
fn a_compressed_file_that_was_cut_tells_what_is_before_the_cut() {
    let mut script = opened(1460, 1460);
    bulk(&mut script, 20_000, 1000);
    let plain = pcap(&script.packets, false);
    let zstd =
        ruzstd::encoding::compress_to_vec(&plain[..], ruzstd::encoding::CompressionLevel::Fastest);
    let options = lzma_rust2::XzOptions::with_preset(1);
    let mut xz = lzma_rust2::XzWriter::new(Vec::new(), options).unwrap();
    xz.write_all(&plain).unwrap();
    let xz = xz.finish().unwrap();
    assert_eq!(told(&xz), told(&plain));
    for (name, whole) in [("zstd", zstd), ("xz", xz)] {
        let cut = &whole[..whole.len() * 3 / 4];
        let (reading, outcome) = read(cut, &mut |_: &Segment| ());
        assert!(outcome.is_err(), "{name}");
        // Three quarters, less the packets in the block that was cut.
        let least = script.packets.len() as u64 / 2;
        assert!(
            reading.packets >= least,
            "{name}: {} of {least}",
            reading.packets
        );
    }
}

#[test]
fn the_modified_pcap_form_is_read_with_its_interfaces() {
    let script = passed_twice(40_000, |copy| copy.interface = 2);
    let plain = pcap(&script.packets, false);
    let mut modified = 0xa1b2_cd34_u32.to_le_bytes().to_vec();
    modified.extend(&plain[4..24]);
    let mut rest = &plain[24..];
    for packet in &script.packets {
        let length = 16 + u32::from_le_bytes(rest[8..12].try_into().unwrap()) as usize;
        modified.extend(&rest[..16]);
        modified.extend(u32::from(packet.interface).to_le_bytes());
        modified.extend([8, 0, 0, 0]);
        modified.extend(&rest[16..length]);
        rest = &rest[length..];
    }
    let mut interfaces = Vec::new();
    let (reading, outcome) = read(&modified[..], &mut |segment: &Segment| {
        interfaces.push(segment.interface as u16);
    });
    outcome.unwrap();
    assert_eq!(reading.packets, script.packets.len() as u64);
    let expected: Vec<u16> = script
        .packets
        .iter()
        .map(|packet| packet.interface)
        .collect();
    assert_eq!(interfaces, expected);
}

#[test]
fn zero_windows_are_segments_and_probes_of_a_closed_window_make_no_duplicates() {
    let mut script = Script::open();
    script.after(10).data(CLIENT, 0, 1460);
    script.after(10).ack(SERVER, 1460).window = 0;
    for _ in 0..3 {
        // A probe: one byte that the window does not offer, or the last byte again.
        script.after(200_000).data(CLIENT, 1460, 1);
        script.after(10).ack(SERVER, 1460).window = 0;
    }
    script.after(10).ack(SERVER, 1461);
    let server = script.sent(SERVER);
    assert_eq!((server.zero_windows, server.window_closings), (4, 1));
    assert_eq!(server.duplicate_acks, 0);
}

#[test]
fn probes_of_a_closed_window_by_data_beyond_it_are_time_of_the_receivers_window() {
    // Probes as BSD and Solaris send them: one byte, again and again.
    let mut script = opened(1460, 1460);
    bulk(&mut script, 10, 1460);
    script.after(10).ack(SERVER, 14_600).window = 0;
    for probe in 0..6 {
        script.after(400_000 << probe).data(CLIENT, 14_600, 1);
        script.after(100_000).ack(SERVER, 14_600).window = 0;
    }
    script.after(8_000_000).ack(SERVER, 14_600);
    script.after(10).data(CLIENT, 14_600, 1460);
    let waits = script.one().waits();
    let loss = [Wait::LossFast, Wait::LossTimeout, Wait::LossProbe].map(|wait| waits.of(wait));
    assert_eq!(loss, [0; 3]);
    assert!(waits.of(Wait::ReceiverWindow) > 25_000_000_000, "{waits:?}");
}

#[test]
fn the_first_ack_in_the_middle_of_a_connection_updates_no_window() {
    let mut script = Script::default();
    script.after(10).ack(SERVER, 1460);
    script.after(10).data(CLIENT, 1460, 1460);
    script.after(10).ack(SERVER, 2 * 1460);
    let server = script.sent(SERVER);
    assert_eq!(
        (
            server.pure_acks,
            server.window_updates,
            server.duplicate_acks
        ),
        (2, 0, 0)
    );
}

#[test]
fn acks_that_go_on_update_no_window_where_one_way_alone_was_captured() {
    let mut script = Script::default();
    for round in 0..5 {
        let ack = ISN[1] + 1 + round * 1000;
        script
            .after(1000)
            .raw(CLIENT, ACK, ISN[0] + 1, ack, 0)
            .window = 500 - round as u16;
    }
    assert_eq!(script.sent(CLIENT).window_updates, 0);
    // An ACK with an unchanged number and a changed window is a window update.
    let again = ISN[1] + 1 + 4000;
    script
        .after(1000)
        .raw(CLIENT, ACK, ISN[0] + 1, again, 0)
        .window = 900;
    assert_eq!(script.sent(CLIENT).window_updates, 1);
}

#[test]
fn every_segment_is_no_policy_where_an_ack_covers_ten_on_average() {
    let mut script = opened(1460, 1460);
    let mut sent = 0;
    for round in 0..20 {
        let segments = if round % 7 == 6 { 60 } else { 1 };
        for _ in 0..segments {
            script.after(10).data(CLIENT, sent, 1460);
            sent += 1460;
        }
        script.after(50).ack(SERVER, sent);
    }
    let acks = &script.one().directions[SERVER].acks;
    assert_eq!(
        acks.policy().policy,
        Policy::Mixed,
        "{}",
        acks.policy().evidence
    );
}

#[test]
fn handshakes_that_go_nowhere_are_counted_listed_in_part_and_a_finding() {
    let mut packets = Vec::new();
    for port in 1..=20_000u16 {
        let mut script = Script::default();
        script.raw(CLIENT, SYN, ISN[0], 0, 0);
        if port % 4 == 0 {
            script.after(10).raw(SERVER, RST | ACK, 0, ISN[0] + 1, 0);
        }
        if port % 4 == 1 {
            script
                .after(10)
                .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
        }
        for mut packet in script.packets {
            packet.client_port = port;
            packet.at_us += u64::from(port) * 10;
            packets.push(packet);
        }
    }
    let told = |packets: &[Packet]| {
        let mut analysis = Analysis::new(Settings::default());
        let (reading, outcome) = read(&pcap(packets, false)[..], &mut analysis);
        outcome.unwrap();
        analysis.into_report("scan", &reading, Ok(())).0
    };
    // Within a second of its SYN nothing has failed yet.
    let found = told(&packets).handshakes;
    assert_eq!(
        (found.open, found.refused, found.failed()),
        (15_000, 5_000, 5_000)
    );
    let mut later = Script::default();
    later.after(2_000_000).data(CLIENT, 0, 10);
    packets.extend(later.packets);
    let report = told(&packets);
    let found = report.handshakes;
    assert_eq!(
        (found.unanswered, found.refused, found.half_open),
        (10_000, 5_000, 5_000)
    );
    assert_eq!(report.total.captured_packets, packets.len() as u64);
    assert_eq!(
        (report.connections_begun, report.connections.len()),
        (20_001, 1001)
    );
    let first = &report.findings[0];
    assert_eq!(first.kind, "failed_handshakes");
    assert!(first.text.contains("most to 10.0.0.2:80"), "{}", first.text);
}

#[test]
fn refused_connections_lead_with_that_word_and_a_late_answer_to_a_syn_is_no_round_trip() {
    let report = |script: &Script| {
        let connections = script.analyse();
        Report::new("one", &Reading::default(), Ok(()), &connections)
    };
    let mut refused = Script::default();
    refused.raw(CLIENT, SYN, ISN[0], 0, 0);
    refused.after(10).raw(SERVER, RST | ACK, 0, ISN[0] + 1, 0);
    assert_eq!(
        report(&refused).findings[0].cause,
        "Connections were refused"
    );
    let mut late = Script::default();
    late.raw(CLIENT, SYN, ISN[0], 0, 0);
    late.after(1_000_000).raw(CLIENT, SYN, ISN[0], 0, 0);
    late.after(800_000)
        .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
    late.after(10).ack(CLIENT, 0);
    late.after(10).data(CLIENT, 0, 100);
    late.after(10).data(SERVER, 0, 100);
    let first = &report(&late).findings[0];
    assert_eq!(first.kind, "syn_retransmissions");
    assert_eq!(first.time_ns, Some(1_800_000_000));
}

#[test]
fn what_is_owed_when_the_capture_ends_leads() {
    let told = |script: &Script| {
        let connections = script.analyse();
        let report = Report::new("one", &Reading::default(), Ok(()), &connections);
        let of = &report.connections[0];
        (
            report.findings[0].kind,
            of.owed.map(|owed| (owed.by, owed.ns / 1_000_000_000)),
        )
    };
    // Another connection shows that the capture went on.
    let watched = |mut script: Script| {
        let mut other = Script::open();
        for packet in &mut other.packets {
            packet.client_port = 999;
            packet.at_us += 20_000_000;
        }
        script.packets.extend(other.packets);
        script
    };
    let exchange = || {
        let mut script = Script::open();
        script.after(100).data(CLIENT, 0, 100);
        script.after(100).ack(SERVER, 100);
        script.after(1000).data(SERVER, 0, 300);
        script.after(10).ack(CLIENT, 300);
        script
    };
    let mut unanswered = exchange();
    unanswered.after(1000).data(CLIENT, 100, 100);
    unanswered.after(100).ack(SERVER, 200);
    assert_eq!(
        told(&watched(unanswered)),
        ("unanswered_requests", Some((1, 19)))
    );
    let mut fin = exchange();
    fin.after(1000).fin(SERVER, 300, 100);
    fin.after(100).ack(CLIENT, 301);
    assert_eq!(told(&watched(fin)), ("unanswered_fins", Some((0, 19))));
    // The answer's end came, what was before it never did.
    let mut missing = exchange();
    missing.after(1000).data(CLIENT, 100, 100);
    missing.after(100).ack(SERVER, 200);
    missing.after(1000).data(SERVER, 300 + 15_000, 500);
    missing.after(10).ack(CLIENT, 300);
    assert_eq!(told(&watched(missing)), ("undelivered_data", Some((1, 19))));
    // A connection at rest owes nothing.
    let rest = told(&watched(exchange()));
    assert_eq!(rest.1, None, "{rest:?}");
}

#[test]
fn a_handshake_that_something_follows_is_a_connection_whatever_came_before() {
    let mut script = Script::default();
    script.raw(CLIENT, SYN, ISN[0], 0, 0);
    script.after(1_000_000).raw(CLIENT, SYN, ISN[0], 0, 0);
    script
        .after(100)
        .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
    script.after(100).ack(CLIENT, 0);
    script.after(100).data(CLIENT, 0, 100);
    let connection = script.one();
    assert_eq!(connection.handshake(), Some(Handshake::Completed));
    assert_eq!(connection.directions[CLIENT].syns_retransmitted, 1);
    // A SYN with another number begins another handshake, and the first one failed.
    let mut script = Script::default();
    script.raw(CLIENT, SYN, ISN[0], 0, 0);
    script.after(1_000_000).raw(CLIENT, SYN, 77, 0, 0);
    script.after(100).raw(SERVER, SYN | ACK, ISN[1], 78, 0);
    script.after(100).raw(CLIENT, ACK | PSH, 78, ISN[1] + 1, 10);
    let handshakes: Vec<_> = script.analyse().iter().map(|of| of.handshake()).collect();
    assert_eq!(
        handshakes,
        [Some(Handshake::Unanswered), Some(Handshake::Completed)]
    );
}

#[test]
fn of_one_direction_alone_it_is_not_known_who_waited() {
    let mut script = Script::open();
    for number in 0..20 {
        script.after(200_000).data(CLIENT, number * 100, 100);
        script.after(50_000).data(SERVER, number * 100, 100);
    }
    let kinds = |script: &Script| {
        let connections = script.analyse();
        let report = Report::new("one", &Reading::default(), Ok(()), &connections);
        report.findings[0].clone()
    };
    assert_eq!(kinds(&script).kind, "client_application");
    script.packets.retain(|packet| packet.from == CLIENT);
    let first = kinds(&script);
    assert!(["path_or_application", "sender_or_path"].contains(&first.kind));
    assert!(
        first.cause.contains("only one direction was captured"),
        "{first:?}"
    );
}

/// Before libpcap's version 2.3 a packet's length on the wire was before its captured length.
#[test]
fn files_older_than_version_2_4_are_read_whichever_length_comes_first() {
    let mut script = Script::open();
    script.after(5).data(CLIENT, 0, 1000);
    let new = pcap(&script.packets, false);
    let mut old = new.clone();
    old[4..8].copy_from_slice(&[2, 0, 2, 0]);
    let mut at = 24;
    while at < old.len() {
        let captured = u32::from_le_bytes(old[at + 8..at + 12].try_into().unwrap());
        let (first, second) = old[at + 8..at + 16].split_at_mut(4);
        first.swap_with_slice(second);
        at += 16 + captured as usize;
    }
    assert_eq!(told(&old), told(&new));
    assert!(told(&new).1);
}

#[test]
fn snoops_form_is_named() {
    let (_, outcome) = read(
        &b"snoop\0\0\0\0\0\0\x02"[..],
        &mut Analysis::new(Settings::default()),
    );
    assert!(outcome.unwrap_err().to_string().contains("snoop"));
}

/// Capture of one side of a closed window: a window of 0 needs no scale, so no handshake.
#[test]
fn a_window_that_was_closed_is_what_was_waited_for_though_the_handshake_is_missing() {
    let mut script = Script::default();
    script.after(0).ack(SERVER, 0);
    script.after(200).ack(SERVER, 1000).window = 0;
    script.after(10_000).ack(SERVER, 1000);
    script.after(230).data(CLIENT, 1000, 1460);
    let waits = script.one().waits();
    assert_eq!(waits.of(Wait::ReceiverWindow), 10_230_000, "{waits:?}");
}

/// The sender probes until the capture ends. Each answer says that there is no room.
#[test]
fn a_window_that_never_opens_is_what_was_waited_for() {
    let mut script = Script::default();
    script.after(0).data(SERVER, 0, 1344);
    script.after(30).ack(CLIENT, 1344).window = 0;
    for pause_ms in [3_400, 6_800, 13_500] {
        script
            .after(pause_ms * 1000)
            .raw(SERVER, ACK, ISN[SERVER] + 1344, ISN[CLIENT] + 1, 0);
        script.after(30).ack(CLIENT, 1344).window = 0;
    }
    let connection = script.one();
    let waits = connection.waits();
    assert!(
        waits.of(Wait::ReceiverWindow) > waits.total_ns() / 100 * 99,
        "{waits:?}"
    );
    let report = Report::new("dead", &Reading::default(), Ok(()), &[connection]);
    assert_eq!(report.findings[0].kind, "receiver_window");
}

/// A client connects in order to send a request; a client that has an answer may need time for it.
#[test]
fn a_client_that_connects_and_asks_late_is_what_was_waited_for() {
    let mut script = Script::open();
    script.after(1_300_000).data(CLIENT, 0, 600);
    script.after(200).ack(SERVER, 600);
    script.after(50_000).data(SERVER, 0, 1400);
    script.after(2_000_000).data(CLIENT, 600, 600);
    script.after(50_000).data(SERVER, 1400, 1400);
    let waits = script.one().waits();
    assert_eq!(
        waits.of(Wait::ClientApplication) / 1_000_000,
        1_300,
        "{waits:?}"
    );
    assert_eq!(waits.of(Wait::Idle) / 1_000_000, 1_999, "{waits:?}");
    // A connection kept in reserve makes no end wait.
    let mut reserve = Script::open();
    reserve.after(30_000_000).data(CLIENT, 0, 600);
    let waits = reserve.one().waits();
    assert!(waits.of(Wait::Idle) > 29_000_000_000, "{waits:?}");
}

/// The last answer filled most of the window and was read; a minute later the server closes.
#[test]
fn a_connection_kept_open_waits_for_no_window() {
    let mut script = Script::open();
    script.after(100).data(CLIENT, 0, 600);
    script.after(100).ack(SERVER, 600);
    for number in 0..40 {
        let seq = ISN[SERVER] + 1 + number * 1460;
        script.raw(SERVER, ACK, seq, ISN[CLIENT] + 601, 1460);
    }
    script.data(SERVER, 40 * 1460, 100);
    script.after(100).ack(CLIENT, 40 * 1460 + 100);
    script.after(70_000_000).fin(SERVER, 40 * 1460 + 100, 600);
    let waits = script.one().waits();
    assert!(waits.of(Wait::Idle) > 69_000_000_000, "{waits:?}");
}
