//! Capabilities of a command while it runs, as the kernel shows them.

mod common;

use std::fs;
use std::process::{Child, Stdio};

use common::Place;
use tcpcost_testbed::{is_root, skip, until};

const CAP_DAC_READ_SEARCH: u64 = 1 << 2;
const CAP_NET_ADMIN: u64 = 1 << 12;
const CAP_SYS_PTRACE: u64 = 1 << 19;
const CAP_SYS_ADMIN: u64 = 1 << 21;
const CAP_SYS_RESOURCE: u64 = 1 << 24;
const CAP_PERFMON: u64 = 1 << 38;
const CAP_BPF: u64 = 1 << 39;

/// Masks of each thread in a line such as CapPrm.
fn masks(child: &Child, line: &str) -> Vec<u64> {
    let tasks = fs::read_dir(format!("/proc/{}/task", child.id())).unwrap();
    let status = tasks.flatten().map(|task| {
        let path = task.path().join("status");
        fs::read_to_string(path).unwrap_or_default()
    });
    let mask = |status: String| {
        let value = status.lines().find_map(|l| l.strip_prefix(line))?;
        u64::from_str_radix(value.trim_start_matches(':').trim(), 16).ok()
    };
    status.filter_map(mask).collect()
}

/// Starts the command as root, and checks its threads when there are `threads`.
fn check(args: &[&str], threads: usize, expected: u64) {
    let place = Place::new();
    let mut command = place.command(args);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let is_up = || (masks(&child, "CapPrm").len() >= threads).then_some(());
    until("its threads", is_up);
    for line in ["CapPrm", "CapEff", "CapBnd"] {
        for mask in masks(&child, line) {
            assert_eq!(mask & !expected, 0, "{args:?}: {line} {mask:x}");
        }
    }
    assert!(masks(&child, "CapInh").iter().all(|mask| *mask == 0));
    assert!(masks(&child, "NoNewPrivs").iter().all(|mask| *mask == 1));
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn what_root_starts_keeps_only_what_it_needs_in_each_thread() {
    if !is_root() {
        return skip("needs root, which has capabilities to give up");
    }
    let meters = CAP_BPF | CAP_PERFMON | CAP_SYS_ADMIN;
    check(
        &["watch", "--interval=1s", "--format=lines", "--metrics", "0"],
        3,
        meters,
    );
    let owners = meters | CAP_SYS_PTRACE | CAP_DAC_READ_SEARCH;
    let process = [
        "watch",
        "--interval=1s",
        "--format=lines",
        "--by",
        "process",
    ];
    check(&process, 2, owners | CAP_NET_ADMIN);
    let relay = ["relay", "--listen", "127.0.0.1:0", "--to", "127.0.0.1:9"];
    check(&relay, 3, CAP_SYS_RESOURCE);
}

#[cfg(feature = "bpf")]
#[test]
fn two_capabilities_are_enough_for_the_meters_of_ebpf() {
    if !is_root() {
        return skip("needs root to give a user two capabilities");
    }
    let place = Place::new();
    let watch = place.command(&["watch", "--interval=100ms", "--count=1", "--format=json"]);
    let mut command = std::process::Command::new("setpriv");
    command
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "--no-new-privs",
        ])
        .args([
            "--inh-caps=-all,+bpf,+perfmon",
            "--ambient-caps=-all,+bpf,+perfmon",
        ])
        .arg("--bounding-set=-all,+bpf,+perfmon")
        .arg(watch.get_program())
        .args(watch.get_args())
        .current_dir("/");
    let ran = match command.output() {
        Ok(output) => common::Ran::from(output),
        Err(error) => return skip(&format!("setpriv: {error}")),
    };
    assert_eq!(ran.code, Some(0), "{ran:?}");
    // Root of the host has the same meters.
    let root = place.run(&["watch", "--interval=100ms", "--count=1", "--format=json"]);
    let tier = |ran: &common::Ran| {
        let line = ran.stdout.lines().next().unwrap();
        serde_json::from_str::<serde_json::Value>(line).unwrap()["tier"].clone()
    };
    assert_eq!(tier(&ran), tier(&root));
}
