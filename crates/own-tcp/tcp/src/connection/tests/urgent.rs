//! Tests of urgent data.

use super::*;

/// Makes a pair whose client has written `before` bytes, then `urgent` urgent bytes, then `after`
/// bytes.
fn pair(before: usize, urgent: usize, after: usize) -> Pair {
    let mut pair = Pair::connected(plain(), plain());
    pair.client.write(&vec![1; before]).unwrap();
    pair.client.write_urgent(&vec![2; urgent]).unwrap();
    pair.client.write(&vec![3; after]).unwrap();
    pair
}

#[test]
fn the_peer_learns_how_much_is_urgent_until_it_has_read_that() {
    let mut pair = pair(1000, 500, 300);
    pair.run_for(15);
    assert_eq!(pair.server().urgent(), 1500);
    let (now, mut buffer) = (pair.now, [0; 1200]);
    assert_eq!(pair.server().read(&mut buffer, now), Ok(1200));
    assert_eq!(buffer[1199], 2, "it stays in its place");
    assert_eq!(pair.server().urgent(), 300);
    assert_eq!(pair.server().read(&mut buffer, now), Ok(600));
    assert_eq!(pair.server().urgent(), 0);
    pair.transfer(1 << 20);
    assert_eq!(pair.server().urgent(), 0);
}

#[test]
fn every_segment_before_the_end_points_to_it_and_none_behind() {
    let mut pair = pair(2000, 70_000, 5000);
    pair.run_for(500);
    let mut seen = 0;
    let first = pair.log[0].2.seq;
    for (_, _, segment) in pair.log.iter().filter(|(_, way, _)| *way == Way::ToServer) {
        let at = segment.seq.since(first);
        let urgent = at < 72_000 && !segment.payload.is_empty();
        assert_eq!(segment.flags.contains(Flags::URG), urgent, "{at}");
        if urgent {
            assert_eq!(u32::from(segment.urgent), (72_000 - at).min(65_535), "{at}");
            assert_eq!(segment.segment_size, 0, "no super-segment");
            seen += 1;
        }
    }
    assert_eq!(seen, 72_000usize.div_ceil(1460));
    assert_eq!(pair.server().readable(), 77_000);
    assert_eq!(pair.server().urgent(), 72_000);
}

#[test]
fn a_pointer_to_what_was_read_says_nothing() {
    let mut pair = pair(10, 1, 0);
    pair.run_for(15);
    let now = pair.now;
    assert_eq!(pair.server().read(&mut [0; 20], now), Ok(11));
    // The first segment arrives again.
    let again = pair.log[0].2.clone();
    assert!(again.flags.contains(Flags::URG));
    pair.server().on_segment(again, now);
    assert_eq!(pair.server().urgent(), 0);
}
