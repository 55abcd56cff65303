//! Tracepoints of the network's system calls for perf_event_open(2): their numbers, from tracefs.
//!
//! tracefs need not be mounted in the file system. A detached mount is read by its descriptor and ends with
//! it. That needs CAP_SYS_ADMIN; without it, tracefs must be readable at its default place.
//!
//! A tracepoint of system calls costs time: as long as one is enabled anywhere, the calls of every task take
//! the kernel's slow path (TIF_SYSCALL_TRACEPOINT). So they are counted only on demand.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use tcpcost_counts::Quantity;

/// Tracepoints that exist here, with the quantity that each belongs to.
///
/// # Errors
/// tracefs cannot be read, or has no tracepoints of system calls.
pub(crate) fn tracepoints() -> io::Result<Vec<(u64, Quantity)>> {
    let tracefs = tracefs()?;
    let mut found = Vec::new();
    for &(quantity, calls) in CALLS {
        for call in calls {
            match number(&tracefs, call) {
                Ok(number) => found.push((number, quantity)),
                // An architecture lacks some calls: arm64 has no epoll_wait.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    match found.is_empty() {
        true => Err(io::Error::from_raw_os_error(libc::ENOENT)),
        false => Ok(found),
    }
}

fn tracefs() -> io::Result<OwnedFd> {
    match mounted() {
        Ok(root) => Ok(root),
        Err(error) => fsopen("tracefs", FsOpenFlags::FSOPEN_CLOEXEC)
            .and_then(|context| {
                fsconfig_create(context.as_fd())?;
                let flags = FsMountFlags::FSMOUNT_CLOEXEC;
                fsmount(context.as_fd(), flags, MountAttrFlags::MOUNT_ATTR_RDONLY)
            })
            // If the privilege to mount is missing, that is the error to report.
            .map_err(|refused| match refused {
                Errno::PERM => refused.into(),
                _ => error,
            }),
    }
}

/// Opens the default mount point. Fails if the folder is empty because nothing is mounted there.
fn mounted() -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, "/sys/kernel/tracing", flags, Mode::empty())?;
    openat(&root, "events/syscalls", flags, Mode::empty())?;
    Ok(root)
}

fn number(tracefs: &OwnedFd, call: &str) -> io::Result<u64> {
    let path = format!("events/syscalls/sys_enter_{call}/id");
    let mut text = String::new();
    let file = openat(
        tracefs,
        path,
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )?;
    File::from(file).read_to_string(&mut text)?;
    let number = text.trim().parse();
    number.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "no number"))
}

/// System calls by quantity. read(2) and write(2) are missing, because a tracepoint does not show whether
/// they are on a socket.
const CALLS: &[(Quantity, &[&str])] = &[
    (
        Quantity::SendSystemCalls,
        &["sendto", "sendmsg", "sendmmsg"],
    ),
    (
        Quantity::ReceiveSystemCalls,
        &["recvfrom", "recvmsg", "recvmmsg"],
    ),
    (
        Quantity::SendfileSystemCalls,
        &["sendfile64", "sendfile", "splice"],
    ),
    (Quantity::ConnectSystemCalls, &["connect"]),
    (Quantity::AcceptSystemCalls, &["accept", "accept4"]),
    (
        Quantity::PollSystemCalls,
        &[
            "epoll_wait",
            "epoll_pwait",
            "epoll_pwait2",
            "poll",
            "ppoll",
            "select",
            "pselect6",
        ],
    ),
    (Quantity::IoUringSystemCalls, &["io_uring_enter"]),
];
