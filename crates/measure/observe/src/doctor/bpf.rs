//! Checks which types of BPF programs the kernel loads, among the types that meters, the relay and the ACK filter use. A program
//! of two instructions of each type is loaded by bpf(2) and dropped; nothing is attached.

#![allow(unsafe_code, reason = "a program is loaded by bpf(2)")]

use std::ffi::CStr;
use std::io;
use std::os::fd::FromRawFd;
use std::path::Path;

use tcpcost_host::error::remedy;
use tcpcost_meter::{MeterError, Needs, bpf};

use super::{Check, btf};

/// One check per type of program.
pub fn checks(root: &Path) -> Vec<Check> {
    let mut checks: Vec<Check> = TYPES
        .iter()
        .map(|kind| match load(kind.number, 0, 0) {
            Ok(()) if kind.name == CGROUP_SKB => at_root(bpf::cgroup_admits()),
            Ok(()) => Check::ok(kind.name, "loads"),
            Err(error) => refused(kind.name, kind.purpose, &error),
        })
        .collect();
    checks.push(tracing(root));
    checks
}

/// Checks BTF-typed tracepoints (`tp_btf`) with the tracepoint of context switches.
fn tracing(root: &Path) -> Check {
    const NAME: &str = "bpf_tracing";
    const PURPOSE: &str = "no exact CPU accounting and no segment counts by eBPF";
    const TRACEPOINT: &str = "btf_trace_sched_switch";
    let found = std::fs::read(root.join("sys/kernel/btf/vmlinux"))
        .ok()
        .and_then(|types| btf::type_id(&types, btf::TYPEDEF, TRACEPOINT));
    let Some(id) = found else {
        return Check::missing(
            NAME,
            format!("not tried: no {TRACEPOINT} in /sys/kernel/btf/vmlinux"),
            PURPOSE,
            "use a kernel with CONFIG_DEBUG_INFO_BTF",
        );
    };
    match load(BPF_PROG_TYPE_TRACING, BPF_TRACE_RAW_TP, id) {
        Ok(()) => Check::ok(NAME, "tp_btf on sched_switch loads; fentry not tried"),
        Err(error) => refused(NAME, PURPOSE, &error),
    }
}

/// Checks that programs can be attached to the root of cgroup v2, where they see each packet that arrives for a socket.
fn at_root(admits: Result<(), MeterError>) -> Check {
    let Err(error) = admits else {
        return Check::ok(CGROUP_SKB, "loads; the root of cgroup v2 admits it");
    };
    let advice = match error.needs() {
        Some(Needs::Capabilities(_)) => remedy(),
        Some(Needs::Feature(_)) => "use a program built with eBPF",
        Some(_) => "mount cgroup2 (a container: -v /sys/fs/cgroup:/sys/fs/cgroup)",
        None => "see who attached it: bpftool cgroup show",
    };
    let found = format!("loads; {}", error.cause());
    let consequence = format!(
        "owners of softirq time by tcp_probe: {}",
        bpf::MISSED_BY_PROBE
    );
    Check::degraded(CGROUP_SKB, found, consequence, advice)
}

fn refused(name: &'static str, purpose: &str, error: &io::Error) -> Check {
    let advice = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => &format!(
            "{} (CAP_BPF and CAP_PERFMON, for network types CAP_NET_ADMIN)",
            remedy()
        ),
        Some(libc::ENOSYS) => "use a kernel with CONFIG_BPF_SYSCALL",
        _ => {
            "use a kernel with this type (CONFIG_BPF_EVENTS, CONFIG_NET, CONFIG_BPF_STREAM_PARSER)"
        }
    };
    let reason = error.to_string();
    let reason = reason.split(" (os error").next().unwrap_or_default();
    Check::missing(name, format!("refused: {reason}"), purpose, advice)
}

struct Type {
    name: &'static str,
    number: u32,
    /// Effect of its absence.
    purpose: &'static str,
}

const CGROUP_SKB: &str = "bpf_cgroup_skb";

