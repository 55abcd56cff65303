//! Bodies of the fuzz targets. `cargo test` also runs them, over the corpus and over random bytes.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use tcpcost_tcp::wire::{Checksum, Ecn, Flags, Header, Options, Packet, Segment, Timestamps};
use tcpcost_tcp::{
    AckPolicy, Clock, Config, Connection, Endpoint, LinuxAcks, Pacing, Piece, Pool, Segmentation,
    SeqNum, State,
};

/// Treats the bytes as a packet, for the parser and for a listening endpoint.
pub fn wire(data: &[u8]) {
    let mut endpoint = Endpoint::new(
        Config::default(),
        Pool::new(4096, 4),
        [1; 16],
        Checksum::Complete,
        start(),
    );
    let _ = endpoint.listen(80, 2, Config::default());
    for checksum in [Checksum::Complete, Checksum::Partial] {
        let whole = Packet {
            checksum,
            ..Packet::from_piece(Piece::from(data))
        };
        let (head, tail) = data.split_at(data.len().min(60));
        let apart = Packet {
            header: Header::from(head),
            payload: Piece::from(tail).into(),
            checksum,
            segment_size: 7,
        };
        for packet in [whole, apart] {
            let _ = packet.clone().parse();
            endpoint.on_packet(packet, start());
            while endpoint.poll_packet(start()).is_some() {}
        }
    }
}

/// Sends arbitrary segments near the window to an established connection, with time and calls in
/// between.
pub fn segments(data: &[u8]) {
    let mut input = Input(data);
    let (mut connection, mut peer, mut now) = connected(&config(input.byte()));
    while peer.poll_segment(now).is_some() {}
    for _ in 0..200 {
        if input.0.is_empty() {
            break;
        }
        match input.byte() % 8 {
            0..=3 => {
                let segment = any_segment(&mut input, &connection);
                connection.on_segment(segment, now);
            }
            4 => {
                now += Duration::from_millis(1 << (input.byte() % 14));
                connection.on_timeout(now);
            }
            5 => drop(
                connection.write_more(&vec![5; usize::from(input.word())], input.byte() & 1 == 1),
            ),
            6 => drop(connection.read(&mut vec![0; usize::from(input.word())], now)),
            _ => match input.byte() % 16 {
                0 => connection.close(),
                1 => connection.abandon(now),
                2 => connection.cork(true),
                3 => connection.cork(false),
                4 => connection.on_mtu(
                    connection.sequence().0 + u32::from(input.byte()),
                    u32::from(input.word()),
                ),
                5 => connection.abort(),
                _ => {}
            },
        }
        for _ in 0..input.byte() % 32 {
            if connection.poll_segment(now).is_none() {
                break;
            }
        }
    }
}

/// Two connections and a wire that loses, duplicates, delays and reorders as the bytes say. When
/// the bytes end the wire is perfect, and everything written must arrive.
pub fn pair(data: &[u8]) {
    let mut input = Input(data);
    let config = config(input.byte());
    let (mut a, mut b, mut now) = connected(&config);
    let mut wire: VecDeque<(bool, Segment)> = VecDeque::new();
    let (mut written, mut read) = (0u64, 0u64);
    for _ in 0..400 {
        if input.0.is_empty() {
            break;
        }
        let what = input.byte();
        match what % 8 {
            0 => written += write(&mut a, written, usize::from(input.word())),
            1 => read += check_read(&mut b, read, usize::from(input.word()), now),
            2 => {
                now += Duration::from_millis(u64::from(input.byte()));
                a.on_timeout(now);
                b.on_timeout(now);
            }
            3 => drop(wire.pop_front()),
            4 => {
                if let Some(twice) = wire.front().cloned() {
                    wire.push_back(twice);
                }
            }
            5 => {
                if let Some(late) = wire.pop_front() {
                    wire.push_back(late);
                }
            }
            _ => {
                wire.extend(std::iter::from_fn(|| Some((true, a.poll_segment(now)?))).take(20));
                wire.extend(std::iter::from_fn(|| Some((false, b.poll_segment(now)?))).take(20));
                for _ in 0..what / 16 {
                    deliver(&mut wire, &mut a, &mut b, now);
                }
            }
        }
        if a.state() == State::Closed || b.state() == State::Closed {
            // Enough timeouts in a row: the connection was rightly given up.
            return;
        }
    }
    a.close();
    for _ in 0..20_000 {
        wire.extend(std::iter::from_fn(|| Some((true, a.poll_segment(now)?))));
        wire.extend(std::iter::from_fn(|| Some((false, b.poll_segment(now)?))));
        read += check_read(&mut b, read, 1 << 16, now);
        if read == written && b.is_finished() {
            return;
        }
        if wire.is_empty() {
            let due = [a.next_timeout(), b.next_timeout()]
                .into_iter()
                .flatten()
                .min();
            now = now.max(due.expect("neither waits for anything, and not all has arrived"));
            a.on_timeout(now);
            b.on_timeout(now);
        }
        while !wire.is_empty() {
            deliver(&mut wire, &mut a, &mut b, now);
        }
        if a.state() == State::Closed && a.ended().is_some() {
            return;
        }
    }
    panic!("{read} of {written} bytes arrived");
}

fn deliver(
    wire: &mut VecDeque<(bool, Segment)>,
    a: &mut Connection,
    b: &mut Connection,
    now: Instant,
) {
    match wire.pop_front() {
        Some((true, segment)) => b.on_segment(segment, now),
        Some((false, segment)) => a.on_segment(segment, now),
        None => {}
    }
}

