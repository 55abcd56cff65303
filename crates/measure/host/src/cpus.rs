//! CPUs of this host, and which of them are near each other.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::{SystemError, read_trimmed};

/// CPUs of this host that this process may use.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cpus {
    /// CPUs online and allowed, ascending.
    pub cpus: Vec<usize>,
    /// Hardware threads of each core among `cpus`, ascending. A group has one member without SMT,
    /// or if the kernel does not report siblings.
    pub cores: Vec<Vec<usize>>,
    /// CPUs among `cpus` that share their last-level cache. A group has one member if the kernel does not report caches.
    #[serde(default)]
    pub caches: Vec<Vec<usize>>,
    /// CPUs among `cpus` of each package (socket).
    #[serde(default)]
    pub packages: Vec<Vec<usize>>,
}

impl Cpus {
    /// Reads `root` (/sys) and this thread's affinity.
    ///
    /// # Errors
    /// The error of reading the affinity.
    pub fn read(root: &Path) -> Result<Cpus, SystemError> {
        Ok(Cpus::of(root, &allowed()?))
    }

    fn of(root: &Path, allowed: &[usize]) -> Cpus {
        let folder = root.join("devices/system/cpu");
        let online = read_trimmed(&folder.join("online"))
            .ok()
            .and_then(|list| from_list(&list));
        let usable = |cpu: &usize| online.as_ref().is_none_or(|online| online.contains(cpu));
        let cpus: BTreeSet<usize> = allowed.iter().copied().filter(usable).collect();

        let list = |cpu: usize, file: &str| {
            let text = read_trimmed(&folder.join(format!("cpu{cpu}/{file}")));
            from_list(&text.ok()?)
        };
        let first = |cpu: usize, files: [&str; 2]| files.iter().find_map(|file| list(cpu, file));
        // Since Linux 5.3 the first of two files; before, the second.
        let core = ["topology/core_cpus_list", "topology/thread_siblings_list"];
        let package = ["topology/package_cpus_list", "topology/core_siblings_list"];
        // Caches are listed from the first level to the last.
        let last_level = |cpu: usize| {
            let mut levels = (0..CACHES_MAX).rev();
            levels.find_map(|index| list(cpu, &format!("cache/index{index}/shared_cpu_list")))
        };
        Cpus {
            cores: groups(&cpus, |cpu| first(cpu, core)),
            caches: groups(&cpus, last_level),
            packages: groups(&cpus, |cpu| first(cpu, package)),
            cpus: cpus.into_iter().collect(),
        }
    }

    /// CPU for work that communicates with work on the CPUs `taken`: on another core, and of those the highest among the nearest, because
    /// many machines with two sockets give them CPU numbers alternately. `None` if all CPUs are taken.
    pub fn further(&self, taken: &[usize]) -> Option<usize> {
        let free = self.cpus.iter().copied();
        let free = free.filter(|cpu| !taken.contains(cpu));
        let rank = |&cpu: &usize| {
            let shares = |groups: &[Vec<usize>]| {
                let mut groups = groups.iter();
                groups.any(|group| {
                    group.contains(&cpu) && taken.iter().any(|other| group.contains(other))
                })
            };
            let (cache, package) = (shares(&self.caches), shares(&self.packages));
            (!shares(&self.cores), cache, package, cpu)
        };
        free.max_by_key(rank)
    }
}

/// Caches of a CPU at most: L1 has two, and no CPU has more than four levels.
const CACHES_MAX: usize = 8;

/// Groups of these CPUs, ascending, by the list that each CPU has of its group.
fn groups(
    cpus: &BTreeSet<usize>,
    list_of: impl Fn(usize) -> Option<Vec<usize>>,
) -> Vec<Vec<usize>> {
    let group_of = |&cpu: &usize| {
        let mut group = list_of(cpu).unwrap_or_default();
        group.retain(|member| cpus.contains(member));
        match group.contains(&cpu) {
            true => group,
            false => vec![cpu],
        }
    };
    let groups: BTreeSet<Vec<usize>> = cpus.iter().map(group_of).collect();
    groups.into_iter().collect()
}

/// CPUs that are online. Empty if the kernel does not report them.
pub fn online() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    from_list(text.trim()).unwrap_or_default()
}

/// CPUs that this thread may run on, by sched_getaffinity, also beyond CPU 1023.
#[allow(unsafe_code, reason = "a set of CPUs longer than rustix has")]
pub fn allowed() -> Result<Vec<usize>, SystemError> {
    let mut words = vec![0_u64; 16];
    loop {
        // SAFETY: the kernel writes at most the given number of bytes into `words`.
        let done =
            unsafe { libc::sched_getaffinity(0, words.len() * 8, words.as_mut_ptr().cast()) };
        if done == 0 {
            break;
        }
        // EINVAL: the kernel's mask is longer than `words`.
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

/// Parses the kernel's list of CPUs, e.g. `0-3,8`. `None` if the text is no such list.
pub fn from_list(list: &str) -> Option<Vec<usize>> {
    let mut cpus = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        // No kernel has more CPUs; a damaged file must not produce a list of billions.
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

    #[test]
    fn the_kernels_files_give_groups_and_lacking_files_give_none() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("devices/system/cpu");
        let put = |file: String, text: &str| {
            let path = folder.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        for (cpu, siblings) in [(0, "0,2"), (1, "1,3"), (2, "0,2"), (3, "1,3")] {
            put(format!("cpu{cpu}/topology/thread_siblings_list"), siblings);
            put(format!("cpu{cpu}/topology/package_cpus_list"), "0-3");
            put(format!("cpu{cpu}/cache/index0/shared_cpu_list"), siblings);
        }
        for (cpu, shared) in [(0, "0-1"), (1, "0-1")] {
            put(format!("cpu{cpu}/cache/index3/shared_cpu_list"), shared);
        }
        put("online".into(), "0-2\n");
        let found = Cpus::of(root.path(), &[0, 1, 2, 3]);
        assert_eq!(found.cpus, [0, 1, 2]);
        assert_eq!(found.cores, [vec![0, 2], vec![1]]);
        assert_eq!(found.caches, [vec![0, 1], vec![0, 2]]);
        assert_eq!(found.packages, [vec![0, 1, 2]]);
        let further = [&[1][..], &[0], &[0, 2], &[0, 1, 2]].map(|taken| found.further(taken));
        assert_eq!(further, [Some(0), Some(1), Some(1), None]);

        let bare = Cpus::of(Path::new("/nonesuch"), &[4, 5]);
        for groups in [&bare.cores, &bare.caches, &bare.packages] {
            assert_eq!(*groups, [vec![4], vec![5]]);
        }
    }

    #[test]
    fn this_process_may_run_somewhere() {
        assert!(!Cpus::read(Path::new("/sys")).unwrap().cpus.is_empty());
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
