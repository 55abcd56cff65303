//! Real namespaces: CPU time of each end, effective values of knobs, and that nothing is left over.
//! Needs root; else each test reports a skip.

mod common;

use std::collections::BTreeMap;

use common::{Exit, Place, STUDY, able, count, environment};
use tcpcost_testbed::{in_namespace, until};

#[test]
fn knobs_are_read_back_as_they_really_are_and_taken_back_for_the_next_cell() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = r#"
[bed]
kind = "netns"
[workload]
flows = 2
[[cells]]
name = "plain"
[[cells]]
name = "changed"
mtu = 9000
"client.tso" = "off"
"server.gro" = "on"
"client.gso_max_segs" = 8
"client.gso_max_size" = "32KiB"
"client.bottleneck" = "500Mbit"
"server.quickack" = "on"
"client.sysctl.net.ipv4.tcp_autocorking" = 0
[[cells]]
name = "per-mss"
segmentation = "per-mss"
[measure]
warm_up = "20ms"
duration = "60ms"
repetitions = 2
others_max = "100%"
retries = 0
"#;
    let study = place.write("knobs.toml", text);
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let records = place.records_of_work("out");
    assert_eq!(records.len(), 6);
    for record in &records {
        let end = |end: &str| environment(record, end).clone();
        let (client, server) = (end("client"), end("server"));
        let changed = record["cell"] == "changed";
        assert_eq!(client["mtu"], if changed { 9000 } else { 1500 }, "{record}");
        assert_eq!(client["offloads"]["tso"], !changed);
        assert_eq!(server["offloads"]["tso"], true);
        assert_eq!(server["offloads"]["gro"], changed);
        assert_eq!(
            client["sysctls"]["net.ipv4.tcp_autocorking"],
            if changed { "0" } else { "1" }
        );
        assert_eq!(
            client["qdisc"].as_str().unwrap().contains("tbf"),
            changed,
            "{client}"
        );
        assert_eq!(
            server["route"].as_str().unwrap().contains("quickack"),
            changed,
            "{server}"
        );
        assert_eq!(client["congestion_control"], "reno");
        match record["cell"].as_str().unwrap() {
            "changed" => {
                assert_eq!(client["segmentation"], "software-gso");
                assert_eq!(
                    (
                        client["gso_max_segs"].as_u64(),
                        client["gso_max_size"].as_u64()
                    ),
                    (Some(8), Some(32768))
                );
                // The bucket starts full, so a short interval may show a little more than the rate.
                let bits = count(record, "server", "workload", "payload_bytes_received") * 8;
                assert!(bits < 500_000_000 / 1000 * 60 * 3, "{bits} bits in 60 ms");
            }
            "per-mss" => {
                assert_eq!(client["segmentation"], "per-mss");
                // Each MSS is an skb, so wire segments and IP packets are the same count.
                let (segments, packets) = (
                    count(record, "client", "netstat", "segments_sent"),
                    count(record, "client", "netstat", "ip_packets_sent"),
                );
                // The kernel sums one counter a moment before the other, and ACKs are sent meanwhile: for milliseconds of the 60 if the
                // reader has to wait for a CPU. A super-segment would be one packet of dozens of segments.
                assert!(
                    segments.abs_diff(packets) * 4 <= segments,
                    "{segments} {packets}"
                );
            }
            _ => assert_eq!(client["segmentation"], "tso"),
        }
    }
}

#[test]
fn a_run_killed_in_the_middle_leaves_nothing_behind() {
    if !able() {
        return;
    }
    let place = Place::new();
    let devices = || {
        let mut names: Vec<_> = std::fs::read_dir("/sys/class/net")
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        names.sort();
        names
    };
    let named = || std::fs::read_dir("/run/netns").map_or(0, Iterator::count);
    let (devices_before, named_before) = (devices(), named());
    let study = place.write("study.toml", STUDY);
    let mut started = place.start(&["run", &study, "--out", "out", "--repetitions", "40"]);
    started.wait_for("[1/40]");
    let agents: Vec<Exit> = started.agents().into_iter().map(Exit::of).collect();
    assert_eq!(agents.len(), 2);
    started.signal(libc::SIGKILL);
    started.end();
    assert!(agents.iter().all(Exit::wait), "an agent lives on");
    assert_eq!(devices(), devices_before);
    assert_eq!(named(), named_before);
}

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_autocorking";

fn autocorking() -> String {
    std::fs::read_to_string(SYSCTL).unwrap().trim().to_string()
}

