//! Packets of the whole machine: TCP segments that it sends, or for UDP all IP packets in both directions.
//! Interrupts are counted for the machine, so a test's share of them is its share of these packets. A receiver of
//! UDP sends nothing, so what it receives must count.
//!
//! The kernel counts segments by network namespace. Both ends of a test on one machine are usually in two
//! namespaces. If only one namespace were counted, each end would be charged with all interrupts.

use std::collections::HashMap;
use std::fs;
use std::os::unix::fs::MetadataExt;

use tcpcost_counts::{Quantity, Snapshot};
use tcpcost_meter::{Meter, MeterError, netstat::Netstat};

use crate::options::Transport;

/// Packets since each network namespace began, by its inode.
///
/// Includes every namespace with a process that is visible to this user (all, for root in one PID namespace),
/// and always the thread's own. Takes 1 ms for 500 processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segments(HashMap<u64, u64>);

impl Segments {
    /// Reads the current counts.
    ///
    /// # Errors
    /// /proc is missing.
    pub(crate) fn read(transport: Transport) -> Result<Segments, MeterError> {
        let own = fs::metadata("/proc/thread-self/ns/net").map_or(0, |found| found.ino());
        let mut all = HashMap::from([(own, packets(&Netstat::default().snapshot()?, transport))]);
        for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
            let name = entry.file_name();
            let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            // The process may belong to another user, or may have ended.
            let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/net")) else {
                continue;
            };
            if all.contains_key(&namespace.ino()) {
                continue;
            }
            if let Ok(found) = Netstat::of_process(pid).snapshot() {
                all.insert(namespace.ino(), packets(&found, transport));
            }
        }
        Ok(Segments(all))
    }

    /// Share of the packets since `before` that are a test's, 0 to 1. Counters are not read at
    /// one instant, so the share is limited to 1.
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

fn packets(snapshot: &Snapshot, transport: Transport) -> u64 {
    let quantities: &[Quantity] = match transport {
        Transport::Tcp => &[Quantity::SegmentsSent],
        Transport::Udp => &[Quantity::IpPacketsSent, Quantity::IpPacketsReceived],
    };
    let counts = snapshot.totals.iter().map(|reading| &reading.counts);
    counts
        .flat_map(|counts| {
            quantities
                .iter()
                .filter_map(|quantity| counts.get(quantity))
        })
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
        // The process waits for the end of its input.
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
        let seen = Segments::read(Transport::Tcp).unwrap();
        drop(other.stdin.take());
        other.wait().unwrap();
        assert!(seen.0.contains_key(&own) && seen.0.contains_key(&namespace));
        assert!(
            !Segments::read(Transport::Tcp)
                .unwrap()
                .0
                .contains_key(&namespace)
        );
    }
}
