//! Tests that a refused segment changes nothing: a forged segment must not shut the peer out.

use super::*;
use crate::wire::Timestamps;

/// Segments that a connection refuses although they begin at RCV.NXT.
fn forgeries(connection: &Connection) -> Vec<(&'static str, Segment)> {
    let (una, nxt, rcv) = connection.sequence();
    let ordinary = Segment {
        seq: rcv,
        ack: una,
        flags: Flags::ACK,
        window: 1000,
        payload: Piece::from(b"forged".as_slice()).into(),
        ..Segment::default()
    };
    let with = |flags: Flags| Segment {
        flags,
        ..ordinary.clone()
    };
    vec![
        ("SYN", with(Flags::SYN)),
        ("SYN and ACK", with(Flags::SYN | Flags::ACK)),
        (
            "RST around RCV.NXT",
            Segment {
                seq: rcv - 3,
                ..with(Flags::RST | Flags::ACK)
            },
        ),
        (
            "ACK of what was never sent",
            Segment {
                ack: nxt + 1,
                ..ordinary.clone()
            },
        ),
        (
            "ACK older than any window",
            Segment {
                ack: una - (1 << 30),
                ..ordinary.clone()
            },
        ),
        ("no ACK", with(Flags::PSH)),
    ]
}

#[test]
fn a_refused_segment_does_not_shut_the_peer_out() {
    let names: Vec<_> = {
        let mut pair = Pair::connected(Config::default(), Config::default());
        let forgeries = forgeries(pair.server());
        forgeries.into_iter().map(|(name, _)| name).collect()
    };
    for (n, name) in names.into_iter().enumerate() {
        let mut pair = Pair::connected(Config::default(), Config::default());
        pair.transfer(1000);
        let (_, mut forged) = forgeries(pair.server()).swap_remove(n);
        let honest = pair.log.iter().rev().find_map(|(_, way, segment)| {
            (*way == Way::ToServer).then_some(segment.options.timestamps)?
        });
        let honest = honest.expect("timestamps are agreed on");
        forged.options.timestamps = Some(Timestamps {
            value: honest.value.wrapping_add(1 << 30),
            echo: honest.echo,
        });
        let now = pair.now;
        pair.server().on_segment(forged, now);
        let before = pair.server().counters().dropped_paws;
        let took = pair.transfer(100_000);
        assert_eq!(pair.server().counters().dropped_paws, before, "{name}");
        assert!(took < 1000, "{name}: {took} ms");
    }
}

#[test]
fn a_reset_of_ours_carries_timestamps() {
    let mut pair = Pair::connected(Config::default(), Config::default());
    pair.client.abort();
    pair.transmit();
    let (_, _, reset) = pair.log.last().unwrap();
    assert_eq!(reset.flags, Flags::RST | Flags::ACK);
    assert!(reset.options.timestamps.is_some());
    pair.run_for(100);
    assert_eq!(pair.server().ended(), Some(Ended::Reset));
}

/// A peer that probed a closed window with one byte continues after that byte. RFC 9293 §3.10.7.4:
/// "special allowance should be made to accept valid ACKs".
#[test]
fn while_the_window_is_shut_an_acknowledgement_beyond_it_counts() {
    let narrow = Config {
        receive_buffer: 4000,
        receive_buffer_max: 0,
        ..plain()
    };
    let mut pair = Pair::connected(plain(), narrow);
    pair.client.write(&[1; 4000]).unwrap();
    pair.run_for(1000);
    pair.server().write(&[2; 10]).unwrap();
    pair.transmit();
    pair.wire.clear();
    let (una, nxt, rcv) = pair.server().sequence();
    assert_ne!(una, nxt);
    let beyond = Segment {
        seq: rcv + 1,
        ack: nxt,
        flags: Flags::ACK,
        window: 1000,
        ..Segment::default()
    };
    let now = pair.now;
    pair.server().on_segment(beyond, now);
    assert_eq!(pair.server().sequence(), (nxt, nxt, rcv));
}
