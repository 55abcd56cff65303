//! As the sender asked (draft-ietf-tcpm-ack-rate-request): one per R full-sized segments. The
//! option itself is `connection/ack_rate.rs`.

use super::{Arrival, delayed};

/// 0: nothing was asked.
pub(super) fn is_due(requested: u8, arrival: &Arrival) -> bool {
    if requested == 0 {
        return delayed::is_due(arrival);
    }
    // The receiver may acknowledge more often; it must not leave the sender without window.
    let step = u32::from(requested).saturating_mul(arrival.full_segment_bytes);
    arrival.unacked_bytes >= step || arrival.is_half_the_window()
}
