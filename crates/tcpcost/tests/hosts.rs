//! Named hosts in real namespaces: stars, chains, IPv6, agents with clocks of their own, and agents
//! that are of another version or die. Needs root; else each test reports a skip.

mod common;

use common::{MEASURE, Place, able, count, environment};
use serde_json::{Value, json};
use tcpcost_testbed::skip;

fn names(record: &Value) -> Vec<&str> {
    let hosts = record["hosts"]
        .as_object()
        .unwrap_or_else(|| panic!("no hosts: {record}"));
    hosts.keys().map(String::as_str).collect()
}

/// Runs a study of one cell. Returns its record and the estimates of its summary.
fn run(place: &Place, text: &str) -> (Value, Value) {
    let study = place.write("study.toml", &format!("{text}{MEASURE}"));
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out", "--format=json"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let summary: Value = serde_json::from_str(&ran.stdout).unwrap();
    let record = place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    (record, summary["cells"][0]["estimates"].clone())
}

fn median(estimates: &Value, name: &str) -> f64 {
    let figure = estimates[name]["median"].as_f64();
    figure.unwrap_or_else(|| panic!("{name} is missing in {estimates}"))
}

fn star(ip: &str) {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = format!(
        "[bed]\nkind = \"netns\"\ntopology = \"star\"\nclients = 3\nip = \"{ip}\"\n\
         \"clients.mtu\" = 3000\n\"client2.mtu\" = 4000\n\"server.mtu\" = 9000\n\
         [workload]\nflows = 4\nrate = \"40Mbit\"\n"
    );
    let (record, estimates) = run(&place, &text);
    assert_eq!(names(&record), ["client1", "client2", "client3", "server"]);
    // Each client has the whole workload: all its flows and its rate.
    let mut sum = 0;
    for (client, mtu) in [("client1", 3000), ("client2", 4000), ("client3", 3000)] {
        assert_eq!(environment(&record, client)["mtu"], mtu);
        assert_eq!(environment(&record, client)["congestion_control"], "reno");
        let sent = count(&record, client, "workload", "payload_bytes_sent");
        assert!(
            (100_000..2_000_000).contains(&sent),
            "{client}: {sent} bytes in 100 ms"
        );
        sum += sent;
    }
    let received = count(&record, "server", "workload", "payload_bytes_received");
    assert!(received.abs_diff(sum) * 2 < sum, "{received} of {sum}");
    let ports = record["hosts"]["server"]["ports"].as_object().unwrap();
    assert_eq!(ports.len(), 3, "a device for each client: {ports:?}");
    assert!(ports.values().all(|port| port["mtu"] == 9000));
    let routes: Vec<&str> = ports
        .values()
        .map(|port| port["route"].as_str().unwrap())
        .collect();
    assert!(
        routes
            .iter()
            .all(|route| route.contains(':') == (ip == "v6")),
        "{routes:?}"
    );
    // The rate is 3 · 40 Mbit/s; in 100 ms of a busy machine it may be more or less.
    let goodput = median(&estimates, "goodput_bits_per_s");
    assert!((50e6..240e6).contains(&goodput), "{goodput}");
    let segments = |name: &str| median(&estimates, &format!("{name}octets_per_datagram"));
    for name in ["", "clients_", "client1_", "client3_", "server_"] {
        assert!(segments(name) > 0.0, "{name}");
    }
    let cpus = &record["hosts"];
    if cpus["client1"]["cpus"] != cpus["server"]["cpus"] {
        // The clients share a CPU that no other host has.
        let of = |name: &str| median(&estimates, &format!("{name}cpu_us_per_kib"));
        let (clients, server, all) = (of("clients_"), of("server_"), of(""));
        // All three may be 0, if no tick fell into so little work.
        assert!(
            (clients + server - all).abs() <= 0.01 * all,
            "{clients} {server} {all}"
        );
        assert!(estimates["client1_cpu_us_per_kib"].is_null(), "{estimates}");
    }
    assert_eq!(record["topology"]["links"].as_array().unwrap().len(), 3);
    assert_eq!(
        record["topology"]["traffic"][2],
        json!({"on": "client3", "to": "server"})
    );
}

