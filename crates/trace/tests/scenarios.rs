//! Exchanges whose results are known.

mod common;

use common::{CLIENT, ISN, SERVER, Script};
use tcpcost_trace::flag::{ACK, PSH, RST, SYN};
use tcpcost_trace::{ConnectionEnd, ConnectionStart, MssSource, Policy, Reading, Report, text};

#[test]
fn the_handshake_tells_mss_and_how_it_began_and_ended() {
    let mut script = Script::open();
    script.after(5).data(CLIENT, 0, 100);
    script.after(5).fin(CLIENT, 100, 0);
    script.after(5).fin(SERVER, 0, 101);
    script
        .after(5)
        .raw(CLIENT, ACK, ISN[0] + 102, ISN[1] + 2, 0);
    let connection = script.one();
    assert_eq!(
        (connection.began(), connection.ended()),
        (
            ConnectionStart::Handshake,
            ConnectionEnd::Fin { first: CLIENT }
        )
    );
    assert_eq!(connection.handshake_ns, Some(101_000));
    let client = &connection.directions[CLIENT];
    assert_eq!(
        (client.mss.bytes, client.mss.source),
        (1460, MssSource::Handshake)
    );
    assert_eq!(connection.directions[SERVER].acks.bytes_acked, 100);
    assert_eq!(connection.total().retransmitted_packets, 0);
}

#[test]
fn a_reset_and_a_new_connection_on_the_same_ports_are_told_apart() {
    let mut script = Script::open();
    script
        .after(5)
        .raw(CLIENT, RST | ACK, ISN[0] + 1, ISN[1] + 1, 0);
    script.after(50).raw(CLIENT, SYN, 900_000, 0, 0);
    script.after(50).raw(SERVER, SYN | ACK, 700_000, 900_001, 0);
    let connections = script.analyse();
    assert_eq!(connections.len(), 2);
    assert_eq!(connections[0].ended(), ConnectionEnd::Reset { by: CLIENT });
    assert_eq!(
        (connections[1].began(), connections[1].ended()),
        (ConnectionStart::Handshake, ConnectionEnd::NotSeen)
    );
}

#[test]
fn a_syn_sent_again_is_no_new_connection() {
    let mut script = Script::default();
    script.raw(CLIENT, SYN, 7, 0, 0);
    script.after(1_000_000).raw(CLIENT, SYN, 7, 0, 0);
    script.after(100).raw(SERVER, SYN | ACK, 9, 8, 0);
    let connection = script.one();
    assert_eq!(connection.directions[CLIENT].sent.retransmitted_packets, 1);
    assert_eq!(
        connection.directions[CLIENT]
            .sent
            .silence_before_retransmission_ns,
        1_000_000_000
    );
}

#[test]
fn lost_and_late_packets_are_told_apart_and_needless_ones_seen() {
    let mut script = Script::open();
    for (offset, ip_id) in [(0, 10), (2920, 12), (1460, 11), (4380, 13)] {
        script.after(10).data(CLIENT, offset, 1460).ip_id = ip_id;
    }
    script.after(100).ack(SERVER, 5840);
    // Sent again although acknowledged; then a gap that is filled long after.
    script.after(300_000).data(CLIENT, 4380, 1460);
    script.after(100).data(CLIENT, 7300, 1460);
    script.after(100_000).data(CLIENT, 5840, 1460);
    script.after(100).ack(SERVER, 8760);
    let sent = script.one().directions[CLIENT].sent.clone();
    assert_eq!(sent.reordered_packets, 1);
    assert_eq!(
        (sent.retransmitted_packets, sent.retransmitted_after_ack),
        (2, 1)
    );
    assert_eq!(sent.bytes_missing_from_capture, 0);
}

#[test]
fn on_a_short_path_the_id_tells_a_retransmission_and_without_ids_the_time_does() {
    for (ids, filler_after_us, resent) in [
        ([1, 2, 3], 20, 1),
        ([1, 3, 2], 20_000, 0),
        ([0; 3], 20, 0),
        ([0; 3], 20_000, 1),
    ] {
        let mut script = Script::open();
        script.after(10).data(CLIENT, 0, 1460).ip_id = ids[0];
        script.after(10).data(CLIENT, 2920, 1460).ip_id = ids[1];
        script.after(filler_after_us).data(CLIENT, 1460, 1460).ip_id = ids[2];
        let sent = &script.one().directions[CLIENT].sent;
        assert_eq!(
            (sent.retransmitted_packets, sent.reordered_packets),
            (resent, 1 - resent),
            "{ids:?}"
        );
    }
}