const ON_LOOPBACK: &str = r#"
[bed]
kind = "loopback"
[bed.sysctl]
"net.ipv4.tcp_autocorking" = 0
[workload]
placement = "same-cpu"
[measure]
warm_up = "10ms"
duration = "50ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

#[test]
fn a_hosts_sysctl_is_put_back_after_the_run_after_ctrl_c_and_after_the_agents_input_ends() {
    in_namespace(|| {
        let place = Place::new();
        let study = place.write("study.toml", ON_LOOPBACK);
        let ran = place.run(&["run", &study, "--out", "whole"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let record = &place.records("whole")[0];
        assert_eq!(
            environment(record, "client")["sysctls"]["net.ipv4.tcp_autocorking"],
            "0"
        );
        assert_eq!(autocorking(), "1");

        for (signal, out) in [(libc::SIGINT, "interrupted"), (libc::SIGKILL, "killed")] {
            let started = place.start(&["run", &study, "--out", out, "--duration", "60s"]);
            until("the study's sysctl", || {
                (autocorking() == "0").then_some(())
            });
            let agents: Vec<Exit> = started.agents().into_iter().map(Exit::of).collect();
            started.signal(signal);
            started.end();
            assert!(agents.iter().all(Exit::wait), "an agent lives on");
            assert_eq!(autocorking(), "1", "{out}");
        }
    });
}

#[test]
fn what_killed_agents_left_changed_is_put_back_by_restore_and_by_the_next_start() {
    in_namespace(|| {
        let place = Place::new();
        let study = place.write("study.toml", ON_LOOPBACK);
        let kill_all = |out: &str| {
            // The trial is longer than the test, so the sysctl stays changed until the kill.
            let started = place.start(&["run", &study, "--out", out, "--duration", "60s"]);
            until("the study's sysctl", || {
                (autocorking() == "0").then_some(())
            });
            let agents = started.agents();
            started.signal(libc::SIGSTOP); // So that it does not answer an agent's death first.
            for agent in agents {
                // SAFETY: a child of the command that we started, alive because its parent is
                // stopped.
                assert_eq!(unsafe { libc::kill(agent, libc::SIGKILL) }, 0);
            }
            started.signal(libc::SIGKILL);
            started.end();
            assert_eq!(autocorking(), "0", "nobody was left to put it back");
        };
        kill_all("first");
        let restored = place.run(&["doctor", "--restore"]);
        assert_eq!(restored.code, Some(0), "{restored:?}");
        assert!(restored.stdout.contains("tcp_autocorking"), "{restored:?}");
        assert_eq!(autocorking(), "1");
        assert!(
            place
                .run(&["doctor", "--restore"])
                .stdout
                .contains("nothing"),
            "a second time there is nothing to do"
        );

        kill_all("second");
        let plain = place.write(
            "plain.toml",
            &ON_LOOPBACK.replace("\"net.ipv4.tcp_autocorking\" = 0", ""),
        );
        let ran = place.run(&["run", &plain, "--out", "third"]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stderr.contains("restored what"), "{}", ran.stderr);
        let record = &place.records("third")[0];
        assert_eq!(
            environment(record, "client")["sysctls"]["net.ipv4.tcp_autocorking"],
            "1"
        );
    });
}

#[test]
fn a_dead_agent_fails_its_trial_which_is_done_again_and_said_by_the_exit() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write("study.toml", STUDY);
    let mut started = place.start(&["run", &study, "--out", "out", "--repetitions", "4"]);
    started.wait_for("[1/4]");
    // SAFETY: a child of the command that we started; if another one replaced it, this fails
    // harmlessly.
    unsafe { libc::kill(started.agents()[1], libc::SIGKILL) };
    let ran = started.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let mut outcomes = BTreeMap::new();
    for record in place.records("out") {
        *outcomes
            .entry(record["outcome"].as_str().unwrap().to_string())
            .or_insert(0) += 1;
    }
    assert_eq!(
        outcomes,
        BTreeMap::from([("failed".to_string(), 1), ("measured".to_string(), 4)])
    );
}

#[test]
fn many_connections_come_up_or_the_trial_fails() {
    if !able() {
        return;
    }
    let place = Place::new();
    let many = STUDY.replace("kind = \"stream\"", "kind = \"stream\"\nflows = 2000");
    let study = place.write("many.toml", &many);
    let ran = place.run(&["run", &study, "--out", "out"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    assert_eq!(record["outcome"], "measured", "{record}");

    let mut command = place.command(&["run", &study, "--out", "few"]);
    limit_files(&mut command, 200);
    let ran = common::Ran::from(command.output().unwrap());
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let record = &place.records("few")[0];
    assert_eq!(record["outcome"], "failed", "{record}");
    assert!(
        record["reason"].as_str().unwrap().contains("open files"),
        "{record}"
    );
}

/// Lowers RLIMIT_NOFILE of a command, soft and hard. Root could raise it again, so the capability
/// for that is dropped too.
fn limit_files(command: &mut std::process::Command, limit: u64) {
    use std::os::unix::process::CommandExt;
    const CAP_SYS_RESOURCE: libc::c_ulong = 24;
    // SAFETY: setrlimit and prctl are async-signal-safe and do not touch the parent.
    unsafe {
        command.pre_exec(move || {
            let limits = libc::rlimit {
                rlim_cur: limit,
                rlim_max: limit,
            };
            if libc::setrlimit(libc::RLIMIT_NOFILE, &limits) != 0
                || libc::prctl(libc::PR_CAPBSET_DROP, CAP_SYS_RESOURCE, 0, 0, 0) != 0
            {
                return Err(std::io::Error::last_os_error());
            }
            Ok(())
        });
    }
}

#[test]
fn an_ordinary_user_gets_namespaces_where_the_kernel_allows_them() {
    if !able() {
        return;
    }
    let place = Place::new();
    let study = place.write("study.toml", &STUDY.replace("\"netns\"", "\"auto\""));
    // The user nobody must be able to read the binary and to write to this directory.
    use std::os::unix::fs::PermissionsExt;
    let open = std::fs::Permissions::from_mode(0o777);
    std::fs::set_permissions(place.directory.path(), open).unwrap();
    let binary = place.path("tcpcost");
    std::fs::copy(env!("CARGO_BIN_EXE_tcpcost"), &binary).unwrap();
    let nobody = |out: &str| {
        use std::os::unix::process::CommandExt;
        let mut command = std::process::Command::new(&binary);
        command
            .args(["run", &study, "--out", out])
            .current_dir(place.directory.path())
            .env("TCPCOST_STATE_DIR", place.path("state"))
            .stdin(std::process::Stdio::null())
            .uid(65534)
            .gid(65534);
        command
    };
    let ran = common::Ran::from(nobody("out").output().unwrap());
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let mut command = nobody("without-state");
    command
        .env_remove("TCPCOST_STATE_DIR")
        .env_remove("XDG_RUNTIME_DIR");
    let without = common::Ran::from(command.output().unwrap());
    assert_eq!(without.code, Some(0), "{without:?}");
    assert!(
        !without.stderr.contains("/run/tcpcost"),
        "root's folder is nothing to this user: {without:?}"
    );
    let record = &place.records("out")[0];
    match record["bed"].as_str().unwrap() {
        "netns" => assert_eq!(
            ran.stderr
                .matches("network namespaces are not available")
                .count(),
            0,
            "{}",
            ran.stderr
        ),
        "loopback" => assert_eq!(
            ran.stderr
                .matches("network namespaces are not available")
                .count(),
            1,
            "said once: {}",
            ran.stderr
        ),
        other => panic!("{other}"),
    }
}

#[test]
fn a_client_that_closes_first_is_told_that_it_is_short_of_ports() {
    if !able() {
        return;
    }
    // 690 connections in 2.3 s: more than half of 1000 ports, and fewer than all of them.
    let text = |by: &str| {
        format!(
            r#"
[bed]
kind = "netns"
[workload]
kind = "program"
transaction_rate = "300/s"
program = [{{ connect = {{}} }}, {{ send = "1B" }}, {{ receive = "1B" }}, {{ close = {{ by = "{by}" }} }}]
[bed.sysctl]
"net.ipv4.tcp_tw_reuse" = 0
"net.ipv4.ip_local_port_range" = "20000 20999"
[measure]
warm_up = "300ms"
duration = "2s"
repetitions = 1
others_max = "100%"
retries = 0
"#
        )
    };
    for (by, is_short) in [("connector", true), ("listener", false)] {
        let place = Place::new();
        let study = place.write("ports.toml", &text(by));
        let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let warnings = place.records("out")[0]["warnings"].to_string();
        let found = warnings.contains("this host is short of ports: ");
        assert_eq!(found, is_short, "{by}: {warnings}");
    }
}
