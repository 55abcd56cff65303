//! Tests of fragmented packets and of IPv6 extension headers.

use super::*;

/// Returns the bytes of the client's next packet, with 1000 bytes of payload.
fn packet(net: &mut Net, id: ConnId) -> Vec<u8> {
    net.write(id, &[7; 1000]);
    let packet = net.client.poll_packet(net.now).unwrap();
    [packet.header.as_ref(), &packet.payload.to_vec()].concat()
}

/// Fragments of an IPv4 packet, cut at these offsets of its body.
fn parts(packet: &[u8], id: u16, at: &[usize]) -> Vec<Vec<u8>> {
    let body = &packet[20..];
    let ends = at[1..].iter().copied().chain([body.len()]);
    at.iter()
        .zip(ends)
        .map(|(&from, to)| part(packet, id, from, to))
        .collect()
}

fn part(packet: &[u8], id: u16, from: usize, to: usize) -> Vec<u8> {
    let body = &packet[20..];
    let mut header = packet[..20].to_vec();
    let more = if to < body.len() { 0x2000 } else { 0 };
    let place = more | (from / 8) as u16;
    header[2..4].copy_from_slice(&((20 + to - from) as u16).to_be_bytes());
    header[4..6].copy_from_slice(&id.to_be_bytes());
    header[6..8].copy_from_slice(&place.to_be_bytes());
    header[10..12].fill(0);
    let sum = wire::Sum::new().add_bytes(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    [&header, &body[from..to]].concat()
}

fn connected() -> (Net, ConnId, ConnId) {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    net.run_for(5);
    let accepted = net.server.accept(80).unwrap();
    (net, id, accepted)
}

fn give(net: &mut Net, packets: &[Vec<u8>]) {
    let packets = packets
        .iter()
        .map(|bytes| Packet::from_piece(Piece::from(bytes.as_slice())));
    net.server.on_packets(packets, net.now);
}

fn readable(net: &Net, id: ConnId) -> usize {
    net.server.connection(id).unwrap().readable()
}

#[test]
fn parts_in_any_order_and_twice_are_one_packet() {
    let (mut net, id, accepted) = connected();
    let mut parts = parts(&packet(&mut net, id), 7, &[0, 8, 400, 800]);
    parts.reverse();
    parts.insert(1, parts[0].clone());
    give(&mut net, &parts);
    assert_eq!(readable(&net, accepted), 1000);
    let counters = net.server.counters();
    assert_eq!(
        (counters.packets_reassembled, counters.dropped_fragment),
        (1, 1)
    );
}

#[test]
fn of_parts_that_overlap_nothing_is_believed() {
    let (mut net, id, accepted) = connected();
    let whole = packet(&mut net, id);
    let mut parts = parts(&whole, 7, &[0, 400, 800]);
    parts.insert(1, part(&whole, 7, 392, 800));
    give(&mut net, &parts);
    assert_eq!(readable(&net, accepted), 0);
    // Two last fragments with different ends do not form a packet either, in neither order.
    let near = |id| part(&whole[..20 + 600], id, 400, 600);
    let far = |id| part(&whole, id, 600, 1032);
    for parts in [
        [far(8), near(8), part(&whole, 8, 0, 400)],
        [near(9), far(9), part(&whole, 9, 0, 400)],
    ] {
        give(&mut net, &parts);
        assert_eq!(readable(&net, accepted), 0);
    }
}

#[test]
fn parts_of_different_packets_are_kept_apart() {
    let (mut net, id, accepted) = connected();
    let whole = packet(&mut net, id);
    let (a, b) = (parts(&whole, 1, &[0, 400]), parts(&whole, 2, &[0, 400]));
    give(&mut net, &[a[0].clone(), b[1].clone()]);
    assert_eq!(readable(&net, accepted), 0);
    give(&mut net, &[a[1].clone()]);
    assert_eq!(readable(&net, accepted), 1000);
}

#[test]
fn a_part_is_waited_for_a_minute() {
    for (later, expected) in [(59_000, 1000), (60_000, 0)] {
        let (mut net, id, accepted) = connected();
        let parts = parts(&packet(&mut net, id), 7, &[0, 400]);
        give(&mut net, &parts[..1]);
        net.now += Duration::from_millis(later);
        give(&mut net, &parts[1..]);
        assert_eq!(readable(&net, accepted), expected);
    }
}

#[test]
fn who_sends_parts_without_end_takes_no_more_than_a_mebibyte() {
    let (mut net, id, accepted) = connected();
    let whole = packet(&mut net, id);
    for n in 0..2000 {
        give(&mut net, &[part(&whole, n, 0, 800)]);
    }
    let parts = parts(&whole, 5000, &[0, 400]);
    give(&mut net, &parts);
    assert_eq!(readable(&net, accepted), 1000, "and shuts nobody out");
    assert!(net.server.counters().dropped_fragment >= 2000 - 65);
    // Fragments for another address are not kept.
    net.server
        .set_addresses(&[("10.0.0.99".parse().unwrap(), 24)]);
    let before = net.server.counters().dropped_foreign;
    give(&mut net, &[part(&whole, 6000, 0, 800)]);
    assert_eq!(net.server.counters().dropped_foreign, before + 1);
}

/// SYN to port 80 over IPv6 with these extension headers of eight bytes each: type and contents.
fn syn_behind(chain: &[(u8, [u8; 7])]) -> Vec<u8> {
    let path = wire::FourTuple {
        local: "[fd00::1]:5000".parse().unwrap(),
        remote: "[fd00::2]:80".parse().unwrap(),
    };
    let syn = Segment {
        flags: Flags::SYN,
        ..Segment::default()
    };
    let packet = Packet::emit(&path, syn, Checksum::Complete);
    let mut bytes = packet.header.as_ref().to_vec();
    let tcp = bytes.split_off(40);
    bytes[5] += 8 * chain.len() as u8;
    let kinds = chain.iter().map(|(kind, _)| *kind);
    bytes[6] = kinds.clone().next().unwrap_or(6);
    for (next, (_, rest)) in kinds.skip(1).chain([6]).zip(chain) {
        bytes.push(next);
        bytes.extend(rest);
    }
    bytes.extend(tcp);
    bytes
}

#[test]
fn extension_headers_of_ipv6_are_walked() {
    const NONE: [u8; 7] = [0; 7];
    let check = |chain: &[(u8, [u8; 7])], answered| {
        let mut net = Net::new(5);
        give(&mut net, &[syn_behind(chain)]);
        let answer = net.server.poll_packet(net.now);
        assert_eq!(answer.is_some(), answered, "{chain:?}");
    };
    check(&[], true);
    // Hop-by-hop, destination options, and a routing header without segments left.
    check(&[(0, NONE), (60, NONE), (43, NONE), (60, NONE)], true);
    // Segments left; hop-by-hop not first; longer than the packet.
    check(&[(43, [0, 0, 1, 0, 0, 0, 0])], false);
    check(&[(60, NONE), (0, NONE)], false);
    check(&[(60, [200, 0, 0, 0, 0, 0, 0])], false);
    // A fragment header on a whole packet (RFC 6946), and one on a part.
    check(&[(44, NONE)], true);
    check(&[(44, [0, 0, 1, 0, 0, 0, 9])], false);
}

#[test]
fn parts_of_an_ipv6_packet_are_one_packet() {
    let mut net = Net::new(5);
    let whole = syn_behind(&[]);
    let part = |from: usize, to: usize, more: u8| {
        let mut bytes = whole[..40].to_vec();
        bytes[5] = (8 + to - from) as u8;
        bytes[6] = 44;
        bytes.extend([6, 0, 0, from as u8 | more, 1, 2, 3, 4]);
        bytes.extend(&whole[40 + from..40 + to]);
        bytes
    };
    let end = whole.len() - 40;
    give(&mut net, &[part(16, end, 0), part(0, 16, 1)]);
    assert!(net.server.poll_packet(net.now).is_some());
}