/// Two CPUs deliver packets of one connection, and one CPU is delayed for longer than RACK waits:
/// the original comes after its retransmission.
#[test]
fn an_original_that_its_retransmission_overtook_is_late() {
    let mut script = Script::open();
    for (offset, ip_id) in [(0, 10), (2920, 12), (4380, 13), (1460, 14), (1460, 11)] {
        script.after(10).data(CLIENT, offset, 1460).ip_id = ip_id;
    }
    script.after(10).ack(SERVER, 5840);
    // Sent once more, after the original.
    script.after(300_000).data(CLIENT, 1460, 1460).ip_id = 15;
    let sent = &script.one().directions[CLIENT].sent;
    assert_eq!((sent.retransmitted_packets, sent.reordered_packets), (2, 1));
    assert_eq!(sent.captured_twice, 0);
}

#[test]
fn what_was_acknowledged_but_not_captured_is_said() {
    let mut script = Script::open();
    script.after(10).data(CLIENT, 0, 1460);
    script.after(10).data(CLIENT, 4380, 1460);
    script.after(10).ack(SERVER, 5840);
    script.after(10).ack(SERVER, 8760);
    let connection = script.one();
    assert_eq!(
        connection.directions[CLIENT]
            .sent
            .bytes_missing_from_capture,
        2920 + 2920
    );
    assert_eq!(
        connection.directions[SERVER]
            .acks
            .wire_segments_per_pure_ack
            .sum(),
        6
    );
}

#[test]
fn duplicate_acks_window_updates_and_zero_windows() {
    let mut script = Script::open();
    script.after(10).data(CLIENT, 0, 1460);
    script.after(10).ack(SERVER, 1460).window = 0;
    script.after(2000).ack(SERVER, 1460).window = 3000;
    script.after(10).data(CLIENT, 1460, 1460);
    script.after(10).data(CLIENT, 2920, 1460);
    script.after(10).ack(SERVER, 1460).window = 3000;
    script.after(10).ack(SERVER, 1460).window = 3000;
    let connection = script.one();
    let server = &connection.directions[SERVER].sent;
    assert_eq!((server.duplicate_acks, server.window_updates), (2, 1));
    assert_eq!((server.zero_windows, server.zero_window_ns), (1, 2_000_000));
    // Time while it was closed, and after two segments filled the window that it had opened.
    assert_eq!(
        connection.directions[CLIENT].sent.receiver_limited_ns,
        2_000_000 + 20_000
    );
}

#[test]
fn a_dsack_is_a_spurious_retransmission() {
    let mut script = Script::open();
    script.after(10).data(CLIENT, 0, 1460);
    script.after(250_000).data(CLIENT, 0, 1460);
    script.after(10).ack(SERVER, 1460);
    let (left, right) = (ISN[0] + 1, ISN[0] + 1461);
    let blocks = [
        &[1, 1, 5, 10][..],
        &left.to_be_bytes(),
        &right.to_be_bytes(),
    ]
    .concat();
    script.after(10).ack(SERVER, 1460).options = blocks;
    let connection = script.one();
    assert_eq!(connection.directions[CLIENT].sent.spurious_by_dsack, 1);
    assert_eq!(connection.directions[SERVER].sent.sack_segments, 1);
}

/// Stalls, time lost by them, window-limited and application-limited time (all in ms) of a client
/// that sends `first` after the handshake. The ACK comes 40 ms later, and the next data `after_us`
/// after the ACK.
fn stalls(first: &[(u32, u32)], after_us: u64, server_rtt_us: u64) -> (u64, u64, u64, u64) {
    let mut script = Script::default();
    let mss = vec![2, 4, 0x05, 0xb4];
    script.raw(CLIENT, SYN, ISN[0], 0, 0).options = mss.clone();
    let syn_ack = script
        .after(100)
        .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
    syn_ack.options = mss;
    script.after(server_rtt_us).ack(CLIENT, 0);
    for (offset, payload) in first {
        script.after(10).data(CLIENT, *offset, *payload);
    }
    let sent: u32 = first.iter().map(|(_, payload)| payload).sum();
    script.after(40_000).ack(SERVER, sent);
    script.after(after_us).data(CLIENT, sent, 100);
    let sent = &script.one().directions[CLIENT].sent;
    let ms = |ns: u64| ns / 1_000_000;
    (
        sent.delayed_ack_stalls,
        ms(sent.delayed_ack_stall_ns),
        ms(sent.window_limited_ns),
        ms(sent.application_limited_ns),
    )
}

