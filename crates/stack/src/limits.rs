//! What the host must allow before many connections are tried, checked before and not found out
//! at the twenty-thousandth.

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
        if *needed > *nr_open { format!(" after sysctl fs.nr_open={needed}") } else { String::new() }
    )]
    OpenFiles {
        /// Files needed at a time.
        needed: u64,
        /// The hard limit.
        have: u64,
        /// fs.nr_open, which caps any hard limit.
        nr_open: u64,
        /// What setrlimit answered.
        error: io::Error,
    },
    /// The flows cannot fit the memory that all of the host's TCP may take.
    #[error(
        "{flows} flows need at the least {needed_pages} pages of TCP memory here and tcp_mem \
         allows {high_pages}: sysctl net.ipv4.tcp_mem=\"LOW PRESSURE {needed_pages}\" or fewer flows"
    )]
    TcpMemory {
        /// Connections.
        flows: usize,
        /// Pages they take at the least.
        needed_pages: u64,
        /// The third number of net.ipv4.tcp_mem.
        high_pages: u64,
    },
}

/// Raises this process's RLIMIT_NOFILE to `needed`, if it is lower: the soft limit, and the hard
/// one too where the process may. An unlimited or higher limit is left alone.
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
        nr_open: number(Path::new("/proc/sys/fs/nr_open")).unwrap_or(u64::MAX),
        error: error.into(),
    })
}

/// Numbers of a file such as those under /proc/sys; `None` if it cannot be read.
fn numbers(path: &Path) -> Option<Vec<u64>> {
    fs::read_to_string(path)
        .ok()?
        .split_ascii_whitespace()
        .map(|word| word.parse().ok())
        .collect()
}

fn number(path: &Path) -> Option<u64> {
    numbers(path)?.first().copied()
}
