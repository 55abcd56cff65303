//! Acknowledgement at the rate that the sender requested (draft-ietf-tcpm-ack-rate-request): one
//! per R full-sized segments. `connection/ack_rate.rs` handles the option.

use super::{Arrival, delayed};

/// True if an acknowledgement is due. `requested` is 0 if no request arrived.
pub(super) fn is_due(requested: u8, arrival: &Arrival) -> bool {
    if requested == 0 {
        return delayed::is_due(arrival);
    }
    // The receiver may acknowledge more often, and must not leave the sender without window.
    let step = u32::from(requested).saturating_mul(arrival.full_segment_bytes);
    arrival.unacked_bytes >= step || arrival.is_half_the_window()
}