#[test]
fn one_segment_a_pause_a_lone_ack_and_data_at_once_are_a_delayed_ack_stall() {
    // It waited 40 ms, 0.1 ms of which the path took.
    assert_eq!(stalls(&[(0, 100)], 20, 1), (1, 39, 40, 0));
    assert_eq!(stalls(&[(0, 1460)], 20, 1), (1, 39, 40, 0));
    // Two segments outstanding, or no data that waited for the ACK.
    assert_eq!(stalls(&[(0, 1460), (1460, 1460)], 20, 1).0, 0);
    assert_eq!(stalls(&[(0, 2920)], 20, 1).0, 0);
    assert_eq!(stalls(&[(0, 100)], 500_000, 1), (0, 0, 0, 540));
    // At the receiver "at once" is later by the RTT of the sender, which the handshake shows.
    assert_eq!(stalls(&[(0, 100)], 9_000, 1).0, 0);
    assert_eq!(stalls(&[(0, 100)], 9_000, 8_500).0, 1);
}

#[test]
fn a_pause_that_the_path_explains_is_no_stall() {
    for (rtt_us, pause_us, expected) in [
        (20_000, 24_000, 0),
        (20_000, 60_000, 1),
        (60_000, 85_000, 0),
    ] {
        let mut script = Script::default();
        let mss = vec![2, 4, 0x05, 0xb4];
        script.raw(CLIENT, SYN, ISN[0], 0, 0).options = mss.clone();
        let syn_ack = script
            .after(rtt_us)
            .raw(SERVER, SYN | ACK, ISN[1], ISN[0] + 1, 0);
        syn_ack.options = mss;
        script.after(1).ack(CLIENT, 0);
        script.after(10).data(CLIENT, 0, 100);
        script.after(pause_us).ack(SERVER, 100);
        script.after(10).data(CLIENT, 100, 100);
        let sent = &script.one().directions[CLIENT].sent;
        assert_eq!(sent.delayed_ack_stalls, expected, "{rtt_us} {pause_us}");
    }
}

#[test]
fn small_packets_are_joinable_where_they_follow_each_other_and_fit() {
    let mut script = Script::open();
    // The 100 + 100 + 1300 bytes fit into two packets instead of three.
    for (offset, payload) in [(0, 100), (100, 100), (200, 1300)] {
        script.after(10).data(CLIENT, offset, payload);
    }
    script.after(100).ack(SERVER, 1500);
    // An answer between two packets, or a pause: each had to be sent.
    script.after(10).data(CLIENT, 1500, 100);
    script.after(100).ack(SERVER, 1600);
    script.after(10).data(CLIENT, 1600, 100);
    script.after(50_000).data(CLIENT, 1700, 100);
    script
        .after(100)
        .raw(SERVER, ACK | PSH, ISN[1] + 1, ISN[0] + 1801, 50);
    script
        .after(10)
        .raw(CLIENT, ACK, ISN[0] + 1801, ISN[1] + 51, 0);
    script.after(10).data(CLIENT, 1800, 100);
    let sent = &script.one().directions[CLIENT].sent;
    assert_eq!((sent.small_packets, sent.joinable_packets), (7, 1));
}

#[test]
fn connections_that_are_let_go_stay_in_totals_and_findings() {
    let mut all = Script::default();
    for port in 1..=10u16 {
        let mut script = Script::open();
        script.after(10).data(CLIENT, 0, 100);
        script.after(40_000).ack(SERVER, 100);
        script.after(10).data(CLIENT, 100, 100);
        if port % 2 == 0 {
            script.after(10).raw(CLIENT, RST, ISN[0] + 201, 0, 0);
        }
        for packet in &mut script.packets {
            packet.client_port = port;
            packet.at_us += u64::from(port) * 100_000;
        }
        all.packets.extend(script.packets);
    }
    let report = |most| {
        let settings = tcpcost_trace::Settings::default();
        let mut analysis = tcpcost_trace::Analysis::new(settings).holding(most);
        let capture = common::pcap(&all.packets, false);
        let (reading, outcome) = tcpcost_trace::read(&capture[..], &mut analysis);
        outcome.unwrap();
        analysis.report("x", &reading, Ok(()))
    };
    let (whole, less) = (report(10), report(8));
    assert_eq!((less.total, less.findings), (whole.total, whole.findings));
    assert_eq!(less.connections_begun, 10);
    // Connections that were reset are released first.
    let numbers: Vec<usize> = less.connections.iter().map(|of| of.number).collect();
    assert_eq!(numbers, [1, 3, 5, 6, 7, 8, 9, 10]);
}

