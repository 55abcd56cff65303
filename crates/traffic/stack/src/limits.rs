//! Limits of the host, checked before many connections are tried.

use std::fs;
use std::io;
use std::path::Path;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// A limit that is too low, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum LimitError {
    /// RLIMIT_NOFILE cannot be raised far enough.
    #[error(
        "{needed} open files are needed, {have} are allowed ({error}): run as root, \
         or raise the hard limit (ulimit -Hn {needed}; LimitNOFILE= in a systemd unit){}",
        if needed > nr_open { format!(" after sysctl fs.nr_open={needed}") } else { String::new() }
    )]
    OpenFiles {
        /// Open files needed at a time.
        needed: u64,
        /// Hard limit.
        have: u64,
        /// fs.nr_open, which caps any hard limit.
        nr_open: u64,
        /// Error of setrlimit.
        error: io::Error,
    },
    /// The flows need more memory than all of the host's TCP may use.
    #[error(
        "{flows} flows need at least {needed_pages} pages of TCP memory on this host in addition to \
         {used_pages} in use; the limit is {high_pages}: use fewer flows, or set \
         sysctl net.ipv4.tcp_mem with a third number of {} or more",
        needed_pages + used_pages
    )]
    TcpMemory {
        /// Connections.
        flows: usize,
        /// Pages that the connections need at least.
        needed_pages: u64,
        /// Pages in use now.
        used_pages: u64,
        /// Third number of net.ipv4.tcp_mem.
        high_pages: u64,
    },
}

/// Limit of connections from one client address to one server port. The usual range of local ports
/// (net.ipv4.ip_local_port_range) has 28,232, and connect searches it longer the fuller it is.
pub const FLOWS_PER_PORT: usize = 20_000;

/// Server ports that this many connections need between two addresses.
pub fn ports_for(flows: usize) -> usize {
    flows.div_ceil(FLOWS_PER_PORT).max(1)
}

/// Raises this process's RLIMIT_NOFILE to `needed` if it is lower: the soft limit, and the hard
/// limit if permitted. A connection takes one file at each end; add some tens for other files.
///
/// # Errors
/// The hard limit is lower and may not be raised.
pub fn raise_open_files(needed: usize) -> Result<(), LimitError> {
    let needed = needed as u64;
    let have = getrlimit(Resource::Nofile);
    if have.current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    let wanted = Rlimit {
        current: Some(needed),
        maximum: have.maximum.map(|hard| hard.max(needed)),
    };
    setrlimit(Resource::Nofile, wanted).map_err(|error| LimitError::OpenFiles {
        needed,
        have: have.maximum.unwrap_or(u64::MAX),
        nr_open: numbers(Path::new("/proc/sys/fs/nr_open"))
            .and_then(|numbers| numbers.first().copied())
            .unwrap_or(u64::MAX),
        error: error.into(),
    })
}

/// The kernel's limits on TCP in this thread's network namespace. A limit that cannot be read is
/// `None` and is not checked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TcpLimits {
    /// net.core.somaxconn: caps every listen queue.
    pub somaxconn: Option<u64>,
    /// net.ipv4.tcp_max_syn_backlog.
    pub max_syn_backlog: Option<u64>,
    /// Second number of net.ipv4.tcp_mem: pages above which windows shrink.
    pub memory_pressure_pages: Option<u64>,
    /// Third number of net.ipv4.tcp_mem: pages above which segments are dropped.
    pub memory_high_pages: Option<u64>,
    /// Pages in use by all of the host's TCP (/proc/net/sockstat `TCP: ... mem`).
    pub memory_used_pages: Option<u64>,
}

impl TcpLimits {
    /// Reads the limits under `proc`, which is `/proc` except in tests.
    pub fn read(proc: &Path) -> TcpLimits {
        let first = |path: &str| numbers(&proc.join(path))?.first().copied();
        let memory = numbers(&proc.join("sys/net/ipv4/tcp_mem")).unwrap_or_default();
        TcpLimits {
            somaxconn: first("sys/net/core/somaxconn"),
            max_syn_backlog: first("sys/net/ipv4/tcp_max_syn_backlog"),
            memory_pressure_pages: memory.get(1).copied(),
            memory_high_pages: memory.get(2).copied(),
            memory_used_pages: fs::read_to_string(proc.join("net/sockstat"))
                .ok()
                .and_then(|text| used_pages(&text)),
        }
    }

    /// Checks that a listen queue and a SYN queue hold `outstanding` connects at a time. Returns a
    /// warning that says what will happen otherwise.
    pub fn check_backlog(&self, outstanding: usize) -> Option<String> {
        let outstanding = outstanding as u64;
        // Without SYN cookies a SYN is dropped once 3/4 of the SYN queue are taken.
        let rows = [
            ("net.core.somaxconn", self.somaxconn, 1.0),
            ("net.ipv4.tcp_max_syn_backlog", self.max_syn_backlog, 0.75),
        ];
        rows.into_iter().find_map(|(name, limit, share)| {
            let limit = limit?;
            let needed = (outstanding as f64 / share).ceil() as u64;
            (limit < needed).then(|| {
                format!(
                    "{outstanding} connects at a time overflow {name} = {limit}: some come up a \
                     second late; sysctl {name}={needed} or more"
                )
            })
        })
    }

