//! CPUs of this host, and the siblings among them.

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

        let mut cores = BTreeSet::new();
        for &cpu in &cpus {
            let topology = folder.join(format!("cpu{cpu}/topology"));
            // Since Linux 5.3 the file is core_cpus_list; before, it had its older name.
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
        Cpus {
            cpus: cpus.into_iter().collect(),
            cores: cores.into_iter().collect(),
        }
    }
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

    fn cpus(cores: &[&[usize]]) -> Cpus {
        let mut cpus: Vec<usize> = cores.concat();
        cpus.sort_unstable();
        Cpus {
            cpus,
            cores: cores.iter().map(|core| core.to_vec()).collect(),
        }
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
        let found = Cpus::of(root.path(), &[0, 1, 2, 3]);
        assert_eq!(found, cpus(&[&[0, 2], &[1]]));
        let bare = Cpus::of(Path::new("/nonesuch"), &[4, 5]);
        assert_eq!(bare, cpus(&[&[4], &[5]]));
        assert!(bare.cores.iter().all(|core| core.len() == 1));
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
