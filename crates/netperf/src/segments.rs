//! TCP segments that the whole machine sends: interrupts are the machine's, so a test's share of them is of all of these.
//!
//! The kernel counts segments by network namespace. Both ends of a test on one machine are mostly in two, and each would have all of the
//! machine's interrupts for its own.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use tcpcost_counts::{Quantity, Snapshot};
use tcpcost_meter::{Meter, MeterError, netstat::Netstat};

/// Segments sent since each network namespace began, by its inode.
///
/// Of every namespace that has a process which may be looked at (all, as root, in one PID namespace); at least the thread's own. 1 ms for
/// 500 processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments(HashMap<u64, u64>);

impl Segments {
    /// As they are now.
    ///
    /// # Errors
    /// /proc is not there.
    pub(crate) fn read() -> Result<Segments, MeterError> {
        let own = fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino());
        let mut all = HashMap::from([(own, sent(&Netstat::default().snapshot()?))]);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // A process may be another user's, or gone.
            let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/net")) else {
                continue;
            };
            if all.contains_key(&namespace.ino()) {
                continue;
            }
            if let Ok(found) = Netstat::of_process(pid).snapshot() {
                all.insert(namespace.ino(), sent(&found));
            }
        }
        Ok(Segments(all))
    }

    /// The share of the segments since `before` that a test's connections sent, 0 to 1. Counters are not read at one instant, so more than
    /// all can be seen.
    pub(crate) fn share(&self, before: &Segments, own: u64) -> f64 {
        let since = |(namespace, now): (&u64, &u64)| {
            now.saturating_sub(before.0.get(namespace).copied().unwrap_or(0))
        };
        let all: u64 = self.0.iter().map(since).sum();
        match all {
            0 => 1.0,
            all => (own as f64 / all as f64).min(1.0),
        }
    }
}

fn sent(snapshot: &Snapshot) -> u64 {
    let totals = snapshot.totals.iter();
    totals
        .filter_map(|reading| reading.counts.get(&Quantity::SegmentsSent))
        .sum()
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn segments(all: &[(u64, u64)]) -> Segments {
        Segments(all.iter().copied().collect())
    }

    #[test]
    fn two_ends_in_two_namespaces_share_the_machine() {
        let before = segments(&[(1, 100), (2, 1000)]);
        let after = segments(&[(1, 190), (2, 1010)]);
        let (sender, receiver) = (after.share(&before, 90), after.share(&before, 10));
        assert!((sender - 0.9).abs() < 1e-9 && (receiver - 0.1).abs() < 1e-9);
    }

    #[test]
    fn a_namespace_that_came_counts_and_one_that_went_does_not() {
        let before = segments(&[(1, 100), (2, 1000)]);
        let after = segments(&[(1, 110), (3, 30)]);
        assert!((after.share(&before, 10) - 0.25).abs() < 1e-9);
    }

    #[test]
    fn more_than_all_is_all() {
        let now = segments(&[(1, 100)]);
        assert!((now.share(&now, 5) - 1.0).abs() < 1e-9);
        assert!((segments(&[(1, 104)]).share(&now, 5) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn another_namespace_is_seen_through_its_process() {
        if !tcpcost_testbed::is_root() {
            tcpcost_testbed::skip("network namespaces: needs root");
            return;
        }
        // It waits for its input to end.
        let mut other = Command::new("unshare")
            .args(["--net", "cat"])
            .stdin(Stdio::piped())
            .spawn()
            .unwrap();
        let own = fs::metadata("/proc/thread-self/ns/net").unwrap().ino();
        let namespace = tcpcost_testbed::until("cat is in a namespace of its own", || {
            let path = format!("/proc/{}/ns/net", other.id());
            let inode = fs::metadata(path).ok()?.ino();
            (inode != own).then_some(inode)
        });
        let seen = Segments::read().unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(seen.0.contains_key(&own) && seen.0.contains_key(&namespace));
        assert!(!Segments::read().unwrap().0.contains_key(&namespace));
    }
}