#[test]
fn three_clients_around_a_server() {
    star("v4");
}

#[test]
fn three_clients_around_a_server_by_ipv6() {
    star("v6");
}

#[test]
fn a_host_in_the_middle_forwards_and_is_measured() {
    if !able() {
        return;
    }
    for ip in ["v4", "v6"] {
        let place = Place::new();
        let text = format!(
            "[bed]\nkind = \"netns\"\ntopology = \"chain\"\nip = \"{ip}\"\n\
             \"relay.sysctl.net.ipv4.tcp_sack\" = 0\n[workload]\nrate = \"200Mbit\"\n"
        );
        let (record, estimates) = run(&place, &text);
        assert_eq!(names(&record), ["client", "relay", "server"], "{ip}");
        let ports = record["hosts"]["relay"]["ports"].as_object().unwrap();
        let devices: Vec<&str> = ports.keys().map(String::as_str).collect();
        assert_eq!(devices, ["tc-client", "tc-server"]);
        let route = environment(&record, "client")["route"].as_str().unwrap();
        assert!(route.contains(" via "), "{route}");
        let received = count(&record, "server", "workload", "payload_bytes_received");
        assert!(received > 500_000, "{received} bytes in 100 ms");
        // The relay has no TCP of its own: it forwards packets, and reports what that cost.
        let relay = &record["hosts"]["relay"];
        assert!(
            ports
                .values()
                .all(|port| port["sysctls"]["net.ipv4.tcp_sack"] == "0")
        );
        assert_eq!(relay["threads"], 0);
        let meters: Vec<&str> = relay["readings"]
            .as_array()
            .unwrap()
            .iter()
            .map(|reading| reading["meter"].as_str().unwrap())
            .collect();
        assert!(
            meters.contains(&"proc") && meters.contains(&"netstat"),
            "{meters:?}"
        );
        assert!(!meters.contains(&"workload"), "{meters:?}");
        median(&estimates, "cpu_us_per_kib");
        assert!(median(&estimates, "goodput_bits_per_s") > 40e6);
    }
}

#[test]
fn a_host_in_the_middle_relays_every_byte_by_connections_of_its_own() {
    if !able() {
        return;
    }
    let modes = ["copy", "splice", "io-uring", "auto"];
    let works = [
        "kind = \"stream\"\nrate = \"200Mbit\"\n",
        "kind = \"crr\"\nrequest_size = \"300B\"\nresponse_size = \"5KiB\"\n",
    ];
    for (index, mode) in modes.into_iter().enumerate() {
        let place = Place::new();
        let (work, ip) = (works[index % 2], ["v4", "v6"][index / 2]);
        let text = format!(
            "[bed]\nkind = \"netns\"\ntopology = \"chain\"\nrelay_mode = \"{mode}\"\nip = \"{ip}\"\n\
             [workload]\n{work}check = \"on\"\nflows = 3\n"
        );
        let (record, _) = run(&place, &text);
        // Forwarded packets are not segments of the host's own TCP.
        assert!(
            count(&record, "relay", "netstat", "segments_sent") > 0,
            "{mode}"
        );
        let received = count(&record, "server", "workload", "payload_bytes_received");
        let checked = count(&record, "server", "workload", "payload_bytes_checked");
        assert!(
            received > 0 && checked >= received,
            "{mode}: {checked} of {received}"
        );
    }
}

