//! Network namespaces without a name: a process moves itself into a new one.
//!
//! Nothing is bound into the file system, so nothing can be left behind: the kernel removes the
//! namespace, its veth, qdiscs, routes and sysctls with the last process in it, even after kill -9.
//!
//! Call these functions before the process starts any thread: `unshare` moves only the calling
//! thread, and refuses a user namespace to a process with several threads.

#![allow(
    unsafe_code,
    reason = "unshare, mount and fork: what is safe of them depends on who calls"
)]

use std::ffi::CStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::process::{getegid, geteuid};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::SystemError;
use crate::link;

/// Way to make namespaces here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NamespaceMethod {
    /// Call [`enter_new`]: the process has CAP_SYS_ADMIN.
    Privileged,
    /// Call [`enter_user_namespace`], then [`enter_new`]. In a user namespace the kernel refuses to
    /// steer receive work (RPS).
    UserNamespace,
}

/// Moves the calling thread into a new network and mount namespace and sets `lo` up.
///
/// /sys is mounted anew, because a sysfs shows the devices of the namespace in which it was
/// mounted, and rps_cpus is set there. Processes started later are in the same namespaces.
///
/// # Errors
/// EPERM without CAP_SYS_ADMIN in the user namespace; see [`can_make_namespaces`].
pub fn enter_new() -> Result<(), SystemError> {
    enter_new_network()?;
    // SAFETY: unshare takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNS) } != 0 {
        return Err(SystemError::last("make a mount namespace"));
    }
    if !mount_sysfs() {
        return Err(SystemError::last("mount /sys of the new namespace"));
    }
    Ok(())
}

/// Moves the calling thread into a new network namespace and sets `lo` up. /sys still shows the
/// devices of the former namespace.
///
/// # Errors
/// Those of [`enter_new`].
pub fn enter_new_network() -> Result<(), SystemError> {
    // SAFETY: unshare takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        return Err(SystemError::last("make a network namespace"));
    }
    link::set_up("lo")
}

/// Moves the calling process into a user namespace in which it is root, so that it may make network
/// namespaces without being root outside.
///
/// # Errors
/// The setting of this host that forbids it, and a remedy; EINVAL in a process with several
/// threads.
pub fn enter_user_namespace() -> Result<(), SystemError> {
    enter_user_namespace_as(0, 0)
}

/// Moves the calling process into a user namespace, but keeps its user and group: this process has
/// all capabilities there, and the programs that it starts have none.
///
/// # Errors
/// Those of [`enter_user_namespace`].
pub fn enter_user_namespace_as_self() -> Result<(), SystemError> {
    enter_user_namespace_as(geteuid().as_raw(), getegid().as_raw())
}

fn enter_user_namespace_as(inner_uid: u32, inner_gid: u32) -> Result<(), SystemError> {
    let (uid, gid) = (geteuid().as_raw(), getegid().as_raw());
    // SAFETY: unshare takes no pointers.
    if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
        let error = io::Error::last_os_error();
        let why = why_not(Path::new("/proc/sys"));
        return Err(SystemError::new(
            format!("make a user namespace{why}"),
            error,
        ));
    }
    let put = |file: &str, text: String| {
        fs::write(file, text).map_err(|error| SystemError::new(format!("write {file}"), error))
    };
    // user_namespaces(7): without "deny" an unprivileged process may not map its group.
    put("/proc/self/setgroups", "deny".into())?;
    put("/proc/self/uid_map", format!("{inner_uid} {uid} 1"))?;
    put("/proc/self/gid_map", format!("{inner_gid} {gid} 1"))
}

/// Tries in a child process whether namespaces can be made here, and in which way.
///
/// # Errors
/// The kernel's error, with a remedy.
pub fn can_make_namespaces() -> Result<NamespaceMethod, SystemError> {
    const NETWORK: libc::c_int = libc::CLONE_NEWNET | libc::CLONE_NEWNS;
    if tried_in_child(&[NETWORK]).is_ok() {
        return Ok(NamespaceMethod::Privileged);
    }
    // In two steps, because Ubuntu's AppArmor grants the first and refuses the second.
    match tried_in_child(&[libc::CLONE_NEWUSER, NETWORK]) {
        Ok(()) => Ok(NamespaceMethod::UserNamespace),
        Err(error) => {
            let why = why_not(Path::new("/proc/sys"));
            let tried = format!("make a network namespace{why}");
            Err(SystemError::new(tried, error))
        }
    }
}

/// Network namespace of the calling thread: its inode, as in `ls -l /proc/PID/ns/net`.
pub fn inode() -> Result<u64, SystemError> {
    fs::metadata(THREADS_OWN)
        .map(|metadata| metadata.ino())
        .map_err(|error| SystemError::new(format!("read {THREADS_OWN}"), error))
}

/// Network namespace that can be entered.
#[derive(Debug)]
pub struct NetworkOf {
    /// File of the namespace, held open.
    target: File,
}

impl NetworkOf {
    /// Opens the namespace of a process. `None` if it is the calling thread's own.
    ///
    /// # Errors
    /// No such process, or this user may not see it.
    pub fn process(pid: u32) -> Result<Option<NetworkOf>, SystemError> {
        let (target, own) = (open(&format!("/proc/{pid}/ns/net"))?, open(THREADS_OWN)?);
        let inode = |file: &File| file.metadata().map(|metadata| metadata.ino()).ok();
        Ok((inode(&target) != inode(&own)).then_some(NetworkOf { target }))
    }

    /// Opens a namespace by a process id, a name below /run/netns (where `ip netns` puts it), or a
    /// path.
    ///
    /// # Errors
    /// No such namespace, or this user may not see it.
    pub fn named(text: &str) -> Result<NetworkOf, SystemError> {
        open(&path(text)).map(NetworkOf::namespace)
    }

