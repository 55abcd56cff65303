//! Tests of data transfer, acknowledgement, loss and repair.

use super::*;

#[test]
fn bytes_arrive_whole_over_a_perfect_wire() {
    for config in [
        Config::default(),
        plain(),
        Config {
            sack: false,
            window_scaling: false,
            ..plain()
        },
        Config {
            mss: 100,
            ..Config::default()
        },
        Config {
            congestion: CongestionControl::Fixed(1 << 20),
            ..Config::default()
        },
        Config {
            segmentation: Segmentation {
                super_segment_bytes_max: 0,
                ..Segmentation::default()
            },
            ..plain()
        },
    ] {
        let mut pair = Pair::connected(config.clone(), config);
        pair.transfer(3_000_000);
        assert_eq!(pair.client.counters().payload_bytes_retransmitted, 0);
        assert_eq!(pair.server().counters().payload_bytes_received, 3_000_000);
    }
}

/// After 2³¹ bytes, comparisons with the first sequence number change sign; after 2³² bytes SND.NXT
/// equals ISS again.
#[test]
fn sequence_numbers_go_round_the_whole_circle() {
    let config = Config {
        congestion: CongestionControl::Fixed(1 << 20),
        receive_buffer: 4 << 20,
        ..Config::default()
    };
    let mut pair = Pair::connected(config.clone(), config);
    let mut read = 0;
    let piece = Piece::from(vec![7; 1 << 20]);
    let mut transfer = |pair: &mut Pair, mut left: u64| {
        let all = read + left;
        while read < all {
            let most = left.min(pair.client.writable() as u64) as usize;
            assert!(
                pair.client
                    .write_piece(piece.slice(0..most))
                    .unwrap()
                    .is_none()
            );
            left -= most as u64;
            pair.log.clear();
            assert!(pair.step(pair.now + Duration::from_secs(10)), "{read}");
            let now = pair.now;
            while let Ok(piece) = pair.server().read_piece(usize::MAX, now) {
                read += piece.len() as u64;
            }
        }
    };
    transfer(&mut pair, u32::MAX.into());
    pair.run_for(1000);
    assert_eq!(pair.client.snd.nxt, pair.client.snd.iss);
    transfer(&mut pair, 5_000_000);
    assert_eq!(pair.client.counters().payload_bytes_retransmitted, 0);
}

#[test]
fn bytes_arrive_whole_when_every_nth_segment_is_lost() {
    for sack in [true, false] {
        for nth in [3, 7, 20] {
            let segmentation = Segmentation {
                super_segment_bytes_max: 0,
                ..Segmentation::default()
            };
            let config = Config {
                sack,
                segmentation,
                ..Config::default()
            };
            let mut pair = Pair::connected(config.clone(), config);
            let mut count = 0;
            pair.meddle = Box::new(move |_, _| {
                count += 1;
                count % nth == 0
            });
            pair.transfer(400_000);
        }
    }
}

#[test]
fn one_lost_segment_costs_one_retransmission_and_no_timeout() {
    for sack in [true, false] {
        let segmentation = Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        };
        let config = Config {
            sack,
            segmentation,
            ..plain()
        };
        let mut pair = Pair::connected(config.clone(), config);
        let mut count = 0;
        pair.meddle = Box::new(move |way, segment| {
            count += u32::from(way == Way::ToServer && !segment.payload.is_empty());
            way == Way::ToServer && count == 5 && !segment.payload.is_empty()
        });
        pair.transfer(100_000);
        let counters = pair.client.counters();
        assert_eq!(
            (
                counters.timeouts,
                counters.segments_retransmitted,
                counters.recoveries
            ),
            (0, 1, 1),
            "sack {sack}"
        );
    }
}

