//! Every second full-sized segment, and at once for one with PSH: BSD's `tcp_ack_on_push`
//! (net.inet.tcp.ackonpush in OpenBSD, net.inet.tcp.ack_on_push in NetBSD).

use super::{Arrival, delayed};

/// True for a segment with PSH, and for every second full-sized segment. A super-segment has PSH if
/// any of its segments has: receive offload merges none behind it.
pub(super) fn is_due(arrival: &Arrival) -> bool {
    arrival.push || delayed::is_due(arrival)
}
