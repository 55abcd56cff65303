//! Pacing by a timer.

use super::*;

/// Milliseconds for 2 MB over a round trip of 20 ms with a window of 100 segments, and the most
/// that left within a millisecond after the first round trip.
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
    // 146,000 bytes in 20 ms, times two in slow start, are 14.6 kB a millisecond.
    assert!(burst_paced <= 2 * 14_600, "{burst_paced}");
    assert!(took_paced <= took + 40, "{took_paced} after {took}");
}

#[test]
fn a_set_rate_is_kept() {
    // 2 MB at 1 MB/s.
    let (took, burst) = transfer(Pacing::BytesPerSecond(1_000_000));
    assert!((1990..2060).contains(&took), "{took}");
    // Two segments at least make a super-segment.
    assert!(burst <= 2 * 2920, "{burst}");
}
