//! Whole connections and an attacker who forges segments. One attacker knows addresses and ports
//! but no sequence number. The other knows sequence numbers too, and sends what RFC 5961 says must
//! do no harm. In both cases the data read equals the data written, and no end sends an unlimited
//! number of answers.

mod common;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use common::{Random, ms, pattern};
use tcpcost_tcp::wire::{Checksum, Flags, FourTuple, Packet, Segment, Timestamps};
use tcpcost_tcp::{Config, ConnId, Connection, Endpoint, Piece, Pool, ReadError, SeqNum, State};

const BYTES: u64 = 100_000;
const LATENCY: Duration = Duration::from_millis(1);

/// Client that writes, server that reads, and an attacker who injects packets but sees none.
struct Scene {
    client: Endpoint,
    server: Endpoint,
    id: ConnId,
    accepted: Option<ConnId>,
    now: Instant,
    wire: VecDeque<(Instant, bool, Packet)>,
    written: u64,
    read: u64,
    random: Random,
}

impl Scene {
    fn new(seed: u64, timestamps: bool) -> Self {
        let config = Config {
            timestamps,
            ..Config::default()
        };
        let endpoint = |secret| {
            let (pool, checksum) = (Pool::default(), Checksum::Complete);
            Endpoint::new(config.clone(), pool, [secret; 16], checksum, ms(0))
        };
        let (mut client, mut server) = (endpoint(1), endpoint(2));
        server.listen(80, 1, config.clone()).unwrap();
        let local = "10.0.0.1:4000".parse().unwrap();
        let remote = "10.0.0.2:80".parse().unwrap();
        let id = client.connect(local, remote, ms(0)).unwrap();
        let mut scene = Self {
            client,
            server,
            id,
            accepted: None,
            now: ms(0),
            wire: VecDeque::new(),
            written: 0,
            read: 0,
            random: Random::new(seed),
        };
        while scene
            .connection(false)
            .is_none_or(|server| server.state() != State::Established)
        {
            scene.step();
        }
        scene
    }

    fn connection(&self, client: bool) -> Option<&Connection> {
        if client {
            self.client.connection(self.id)
        } else {
            self.server.connection(self.accepted?)
        }
    }

