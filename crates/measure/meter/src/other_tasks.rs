//! CPU time of other tasks on the trial's CPUs, from /proc/PID/stat.
//!
//! The kernel reports a thread's CPU time in ticks of 10 ms and the CPU where it ran last, but not the
//! distribution over CPUs. The growth of a thread between two snapshots is charged to its CPU at the second
//! one. This is correct for a thread that stays on a CPU, and correct on average for one that moves.
//!
//! A snapshot reads one file for each process, and one for each thread of a process with several: 3 µs each,
//! 0.23 ms with 73 processes (examples/cost.rs).

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use rustix::param::clock_ticks_per_second;
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `others`: [`Quantity::OtherTasksNs`] and [`Quantity::KworkerNs`] of [`CountOwner::Cpus`].
///
/// Its totals are sums of the growths since its first snapshot, which is 0.
#[derive(Debug)]
pub struct OtherTasks {
    root: PathBuf,
    cpus: Vec<usize>,
    own: BTreeSet<u32>,
    ns_per_tick: u64,
    /// Ticks of each thread at the last snapshot; `None` before the first.
    last: Option<HashMap<Thread, u64>>,
    others_ns: u64,
    kworkers_ns: u64,
    /// Growth of each process between the last two snapshots, as far as it is in `others_ns` or
    /// `kworkers_ns`.
    grown: BTreeMap<(u32, String), u64>,
    last_at_ns: u64,
    interval_ns: u64,
}

/// Another process that ran on the trial's CPUs.
#[derive(Debug, Clone, PartialEq)]
pub struct Neighbour {
    /// Process id.
    pub pid: u32,
    /// Command name, up to 15 characters.
    pub name: String,
    /// CPU time on the trial's CPUs between the last two snapshots.
    pub cpu_ns: u64,
    /// Share of these CPUs' time, limited to 1.
    pub ratio: f64,
}

/// Identity of a thread: its id, and its start time because ids are reused.
type Thread = (u32, u64);

impl OtherTasks {
    /// Counts all tasks on these CPUs except those of the processes `own`.
    pub fn new(cpus: &[usize], own: &[u32]) -> OtherTasks {
        OtherTasks::at(Path::new("/proc"), cpus, own, clock_ticks_per_second())
    }

    /// Reads a folder with the layout of /proc, with ticks of 1/`user_hz` s.
    pub fn at(root: &Path, cpus: &[usize], own: &[u32], user_hz: u64) -> OtherTasks {
        OtherTasks {
            root: root.to_path_buf(),
            cpus: cpus.to_vec(),
            own: own.iter().copied().collect(),
            ns_per_tick: 1_000_000_000 / user_hz.max(1),
            last: None,
            others_ns: 0,
            kworkers_ns: 0,
            grown: BTreeMap::new(),
            last_at_ns: 0,
            interval_ns: 0,
        }
    }

    /// The three processes that grew most between the last two snapshots, largest first. Includes kworkers by
    /// name. Omits processes without growth.
    pub fn top(&self) -> Vec<Neighbour> {
        let whole_ns = self
            .interval_ns
            .saturating_mul(self.cpus.len() as u64)
            .max(1);
        let mut all: Vec<Neighbour> = self
            .grown
            .iter()
            .map(|((pid, name), &cpu_ns)| Neighbour {
                pid: *pid,
                name: name.clone(),
                cpu_ns,
                // A tick is 10 ms, and tasks are read one after the other. So over a short time a process may
                // seem to have more than the available time.
                ratio: (cpu_ns as f64 / whole_ns as f64).min(1.0),
            })
            .collect();
        all.sort_by_key(|neighbour| std::cmp::Reverse(neighbour.cpu_ns));
        all.truncate(3);
        all
    }

