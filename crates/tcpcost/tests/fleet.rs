//! Studies with hosts that are reached by ssh: three sshd, each in a network namespace of the test,
//! with keys and ports of their own. Tests what a host, a link, an agent, a stranger or the command
//! can do to a run, and that each host is restored. Needs root and openssh-server; else the tests
//! are skipped.

mod common;
mod lab;

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::Stdio;
use std::time::{Duration, Instant};

use common::{Place, able, count, environment};
use lab::{Lab, nic};
use serde_json::Value;
use tcpcost_host::link;
use tcpcost_testbed::until;

const MEASURE: &str = r#"
[measure]
warm_up = "20ms"
duration = "200ms"
repetitions = 1
others_max = "100%"
retries = 0
"#;

/// Study with a client and a server by ssh, with their NICs. `more` goes before `[measure]`.
fn pair(more: &str) -> String {
    format!(
        "[hosts]\nclient = {{ reach = \"ssh:alpha\", device = \"eth0\" }}\n\
         server = {{ reach = \"ssh:beta\", address = \"{}\" }}\n{more}{MEASURE}",
        nic(1)
    )
}

/// MTUs that differ from the NICs' own.
const MTUS: &str = "[bed]\nclient.mtu = 1400\nserver.mtu = 1300\n";

fn signal(pid: i32, signal: libc::c_int) {
    // SAFETY: no pointers; the agent belongs to the test.
    assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
}

fn reason(record: &Value) -> &str {
    assert_eq!(record["outcome"], "failed", "{record}");
    record["reason"].as_str().unwrap()
}

#[test]
fn two_hosts_by_ssh_are_measured_and_are_as_they_were() {
    let Some(lab) = Lab::new(2) else { return };
    let ran = lab.run(
        &pair(&format!("{MTUS}[workload]\nrate = \"50Mbit\"\nflows = 4\n")),
        &[],
    );
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    assert_eq!(record["bed"], "hosts");
    assert_eq!(record["topology"]["hosts"][0]["reach"], "ssh:alpha");
    let link = &record["topology"]["links"][0];
    assert_eq!(link["a"]["address"], nic(0), "found by the device's name");
    assert_eq!(link["b"]["device"], "eth0", "found by its address");
    for (host, mtu) in [("client", 1400), ("server", 1300)] {
        let port = environment(&record, host);
        assert_eq!(port["mtu"], mtu);
        assert_eq!(port["nic"]["driver"], "veth");
        assert!(port["nic"]["rx_queues"].as_u64() >= Some(1), "{port}");
        let clock = &record["hosts"][host]["clock"];
        // Both hosts have the same clock, so the measured offset is its error.
        for when in ["before", "after"] {
            let offset = clock[when]["offset_ns"].as_i64().unwrap().unsigned_abs();
            let error = clock[when]["error_ns"].as_u64().unwrap();
            assert!(0 < error && offset <= error, "{clock}");
        }
        assert!(clock["late_ns"].is_u64(), "{clock}");
    }
    let sent = count(&record, "client", "workload", "payload_bytes_sent");
    assert!(sent > 100_000, "{sent}");
    assert!(record["hosts"]["server"]["strangers"].is_null());
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
    let left = std::fs::read_dir(lab.place.path("state-alpha")).unwrap();
    let journals = left
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|e| e == "journal"));
    assert_eq!(journals.count(), 0, "nothing to put back");
}

#[test]
fn compare_reaches_hosts_as_run_does() {
    let Some(lab) = Lab::new(2) else { return };
    let study = format!("{}[workload]\nrate = \"20Mbit\"\n", pair(""));
    let study = lab
        .place
        .write("study.toml", &study.replace("repetitions = 1\n", ""));
    let reach = lab.reach();
    let sides = ["--a", "mtu=1400B", "--b", "mtu=1300B", "--time", "1s"];
    let mut args = vec!["compare", &study, "--out", "out"];
    args.extend(sides);
    args.extend(reach.iter().map(String::as_str));
    let args: Vec<String> = args.into_iter().map(String::from).collect();
    let ran = lab.place.in_time(|| lab.start_with(args.clone()).end());
    // This test does not check which of them costs more.
    assert!(matches!(ran.code, Some(0 | 3 | 4)), "{ran:?}");
    let records = lab.place.records("out");
    let measured = |mtu: u64| {
        records.iter().any(|record| {
            let is_it = record["outcome"] == "measured";
            is_it && environment(record, "server")["mtu"] == mtu
        })
    };
    assert!(measured(1400) && measured(1300), "{ran:?}");
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
}