fn write(connection: &mut Connection, from: u64, len: usize) -> u64 {
    let bytes: Vec<u8> = (from..from + len as u64).map(|n| (n % 251) as u8).collect();
    connection.write(&bytes).map_or(0, |n| n as u64)
}

fn check_read(connection: &mut Connection, from: u64, len: usize, now: Instant) -> u64 {
    let mut buffer = vec![0; len];
    let n = connection.read(&mut buffer, now).unwrap_or(0);
    for (byte, at) in buffer[..n].iter().zip(from..) {
        assert_eq!(*byte, (at % 251) as u8, "byte {at}");
    }
    n as u64
}

/// Settings chosen by the bits of one byte.
fn config(bits: u8) -> Config {
    let supers = if bits & 1 == 0 { 0 } else { 65_160 };
    let delay_max = Duration::from_millis(40);
    Config {
        sack: bits & 2 == 0,
        timestamps: bits & 4 == 0,
        ecn: bits & 8 != 0,
        receive_buffer: if bits & 16 == 0 { 60_000 } else { 3000 },
        receive_buffer_max: 0,
        send_buffer: 200_000,
        ack: ack(bits >> 5, supers > 0, delay_max),
        linux_acks: if bits >> 5 == 7 {
            LinuxAcks {
                comp_sack_nr: 2,
                backlog_ack_defer: false,
                ..LinuxAcks::default()
            }
        } else {
            LinuxAcks::default()
        },
        segmentation: Segmentation {
            super_segment_bytes_max: supers,
            // The segmentation of 2005's sender, together with the policy of its receiver.
            whole_only: bits >> 5 == 3,
            window_divisor: (bits >> 5 > 3).then_some(3),
            pacing: if bits >> 5 == 6 {
                Pacing::BytesPerSecond(10_000_000)
            } else {
                Pacing::Off
            },
            ..Segmentation::default()
        },
        retries_max: 250,
        ..Config::default()
    }
}

/// Policy chosen by three bits, and for one of their values by whether the sender makes
/// super-segments.
fn ack(bits: u8, supers: bool, delay_max: Duration) -> AckPolicy {
    let segments = 16;
    match bits {
        0 if supers => AckPolicy::OnPush { delay_max },
        0 => AckPolicy::Delayed { delay_max },
        2 | 7 => AckPolicy::LinuxLike { delay_max },
        3 => AckPolicy::Avoidance {
            limit_initial: 1,
            limit_max: 22,
            delay_max,
        },
        4 => AckPolicy::OnRead {
            segments,
            delay_max,
        },
        5 => AckPolicy::Requested {
            segments,
            delay_max,
        },
        6 => AckPolicy::Exactly {
            segments: 2,
            delay_max,
        },
        _ => AckPolicy::Every {
            segments,
            delay_max,
        },
    }
}

fn connected(config: &Config) -> (Connection, Connection, Instant) {
    let (config, pool, now) = (Arc::new(config.clone()), Pool::new(4096, 16), start());
    let clock = Clock {
        epoch: now,
        offset: 5,
    };
    let mut a = Connection::connect(
        Arc::clone(&config),
        pool.clone(),
        SeqNum::new(u32::MAX - 2000),
        clock,
        now,
    );
    let syn = a.poll_segment(now).expect("a SYN");
    let mut b = Connection::accept(config, pool, SeqNum::new(77), clock, &syn, now);
    a.on_segment(b.poll_segment(now).expect("a SYN-ACK"), now);
    b.on_segment(a.poll_segment(now).expect("an ACK"), now);
    (a, b, now)
}

fn any_segment(input: &mut Input<'_>, connection: &Connection) -> Segment {
    let (una, nxt, rcv_nxt) = connection.sequence();
    let flags = Flags::from_bits(input.byte());
    let near = |base: SeqNum, offset: u16| base + u32::from(offset) - 300;
    let (seq, ack) = (
        near(rcv_nxt, input.word() % 5000),
        near(
            if input.byte() & 1 == 0 { una } else { nxt },
            input.word() % 3000,
        ),
    );
    let bits = input.byte();
    let mut options = Options::default();
    if bits & 1 == 0 {
        options.timestamps = Some(Timestamps {
            value: 5 + u32::from(input.word()),
            echo: u32::from(input.byte()),
        });
    }
    for _ in 0..bits >> 1 & 3 {
        let start = near(una, input.word() % 9000);
        options.sack.push(start, start + u32::from(input.word()));
    }
    let bytes = if bits & 8 == 0 {
        0
    } else {
        usize::from(input.word() % 4000)
    };
    Segment {
        seq,
        ack,
        flags: if bits & 16 == 0 { Flags::ACK } else { flags },
        window: input.word(),
        options,
        payload: Piece::from(vec![3; bytes]).into(),
        segment_size: if bits & 32 == 0 { 0 } else { 100 },
        ecn: if bits & 64 == 0 {
            Ecn::NotCapable
        } else {
            Ecn::Congested
        },
        dscp: 0,
        // Derived from another input, so that the corpus keeps its meaning.
        urgent: seq.value() as u16,
        fast_open: None,
    }
}

/// Bytes of the input, followed by zeros.
struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        *first
    }

    fn word(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }
}

#[allow(
    clippy::disallowed_methods,
    reason = "there must be one Instant to count from"
)]
fn start() -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now)
}
