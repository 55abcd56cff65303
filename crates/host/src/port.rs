//! A device that is here or in the network namespace of another process, and how it comes back. [`crate::lend`] moves it there.

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

/// Where a device is, and what it has to be as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Whether it is in this network namespace.
    pub is_here: bool,
    /// Whether it is up.
    pub is_up: bool,
    /// Its global addresses with the lengths of their prefixes, in order.
    pub addresses: Vec<(IpAddr, u8)>,
    /// Whose it is for a time.
    pub borrower: Borrower,
}

/// A process in whose network namespace a device is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Borrower {
    /// The process.
    pub pid: u32,
    /// Inode of its namespace.
    pub netns: u64,
    /// The same namespace, held open by the process that moved the device.
    pub held: OpenFile,
}

/// An open file of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenFile {
    /// The process.
    pub pid: u32,
    /// Its number there.
    pub fd: u32,
}

/// Reads it. A device that is not here is no error: it is away.
///
/// # Errors
/// What the kernel said.
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
    /// Makes a device what it was, wherever it is now.
    ///
    /// # Errors
    /// ENODEV where it is gone.
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
    /// Takes a device out of the borrower's namespace once it has ended.
    fn give_back(&self, device: &str) -> Result<(), SystemError> {
        self.wait();
        let tried = || format!("take {device} back");
        let OpenFile { pid, fd } = self.held;
        let held = format!("/proc/{pid}/fd/{fd}");
        let of_process = format!("/proc/{}/ns/net", self.pid);
        // Without waiting: that number may be of a pipe by now.
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        for path in [held, of_process] {
            let Ok(namespace) = open(path, flags, Mode::empty()).map(File::from) else {
                continue;
            };
            // Numbers of processes and of open files come around.
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
        // The kernel gives a real device back some moments after its namespace has ended.
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

    /// Waits until the process has ended, or long enough.
    pub fn wait(&self) {
        let pid = i32::try_from(self.pid).ok().and_then(Pid::from_raw);
        let Some(Ok(process)) = pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else {
            return; // It has.
        };
        let timeout = Timespec::try_from(BORROWER_MAX).ok();
        let mut ended = [PollFd::new(&process, PollFlags::IN)];
        let _ = poll(&mut ended, timeout.as_ref());
    }
}

fn is_gone(error: &SystemError) -> bool {
    error.source.raw_os_error() == Some(libc::ENODEV)
}

/// An agent that puts back takes milliseconds.
const BORROWER_MAX: Duration = Duration::from_secs(5);
/// cleanup_net of net/core/net_namespace.c is a work item, which waits for RCU.
const KERNELS_MAX: Duration = Duration::from_secs(2);
const PAUSE: Duration = Duration::from_millis(10);