/// The server has two threads with a port each, so the relay has two instances of our TCP.
#[test]
fn our_tcp_in_the_middle_relays_every_byte_and_its_ack_policy_is_a_knob() {
    if !able() {
        return;
    }
    let acks = |mode: &str, policy: &str, ip: &str, threads: usize| {
        let place = Place::new();
        let text = format!(
            "[bed]\nkind = \"netns\"\ntopology = \"chain\"\nrelay_mode = \"{mode}\"\nip = \"{ip}\"\n\
             \"relay.ack_policy\" = \"{policy}\"\n\
             [workload]\nkind = \"stream\"\ncheck = \"on\"\nflows = 4\nthreads = {threads}\n"
        );
        let (record, _) = run(&place, &text);
        let received = count(&record, "server", "workload", "payload_bytes_received");
        let checked = count(&record, "server", "workload", "payload_bytes_checked");
        assert!(
            received > 0 && checked >= received,
            "{policy}: {checked} of {received}"
        );
        let of_relay = |what| count(&record, "relay", "tcp", what) as f64;
        let (only, moved) = (
            of_relay("only_acknowledging_acks_sent"),
            of_relay("window_advancing_acks_sent"),
        );
        assert_eq!(of_relay("pure_acks_sent"), only + moved, "{policy}");
        assert!(of_relay("ip_packets_sent") >= only + moved, "{policy}");
        only / received as f64
    };
    for mode in ["user", "user-copy"] {
        let every_second = acks(mode, "exactly", "v4", 1);
        let on_read = acks(mode, "on-read", "v6", 2);
        assert!(
            10.0 * on_read < every_second,
            "{mode}: {on_read} {every_second} a byte"
        );
    }
}

#[test]
fn a_pair_by_ipv6_with_either_tcp() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = format!(
        "[bed]\nip = \"v6\"\n[workload]\ncheck = \"on\"\nrate = \"100Mbit\"\n\
         [[cells]]\nname = \"netns\"\nbed = \"netns\"\n[[cells]]\nname = \"loopback\"\nbed = \"loopback\"\n\
         [[cells]]\nname = \"tap\"\n\"server.stack\" = \"user\"\n[[cells]]\nname = \"memory\"\nstack = \"user\"\n{MEASURE}"
    );
    let study = place.write("study.toml", &text);
    let ran = place.in_time(|| place.run(&["run", &study, "--out", "out"]));
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for record in place.records("out") {
        assert_eq!(record["outcome"], "measured", "{record}");
        let received = count(&record, "server", "workload", "payload_bytes_received");
        assert!(received > 100_000, "{}: {received}", record["cell"]);
        let address = record["topology"]["links"][0]["b"]["address"]
            .as_str()
            .unwrap();
        assert!(address.contains(':'), "{address}");
    }
}