    /// Wraps a namespace that is open.
    pub fn namespace(target: File) -> NetworkOf {
        NetworkOf { target }
    }

    /// Opens the calling thread's namespace, for another thread to enter.
    ///
    /// # Errors
    /// /proc is missing.
    pub fn this_thread() -> Result<NetworkOf, SystemError> {
        open(THREADS_OWN).map(NetworkOf::namespace)
    }

    /// Runs `work` in the namespace, on the calling thread, which then returns to its own
    /// namespace.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN.
    ///
    /// # Panics
    /// If the thread cannot return. The kernel does not refuse that to a thread that could leave.
    pub fn within<T>(&self, work: impl FnOnce() -> T) -> Result<T, SystemError> {
        let own = NetworkOf::this_thread()?;
        self.enter()?;
        let done = work();
        own.enter().expect("who may leave a namespace may enter it");
        Ok(done)
    }

    /// Moves the calling thread into the namespace; threads that it starts later are there, too.
    ///
    /// # Errors
    /// EPERM without CAP_SYS_ADMIN; EINVAL for a file that is no network namespace.
    pub fn enter(&self) -> Result<(), SystemError> {
        let kind = Some(LinkNameSpaceType::Network);
        move_into_link_name_space(self.target.as_fd(), kind)
            .map_err(|error| SystemError::new("enter a network namespace", error.into()))
    }
}

/// Path of a network namespace, from a process id, a name below /run/netns, or a path.
pub fn path(text: &str) -> String {
    let is_pid = text.bytes().all(|byte| byte.is_ascii_digit()) && !text.is_empty();
    match is_pid {
        _ if text.contains('/') => text.to_string(),
        true => format!("/proc/{text}/ns/net"),
        false => format!("/run/netns/{text}"),
    }
}

impl AsFd for NetworkOf {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.target.as_fd()
    }
}

fn open(path: &str) -> Result<File, SystemError> {
    File::open(path).map_err(|error| SystemError::new(format!("open {path}"), error))
}

const THREADS_OWN: &str = "/proc/thread-self/ns/net";

fn tried_in_child(steps: &[libc::c_int]) -> io::Result<()> {
    // SAFETY: the child calls only unshare, mount and _exit, which are safe after fork even in a
    // process with several threads, and it allocates nothing.
    let child = unsafe { libc::fork() };
    if child < 0 {
        return Err(io::Error::last_os_error());
    }
    if child == 0 {
        // SAFETY: unshare takes no pointers.
        let done = steps
            .iter()
            .all(|&flags| unsafe { libc::unshare(flags) } == 0)
            && mount_sysfs();
        // SAFETY: ends the child at once. errno is this thread's own, and fits eight bits.
        unsafe { libc::_exit(if done { 0 } else { *libc::__errno_location() }) }
    }
    let mut status = 0;
    loop {
        // SAFETY: `status` outlives the call; `child` is ours and not yet waited for.
        if unsafe { libc::waitpid(child, &mut status, 0) } == child {
            break;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
    match libc::WEXITSTATUS(status) {
        0 if libc::WIFEXITED(status) => Ok(()),
        code if libc::WIFEXITED(status) => Err(io::Error::from_raw_os_error(code)),
        _ => Err(io::Error::other("the child that tried was killed")),
    }
}

/// Setting that forbids user namespaces, with a remedy. Empty if no setting does.
fn why_not(sysctl_root: &Path) -> String {
    let is = |name: &str, bad: &str| {
        let path = sysctl_root.join(name);
        fs::read_to_string(path).is_ok_and(|text| text.trim() == bad)
    };
    let to_do = if is("kernel/unprivileged_userns_clone", "0") {
        "kernel.unprivileged_userns_clone is 0: sysctl -w kernel.unprivileged_userns_clone=1"
    } else if is("user/max_user_namespaces", "0") {
        "user.max_user_namespaces is 0: sysctl -w user.max_user_namespaces=1000"
    } else if is("kernel/apparmor_restrict_unprivileged_userns", "1") {
        "kernel.apparmor_restrict_unprivileged_userns is 1: \
         sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
    } else {
        return String::new();
    };
    format!(" ({to_do}, or run it with sudo)")
}

/// Mounts the namespace's own /sys. On failure errno has the reason. Allocates nothing.
fn mount_sysfs() -> bool {
    let mount = |source: &CStr, target: &CStr, kind: Option<&CStr>, flags| {
        let kind = kind.map_or(std::ptr::null(), CStr::as_ptr);
        let (source, target) = (source.as_ptr(), target.as_ptr());
        // SAFETY: all strings end in NUL and outlive the call; no data is passed.
        unsafe { libc::mount(source, target, kind, flags, std::ptr::null()) == 0 }
    };
    let flags = libc::MS_NOSUID | libc::MS_NODEV | libc::MS_NOEXEC;
    // Private first, so that the new /sys does not propagate to the rest of the host.
    mount(c"none", c"/", None, libc::MS_REC | libc::MS_PRIVATE)
        && mount(c"sysfs", c"/sys", Some(c"sysfs"), flags)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_that_forbids_is_named() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(why_not(root.path()), "");
        for (name, value) in [
            ("kernel/apparmor_restrict_unprivileged_userns", "1\n"),
            ("user/max_user_namespaces", "0\n"),
            ("kernel/unprivileged_userns_clone", "0\n"),
        ] {
            let path = root.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, value).unwrap();
            let why = why_not(root.path());
            assert!(why.contains(&name.replace('/', ".")), "{why}");
        }
    }

    #[test]
    fn trying_in_a_child_moves_nobody() {
        let before = inode().unwrap();
        let _ = can_make_namespaces();
        assert_eq!(inode().unwrap(), before);
    }
}
