//! Rows of CPU time: one for each process with sockets, and one for the rest of the host.

use std::collections::HashMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::Path;

use tcpcost_counts::{Counts, Printable, Quantity};
use tcpcost_meter::holder::{ByHolder, Holder};

use crate::watch::connections::cgroup_id;
use crate::watch::holder_totals::ENDED;
use crate::watch::owners::{Owners, Process};
use crate::watch::rows::{Namespace, Row};

/// Totals of each process, and the names of its cgroup and network namespace.
#[derive(Debug, Clone, Default)]
pub struct Costs {
    by_holder: ByHolder,
    cgroups: HashMap<u64, Printable>,
    namespaces: HashMap<u32, Printable>,
}

impl Costs {
    /// Looks up the names of cgroups and namespaces.
    pub fn look(by_holder: &ByHolder, owners: &mut Owners) -> Costs {
        let cgroups = by_holder.keys().filter_map(|holder| {
            let path = owners.cgroup(holder.cgroup)?;
            Some((holder.cgroup, path.clone()))
        });
        Costs {
            cgroups: cgroups.collect(),
            namespaces: names(Path::new(NAMES)),
            by_holder: by_holder.clone(),
        }
    }

    /// Totals of all processes, including ended ones.
    pub fn totals(&self) -> Vec<Row> {
        let all = self.by_holder.iter();
        all.map(|(holder, counts)| self.row(holder, counts.clone()))
            .collect()
    }

    fn row(&self, holder: &Holder, counts: Counts) -> Row {
        let cgroup = self.cgroups.get(&holder.cgroup);
        Row {
            process: Some(Process {
                pid: holder.pid,
                name: holder.name.clone(),
            }),
            cgroup: Some(cgroup.cloned().unwrap_or_else(|| cgroup_id(holder.cgroup))),
            namespace: Some(Namespace {
                inode: holder.netns,
                name: self.namespaces.get(&holder.netns).cloned(),
            }),
            port: holder.port,
            counts,
            ..Row::default()
        }
    }

    /// Network namespace of this thread.
    pub fn here(&self) -> Option<Namespace> {
        let inode = fs::metadata("/proc/thread-self/ns/net").ok()?.st_ino();
        let inode = u32::try_from(inode).ok()?;
        let name = self.namespaces.get(&inode).cloned();
        Some(Namespace { inode, name })
    }
}

#[cfg(test)]
impl Costs {
    /// Makes processes with names and totals.
    pub fn of(all: &[(u32, &str, [u64; 4])]) -> Costs {
        let by_holder = all.iter().map(|&(pid, name, ns)| {
            let holder = Holder {
                pid,
                start_ns: 1,
                name: name.into(),
                cgroup: 5,
                netns: 9,
                port: None,
            };
            (holder, Quantity::HOLDER.into_iter().zip(ns).collect())
        });
        Costs {
            by_holder: by_holder.collect(),
            cgroups: [(5, "/a".into())].into(),
            namespaces: HashMap::new(),
        }
    }
}

/// Growth of each living process. Adds a row for the host: the growth of `exact` minus that of the processes.
pub fn growth(before: &Costs, after: &Costs, exact: &Counts) -> Vec<Row> {
    let alive = after.by_holder.iter();
    let alive = alive.filter(|(holder, _)| holder.pid != ENDED);
    let mut rows: Vec<Row> = alive
        .map(|(holder, counts)| {
            let before = before.by_holder.get(holder);
            let grown = counts.iter().map(|(&of, &count)| {
                let before = before.and_then(|before| before.get(&of)).unwrap_or(&0);
                (of, count.saturating_sub(*before))
            });
            after.row(holder, grown.collect())
        })
        .filter(|row| row.cpu_ns() > 0)
        .collect();
    rows.extend(host(&rows, exact));
    rows
}

fn host(rows: &[Row], exact: &Counts) -> Option<Row> {
    let all = |of: &[Quantity]| -> Option<u64> { of.iter().map(|of| exact.get(of)).sum() };
    let hardirq = [Quantity::ExactHardirqNs];
    let rest = [
        (Quantity::HolderTaskNs, all(Quantity::EXACT_TASKS)?),
        (Quantity::HolderSoftirqNs, all(Quantity::EXACT_SOFTIRQS)?),
        (Quantity::HolderHardirqNs, all(&hardirq)?),
    ]
    .map(|(of, all)| {
        let held: u64 = rows.iter().map(|row| row.counts[&of]).sum();
        (of, all.saturating_sub(held))
    });
    Some(Row {
        counts: Counts::from(rest),
        is_host: true,
        ..Row::default()
    })
}

/// Names of network namespaces by inode, as in `ip netns`.
fn names(folder: &Path) -> HashMap<u32, Printable> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let named = entries.take(NAMES_MAX).filter_map(|entry| {
        let inode = fs::metadata(entry.path()).ok()?.st_ino();
        let name = Printable::of_bytes(entry.file_name().as_encoded_bytes());
        Some((u32::try_from(inode).ok()?, name))
    });
    named.collect()
}

const NAMES: &str = "/run/netns";
/// Limit on the number of names that are read.
const NAMES_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::watch::rows::{By, top};

    fn costs(of: &[(u32, [u64; 3])]) -> Costs {
        let all = of.iter();
        let all = all.map(|&(pid, [task, softirq, hardirq])| {
            (pid, "web", [task, task / 2, softirq, hardirq])
        });
        Costs::of(&all.collect::<Vec<_>>())
    }

    #[test]
    fn processes_and_host_are_all_that_there_was() {
        let before = costs(&[(7, [10, 10, 0])]);
        let after = costs(&[(7, [30, 20, 5]), (8, [40, 0, 0]), (ENDED, [900, 900, 900])]);
        let mut exact: Counts = Quantity::EXACT_CONTEXTS.iter().map(|&of| (of, 0)).collect();
        exact.insert(Quantity::ExactTaskOthersNs, 100);
        exact.insert(Quantity::ExactSoftirqNetRxNs, 50);
        exact.insert(Quantity::ExactHardirqNs, 6);
        let rows = growth(&before, &after, &exact);
        let top = top(&rows, By::Process, 1);
        let told: Vec<_> = top.iter().map(|row| (row.label(), row.cpu_ns())).collect();
        let host = "the host: without a socket".to_string();
        assert_eq!(told, [("8 web".to_string(), 40), (host, 40 + 40 + 1)]);
        let sum: u64 = rows.iter().map(Row::cpu_ns).sum();
        assert_eq!(sum, 156);
        let cgroups = crate::watch::rows::top(&rows, By::Cgroup, 9);
        assert_eq!((cgroups[0].label(), cgroups[0].cpu_ns()), ("/a".into(), 75));
    }
}