/// linux/bpf.h: enum bpf_prog_type.
const TYPES: &[Type] = &[
    Type {
        name: "bpf_perf_event",
        number: 7,
        purpose: "no call-chain profile",
    },
    Type {
        name: CGROUP_SKB,
        number: 8,
        purpose: "owners of softirq time at best by tcp_probe, which misses some",
    },
    Type {
        name: "bpf_sched_cls",
        number: 3,
        purpose: "no ACK filter at a device's egress",
    },
    Type {
        name: "bpf_sock_ops",
        number: 13,
        purpose: "no relay by sockmap",
    },
    Type {
        name: "bpf_sk_msg",
        number: 16,
        purpose: "no relay by sockmap",
    },
    Type {
        name: "bpf_sk_skb",
        number: 14,
        purpose: "no relay by sockmap",
    },
];

const BPF_PROG_TYPE_TRACING: u32 = 26;
const BPF_TRACE_RAW_TP: u32 = 23;
const BPF_PROG_LOAD: libc::c_int = 5;

/// `r0 = 0; exit`: BPF_ALU64 | BPF_MOV | BPF_K and BPF_JMP | BPF_EXIT, eight bytes each.
const PROGRAM: [u8; 16] = [0xb7, 0, 0, 0, 0, 0, 0, 0, 0x95, 0, 0, 0, 0, 0, 0, 0];
const LICENSE: &CStr = c"GPL";

/// The part of union bpf_attr that BPF_PROG_LOAD uses, up to `attach_btf_id` (Linux 5.5). An older
/// kernel accepts it, too, if the fields that it does not know are 0.
#[repr(C)]
#[derive(Default)]
struct Load {
    prog_type: u32,
    insn_cnt: u32,
    insns: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log_buf: u64,
    kern_version: u32,
    prog_flags: u32,
    prog_name: [u8; 16],
    prog_ifindex: u32,
    expected_attach_type: u32,
    prog_btf_fd: u32,
    func_info_rec_size: u32,
    func_info: u64,
    func_info_cnt: u32,
    line_info_rec_size: u32,
    line_info: u64,
    line_info_cnt: u32,
    attach_btf_id: u32,
}

/// Makes the kernel verify the program, and unloads it.
fn load(prog_type: u32, expected_attach_type: u32, attach_btf_id: u32) -> io::Result<()> {
    let attributes = Load {
        prog_type,
        insn_cnt: 2,
        insns: PROGRAM.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        expected_attach_type,
        attach_btf_id,
        ..Load::default()
    };
    // SAFETY: `attributes` and the two constants that it points to outlive the call; its size is given.
    let descriptor = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_PROG_LOAD,
            &raw const attributes,
            size_of::<Load>(),
        )
    };
    match libc::c_int::try_from(descriptor) {
        Ok(descriptor) if descriptor >= 0 => {
            // SAFETY: the descriptor was just made and has no other owner.
            drop(unsafe { std::os::fd::OwnedFd::from_raw_fd(descriptor) });
            Ok(())
        }
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Verdict, fake_root};
    use super::*;

    #[test]
    fn the_attributes_are_laid_out_as_the_kernels() {
        assert_eq!(size_of::<Load>(), 112);
        assert_eq!(std::mem::offset_of!(Load, prog_name), 48);
        assert_eq!(std::mem::offset_of!(Load, attach_btf_id), 108);
    }

    #[test]
    fn a_type_that_no_kernel_has_is_refused() {
        assert!(load(9999, 0, 0).is_err());
    }

    #[test]
    fn a_refusal_says_which_privilege_or_option() {
        for (code, part) in [
            (libc::EPERM, remedy()),
            (libc::ENOSYS, "CONFIG_BPF_SYSCALL"),
            (libc::EINVAL, "CONFIG_BPF_EVENTS"),
        ] {
            let error = io::Error::from_raw_os_error(code);
            let check = refused("bpf_sk_msg", "nothing", &error);
            assert_eq!(check.verdict, Verdict::Missing);
            assert!(check.advice.unwrap().contains(part));
            assert!(!check.found.contains("os error"));
        }
    }

    #[test]
    fn without_btf_tracing_is_not_tried() {
        let root = fake_root(&[]);
        let check = tracing(root.path());
        assert!(check.found.starts_with("not tried"), "{check:?}");
        assert_eq!(check.verdict, Verdict::Missing);
    }
}
