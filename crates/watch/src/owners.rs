//! Whose a connection is: the process that holds its socket, the cgroup that it was made in.
//!
//! Both are looked up by walking /proc/PID/fd and the cgroup tree, once for all the sockets that are
//! not known yet; what is known is kept.

use std::collections::HashMap;
use std::fs;
use std::os::linux::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tcpcost_counts::Printable;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Process {
    /// Its id.
    pub pid: u32,
    /// Its /proc/PID/comm, which the process may choose.
    pub name: Printable,
}

/// Who holds sockets, as far as we may see.
#[derive(Debug)]
pub struct Owners {
    proc: PathBuf,
    cgroups: PathBuf,
    processes: HashMap<u32, Option<Process>>,
    paths: HashMap<u64, Option<Printable>>,
}

impl Default for Owners {
    fn default() -> Owners {
        // cgroup v2 beside v1 (systemd's "hybrid") is in a folder of its own.
        let hybrid = Path::new("/sys/fs/cgroup/unified");
        let unified = Path::new("/sys/fs/cgroup");
        let cgroups = if hybrid.is_dir() { hybrid } else { unified };
        Owners::at(Path::new("/proc"), cgroups)
    }
}

impl Owners {
    /// Of folders that are like /proc and like /sys/fs/cgroup.
    pub fn at(proc: &Path, cgroups: &Path) -> Owners {
        Owners {
            proc: proc.to_path_buf(),
            cgroups: cgroups.to_path_buf(),
            processes: HashMap::new(),
            paths: HashMap::new(),
        }
    }

    /// Makes [`Owners::process`] know these sockets, and forget all others. One that several
    /// processes share is the one's with the lowest id.
    pub fn learn_processes(&mut self, inodes: &[u32]) {
        let mut known = std::mem::take(&mut self.processes);
        let new = inodes.iter().any(|inode| !known.contains_key(inode));
        let found = if new {
            self.walk_processes()
        } else {
            HashMap::new()
        };
        let owner = |inode: &u32| match found.get(inode) {
            Some(process) => Some(process.clone()),
            None => known.remove(inode).flatten(),
        };
        let owners: Vec<_> = inodes.iter().map(owner).collect();
        self.processes = inodes.iter().copied().zip(owners).collect();
        // No process has them: closed, or not ours to see.
        self.processes.insert(0, None);
    }

    /// Who holds a socket.
    pub fn process(&self, inode: u32) -> Option<&Process> {
        self.processes.get(&inode)?.as_ref()
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

    /// Path of a cgroup under the mount, e.g. `/system.slice/nginx.service`.
    pub fn cgroup(&mut self, id: u64) -> Option<&Printable> {
        if !self.paths.contains_key(&id) {
            let mut found = HashMap::new();
            walk_cgroups(&self.cgroups, &self.cgroups, &mut found);
            self.paths.insert(id, None);
            for (id, path) in found {
                self.paths.insert(id, Some(path));
            }
        }
        self.paths.get(&id)?.as_ref()
    }
}

/// Of `socket:[123]`.
fn inode(link: PathBuf) -> Option<u32> {
    let text = link.to_str()?;
    text.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// A cgroup's id is the inode of its directory.
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
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn process(root: &Path, pid: u32, name: &str, inodes: &[u32]) {
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
        let mut owners = Owners::at(root.path(), root.path());
        owners.learn_processes(&[7, 99]);
        let name = |owners: &Owners, inode| owners.process(inode).map(|p| p.name.to_string());
        assert_eq!(name(&owners, 7).as_deref(), Some("child"));
        assert_eq!(name(&owners, 99), None);
        assert_eq!(name(&owners, 0), None);
        // Known ones are not looked for again, and stay right for a process that is gone.
        fs::remove_dir_all(root.path().join("9")).unwrap();
        owners.learn_processes(&[7]);
        assert_eq!(name(&owners, 7).as_deref(), Some("child"));
        assert_eq!(name(&owners, 99), None);
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
