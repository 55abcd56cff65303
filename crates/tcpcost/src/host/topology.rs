//! Which CPUs there are, which of them are siblings, and where the two ends go.

use std::collections::BTreeSet;
use std::path::Path;

use super::error::{SystemError, read_trimmed};

/// CPUs of this host that this process may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// Online and allowed, ascending.
    pub cpus: Vec<usize>,
    /// Groups of threads of one core among them, each ascending; one member where there is no SMT,
    /// or where the kernel does not tell.
    pub cores: Vec<Vec<usize>>,
}

/// CPUs of client and server.
pub type Placement = (Vec<usize>, Vec<usize>);

impl Topology {
    /// Reads `root` (/sys) and this thread's affinity.
    ///
    /// # Errors
    /// The affinity cannot be read.
    pub fn read(root: &Path) -> Result<Topology, SystemError> {
        Ok(Topology::of(root, &allowed()?))
    }

    fn of(root: &Path, allowed: &[usize]) -> Topology {
        let folder = root.join("devices/system/cpu");
        let online = read_trimmed(&folder.join("online"))
            .ok()
            .and_then(|list| from_list(&list));
        let usable = |cpu: &usize| online.as_ref().is_none_or(|online| online.contains(cpu));
        let cpus: BTreeSet<usize> = allowed.iter().copied().filter(usable).collect();

        let mut cores = BTreeSet::new();
        for &cpu in &cpus {
            let topology = folder.join(format!("cpu{cpu}/topology"));
            // core_cpus_list since Linux 5.3, under its older name before.
            let listed = ["core_cpus_list", "thread_siblings_list"]
                .iter()
                .find_map(|file| from_list(&read_trimmed(&topology.join(file)).ok()?));
            let mut core: Vec<usize> = listed.unwrap_or_default();
            core.retain(|sibling| cpus.contains(sibling));
            if !core.contains(&cpu) {
                core = vec![cpu];
            }
            cores.insert(core);
        }
        Topology {
            cpus: cpus.into_iter().collect(),
            cores: cores.into_iter().collect(),
        }
    }

    /// CPUs of client and server by the knobs `placement`, `client_cpus` and `server_cpus`; a given
    /// list wins. One CPU for each end unless a list says more.
    ///
    /// `two-cpus` takes two cores where there are two, the highest ones: CPU 0 serves most interrupts
    /// and boot-time work.
    ///
    /// # Errors
    /// In one line: too few CPUs, no siblings, a listed CPU that cannot be used.
    pub fn place(
        &self,
        placement: &str,
        client: Option<&[usize]>,
        server: Option<&[usize]>,
    ) -> Result<Placement, String> {
        for (knob, given) in [("client_cpus", client), ("server_cpus", server)] {
            let Some(given) = given else { continue };
            if given.is_empty() {
                return Err(format!("{knob} is empty: list at least one CPU"));
            }
            if let Some(cpu) = given.iter().find(|cpu| !self.cpus.contains(cpu)) {
                return Err(format!(
                    "{knob}: CPU {cpu} is not online here or not allowed to this process; there are {:?}",
                    self.cpus
                ));
            }
        }
        let sorted = |cpus: &[usize]| {
            let set: BTreeSet<usize> = cpus.iter().copied().collect();
            set.into_iter().collect::<Vec<usize>>()
        };
        match (client, server) {
            (Some(client), Some(server)) => Ok((sorted(client), sorted(server))),
            (Some(client), None) => {
                let client = sorted(client);
                let server = self.other(placement, &client)?;
                Ok((client, server))
            }
            (None, Some(server)) => {
                let server = sorted(server);
                let client = self.other(placement, &server)?;
                Ok((client, server))
            }
            (None, None) => self.both(placement),
        }
    }

    fn both(&self, placement: &str) -> Result<Placement, String> {
        let last = *self
            .cpus
            .last()
            .ok_or("no CPU is allowed to this process")?;
        match placement {
            "same-cpu" => Ok((vec![last], vec![last])),
            "smt-sibling" => {
                let core = self.cores.iter().rev().find(|core| core.len() > 1);
                let core = core.ok_or_else(|| self.no_siblings())?;
                Ok((vec![core[0]], vec![core[1]]))
            }
            _ => {
                let server = vec![last];
                let client = self.other(placement, &server)?;
                Ok((client, server))
            }
        }
    }

    /// Where the other end goes when one is placed.
    fn other(&self, placement: &str, taken: &[usize]) -> Result<Vec<usize>, String> {
        let core_of = |cpu: &usize| self.cores.iter().find(|core| core.contains(cpu));
        let free = |cpu: &&usize| !taken.contains(cpu);
        match placement {
            "same-cpu" => Ok(taken.to_vec()),
            "smt-sibling" => {
                let siblings = taken.iter().filter_map(core_of).flatten();
                let sibling = siblings.copied().find(|cpu| !taken.contains(cpu));
                Ok(vec![sibling.ok_or_else(|| self.no_siblings())?])
            }
            "two-cpus" => {
                let shares_core = |cpu: &&usize| {
                    core_of(cpu).is_some_and(|core| core.iter().any(|c| taken.contains(c)))
                };
                let own_core = self.cpus.iter().rev().find(|cpu| !shares_core(cpu));
                let cpu = own_core.or_else(|| self.cpus.iter().rev().find(free));
                Ok(vec![*cpu.ok_or_else(|| {
                    format!(
                        "two-cpus needs a CPU beside {taken:?}, and only {:?} can be used here; try placement = \"same-cpu\"",
                        self.cpus
                    )
                })?])
            }
            other => Err(format!("no such placement: {other}")),
        }
    }

