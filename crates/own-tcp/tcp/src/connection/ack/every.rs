//! Acknowledgement after a fixed number of segments, as in Jones's measurements of 2005.

use super::Arrival;

/// True if the wire segments reach `segments`, whatever their size, or half the window is
/// unacknowledged.
pub(super) fn is_due(segments: u32, unacked_segments: u32, arrival: &Arrival) -> bool {
    unacked_segments >= segments || arrival.is_half_the_window()
}

/// True if the bytes reach `segments` full-sized segments or half the window. Counted in bytes, so
/// that the count continues inside a super-segment.
pub(super) fn is_due_exactly(segments: u32, arrival: &Arrival) -> bool {
    let step = segments.max(1).saturating_mul(arrival.full_segment_bytes);
    arrival.unacked_bytes >= step || arrival.is_half_the_window()
}