    /// Runs until the next event of an honest wire.
    fn step(&mut self) {
        let (now, ends) = (self.now, [&mut self.client, &mut self.server]);
        for (to_server, end) in [true, false].into_iter().zip(ends) {
            let sent =
                std::iter::from_fn(|| Some((now + LATENCY, to_server, end.poll_packet(now)?)));
            self.wire.extend(sent);
        }
        let arrival = self.wire.front().map(|(at, ..)| *at);
        let due = [
            arrival,
            self.client.next_timeout(),
            self.server.next_timeout(),
        ];
        let due = due
            .into_iter()
            .flatten()
            .min()
            .expect("something will happen");
        self.now = self.now.max(due);
        while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
            let (_, to_server, packet) = self.wire.pop_front().unwrap();
            self.give(to_server, packet);
        }
        self.client.on_timeout(self.now);
        self.server.on_timeout(self.now);
        self.accepted = self.accepted.or_else(|| self.server.accept(80));
    }

    fn give(&mut self, to_server: bool, packet: Packet) {
        if to_server {
            self.server.on_packet(packet, self.now);
        } else {
            self.client.on_packet(packet, self.now);
        }
    }

    /// Writes a few bytes, then reads and compares what has arrived.
    fn application(&mut self) {
        let mut bytes = vec![0; self.random.below(3000)];
        pattern(self.written, &mut bytes);
        let written = self
            .client
            .apply(self.id, |connection| connection.write(&bytes));
        self.written += written.unwrap().expect("the connection lives") as u64;
        let (now, mut at) = (self.now, self.read);
        let Some(id) = self.accepted else { return };
        self.server.apply(id, |connection| {
            let (mut buffer, mut expected) = ([0; 1 << 14], [0; 1 << 14]);
            loop {
                match connection.read(&mut buffer, now) {
                    Ok(n) => {
                        pattern(at, &mut expected[..n]);
                        assert!(buffer[..n] == expected[..n], "other bytes from {at} on");
                        at += n as u64;
                    }
                    Err(ReadError::Empty) => return,
                    Err(error) => panic!("{error} at {at}"),
                }
            }
        });
        self.read = at;
    }

    fn forge(&mut self, to_server: bool, segment: Segment) {
        let path = FourTuple {
            local: "10.0.0.1:4000".parse().unwrap(),
            remote: "10.0.0.2:80".parse().unwrap(),
        };
        let path = if to_server {
            path
        } else {
            FourTuple {
                local: path.remote,
                remote: path.local,
            }
        };
        self.give(to_server, Packet::emit(&path, segment, Checksum::Complete));
    }

    fn any_segment(&mut self) -> Segment {
        let random = &mut self.random;
        let mut segment = Segment {
            seq: SeqNum::new(random.word() as u32),
            ack: SeqNum::new(random.word() as u32),
            flags: Flags::from_bits(random.word() as u8),
            window: random.word() as u16,
            payload: Piece::from(vec![0xee; random.below(1400)]).into(),
            ..Segment::default()
        };
        if random.below(2) == 0 {
            segment.options.timestamps = Some(Timestamps {
                value: random.word() as u32,
                echo: random.word() as u32,
            });
        }
        segment
    }

    /// Makes a segment of an attacker who knows all numbers, of a kind that RFC 5961 protects
    /// against.
    fn knowing_segment(&mut self, to_server: bool) -> Option<Segment> {
        let victim = self.connection(!to_server)?;
        let (una, nxt, rcv) = victim.sequence();
        let stamps = victim.counters().segments_received as u32;
        let anything = self.any_segment();
        let near = self.random.below(20_000) as u32;
        let ordinary = Segment {
            seq: rcv,
            ack: una,
            flags: Flags::ACK,
            payload: anything.payload.clone(),
            window: anything.window,
            options: anything.options,
            ..Segment::default()
        };
        Some(match self.random.below(6) {
            // RFC 5961 §3: a reset in the window, but not at its left edge.
            0 => Segment {
                seq: rcv + 1 + near,
                flags: Flags::RST | Flags::ACK,
                ..ordinary
            },
            // RFC 5961 §4: a SYN.
            1 => Segment {
                seq: rcv + near,
                flags: Flags::SYN.with(Flags::ACK, stamps.is_multiple_of(2)),
                ..ordinary
            },
            // RFC 5961 §5: data with an impossible acknowledgement.
            2 => Segment {
                ack: nxt + 1 + near,
                ..ordinary
            },
            3 => Segment {
                ack: una - (1 << 30) - near,
                ..ordinary
            },
            // RFC 9293 §3.10.7.4: a segment without ACK, and data beyond any window.
            4 => Segment {
                flags: Flags::PSH,
                ..ordinary
            },
            _ => Segment {
                seq: rcv + (1 << 29) + near,
                ..ordinary
            },
        })
    }

    fn run(mut self, knowing: bool) {
        let begun = self.now;
        while self.read < BYTES {
            self.application();
            self.step();
            for _ in 0..self.random.below(4) {
                let to_server = self.random.below(2) == 0;
                let forged = if knowing {
                    self.knowing_segment(to_server)
                } else {
                    Some(self.any_segment())
                };
                if let Some(segment) = forged {
                    self.forge(to_server, segment);
                }
            }
            assert!(self.now - begun < Duration::from_secs(600), "it stalls");
        }
        // RFC 5961 §7: ten a second.
        let seconds = (self.now - begun).as_secs() as u32 + 1;
        for client in [true, false] {
            let counters = self.connection(client).unwrap().counters();
            assert!(
                counters.challenge_acks_sent <= 10 * (seconds + 1),
                "{counters:?}"
            );
        }
    }
}

#[test]
fn who_knows_no_sequence_number_changes_nothing() {
    for seed in 0..300 {
        Scene::new(seed, seed % 2 == 0).run(false);
    }
}

#[test]
fn who_knows_them_cannot_end_or_stop_it_by_what_rfc_5961_has_survived() {
    for seed in 0..300 {
        Scene::new(seed, seed % 2 == 0).run(true);
    }
}