    /// All threads of other processes, with the process' id and name.
    fn threads(&self) -> Result<Vec<(u32, String, Stat)>, MeterError> {
        let mut threads = Vec::new();
        for pid in numbered(&self.root)? {
            if self.own.contains(&pid) {
                continue;
            }
            let folder = self.root.join(pid.to_string());
            let Some(process) = read_stat(&folder.join("stat"))? else {
                continue;
            };
            let name = process.name.clone();
            if process.threads <= 1 {
                threads.push((pid, name, process));
                continue;
            }
            // The line of the process adds up its threads, but names only one CPU.
            let tasks = folder.join("task");
            let ids = match numbered(&tasks) {
                Err(MeterError::Read { source, .. }) if has_vanished(&source) => continue,
                other => other?,
            };
            for id in ids {
                if let Some(thread) = read_stat(&tasks.join(id.to_string()).join("stat"))? {
                    threads.push((pid, name.clone(), thread));
                }
            }
        }
        Ok(threads)
    }
}

impl Meter for OtherTasks {
    fn name(&self) -> MeterName {
        MeterName::Others
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let threads = self.threads()?;
        let mut now = HashMap::with_capacity(threads.len());
        self.grown.clear();
        for (pid, name, thread) in threads {
            let identity = (thread.id, thread.started_ticks);
            now.insert(identity, thread.ticks);
            // All time of a new thread belongs to the interval.
            let Some(last) = &self.last else { continue };
            let before = last.get(&identity).copied().unwrap_or(0);
            let grown_ns = thread
                .ticks
                .saturating_sub(before)
                .saturating_mul(self.ns_per_tick);
            if grown_ns == 0 || !self.cpus.contains(&thread.cpu) {
                continue;
            }
            match thread.kind() {
                Kind::Network => continue,
                Kind::Kworker => self.kworkers_ns = self.kworkers_ns.saturating_add(grown_ns),
                Kind::Other => self.others_ns = self.others_ns.saturating_add(grown_ns),
            }
            let sum = self.grown.entry((pid, name)).or_default();
            *sum = sum.saturating_add(grown_ns);
        }
        self.last = Some(now);
        let counts = Counts::from([
            (Quantity::OtherTasksNs, self.others_ns),
            (Quantity::KworkerNs, self.kworkers_ns),
        ]);
        let snapshot = snapshot_of(self.name(), CountOwner::Cpus(self.cpus.clone()), counts);
        self.interval_ns = snapshot.at_ns.saturating_sub(self.last_at_ns);
        self.last_at_ns = snapshot.at_ns;
        Ok(snapshot)
    }
}

enum Kind {
    /// ksoftirqd and threaded NAPI: softirq work for the trial.
    Network,
    Kworker,
    Other,
}

/// Used fields of a stat line (proc_pid_stat(5)).
#[derive(Debug, PartialEq)]
struct Stat {
    id: u32,
    name: String,
    is_kernel: bool,
    ticks: u64,
    threads: u64,
    started_ticks: u64,
    cpu: usize,
}

impl Stat {
    fn parse(line: &str) -> Option<Stat> {
        // The name may contain spaces and parentheses; the fields after it do not.
        let (id, rest) = line.split_once(" (")?;
        let (name, rest) = rest.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first of these is field 3, the state.
        let field = |number: usize| fields.get(number - 3)?.parse::<u64>().ok();
        Some(Stat {
            id: id.parse().ok()?,
            name: name.to_string(),
            is_kernel: field(9)? & PF_KTHREAD != 0,
            ticks: field(14)?.checked_add(field(15)?)?,
            threads: field(20)?,
            started_ticks: field(22)?,
            cpu: usize::try_from(field(39)?).ok()?,
        })
    }

    fn kind(&self) -> Kind {
        let named = |prefix: &str| self.is_kernel && self.name.starts_with(prefix);
        if named("ksoftirqd/") || named("napi/") {
            Kind::Network
        } else if named("kworker/") {
            Kind::Kworker
        } else {
            Kind::Other
        }
    }
}

/// Flag of linux/sched.h for a kernel thread. A process cannot choose it, unlike its name.
const PF_KTHREAD: u64 = 0x0020_0000;

