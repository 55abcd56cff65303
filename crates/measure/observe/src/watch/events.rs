//! Counts of each kind of interrupt and softirq on the host, from /proc/stat. They are exact even if no eBPF
//! program runs.

use std::collections::BTreeMap;
use std::fs;

use rustix::param::clock_ticks_per_second;
use tcpcost_counts::Quantity;

/// Number of interrupts and softirqs since boot, or over a window, and idle time, ns. The key is the quantity of their time by
/// `exact`. A kind that the kernel does not count is absent.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Events(pub BTreeMap<Quantity, u64>);

impl Events {
    /// Reads the host's counts since boot. Empty if /proc/stat cannot be read.
    pub fn now() -> Events {
        let text = fs::read_to_string("/proc/stat");
        Events::parse(&text.unwrap_or_default())
    }

    /// Parses /proc/stat (proc_stat(5)): the lines `intr` and `softirq` begin with their totals.
    fn parse(text: &str) -> Events {
        let numbers = |name: &str| -> Vec<u64> {
            let mut lines = text.lines();
            let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            let words = line.unwrap_or_default().split_ascii_whitespace();
            // The line `intr` goes on with a number for each interrupt line; only its total is used.
            let words = words.take(1 + VECTORS.len());
            words.map_while(|word| word.parse().ok()).collect()
        };
        let mut events = BTreeMap::new();
        if let [_, _, _, idle, iowait, ..] = numbers("cpu")[..] {
            let ticks = u128::from(idle) + u128::from(iowait);
            let ns = ticks * 1_000_000_000 / u128::from(clock_ticks_per_second().max(1));
            events.extend(u64::try_from(ns).ok().map(|ns| (Quantity::ExactIdleNs, ns)));
        }
        if let Some(&all) = numbers("intr").first() {
            events.insert(Quantity::ExactHardirqNs, all);
        }
        for (&vector, count) in VECTORS.iter().zip(numbers("softirq").into_iter().skip(1)) {
            *events.entry(vector).or_insert(0) += count;
        }
        Events(events)
    }

    /// Growth since an earlier reading.
    pub fn since(&self, before: &Events) -> Events {
        let grown = self.0.iter().filter_map(|(kind, count)| {
            let before = before.0.get(kind)?;
            Some((*kind, count.saturating_sub(*before)))
        });
        Events(grown.collect())
    }
}

/// The kernel's vectors, in its order (include/linux/interrupt.h).
const VECTORS: [Quantity; 10] = [
    Quantity::ExactSoftirqOthersNs,
    Quantity::ExactSoftirqTimerNs,
    Quantity::ExactSoftirqNetTxNs,
    Quantity::ExactSoftirqNetRxNs,
    Quantity::ExactSoftirqOthersNs,
    Quantity::ExactSoftirqOthersNs,
    Quantity::ExactSoftirqTaskletNs,
    Quantity::ExactSoftirqSchedNs,
    Quantity::ExactSoftirqHrtimerNs,
    Quantity::ExactSoftirqRcuNs,
];

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  1 2 3 4 5 6\nintr 100 7 8\nctxt 9\nsoftirq 55 1 2 3 4 5 6 7 8 9 10\n";

    #[test]
    fn interrupts_and_vectors_are_counted_by_their_time() {
        let events = Events::parse(STAT).0;
        assert_eq!(events[&Quantity::ExactHardirqNs], 100);
        let ticks_ns = 9 * 1_000_000_000 / clock_ticks_per_second();
        assert_eq!(events[&Quantity::ExactIdleNs], ticks_ns);
        assert_eq!(events[&Quantity::ExactSoftirqNetRxNs], 4);
        assert_eq!(events[&Quantity::ExactSoftirqRcuNs], 10);
        assert_eq!(events[&Quantity::ExactSoftirqOthersNs], 1 + 5 + 6);
    }

    #[test]
    fn growth_is_of_kinds_that_both_have() {
        let later = Events::parse("intr 130\nsoftirq 60 2 2\n");
        let grown = later.since(&Events::parse("intr 100\n")).0;
        assert_eq!(grown, BTreeMap::from([(Quantity::ExactHardirqNs, 30)]));
        assert_eq!(Events::parse("").0, BTreeMap::new());
    }

    #[test]
    fn the_real_hosts_events_grow() {
        let before = Events::now();
        assert!(before.0[&Quantity::ExactHardirqNs] > 0);
        let later = Events::now();
        assert!(later.0[&Quantity::ExactHardirqNs] >= before.0[&Quantity::ExactHardirqNs]);
    }
}
