//! Receive window that we offer (RFC 9293 §3.8.6), and growth of the receive buffer.

use std::time::Instant;

use super::Connection;
use crate::SeqNum;

impl Connection {
    /// Returns the window field of a segment that leaves now. The right edge never moves back.
    pub(super) fn offer_window(&mut self) -> u16 {
        let shift = self.rcv.shift;
        let current = self.rcv.wnd();
        let free = self.window_free().min(self.window_max());
        // RFC 9293 §3.8.6.2.2: the right edge stays until it can move by a segment or half the
        // buffer.
        let step = self.rcv.full_segment.min(self.rcv.buffer / 2);
        let window = if free >= current.saturating_add(step) {
            free >> shift << shift
        } else {
            current
        };
        self.promise(self.rcv.nxt, window, free)
    }

    /// Returns the window field for `window` bytes after the acknowledgement `ack`, while the
    /// buffer has room for `free`. Moves the right edge to the offered end.
    pub(super) fn promise(&mut self, ack: SeqNum, window: u32, free: u32) -> u16 {
        let shift = self.rcv.shift;
        // Rounded up, or the edge would move back by what the shift cuts off; but only while the
        // buffer has room: rounding accumulates over ACKs while the application does not read.
        let up = window.div_ceil(1 << shift);
        let field = if up << shift <= free {
            up
        } else {
            window >> shift
        }
        .min(0xffff);
        self.rcv.edge = self.rcv.edge.max(ack + (field << shift));
        self.rcv.acked_window = self.rcv.wnd();
        field as u16
    }

    /// Returns the window field of a SYN, which is not scaled (RFC 7323 §2.2).
    pub(super) fn offer_window_unscaled(&mut self) -> u16 {
        let window = self.window_free().min(0xffff);
        self.rcv.edge = self.rcv.edge.max(self.rcv.nxt + window);
        self.rcv.acked_window = window;
        window as u16
    }

    /// Right edge of the offered window; never decreases.
    #[inline]
    pub(crate) fn window_edge(&self) -> SeqNum {
        self.rcv.edge
    }

    /// Free bytes in the receive buffer.
    pub(super) fn window_free(&self) -> u32 {
        if self.rcv.abandoned {
            self.rcv.buffer
        } else {
            self.rcv.buffer.saturating_sub(self.rcv.queue.bytes())
        }
    }

    /// Largest window that the field can express.
    pub(super) fn window_max(&self) -> u32 {
        0xffff << self.rcv.shift
    }

    /// Grows the receive buffer (dynamic right-sizing): if the application read more than half the
    /// buffer in one round trip, the buffer limits the peer, and becomes twice what was read.
    pub(super) fn tune_buffer(&mut self, read: usize, now: Instant) {
        let max = self.config.receive_buffer_max;
        let bytes = self.rcv.tuning_bytes;
        let bytes = bytes.saturating_add(read.min(u32::MAX as usize) as u32);
        self.rcv.tuning_bytes = bytes;
        if self.rcv.buffer >= max {
            return;
        }
        let Some(srtt) = self.rtt.srtt() else { return };
        let now = self.timers.ns(now);
        if u128::from(now.saturating_sub(self.rcv.tuning_ns)) < srtt.as_nanos() {
            return;
        }
        let wanted = bytes.saturating_mul(2);
        (self.rcv.tuning_bytes, self.rcv.tuning_ns) = (0, now);
        if wanted > self.rcv.buffer {
            self.rcv.buffer = wanted.min(max);
        }
    }
}
