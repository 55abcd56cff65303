//! The tracepoints of the network's system calls, for perf_event_open(2): their numbers, by tracefs.
//!
//! tracefs need not be mounted, and is not mounted for this: a mount that is at no place in the file system is read
//! by its descriptor and goes with it. It needs CAP_SYS_ADMIN; without it tracefs must be where it is by default, and readable.
//!
//! A tracepoint of system calls costs: as long as one is enabled anywhere, every task's calls take the kernel's slow way in
//! and out (TIF_SYSCALL_TRACEPOINT), so they are counted on demand alone.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, fsconfig_create, fsmount, fsopen};
use tcpcost_counts::Quantity;

/// What can be counted here: number of the tracepoint and what it is a part of.
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
                // An architecture lacks some: arm64 has no epoll_wait.
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
            // Without the privilege to mount it, that is what is missing.
            .map_err(|refused| match refused {
                Errno::PERM => refused.into(),
                _ => error,
            }),
    }
}

/// Where it is mounted by default; an empty folder is a place for it alone.
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

/// read(2) and write(2) are not among them: whether they are of a socket a tracepoint does not tell.
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
