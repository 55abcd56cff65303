//! Tests of ICMP errors.

use super::*;
use crate::wire::Unreachable;

/// ICMP message of this type and code (with an MTU of 1000) about a packet as a router received it:
/// with a lower hop limit, and with a wrong checksum if an address translator changed it.
fn icmp(kind: u8, code: u8, about: &Packet) -> Packet {
    let mut inner = about.header.as_ref()[..28].to_vec();
    inner[8] -= 1;
    let mut icmp = [&[kind, code, 0, 0, 0, 0, 3, 232], &inner[..]].concat();
    let sum = wire::Sum::new().add_bytes(&icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = 20 + icmp.len() as u8;
    let mut ip = [0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 1, 0, 0].to_vec();
    ip.extend([10, 0, 0, 9, 10, 0, 0, 1]);
    let sum = wire::Sum::new().add_bytes(&ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Packet::from_piece(Piece::from([ip, icmp].concat()))
}

#[test]
fn a_router_that_says_too_big_is_heard() {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    net.run_for(5);
    net.write(id, &[1; 5000]);
    let packet = net.client.poll_packet(net.now).unwrap();
    net.client.on_packet(icmp(3, 4, &packet), net.now);
    assert_eq!(net.client.connection(id).unwrap().mss(), 1000 - 40 - 12);
}

#[test]
fn a_syn_that_does_not_get_there_ends_the_attempt_at_once() {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    let syn = net.client.poll_packet(net.now).unwrap();
    net.client.on_packet(icmp(3, 1, &syn), net.now);
    let ended = net.client.connection(id).unwrap().ended();
    assert_eq!(ended, Some(Ended::Unreachable(Unreachable::Host)));
    assert_eq!(net.client.poll_ready(), Some(id), "the application hears");
    assert_eq!(net.client.counters().unreachable_received, 1);
}

#[test]
fn who_does_not_know_the_sequence_number_ends_no_attempt() {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    let mut syn = net.client.poll_packet(net.now).unwrap();
    let mut header = syn.header.as_ref().to_vec();
    header[24] ^= 0x40;
    syn.header = header.as_slice().into();
    net.client.on_packet(icmp(3, 3, &syn), net.now);
    assert_eq!(net.client.connection(id).unwrap().ended(), None);
}

/// Port unreachable does not end the connection either, although RFC 1122 calls it a hard error:
/// RFC 5927 §5.2.
#[test]
fn a_connection_that_stands_goes_on_and_remembers_until_its_peer_is_heard() {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    net.run_for(5);
    net.write(id, &[1; 1000]);
    let packet = net.client.poll_packet(net.now).unwrap();
    net.client.on_packet(icmp(3, 3, &packet), net.now);
    let error = |net: &Net| {
        let connection = net.client.connection(id).unwrap();
        (connection.info(net.now).soft_error, connection.ended())
    };
    assert_eq!(error(&net), (Some(Unreachable::Port), None));
    net.run_for(2000);
    assert_eq!(error(&net), (None, None), "the repetition got there");
}

#[test]
fn a_peer_that_is_given_up_is_given_up_for_what_was_said() {
    let mut net = Net::new(5);
    let id = net.connect(5000);
    net.run_for(5);
    net.write(id, &[1; 1000]);
    let packet = net.client.poll_packet(net.now).unwrap();
    net.client.on_packet(icmp(11, 0, &packet), net.now);
    // From here on nothing arrives.
    while let Some(due) = net.client.next_timeout() {
        net.now = due;
        net.client.on_timeout(due);
        while net.client.poll_packet(due).is_some() {}
    }
    let ended = net.client.connection(id).unwrap().ended();
    assert_eq!(ended, Some(Ended::Unreachable(Unreachable::Network)));
}
