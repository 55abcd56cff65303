//! Memory before and after something is made, to measure what connections use. This is no meter of an
//! interval, because connections stay.
//!
//! The slab belongs to the machine, so other programs' allocations in between are included.

#![allow(unsafe_code, reason = "malloc_trim has no safe wrapper")]

use std::fs;
use std::path::Path;

/// Memory in use at an instant, in bytes. Values that cannot be read are `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryUse {
    /// Memory of this process in RAM: the second number of /proc/self/statm.
    pub process_bytes: Option<u64>,
    /// Memory of the kernel's objects, including sockets: /proc/meminfo `Slab`.
    pub slab_bytes: Option<u64>,
    /// Memory in TCP's queues: /proc/net/sockstat `TCP: ... mem`.
    pub tcp_bytes: Option<u64>,
}

impl MemoryUse {
    /// Reads the values below `proc`, which is `/proc` except in tests.
    pub fn read(proc: &Path) -> MemoryUse {
        let text = |path: &str| fs::read_to_string(proc.join(path)).ok();
        let page = rustix::param::page_size() as u64;
        let number = |word: Option<&str>| word?.parse::<u64>().ok();
        let after = |text: &str, word: &str| {
            let mut words = text.split_ascii_whitespace();
            words.find(|&found| found == word)?;
            number(words.next())
        };
        let tcp = |text: String| {
            let line = text.lines().find(|line| line.starts_with("TCP:"))?;
            after(line, "mem")
        };
        MemoryUse {
            process_bytes: text("self/statm")
                .and_then(|text| number(text.split_ascii_whitespace().nth(1)))
                .map(|pages| pages * page),
            slab_bytes: text("meminfo")
                .and_then(|text| after(&text, "Slab:"))
                .map(|kib| kib * 1024),
            tcp_bytes: text("net/sockstat").and_then(tcp).map(|pages| pages * page),
        }
    }

    /// Growth of all values since `before`; 0 if a value shrank.
    pub fn since(self, before: MemoryUse) -> MemoryUse {
        let growth = |now: Option<u64>, then: Option<u64>| Some(now?.saturating_sub(then?));
        MemoryUse {
            process_bytes: growth(self.process_bytes, before.process_bytes),
            slab_bytes: growth(self.slab_bytes, before.slab_bytes),
            tcp_bytes: growth(self.tcp_bytes, before.tcp_bytes),
        }
    }
}

/// Returns freed memory of this process to the kernel, so that later allocations do not reuse it.
pub fn give_back_freed() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time; it takes the allocator's own locks.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_read_where_the_kernel_shows_it_and_else_absent() {
        let proc = tempfile::tempdir().unwrap();
        assert_eq!(MemoryUse::read(proc.path()), MemoryUse::default());
        let page = rustix::param::page_size() as u64;
        for folder in ["self", "net"] {
            fs::create_dir(proc.path().join(folder)).unwrap();
        }
        for (path, text) in [
            ("self/statm", "900 20 3 4 5 6 7\n"),
            ("meminfo", "MemTotal: 9 kB\nSlab:             300 kB\n"),
            (
                "net/sockstat",
                "UDP: inuse 1 mem 7\nTCP: inuse 5 orphan 0 mem 100\n",
            ),
        ] {
            fs::write(proc.path().join(path), text).unwrap();
        }
        let read = MemoryUse::read(proc.path());
        let expected = MemoryUse {
            process_bytes: Some(20 * page),
            slab_bytes: Some(300 * 1024),
            tcp_bytes: Some(100 * page),
        };
        assert_eq!(read, expected);
        assert_eq!(read.since(read).process_bytes, Some(0));
        assert_eq!(read.since(MemoryUse::default()), MemoryUse::default());
    }

    /// The other tests of this process free memory meanwhile, so it may need several tries.
    #[test]
    fn what_is_taken_and_touched_shows() {
        let grown = || {
            give_back_freed();
            let before = MemoryUse::read(Path::new("/proc"));
            let taken = vec![1u8; 32 << 20];
            let after = MemoryUse::read(Path::new("/proc")).since(before);
            assert_eq!(std::hint::black_box(taken).len(), 32 << 20);
            after.process_bytes.unwrap()
        };
        assert!((0..20).any(|_| grown() > 16 << 20));
    }
}