    /// Checks that TCP's memory can hold `flows` connections with `queues` full queues each on this
    /// host. There is a queue for a sending end and one for a receiving end: 2 for a stream that
    /// has both its ends here, 4 if it goes both ways. A queue takes at least a page. Returns a
    /// warning if queues of 64 KiB, one write of the default size, would exceed the pressure limit.
    ///
    /// # Errors
    /// One page for each queue exceeds the hard limit.
    pub fn check_memory(&self, flows: usize, queues: u64) -> Result<Option<String>, LimitError> {
        let used_pages = self.memory_used_pages.unwrap_or(0);
        let needed_pages = flows as u64 * queues;
        if let Some(high_pages) = self.memory_high_pages
            && used_pages + needed_pages > high_pages
        {
            return Err(LimitError::TcpMemory {
                flows,
                needed_pages,
                used_pages,
                high_pages,
            });
        }
        let wanted_pages = needed_pages * (64 << 10) / rustix::param::page_size() as u64;
        Ok(self
            .memory_pressure_pages
            .filter(|pressure| used_pages + wanted_pages > *pressure)
            .map(|pressure| {
                format!(
                    "{flows} flows with 64 KiB in each queue are {wanted_pages} pages of TCP \
                     memory, tcp_mem's pressure starts at {pressure}: the kernel will shrink \
                     windows; sysctl net.ipv4.tcp_mem, or smaller socket buffers"
                )
            }))
    }
}

/// Numbers of a file such as those under /proc/sys; `None` if it cannot be read.
fn numbers(path: &Path) -> Option<Vec<u64>> {
    fs::read_to_string(path)
        .ok()?
        .split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

fn used_pages(sockstat: &str) -> Option<u64> {
    let line = sockstat
        .lines()
        .find_map(|line| line.strip_prefix("TCP: "))?;
    let mut words = line.split_ascii_whitespace();
    words.find(|&word| word == "mem")?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small_host() -> TcpLimits {
        let proc = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let path = proc.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("sys/net/core/somaxconn", "128\n");
        write("sys/net/ipv4/tcp_max_syn_backlog", "64\n");
        write("sys/net/ipv4/tcp_mem", "1000\t20000\t30000\n");
        write(
            "net/sockstat",
            "sockets: used 9\nTCP: inuse 5 orphan 0 tw 0 alloc 6 mem 100\nUDP: inuse 1 mem 7\n",
        );
        TcpLimits::read(proc.path())
    }

    #[test]
    fn limits_are_read_where_the_kernel_shows_them() {
        let expected = TcpLimits {
            somaxconn: Some(128),
            max_syn_backlog: Some(64),
            memory_pressure_pages: Some(20_000),
            memory_high_pages: Some(30_000),
            memory_used_pages: Some(100),
        };
        assert_eq!(small_host(), expected);
    }

    #[test]
    fn what_cannot_be_read_is_absent_and_refuses_nothing() {
        let unknown = TcpLimits::read(Path::new("/nonexistent"));
        assert_eq!(unknown, TcpLimits::default());
        assert_eq!(unknown.check_backlog(1 << 20), None);
        assert!(unknown.check_memory(1 << 20, 4).unwrap().is_none());
    }

    #[test]
    fn a_small_queue_is_a_warning_with_the_number_to_set() {
        assert_eq!(small_host().check_backlog(48), None);
        let warning = small_host().check_backlog(64).unwrap();
        assert!(warning.ends_with("sysctl net.ipv4.tcp_max_syn_backlog=86 or more"));
        let warning = small_host().check_backlog(129).unwrap();
        assert!(warning.contains("net.core.somaxconn = 128"));
    }

    #[test]
    fn memory_that_cannot_hold_a_page_per_queue_is_an_error() {
        let host = small_host();
        assert!(host.check_memory(500, 2).unwrap().is_none());
        let warning = host.check_memory(10_000, 2).unwrap().unwrap();
        assert!(warning.contains("pressure starts at 20000"), "{warning}");
        let error = host.check_memory(15_000, 2).unwrap_err().to_string();
        assert!(error.ends_with("third number of 30100 or more"), "{error}");
    }

    #[test]
    fn ports_follow_flows() {
        assert_eq!([1, 20_000, 20_001, 30_000].map(ports_for), [1, 1, 2, 2]);
    }

    #[test]
    fn more_files_than_any_process_may_have_is_an_error_that_says_what_to_do() {
        let error = raise_open_files(1 << 40).unwrap_err().to_string();
        assert!(
            error.starts_with("1099511627776 open files are needed"),
            "{error}"
        );
        assert!(error.contains("sysctl fs.nr_open=1099511627776"), "{error}");
        raise_open_files(1).unwrap();
    }
}
