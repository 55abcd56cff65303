//! Runs packetdrill's own scripts against our TCP. `failing.txt` names the scripts that fail, and
//! docs/conformance.md has their number.
//!
//! Needs a packetdrill that is built (`scripts/packetdrill` makes one), with its folder in
//! `TCPCOST_PACKETDRILL`.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use tcpcost_testbed::{can_make_namespaces, has_program, skip};

/// Options of run_all.py for IPv4.
const ADDRESSES: &str = "--ip_version=ipv4 --local_ip=192.168.0.1 --gateway_ip=192.168.0.1 --netmask_ip=255.255.0.0 --remote_ip=192.0.2.1";
const DEFINITIONS: &str = "-D TFO_COOKIE=3021b9d889017eeb -D TFO_COOKIE_ZERO=b7c12350a90dc8f5 -D CODE=host_unreachable -D CMSG_LEVEL_IP=SOL_IP -D CMSG_TYPE_RECVERR=IP_RECVERR";

#[test]
fn the_scripts_that_fail_are_those_that_are_known_to() {
    let Some(checkout) = std::env::var_os("TCPCOST_PACKETDRILL").map(PathBuf::from) else {
        return skip("needs packetdrill: TCPCOST_PACKETDRILL=$(scripts/packetdrill)");
    };
    // Scripts that cannot switch an offload off would fail.
    if !can_make_namespaces() || !has_program("ip") || !has_program("ethtool") {
        return;
    }
    if !Path::new("/dev/net/tun").exists() {
        return skip("needs /dev/net/tun");
    }
    let root = checkout.join("gtests/net/tcp");
    let mut scripts = Vec::new();
    find(&root, &mut scripts);
    let object = object();
    let failed = Mutex::new(BTreeSet::new());
    let left = Mutex::new(scripts.iter());
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(script) = { left.lock().unwrap().next() } {
                    if !passes(&checkout, &object, script) {
                        let name = script.strip_prefix(&root).unwrap();
                        failed.lock().unwrap().insert(name.display().to_string());
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let known: BTreeSet<String> = include_str!("failing.txt")
        .lines()
        .map(String::from)
        .collect();
    let new: Vec<_> = failed.difference(&known).collect();
    let cured: Vec<_> = known.difference(&failed).collect();
    assert!(
        new.is_empty() && cured.is_empty(),
        "fail and are not in failing.txt: {new:?}; pass and are: {cured:?}"
    );
    let page = fs::read_to_string(here().join("../../../docs/conformance.md")).unwrap();
    let (all, passed) = (scripts.len(), scripts.len() - failed.len());
    let said = format!("Of the {all} scripts under gtests/net/tcp");
    assert!(page.contains(&said), "docs/conformance.md: {said}");
    let said = format!("{passed} pass in IPv4");
    assert!(page.contains(&said), "docs/conformance.md: {said}");
}

/// Builds the shared object. Cargo does not build a cdylib for tests, which cannot be linked with
/// it.
fn object() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.parent().unwrap().parent().unwrap();
    let profile = if built.ends_with("release") {
        "release"
    } else {
        "dev"
    };
    let status = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--locked",
            "--package",
            "tcpcost-packetdrill",
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(built.parent().unwrap())
        .current_dir(here())
        .status();
    assert!(status.unwrap().success(), "the shared object is not built");
    built.join("libtcpcost_packetdrill.so")
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn find(folder: &Path, scripts: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            find(&path, scripts);
        } else if path.extension() == Some(OsStr::new("pkt")) {
            scripts.push(path);
        }
    }
}

/// Runs a script in a new namespace, in the script's folder. True if it passes.
fn passes(checkout: &Path, object: &Path, script: &Path) -> bool {
    let program = checkout.join("gtests/net/packetdrill/packetdrill");
    assert!(program.is_file(), "{}: not built", program.display());
    // Scripts that name their addresses get no others.
    let text = fs::read_to_string(script).unwrap();
    let own = ["--local_ip", "--ip_version"]
        .iter()
        .any(|word| text.contains(word));
    let addresses = if own { "" } else { ADDRESSES };
    let run = format!(
        "ip link set lo up && ip tuntap add mode tun dev tun0 && ip link set tun0 up && \
         LD_PRELOAD={object} exec timeout 60 {program} --so_filename={object} --send_omit_free {addresses} {DEFINITIONS} {name}",
        object = object.display(),
        program = program.display(),
        name = script.file_name().unwrap().display(),
    );
    let ran = Command::new("unshare")
        .args(["-n", "sh", "-c", &run])
        .current_dir(script.parent().unwrap())
        .output()
        .unwrap();
    ran.status.success()
}
