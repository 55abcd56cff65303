//! Tests that the window is never taken back: a peer that uses all of the announced window is
//! accepted, under every policy, batch size and reading speed.

use proptest::prelude::*;

use super::*;
use crate::LinuxAcks;

/// Receiver, and a peer that fills its window to the last byte.
struct Greedy {
    receiver: Connection,
    /// End of the window announced; `sent` is the end of the data sent.
    edge: SeqNum,
    sent: SeqNum,
    now: Instant,
}

#[derive(Clone, Debug)]
enum Step {
    /// Sends this many segments of at most this many bytes, processed together.
    Send(u8, u16),
    /// Sends as much as the window has room for.
    Fill,
    /// Lets the application read this many bytes.
    Read(u32),
    /// Lets this many ms pass.
    Wait(u8),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        (1u8..20, 1u16..1460).prop_map(|(count, bytes)| Step::Send(count, bytes)),
        Just(Step::Fill),
        (1u32..30_000).prop_map(Step::Read),
        (1u8..100).prop_map(Step::Wait),
    ]
}

fn policies() -> impl Strategy<Value = AckPolicy> {
    let delay_max = Duration::from_millis(40);
    (0..8, 1u32..12).prop_map(move |(kind, segments)| match kind {
        0 => AckPolicy::Delayed { delay_max },
        1 => AckPolicy::LinuxLike { delay_max },
        2 => AckPolicy::Every {
            segments,
            delay_max,
        },
        3 => AckPolicy::Exactly {
            segments,
            delay_max,
        },
        4 => AckPolicy::Avoidance {
            limit_initial: segments.min(2),
            limit_max: segments,
            delay_max,
        },
        5 => AckPolicy::OnRead {
            segments,
            delay_max,
        },
        6 => AckPolicy::OnPush { delay_max },
        _ => AckPolicy::Requested {
            segments,
            delay_max,
        },
    })
}

impl Greedy {
    fn new(ack: AckPolicy, receive_buffer: u32, receive_buffer_max: u32) -> Self {
        let config = Config {
            ack,
            receive_buffer,
            receive_buffer_max,
            linux_acks: LinuxAcks::default(),
            ..plain()
        };
        let mut pair = Pair::connected(plain(), config);
        let receiver = pair.server.take().unwrap();
        let (_, _, sent) = receiver.sequence();
        let mut greedy = Self {
            edge: sent + receive_buffer.min(0xffff),
            sent,
            receiver,
            now: pair.now,
        };
        greedy.hear();
        greedy
    }

    /// Notes the windows that the receiver's segments announce.
    fn hear(&mut self) {
        let shift = self.receiver.rcv.shift;
        while let Some(segment) = self.receiver.poll_segment(self.now) {
            let edge = segment.ack + (u32::from(segment.window) << shift);
            self.edge = self.edge.max(edge);
        }
    }

    fn give(&mut self, bytes: u32) {
        let (_, nxt, _) = self.receiver.sequence();
        let segment = Segment {
            seq: self.sent,
            ack: nxt,
            flags: Flags::ACK,
            window: 0xffff,
            payload: Piece::from(vec![1; bytes as usize]).into(),
            ..Segment::default()
        };
        self.sent = segment.end();
        self.receiver.on_segment(segment, self.now);
    }

    fn step(&mut self, step: &Step) {
        let left = |greedy: &Self| greedy.edge.since(greedy.sent);
        match *step {
            Step::Send(count, bytes) => {
                for _ in 0..count {
                    let bytes = left(self).min(bytes.into());
                    self.give(bytes);
                }
            }
            Step::Fill => {
                while left(self) > 0 {
                    let bytes = left(self).min(1460);
                    self.give(bytes);
                }
                // An ACK from the edge must count too.
                self.receiver.write(&[2; 10]).unwrap();
                self.hear();
                self.give(0);
                let (una, nxt, _) = self.receiver.sequence();
                assert_eq!(una, nxt, "an acknowledgement at the edge is believed");
            }
            Step::Read(bytes) => {
                let _ = self.receiver.read(&mut vec![0; bytes as usize], self.now);
            }
            Step::Wait(milliseconds) => {
                self.now += Duration::from_millis(milliseconds.into());
                self.receiver.on_timeout(self.now);
            }
        }
        self.hear();
        let (_, _, taken) = self.receiver.sequence();
        assert_eq!(taken, self.sent, "all that was called for is taken in");
    }
}

proptest! {
    #[test]
    fn nothing_that_was_advertised_is_ever_outside_the_window(
        ack in policies(),
        buffer in 2_000u32..300_000,
        buffer_max in prop_oneof![Just(0u32), 70_000u32..8_000_000],
        steps in prop::collection::vec(steps(), 1..40),
    ) {
        let mut greedy = Greedy::new(ack, buffer, buffer_max);
        for step in &steps {
            greedy.step(step);
        }
    }
}
