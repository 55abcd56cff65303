//! Properties: a receiver that waits for its n-th segment and a sender that waits for room must not
//! wait for each other, and rare ACKs must not slow a window that counts bytes. The sender of 2005
//! violates both.

mod common;
mod face;

use std::cell::Cell;
use std::num::NonZeroU16;
use std::time::Duration;

use face::{Face, Who};
use proptest::prelude::*;
use tcpcost_tcp::{
    AckPolicy, Config, CongestionControl, Connection, Segmentation, TailRule, WindowGrowth,
};

const DELAY: Duration = Duration::from_millis(400);

/// Result of a transfer, up to the read of its last byte.
struct Outcome {
    /// ACKs that left because their delay expired.
    delayed: u64,
    /// Timeouts and tail loss probes of the sender, which would end a wait earlier.
    probes: u32,
    cwnd: u32,
    acknowledged: u32,
}

/// Runs a transfer of `bytes` as fast as possible; the server reads all data at once.
fn bulk(client: Config, server: Config, bytes: usize) -> Outcome {
    part_of(client, server, bytes, bytes)
}

/// Runs a transfer of `all` bytes until the first `bytes` are read.
fn part_of(client: Config, server: Config, bytes: usize, all: usize) -> Outcome {
    let us = Duration::from_micros;
    let mut face = Face::new(client, server, us(100), us(1));
    let (written, read) = (Cell::new(0), Cell::new(0));
    let write = |connection: &mut Connection| {
        let left = (all - written.get()).min(connection.writable());
        written.set(written.get() + connection.write(&vec![1; left]).unwrap());
    };
    write(face.end(Who::Client));
    face.transmit();
    while read.get() < bytes {
        let going = face.step(|connection, who, now| match who {
            Who::Client => write(connection),
            Who::Server => {
                while let Ok(n) = connection.read(&mut [0; 65_536], now) {
                    read.set(read.get() + n);
                }
            }
        });
        assert!(going, "nothing will ever happen again");
        face.log.clear();
    }
    let delayed = face.end(Who::Server).counters().delayed_acks_sent;
    let client = face.end(Who::Client);
    Outcome {
        delayed,
        probes: client.counters().timeouts + client.counters().tail_probes_sent,
        cwnd: client.cwnd(),
        acknowledged: (written.get() - client.unacknowledged()) as u32,
    }
}

/// Receiver whose only special setting besides `ack` is its window.
fn receiver(ack: AckPolicy, window: u32) -> Config {
    Config {
        ack,
        receive_buffer: window,
        receive_buffer_max: 0,
        ..Config::default()
    }
}

fn counted(kind: u8, segments: u32) -> AckPolicy {
    let delay_max = DELAY;
    match kind {
        0 => AckPolicy::Every {
            segments,
            delay_max,
        },
        1 => AckPolicy::Exactly {
            segments,
            delay_max,
        },
        2 => AckPolicy::Requested {
            segments,
            delay_max,
        },
        _ => AckPolicy::OnRead {
            segments,
            delay_max,
        },
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_bulk_transfer_waits_for_the_delay_of_an_ack(
        kind in 0u8..4,
        segments in 1u32..=127,
        mss in mss(),
        window in prop_oneof![6_000u32..60_000, 6_000u32..4_000_000],
        supers in prop_oneof![Just(0u32), 536u32..65_160],
        divisor in prop_oneof![Just(None), (0u32..=64).prop_map(Some)],
        tail in prop_oneof![Just(TailRule::Keep), Just(TailRule::Split)],
        timestamps: bool,
    ) {
        let ack = counted(kind, segments);
        let segmentation = Segmentation {
            super_segment_bytes_max: supers,
            window_divisor: divisor,
            tail,
            ..Segmentation::default()
        };
        let client = Config {
            mss,
            timestamps,
            // Also announces the rate request.
            ack,
            segmentation,
            congestion: CongestionControl::Fixed(1 << 20),
            ..Config::default()
        };
        // Less than four segments is not a bulk transfer.
        let window = window.max(4 * u32::from(mss));
        let server = Config { mss, ..receiver(ack, window) };
        let outcome = bulk(client, server, 600_000);
        prop_assert_eq!((outcome.delayed, outcome.probes), (0, 0));
    }

    #[test]
    fn stretch_acks_do_not_slow_the_growth_of_a_window(
        kind in 0u8..4,
        initial in 1u16..=64,
        share in 0.0f64..1.0,
        mss in mss(),
        supers in prop_oneof![Just(0u32), 536u32..65_160],
        cubic: bool,
    ) {
        // A SYN's window is not scaled, and a congestion window beyond it would not be used and so
        // would not grow.
        let initial = initial.min(u16::MAX / mss);
        // An ACK covers at most what the sender may send at first: more would wait for the delay.
        let segments = (f64::from(initial) * share) as u32 + 1;
        let ack = counted(kind, segments);
        let client = Config {
            mss,
            ack,
            timestamps: false,
            send_buffer: 8 << 20,
            initial_window: NonZeroU16::new(initial),
            congestion: if cubic { CongestionControl::Cubic } else { CongestionControl::NewReno },
            segmentation: Segmentation {
                super_segment_bytes_max: supers,
                ..Segmentation::default()
            },
            ..Config::default()
        };
        let server = Config { mss, ..receiver(ack, 8 << 20) };
        let outcome = part_of(client, server, 1_000_000, 6_000_000);
        prop_assert_eq!(outcome.delayed, 0);
        // Slow start throughout: every acknowledged byte opens the window by a byte.
        let initial = u32::from(initial) * u32::from(mss);
        prop_assert_eq!(outcome.cwnd, initial + outcome.acknowledged);
    }
}

/// Ethernet's MSS, and any up to jumbo frames.
fn mss() -> impl Strategy<Value = u16> {
    prop_oneof![Just(1460u16), 536u16..=8960]
}

/// Jones's throughput anomaly: whole super-segments leave a segment of window unused, so the window
/// is never found full and stops growing. A receiver that counts to more than the window holds then
/// always waits for its timer.
#[test]
fn the_sender_of_2005_waits_for_the_delay_and_its_window_stops_growing() {
    let old = Config {
        segmentation: Segmentation {
            whole_only: true,
            ..Segmentation::default()
        },
        congestion: CongestionControl::NewReno,
        window_growth: WindowGrowth::PerAck,
        initial_window: NonZeroU16::new(3),
        ..Config::default()
    };
    let new = Config {
        congestion: CongestionControl::NewReno,
        ..Config::default()
    };
    let run = |sender: &Config| {
        let outcome = bulk(sender.clone(), receiver(counted(0, 22), 131_072), 3_000_000);
        (outcome.delayed, outcome.cwnd / 1448)
    };
    let ((old_delayed, old_segments), (new_delayed, new_segments)) = (run(&old), run(&new));
    assert!(old_segments < 22, "{old_segments} segments");
    assert!(old_delayed >= 100, "{old_delayed} delayed");
    // Only until its initial window of ten has opened to 22.
    assert!(new_delayed <= 2, "{new_delayed} delayed");
    assert!(new_segments > 88, "{new_segments} segments");
}
