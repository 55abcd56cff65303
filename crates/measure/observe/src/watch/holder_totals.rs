//! CPU time and events of each process with sockets if the programs run only in windows. What was seen is
//! scaled by the ratio of the estimate to the time seen of all tasks, softirqs or hard interrupts. So holders
//! and host add up to these estimates.

use tcpcost_counts::{Counts, Quantity};
use tcpcost_meter::holder::{ByHolder, Holder};

/// CPU time of tasks, of softirqs and of hard interrupts, ns.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ByClass([u64; 3]);

impl ByClass {
    /// Adds up the counts of `exact`.
    pub fn sum<'a>(all: impl IntoIterator<Item = &'a Counts>) -> ByClass {
        let mut sums = [0; 3];
        for counts in all {
            for (sum, class) in sums.iter_mut().zip(CLASSES) {
                *sum += class.iter().filter_map(|of| counts.get(of)).sum::<u64>();
            }
        }
        ByClass(sums)
    }

    /// Index of the class that a count of a holder belongs to.
    fn of(quantity: Quantity) -> usize {
        match quantity {
            Quantity::HolderSoftirqNs | Quantity::HolderNetRxRuns => 1,
            Quantity::HolderHardirqNs
            | Quantity::HolderRescheduleIpis
            | Quantity::HolderCallIpis
            | Quantity::HolderExtraTimerInterrupts => 2,
            _ => 0,
        }
    }
}

const CLASSES: [&[Quantity]; 3] = [
    Quantity::EXACT_TASKS,
    Quantity::EXACT_SOFTIRQS,
    &[Quantity::ExactHardirqNs],
];

/// Totals of the holders, which only grow.
#[derive(Debug, Default)]
pub struct HolderTotals {
    seen: ByHolder,
    totals: ByHolder,
    /// Time that was seen since the last estimate.
    waiting: ByClass,
    /// Estimate of all time at the last totals.
    all: ByClass,
}

impl HolderTotals {
    /// Adds an interval. `now` are the holders' counts so far, `seen` is all time that the programs saw since
    /// the last call, `all` is the estimate of all time so far. Without an estimate, the next call covers
    /// this time, too.
    pub fn take(&mut self, now: ByHolder, seen: ByClass, all: Option<ByClass>) {
        for (waiting, seen) in self.waiting.0.iter_mut().zip(seen.0) {
            *waiting += seen;
        }
        let Some(all) = all else { return };
        let before = std::mem::replace(&mut self.all, all);
        let seen = std::mem::take(&mut self.waiting);
        let factors: [f64; 3] = std::array::from_fn(|class| {
            let grown = all.0[class].saturating_sub(before.0[class]);
            match seen.0[class] {
                0 => 1.0,
                seen => grown as f64 / seen as f64,
            }
        });
        for (holder, counts) in &now {
            let before = self.seen.get(holder);
            let total = self.totals.entry(holder.clone()).or_default();
            for (&of, &count) in counts {
                let before = before.and_then(|before| before.get(&of)).unwrap_or(&0);
                let grown = count.saturating_sub(*before) as f64 * factors[ByClass::of(of)];
                *total.entry(of).or_insert(0) += grown.round() as u64;
            }
        }
        let ended = self
            .totals
            .extract_if(|holder, _| holder.pid != ENDED && !now.contains_key(holder));
        let ended: Vec<(Holder, Counts)> = ended.collect();
        for (holder, counts) in ended {
            self.keep(holder, counts);
        }
        self.seen = now;
    }

    /// Adds the totals of an ended process to a row for all ended processes of its name.
    fn keep(&mut self, holder: Holder, counts: Counts) {
        let mut of = Holder {
            pid: ENDED,
            start_ns: 0,
            ..holder
        };
        if !self.totals.contains_key(&of) && self.totals.len() >= KEPT_MAX {
            of.name = OTHERS.into();
            of.port = None;
        }
        let total = self.totals.entry(of).or_default();
        for (of, count) in counts {
            *total.entry(of).or_insert(0) += count;
        }
    }

    /// Totals until the last call that had an estimate.
    pub fn totals(&self) -> &ByHolder {
        &self.totals
    }
}

/// Process id of the rows of ended processes.
pub const ENDED: u32 = 0;

/// Limit on the rows that are kept, because processes choose their names.
const KEPT_MAX: usize = 4096;
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(pid: u32) -> Holder {
        Holder {
            pid,
            start_ns: 1,
            name: "web".into(),
            cgroup: 1,
            netns: 2,
            port: None,
        }
    }

    fn seen(of: &[(u32, u64)]) -> ByHolder {
        of.iter()
            .map(|&(pid, ns)| (holder(pid), Counts::from([(Quantity::HolderTaskNs, ns)])))
            .collect()
    }

    fn tasks(ns: u64) -> ByClass {
        ByClass([ns, 0, 0])
    }

    fn ns(totals: &HolderTotals, pid: u32) -> Option<u64> {
        let all = totals.totals().iter();
        let mut of = all.filter(|(holder, _)| holder.pid == pid);
        Some(of.next()?.1[&Quantity::HolderTaskNs])
    }

    #[test]
    fn what_was_not_seen_is_scaled_as_all_busy_time_is() {
        let mut totals = HolderTotals::default();
        // The first interval was seen whole, a fifth of the second. The third has no estimate, and a tenth of
        // the third and fourth was seen.
        totals.take(seen(&[(7, 40)]), tasks(100), Some(tasks(100)));
        assert_eq!(ns(&totals, 7), Some(40));
        totals.take(seen(&[(7, 60)]), tasks(100), Some(tasks(600)));
        assert_eq!(ns(&totals, 7), Some(140));
        totals.take(seen(&[(7, 70)]), tasks(50), None);
        assert_eq!(ns(&totals, 7), Some(140));
        totals.take(seen(&[(7, 80)]), tasks(50), Some(tasks(1600)));
        assert_eq!(ns(&totals, 7), Some(340));
    }

    #[test]
    fn what_ended_stays_under_its_name() {
        let mut totals = HolderTotals::default();
        totals.take(seen(&[(7, 40), (8, 2)]), tasks(100), Some(tasks(100)));
        totals.take(seen(&[(8, 3)]), tasks(100), Some(tasks(200)));
        assert_eq!((ns(&totals, 7), ns(&totals, 8)), (None, Some(3)));
        assert_eq!(ns(&totals, ENDED), Some(40));
        totals.take(seen(&[]), tasks(100), Some(tasks(300)));
        assert_eq!(ns(&totals, ENDED), Some(43));
    }
}
