//! Tests of application calls other than read and write.

use super::*;
use crate::WriteError;

fn pair() -> Pair {
    Pair::connected(Config::default(), Config::default())
}

#[test]
fn what_is_peeked_at_is_still_there() {
    let mut pair = pair();
    pair.client.write(b"hello").unwrap();
    pair.run_for(100);
    let mut buffer = [0; 3];
    let now = pair.now;
    assert_eq!(pair.server().peek(&mut buffer), Ok(3));
    assert_eq!(pair.server().peek(&mut buffer), Ok(3));
    assert_eq!(&buffer, b"hel");
    let mut buffer = [0; 10];
    assert_eq!(pair.server().peek(&mut buffer), Ok(5));
    assert_eq!(pair.server().read(&mut buffer, now), Ok(5));
    assert_eq!(pair.server().peek(&mut buffer), Err(ReadError::Empty));
}

#[test]
fn who_stops_reading_still_takes_what_comes_and_may_write() {
    let mut pair = pair();
    pair.client.write(b"unread").unwrap();
    pair.run_for(100);
    let now = pair.now;
    pair.server().stop_reading(now);
    assert!(pair.server().is_finished());
    // 8 MiB, twice the largest receive buffer.
    let piece = Piece::from(vec![1; 1 << 20]);
    for _ in 0..8 {
        assert!(pair.client.write_piece(piece.clone()).unwrap().is_none());
        pair.run_for(10_000);
    }
    assert_eq!(pair.client.unacknowledged(), 0);
    assert_eq!(pair.server().readable(), 0);
    assert_eq!(pair.server().read(&mut [0], now), Err(ReadError::Finished));
    pair.server().write(b"still here").unwrap();
    pair.run_for(100);
    assert_eq!(pair.client.readable(), 10);
    pair.client.close();
    pair.run_for(100);
    pair.server().close();
    pair.run_for(100);
    assert_eq!((pair.client.ended(), pair.server().ended()), (None, None));
}

/// The ACK would leave after 40 ms without the call.
#[test]
fn an_acknowledgement_that_waits_can_be_asked_for() {
    let mut pair = pair();
    pair.client.write(b"one").unwrap();
    pair.run_for(15);
    pair.server().acknowledge_now();
    pair.run_for(15);
    assert_eq!(pair.client.unacknowledged(), 0);
    pair.log.clear();
    pair.server().acknowledge_now();
    pair.run_for(15);
    assert!(pair.log.is_empty(), "nothing waits");
}

#[test]
fn segments_are_as_short_as_the_application_wants() {
    let mut pair = pair();
    pair.client.limit_mss(512);
    pair.client.limit_mss(1000);
    assert_eq!(pair.client.mss(), 500, "less the timestamps' 12");
    pair.transfer(100_000);
    pair.client.limit_mss(0);
    assert_eq!(pair.client.mss(), 76);
    pair.transfer(10_000);
}

#[test]
fn every_segment_has_the_service_that_was_chosen() {
    let config = Config {
        dscp: 46,
        ..Config::default()
    };
    let mut pair = Pair::new(config.clone(), config);
    pair.run_for(100);
    pair.transfer(100_000);
    pair.client.abort();
    pair.run_for(100);
    assert!(pair.log.len() > 5);
    assert!(pair.log.iter().all(|(_, _, segment)| segment.dscp == 46));
}

/// The error is EPIPE as in Linux, not ECONNRESET.
#[test]
fn a_peer_that_had_closed_and_resets_what_comes_is_one_who_wants_no_more() {
    let mut pair = Pair::connected(plain(), plain());
    pair.server().close();
    let now = pair.now;
    pair.server().abandon(now);
    pair.run_for(100);
    assert_eq!(pair.client.write(b"more"), Ok(4));
    pair.run_for(100);
    assert_eq!(pair.client.ended(), Some(Ended::Reset));
    assert_eq!(pair.client.write(b"more"), Err(WriteError::Closed));
    let now = pair.now;
    assert_eq!(pair.client.read(&mut [0; 9], now), Err(ReadError::Finished));
}

/// Each packet that a device reads is a slab of its own.
#[test]
fn forwarded_packets_are_copied_before_they_pin_many_times_the_send_buffer() {
    let config = Config {
        send_buffer: 100_000,
        ..Config::default()
    };
    let mut pair = Pair::connected(config, Config::default());
    let packets: Vec<Vec<u8>> = (0..60).map(|n| vec![n; 1460]).collect();
    let read = |bytes: &Vec<u8>| {
        let filled = pair.pool.fill(|slab| {
            slab[..bytes.len()].copy_from_slice(bytes);
            Ok::<_, std::convert::Infallible>(bytes.len())
        });
        filled.unwrap()
    };
    let pieces: Vec<Piece> = packets.iter().map(read).collect();
    let slab = pieces[0].held_bytes();
    let copied = pair.client.give_pieces(pieces.into_iter());
    let kept = 60 * 1460 - copied;
    assert!(copied > 0 && kept > 0, "{copied} copied, {kept} kept");
    // One slab more than the limit, because each piece is checked before it is counted.
    assert!(kept / 1460 * slab <= 4 * 100_000 + slab, "{kept} kept");
    pair.run_for(1000);
    let mut received = vec![0; 60 * 1460];
    let now = pair.now;
    assert_eq!(pair.server().read(&mut received, now), Ok(60 * 1460));
    assert!(received == packets.concat());
}
