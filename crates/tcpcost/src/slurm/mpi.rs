//! The nodes of mpirun's own job, outside of Slurm: mpirun tells no process where the others are.
//!
//! So each process but the first writes the name of its host into a folder beside the run's directory, which all see as Slurm's
//! nodes do, and leaves. The first waits until all have, and reaches the hosts as mpirun does: by ssh, its own as it is. Nothing
//! is listened at for it.

use std::collections::BTreeSet;
use std::env;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};

use super::allocation::Allocation;
use tcpcost_host::folder::{Folder, folder_mode, remove_folder};

/// A process that mpirun started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    rank: usize,
    size: usize,
    /// mpirun's name of its job.
    job: String,
}

/// mpirun starts its processes within seconds of each other, as fast as its ssh logs in.
const GATHER_MAX: Duration = Duration::from_secs(60);
/// A host's name has 64 bytes at most (HOST_NAME_MAX); the rest is room.
const NAME_BYTES_MAX: u64 = 1 << 20;
const PAUSE: Duration = Duration::from_millis(50);

impl Step {
    /// This process, if mpirun started it outside of a job of Slurm's, which would tell the nodes.
    pub fn of_mpirun() -> Option<Step> {
        Step::of(|name| env::var(name).ok())
    }

    fn of(variable: impl Fn(&str) -> Option<String>) -> Option<Step> {
        if variable("SLURM_JOB_ID").is_some() {
            return None;
        }
        let number = |name: &str| variable(name)?.parse().ok();
        let job = variable("PMIX_NAMESPACE").or_else(|| variable("OMPI_MCA_ess_base_jobid"))?;
        let sound = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        Some(Step {
            rank: number("OMPI_COMM_WORLD_RANK")?,
            size: number("OMPI_COMM_WORLD_SIZE")?,
            job: job.chars().map(sound).collect(),
        })
    }

    /// Where the processes leave their names.
    fn folder(&self, near: &Path) -> PathBuf {
        near.join(format!(".tcpcost-mpirun-{}", self.job))
    }

    /// Tells the first process where this one is.
    ///
    /// # Errors
    /// The folder or the file cannot be made.
    pub fn tell(&self, near: &Path) -> anyhow::Result<()> {
        let path = self.folder(near);
        let made = Folder::make(&path, folder_mode());
        let (folder, _) = made.with_context(|| format!("create {}", path.display()))?;
        let name = self.rank.to_string();
        folder
            .replace(&name, own_name().as_bytes())
            .with_context(|| format!("write {}", path.join(name).display()))
    }

    /// The nodes, in the order of their first processes. To be asked by the first process.
    ///
    /// # Errors
    /// Some have not told their host within a minute, or one has a name that is none.
    pub fn gather(&self, near: &Path) -> anyhow::Result<Allocation> {
        self.gather_within(near, GATHER_MAX)
    }

    fn gather_within(&self, near: &Path, most: Duration) -> anyhow::Result<Allocation> {
        let folder = self.folder(near);
        let told = |rank: usize| -> io::Result<String> {
            let bytes = Folder::own(&folder)?.read(&rank.to_string(), NAME_BYTES_MAX)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        let until = Instant::now() + most;
        let own = own_name();
        let mut names = vec![own.clone()];
        while names.len() < self.size {
            let path = folder.join(names.len().to_string());
            match told(names.len()) {
                Ok(name) => names.push(name),
                Err(_) if Instant::now() < until => std::thread::sleep(PAUSE),
                Err(error) => bail!(
                    "of {} processes of mpirun's {} have not told their host within {} s: {}: {error}: do all see this folder?",
                    self.size,
                    self.size - names.len(),
                    most.as_secs(),
                    path.display()
                ),
            }
        }
        if self.size > 1 {
            let removed = Folder::own(&folder).and_then(|open| {
                let names = open.names()?;
                names.iter().try_for_each(|name| open.remove(name))?;
                remove_folder(&folder)
            });
            removed.with_context(|| format!("remove {}", folder.display()))?;
        }
        let is_sound = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        let is_name = |name: &&String| {
            !name.is_empty() && !name.starts_with('-') && name.chars().all(is_sound)
        };
        if let Some(wrong) = names.iter().find(|name| !is_name(name)) {
            bail!("a process of mpirun's tells {wrong:?} for its host");
        }
        let mut seen = BTreeSet::new();
        names.retain(|name| seen.insert(name.clone()));
        Ok(Allocation {
            job: "of mpirun's".to_string(),
            nodes: names,
            groups: Vec::new(),
            own: Some(own),
        })
    }
}

fn own_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn step(rank: usize, size: usize) -> Step {
        Step {
            rank,
            size,
            job: "1-2".to_string(),
        }
    }

    #[test]
    fn a_process_of_mpiruns_is_one_that_knows_its_place_and_is_in_no_job_of_slurms() {
        let of = |set: &[(&str, &str)]| {
            Step::of(|name| {
                let found = set.iter().find(|(own, _)| *own == name)?;
                Some(found.1.to_string())
            })
        };
        let mut set = vec![
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "4"),
            ("PMIX_NAMESPACE", "prterun-a/b-12@1"),
        ];
        let found = of(&set).unwrap();
        assert_eq!((found.rank, found.size), (1, 4));
        assert_eq!(found.job, "prterun-a-b-12-1");
        assert_eq!(of(&set[..2]), None, "no name of a folder");
        set.push(("SLURM_JOB_ID", "7"));
        assert_eq!(of(&set), None);
    }

    #[test]
    fn the_first_process_has_each_host_once_when_all_have_told() {
        let place = tempfile::tempdir().unwrap();
        let first = step(0, 4);
        for rank in 1..4 {
            step(rank, 4).tell(place.path()).unwrap();
        }
        let folder = first.folder(place.path());
        fs::write(folder.join("2"), "b.example").unwrap();
        let nodes = first.gather(place.path()).unwrap().nodes;
        assert_eq!(nodes, [own_name(), "b.example".to_string()]);
        assert!(!folder.exists());
    }

    #[test]
    fn a_process_that_does_not_tell_is_missed_and_a_name_that_is_none_is_refused() {
        let place = tempfile::tempdir().unwrap();
        step(1, 3).tell(place.path()).unwrap();
        let first = step(0, 3);
        let error = first.gather_within(place.path(), Duration::ZERO);
        let error = error.unwrap_err().to_string();
        let said = "of 3 processes of mpirun's 1 have not told their host within 0 s: ";
        assert!(error.starts_with(said), "{error}");
        fs::write(first.folder(place.path()).join("2"), "-oProxyCommand=x").unwrap();
        let error = first.gather(place.path()).unwrap_err().to_string();
        assert!(error.contains("tells \"-oProxyCommand=x\""), "{error}");
    }
}
