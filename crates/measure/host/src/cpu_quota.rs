//! CPU quota of this process's cgroup: `cpu.max` (cgroup v2) or `cpu.cfs_quota_us` (v1), as containers and systemd's CPUQuota set it.
//! Once the tasks of a cgroup have used their quota, the kernel stops them until the period is over
//! (Documentation/scheduler/sched-bwc.rst).

use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::error::read_trimmed;

/// Quotas that limit this process: of its cgroup and of those around it, which others may share. Smallest first, at least one.
#[derive(Debug)]
pub struct CpuQuota(Vec<Level>);

/// Cgroup with a quota.
#[derive(Debug)]
struct Level {
    /// Number of CPUs that the quota is worth: 0.5 for 50 ms each 100 ms.
    cpus: f64,
    /// File `cpu.stat`. It stays open, because a namespace with a /sys of its own does not have it.
    stat: File,
}

/// Numbers of a quota's periods since its cgroup was made. A period counts if the cgroup had a task that could run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periods {
    /// Number of periods.
    pub all: u64,
    /// Number of periods in which its tasks were stopped.
    pub stopped: u64,
}

/// Periods in which a quota stopped its tasks.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Stopped {
    /// Number of CPUs that the quota is worth.
    pub cpus: f64,
    /// Number of periods, at least 1.
    pub all: u64,
    /// Number of periods in which tasks were stopped, at least 1.
    pub stopped: u64,
}

impl Stopped {
    /// Share of the periods in which tasks were stopped.
    pub fn share(&self) -> f64 {
        self.stopped as f64 / self.all as f64
    }
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Stopped { cpus, all, stopped } = self;
        write!(
            f,
            "CPU quota ({cpus:.2} CPUs) was used up in {stopped} of {all} periods, and the tasks were stopped"
        )
    }
}

impl CpuQuota {
    /// Finds the quotas of this process. `None` if it has none, or if the cgroups are not mounted below /sys/fs/cgroup.
    pub fn find() -> Option<CpuQuota> {
        let own = std::fs::read_to_string("/proc/self/cgroup").ok()?;
        CpuQuota::of(&own, Path::new("/sys/fs/cgroup"))
    }

    /// Finds the quotas of the cgroups that `own` names, in the form of /proc/self/cgroup, and of those around them. `mounts`: the folder
    /// where cgroups are mounted.
    fn of(own: &str, mounts: &Path) -> Option<CpuQuota> {
        let groups = own.lines().flat_map(|line| groups(line, mounts));
        let level = |group: PathBuf| {
            Some(Level {
                cpus: cpus(&group)?,
                stat: File::open(group.join("cpu.stat")).ok()?,
            })
        };
        let mut levels: Vec<Level> = groups.filter_map(level).collect();
        levels.sort_by(|a, b| a.cpus.total_cmp(&b.cpus));
        (!levels.is_empty()).then_some(CpuQuota(levels))
    }

    /// Number of CPUs that the smallest quota is worth.
    pub fn cpus(&self) -> f64 {
        self.0[0].cpus
    }

    /// Periods of each quota so far. `None` for one whose periods cannot be read.
    pub fn periods(&self) -> Vec<Option<Periods>> {
        self.0.iter().map(Level::periods).collect()
    }

    /// Periods since `before` in which a quota stopped its tasks: of the quota that stopped them most. `None` if none did.
    pub fn stopped_since(&self, before: &[Option<Periods>]) -> Option<Stopped> {
        let stops = self.0.iter().zip(before).filter_map(|(level, before)| {
            let (before, after) = ((*before)?, level.periods()?);
            let stopped = after.stopped.saturating_sub(before.stopped);
            (stopped > 0).then(|| Stopped {
                cpus: level.cpus,
                all: after.all.saturating_sub(before.all).max(1),
                stopped,
            })
        });
        stops.max_by(|a, b| a.share().total_cmp(&b.share()))
    }
}

impl Level {
    fn periods(&self) -> Option<Periods> {
        let mut bytes = [0; 4096];
        let length = self.stat.read_at(&mut bytes, 0).ok()?;
        let text = std::str::from_utf8(&bytes[..length]).ok()?;
        let count = |name: &str| {
            let mut rows = text.lines().filter_map(|line| line.split_once(' '));
            rows.find(|(row, _)| *row == name)?.1.parse().ok()
        };
        Some(Periods {
            all: count("nr_periods")?,
            stopped: count("nr_throttled")?,
        })
    }
}

