//! Tests of opening and closing, and of events that must not end a connection.

use super::*;

#[test]
fn a_connection_and_its_place_in_an_endpoint_fit_a_kibibyte() {
    assert!(
        size_of::<Connection>() <= 976,
        "{} bytes",
        size_of::<Connection>()
    );
}

#[test]
fn three_segments_open_and_four_close() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.close();
    pair.run_for(30);
    assert_eq!(
        (pair.client.state(), pair.server().state()),
        (State::FinWait2, State::CloseWait)
    );
    let now = pair.now;
    assert_eq!(
        pair.server().read(&mut [0; 9], now),
        Err(ReadError::Finished)
    );
    pair.server().close();
    pair.run_for(30);
    assert_eq!(
        (pair.client.state(), pair.server().state()),
        (State::TimeWait, State::Closed)
    );
    assert_eq!(pair.sent(Way::ToServer), ["100 F. 0", "140 . 0"]);
    assert_eq!(pair.sent(Way::ToClient), ["110 . 0", "130 F. 0"]);
    pair.run_for(60_000);
    assert_eq!(
        (pair.client.state(), pair.client.ended()),
        (State::Closed, None)
    );
}

#[test]
fn a_syn_that_an_earlier_connection_answered_is_sent_again_soon_but_once() {
    let mut client = Pair::new(plain(), plain()).client;
    let mut now = ms(0);
    let syn = client.poll_segment(now).unwrap();
    let of_another = Segment {
        ack: syn.seq - 1000,
        flags: Flags::ACK,
        ..Segment::default()
    };
    for (answered_after, sent_again_after) in [(10, 2), (10, 1990)] {
        now += Duration::from_millis(answered_after);
        client.on_segment(of_another.clone(), now);
        let reset = client.poll_segment(now).unwrap();
        assert_eq!((reset.flags, reset.seq), (Flags::RST, of_another.ack));
        assert!(client.poll_segment(now).is_none());
        let timeout = client.next_timeout().unwrap();
        assert_eq!(timeout - now, Duration::from_millis(sent_again_after));
        now = timeout;
        client.on_timeout(now);
        let again = client.poll_segment(now).unwrap();
        assert_eq!((again.flags, again.seq), (syn.flags, syn.seq));
    }
}

#[test]
fn data_flows_both_ways_after_half_of_it_is_closed() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.write(b"question").unwrap();
    pair.client.close();
    pair.run_for(30);
    pair.server().write(b"answer").unwrap();
    pair.run_for(30);
    let mut buffer = [0; 20];
    let now = pair.now;
    assert_eq!(pair.client.read(&mut buffer, now), Ok(6));
    assert_eq!(pair.server().read(&mut buffer, now), Ok(8));
    pair.server().close();
    pair.run_for(30);
    assert_eq!(pair.client.state(), State::TimeWait);
}

#[test]
fn both_may_open_at_once() {
    let pool = Pool::default();
    let clock = Clock {
        epoch: ms(0),
        offset: 0,
    };
    let open = |iss| {
        Connection::connect(
            Arc::new(plain()),
            pool.clone(),
            SeqNum::new(iss),
            clock,
            ms(0),
        )
    };
    let (mut a, mut b) = (open(100), open(300));
    let (syn_a, syn_b) = (
        a.poll_segment(ms(0)).unwrap(),
        b.poll_segment(ms(0)).unwrap(),
    );
    a.on_segment(syn_b, ms(1));
    b.on_segment(syn_a, ms(1));
    assert_eq!(
        (a.state(), b.state()),
        (State::SynReceived, State::SynReceived)
    );
    let (answer_a, answer_b) = (
        a.poll_segment(ms(1)).unwrap(),
        b.poll_segment(ms(1)).unwrap(),
    );
    assert_eq!(answer_a.flags, Flags::SYN | Flags::ACK);
    a.on_segment(answer_b, ms(2));
    b.on_segment(answer_a, ms(2));
    assert_eq!(
        (a.state(), b.state()),
        (State::Established, State::Established)
    );
}

#[test]
fn both_may_close_at_once() {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.close();
    pair.server().close();
    pair.run_for(15);
    assert_eq!(
        (pair.client.state(), pair.server().state()),
        (State::Closing, State::Closing)
    );
    pair.run_for(15);
    assert_eq!(
        (pair.client.state(), pair.server().state()),
        (State::TimeWait, State::TimeWait)
    );
}

#[test]
fn a_syn_that_is_lost_is_sent_again_after_a_second_and_given_up_after_seven() {
    let mut pair = Pair::new(plain(), plain());
    pair.meddle = Box::new(|_, _| true);
    pair.run_for(200_000);
    let at: Vec<u64> = pair.log.iter().map(|(at, _, _)| *at).collect();
    assert_eq!(at, [0, 1000, 3000, 7000, 15_000, 31_000, 63_000]);
    assert_eq!(pair.client.ended(), Some(Ended::TimedOut));
}

#[test]
fn a_reset_in_the_window_is_challenged_and_only_the_exact_one_believed() {
    let mut pair = Pair::connected(plain(), plain());
    let (_, _, rcv_nxt) = pair.client.sequence();
    let now = pair.now;
    let reset = |seq| Segment {
        seq,
        flags: Flags::RST,
        ..Segment::default()
    };
    pair.client.on_segment(reset(rcv_nxt + 5), now);
    let challenge = pair.client.poll_segment(now).unwrap();
    assert_eq!((challenge.flags, challenge.ack), (Flags::ACK, rcv_nxt));
    pair.client.on_segment(reset(rcv_nxt - 5), now);
    assert!(
        pair.client.poll_segment(now).is_none(),
        "outside the window nothing happens"
    );
    pair.client.on_segment(reset(rcv_nxt), now);
    assert_eq!(pair.client.ended(), Some(Ended::Reset));
    assert_eq!(pair.client.counters().challenge_acks_sent, 1);
}

#[test]
fn challenges_are_limited_to_ten_a_second() {
    let mut pair = Pair::connected(plain(), plain());
    let now = pair.now;
    let (_, _, rcv_nxt) = pair.client.sequence();
    let mut answers = 0;
    for _ in 0..50 {
        pair.client.on_segment(
            Segment {
                seq: rcv_nxt + 9,
                flags: Flags::SYN,
                ..Segment::default()
            },
            now,
        );
        answers += u32::from(pair.client.poll_segment(now).is_some());
    }
    assert_eq!(answers, 10);
    assert_eq!(pair.client.counters().acks_suppressed, 40);
}

#[test]
fn a_fin_before_data_already_here_is_not_believed() {
    let mut pair = Pair::connected(plain(), plain());
    let now = pair.now;
    let (una, _, rcv_nxt) = pair.client.sequence();
    let segment = |seq, flags, bytes| Segment {
        seq,
        ack: una,
        flags,
        window: 1000,
        payload: Piece::from(vec![0; bytes]).into(),
        ..Segment::default()
    };
    pair.client
        .on_segment(segment(rcv_nxt + 100, Flags::ACK, 50), now);
    pair.client
        .on_segment(segment(rcv_nxt + 50, Flags::ACK | Flags::FIN, 49), now);
    pair.client
        .on_segment(segment(rcv_nxt, Flags::ACK, 100), now);
    assert_eq!(
        (pair.client.state(), pair.client.readable()),
        (State::Established, 150)
    );
}
