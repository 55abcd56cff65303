//! What our own eBPF programs cost: the kernel's run-time statistics of them.
//!
//! Statistics are on while a [`Programs`] lives and is not paused; they cost every program on the host two clock reads a run,
//! which is in the figure.

use std::fs;
use std::os::fd::{FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{BPF_STATS_RUN_TIME, bpf_enable_stats};
use libbpf_rs::query::ProgInfoIter;
use tcpcost_study::{Counts, Quantity, Snapshot, Whose};

use crate::{Meter, MeterError, snapshot_of};

/// The meter `programs`: [`Whose::Tcpcost`], the programs that this process holds now.
#[derive(Debug)]
pub struct Programs {
    ids: Vec<u32>,
    statistics: Option<OwnedFd>,
}

impl Programs {
    /// Turns statistics on. Load the other meters first.
    ///
    /// # Errors
    /// [`MeterError::Load`]: no privilege, or a kernel older than 5.8.
    pub fn new() -> Result<Programs, MeterError> {
        let statistics = statistics()?;
        let mut ids = held()?;
        ids.sort_unstable();
        ids.dedup();
        Ok(Programs {
            ids,
            statistics: Some(statistics),
        })
    }

    /// Turns statistics off: the programs rest, or their time is not asked for.
    pub fn pause(&mut self) {
        self.statistics = None;
    }

    /// Turns them on again.
    ///
    /// # Errors
    /// As [`Programs::new`].
    pub fn resume(&mut self) -> Result<(), MeterError> {
        self.statistics = Some(statistics()?);
        Ok(())
    }
}

/// Statistics are on while this is open.
fn statistics() -> Result<OwnedFd, MeterError> {
    // SAFETY: takes no pointers; what it returns is a new descriptor of ours or negative.
    unsafe {
        match bpf_enable_stats(BPF_STATS_RUN_TIME) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(MeterError::Load {
                    meter: METER,
                    reason: format!("turn statistics on: {error} (needs CAP_SYS_ADMIN)"),
                })
            }
        }
    }
}

impl Meter for Programs {
    fn name(&self) -> &'static str {
        METER
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let ours = ProgInfoIter::default().filter(|program| self.ids.contains(&program.id));
        let sum_ns = ours.map(|program| program.run_time_ns).sum();
        let counts = Counts::from([(Quantity::SelfProgramsNs, sum_ns)]);
        Ok(snapshot_of(METER, Whose::Tcpcost, counts))
    }
}

/// Ids of the programs behind this process's descriptors: programs and links.
fn held() -> Result<Vec<u32>, MeterError> {
    let path = "/proc/self/fdinfo";
    let files = fs::read_dir(path).map_err(|source| MeterError::Read {
        path: path.into(),
        source,
    })?;
    let texts = files.flatten().map(|file| fs::read_to_string(file.path()));
    Ok(texts.flatten().filter_map(|text| prog_id(&text)).collect())
}

/// The value of the line `prog_id:`.
fn prog_id(text: &str) -> Option<u32> {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("prog_id:"));
    values.next()?.trim().parse().ok()
}

const METER: &str = "programs";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_descriptor_of_a_link_names_its_program() {
        let link =
            "pos:\t0\nflags:\t02\nlink_type:\ttracing\nlink_id:\t3\nprog_tag:\tab\nprog_id:\t12\n";
        assert_eq!(prog_id(link), Some(12));
        assert_eq!(prog_id("pos:\t0\nprog_id:\tx\n"), None);
        assert_eq!(prog_id("pos:\t0\n"), None);
    }
}