/// Checks that the first trial that did its work was measured.
fn check_measured(lab: &Lab, out: &str) {
    let records = lab.place.records_of_work(out);
    assert_eq!(records[0]["outcome"], "measured", "{}", records[0]);
}

#[test]
fn the_binary_is_pushed_once_and_runs_from_there() {
    let Some(lab) = Lab::new(2) else { return };
    let reach = lab.reach();
    let push = [reach[0].as_str(), &reach[1], "--hosts=push=on"];
    let study = pair("");
    for out in ["first", "second"] {
        let path = lab.place.write("study.toml", &study);
        let mut args = vec!["run", &path, "--out", out];
        args.extend(push);
        let args = args.into_iter().map(String::from).collect();
        let ran = lab.start_with(args).end();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        check_measured(&lab, out);
    }
    for host in ["alpha", "beta"] {
        let folder = lab.place.path(&format!("cache-{host}/tcpcost"));
        let kept: Vec<_> = std::fs::read_dir(&folder).unwrap().flatten().collect();
        assert_eq!(kept.len(), 1, "one version");
        let files: Vec<_> = std::fs::read_dir(kept[0].path())
            .unwrap()
            .flatten()
            .collect();
        assert_eq!(
            files.len(),
            1,
            "and nothing half-written beside it: {files:?}"
        );
        let own = std::fs::metadata(env!("CARGO_BIN_EXE_tcpcost"))
            .unwrap()
            .len();
        assert_eq!(files[0].metadata().unwrap().len(), own);
    }
}

#[test]
fn a_host_that_cannot_take_the_binary_is_told_by_name() {
    let Some(lab) = Lab::new(2) else { return };
    lab.place
        .write("cache-beta", "a file where a folder is to be");
    let reach = lab.reach();
    let ran = lab
        .start(&pair(""), &[&reach[0], &reach[1], "--hosts=push=on"])
        .end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr
            .contains("server agent: push: the copy is incomplete"),
        "{ran:?}"
    );
}

