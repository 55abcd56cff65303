//! Work of a known size: a filter of system calls that adds and lets all pass (linux/seccomp.h, linux/filter.h).
#![allow(unsafe_code, reason = "rustix sets no filter of system calls")]

use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets each system call of a program make this many additions more; 0 changes nothing.
pub(crate) fn add(program: &mut Command, additions: u16) {
    if additions == 0 {
        return;
    }
    let filter = filter(additions);
    // SAFETY: between fork and exec there is one system call; the filter was made before.
    unsafe { program.pre_exec(move || set(&filter)) };
}

/// Instructions of the filter. The kernel would keep the verdict of one without arithmetic, and run it no more.
fn filter(additions: u16) -> Vec<libc::sock_filter> {
    let instruction = |code: u32, k| libc::sock_filter {
        code: u16::try_from(code).expect("a code has two bytes"),
        jt: 0,
        jf: 0,
        k,
    };
    let load = instruction(libc::BPF_LD | libc::BPF_IMM, 0);
    let add = instruction(libc::BPF_ALU | libc::BPF_ADD | libc::BPF_K, 1);
    let allow = instruction(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW);
    let mut all = vec![load];
    all.resize(1 + usize::from(additions), add);
    all.push(allow);
    all
}

fn set(filter: &[libc::sock_filter]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(filter.len()).map_err(io::Error::other)?,
        filter: filter.as_ptr().cast_mut(),
    };
    // SAFETY: the kernel copies the filter, which lives through the call.
    match unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::SECCOMP_MODE_FILTER,
            &raw const program,
        )
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
