//! Owners of a connection: the process that holds its socket, and the cgroup in which the socket was made.
//!
//! Both are found by walking /proc/PID/fd and the cgroup tree, once for all new sockets; known owners are
//! kept. Any user can make new sockets all the time, and any number of open files. So walks take at most
//! [`SHARE`] of one CPU, and until the next walk the owners of new sockets are unknown.

use std::collections::HashMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::watch::budget::{Budget, thread_cpu};

use tcpcost_counts::Printable;

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    pub pid: u32,
    /// The text of /proc/PID/comm, which the process can choose.
    pub name: Printable,
}

/// Owners of sockets, as far as this user may see them.
#[derive(Debug)]
pub struct Owners {
    proc: PathBuf,
    cgroups: PathBuf,
    paths: HashMap<u64, Option<Printable>>,
    budget: Budget,
    /// CPU time of all walks.
    spent: Duration,
}

impl Default for Owners {
    fn default() -> Owners {
        // cgroup v2 next to v1 (systemd's "hybrid" mode) has its own folder.
        let hybrid = Path::new("/sys/fs/cgroup/unified");
        let unified = Path::new("/sys/fs/cgroup");
        let cgroups = if hybrid.is_dir() { hybrid } else { unified };
        Owners::at(Path::new("/proc"), cgroups)
    }
}

impl Owners {
    /// Uses folders with the layout of /proc and /sys/fs/cgroup.
    pub fn at(proc: &Path, cgroups: &Path) -> Owners {
        Owners {
            proc: proc.to_path_buf(),
            cgroups: cgroups.to_path_buf(),
            paths: HashMap::new(),
            budget: Budget::new(SHARE, Duration::ZERO),
            spent: Duration::ZERO,
        }
    }

    /// Processes by the inodes of their sockets, if a walk may take time now. A socket that several processes share belongs to
    /// the process with the lowest id.
    pub fn processes(&mut self) -> Option<HashMap<u32, Process>> {
        self.may_walk().then(|| self.walk(Owners::walk_processes))
    }

    fn may_walk(&mut self) -> bool {
        self.budget.debt(Instant::now(), self.spent).is_zero()
    }

    /// Runs a walk and counts its CPU time.
    fn walk<T>(&mut self, walk: impl FnOnce(&Owners) -> T) -> T {
        let before = thread_cpu();
        let found = walk(self);
        self.spent += thread_cpu().saturating_sub(before);
        found
    }

    fn walk_processes(&self) -> HashMap<u32, Process> {
        let mut found = HashMap::new();
        let folders = fs::read_dir(&self.proc).into_iter().flatten().flatten();
        let mut pids: Vec<u32> = folders
            .filter_map(|folder| folder.file_name().to_str()?.parse().ok())
            .collect();
        pids.sort_unstable();
        for pid in pids {
            let folder = self.proc.join(pid.to_string());
            let descriptors = fs::read_dir(folder.join("fd")).into_iter().flatten();
            let mut name = None;
            for descriptor in descriptors.flatten() {
                let Some(inode) = fs::read_link(descriptor.path()).ok().and_then(inode) else {
                    continue;
                };
                let name = name.get_or_insert_with(|| {
                    let name = fs::read(folder.join("comm")).unwrap_or_default();
                    Printable::of_bytes(name.trim_ascii_end())
                });
                found.entry(inode).or_insert_with(|| Process {
                    pid,
                    name: name.clone(),
                });
            }
        }
        found
    }

    /// Path of a cgroup below the mount point, e.g. `/system.slice/nginx.service`. `None` if it has no path
    /// or was not looked up yet.
    pub fn cgroup(&mut self, id: u64) -> Option<&Printable> {
        if !self.paths.contains_key(&id) && self.may_walk() {
            let found = self.walk(|owners| {
                let mut found = HashMap::new();
                walk_cgroups(&owners.cgroups, &owners.cgroups, &mut found);
                found
            });
            // Forgets removed cgroups.
            self.paths = found
                .into_iter()
                .map(|(id, path)| (id, Some(path)))
                .collect();
            self.paths.entry(id).or_insert(None);
        }
        self.paths.get(&id)?.as_ref()
    }
}

#[cfg(test)]
impl Owners {
    /// Pretends that the last walk took long.
    pub fn exhaust(&mut self) {
        self.spent += Duration::from_secs(3_600);
    }
}

/// Limit on the walks' share of one CPU, over time.
const SHARE: f64 = 0.01;

/// Inode in a link `socket:[123]`.
fn inode(link: PathBuf) -> Option<u32> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// Adds a folder and its subfolders. The id of a cgroup is the inode of its folder.
fn walk_cgroups(root: &Path, folder: &Path, found: &mut HashMap<u64, Printable>) {
    let Ok(metadata) = fs::symlink_metadata(folder) else {
        return;
    };
    if !metadata.is_dir() {
        return;
    }
    let path = folder.strip_prefix(root).unwrap_or(folder);
    let path = Printable::from(format!("/{}", path.display()));
    found.insert(metadata.st_ino(), path);
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk_cgroups(root, &entry.path(), found);
        }
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// Makes a process in a folder with the layout of /proc.
    pub fn process(root: &Path, pid: u32, name: &str, inodes: &[u32]) {
        let fd = root.join(format!("{pid}/fd"));
        fs::create_dir_all(&fd).unwrap();
        fs::write(root.join(format!("{pid}/comm")), format!("{name}\n")).unwrap();
        symlink("/dev/null", fd.join("0")).unwrap();
        for (index, inode) in inodes.iter().enumerate() {
            symlink(
                format!("socket:[{inode}]"),
                fd.join((index + 3).to_string()),
            )
            .unwrap();
        }
    }

    #[test]
    fn a_socket_belongs_to_the_first_process_that_holds_it() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, "parent", &[7]);
        process(root.path(), 9, "child", &[7, 8]);
        fs::create_dir(root.path().join("self")).unwrap();
        let found = Owners::at(root.path(), root.path()).processes().unwrap();
        let name = |inode| found.get(inode).map(|one| one.name.to_string());
        assert_eq!(name(&7).as_deref(), Some("child"));
        assert_eq!(name(&8).as_deref(), Some("child"));
        assert_eq!(name(&99), None);
    }

    #[test]
    fn a_walk_waits_until_it_may_take_time() {
        let root = tempfile::tempdir().unwrap();
        process(root.path(), 10, "web", &[7]);
        let mut owners = Owners::at(root.path(), root.path());
        assert_eq!(owners.processes().unwrap()[&7].pid, 10);
        owners.exhaust();
        assert_eq!(owners.processes(), None);
        assert_eq!(owners.cgroup(5), None);
    }

    #[test]
    fn a_cgroup_is_known_by_the_inode_of_its_folder() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("system.slice/web.service");
        fs::create_dir_all(&folder).unwrap();
        let id = |path: &Path| fs::metadata(path).unwrap().st_ino();
        let mut owners = Owners::at(root.path(), root.path());
        assert_eq!(
            owners.cgroup(id(&folder)),
            Some(&"/system.slice/web.service".into())
        );
        assert_eq!(owners.cgroup(id(root.path())), Some(&"/".into()));
        assert_eq!(owners.cgroup(u64::MAX), None);
    }
}
