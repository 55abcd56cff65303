//! The root of cgroup v2, where programs see the sockets and packets of all cgroups below.

#![allow(unsafe_code, reason = "calls of libbpf")]

use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr;

use libbpf_rs::libbpf_sys::{
    BPF_CGROUP_INET_INGRESS, BPF_CGROUP_INET_SOCK_CREATE, BPF_CGROUP_INET_SOCK_RELEASE,
    BPF_CGROUP_SOCK_OPS, BPF_F_ALLOW_MULTI, bpf_prog_query,
};
use libc::CGROUP2_SUPER_MAGIC;
use rustix::fs::{Access, AtFlags, Mode, OFlags, accessat, fstatfs, openat};
use rustix::mount::{self, FsMountFlags, FsOpenFlags, MountAttrFlags};

use tcpcost_counts::MeterName;

use crate::{MeterError, Needs};

/// Checks that programs can be attached to the root of cgroup v2 next to those that are there; attaches none.
///
/// # Errors
/// No cgroup v2, no CAP_NET_ADMIN, or a program at the root that admits no second one.
pub(super) fn root_admits(meter: MeterName) -> Result<(), MeterError> {
    admits(meter, &root(meter)?)
}

/// Checks that programs can be attached to this cgroup; attaches none.
fn admits(meter: MeterName, root: &File) -> Result<(), MeterError> {
    for (hook, name) in HOOKS {
        let (mut flags, mut count) = (0, 0);
        // SAFETY: without a place for ids the kernel writes the two words alone.
        let status = unsafe {
            bpf_prog_query(
                root.as_raw_fd(),
                hook,
                0,
                &raw mut flags,
                ptr::null_mut(),
                &raw mut count,
            )
        };
        if status != 0 {
            let source = io::Error::last_os_error();
            let needs = match source.raw_os_error() {
                Some(libc::EPERM) => Needs::Capabilities("CAP_NET_ADMIN"),
                _ => Needs::Kernel("a kernel with CONFIG_CGROUP_BPF"),
            };
            return Err(MeterError::Unavailable {
                meter,
                tried: format!("look at {name} of the root of cgroup v2"),
                source: Some(source),
                needs: Some(needs),
            });
        }
        if count >= PROGRAMS_MAX || (count > 0 && flags & BPF_F_ALLOW_MULTI == 0) {
            let why = format!("{name} of the root of cgroup v2 has a program that admits no other");
            return Err(MeterError::refused(meter, why));
        }
    }
    Ok(())
}

/// Hooks of cgroups that have programs here.
const HOOKS: [(u32, &str); 4] = [
    (BPF_CGROUP_INET_INGRESS, "cgroup_skb/ingress"),
    (BPF_CGROUP_INET_SOCK_CREATE, "cgroup/sock_create"),
    (BPF_CGROUP_INET_SOCK_RELEASE, "cgroup/sock_release"),
    (BPF_CGROUP_SOCK_OPS, "sockops"),
];
/// kernel/bpf/cgroup.c, BPF_CGROUP_MAX_PROGS.
const PROGRAMS_MAX: u32 = 64;

/// The root of the cgroup v2 hierarchy that this process sees.
pub(super) fn root(meter: MeterName) -> Result<File, MeterError> {
    let failed = |source| MeterError::Unavailable {
        meter,
        tried: "open the root of cgroup v2".to_string(),
        source: Some(source),
        needs: Some(Needs::Kernel("a mounted cgroup2 file system")),
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").map_err(failed)?;
    // proc_pid_mountinfo(5): ID, parent, device, root, mount point, options, …, -, type.
    let root = mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut words = mount.split(' ').skip(3);
        let is_root = kind.starts_with("cgroup2 ") && words.next()? == "/";
        is_root.then(|| words.next()).flatten()
    });
    let found = match root {
        Some(root) => open_root(root),
        None => Err(io::ErrorKind::NotFound.into()),
    };
    found.or_else(|error| own_mount().map_err(|_| failed(error)))
}

