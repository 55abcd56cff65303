//! The timers of a connection: a table with one slot a kind.

use std::time::{Duration, Instant};

/// What a timer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Timer {
    /// Tail loss probe (RFC 8985 §7). Before the timeout that bounds it: due at the same time, it
    /// goes first.
    TailProbe,
    /// Retransmission timeout (RFC 6298), also of SYN and FIN.
    Retransmit,
    /// End of the reordering window (RFC 8985 §6.2 step 5).
    Reorder,
    /// Zero-window probe (RFC 9293 §3.8.6.1) and the override of RFC 9293 §3.8.6.2.1.
    Persist,
    /// A delayed ACK falls due.
    Ack,
    /// A corked partial segment leaves all the same.
    Cork,
    /// Pacing lets the next data go.
    Pace,
    /// Keepalive (RFC 9293 §3.8.4).
    KeepAlive,
    /// User timeout (RFC 9293 §3.8.3).
    User,
    /// 2 MSL in TIME-WAIT, or the wait for a FIN nobody will read the data before.
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

/// Nothing else in the crate knows how deadlines are kept: as nanoseconds since `base`, because
/// ten `Option<Instant>` would be a seventh of a connection's memory.
#[derive(Debug)]
pub(super) struct Timers {
    base: Instant,
    deadlines_ns: [u64; KINDS.len()],
}

impl Timers {
    /// No timer runs. No deadline before `base` will be told from `base`.
    pub(super) fn new(base: Instant) -> Self {
        Self {
            base,
            deadlines_ns: [STOPPED; KINDS.len()],
        }
    }

    /// What deadlines are told from.
    pub(super) fn base(&self) -> Instant {
        self.base
    }

    pub(super) fn set(&mut self, timer: Timer, deadline: Instant) {
        self.deadlines_ns[timer as usize] = self.ns(deadline);
    }

    /// The same, so much later than `now`.
    pub(super) fn set_in(&mut self, timer: Timer, now: Instant, delay: Duration) {
        let delay_ns = delay.as_nanos().min(u128::from(STOPPED - 1)) as u64;
        let deadline_ns = self.ns(now).saturating_add(delay_ns);
        self.deadlines_ns[timer as usize] = deadline_ns.min(STOPPED - 1);
    }

    /// Sets it unless it runs already.
    pub(super) fn start(&mut self, timer: Timer, deadline: Instant) {
        if !self.is_running(timer) {
            self.set(timer, deadline);
        }
    }

    /// Sets it unless it runs already and is due earlier.
    pub(super) fn advance(&mut self, timer: Timer, deadline: Instant) {
        let slot = timer as usize;
        self.deadlines_ns[slot] = self.deadlines_ns[slot].min(self.ns(deadline));
    }

    /// Makes it due no later than another, if that runs.
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

    /// Whether no other runs.
    pub(super) fn only(&self, timer: Timer) -> bool {
        let stopped = |slot: usize| self.deadlines_ns[slot] == STOPPED;
        (0..KINDS.len()).all(|slot| slot == timer as usize || stopped(slot))
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<Instant> {
        Some(self.base + Duration::from_nanos(self.next_ns()?))
    }

    /// The same in nanoseconds from `base`.
    pub(super) fn next_ns(&self) -> Option<u64> {
        let next = self.deadlines_ns.iter().copied().min();
        next.filter(|ns| *ns != STOPPED)
    }

    /// Stops and returns one timer that is due, in the order of their declaration, and since when it is.
    pub(super) fn expire(&mut self, now: Instant) -> Option<(Timer, Duration)> {
        let now = self.ns(now);
        let timer = KINDS
            .into_iter()
            .find(|timer| self.deadlines_ns[*timer as usize] <= now)?;
        let late = Duration::from_nanos(now - self.deadlines_ns[timer as usize]);
        self.stop(timer);
        Some((timer, late))
    }

    /// Nanoseconds from `base` to `at`.
    pub(super) fn ns(&self, at: Instant) -> u64 {
        at.saturating_duration_since(self.base)
            .as_nanos()
            .min(u128::from(STOPPED - 1)) as u64
    }
}

/// 584 years: no deadline.
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