#[test]
fn a_lost_tail_is_found_by_a_probe_before_the_timeout_unless_there_is_none() {
    for tail_loss_probe in [true, false] {
        let segmentation = Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        };
        let config = Config {
            segmentation,
            tail_loss_probe,
            ..plain()
        };
        let mut pair = Pair::connected(config.clone(), config);
        let mut count = 0;
        pair.meddle = Box::new(move |way, segment| {
            count += u32::from(way == Way::ToServer && !segment.payload.is_empty());
            way == Way::ToServer && (4..=5).contains(&count)
        });
        let took = pair.transfer(5 * 1460);
        let counters = pair.client.counters();
        let found = (counters.tail_probes_sent, counters.timeouts);
        assert_eq!(took < 150, tail_loss_probe, "{took} ms");
        assert_eq!(found, if tail_loss_probe { (1, 0) } else { (0, 1) });
    }
}

#[test]
fn a_timeout_backs_off_and_starts_over() {
    let mut pair = Pair::connected(plain(), plain());
    pair.meddle = Box::new(|way, _| way == Way::ToServer);
    pair.client.write(b"anybody there?").unwrap();
    pair.run_for(3000);
    let at: Vec<u64> = pair.log.iter().map(|(at, _, _)| at - 100).collect();
    // The first retransmission is the tail loss probe, which is due with the timeout.
    assert_eq!(at, [0, 220, 440, 880, 1760]);
    assert_eq!(pair.client.cwnd(), pair.client.mss());
    pair.meddle = Box::new(|_, _| false);
    pair.run_for(4000);
    let mut buffer = [0; 20];
    let now = pair.now;
    assert_eq!(pair.server().read(&mut buffer, now), Ok(14));
}

#[test]
fn an_ack_for_every_second_segment_and_the_last_after_the_delay() {
    let segmentation = Segmentation {
        super_segment_bytes_max: 0,
        ..Segmentation::default()
    };
    let mut pair = Pair::connected(
        Config {
            segmentation,
            ..plain()
        },
        plain(),
    );
    // One delivery at a time, polled in between: each ACK answers the data that arrived before it.
    for _ in 0..5 {
        pair.client.write(&[1; 1460]).unwrap();
        pair.run_for(1);
    }
    pair.run_for(100);
    let acks: Vec<u64> = pair
        .log
        .iter()
        .filter(|(_, way, _)| *way == Way::ToClient)
        .map(|(at, _, _)| at - 100)
        .collect();
    assert_eq!(acks, [11, 13, 54]);
}

#[test]
fn every_eighth_segment_is_acknowledged_if_so_chosen() {
    let ack = AckPolicy::Every {
        segments: 8,
        delay_max: Duration::from_millis(100),
    };
    let segmentation = Segmentation {
        super_segment_bytes_max: 0,
        ..Segmentation::default()
    };
    let mut pair = Pair::connected(
        Config {
            segmentation,
            ..plain()
        },
        Config {
            ack,
            receive_buffer: 65_535,
            receive_buffer_max: 0,
            ..plain()
        },
    );
    for _ in 0..64 {
        pair.client.write(&[1; 1460]).unwrap();
        pair.run_for(2);
        let now = pair.now;
        let _ = pair.server().read(&mut [0; 4096], now);
    }
    pair.run_for(300);
    assert_eq!(pair.server().counters().pure_acks_sent, 8);
}

#[test]
fn a_super_segment_gets_as_many_acks_as_its_segments_if_so_chosen() {
    let ack = AckPolicy::Exactly {
        segments: 2,
        delay_max: Duration::from_millis(40),
    };
    let mut pair = Pair::connected(plain(), Config { ack, ..plain() });
    pair.client.write(&[1; 9 * 1460]).unwrap();
    pair.run_for(100);
    let acks: Vec<(u64, u32)> = pair
        .log
        .iter()
        .filter(|(_, way, _)| *way == Way::ToClient)
        .map(|(at, _, segment)| (*at, segment.ack.since(SeqNum::new(u32::MAX - 499)) / 1460))
        .collect();
    assert_eq!(acks, [(110, 2), (110, 4), (110, 6), (110, 8), (150, 9)]);
    let mut pair = Pair::connected(
        Config::default(),
        Config {
            ack,
            ..Config::default()
        },
    );
    pair.transfer(2_000_000);
    pair.run_for(100);
    // One ACK for every two segments, one for the last, and at most two window updates.
    let acks = pair.server().counters().pure_acks_sent;
    assert!((691..=693).contains(&acks), "{acks}");
}