/// Opens the root where it is mounted. In the namespaces of a bed another /sys may cover the mount, with an empty folder in its place.
fn open_root(path: &str) -> io::Result<File> {
    let root = File::open(path)?;
    match fstatfs(&root)?.f_type {
        CGROUP2_SUPER_MAGIC => Ok(root),
        _ => Err(io::ErrorKind::NotFound.into()),
    }
}

/// Root of cgroup v2 by a mount of our own, without a path. Needs CAP_SYS_ADMIN.
fn own_mount() -> io::Result<File> {
    let new = mount::fsopen("cgroup2", FsOpenFlags::FSOPEN_CLOEXEC)?;
    mount::fsconfig_create(&new)?;
    let flags = FsMountFlags::FSMOUNT_CLOEXEC;
    let root = mount::fsmount(&new, flags, MountAttrFlags::empty())?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat(&root, ".", flags, Mode::empty())?.into())
}

/// True if programs at the root of cgroup v2 see the sockets of all cgroups: it is not a container's part of the hierarchy.
pub(super) fn root_sees_all(meter: MeterName) -> bool {
    // Only the kernel's own root lacks this file (Documentation/admin-guide/cgroup-v2.rst).
    let has_events =
        |root: &File| accessat(root, "cgroup.events", Access::EXISTS, AtFlags::empty()).is_ok();
    root(meter).is_ok_and(|root| !has_events(&root))
}

#[cfg(test)]
mod tests {
    use super::*;

    use libbpf_rs::libbpf_sys::{BPF_PROG_TYPE_CGROUP_SKB, bpf_prog_attach, bpf_prog_load};

    /// `r0 = 1; exit`: every packet passes.
    const PASS: [u64; 2] = [0x1_0000_00b7, 0x95];

    /// A cgroup without processes, below the one of this process' hierarchy.
    struct Cgroup(std::path::PathBuf);

    impl Cgroup {
        fn new() -> Option<Cgroup> {
            let root = root(MeterName::Exact).ok()?;
            let root = fs::read_link(format!("/proc/self/fd/{}", root.as_raw_fd())).ok()?;
            let cgroup = root.join(format!("tcpcost-test-{}", std::process::id()));
            fs::create_dir(&cgroup).ok().map(|()| Cgroup(cgroup))
        }
    }

    /// Its programs go with it.
    impl Drop for Cgroup {
        fn drop(&mut self) {
            let _ = fs::remove_dir(&self.0);
        }
    }

    /// Attaches a program at ingress with these flags of BPF_PROG_ATTACH.
    fn attach_passing(cgroup: &File, flags: u32) {
        // SAFETY: the instructions and texts outlive the call; the descriptor is closed.
        unsafe {
            let kind = BPF_PROG_TYPE_CGROUP_SKB;
            let program = bpf_prog_load(
                kind,
                ptr::null(),
                c"GPL".as_ptr(),
                PASS.as_ptr().cast(),
                PASS.len() as u64,
                ptr::null_mut(),
            );
            assert!(program >= 0, "{}", io::Error::last_os_error());
            let hook = BPF_CGROUP_INET_INGRESS;
            let status = bpf_prog_attach(program, cgroup.as_raw_fd(), hook, flags);
            assert_eq!(status, 0, "{}", io::Error::last_os_error());
            libc::close(program);
        }
    }

    #[test]
    fn only_a_cgroup_whose_programs_admit_others_is_taken() {
        for flags in [BPF_F_ALLOW_MULTI, 0] {
            let Some(cgroup) = Cgroup::new() else {
                return tcpcost_testbed::skip("needs root and cgroup v2");
            };
            let root = File::open(&cgroup.0).unwrap();
            if let Err(error) = admits(MeterName::Exact, &root) {
                return tcpcost_testbed::skip(&error.to_string());
            }
            attach_passing(&root, flags);
            let refused = admits(MeterName::Exact, &root).map_err(|error| error.cause());
            match flags {
                0 => assert_eq!(
                    refused.unwrap_err(),
                    "cgroup_skb/ingress of the root of cgroup v2 has a program that admits no other"
                ),
                _ => refused.unwrap(),
            }
        }
    }

    #[test]
    fn a_folder_that_covers_the_root_is_not_taken_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let error = open_root(folder.path().to_str().unwrap()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
