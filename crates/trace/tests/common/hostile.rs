//! Segments that a peer or any other host may send to make the analysis expensive.

use tcpcost_trace::flag::{ACK, PSH, SYN};
use tcpcost_trace::{Endpoint, Host, Options, PacketDirection, Segment};

/// Kind of attack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attack {
    /// Segments at random places of one connection: each opens a gap, or splits one.
    Gaps,
    /// One ACK far ahead, then segments within what it covers: each splits that range.
    Early,
    /// Retransmissions of the same few bytes.
    Again,
    /// ACKs with SACK blocks at random places, with data in between.
    Sacks,
    /// Random timestamps.
    Timestamps,
    /// Packets of connections that began before the capture, each of another one.
    Strangers,
    /// SYNs, each of another connection.
    Syns,
    /// Random values in all fields.
    Anything,
}

impl Attack {
    pub const ALL: [Attack; 8] = [
        Attack::Gaps,
        Attack::Early,
        Attack::Again,
        Attack::Sacks,
        Attack::Timestamps,
        Attack::Strangers,
        Attack::Syns,
        Attack::Anything,
    ];

    /// Makes `count` segments, one every 10 µs.
    pub fn segments(self, count: u64) -> impl Iterator<Item = Segment> {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        (0..count).map(move |number| {
            // xorshift64
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            self.segment(number, random)
        })
    }

    fn segment(self, number: u64, random: u64) -> Segment {
        let (low, high) = (random as u32, (random >> 32) as u32);
        let place = 1 + low % (1 << 28);
        let plain = segment(number, 0, ACK);
        let data = |seq| Segment {
            seq: Some(seq),
            payload: 1,
            flags: ACK | PSH,
            ip_octets: 53,
            ..plain
        };
        match self {
            Attack::Gaps => data(place),
            Attack::Early if number == 0 => data(1),
            Attack::Early if number == 1 => Segment {
                ack: 1 << 28,
                ..segment(number, 1, ACK)
            },
            Attack::Early => data(place),
            Attack::Again => data(1 + low % 64),
            Attack::Sacks if number.is_multiple_of(2) => data(place),
            Attack::Sacks => Segment {
                ack: 1 + high % 1024,
                options: Options {
                    sack: [(place, place + 9), (high, high.wrapping_add(9))],
                    sack_blocks: 2,
                    ..plain.options
                },
                ..segment(number, 1, ACK)
            },
            Attack::Timestamps => Segment {
                options: Options {
                    timestamps: Some((low, high)),
                    ..plain.options
                },
                ack: number as u32,
                ..segment(number, (number % 2) as usize, ACK)
            },
            Attack::Strangers | Attack::Syns => Segment {
                source: Endpoint {
                    host: Host::Address((0x0b00_0000 + number as u32).to_be_bytes().into()),
                    port: 1,
                },
                flags: if self == Attack::Syns { SYN } else { ACK },
                ..plain
            },
            Attack::Anything => Segment {
                seq: Some(place),
                ack: high % (1 << 28),
                payload: low >> 20,
                flags: (high >> 8) as u8 & !SYN,
                window: high as u16,
                ip_id: (low & 1) as u16 * (high >> 16) as u16,
                hop_limit: 63 + (low & 1) as u8,
                ip_octets: 52 + (low >> 20),
                ..segment(number, (high & 1) as usize, ACK)
            },
        }
    }
}

fn segment(number: u64, from: usize, flags: u8) -> Segment {
    let ends = [1, 2].map(|last| Endpoint {
        host: Host::Address([10, 0, 0, last].into()),
        port: 80,
    });
    Segment {
        at_ns: Some(1_000_000_000 + number * 10_000),
        source: ends[from],
        destination: ends[1 - from],
        seq: Some(1),
        ack: 1,
        window: 60_000,
        flags,
        ip_id: 0,
        hop_limit: 64,
        interface: 0,
        direction: PacketDirection::Unknown,
        tunnel: None,
        frame: number + 1,
        payload: 0,
        ip_octets: 52,
        options: Options {
            timestamps: Some((7, 7)),
            complete: true,
            ..Options::default()
        },
    }
}