#[test]
fn sequence_numbers_may_wrap() {
    let mut script = Script::default();
    let start = u32::MAX - 3000;
    for segment in 0..10u32 {
        let seq = start.wrapping_add(segment * 1460);
        script.after(10).raw(CLIENT, ACK, seq, 77, 1460);
        script
            .after(10)
            .raw(SERVER, ACK, 77, seq.wrapping_add(1460), 0);
    }
    let connection = script.one();
    assert_eq!(connection.began(), ConnectionStart::BeforeCapture);
    let client = &connection.directions[CLIENT];
    assert_eq!(
        (
            client.sent.retransmitted_packets,
            client.sent.bytes_missing_from_capture
        ),
        (0, 0)
    );
    let server = &connection.directions[SERVER];
    assert_eq!(server.acks.bytes_acked, 14_600);
    assert_eq!(
        server.acks.policy().policy,
        Policy::EverySegments { segments: 1 }
    );
}

#[test]
fn a_capture_that_holds_every_packet_twice_counts_it_once() {
    let mut once = Script::open();
    for round in 0..5 {
        once.after(10).data(CLIENT, round * 2920, 1460);
        once.after(10).data(CLIENT, round * 2920 + 1460, 1460);
        once.after(10).ack(SERVER, (round + 1) * 2920);
    }
    for ids in [true, false] {
        let mut twice = Script::default();
        for packet in &once.packets {
            let mut packet = packet.clone();
            packet.ip_id = if ids { packet.ip_id } else { 0 };
            twice.packets.push(packet.clone());
            packet.at_us += 2;
            twice.packets.push(packet);
        }
        let (one, two) = (once.one().total(), twice.one().total());
        assert_eq!(two.captured_twice, once.packets.len() as u64, "ids {ids}");
        assert_eq!(
            (two.captured_packets, two.pure_acks),
            (one.captured_packets, one.pure_acks)
        );
        assert_eq!((two.retransmitted_packets, two.duplicate_acks), (0, 0));
    }
}

#[test]
fn one_direction_alone_says_so_and_invents_no_loss() {
    let mut script = Script::default();
    for segment in 0..10 {
        script.after(10).ack(SERVER, segment * 2920);
    }
    let connection = script.one();
    assert!(connection.is_one_sided());
    assert_eq!(connection.total().bytes_missing_from_capture, 0);
    assert_eq!(connection.total().pure_acks, 10);
    // Nothing is known of the end that was not captured.
    assert_eq!(connection.total().limit_unknown_ns, 2 * 90_000);
    let mut script = Script::default();
    for segment in 0..10 {
        script.after(10).data(CLIENT, segment * 1460, 1460);
    }
    let report = Report::new("x", &Reading::default(), Ok(()), &script.analyse());
    // Columns of which nothing is known are omitted.
    let text = text(&report);
    let (_, table) = text.split_once("sender > receiver").expect(&text);
    let mut lines = table.lines().skip_while(|line| !line.starts_with('1'));
    let cells: Vec<&str> = lines.nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells, ["14.3", "10", "1.00", "0", "0", "0.0"], "{text}");
    assert!(!text.contains("segs/ACK"), "{text}");
}

#[test]
fn a_super_segment_and_its_tail_are_a_split_only_while_nothing_small_is_unacknowledged() {
    let mut script = Script::open();
    script
        .after(10)
        .raw(CLIENT, ACK, ISN[0] + 1, ISN[1] + 1, 2920);
    script.after(1).data(CLIENT, 2920, 500);
    // The tail before is not acknowledged: Minshall's rule would hold this tail back.
    script
        .after(1)
        .raw(CLIENT, ACK, ISN[0] + 3421, ISN[1] + 1, 2920);
    script
        .after(1)
        .raw(CLIENT, ACK | PSH, ISN[0] + 6341, ISN[1] + 1, 500);
    let sent = &script.one().directions[CLIENT].sent;
    assert_eq!(
        (
            sent.tail_splits,
            sent.super_segments,
            sent.data_wire_segments
        ),
        (1, 2, 6)
    );
}
