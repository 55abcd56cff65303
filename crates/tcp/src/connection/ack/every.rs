//! A fixed number of segments per acknowledgement: Jones's sweep of 2005.

use super::Arrival;

/// Wire segments are counted, whatever they carry.
pub(super) fn is_due(segments: u32, unacked_segments: u32, arrival: &Arrival) -> bool {
    unacked_segments >= segments || arrival.is_half_the_window()
}

/// Full-sized segments are counted, in bytes, so that the count goes on inside a super-segment.
pub(super) fn is_due_exactly(segments: u32, arrival: &Arrival) -> bool {
    let step = segments.max(1).saturating_mul(arrival.full_segment_bytes);
    arrival.unacked_bytes >= step || arrival.is_half_the_window()
}