/// Folders of the cgroup that a line of /proc/self/cgroup names, and of those around it. Empty if it does not have the controller `cpu`.
fn groups(line: &str, mounts: &Path) -> Vec<PathBuf> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let mount = match controllers {
        // cgroup v2; next to v1 it has its own folder.
        "" if mounts.join("unified").is_dir() => mounts.join("unified"),
        "" => mounts.to_path_buf(),
        _ if controllers.split(',').any(|controller| controller == "cpu") => {
            mounts.join(controllers)
        }
        _ => return Vec::new(),
    };
    // A container may see its own cgroup as the root, but be told its path on the host.
    let around = Path::new(path).ancestors();
    let inside = around.filter_map(|path| path.strip_prefix("/").ok());
    let is_below = |path: &&Path| !path.components().any(|part| part == Component::ParentDir);
    inside
        .filter(is_below)
        .map(|path| mount.join(path))
        .collect()
}

/// Number of CPUs that the quota of a cgroup is worth. `None` if it has none.
fn cpus(group: &Path) -> Option<f64> {
    let (quota, period) = match read_trimmed(&group.join("cpu.max")) {
        Ok(text) => {
            let (quota, period) = text.split_once(' ')?;
            (quota.to_string(), period.to_string())
        }
        Err(_) => (
            read_trimmed(&group.join("cpu.cfs_quota_us")).ok()?,
            read_trimmed(&group.join("cpu.cfs_period_us")).ok()?,
        ),
    };
    // "max" and −1 are no quota.
    let quota: u64 = quota.parse().ok()?;
    let period: u64 = period.parse().ok().filter(|period| *period > 0)?;
    Some(quota as f64 / period as f64)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Cgroups with these files.
    fn mounted(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn the_quota_around_a_process_is_found_in_both_versions() {
        let stat = "nr_periods 20\nnr_throttled 7\nthrottled_time 5\n";
        let v2 = [
            ("pod/cpu.max", "150000 100000\n"),
            ("pod/cpu.stat", stat),
            ("pod/one/cpu.max", "max 100000\n"),
            ("pod/one/cpu.stat", "nr_periods 1\nnr_throttled 0\n"),
        ];
        let v1 = [
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/a/cpu.cfs_quota_us", "150000\n"),
            ("cpu,cpuacct/a/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/a/cpu.stat", stat),
        ];
        // A container of v1 that sees its own cgroup as the root.
        let inner = [
            ("cpu,cpuacct/cpu.cfs_quota_us", "150000\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/cpu.stat", stat),
        ];
        for (files, own) in [
            (&v2[..], "0::/pod/one\n"),
            (&v1[..], "5:memory:/b\n4:cpu,cpuacct:/a\n0::/\n"),
            (&inner[..], "4:cpu,cpuacct:/docker/0123\n"),
        ] {
            let root = mounted(files);
            let quota = CpuQuota::of(own, root.path()).unwrap();
            assert_eq!(quota.cpus(), 1.5, "{own}");
            let periods = Periods {
                all: 20,
                stopped: 7,
            };
            assert_eq!(quota.periods(), [Some(periods)], "{own}");
            let before = Periods {
                all: 10,
                stopped: 2,
            };
            let stopped = quota.stopped_since(&[Some(before)]).unwrap();
            assert_eq!(stopped.share(), 0.5, "{own}");
            assert_eq!(quota.stopped_since(&[Some(periods)]), None, "{own}");
        }
    }

    #[test]
    fn a_larger_quota_further_out_may_stop_more_often() {
        let root = mounted(&[
            ("pod/cpu.max", "400000 100000\n"),
            ("pod/cpu.stat", "nr_periods 10\nnr_throttled 5\n"),
            ("pod/one/cpu.max", "50000 100000\n"),
            ("pod/one/cpu.stat", "nr_periods 10\nnr_throttled 1\n"),
        ]);
        let quota = CpuQuota::of("0::/pod/one\n", root.path()).unwrap();
        assert_eq!(quota.cpus(), 0.5);
        let none = Periods { all: 0, stopped: 0 };
        let stopped = quota.stopped_since(&[Some(none); 2]).unwrap();
        assert_eq!(
            stopped.to_string(),
            "CPU quota (4.00 CPUs) was used up in 5 of 10 periods, and the tasks were stopped"
        );
    }

    #[test]
    fn without_a_quota_there_is_none() {
        let root = mounted(&[("one/cpu.max", "max 100000\n"), ("one/cpu.stat", "")]);
        for own in ["0::/one\n", "0::/other\n", "0::/../outside\n", "nonsense"] {
            assert!(CpuQuota::of(own, root.path()).is_none(), "{own}");
        }
    }
}
