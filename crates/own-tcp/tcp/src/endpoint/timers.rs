//! Timers of all connections: a heap that is corrected lazily.
//!
//! A connection changes its deadlines with every segment. The heap gets a new entry only if the new
//! deadline is earlier than the entry it has. A deadline that moved back is detected when the entry
//! comes due.

use std::cmp::Reverse;
use std::time::{Duration, Instant};

use super::input::ReadinessSnapshot;
use super::table::NO_TIMER;
use super::{ConnId, Endpoint};

/// Entry of the heap: nanoseconds since the endpoint's epoch, index, generation.
pub(super) type Deadline = (u64, u32, u32);

impl Endpoint {
    /// Runs the timers that are due at `now`.
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
            if self.table.timer_ns(ConnId { index, generation }) != Some(deadline_ns) {
                continue;
            }
            let Some(slot) = self.table.at_mut(index) else {
                continue;
            };
            slot.timer_ns = NO_TIMER;
            if slot.connection.next_timeout().is_some_and(|due| due <= now) {
                let before = ReadinessSnapshot::at(&slot.connection);
                slot.connection.on_timeout(now);
                self.follow_up(index, before);
            }
            self.arm(index, now);
        }
    }

    /// Makes a connection that has been idle for a while dormant.
    fn let_rest(&mut self, index: u32) {
        let generation = self.table.id(index).generation;
        let Some(Some(due)) = self.table.rest(index) else {
            return;
        };
        let due_ns = self.ns(due);
        self.table.set_timer_of_resting(index, due_ns);
        self.timers.push(Reverse((due_ns, index, generation)));
    }

    /// Earliest time at which [`on_timeout`](Self::on_timeout) may have work; `None` if no timer
    /// runs. It may be too early, because deadlines that moved back are detected only when they
    /// come due.
    pub fn next_timeout(&self) -> Option<Instant> {
        let first = self.timers.peek();
        let connections = first.map(|Reverse((ns, _, _))| self.epoch + Duration::from_nanos(*ns));
        [connections, self.time_waits.next_timeout()]
            .into_iter()
            .flatten()
            .min()
    }

    /// Makes sure that the heap has an entry no later than the connection's deadline. A connection
    /// without a deadline gets one at which it is checked for dormancy.
    pub(super) fn arm(&mut self, index: u32, now: Instant) {
        let generation = self.table.id(index).generation;
        let epoch = self.epoch;
        let Some(slot) = self.table.at_mut(index) else {
            return;
        };
        // The connection's timers have the endpoint's epoch.
        let mut next_ns = match slot.connection.next_timeout_ns() {
            Some(next_ns) => next_ns,
            None if slot.timer_ns != NO_TIMER => return,
            None => NO_TIMER,
        };
        if slot.timer_ns == NO_TIMER {
            let second_ns = ns_since(epoch, now) + REST_NS;
            if next_ns > second_ns && slot.may_rest() {
                if !std::mem::replace(&mut slot.stirred, false) {
                    self.let_rest(index);
                    return;
                }
                next_ns = second_ns;
            }
        }
        if next_ns < slot.timer_ns {
            slot.timer_ns = next_ns;
            self.timers.push(Reverse((next_ns, index, generation)));
            if self.timers.len() > 2 * self.table.len() + SPARE_TIMERS {
                self.forget_stale_timers();
            }
        }
    }

    /// Removes stale entries: those of connections that ended or that have an earlier entry. Keeps
    /// the heap within twice the number of connections, at a small amortised cost, because each
    /// pass halves the heap.
    fn forget_stale_timers(&mut self) {
        let table = &self.table;
        self.timers
            .retain(|&Reverse((deadline_ns, index, generation))| {
                table.timer_ns(ConnId { index, generation }) == Some(deadline_ns)
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

/// Idle time in ns before a connection becomes dormant; with the granularity of the check, one to
/// two seconds. So a connection is not converted for each request of a busy peer.
const REST_NS: u64 = 1_000_000_000;
/// Number of stale entries that are not worth a pass.
pub(super) const SPARE_TIMERS: usize = 1024;
