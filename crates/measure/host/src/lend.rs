//! Move of a device into the network namespace of another process for some time: the second of two
//! ports of one host that are connected by a cable.
//!
//! When that namespace ends, the kernel returns a real device to the first namespace, down and
//! without addresses; a virtual device is destroyed. The process that moves the device therefore
//! holds the namespace open, and takes the device back out of it.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use tcpcost_knobs::DeviceName;

use crate::error::SystemError;
use crate::journal::{self, Journal};
use crate::namespace::NetworkOf;
use crate::port::{self, Borrower, OpenFile};
use crate::setting::Setting;
use crate::{link, route};

/// Device that was moved, with the namespace it was moved to, held open.
#[derive(Debug)]
pub struct LentDevice {
    /// Addresses that the device had, with prefix lengths. It has none of them there.
    pub addresses: Vec<(IpAddr, u8)>,
    borrower: Borrower,
    namespace: File,
}

impl LentDevice {
    /// Waits until the borrower has ended. If it was killed, restores what it had changed of the
    /// device.
    ///
    /// # Errors
    /// The namespace cannot be entered, or a setting in it cannot be restored.
    pub fn settle(&self) -> Result<(), SystemError> {
        self.borrower.wait();
        let Ok(folder) = journal::folder() else {
            return Ok(());
        };
        let namespace = self.namespace.try_clone();
        let namespace = namespace.map_err(|error| SystemError::new("hold a namespace", error))?;
        let network = NetworkOf::namespace(namespace);
        let restored = network.within(|| journal::restore(&folder))??;
        match restored.failed.first() {
            None => Ok(()),
            Some(failed) => Err(SystemError::strange(
                "restore settings of a dead agent",
                failed,
            )),
        }
    }
}

/// Moves a device to the network namespace of a process, and notes its former state in the journal.
///
/// # Errors
/// No such device or process; the device of the default route; or it cannot be moved (EINVAL;
/// EPERM).
pub fn lend(
    device: &DeviceName,
    pid: u32,
    journal: &mut Journal,
) -> Result<LentDevice, SystemError> {
    let tried = || format!("move {device} to the namespace of process {pid}");
    // Documentation address (RFC 5737): only the default route leads there.
    let default = route::describe(IpAddr::from([192, 0, 2, 1])).unwrap_or_default();
    let mut words = default.split_whitespace().skip_while(|word| *word != "dev");
    if words.nth(1) == Some(&**device) {
        return Err(SystemError::strange(
            tried(),
            "the default route uses it: move another port",
        ));
    }
    let path = format!("/proc/{pid}/ns/net");
    let failed = |error| SystemError::new(format!("open {path}"), error);
    let namespace = File::open(&path).map_err(failed)?;
    let held = OpenFile {
        pid: std::process::id(),
        fd: namespace.as_raw_fd().cast_unsigned(),
    };
    let borrower = Borrower {
        pid,
        netns: namespace.metadata().map_err(failed)?.ino(),
        held,
    };
    let former = port::read(device, &borrower)?;
    if !former.is_here {
        let error = io::Error::from_raw_os_error(libc::ENODEV);
        return Err(SystemError::new(tried(), error));
    }
    let addresses = former.addresses.clone();
    journal.note(Setting::Port {
        device: device.clone(),
        port: former,
    })?;
    link::move_to(device, pid)?;
    Ok(LentDevice {
        addresses,
        borrower,
        namespace,
    })
}
