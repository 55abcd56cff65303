//! CPU time of each process with sockets where the programs run in windows: what was seen of it is scaled as the estimate of all
//! CPU time is, so holders and host add up to that.

use tcpcost_counts::Counts;
use tcpcost_meter::holder::{ByHolder, Holder};

/// Totals, which only grow.
#[derive(Debug, Default)]
pub struct HolderTotals {
    seen: ByHolder,
    totals: ByHolder,
    /// Busy time that was seen and is not in the totals yet, ns.
    seen_busy_ns: u64,
    /// The estimate of all busy time at the last totals, ns.
    busy_ns: u64,
}

impl HolderTotals {
    /// Takes in what the programs saw until now, the busy time among it since the last call, and the estimate of all busy
    /// time until now; without one it waits for the next.
    pub fn take(&mut self, now: ByHolder, seen_busy_ns: u64, busy_ns: Option<u64>) {
        self.seen_busy_ns += seen_busy_ns;
        let Some(busy_ns) = busy_ns else { return };
        let all_ns = busy_ns.saturating_sub(std::mem::replace(&mut self.busy_ns, busy_ns));
        let seen_ns = std::mem::take(&mut self.seen_busy_ns);
        let factor = match seen_ns {
            0 => 1.0,
            _ => (all_ns as f64 / seen_ns as f64).max(1.0),
        };
        for (holder, counts) in &now {
            let before = self.seen.get(holder);
            let total = self.totals.entry(holder.clone()).or_default();
            for (&of, &count) in counts {
                let before = before.and_then(|before| before.get(&of)).unwrap_or(&0);
                let grown = count.saturating_sub(*before) as f64 * factor;
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

    /// What a process had that has ended stays, with all others of its name.
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

    /// Until the last call that had an estimate.
    pub fn totals(&self) -> &ByHolder {
        &self.totals
    }
}

/// The process id of those that have ended.
pub const ENDED: u32 = 0;

/// So many names are kept: processes choose theirs.
const KEPT_MAX: usize = 4096;
const OTHERS: &str = "others";

#[cfg(test)]
mod tests {
    use super::*;
    use tcpcost_counts::Quantity;

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

    fn ns(totals: &HolderTotals, pid: u32) -> Option<u64> {
        let all = totals.totals().iter();
        let mut of = all.filter(|(holder, _)| holder.pid == pid);
        Some(of.next()?.1[&Quantity::HolderTaskNs])
    }

    #[test]
    fn what_was_not_seen_is_scaled_as_all_busy_time_is() {
        let mut totals = HolderTotals::default();
        // All was seen; then a fifth; then nothing can be said, and a tenth of both intervals was.
        totals.take(seen(&[(7, 40)]), 100, Some(100));
        assert_eq!(ns(&totals, 7), Some(40));
        totals.take(seen(&[(7, 60)]), 100, Some(600));
        assert_eq!(ns(&totals, 7), Some(140));
        totals.take(seen(&[(7, 70)]), 50, None);
        assert_eq!(ns(&totals, 7), Some(140));
        totals.take(seen(&[(7, 80)]), 50, Some(1600));
        assert_eq!(ns(&totals, 7), Some(340));
    }

    #[test]
    fn what_ended_stays_under_its_name() {
        let mut totals = HolderTotals::default();
        totals.take(seen(&[(7, 40), (8, 2)]), 100, Some(100));
        totals.take(seen(&[(8, 3)]), 100, Some(200));
        assert_eq!((ns(&totals, 7), ns(&totals, 8)), (None, Some(3)));
        assert_eq!(ns(&totals, ENDED), Some(40));
        totals.take(seen(&[]), 100, Some(300));
        assert_eq!(ns(&totals, ENDED), Some(43));
    }
}
