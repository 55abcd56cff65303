//! Wires with delay and loss in each bed that has one, by the real binary.

mod common;

use base64::Engine;
use common::{Place, Ran, able, count};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use tcpcost_testbed::{is_root, skip, until};

fn study(workload: &str, bed: &str) -> String {
    study_in("netns", workload, bed)
}

/// Study over our own wire, which counts packets, whatever wire the kernel has.
fn study_in(kind: &str, workload: &str, bed: &str) -> String {
    format!(
        "[workload]\ncheck = \"on\"\n{workload}\n[bed]\nkind = \"{kind}\"\ncarrier = \"own\"\n{bed}\n\
         [measure]\nmeters = [\"proc\", \"netstat\", \"tcp_info\"]\nwarm_up = \"100ms\"\nduration = \"400ms\"\n\
         repetitions = 1\nretries = 0\nothers_max = \"100%\"\n"
    )
}

#[test]
fn what_is_sent_takes_its_time_there_and_back() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = study(
        "kind = \"rr\"\nflows = 4",
        "delay = \"10ms\"\n\"server.delay\" = \"30ms\"",
    );
    let file = place.write("s.toml", &text);
    let ran = place.run(&["run", &file, "--out", "out", "--format=json", "-q"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let median = document["cells"][0]["estimates"]["response_us_p50"]["median"].as_f64();
    // The delay is 10 ms there and 30 ms back; a busy machine adds to it, but never less.
    let median = median.unwrap_or_else(|| panic!("{}", document["cells"][0]["estimates"]));
    assert!(median >= 40_000.0, "{median} us");
    let record = &place.records("out")[0];
    let sent = count(record, "client", "wire", "wire_packets");
    assert!(sent > 0 && count(record, "client", "wire", "wire_lost_packets") == 0);
}

#[test]
fn what_is_lost_doubled_and_kept_back_is_counted_and_every_byte_arrives_as_sent() {
    if !able() {
        return;
    }
    let place = Place::new();
    let bed = "\"client.loss\" = \"3%\"\n\"client.duplicate\" = \"3%\"\n\"client.reorder\" = \"3%\"\n\
               \"client.sysctl.net.ipv4.tcp_rto_max_ms\" = 1000\ndelay = \"0ms\"";
    let text = study("kind = \"stream\"\nflows = 20\nwrite_size = \"4KiB\"", bed);
    let file = place.write("s.toml", &text);
    let ran = place.run(&["run", &file, "--out", "out", "-q"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let record = &place.records("out")[0];
    assert_eq!(record["outcome"], "measured", "{record}");
    let of = |name: &str| count(record, "client", "wire", name);
    // A third of the expected number. Half of the packets are the server's, which are not impaired.
    let third = of("wire_packets") / 2 / 100;
    assert!(third > 0, "{record}");
    for what in ["lost", "duplicated", "reordered"] {
        assert!(
            of(&format!("wire_{what}_packets")) >= third,
            "{what} {record}"
        );
    }
    assert!(count(record, "client", "netstat", "segments_retransmitted") > 0);
    assert!(count(record, "server", "workload", "payload_bytes_checked") > 0);
    // The wire's process ends with the bed.
    let wires = || {
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let command = |entry: &std::fs::DirEntry| std::fs::read(entry.path().join("cmdline")).ok();
        let is_ours = |line: Vec<u8>| {
            let words: Vec<&[u8]> = line.split(|&byte| byte == 0).collect();
            words.get(1) == Some(&&b"carry"[..])
                && words[0] == env!("CARGO_BIN_EXE_tcpcost").as_bytes()
        };
        processes.filter_map(|entry| command(&entry)).any(is_ours)
    };
    until("the wire is gone", || (!wires()).then_some(()));
}

/// Containers have no such file, unless they are given it.
#[test]
fn without_the_device_file_one_line_says_what_to_do() {
    if !able() {
        return;
    }
    if !is_root() {
        return skip("needs root to hide the file");
    }
    let place = Place::new();
    let file = place.write("s.toml", &study("kind = \"rr\"", "delay = \"1ms\""));
    let ran = |args: &[&str]| {
        let command = common::with_mounted(place.command(args), c"tmpfs", c"/dev/net");
        Ran::from({ command }.output().unwrap())
    };
    let remedy = "run `modprobe tun`, or give a container `--device /dev/net/tun`";
    let end = format!("open /dev/net/tun: No such file or directory (os error 2); {remedy}\n");
    let study = ran(&["run", &file, "--out", "out", "-q"]);
    assert_eq!(study.code, Some(1), "{study:?}");
    assert_eq!(
        study.stderr.matches("/dev/net/tun: No such").count(),
        1,
        "{study:?}"
    );
    assert!(study.stderr.ends_with(&end), "{study:?}");
    let own = ["--tap=none0", "--local=10.9.0.1/24"];
    let peer = ["peer", own[0], own[1], "--listen=80", "--service=sink"];
    let (listen, to) = ("--listen=10.9.0.1:80", "--to=10.9.0.9:80");
    let relay = ["relay", "--mode=user", own[0], own[1], listen, to];
    for args in [&peer[..], &relay] {
        let ran = ran(args);
        assert_eq!(
            ran.stderr,
            format!("tcpcost: open interface none0: {end}"),
            "{ran:?}"
        );
    }
    let doctor = ran(&["doctor"]);
    let line = doctor.stdout.lines().find(|line| line.contains(" tap "));
    let line = line.unwrap_or_else(|| panic!("{doctor:?}"));
    assert!(
        line.starts_with("missing ") && line.ends_with(remedy),
        "{line}"
    );
}

/// Runs a study with one trial. Returns its record, and the median response time if it has one.
fn ran(text: &str) -> (serde_json::Value, Option<f64>) {
    let place = Place::new();
    let file = place.write("s.toml", text);
    let ran = place.run(&["run", &file, "--out", "out", "--format=json", "-q"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let document: serde_json::Value = serde_json::from_str(&ran.stdout).unwrap();
    let median = document["cells"][0]["estimates"]["response_us_p50"]["median"].as_f64();
    let record = place.records("out").remove(0);
    assert_eq!(record["outcome"], "measured", "{record}");
    (record, median)
}

#[test]
fn in_memory_each_end_has_its_delay_and_its_losses_are_counted_and_repaired() {
    let both = "\"client.stack\" = \"user\"\n\"server.stack\" = \"user\"\n";
    let text = study_in(
        "memory",
        "kind = \"rr\"\nflows = 4",
        &format!("{both}delay = \"10ms\"\n\"server.delay\" = \"30ms\""),
    );
    let (record, median) = ran(&text);
    assert!(median >= Some(40_000.0), "{median:?} us");
    for host in ["client", "server"] {
        assert_eq!(common::environment(&record, host)["carrier"], "own");
        assert!(count(&record, host, "wire", "wire_packets") > 0);
        assert_eq!(count(&record, host, "wire", "wire_lost_packets"), 0);
    }
    let text = study_in(
        "memory",
        "kind = \"stream\"\nflows = 8",
        &format!("{both}\"client.loss\" = \"2%\"\ndelay = \"1ms\""),
    );
    let (record, _) = ran(&text);
    let lost = count(&record, "client", "wire", "wire_lost_packets");
    let given = count(&record, "client", "wire", "wire_packets");
    assert!(lost > 0 && lost < given / 10, "{lost} of {given}");
    // The wire of the sender counts a packet, so the server's wire counts only its ACKs.
    assert!(count(&record, "server", "wire", "wire_packets") < given);
    assert!(count(&record, "client", "tcp_info", "conn_segments_retransmitted") > 0);
    assert!(count(&record, "server", "workload", "payload_bytes_checked") > 0);
    assert_eq!(count(&record, "server", "wire", "wire_lost_packets"), 0);
}

#[test]
fn over_a_tap_our_end_carries_both_directions() {
    if !able() {
        return;
    }
    let text = study_in(
        "tap",
        "kind = \"rr\"\nflows = 4",
        "\"server.stack\" = \"user\"\n\"client.delay\" = \"30ms\"\n\"server.delay\" = \"10ms\"\n\"server.duplicate\" = \"20%\"",
    );
    let (record, median) = ran(&text);
    assert!(median >= Some(40_000.0), "{median:?} us");
    assert_eq!(common::environment(&record, "client")["carrier"], "own");
    assert!(count(&record, "server", "wire", "wire_duplicated_packets") > 0);
}

/// Median response time of a host.
fn median_response_ns(record: &serde_json::Value, host: &str) -> u64 {
    let text = record["hosts"][host]["response_time_hdr"].as_str().unwrap();
    let bytes = base64::engine::general_purpose::STANDARD
        .decode(text)
        .unwrap();
    let times: Histogram<u64> = Deserializer::new()
        .deserialize(&mut bytes.as_slice())
        .unwrap();
    times.value_at_quantile(0.5)
}

#[test]
fn each_client_of_a_star_and_each_side_of_a_chain_has_a_wire_of_its_own() {
    if !able() {
        return;
    }
    let text = study(
        "kind = \"rr\"\nflows = 2",
        "topology = \"star\"\nclients = 2\ndelay = \"5ms\"\n\"client2.delay\" = \"20ms\"",
    );
    let (record, _) = ran(&text);
    // The delay is 5 or 20 ms to the server and 5 ms back. A single response may be shorter: a
    // worker that is preempted between its send and its clock reading begins to count late.
    for (client, delay_ms) in [("client1", 10), ("client2", 25)] {
        let median_ns = median_response_ns(&record, client);
        assert!(
            median_ns >= delay_ms * 1_000_000,
            "{client}: {median_ns} ns"
        );
        assert!(
            count(&record, client, "wire", "wire_packets") > 0,
            "{client}"
        );
    }
    // The delay is 5 ms from client to relay, 10 ms on to the server, and the same back.
    let text = study(
        "kind = \"rr\"\nflows = 2",
        "topology = \"chain\"\nrelay_mode = \"forward\"\ndelay = \"5ms\"\n\"relay.delay\" = \"10ms\"",
    );
    let (record, median) = ran(&text);
    assert!(median >= Some(30_000.0), "{median:?} us");
    for host in ["client", "relay"] {
        assert!(count(&record, host, "wire", "wire_packets") > 0, "{host}");
    }
}

#[test]
fn netem_carries_where_the_kernel_has_it_and_else_is_skipped_by_name() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = study("kind = \"rr\"", "delay = \"20ms\"").replace("\"own\"", "\"netem\"");
    let file = place.write("s.toml", &text);
    let ran = place.run(&["run", &file, "--out", "out", "-q"]);
    let record = &place.records("out")[0];
    if ran.code == Some(0) {
        let environment = common::environment(record, "client");
        assert_eq!(environment["carrier"], "netem");
        assert!(environment["qdisc"].as_str().unwrap().starts_with("netem"));
        return;
    }
    assert_eq!(ran.code, Some(77), "{ran:?}");
    let reason = record["reason"].as_str().unwrap();
    assert!(
        reason.starts_with("carrier: the kernel has no netem ("),
        "{reason}"
    );
    tcpcost_testbed::skip("this kernel has no netem");
}

#[test]
fn what_means_something_else_to_netem_is_not_asked_of_it() {
    if !able() {
        return;
    }
    let place = Place::new();
    let text = study("kind = \"rr\"", "delay = \"20ms\"\njitter = \"1ms\"");
    let file = place.write("s.toml", &text.replace("\"own\"", "\"netem\""));
    let ran = place.run(&["run", &file, "--out", "out", "-q"]);
    assert_eq!(ran.code, Some(77), "{ran:?}");
    let reason = place.records("out")[0]["reason"].to_string();
    assert!(
        reason.contains("carrier: jitter lets packets overtake each other"),
        "{reason}"
    );
}

#[test]
fn the_loopback_has_no_place_for_a_wire() {
    let place = Place::new();
    let file = place.write(
        "s.toml",
        "[bed]\nkind = \"loopback\"\ndelay = \"1ms\"\n[measure]\nrepetitions = 1\n",
    );
    let ran = place.run(&["run", &file, "--out", "out", "-q"]);
    assert_eq!(ran.code, Some(77), "{ran:?}");
    assert!(
        place.records("out")[0]["reason"]
            .as_str()
            .unwrap()
            .starts_with("client.delay: ")
    );
    let file = place.write("s.toml", "[bed]\nloss = \"60%\"\n");
    let ran = place.run(&["run", &file]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(
        ran.stderr
            .contains("a percentage such as \"0.1%\", up to 50%"),
        "{ran:?}"
    );
}