#[test]
fn each_host_is_measured_by_its_own_clock() {
    if !able() {
        return;
    }
    let place = Place::new();
    // A time namespace sets the server's monotonic clock five thousand seconds ahead.
    let ahead = ["unshare", "--time", "--monotonic", "5000", "--fork", "true"];
    let tried = std::process::Command::new(ahead[0])
        .args(&ahead[1..])
        .status();
    if !tried.is_ok_and(|status| status.success()) {
        skip("no time namespaces here, or no unshare that makes them");
        return;
    }
    let launch = format!("server={}", ahead[..5].join(" "));
    let text = format!(
        "[bed]\nkind = \"netns\"\n[workload]\nkind = \"bidirectional\"\nrate = \"50Mbit\"\n{MEASURE}"
    );
    let study = place.write("study.toml", &text);
    let ran = place.run(&["run", &study, "--out", "out", "--launch", &launch]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    for host in ["client", "server"] {
        let readings = record["hosts"][host]["readings"].as_array().unwrap();
        let workload = readings
            .iter()
            .find(|reading| reading["meter"] == "workload")
            .unwrap();
        let ns = workload["duration_ns"].as_u64().unwrap();
        // The interval is 100 ms; a busy machine may take ten times as long, but another host's
        // clock would make it thousands of seconds.
        assert!(
            (10_000_000..10_000_000_000).contains(&ns),
            "{host}: {ns} ns"
        );
        let received = count(&record, host, "workload", "payload_bytes_received");
        assert!(received > 0, "{host}: {received}");
    }
}

/// Script that says hello as an agent of another version, whatever it is asked.
const ANOTHER_VERSION: &str = r#"#!/bin/sh
while read -r host ask; do
    echo "$host {\"is\":\"hello\",\"protocol\":99,\"version\":\"9.9.9\",\"pid\":1,\"machine\":\"m\",\"environment\":{\"kernel\":\"\",\"machine\":\"\",\"cpu\":\"\",\"cpus\":1,\"memory_bytes\":1,\"clocksource\":\"\",\"cpu_accounting\":\"\",\"cmdline\":\"\",\"tcpcost\":\"\",\"privileged\":true},\"cpus\":{\"cpus\":[0],\"cores\":[[0]]}}"
done
"#;

#[test]
fn a_second_host_of_another_version_is_refused_by_name() {
    let place = Place::new();
    let agent = place.write("agent", ANOTHER_VERSION);
    let text = format!("[bed]\nkind = \"loopback\"\n{MEASURE}");
    let study = place.write("study.toml", &text);
    let launch = format!("server=sh {agent}");
    let ran = place.run(&["run", &study, "--out", "out", "--launch", &launch]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let said = "server agent: is tcpcost 9.9.9 and speaks protocol 99";
    assert!(ran.stderr.contains(said), "{ran:?}");
}

/// Agent that dies before its hello, but only the first time.
const DIES_ONCE: &str = "mkdir \"$0.tried\" 2>/dev/null && exit 9\nexec \"$@\"\n";

#[test]
fn an_agent_that_dies_before_its_bed_is_there_fails_that_trial_alone() {
    let place = Place::new();
    let agent = place.write("agent", DIES_ONCE);
    let text = format!("[bed]\nkind = \"loopback\"\n{MEASURE}");
    let study = place.write("study.toml", &text);
    let launch = format!("server=sh {agent}");
    let ran = place.run(&["run", &study, "--out", "out", "--launch", &launch]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    let records = place.records("out");
    let [failed, measured] = &records[..] else {
        panic!("{records:?}");
    };
    let reason = failed["reason"].as_str().unwrap();
    // The reason is "ended" or "does not read its input", whichever is seen first.
    let made = "make the loopback bed: server agent: ";
    assert!(reason.starts_with(made), "{reason}");
    assert_eq!(measured["outcome"], "measured", "{measured}");

    // An agent that always dies ends the run.
    let launch = "server=sh -c \"exit_9\"";
    let ran = place.run(&["run", &study, "--out", "other", "--launch", launch]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&format!("tcpcost: {made}")), "{ran:?}");
    assert_eq!(place.records("other").len(), 1);
}

#[test]
fn a_middle_host_that_dies_fails_the_trial_by_its_name() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = "[bed]\nkind = \"netns\"\ntopology = \"chain\"\n[workload]\nrate = \"10Mbit\"\n\
                [measure]\nwarm_up = \"10ms\"\nduration = \"1s\"\nrepetitions = 2\nothers_max = \"100%\"\nretries = 0\n";
    let study = place.write("study.toml", text);
    let mut started = place.start(&["run", &study, "--out", "out"]);
    started.wait_for("[1/2]");
    let relay = started.agent_of("relay");
    // SAFETY: the agent is a child of a command that this test started.
    assert_eq!(unsafe { libc::kill(relay, libc::SIGKILL) }, 0);
    let ran = started.end();
    let records = place.records("out");
    let failed = records.iter().find(|record| record["outcome"] == "failed");
    let failed = failed.unwrap_or_else(|| panic!("no trial failed: {ran:?}"));
    let reason = failed["reason"].as_str().unwrap();
    assert!(reason.starts_with("relay agent: "), "{reason}");
}
