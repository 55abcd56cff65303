//! Tests of the acknowledgements that are mandatory under every policy (RFC 5681 §4.2; RFC 9293
//! §3.8.6.3 and §3.10.7.4; RFC 3168 §6.1.3). Each case runs under each policy.

use super::*;

const DELAY: Duration = Duration::from_millis(40);
const SIZE: u32 = 1000;

/// Every policy, with its longest wait.
fn policies() -> [AckPolicy; 8] {
    let (segments, delay_max) = (64, DELAY);
    [
        AckPolicy::Delayed { delay_max },
        AckPolicy::LinuxLike { delay_max },
        AckPolicy::Every {
            segments,
            delay_max,
        },
        AckPolicy::Exactly {
            segments,
            delay_max,
        },
        AckPolicy::Avoidance {
            limit_initial: 22,
            limit_max: 22,
            delay_max,
        },
        AckPolicy::OnRead {
            segments,
            delay_max,
        },
        AckPolicy::OnPush { delay_max },
        AckPolicy::Requested {
            segments,
            delay_max,
        },
    ]
}

/// Receiver, and the state of its peer.
struct Receiver {
    connection: Connection,
    start: SeqNum,
    peer_ack: SeqNum,
    now: Instant,
}

impl Receiver {
    /// Makes a receiver with one segment whose acknowledgement waits.
    fn waiting(ack: AckPolicy, receive_buffer: u32) -> Self {
        let config = Config {
            ack,
            receive_buffer,
            receive_buffer_max: 0,
            ecn: true,
            ..plain()
        };
        let mut pair = Pair::connected(
            Config {
                ecn: true,
                ..plain()
            },
            config,
        );
        let connection = pair.server.take().unwrap();
        let (_, peer_ack, start) = connection.sequence();
        let mut receiver = Self {
            connection,
            start,
            peer_ack,
            now: pair.now,
        };
        // Linux's quick-ACK mode is over after sixteen segments.
        for _ in 0..20 {
            receiver.text(0, SIZE);
            receiver.start += SIZE;
            let _ = receiver.acks();
            let now = receiver.now;
            receiver.connection.read(&mut [0; 4096], now).unwrap();
            let _ = receiver.acks();
            receiver.now += Duration::from_millis(50);
            receiver.connection.on_timeout(receiver.now);
            let _ = receiver.acks();
        }
        receiver.text(0, SIZE);
        receiver.start += SIZE;
        assert_eq!(receiver.acks(), [], "{ack:?} waits with one segment");
        receiver
    }

    fn segment(&self, offset: i64, bytes: u32) -> Segment {
        let seq = if offset < 0 {
            self.start - offset.unsigned_abs() as u32
        } else {
            self.start + offset as u32
        };
        Segment {
            seq,
            ack: self.peer_ack,
            flags: Flags::ACK,
            window: 0xffff,
            payload: Piece::from(vec![1; bytes as usize]).into(),
            ..Segment::default()
        }
    }

    fn text(&mut self, offset: i64, bytes: u32) {
        let segment = self.segment(offset, bytes);
        self.connection.on_segment(segment, self.now);
    }

    /// Sends what is due. Returns how far beyond `start` each acknowledgement reaches.
    fn acks(&mut self) -> Vec<i64> {
        let mut acks = Vec::new();
        while let Some(segment) = self.connection.poll_segment(self.now) {
            let ahead = segment.ack.since(self.start) as i32;
            acks.push(i64::from(ahead));
        }
        acks
    }
}

fn check(what: &str, happens: impl Fn(&mut Receiver), expected: &[i64]) {
    for policy in policies() {
        let mut receiver = Receiver::waiting(policy, 60_000);
        happens(&mut receiver);
        assert_eq!(receiver.acks(), expected, "{what}: {policy:?}");
    }
}

#[test]
fn a_segment_out_of_order() {
    check("gap", |receiver| receiver.text(1000, SIZE), &[0]);
}

#[test]
fn a_segment_that_fills_a_gap_or_part_of_it() {
    let fills = |receiver: &mut Receiver| {
        receiver.text(2000, SIZE);
        let _ = receiver.acks();
        receiver.text(0, SIZE);
    };
    check("part", fills, &[1000]);
    let fills_all = |receiver: &mut Receiver| {
        receiver.text(1000, SIZE);
        let _ = receiver.acks();
        receiver.text(0, SIZE);
    };
    check("all", fills_all, &[2000]);
}

#[test]
fn an_old_segment_and_one_outside_the_window() {
    check("old", |receiver| receiver.text(-1000, SIZE), &[0]);
    check("beyond", |receiver| receiver.text(100_000, SIZE), &[0]);
}

#[test]
fn a_fin() {
    let fin = |receiver: &mut Receiver| {
        let mut segment = receiver.segment(0, 0);
        segment.flags = Flags::ACK | Flags::FIN;
        receiver.connection.on_segment(segment, receiver.now);
    };
    check("FIN", fin, &[1]);
    let with_text = |receiver: &mut Receiver| {
        let mut segment = receiver.segment(0, 10);
        segment.flags = Flags::ACK | Flags::FIN;
        receiver.connection.on_segment(segment, receiver.now);
    };
    check("FIN with text", with_text, &[11]);
}

#[test]
fn a_changed_congestion_mark() {
    let marked = |receiver: &mut Receiver| {
        let mut segment = receiver.segment(0, SIZE);
        segment.ecn = Ecn::Congested;
        receiver.connection.on_segment(segment, receiver.now);
    };
    check("CE", marked, &[1000]);
    let reduced = |receiver: &mut Receiver| {
        let mut segment = receiver.segment(0, SIZE);
        segment.ecn = Ecn::Congested;
        receiver.connection.on_segment(segment, receiver.now);
        let _ = receiver.acks();
        let mut segment = receiver.segment(1000, 10);
        segment.flags = Flags::ACK | Flags::CWR;
        receiver.connection.on_segment(segment, receiver.now);
    };
    check("CWR", reduced, &[1010]);
}

#[test]
fn a_probe_of_a_closed_window_and_its_reopening() {
    for policy in policies() {
        let mut receiver = Receiver::waiting(policy, 4000);
        let room = |receiver: &Receiver| receiver.connection.readable() as u32;
        let missing = 4000 - room(&receiver);
        for at in (0..missing).step_by(500) {
            receiver.text(at.into(), 500.min(missing - at));
        }
        receiver.start += missing;
        receiver.now += DELAY;
        receiver.connection.on_timeout(receiver.now);
        let _ = receiver.acks();
        receiver.text(0, 1);
        assert_eq!(receiver.acks(), [0], "a probe: {policy:?}");
        let now = receiver.now;
        receiver.connection.read(&mut [0; 4000], now).unwrap();
        assert_eq!(receiver.acks(), [0], "reopened: {policy:?}");
    }
}

/// Every segment carries the acknowledgement, so data of ours ends the wait.
#[test]
fn data_of_ours_carries_it() {
    for policy in policies() {
        let mut receiver = Receiver::waiting(policy, 60_000);
        receiver.connection.write(&[1; 10]).unwrap();
        assert_eq!(receiver.acks(), [0], "{policy:?}");
        let delayed = receiver.connection.counters().delayed_acks_sent;
        receiver.now += DELAY;
        receiver.connection.on_timeout(receiver.now);
        let counters = receiver.connection.counters();
        assert_eq!(counters.delayed_acks_sent, delayed, "{policy:?}");
    }
}
