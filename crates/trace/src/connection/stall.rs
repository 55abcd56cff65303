//! Delayed-ACK stalls: one segment outstanding, a pause, a lone ACK, and data of the sender right
//! after it.

use crate::direction::{Direction, Limit};
use crate::watch::StallEvent;

/// Pause that a lone ACK ended. It is a stall if the sender sends again at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    /// End that waited.
    pub(super) from: usize,
    since_ns: u64,
    until_ns: u64,
    /// Pause minus the smallest RTT, ns.
    pub(super) lost_ns: u64,
    /// True if the pause was counted as waiting for the application: a short last packet looks as
    /// if the application had no more data.
    as_application: bool,
    /// Frame number of the ACK.
    frame: u64,
}

impl Pending {
    /// Pause from the segment sent at `since_ns` to its ACK at `at_ns`. `None` if the path may have
    /// taken as long. With one segment outstanding the connection has no queue of its own, so
    /// queues of others are allowed half of the smallest RTT.
    #[inline]
    pub(super) fn of(
        from: usize,
        since_ns: Option<u64>,
        at_ns: u64,
        waited: &Direction,
        frame: u64,
    ) -> Option<Pending> {
        let (since_ns, rtt_min_ns) = (since_ns?, waited.rtt.min_ns?);
        let lost_ns = at_ns.checked_sub(since_ns)?.saturating_sub(rtt_min_ns);
        (lost_ns >= LEAST_NS.max(rtt_min_ns / 2)).then_some(Pending {
            from,
            since_ns,
            until_ns: at_ns,
            lost_ns,
            as_application: waited.limit == Limit::Application,
            frame,
        })
    }

    /// True if this packet shows a stall: data of the end that waited, sent at once. The way from
    /// the point of capture to that end and back (`rtt_ns`) is allowed for.
    #[inline]
    pub(super) fn ends_with(&self, from: usize, payload: u32, at_ns: u64, rtt_ns: u64) -> bool {
        let after_ns = at_ns.saturating_sub(self.until_ns);
        from == self.from && payload > 0 && after_ns <= AT_ONCE_NS.saturating_add(rtt_ns)
    }

    /// Counts the stall: data sent right after the ACK show that the sender waited for it.
    pub(super) fn count(&self, waited: &mut Direction) {
        let sent = &mut waited.sent;
        sent.delayed_ack_stalls += 1;
        sent.delayed_ack_stall_ns += self.lost_ns;
        if self.as_application {
            let pause_ns = (self.until_ns - self.since_ns).min(sent.application_limited_ns);
            sent.application_limited_ns -= pause_ns;
            sent.window_limited_ns += pause_ns;
        }
    }

    pub(super) fn event(&self) -> StallEvent {
        StallEvent {
            from: self.from,
            since_ns: self.since_ns,
            until_ns: self.until_ns,
            frame: self.frame,
        }
    }
}

/// Linux 6.18 at 250 Hz delays an ACK by 44 ms (median of 52; 48 at most). With TCP_DELACK_MAX_US
/// at 20 ms the delay is 24 ms, and at its minimum of 5 ms it is 12 ms, because a timer has steps
/// of 4 ms. Other systems' timers are longer.
const LEAST_NS: u64 = 5_000_000;

/// Linux sends in the softirq that receives the ACK: 8 to 17 µs later (median of 127 stalls; 25 at
/// most). The rest is for a sender whose CPU is busy.
const AT_ONCE_NS: u64 = 1_000_000;
