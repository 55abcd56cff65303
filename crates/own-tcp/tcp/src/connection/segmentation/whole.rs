//! Super-segments that leave whole or not at all: Linux until 2.6.12 (`tcp_current_mss`,
//! `tcp_snd_test`). They caused Jones's throughput anomaly of 2005: up to one segment less than a
//! super-segment of the window stays unused, and a receiver that waits for its n-th segment waits
//! for its timer.

use super::{Cut, Segmentation, SendView};

impl Segmentation {
    /// Limit of a super-segment in bytes: half the largest window seen, and the congestion window
    /// divided by the divisor.
    pub(super) fn whole_bytes(&self, bytes: u32, window_max: u32, cwnd: u32) -> u32 {
        let divisor = self.window_divisor.unwrap_or(DIVISOR).max(1);
        bytes.min(window_max / 2).min(cwnd / divisor)
    }

    /// Decides with `unit` as the size of a whole super-segment; anything smaller counts as a small
    /// segment. `None` if nothing is in flight and the data does not fit: no ACK would make room.
    pub(super) fn cut_whole(&self, queue: &SendView, unit: u32) -> Option<Cut> {
        let bytes = queue.unsent.min(unit);
        let partial = bytes < unit;
        if partial && !queue.flush && !queue.closed && self.holds_partial(queue) {
            return Some(if queue.corked { Cut::Corked } else { Cut::Wait });
        }
        if bytes <= queue.window_left && bytes <= queue.cwnd_left {
            return Some(Cut::Send(bytes));
        }
        queue.in_flight.then_some(Cut::Wait)
    }
}

/// Default of `tcp_tso_win_divisor` in 2005.
const DIVISOR: u32 = 8;