    fn no_siblings(&self) -> String {
        format!(
            "smt-sibling needs two threads of one core, and CPUs {:?} have none to spare (no SMT, or it is off, or hidden by the hypervisor)",
            self.cpus
        )
    }
}

/// The CPUs that this thread may run on, by sched_getaffinity, also beyond CPU 1023.
pub fn allowed() -> Result<Vec<usize>, SystemError> {
    let mut words = vec![0_u64; 16];
    loop {
        // SAFETY: the kernel writes at most the given number of bytes into `words`.
        let done =
            unsafe { libc::sched_getaffinity(0, words.len() * 8, words.as_mut_ptr().cast()) };
        if done == 0 {
            break;
        }
        // EINVAL: the kernel's mask is longer.
        if words.len() >= 1 << 14 {
            return Err(SystemError::last("read the CPU affinity"));
        }
        words.resize(words.len() * 2, 0);
    }
    let bits = words.iter().enumerate().flat_map(|(at, word)| {
        let set = (0..64).filter(move |bit| word >> bit & 1 == 1);
        set.map(move |bit| at * 64 + bit)
    });
    Ok(bits.collect())
}

/// CPUs of the kernel's list form, e.g. `0-3,8`; `None` where it is none.
pub fn from_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more; a torn file must not make us list billions.
        if last >= 1 << 16 {
            return None;
        }
        cpus.extend(first..=last);
    }
    Some(cpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn topology(cores: &[&[usize]]) -> Topology {
        let mut cpus: Vec<usize> = cores.concat();
        cpus.sort_unstable();
        Topology {
            cpus,
            cores: cores.iter().map(|core| core.to_vec()).collect(),
        }
    }

    fn check(cores: &[&[usize]], placement: &str, expected: Option<(usize, usize)>) {
        let placed = topology(cores).place(placement, None, None).ok();
        let expected = expected.map(|(client, server)| (vec![client], vec![server]));
        assert_eq!(placed, expected, "{cores:?} {placement}");
    }

    #[test]
    fn two_cpus_are_two_cores_where_there_are_two() {
        check(&[&[0], &[1]], "two-cpus", Some((0, 1)));
        check(&[&[0, 2], &[1, 3]], "two-cpus", Some((2, 3)));
        check(&[&[0, 1], &[2, 3]], "two-cpus", Some((1, 3)));
        check(&[&[0, 1]], "two-cpus", Some((0, 1)));
        check(&[&[5]], "two-cpus", None);
    }

    #[test]
    fn siblings_are_two_threads_of_one_core() {
        check(&[&[0, 2], &[1, 3]], "smt-sibling", Some((1, 3)));
        check(&[&[0], &[1]], "smt-sibling", None);
        check(&[&[0], &[1]], "same-cpu", Some((1, 1)));
    }

    #[test]
    fn a_given_list_wins_and_the_other_end_follows_it() {
        let four = topology(&[&[0, 2], &[1, 3]]);
        let placed = |placement, client: Option<&[usize]>, server: Option<&[usize]>| {
            four.place(placement, client, server)
        };
        assert_eq!(
            placed("two-cpus", Some(&[3]), None).unwrap(),
            (vec![3], vec![2])
        );
        assert_eq!(
            placed("smt-sibling", None, Some(&[0])).unwrap(),
            (vec![2], vec![0])
        );
        assert_eq!(
            placed("same-cpu", Some(&[1, 0, 1]), None).unwrap(),
            (vec![0, 1], vec![0, 1])
        );
        assert!(
            placed("two-cpus", Some(&[9]), None)
                .unwrap_err()
                .contains("CPU 9")
        );
        assert!(
            placed("two-cpus", Some(&[]), None)
                .unwrap_err()
                .contains("empty")
        );
        let all: &[usize] = &[0, 1, 2, 3];
        assert!(
            placed("two-cpus", Some(all), None)
                .unwrap_err()
                .contains("same-cpu")
        );
    }

    #[test]
    fn the_kernels_files_give_cores_and_lacking_files_give_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices/system/cpu");
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            let topology = folder.join(format!("cpu{cpu}/topology"));
            fs::create_dir_all(&topology).unwrap();
            fs::write(topology.join("thread_siblings_list"), siblings).unwrap();
        }
        fs::write(folder.join("online"), "0-2\n").unwrap();
        let found = Topology::of(root.path(), &[0, 1, 2, 3]);
        assert_eq!(found, topology(&[&[0, 2], &[1]]));
        let bare = Topology::of(Path::new("/nonesuch"), &[4, 5]);
        assert_eq!(bare, topology(&[&[4], &[5]]));
        assert!(bare.cores.iter().all(|core| core.len() == 1));
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!Topology::read(Path::new("/sys")).unwrap().cpus.is_empty());
    }

    #[test]
    fn lists_are_the_kernels() {
        assert_eq!(from_list("0-2,7"), Some(vec![0, 1, 2, 7]));
        assert_eq!(from_list(""), Some(vec![]));
        for bad in ["a", "1-", "0-99999999999", "-3"] {
            assert_eq!(from_list(bad), None, "{bad}");
        }
    }
}