#[test]
fn a_host_that_cannot_be_reached_is_told_by_name() {
    let Some(lab) = Lab::new(1) else { return };
    let study = format!("[hosts]\nclient = \"ssh:alpha\"\nserver = \"ssh:nowhere\"\n{MEASURE}");
    let ran = lab.run(&study, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let line = ran
        .stderr
        .lines()
        .find(|line| line.contains("make the hosts bed: server agent:"));
    let line = line.unwrap_or_else(|| panic!("{ran:?}"));
    assert!(line.contains("Connection refused"), "{line}");
    assert!(reason(&lab.place.records("out")[0]).contains("server agent: ended"));
}

/// Refuses all TCP to the server's NIC except to these ports, as a firewall would.
fn refuse_all_but(lab: &Lab, first: u16) {
    let ports = format!("1-{}", first - 1);
    let rule = lab.here(move || {
        let args = ["rule", "add", "pref", "10", "ipproto", "tcp", "to"];
        let mut ip = std::process::Command::new("ip");
        ip.args(args).args([&nic(1), "dport", &ports, "prohibit"]);
        ip.status()
    });
    assert!(rule.unwrap().success(), "ip rule (iproute2)");
}

#[test]
fn a_firewall_is_named_ends_the_run_and_lets_the_data_ports_through() {
    let Some(lab) = Lab::new(2) else { return };
    refuse_all_but(&lab, 62_000);
    let more =
        "[vary]\nwrite_size = [\"4KiB\", \"64KiB\", \"128KiB\"]\n[workload]\nrate = \"20Mbit\"\n";
    // The kernel chooses none of the open ports.
    lab.at(1, || {
        let root = tcpcost_host::sysctl::root();
        tcpcost_host::sysctl::set(root, "net.ipv4.ip_local_port_range", "32768 60999").unwrap();
    });
    let ran = lab.run(&pair(more), &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let records = lab.place.records("out");
    assert_eq!(records.len(), 2, "no other cell was tried: {ran:?}");
    for record in &records {
        let reason = reason(record);
        let begins = format!("client: no data connection to server at {}:", nic(1));
        assert!(reason.starts_with(&begins), "{reason}");
        let likely =
            "; most likely a firewall refuses it: open the ports that the knob data_ports names";
        assert!(reason.contains(likely), "{reason}");
    }
    let end = "tcpcost: two trials in a row failed for the same reason, so the run ends: client: no data connection";
    assert!(ran.stderr.contains(end), "{ran:?}");

    std::fs::remove_dir_all(lab.place.path("out")).unwrap();
    let ports = "[bed]\nserver.data_ports = \"62000-62003\"\n";
    for more in [
        "flows = 4\n",
        "threads = 2\nflows = 4\n",
        "io = \"io-uring\"\n",
    ] {
        let more = format!("{ports}[workload]\nrate = \"20Mbit\"\n{more}");
        let ran = lab.run(&pair(&more), &[]);
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let record = lab.place.records("out").remove(0);
        assert_ne!(record["outcome"], "failed", "{record}");
        std::fs::remove_dir_all(lab.place.path("out")).unwrap();
    }
    let more = format!(
        "{}[workload]\nthreads = 2\nflows = 4\n",
        ports.replace("62003", "62000")
    );
    let ran = lab.run(&pair(&more), &[]);
    let record = lab.place.records("out").remove(0);
    let taken = "server: listen: all ports of data_ports 62000-62000 are taken: widen the range";
    assert!(reason(&record).contains(taken), "{ran:?}");
}

#[test]
fn the_hosts_program_is_words_and_what_it_lacks_is_said() {
    let Some(lab) = Lab::new(2) else { return };
    let own = env!("CARGO_BIN_EXE_tcpcost");
    let ran = |program: &str| {
        let _ = std::fs::remove_dir_all(lab.place.path("out"));
        let mut reach = lab.reach();
        reach[3] = format!("program={program}");
        let args: Vec<&str> = reach.iter().map(String::as_str).collect();
        lab.place.in_time(|| lab.start(&pair(""), &args).end())
    };
    let words = ran(&format!("env A=b {own}"));
    assert_eq!(words.code, Some(0), "{words:?}");
    check_measured(&lab, "out");
    let missing = ran("/nowhere/tcpcost");
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(
        missing.stderr.contains("push=on copies this one"),
        "{missing:?}"
    );
    let broken = "echo 'tcpcost: error while loading shared libraries: libelf.so.1: no such file' >&2\nexit 127\n";
    let broken = lab.place.write("broken", broken);
    let broken = ran(&format!("sh {broken}"));
    assert_eq!(broken.code, Some(1), "{broken:?}");
    assert!(broken.stderr.contains("`make static`"), "{broken:?}");
}

#[test]
fn what_a_hosts_shell_greets_with_is_no_answer() {
    let Some(lab) = Lab::new(2) else { return };
    let reach = lab.reach();
    // A shell start file such as .bashrc may print.
    let ssh = format!(
        "echo Welcome\necho\necho 'server is up'\nexec {} \"$@\"\n",
        reach[1].trim_start_matches("ssh=")
    );
    let ssh = format!("ssh=sh {}", lab.place.write("greets", &ssh));
    for args in [
        &["--hosts", &ssh, "--hosts=push=on"][..],
        &["--hosts", &ssh, &reach[2], &reach[3]],
    ] {
        let _ = std::fs::remove_dir_all(lab.place.path("out"));
        let ran = lab.place.in_time(|| lab.start(&pair(""), args).end());
        assert_eq!(ran.code, Some(0), "{ran:?}");
        check_measured(&lab, "out");
    }
}

/// Script that says hello as an agent of another version, whatever it is asked. An empty line is no
/// question.
const ANOTHER_VERSION: &str = r#"#!/bin/sh
while read -r host ask; do
    [ -n "$host" ] || continue
    echo "$host {\"is\":\"hello\",\"protocol\":99,\"version\":\"9.9.9\",\"pid\":1,\"machine\":\"m\",\"environment\":{\"kernel\":\"\",\"machine\":\"\",\"cpu\":\"\",\"cpus\":1,\"memory_bytes\":1,\"clocksource\":\"\",\"cpu_accounting\":\"\",\"cmdline\":\"\",\"tcpcost\":\"\",\"privileged\":true},\"cpus\":{\"cpus\":[0],\"cores\":[[0]]}}"
done
"#;

#[test]
fn a_host_of_another_version_is_refused_before_anything_is_changed() {
    let Some(lab) = Lab::new(2) else { return };
    let agent = lab.place.write("agent", ANOTHER_VERSION);
    let study = pair(MTUS).replace("ssh:beta", &format!("exec:sh {agent}"));
    let ran = lab.run(&study, &["--allow-exec"]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr
            .contains("server agent: is tcpcost 9.9.9 and speaks protocol 99"),
        "{ran:?}"
    );
    assert_eq!(lab.mtu(0), 1500);
}

#[test]
fn a_device_that_is_not_there_is_told_with_what_is() {
    let Some(lab) = Lab::new(2) else { return };
    let ran = lab.run(
        &pair("").replace("device = \"eth0\"", "device = \"eth7\""),
        &[],
    );
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = format!(
        "client: eth7 has no address; there are lo 127.0.0.1, eth0 {}",
        nic(0)
    );
    assert!(ran.stderr.contains(&said), "{ran:?}");
}

/// Study that is long enough for a test to act in the middle.
const LONG: &str = r#"[workload]
rate = "10Mbit"
[measure]
warm_up = "20ms"
duration = "1s"
repetitions = 100
others_max = "100%"
retries = 0
"#;

fn long(bed: &str) -> String {
    let text = pair(bed);
    let (hosts, _) = text.split_once("\n[measure]").unwrap();
    format!("{hosts}\n{LONG}")
}

/// Starts a long run by ssh that changes both MTUs, and waits for both changes.
fn begun(lab: &Lab, more: &[&str]) -> common::Started {
    let reach = lab.reach();
    let mut args: Vec<&str> = reach.iter().map(String::as_str).collect();
    args.extend(more);
    let started = lab.start(&long(MTUS), &args);
    lab.until_mtu(0, 1400);
    lab.until_mtu(1, 1300);
    started
}

#[test]
fn an_agent_that_dies_fails_its_trial_and_the_run_goes_on() {
    let Some(lab) = Lab::new(2) else { return };
    let started = begun(&lab, &[]);
    signal(lab.agent_of(1, "server"), libc::SIGKILL);
    let failed = until("the record", || {
        let records = lab.place.records("out");
        records
            .into_iter()
            .find(|record| record["outcome"] == "failed")
    });
    assert!(reason(&failed).contains("server agent: ended"), "{failed}");
    // The next agent has restored what the dead agent changed, and changes it again.
    until("a trial after it", || {
        let records = lab.place.records("out");
        (records.last().unwrap()["outcome"] == "measured").then_some(())
    });
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(130), "{ran:?}");
    assert!(
        ran.stderr
            .contains("server restored what a dead agent had changed: mtu 1500 of eth0"),
        "{ran:?}"
    );
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
}

#[test]
fn a_command_that_is_killed_leaves_the_hosts_as_they_were_and_is_resumed() {
    let Some(lab) = Lab::new(2) else { return };
    let started = begun(&lab, &[]);
    until("a record", || {
        (!lab.place.records("out").is_empty()).then_some(())
    });
    started.signal(libc::SIGKILL);
    lab.until_mtu(0, 1500);
    lab.until_mtu(1, 1500);
    drop(started);
    let before = lab.place.records("out").len();
    let mut args = ["run", "--resume", "out"].map(String::from).to_vec();
    args.extend(lab.reach());
    let resumed = lab.start_with(args);
    until("another record", || {
        (lab.place.records("out").len() > before).then_some(())
    });
    resumed.signal(libc::SIGINT);
    assert_eq!(resumed.end().code, Some(130));
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
}

/// Stops the server's agent during traffic.
fn stop_in_traffic(lab: &Lab, agent: i32) {
    let received = || {
        let bytes = std::fs::read_to_string("/sys/class/net/eth0/statistics/rx_bytes");
        bytes.unwrap().trim().parse::<u64>().unwrap()
    };
    let before = lab.at(1, received);
    // A tenth of the bytes that a trial sends.
    until("traffic", || {
        (lab.at(1, received) > before + 100_000).then_some(())
    });
    signal(agent, libc::SIGSTOP);
}

fn failed(lab: &Lab) -> Option<Value> {
    let mut records = lab.place.records("out").into_iter();
    records.find(|record| record["outcome"] == "failed")
}

#[test]
fn an_agent_that_stays_stopped_ends_the_run_and_puts_back_once_it_goes_on() {
    let Some(lab) = Lab::new(2) else { return };
    let mut started = begun(&lab, &["--hosts", "silence_max=5s"]);
    let agent = lab.agent_of(1, "server");
    stop_in_traffic(&lab, agent);
    let failed = until("the record", || failed(&lab));
    assert!(
        reason(&failed).contains("server agent: has not answered for 5 s"),
        "{failed}"
    );
    // The next agent waits for what the stopped agent holds, and reports it.
    started.wait_for("its network settings are held by");
    signal(agent, libc::SIGCONT);
    let ran = started.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    lab.until_mtu(0, 1500);
    lab.until_mtu(1, 1500);
}

/// Stops the server's agent during traffic for twenty seconds. Returns the failed record. Tries
/// again if the signal came too late to fail a trial.
fn stopped_for_20_s(lab: &Lab) -> Value {
    for _ in 0..3 {
        let agent = lab.agent_of(1, "server");
        stop_in_traffic(lab, agent);
        let stopped = Instant::now();
        until("twenty seconds", || {
            (stopped.elapsed().as_secs() >= 20).then_some(())
        });
        let records = lab.place.records("out").len();
        signal(agent, libc::SIGCONT);
        until("a record more", || {
            (lab.place.records("out").len() > records).then_some(())
        });
        if let Some(failed) = failed(lab) {
            return failed;
        }
    }
    panic!("none of three trials failed whose server was stopped for 20 s");
}

/// Waits until a trial after the failed one is measured, ends the run, and checks that all hosts
/// are restored.
fn goes_on_and_puts_back(lab: &Lab, started: common::Started) {
    until("a trial after it", || {
        let records = lab.place.records("out");
        let failed = records
            .iter()
            .position(|record| record["outcome"] == "failed")?;
        let mut later = records[failed..].iter();
        later
            .any(|record| record["outcome"] == "measured")
            .then_some(())
    });
    started.signal(libc::SIGINT);
    assert_eq!(started.end().code, Some(130));
    assert_eq!([lab.mtu(0), lab.mtu(1)], [1500, 1500]);
}

#[test]
fn an_agent_that_is_stopped_for_20_s_fails_its_trial_alone() {
    let Some(lab) = Lab::new(2) else { return };
    let started = begun(&lab, &[]);
    let failed = stopped_for_20_s(&lab);
    assert!(
        reason(&failed).contains("server: its meters were read"),
        "{failed}"
    );
    goes_on_and_puts_back(&lab, started);
}

#[test]
fn an_agent_that_is_stopped_for_longer_than_it_may_be_silent_is_given_up_and_the_run_goes_on() {
    let Some(lab) = Lab::new(2) else { return };
    // The agent is given up after 15 s and a trial's second; the next agent waits 15 s more.
    let started = begun(&lab, &["--hosts", "silence_max=15s"]);
    let failed = stopped_for_20_s(&lab);
    assert!(
        reason(&failed).contains("server agent: has not answered for 15 s"),
        "{failed}"
    );
    goes_on_and_puts_back(&lab, started);
}

#[test]
fn a_host_whose_connection_to_the_command_is_lost_puts_back_by_itself() {
    let Some(lab) = Lab::new(2) else { return };
    let mut started = begun(&lab, &["--hosts", "silence_max=5s"]);
    // No FIN and no RST is sent, so neither end learns of it.
    lab.at(1, || link::set_down("ctl0").unwrap());
    lab.until_mtu(1, 1500);
    started.wait_for("server agent");
    let ran = started.end();
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(lab.mtu(0), 1500);
}

#[test]
fn a_link_that_is_down_fails_the_trial_by_its_hosts_name() {
    let Some(lab) = Lab::new(2) else { return };
    lab.at(0, || link::set_down("eth0").unwrap());
    let ran = lab.run(&pair(""), &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let records = lab.place.records("out");
    let reason = reason(records.last().unwrap());
    assert!(reason.contains("client"), "{reason}");
}

/// Addresses on which this namespace listens, without the sshd.
fn listening() -> Vec<SocketAddr> {
    let text = std::fs::read_to_string("/proc/thread-self/net/tcp").unwrap();
    let listener = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (address, port) = words.get(1)?.split_once(':')?;
        let address = u32::from_str_radix(address, 16).ok()?.to_ne_bytes();
        let port = u16::from_str_radix(port, 16).ok()?;
        (words[3] == "0A" && port != 2222).then(|| SocketAddr::from((address, port)))
    };
    text.lines().skip(1).filter_map(listener).collect()
}

#[test]
fn a_stranger_on_a_data_port_is_dropped_and_counted() {
    let Some(lab) = Lab::new(3) else { return };
    let reach = lab.reach();
    let reach: Vec<&str> = reach.iter().map(String::as_str).collect();
    // Connections of crr are short, so the server listens as long as the traffic runs.
    let study = long("[workload]\nkind = \"crr\"\n").replace("\n[workload]\nrate = \"10Mbit\"", "");
    let started = lab.start(&study, &reach);
    until("a refusal", || {
        let address = *lab.at(1, listening).first()?;
        assert_eq!(
            address.ip().to_string(),
            nic(1),
            "on the address that is named alone"
        );
        // A token of the right length, but another one.
        let said = lab.at(2, move || {
            let mut stream = TcpStream::connect(address).ok()?;
            // A listener between two trials may answer nothing; then another one is tried.
            stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
            stream.write_all(b"a token of ours, 1234").ok()?;
            let mut rest = Vec::new();
            match stream.read_to_end(&mut rest) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => None,
                read => Some(read.map(|_| rest)),
            }
        })?;
        // The connection is closed or reset, without a byte of an answer.
        let rest = said.unwrap_or_default();
        rest.is_empty().then_some(())
    });
    let record = until("a record that counts it", || {
        let records = lab.place.records("out");
        records
            .into_iter()
            .find(|record| record["hosts"]["server"]["strangers"].is_u64())
    });
    assert_eq!(record["outcome"], "measured", "{record}");
    started.signal(libc::SIGINT);
    assert_eq!(started.end().code, Some(130));
    assert_eq!(lab.at(1, listening), [], "nobody listens after the run");
}

