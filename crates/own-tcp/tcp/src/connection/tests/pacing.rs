//! Tests of pacing by a timer.

use super::*;

/// Transfers 2 MB over a round trip of 20 ms with a window of 100 segments. Returns the time in ms,
/// and the largest number of bytes that left within a millisecond after the first round trip.
fn transfer(pacing: Pacing) -> (u64, u64) {
    let client = Config {
        segmentation: Segmentation {
            pacing,
            ..Segmentation::default()
        },
        congestion: CongestionControl::Fixed(100 * 1460),
        ..plain()
    };
    let mut pair = Pair::connected(client, plain());
    let took = pair.transfer(2_000_000);
    let mut by_millisecond = std::collections::BTreeMap::new();
    for (at, way, segment) in &pair.log {
        if *way == Way::ToServer {
            *by_millisecond.entry(*at).or_insert(0) += segment.payload.len() as u64;
        }
    }
    let most = by_millisecond.values().max().copied().unwrap();
    (took, most)
}

#[test]
fn a_paced_window_leaves_evenly_and_no_slower() {
    let (took, burst) = transfer(Pacing::Off);
    let (took_paced, burst_paced) = transfer(Pacing::Window);
    assert_eq!(burst, 100 * 1460, "all of it at once");
    // 146,000 bytes in 20 ms, times two in slow start, are 14.6 kB per millisecond.
    assert!(burst_paced <= 2 * 14_600, "{burst_paced}");
    assert!(took_paced <= took + 40, "{took_paced} after {took}");
}

#[test]
fn a_set_rate_is_kept() {
    // 2 MB at 1 MB/s.
    let (took, burst) = transfer(Pacing::BytesPerSecond(1_000_000));
    assert!((1990..2020).contains(&took), "{took}");
    // A super-segment has at least two segments.
    assert!(burst <= 2 * 2920, "{burst}");
}

/// Bytes per second that leave over ten seconds if each wake-up is late by `late(round)`.
fn rate_with_wakeups_late_by(late: impl Fn(u64) -> Duration, rate: u64) -> u64 {
    let client = Config {
        segmentation: Segmentation {
            pacing: Pacing::BytesPerSecond(rate),
            ..Segmentation::default()
        },
        congestion: CongestionControl::Fixed(1 << 29),
        send_buffer: 1 << 29,
        ..plain()
    };
    let server = Config {
        receive_buffer: 1 << 29,
        ..plain()
    };
    let mut pair = Pair::connected(client, server);
    let begun = pair.now;
    let (end, bytes) = (begun + Duration::from_secs(10), vec![7; 1 << 16]);
    let (mut now, mut sent) = (begun, 0);
    for round in 0.. {
        while pair.client.writable() >= bytes.len() && pair.client.unsent() < 1 << 20 {
            pair.client.write(&bytes).unwrap();
        }
        while let Some(segment) = pair.client.poll_segment(now) {
            sent += segment.payload.len() as u64;
            // All of it arrives, and the window never closes.
            pair.server().on_segment(segment, now);
            while let Ok(piece) = pair.server().read_piece(usize::MAX, now) {
                assert!(!piece.is_empty());
            }
        }
        while let Some(ack) = pair.server().poll_segment(now) {
            pair.client.on_segment(ack, now);
        }
        now = pair.client.next_timeout().unwrap().max(now) + late(round);
        if now > end {
            break;
        }
        pair.client.on_timeout(now);
        pair.server().on_timeout(now);
    }
    sent / 10
}

#[test]
fn a_set_rate_is_kept_by_a_timer_that_fires_late() {
    // From a segment at a time to super-segments of 64 KiB.
    for rate in [100_000, 10_000_000, 125_000_000, 1_000_000_000] {
        for most_us in [0, 7, 60, 400] {
            let late = |round: u64| Duration::from_micros(round * 31 % (most_us + 1));
            let kept = rate_with_wakeups_late_by(late, rate);
            let share = kept as f64 / rate as f64;
            assert!(
                (0.99..1.01).contains(&share),
                "{kept} of {rate} bytes/s with wake-ups up to {most_us} us late"
            );
        }
    }
}

#[test]
fn an_idle_time_earns_no_burst() {
    let client = Config {
        segmentation: Segmentation {
            pacing: Pacing::BytesPerSecond(1_000_000),
            ..Segmentation::default()
        },
        congestion: CongestionControl::Fixed(100 * 1460),
        ..plain()
    };
    let mut pair = Pair::connected(client, plain());
    pair.transfer(10_000);
    pair.run_for(5_000);
    pair.log.clear();
    pair.transfer(29_200);
    let first = pair.log[0].0;
    let at_once = pair
        .log
        .iter()
        .filter(|(at, way, _)| *at == first && *way == Way::ToServer);
    assert_eq!(
        at_once
            .map(|(_, _, segment)| segment.payload.len())
            .sum::<usize>(),
        2920
    );
}
