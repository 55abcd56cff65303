//! Cost of our own eBPF programs, by the kernel's run-time statistics.
//!
//! Statistics are on while a [`Programs`] lives and is not paused. Each run of every program on the host then
//! takes two clock reads, which are included in the figure.

#![allow(unsafe_code, reason = "calls of libbpf")]

use std::fs;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use libbpf_rs::libbpf_sys::{
    BPF_STATS_RUN_TIME, bpf_enable_stats, bpf_obj_get_info_by_fd, bpf_prog_get_fd_by_id,
    bpf_prog_info,
};
use tcpcost_counts::{CountOwner, Counts, MeterName, Quantity, Snapshot};

use crate::bpf::{Idle, Pausable};
use crate::{Meter, MeterError, Needs, snapshot_of};

/// The meter `programs`: [`CountOwner::Tcpcost`], the programs that this process held when it was made.
#[derive(Debug)]
pub struct Programs {
    programs: Vec<OwnedFd>,
    statistics: Option<OwnedFd>,
}

impl Programs {
    /// Turns statistics on. The other meters must be loaded first.
    ///
    /// # Errors
    /// [`MeterError::Unavailable`]: a privilege is missing, or the kernel is older than 5.8.
    pub fn new() -> Result<Programs, MeterError> {
        let statistics = statistics()?;
        let mut ids = held()?;
        ids.sort_unstable();
        ids.dedup();
        let programs = ids.into_iter().map(open).collect::<Result<_, _>>()?;
        Ok(Programs {
            programs,
            statistics: Some(statistics),
        })
    }
}

/// Turns statistics off while the programs are idle.
impl Pausable for Programs {
    fn pause(&mut self, _: Idle) {
        self.statistics = None;
    }

    fn resume(&mut self) -> Result<(), MeterError> {
        if self.statistics.is_none() {
            self.statistics = Some(statistics()?);
        }
        Ok(())
    }
}

/// Turns statistics on as long as the descriptor is open.
fn statistics() -> Result<OwnedFd, MeterError> {
    // SAFETY: takes no pointers; what it returns is a new descriptor of ours or negative.
    unsafe {
        match bpf_enable_stats(BPF_STATS_RUN_TIME) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => {
                let error = std::io::Error::last_os_error();
                Err(MeterError::Unavailable {
                    meter: METER,
                    tried: "turn statistics on".to_string(),
                    source: Some(error),
                    needs: Some(Needs::Capabilities("CAP_SYS_ADMIN")),
                })
            }
        }
    }
}

impl Meter for Programs {
    fn name(&self) -> MeterName {
        METER
    }

    fn snapshot(&mut self) -> Result<Snapshot, MeterError> {
        let (mut sum_ns, mut runs) = (0, 0);
        for program in &self.programs {
            let info = info(program)?;
            sum_ns += info.run_time_ns;
            runs += info.run_cnt;
        }
        let counts = Counts::from([
            (Quantity::SelfProgramsNs, sum_ns),
            (Quantity::SelfProgramRuns, runs),
        ]);
        Ok(snapshot_of(METER, CountOwner::Tcpcost, counts))
    }
}

/// Opens a program by its id. Iterating over all programs of a host would take longer the more others there
/// are.
fn open(id: u32) -> Result<OwnedFd, MeterError> {
    // SAFETY: takes no pointers; what it returns is a new descriptor of ours or negative.
    unsafe {
        match bpf_prog_get_fd_by_id(id) {
            fd if fd >= 0 => Ok(OwnedFd::from_raw_fd(fd)),
            _ => Err(failed("open of an eBPF program")),
        }
    }
}

fn info(program: &OwnedFd) -> Result<bpf_prog_info, MeterError> {
    // SAFETY: an all-zero bpf_prog_info asks for no array; the kernel writes no more than `length` of it.
    unsafe {
        let mut info: bpf_prog_info = std::mem::zeroed();
        let mut length = size_of::<bpf_prog_info>() as u32;
        let pointer = (&raw mut info).cast();
        match bpf_obj_get_info_by_fd(program.as_raw_fd(), pointer, &raw mut length) {
            0 => Ok(info),
            _ => Err(failed("information on an eBPF program")),
        }
    }
}

fn failed(call: &'static str) -> MeterError {
    let source = std::io::Error::last_os_error();
    MeterError::Call { call, source }
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

/// Value of the line `prog_id:`.
fn prog_id(text: &str) -> Option<u32> {
    let mut values = text
        .lines()
        .filter_map(|line| line.strip_prefix("prog_id:"));
    values.next()?.trim().parse().ok()
}

const METER: MeterName = MeterName::Programs;

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
