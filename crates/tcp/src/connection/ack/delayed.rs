//! The standards' policy (RFC 9293 §3.8.6.3).

use super::Arrival;

/// SHLD-19: at least every second full-sized segment. In bytes, because after receive offload one
/// call may stand for forty segments.
pub(super) fn is_due(arrival: &Arrival) -> bool {
    arrival.unacked_bytes >= 2 * arrival.full_segment_bytes
}
