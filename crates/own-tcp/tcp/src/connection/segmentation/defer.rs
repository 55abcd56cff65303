//! Deferral of a segment in favour of a larger super-segment: `tcp_tso_should_defer` with
//! `tcp_tso_win_divisor`.

use super::{Segmentation, SendView};

impl Segmentation {
    /// True if `full` bytes, less than a whole super-segment although more data is unsent, should
    /// wait for the next ACK. Always false if nothing is in flight, because no ACK would come.
    pub(super) fn defers(&self, queue: &SendView, full: u32, ceiling: u32) -> bool {
        let Some(divisor) = self.window_divisor else {
            return false;
        };
        let is_whole = full >= queue.unsent.min(ceiling);
        if is_whole || !queue.in_flight || !queue.ack_is_near {
            return false;
        }
        let limit = queue.window_left.min(queue.cwnd_left);
        match divisor {
            0 => limit <= DEFERRED_SEGMENTS_MAX * queue.mss,
            _ => limit < queue.window / divisor,
        }
    }
}

/// Linux's `tcp_max_tso_deferred_mss`.
const DEFERRED_SEGMENTS_MAX: u32 = 3;
