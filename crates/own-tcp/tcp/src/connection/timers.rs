//! Timers of a connection: a table with one slot for each kind.

use std::time::{Duration, Instant};

/// Kinds of timers. Timers that are due fire in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Timer {
    /// Tail loss probe (RFC 8985 §7). First, so that it fires before the retransmission timeout if
    /// both are due.
    TailProbe,
    /// Retransmission timeout (RFC 6298), also for SYN and FIN.
    Retransmit,
    /// End of the reordering window (RFC 8985 §6.2 step 5).
    Reorder,
    /// Zero-window probe (RFC 9293 §3.8.6.1) and the override timeout of RFC 9293 §3.8.6.2.1.
    Persist,
    /// Deadline of a delayed ACK.
    Ack,
    /// Longest wait of a corked partial segment.
    Cork,
    /// Time at which pacing allows the next data to leave.
    Pace,
    /// Keepalive (RFC 9293 §3.8.4).
    KeepAlive,
    /// User timeout (RFC 9293 §3.8.3).
    User,
    /// 2 MSL in TIME-WAIT; also the wait in FIN-WAIT-2 for a FIN after the application has stopped
    /// reading.
    TimeWait,
}

const KINDS: [Timer; 10] = [
    Timer::TailProbe,
    Timer::Retransmit,
    Timer::Reorder,
    Timer::Persist,
    Timer::Ack,
    Timer::Cork,
    Timer::Pace,
    Timer::KeepAlive,
    Timer::User,
    Timer::TimeWait,
];

/// Deadlines of all timers, in nanoseconds since `base`, because ten `Option<Instant>` would be a
/// seventh of a connection's memory.
#[derive(Debug)]
pub(super) struct Timers {
    base: Instant,
    deadlines_ns: [u64; KINDS.len()],
}

impl Timers {
    /// Makes timers of which none runs. A deadline before `base` counts as `base`.
    pub(super) fn new(base: Instant) -> Self {
        Self {
            base,
            deadlines_ns: [STOPPED; KINDS.len()],
        }
    }

    /// Epoch of the deadlines.
    pub(super) fn base(&self) -> Instant {
        self.base
    }

    pub(super) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines_ns[timer as usize] = self.ns(deadline);
    }

    /// Sets a timer to `delay` after `now`.
    pub(super) fn set_in(&mut self, timer: Timer, now: Instant, delay: Duration) {
        let delay_ns = delay.as_nanos().min(u128::from(STOPPED - 1)) as u64;
        let deadline_ns = self.ns(now).saturating_add(delay_ns);
        self.deadlines_ns[timer as usize] = deadline_ns.min(STOPPED - 1);
    }

    /// Sets a timer unless it runs.
    pub(super) fn start(&mut self, timer: Timer, deadline: Instant) {
        if !self.is_running(timer) {
            self.set(timer, deadline);
        }
    }

    /// Sets a timer unless it runs with an earlier deadline.
    pub(super) fn advance(&mut self, timer: Timer, deadline: Instant) {
        let slot = timer as usize;
        self.deadlines_ns[slot] = self.deadlines_ns[slot].min(self.ns(deadline));
    }

    /// Limits the deadline of `timer` to that of `other`, if `other` runs.
    pub(super) fn bound(&mut self, timer: Timer, other: Timer) {
        let bound = self.deadlines_ns[other as usize];
        let deadline = &mut self.deadlines_ns[timer as usize];
        *deadline = bound.min(*deadline);
    }

    pub(super) fn stop(&mut self, timer: Timer) {
        self.deadlines_ns[timer as usize] = STOPPED;
    }

    pub(super) fn stop_all(&mut self) {
        self.deadlines_ns = [STOPPED; KINDS.len()];
    }

    pub(super) fn is_running(&self, timer: Timer) -> bool {
        self.deadlines_ns[timer as usize] != STOPPED
    }

    /// True if no timer other than `timer` runs.
    pub(super) fn only(&self, timer: Timer) -> bool {
        let stopped = |slot: usize| self.deadlines_ns[slot] == STOPPED;
        (0..KINDS.len()).all(|slot| slot == timer as usize || stopped(slot))
    }

    /// Earliest deadline; `None` if no timer runs.
    pub(super) fn next(&self) -> Option<Instant> {
        Some(self.base + Duration::from_nanos(self.next_ns()?))
    }

    /// Earliest deadline in nanoseconds since `base`; `None` if no timer runs.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let next = self.deadlines_ns.iter().copied().min();
        next.filter(|ns| *ns != STOPPED)
    }

    /// Stops and returns one due timer, in the order of the declaration, and how long it has been
    /// due.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(Timer, Duration)> {
        let now = self.ns(now);
        let timer = KINDS
            .into_iter()
            .find(|timer| self.deadlines_ns[*timer as usize] <= now)?;
        let late = Duration::from_nanos(now - self.deadlines_ns[timer as usize]);
        self.stop(timer);
        Some((timer, late))
    }

    /// Nanoseconds from `base` to `at`; 0 if `at` is earlier.
    pub(super) fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.base)
            .as_nanos()
            .min(u128::from(STOPPED - 1)) as u64
    }
}

/// Marks a timer that does not run (584 years).
const STOPPED: u64 = u64::MAX;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    #[test]
    fn timers_expire_when_due_and_once() {
        let mut timers = Timers::new(ms(5));
        timers.set(Timer::Ack, ms(50));
        timers.start(Timer::Ack, ms(60));
        timers.set(Timer::Retransmit, ms(40));
        assert_eq!(timers.next(), Some(ms(40)));
        assert_eq!(timers.expire(ms(39)), None);
        let late = Duration::from_millis;
        assert_eq!(timers.expire(ms(70)), Some((Timer::Retransmit, late(30))));
        assert_eq!(timers.expire(ms(70)), Some((Timer::Ack, late(20))));
        assert_eq!((timers.expire(ms(70)), timers.next()), (None, None));
    }
}
