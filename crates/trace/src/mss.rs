//! The payload of a full-sized wire segment: what a captured super-segment is divided by.

use serde::Serialize;

/// Where an MSS comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MssSource {
    /// Told by whoever asked for the analysis.
    Given,
    /// The MSS options of both SYNs, less the timestamps if both agreed to them.
    Handshake,
    /// The MSS option of the one SYN that was captured.
    OneSyn,
    /// The payload sizes: most are this or its multiples.
    Inferred,
    /// Nothing tells it: Ethernet's, or loopback's.
    Assumed,
}

/// An MSS and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mss {
    /// Payload bytes of a full-sized wire segment.
    pub bytes: u32,
    /// Where it comes from.
    pub source: MssSource,
}

/// MTUs that links have: Ethernet, PPPoE, tunnels, jumbo frames, loopback, IPv6's least, IPv4's old
/// default.
const MTUS: [u32; 16] = [
    1500, 9000, 1492, 1480, 1476, 1450, 1440, 1420, 1400, 8951, 9001, 4352, 65535, 65536, 1280, 576,
];

/// The MSS that explains these payload sizes, if one does.
///
/// It is the largest size if no super-segment can be among them, or else the candidate (a size seen
/// twice, or a common link's) of which most of the larger sizes are multiples.
pub(crate) fn infer(sizes: &[u32], headers: u32) -> Option<Mss> {
    let largest = *sizes.iter().max()?;
    let seen_twice = |size: u32| sizes.iter().filter(|other| **other == size).count() >= 2;
    let inferred = |bytes| {
        Some(Mss {
            bytes,
            source: MssSource::Inferred,
        })
    };
    if largest <= 1500 - headers {
        return if seen_twice(largest) {
            inferred(largest)
        } else {
            None
        };
    }
    // A size of the application's, such as 4096, is no MSS, however often it is seen.
    let mss_like = |size: &u32| (500..=9216).contains(size) && !size.is_multiple_of(512);
    let seen = sizes.iter().copied().filter(mss_like);
    let candidates = MTUS.iter().map(|mtu| mtu - headers).chain(seen);
    let score = |mss: u32| {
        let explained = sizes
            .iter()
            .filter(|size| **size >= mss && **size % mss == 0)
            .count();
        let larger = sizes.iter().filter(|size| **size >= mss).count();
        (larger > 0 && explained * 2 > larger).then_some(explained)
    };
    candidates
        .filter(|mss| *mss < largest || seen_twice(*mss))
        .filter_map(|mss| Some((score(mss)?, MTUS.contains(&(mss + headers)), mss)))
        // Of those that explain as many a common link's, so 1448 rather than 2896; then the largest.
        .max()
        .and_then(|(_, _, mss)| inferred(mss))
}

/// Whether the largest of these sizes is that of Ethernet's full segments, and half of them have it: more
/// of them would tell no other MSS.
pub(crate) fn is_of_ethernet(sizes: &[u32], headers: u32) -> bool {
    let full = 1500 - headers;
    let fulls = sizes.iter().filter(|size| **size == full).count();
    let data = sizes.iter().filter(|size| **size > 0).count();
    fulls * 2 >= data && sizes.iter().all(|size| *size <= full)
}

/// What is taken when nothing tells.
pub(crate) fn assume(headers: u32, loopback: bool) -> Mss {
    let mtu = if loopback { 65_536 } else { 1500 };
    Mss {
        bytes: mtu - headers,
        source: MssSource::Assumed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_tell_the_mss() {
        let check = |sizes: &[u32], headers, expected: Option<u32>| {
            assert_eq!(
                infer(sizes, headers).map(|mss| mss.bytes),
                expected,
                "{sizes:?}"
            );
        };
        check(&[2896, 1200, 2896, 1200], 52, Some(1448));
        check(&[1460, 1460, 324], 40, Some(1460));
        check(&[8948, 17_896, 8948], 52, Some(8948));
        check(&[128, 128], 40, Some(128));
        check(&[4096, 4096], 52, None);
        check(&[65_160, 43_440, 1448], 52, Some(1448));
        check(&[200], 40, None);
    }

    #[test]
    fn full_segments_of_ethernet_are_known_early_and_nothing_larger_is_taken_for_them() {
        let full = [1448, 0, 1448, 0, 1448, 200, 1448];
        assert!(is_of_ethernet(&full, 52) && !is_of_ethernet(&full, 40));
        assert!(!is_of_ethernet(&[1448, 1448, 2896], 52));
        assert!(!is_of_ethernet(&[1448, 200, 200], 52));
    }
}
