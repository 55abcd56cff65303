//! Delayed acknowledgement as the RFC describes it (RFC 9293 §3.8.6.3).

use super::Arrival;

/// True for every second full-sized segment (SHLD-19). Counted in bytes, because after receive
/// offload one unit may contain forty segments.
pub(super) fn is_due(arrival: &Arrival) -> bool {
    arrival.unacked_bytes >= 2 * arrival.full_segment_bytes
}
