//! Payload size of a full-sized wire segment, by which captured super-segments are divided.

use std::cmp::Ordering;

use serde::Serialize;

/// Source of an MSS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum MssSource {
    /// Set by the caller of the analysis.
    Given,
    /// MSS option of the other end's SYN, less the option bytes of this end's segments. This end's
    /// own option instead, if packet sizes show that its link takes less.
    Handshake,
    /// MSS option of the only SYN that was captured.
    OneSyn,
    /// Payload sizes: most are this size or multiples of it.
    Inferred,
    /// No evidence: Ethernet's, or loopback's.
    Assumed,
}

/// MSS and its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Mss {
    /// Payload bytes of a full-sized wire segment.
    pub bytes: u32,
    /// Source of the MSS.
    pub source: MssSource,
}

/// Common MTUs: Ethernet, PPPoE, tunnels, jumbo frames, loopback, IPv6's minimum, IPv4's old
/// default.
const MTUS: [u32; 16] = [
    1500, 9000, 1492, 1480, 1476, 1450, 1440, 1420, 1400, 8951, 9001, 4352, 65535, 65536, 1280, 576,
];

/// Infers the MSS that explains these payload sizes. `None` if no MSS does. `headers`: bytes of IP
/// and TCP headers.
///
/// The MSS is the largest size if no super-segment can be among them. Otherwise it is the candidate
/// (a size seen twice, or a common link's) of which most of the larger sizes are multiples.
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
    // A size of the application, such as 4096, is no MSS, however often it is seen.
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
        // Order of candidates that explain equally many sizes: a common link's first, so 1448
        // rather than 2896; then the largest.
        .max()
        .and_then(|(_, _, mss)| inferred(mss))
}

/// MSS that the SYNs allow: the other end's option, unless this end's own is smaller and its
/// packets are multiples of its own. `None` without options.
///
/// An option limits the end that receives it; that an end's link takes less is shown by its own
/// option.
pub(crate) fn by_syns(others: Option<u32>, own: Option<u32>, sizes: &[u32]) -> Option<Mss> {
    let multiples = |mss: u32| {
        let of_mss = |size: &&u32| **size >= mss && size.is_multiple_of(mss);
        sizes.iter().filter(of_mss).count()
    };
    let (bytes, source) = match (others, own) {
        (Some(others), Some(own)) if own < others => {
            let between = sizes.iter().any(|size| *size > own && *size <= others);
            let is_own = match multiples(own).cmp(&multiples(others)) {
                Ordering::Greater => true,
                Ordering::Equal => !between,
                Ordering::Less => false,
            };
            (if is_own { own } else { others }, MssSource::Handshake)
        }
        (Some(others), Some(_)) => (others, MssSource::Handshake),
        (Some(others), None) => (others, MssSource::OneSyn),
        (None, own) => (own?, MssSource::OneSyn),
    };
    Some(Mss { bytes, source })
}

/// Packets larger than the MSS that all have one size: no super-segments, so the MSS is that size.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Oversized {
    bytes: u32,
    seen: u8,
}

/// Number of such packets in a row that is enough: more than an application with one write size
/// makes without PSH.
pub(crate) const OVERSIZED_ENOUGH: u8 = 4;

impl Oversized {
    /// Handles a packet longer than the MSS, without PSH. Returns the new MSS if enough packets
    /// show it.
    pub(crate) fn on_packet(&mut self, payload: u32, mss: u32) -> Option<Mss> {
        if payload.is_multiple_of(mss) {
            *self = Oversized::default();
            return None;
        }
        self.seen = if self.bytes == payload {
            self.seen + 1
        } else {
            1
        };
        self.bytes = payload;
        (self.seen == OVERSIZED_ENOUGH).then_some(Mss {
            bytes: payload,
            source: MssSource::Inferred,
        })
    }
}

/// True if the largest of these sizes is that of Ethernet's full segments, and half of them have
/// it. More packets would then not change the MSS.
pub(crate) fn is_of_ethernet(sizes: &[u32], headers: u32) -> bool {
    let full = 1500 - headers;
    let fulls = sizes.iter().filter(|size| **size == full).count();
    let data = sizes.iter().filter(|size| **size > 0).count();
    fulls * 2 >= data && sizes.iter().all(|size| *size <= full)
}

/// MSS assumed without evidence.
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
    fn the_others_option_binds_unless_sizes_show_the_own_links() {
        let check = |others, own, sizes: &[u32], expected| {
            assert_eq!(
                by_syns(others, own, sizes).map(|mss| mss.bytes),
                expected,
                "{sizes:?}"
            );
        };
        // `advmss 1400` at the sender limits only the other direction.
        check(Some(1448), Some(1388), &[1448, 1448, 900], Some(1448));
        check(Some(1388), Some(1448), &[1388, 1388], Some(1388));
        // A sender whose link takes 1400 bytes: super-segments of that size.
        check(Some(1448), Some(1388), &[2776, 13_880, 5552], Some(1388));
        check(Some(8948), Some(1448), &[], Some(1448));
        check(None, Some(1448), &[], Some(1448));
    }

    #[test]
    fn full_segments_of_ethernet_are_known_early_and_nothing_larger_is_taken_for_them() {
        let full = [1448, 0, 1448, 0, 1448, 200, 1448];
        assert!(is_of_ethernet(&full, 52) && !is_of_ethernet(&full, 40));
        assert!(!is_of_ethernet(&[1448, 1448, 2896], 52));
        assert!(!is_of_ethernet(&[1448, 200, 200], 52));
    }
}
