//! Output of `tcpcost doctor` for a user and for a script.

mod common;

use std::collections::BTreeSet;
use std::os::unix::process::CommandExt;

use common::{Place, Ran};
use tcpcost_testbed::{can_make_namespaces, is_root, skip};

fn checks(ran: &Ran) -> Vec<serde_json::Value> {
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(document["schema_version"], 1);
    document["checks"].as_array().unwrap().clone()
}

fn verdict(checks: &[serde_json::Value], name: &str) -> String {
    let check = checks.iter().find(|check| check["name"] == name);
    check.unwrap()["verdict"].as_str().unwrap().to_string()
}

#[test]
fn the_document_has_every_check_once_with_all_its_keys() {
    let ran = Place::new().run(&["doctor", "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let checks = checks(&ran);
    let names: BTreeSet<&str> = checks
        .iter()
        .map(|check| check["name"].as_str().unwrap())
        .collect();
    assert_eq!(names.len(), checks.len());
    for name in [
        "kernel",
        "btf",
        "bpf_tracing",
        "pmu",
        "steal",
        "qdisc_tbf",
        "tap",
    ] {
        assert!(names.contains(name), "{name} of {names:?}");
    }
    for check in &checks {
        let keys: Vec<&str> = check
            .as_object()
            .unwrap()
            .keys()
            .map(|key| &**key)
            .collect();
        let expected = ["advice", "consequence", "found", "name", "verdict"];
        assert_eq!(
            BTreeSet::from(expected),
            keys.into_iter().collect(),
            "{check}"
        );
        let is_ok = check["verdict"] == "ok";
        assert!(is_ok || check["verdict"] == "degraded" || check["verdict"] == "missing");
        assert_eq!(check["advice"].is_null(), is_ok, "{check}");
        assert_eq!(check["consequence"].is_null(), is_ok, "{check}");
    }
    // The other tests of this project need both.
    assert_eq!(verdict(&checks, "tcp_loopback"), "ok");
    assert_eq!(verdict(&checks, "proc_stat"), "ok");
}

#[test]
fn a_person_gets_one_line_a_check_and_a_sum() {
    let place = Place::new();
    let ran = place.run(&["doctor"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines: Vec<&str> = ran.stdout.lines().collect();
    assert_eq!(
        lines.len(),
        checks(&place.run(&["doctor", "--format=json"])).len() + 1
    );
    assert!(lines.last().unwrap().ends_with(": studies can run here"));
    assert!(lines[0].starts_with("ok "), "{}", lines[0]);
}

#[test]
fn an_unprivileged_user_is_told_what_is_refused() {
    if !is_root() {
        return skip("needs root to become somebody else");
    }
    let place = Place::new();
    let mut command = place.command(&["doctor", "--format=json"]);
    command.current_dir("/").uid(NOBODY).gid(NOBODY);
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("the binary as nobody: {error}")),
    };
    let ran = Ran::from(output);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let checks = checks(&ran);
    assert_eq!(verdict(&checks, "capabilities"), "degraded");
    assert_ne!(verdict(&checks, "namespaces"), "ok");
    assert_eq!(verdict(&checks, "bpf_tracing"), "missing");
    assert_eq!(verdict(&checks, "tcp_loopback"), "ok");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new();
    let mut child = place
        .command(&["doctor"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn where_loopback_is_down_the_exit_code_is_77() {
    if !can_make_namespaces() {
        return;
    }
    let place = Place::new();
    let mut command = place.command(&["doctor"]);
    // SAFETY: between fork and exec only unshare is called, which allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::unshare(libc::CLONE_NEWNET) {
            0 => Ok(()),
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let output = match command.output() {
        Ok(output) => output,
        Err(error) => return skip(&format!("a network namespace: {error}")),
    };
    let ran = Ran::from(output);
    assert_eq!(ran.code, Some(77), "{ran:?}");
    assert!(ran.stdout.starts_with("missing  tcp_loopback"), "{ran:?}");
    assert!(ran.stdout.ends_with(": no study can run here\n"), "{ran:?}");
}

const NOBODY: u32 = 65534;
