//! Moves a device into the network namespace of another process for a time: the second of two ports of one host that are joined
//! by a cable.
//!
//! The kernel by itself gives a real device back to the first namespace when its own ends, down and without addresses; a virtual
//! one ends there. So who moves it holds that namespace open, and takes the device out of it.

use std::fs::File;
use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;

use tcpcost_study::DeviceName;

use crate::error::SystemError;
use crate::journal::{self, Journal};
use crate::namespace::NetworkOf;
use crate::port::{self, Borrower, OpenFile};
use crate::setting::Setting;
use crate::{link, route};

/// A device that was moved, and the namespace that it was moved to, held open.
#[derive(Debug)]
pub struct Lent {
    /// What the device had: it has none of it there.
    pub addresses: Vec<(IpAddr, u8)>,
    borrower: Borrower,
    namespace: File,
}

impl Lent {
    /// Waits until the borrower has ended, and puts back what it had changed of the device, if it was killed.
    ///
    /// # Errors
    /// The namespace cannot be entered, or something in it not be put back.
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
            Some(failed) => Err(SystemError::strange("put back for a dead agent", failed)),
        }
    }
}

/// Moves a device to the network namespace of a process, and notes in the journal what it was.
///
/// # Errors
/// There is no such device or process, it is the default route's, or it cannot be moved (EINVAL; EPERM).
pub fn lend(device: &DeviceName, pid: u32, journal: &mut Journal) -> Result<Lent, SystemError> {
    let tried = || format!("move {device} to the namespace of process {pid}");
    // Of documentation (RFC 5737): nobody has a route there but the default one.
    let default = route::describe(IpAddr::from([192, 0, 2, 1])).unwrap_or_default();
    let mut words = default.split_whitespace().skip_while(|word| *word != "dev");
    if words.nth(1) == Some(&**device) {
        return Err(SystemError::strange(
            tried(),
            "the default route is by it: another port is to be moved",
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
    Ok(Lent {
        addresses,
        borrower,
        namespace,
    })
}
