//! Due times at a fixed rate, exact to the nanosecond over any length of time.

/// Due times: the k-th event is due at `start + k * period`. The period is a fraction of whole
/// nanoseconds that is carried, so that rounding does not accumulate.
#[derive(Debug, Clone)]
pub(crate) struct Schedule {
    due_ns: u64,
    /// Part of a nanosecond by which `due_ns` is too early, in units of 1 / `denominator`.
    carry: u128,
    whole_ns: u64,
    remainder: u128,
    denominator: u128,
}

impl Schedule {
    /// Schedules `events` per `per_ns` nanoseconds, the first due at `start_ns`. `events` below 1
    /// count as 1.
    pub(crate) fn new(start_ns: u64, events: u128, per_ns: u128) -> Schedule {
        let denominator = events.max(1);
        Schedule {
            due_ns: start_ns,
            carry: 0,
            whole_ns: u64::try_from(per_ns / denominator).unwrap_or(u64::MAX),
            remainder: per_ns % denominator,
            denominator,
        }
    }

    /// Due time of the next event.
    #[inline]
    pub(crate) fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// Takes the next event.
    #[inline]
    pub(crate) fn advance(&mut self) {
        self.due_ns = self.due_ns.saturating_add(self.whole_ns);
        self.carry += self.remainder;
        if self.carry >= self.denominator {
            self.carry -= self.denominator;
            self.due_ns = self.due_ns.saturating_add(1);
        }
    }

    /// Drops events that are late by more than `backlog_ns`.
    #[inline]
    pub(crate) fn forget_before(&mut self, now_ns: u64, backlog_ns: u64) {
        self.due_ns = self.due_ns.max(now_ns.saturating_sub(backlog_ns));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_kth_event_is_due_at_k_periods(
            start in 0u64..1 << 40,
            events in 1u128..10_000_000_000,
            per in 1u128..1 << 60,
            count in 0u64..300,
        ) {
            let mut schedule = Schedule::new(start, events, per);
            for _ in 0..count {
                schedule.advance();
            }
            let exact = u128::from(start) + u128::from(count) * per / events;
            prop_assert_eq!(u128::from(schedule.due_ns()), exact.min(u128::from(u64::MAX)));
        }
    }

    #[test]
    fn a_late_schedule_catches_up_by_the_backlog_alone() {
        let mut schedule = Schedule::new(0, 1_000_000, 1_000_000_000);
        schedule.forget_before(50_000, 10_000);
        assert_eq!(schedule.due_ns(), 40_000);
        schedule.forget_before(45_000, 10_000);
        assert_eq!(schedule.due_ns(), 40_000);
    }
}
