//! Delayed-ACK stalls: one segment outstanding, a pause, a lone ACK, and the sender goes on at once.

use crate::direction::{Direction, Limit};
use crate::watch::StallEvent;

/// A pause that a lone ACK ended; it was a stall if the sender goes on at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pending {
    /// Who waited.
    pub(super) from: usize,
    since_ns: u64,
    until_ns: u64,
    /// The pause less the path's delay.
    pub(super) lost_ns: u64,
    /// Whether it passed as the application's: a last packet that is short looks as if it had no more.
    as_application: bool,
    /// Of the ACK.
    frame: u64,
}

impl Pending {
    /// Of the segment that left at `since_ns` and was acknowledged now; `None` if that took no longer
    /// than the path may. With one segment outstanding no queue of the connection's own is in the
    /// way: half an RTT more than the smallest is left to that of others.
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

    /// Whether this packet shows that it was one: data of the end that waited, sent at once as far as
    /// the way from the point of capture to that end and back (`rtt_ns`) allows.
    #[inline]
    pub(super) fn ends_with(&self, from: usize, payload: u32, at_ns: u64, rtt_ns: u64) -> bool {
        let after_ns = at_ns.saturating_sub(self.until_ns);
        from == self.from && payload > 0 && after_ns <= AT_ONCE_NS.saturating_add(rtt_ns)
    }

    /// It was one: what left right after the ACK shows that its sender waited for that.
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

/// Linux 6.18 at 250 Hz delays an ACK by 44 ms (median of 52; 48 at most), with TCP_DELACK_MAX_US at
/// 20 ms by 24, and at 5 ms, the least that it takes, by 12: a timer has steps of 4 ms. Other
/// systems' timers are longer.
const LEAST_NS: u64 = 5_000_000;

/// Linux goes on in the softirq that brings the ACK: 8 to 17 µs later (median of 127 stalls; 25 at most).
/// The rest is for a sender whose CPU is busy.
const AT_ONCE_NS: u64 = 1_000_000;