#[test]
fn a_closed_window_is_probed_until_it_opens() {
    let server = Config {
        receive_buffer: 5000,
        receive_buffer_max: 0,
        ..plain()
    };
    let mut pair = Pair::connected(plain(), server);
    pair.client.write(&[7; 20_000]).unwrap();
    pair.run_for(10_000);
    assert_eq!(pair.server().readable(), 5000);
    assert!(pair.client.counters().window_probes_sent >= 3);
    assert_eq!(pair.client.state(), State::Established);
    let mut total = 0;
    for _ in 0..100 {
        let now = pair.now;
        while let Ok(n) = pair.server().read(&mut [0; 1000], now) {
            total += n;
        }
        pair.run_for(50);
    }
    assert_eq!(total, 20_000);
}

#[test]
fn small_writes_wait_for_each_other_unless_told_not_to() {
    let count = |nagle| {
        let segmentation = Segmentation {
            nagle,
            ..Segmentation::default()
        };
        let mut pair = Pair::connected(
            Config {
                segmentation,
                ..plain()
            },
            plain(),
        );
        for _ in 0..5 {
            pair.client.write(b"abc").unwrap();
            pair.transmit();
        }
        pair.run_for(100);
        pair.sent(Way::ToServer)
    };
    assert_eq!(count(Nagle::Minshall), ["100 P. 3", "160 P. 12"]);
    assert_eq!(count(Nagle::Off).len(), 5);
}

#[test]
fn a_cork_holds_the_tail_for_at_most_its_time() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.cork(true);
    pair.client.write(&[1; 2000]).unwrap();
    pair.run_for(300);
    assert_eq!(pair.sent(Way::ToServer), ["100 . 1460", "300 P. 540"]);
    pair.log.clear();
    pair.client.write(b"x").unwrap();
    pair.transmit();
    pair.client.cork(false);
    pair.transmit();
    assert_eq!(pair.sent(Way::ToServer), ["400 P. 1"]);
    pair.client.write_more(b"a", true).unwrap();
    pair.transmit();
    pair.client.write(b"b").unwrap();
    pair.run_for(100);
    assert_eq!(pair.sent(Way::ToServer)[1..], ["460 P. 2"]);
}

#[test]
fn a_4096_byte_request_is_one_unit_or_two_by_the_tail_rule() {
    let send = |tail| {
        let segmentation = Segmentation {
            tail,
            ..Segmentation::default()
        };
        let mut pair = Pair::connected(
            Config {
                segmentation,
                ..Config::default()
            },
            Config::default(),
        );
        pair.client.write(&[1; 4096]).unwrap();
        pair.transmit();
        pair.sent(Way::ToServer)
    };
    assert_eq!(send(TailRule::Keep), ["100 P. 4096"]);
    assert_eq!(send(TailRule::Split), ["100 . 2896", "100 P. 1200"]);
}

#[test]
fn old_timestamps_are_dropped_and_answered() {
    let mut pair = Pair::connected(Config::default(), Config::default());
    pair.client.write(b"one").unwrap();
    pair.run_for(50);
    let mut old = pair.log[0].2.clone();
    let (_, nxt, rcv_nxt) = pair.client.sequence();
    (old.seq, old.ack) = (nxt, rcv_nxt);
    old.payload = Piece::from(b"bad".as_slice()).into();
    if let Some(timestamps) = &mut old.options.timestamps {
        timestamps.value = timestamps.value.wrapping_sub(1000);
    }
    let now = pair.now;
    pair.server().on_segment(old, now);
    assert_eq!(pair.server().readable(), 3);
    assert_eq!(pair.server().counters().dropped_paws, 1);
    assert!(pair.server().poll_segment(now).is_some());
}