#[test]
fn an_agent_that_is_sent_garbage_ends_with_one_line() {
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        b"\xff\xfe\x00\n",
        b"client {\n",
    ] {
        let place = Place::new();
        let mut command = place.command(&["agent", "client"]);
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(garbage).unwrap();
        let mut said = String::new();
        if garbage.starts_with(b"client") {
            // A line for this host that is no question is answered.
            let mut stdout = BufReader::new(child.stdout.as_mut().unwrap());
            stdout.read_line(&mut said).unwrap();
        }
        drop(stdin);
        // A line for another host ends the agent.
        let ended = child.wait_with_output().unwrap();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        said += &String::from_utf8([ended.stdout, ended.stderr].concat()).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains("did not understand") || said.contains("not UTF-8 text"),
            "{said}"
        );
    }
}

/// Returns an agent's answers to these questions.
fn ask(asks: &[String]) -> Vec<Value> {
    let place = Place::new();
    let mut command = place.command(&["agent", "client"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut answers = Vec::new();
    for ask in asks {
        writeln!(stdin, "client {ask}").unwrap();
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let answer = line.strip_prefix("client ").unwrap();
        answers.push(serde_json::from_str(answer).unwrap());
    }
    drop(stdin);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    answers
}

#[test]
fn an_agent_connects_to_no_address_but_those_of_the_trials_hosts() {
    let prepare = serde_json::json!({
        "do": "prepare", "host": "client", "side": "connects", "times": 1, "knobs": {}, "cpus": [0],
        "instances": 0, "owner": "loopback", "changes_device": false, "held": null, "netem": false,
        "steering": false, "meters": [], "by_connection": false, "series_ns": null, "sampling": null,
        "capture": null, "own_pids": [], "mates": 1, "token": "00", "seed": 1,
        "ports": [{ "device": "lo", "address": "127.0.0.1", "prefix": 8, "peer": "127.0.0.1" }],
        "addresses": ["127.0.0.1"],
    });
    let connect = |to: &str| format!(r#"{{"do":"connect","targets":["{to}"],"loaded":{{}}}}"#);
    let answers = ask(&[
        prepare.to_string(),
        connect("192.0.2.7:80"),
        connect("[::1]:80"),
    ]);
    assert_eq!(answers[0]["is"], "prepared", "{answers:?}");
    for (answer, target) in answers[1..].iter().zip(["192.0.2.7:80", "[::1]:80"]) {
        assert_eq!(answer["is"], "failed", "{answer}");
        let expected = format!("refuses to connect to {target}: not a host of this trial");
        assert_eq!(answer["reason"], expected);
    }
}

/// Runs a pattern between hosts that are namespaces of this machine. Returns the record.
fn pattern(hosts: &str, pattern: &str) -> Value {
    let place = Place::new();
    let text = format!(
        "[hosts]\n{hosts}\n[bed]\npattern = \"{pattern}\"\n[workload]\nflows = 2\ncheck = \"on\"\nrate = \"20Mbit\"\n{MEASURE}"
    );
    let study = place.write("study.toml", &text);
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    record
}

#[test]
fn each_pattern_has_its_connections_and_every_byte_is_right() {
    if !able() {
        return;
    }
    let three = "\"n[1-3]\" = \"netns\"";
    for (hosts, name, talks, listening) in [
        ("\"n[1-4]\" = \"netns\"", "pairs", 2, &["n2", "n4"][..]),
        (three, "many-to-one", 2, &["n1"]),
        (three, "one-to-many", 2, &["n2", "n3"]),
        (three, "ring", 3, &["in-n1", "in-n2", "in-n3"]),
        (three, "all-to-all", 6, &["in-n1", "in-n2", "in-n3"]),
        (
            "client = \"netns\"\n\"server[1-2]\" = \"netns\"",
            "auto",
            2,
            &["server1", "server2"],
        ),
    ] {
        let record = pattern(hosts, name);
        assert_eq!(
            record["topology"]["traffic"].as_array().unwrap().len(),
            talks,
            "{name}"
        );
        for host in listening {
            let received = count(&record, host, "workload", "payload_bytes_received");
            let checked = count(&record, host, "workload", "payload_bytes_checked");
            assert!(
                received > 0 && checked >= received,
                "{name}: {host} checked {checked} of {received}"
            );
        }
    }
}

#[test]
fn a_machine_that_connects_and_listens_is_measured_as_two_hosts() {
    let Some(lab) = Lab::new(3) else { return };
    let host = |(name, at): (&str, &str)| {
        format!("{name} = {{ reach = \"ssh:{at}\", device = \"eth0\" }}\n")
    };
    let hosts: String = [("a", "alpha"), ("b", "beta"), ("c", "gamma")]
        .into_iter()
        .map(host)
        .collect();
    // Two seconds are long enough for three hosts to get a turn on two busy CPUs.
    let measure = MEASURE.replace("200ms", "2s");
    let study = format!("[hosts]\n{hosts}[bed]\npattern = \"ring\"\na.mtu = 1400\n{measure}");
    let ran = lab.run(&study, &[]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = lab.place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    for (host, to) in [("a", "in-b"), ("b", "in-c"), ("c", "in-a")] {
        let sent = count(&record, host, "workload", "payload_bytes_sent");
        let received = count(&record, to, "workload", "payload_bytes_received");
        assert!(sent > 0 && received > 0, "{host} {sent} {to} {received}");
    }
    assert_eq!(
        environment(&record, "in-a")["mtu"],
        1400,
        "the machine's NIC"
    );
    assert_eq!(lab.mtu(0), 1500);
}

#[test]
fn one_host_under_two_names_is_refused() {
    let Some(lab) = Lab::new(1) else { return };
    let study = format!(
        "[hosts]\nclient = {{ reach = \"ssh:alpha\", device = \"eth0\" }}\nserver = {{ reach = \"ssh:alpha\", device = \"eth0\" }}\n{MEASURE}"
    );
    let ran = lab.run(&study, &[]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(
        ran.stderr
            .contains("is in the same network namespace as client"),
        "{ran:?}"
    );
}