/// Reads a stat file. `None` if its task has ended in between.
fn read_stat(path: &Path) -> Result<Option<Stat>, MeterError> {
    // One read is enough: a line is shorter than 400 bytes and never split.
    let mut bytes = [0; 1024];
    let length = match fs::File::open(path).and_then(|mut file| file.read(&mut bytes)) {
        Err(error) if has_vanished(&error) => return Ok(None),
        Err(source) => {
            let path = path.to_path_buf();
            return Err(MeterError::Read { path, source });
        }
        Ok(length) => length,
    };
    let line = String::from_utf8_lossy(&bytes[..length]);
    match Stat::parse(&line) {
        Some(stat) => Ok(Some(stat)),
        None => Err(MeterError::format(path, "a task's stat line", &line)),
    }
}

fn has_vanished(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH)
}

/// Names in a folder that are numbers.
fn numbered(folder: &Path) -> Result<Vec<u32>, MeterError> {
    let failed = |source| MeterError::Read {
        path: folder.to_path_buf(),
        source,
    };
    let mut numbers = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        // The process may end while its folder is listed.
        let entry = match entry {
            Err(error) if has_vanished(&error) => break,
            other => other.map_err(failed)?,
        };
        numbers.extend(
            entry
                .file_name()
                .to_str()
                .and_then(|name| name.parse::<u32>().ok()),
        );
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A folder with the layout of /proc, filled by [`Fake::put`].
    struct Fake(tempfile::TempDir);

    impl Fake {
        fn new() -> Fake {
            Fake(tempfile::tempdir().unwrap())
        }

        fn put(&self, path: &str, text: &str) {
            let path = self.0.path().join(path).join("stat");
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        fn task(&self, path: &str, name: &str, ticks: u64, cpu: usize) {
            self.put(path, &line(path, name, 0, ticks, 1, cpu));
        }
    }

    fn line(path: &str, name: &str, flags: u64, ticks: u64, threads: u64, cpu: usize) -> String {
        let id = path.rsplit('/').next().unwrap();
        let memory = "0 ".repeat(16);
        format!(
            "{id} ({name}) S 1 1 1 0 -1 {flags} 0 0 0 0 {ticks} 0 5 5 20 0 {threads} 0 77 {memory}{cpu} 0 0"
        )
    }

    /// Growth of others and of kworkers, in ticks, during a step that changes the folder, and the busiest
    /// processes.
    fn growth(fake: &Fake, own: &[u32], step: impl Fn(&Fake)) -> (u64, u64, Vec<Neighbour>) {
        let mut meter = OtherTasks::at(fake.0.path(), &[1, 2], own, 100);
        let before = meter.snapshot().unwrap();
        step(fake);
        let after = meter.snapshot().unwrap();
        let counts = &after.since(&before).unwrap()[0].counts;
        let [others, kworkers] = [Quantity::OtherTasksNs, Quantity::KworkerNs].map(|q| counts[&q]);
        (others / 10_000_000, kworkers / 10_000_000, meter.top())
    }

    #[test]
    fn growth_on_the_cpus_is_counted_and_our_own_is_not() {
        let fake = Fake::new();
        for (pid, cpu) in [("10", 1), ("11", 2), ("12", 0), ("13", 1)] {
            fake.task(pid, "x", 100, cpu);
        }
        fake.put("not-a-process", "");
        let (others, kworkers, top) = growth(&fake, &[13], |fake| {
            for (pid, cpu) in [("10", 1), ("11", 2), ("12", 0), ("13", 1)] {
                fake.task(pid, "x", 107, cpu);
            }
        });
        assert_eq!((others, kworkers), (14, 0));
        assert_eq!(top.iter().map(|n| n.pid).collect::<Vec<_>>(), [10, 11]);
    }

    #[test]
    fn odd_names_are_names() {
        for name in ["a b", ") R 1 (", "()", "((sd-pam))", "", "é\n"] {
            let fake = Fake::new();
            fake.task("10", name, 0, 1);
            let (others, _, top) = growth(&fake, &[], |fake| fake.task("10", name, 3, 1));
            assert_eq!(others, 3, "{name:?}");
            assert_eq!(top[0].name, name);
        }
    }

    #[test]
    fn the_networks_own_kernel_threads_are_not_others() {
        let fake = Fake::new();
        let put = |fake: &Fake, ticks| {
            let named = [
                "ksoftirqd/1",
                "napi/eth0-8",
                "kworker/1:2-events",
                "kworker/fake",
            ];
            for (at, name) in named.iter().enumerate() {
                let flags = if at < 3 { PF_KTHREAD | 0x40 } else { 0x40 };
                let pid = (10 + at).to_string();
                fake.put(&pid, &line(&pid, name, flags, ticks, 1, 1));
            }
        };
        put(&fake, 0);
        let (others, kworkers, top) = growth(&fake, &[], |fake| put(fake, 5));
        assert_eq!((others, kworkers), (5, 5));
        assert_eq!(top.len(), 2);
    }

    #[test]
    fn threads_are_charged_to_the_cpu_of_each() {
        let fake = Fake::new();
        let put = |fake: &Fake, ticks| {
            fake.put("10", &line("10", "many", 0, 2 * ticks, 2, 1));
            fake.task("10/task/10", "many", ticks, 1);
            fake.task("10/task/11", "worker", ticks, 0);
        };
        put(&fake, 0);
        let (others, _, top) = growth(&fake, &[], |fake| put(fake, 4));
        assert_eq!(others, 4);
        assert_eq!((top[0].name.as_str(), top[0].cpu_ns), ("many", 40_000_000));
    }

    #[test]
    fn tasks_come_and_go() {
        let fake = Fake::new();
        fake.task("10", "goes", 50, 1);
        let (others, _, top) = growth(&fake, &[], |fake| {
            fs::remove_file(fake.0.path().join("10/stat")).unwrap();
            fake.task("11", "comes", 6, 1);
        });
        assert_eq!((others, top[0].name.as_str()), (6, "comes"));
    }

    #[test]
    fn an_id_that_came_around_is_another_thread() {
        let fake = Fake::new();
        fake.task("10", "old", 50, 1);
        let (others, ..) = growth(&fake, &[], |fake| {
            let young = line("10", "young", 0, 60, 1, 1).replace(" 77 ", " 99 ");
            fake.put("10", &young);
        });
        assert_eq!(others, 60);
    }

    #[test]
    fn the_three_that_grew_most_are_named_with_their_share() {
        let fake = Fake::new();
        for pid in ["10", "11", "12", "13"] {
            fake.task(pid, pid, 0, 1);
        }
        let (.., top) = growth(&fake, &[], |fake| {
            for (pid, ticks) in [("10", 1), ("11", 9), ("12", 5), ("13", 7)] {
                fake.task(pid, pid, ticks, 1);
            }
        });
        assert_eq!(top.iter().map(|n| n.pid).collect::<Vec<_>>(), [11, 13, 12]);
        // Far less than 90 ms passed between these snapshots, so the share is limited to all of it.
        assert_eq!(top[0].ratio, 1.0);
        assert!(top[2].ratio > 0.0 && top[2].ratio <= 1.0);
    }

    #[test]
    fn a_torn_line_is_an_error() {
        let fake = Fake::new();
        let whole = line("10", "x", 0, 1, 1, 1);
        let end = whole.len() - 10;
        fake.put("10", &whole[..end]);
        let mut meter = OtherTasks::at(fake.0.path(), &[1], &[], 100);
        assert!(meter.snapshot().is_err());
    }

    #[test]
    fn the_real_tasks_can_be_read() {
        let mut meter = OtherTasks::new(&[0], &[std::process::id()]);
        let before = meter.snapshot().unwrap();
        let after = meter.snapshot().unwrap();
        assert_eq!(after.since(&before).unwrap()[0].counts.len(), 2);
        assert!(!meter.last.unwrap().is_empty());
    }

    proptest! {
        #[test]
        fn no_line_panics(text in "[0-9() \\-a\u{0}é\n]{0,120}") {
            let _ = Stat::parse(&text);
        }

        #[test]
        fn no_cut_panics(end in 0..90_usize) {
            let whole = line("10", ") (", 64, 1, 1, 1);
            prop_assert!(Stat::parse(&whole).is_some());
            let _ = Stat::parse(&whole[..end.min(whole.len())]);
        }
    }
}
