//! Device that is here or in the network namespace of another process, and its return.
//! [`crate::lend`] moves it there.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::time::Timespec;
use serde::{Deserialize, Serialize};

use crate::error::SystemError;
use crate::namespace::NetworkOf;
use crate::{address, link};

/// State of a device: where it is, and what must be restored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// True if it is in this network namespace.
    pub is_here: bool,
    /// True if it is up.
    pub is_up: bool,
    /// Global addresses with the lengths of their prefixes, sorted.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Process that has the device for some time.
    pub borrower: Borrower,
}

/// Process whose network namespace has a device.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrower {
    /// Process id.
    pub pid: u32,
    /// Inode of its network namespace.
    pub netns: u64,
    /// Network namespace, held open by the process that moved the device.
    pub held: OpenFile,
}

/// Open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// Process id.
    pub pid: u32,
    /// File descriptor in that process.
    pub fd: u32,
}

/// Reads the state of a device. A device that is not here is no error.
///
/// # Errors
/// The kernel's error.
pub fn read(device: &str, borrower: &Borrower) -> Result<Port, SystemError> {
    let borrower = borrower.clone();
    match link::read(device) {
        Err(error) if is_gone(&error) => Ok(Port {
            is_here: false,
            is_up: false,
            addresses: Vec::new(),
            borrower,
        }),
        Err(error) => Err(error),
        Ok(link) => Ok(Port {
            is_here: true,
            is_up: link.up,
            addresses: addresses(device)?,
            borrower,
        }),
    }
}

fn addresses(device: &str) -> Result<Vec<(IpAddr, u8)>, SystemError> {
    let mut found = address::all(false)?;
    found.extend(address::all(true).unwrap_or_default());
    found.retain(|one| one.device == device && one.is_global);
    let mut found: Vec<_> = found.iter().map(|one| (one.address, one.prefix)).collect();
    found.sort_unstable();
    Ok(found)
}

impl Port {
    /// Restores the device's state, wherever it is now.
    ///
    /// # Errors
    /// ENODEV if it is gone.
    pub fn put_back(&self, device: &str) -> Result<(), SystemError> {
        if !read(device, &self.borrower)?.is_here {
            self.borrower.give_back(device)?;
        }
        let there = addresses(device)?;
        for &(address, prefix) in &self.addresses {
            if !there.contains(&(address, prefix)) {
                link::add_address(device, address, prefix)?;
            }
        }
        match self.is_up {
            true => link::set_up(device),
            false => link::set_down(device),
        }
    }
}

impl Borrower {
    /// Takes a device out of the borrower's namespace after the borrower has ended.
    fn give_back(&self, device: &str) -> Result<(), SystemError> {
        self.wait();
        let tried = || format!("take {device} back");
        let OpenFile { pid, fd } = self.held;
        let held = format!("/proc/{pid}/fd/{fd}");
        let of_process = format!("/proc/{}/ns/net", self.pid);
        // Non-blocking, because the descriptor may be a pipe's by now.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        for path in [held, of_process] {
            let Ok(namespace) = open(path, flags, Mode::empty()).map(File::from) else {
                continue;
            };
            // Numbers of processes and of descriptors are reused.
            if !namespace
                .metadata()
                .is_ok_and(|found| found.ino() == self.netns)
            {
                continue;
            }
            let network = NetworkOf::namespace(namespace);
            let own = NetworkOf::this_thread()?;
            return network.within(|| link::move_to_namespace(device, own.as_fd()))?;
        }
        // The kernel returns a real device some moments after its namespace has ended.
        let until = Instant::now() + KERNELS_MAX;
        while link::read(device).is_err() {
            if Instant::now() >= until {
                let error = io::Error::from_raw_os_error(libc::ENODEV);
                return Err(SystemError::new(tried(), error));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Waits until the process has ended, at most 5 s.
    pub fn wait(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
            return; // The process has ended.
        };
        let timeout = Timespec::try_from(BORROWER_MAX).ok();
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        let _ = poll(&mut ended, timeout.as_ref());
    }
}

fn is_gone(error: &SystemError) -> bool {
    error.source.raw_os_error() == Some(libc::ENODEV)
}

/// Limit of the wait for a borrower. An agent that restores settings takes milliseconds.
const BORROWER_MAX: Duration = Duration::from_secs(5);
/// Limit of the wait for the kernel: cleanup_net of net/core/net_namespace.c is a work item, which
/// waits for RCU.
const KERNELS_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