#[test]
fn a_congestion_mark_halves_the_window_once_and_is_echoed_until_cwr() {
    let config = Config {
        ecn: true,
        congestion: CongestionControl::NewReno,
        ..plain()
    };
    let mut pair = Pair::connected(config.clone(), config);
    let mut marked = 0;
    pair.meddle = Box::new(move |way, segment| {
        if way == Way::ToServer && segment.ecn == Ecn::Capable0 {
            marked += 1;
            if marked == 3 {
                segment.ecn = Ecn::Congested;
            }
        }
        false
    });
    pair.transfer(300_000);
    assert_eq!(pair.client.counters().ecn_reductions, 1);
    assert_eq!(pair.client.counters().payload_bytes_retransmitted, 0);
    assert!(
        pair.log
            .iter()
            .any(|(_, way, segment)| *way == Way::ToServer && segment.flags.contains(Flags::CWR))
    );
    let echoes = pair
        .log
        .iter()
        .filter(|(_, way, segment)| *way == Way::ToClient && segment.flags.contains(Flags::ECE));
    assert!(echoes.count() >= 1);
    assert!(!pair.log.last().unwrap().2.flags.contains(Flags::ECE));
}

#[test]
fn a_stretch_ack_receiver_does_not_slow_its_sender_down() {
    let took = |segments| {
        let ack = AckPolicy::Every {
            segments,
            delay_max: Duration::from_millis(40),
        };
        let config = Config {
            receive_buffer: 4 << 20,
            ..Config::default()
        };
        Pair::connected(config.clone(), Config { ack, ..config }).transfer(4_000_000)
    };
    let (often, rarely) = (took(2), took(32));
    assert!(rarely <= often + 80, "{often} ms and {rarely} ms");
}

#[test]
fn an_idle_peer_is_probed_and_given_up() {
    let keepalive = KeepAlive {
        idle: Duration::from_secs(10),
        interval: Duration::from_secs(1),
        probes: 3,
    };
    let config = Config {
        keepalive: Some(keepalive),
        ..plain()
    };
    let mut pair = Pair::connected(config, plain());
    pair.run_for(60_000);
    assert_eq!(pair.client.state(), State::Established);
    assert_eq!(pair.client.counters().keepalives_sent, 5);
    pair.meddle = Box::new(|_, _| true);
    pair.run_for(20_000);
    assert_eq!(pair.client.ended(), Some(Ended::TimedOut));
}

#[test]
fn the_user_timeout_ends_a_silent_connection() {
    let config = Config {
        user_timeout: Some(Duration::from_secs(5)),
        ..plain()
    };
    let mut pair = Pair::connected(config, plain());
    pair.meddle = Box::new(|_, _| true);
    pair.client.write(b"hello").unwrap();
    pair.run_for(4990);
    assert_eq!(pair.client.ended(), None);
    pair.run_for(20);
    assert_eq!(pair.client.ended(), Some(Ended::TimedOut));
}

#[test]
fn a_smaller_path_is_met_with_smaller_segments() {
    let mut pair = Pair::connected(plain(), plain());
    pair.meddle = Box::new(|way, segment| {
        way == Way::ToServer
            && (segment.segment_size > 1000
                || segment.segment_size == 0 && segment.payload.len() > 1000)
    });
    pair.client.write(&[5; 6000]).unwrap();
    pair.run_for(5);
    let (una, _, _) = pair.client.sequence();
    pair.client.on_mtu(una - 1, 1000);
    assert_eq!(pair.client.mss(), 1460, "not about what is in flight");
    pair.client.on_mtu(una, 1000);
    assert_eq!(pair.client.mss(), 1000);
    pair.run_for(100);
    assert_eq!(pair.server().readable(), 6000);
}

