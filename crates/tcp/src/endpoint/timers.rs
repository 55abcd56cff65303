//! Which connection's timers are due: a heap that is corrected lazily.
//!
//! A connection moves its deadlines with every segment; the heap only hears of it when the new one
//! is earlier than the one it has. One that moved back is found out when its time comes.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::input::ReadinessSnapshot;
use super::{ConnId, Endpoint};

/// When to look at a connection: nanoseconds since the endpoint's beginning, index, generation.
pub(super) type Deadline = (u64, u32, u32);

impl Endpoint {
    /// Lets timers that are due at `now` fire.
    pub fn on_timeout(&mut self, now: Instant) {
        self.time_waits.on_timeout(now);
        let now_ns = self.ns(now);
        while let Some(&Reverse((deadline_ns, index, generation))) = self.timers.peek()
            && deadline_ns <= now_ns
        {
            self.timers.pop();
            if !self.table.is_current(ConnId { index, generation }) {
                continue;
            }
            let slot = self.table.at_mut(index);
            let Some(slot) = slot.filter(|slot| slot.timer_ns == deadline_ns) else {
                continue;
            };
            slot.timer_ns = NO_TIMER;
            if slot.connection.next_timeout().is_some_and(|due| due <= now) {
                let before = ReadinessSnapshot::at(&slot.connection);
                slot.connection.on_timeout(now);
                self.follow_up(index, before);
            }
            self.arm(index);
        }
    }

    /// The earliest time at which [`on_timeout`](Self::on_timeout) may have something to do.
    /// Deadlines that moved back are found out when their time comes, so it can be early.
    pub fn next_timeout(&self) -> Option<Instant> {
        let first = self.timers.peek();
        let connections = first.map(|Reverse((ns, _, _))| self.epoch + Duration::from_nanos(*ns));
        [connections, self.time_waits.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Sees to it that the heap has a deadline no later than the connection's.
    pub(super) fn arm(&mut self, index: u32) {
        let generation = self.table.id(index).generation;
        let epoch = self.epoch;
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        let Some(next) = slot.connection.next_timeout() else {
            return;
        };
        let next_ns = ns_since(epoch, next);
        if next_ns < slot.timer_ns {
            slot.timer_ns = next_ns;
            self.timers.push(Reverse((next_ns, index, generation)));
            if self.timers.len() > 2 * self.table.len() + SPARE_TIMERS {
                self.forget_stale_timers();
            }
        }
    }

    /// Deadlines of connections that ended or that have an earlier one would otherwise stay until
    /// their time comes; this keeps the heap within twice the connections, at no cost to speak of
    /// because it halves it.
    fn forget_stale_timers(&mut self) {
        let table = &self.table;
        self.timers
            .retain(|&Reverse((deadline_ns, index, generation))| {
                let slot = table.get(ConnId { index, generation });
                slot.is_some_and(|slot| slot.timer_ns == deadline_ns)
            });
    }

    fn ns(&self, at: Instant) -> u64 {
        ns_since(self.epoch, at)
    }
}

fn ns_since(epoch: Instant, at: Instant) -> u64 {
    at.saturating_duration_since(epoch)
        .as_nanos()
        .min(u128::from(NO_TIMER - 1)) as u64
}

/// Later than any deadline.
pub(super) const NO_TIMER: u64 = u64::MAX;
/// Stale deadlines that are not worth a search.
pub(super) const SPARE_TIMERS: usize = 1024;