#[test]
fn data_for_nobody_is_answered_with_a_reset() {
    let mut pair = Pair::connected(plain(), plain());
    let now = pair.now;
    pair.server().abandon(now);
    pair.client.write(b"hello?").unwrap();
    pair.run_for(50);
    assert_eq!(pair.client.ended(), Some(Ended::Reset));
}

#[test]
fn the_receive_buffer_grows_with_a_reader_that_keeps_up() {
    let config = Config {
        receive_buffer: 64 << 10,
        receive_buffer_max: 4 << 20,
        ..Config::default()
    };
    let mut pair = Pair::connected(Config::default(), config);
    pair.transfer(8_000_000);
    assert!(
        pair.server().rcv.buffer > 1 << 20,
        "{}",
        pair.server().rcv.buffer
    );
}

#[test]
fn a_duplicate_is_reported() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.write(b"twice").unwrap();
    pair.run_for(5);
    let twin = pair.log[0].2.clone();
    pair.run_for(100);
    let now = pair.now;
    pair.server().on_segment(twin.clone(), now);
    let ack = pair.server().poll_segment(now).unwrap();
    assert_eq!(ack.options.sack.as_slice(), [(twin.seq, twin.end())]);
}

#[test]
fn a_window_reduced_for_a_late_segment_is_given_back() {
    for timestamps in [true, false] {
        let segmentation = Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        };
        let config = Config {
            segmentation,
            timestamps,
            ..Config::default()
        };
        let mut pair = Pair::connected(config.clone(), config);
        let before = pair.client.cwnd();
        pair.client.write(&[1; 10_000]).unwrap();
        pair.transmit();
        let late = pair.wire.pop_front().unwrap().2;
        // The other segments arrive, their ACKs show a gap, and the late segment is sent again.
        pair.run_for(20);
        assert_eq!(pair.client.counters().segments_retransmitted, 1);
        assert!(pair.client.cwnd() < before);
        let now = pair.now;
        pair.server().on_segment(late, now);
        pair.run_for(100);
        assert_eq!(
            pair.client.counters().spurious_repairs,
            1,
            "timestamps {timestamps}"
        );
        assert!(pair.client.cwnd() >= before);
    }
}

#[test]
fn a_window_is_never_larger_than_the_buffer_however_often_it_is_rounded() {
    // Shifts of 7 and more; a segment size that divides no window.
    let server = Config {
        receive_buffer: 60_000,
        receive_buffer_max: 8 << 20,
        ..plain()
    };
    let mut client = plain();
    client.segmentation.nagle = Nagle::Off;
    let mut pair = Pair::connected(client, server);
    for _ in 0..1000 {
        pair.client.write(&[7; 101]).unwrap();
        pair.run_for(25);
        let server = pair.server();
        assert!(server.readable() as u32 + server.rcv.wnd() <= server.rcv.buffer);
    }
    assert!(pair.server().readable() > 59_000, "and it is made use of");
}

#[test]
fn a_window_comes_with_new_acknowledgements_whatever_they_ride_on() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.write(&[7; 5000]).unwrap();
    pair.server().write(&[8; 3000]).unwrap();
    pair.run_for(100);
    let now = pair.now;
    let (una, nxt, rcv_nxt) = pair.client.sequence();
    assert_eq!(una, nxt);
    pair.client.write(&[7; 3000]).unwrap();
    while pair.client.poll_segment(now).is_some() {}
    // Later data comes first; then a retransmission of earlier data acknowledges and closes the
    // window.
    let ahead = Segment {
        seq: rcv_nxt + 1000,
        ack: una,
        flags: Flags::ACK,
        window: 500,
        payload: Piece::from(vec![8; 100]).into(),
        ..Segment::default()
    };
    let earlier = Segment {
        seq: rcv_nxt,
        ack: una + 3000,
        window: 0,
        ..ahead.clone()
    };
    pair.client.on_segment(ahead, now);
    pair.client.on_segment(earlier, now);
    assert_eq!(pair.client.snd.wnd, 0);
}
