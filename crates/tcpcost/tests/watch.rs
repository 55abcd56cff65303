//! Runs `tcpcost watch`: lines, JSON, its end, with and without privileges.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdout, Stdio};

use common::{Place, Ran};
use tcpcost_testbed::is_root;
use tcpcost_testbed::skip;

/// Objects of `--format json`.
fn objects(ran: &Ran) -> Vec<serde_json::Value> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs `watch` as a user without privileges, if we are root.
fn unprivileged(place: &Place, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    Ran::from(command.output().unwrap())
}

#[test]
fn so_many_lines_are_printed_under_a_header() {
    let ran = Place::new().run(&["watch", "--interval=20ms", "--count=3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rows: Vec<&str> = ran
        .stdout
        .lines()
        // Other activity of the machine is in a line under the row.
        .filter(|line| !line.starts_with('#') && !line.starts_with("  also, per s: "))
        .collect();
    assert_eq!(rows.len(), 4, "{ran:?}");
    assert!(rows[0].contains("us/KiB"), "{ran:?}");
    let columns = |row: &str| row.split_whitespace().count();
    // "out Gb/s", "in Gb/s" and "skb B" are two words each.
    assert!(
        rows[1..]
            .iter()
            .all(|row| columns(row) == columns(rows[0]) - 3)
    );
    assert!(ran.stdout.starts_with("# tier: "), "{ran:?}");
}

#[test]
fn without_privileges_it_says_what_is_missing_and_counts_the_rest() {
    let place = Place::new();
    let ran = unprivileged(
        &place,
        &["watch", "--interval=20ms", "--count=1", "--format=json"],
    );
    let line = &objects(&ran)[0];
    assert_eq!(line["tier"], "counters", "{line}");
    assert!(line["counts"].get("exact").is_none(), "{line}");
    assert!(line["refused"][0].is_string(), "{line}");
    assert!(
        line["counts"]["netstat"]["ip_octets_sent"].is_u64(),
        "{line}"
    );
    assert!(line.get("tail_ratio").is_none(), "{line}");
}

#[cfg(feature = "bpf")]
#[test]
fn as_root_it_counts_skbs_and_exact_time() {
    if !is_root() {
        return skip("needs root to load eBPF");
    }
    let ran = Place::new().run(&["watch", "--interval=50ms", "--count=1", "--format=json"]);
    let line = &objects(&ran)[0];
    if line["tier"] == "counters" {
        return skip(&line["refused"].to_string());
    }
    let exact = line["counts"]["exact"].as_object().unwrap();
    assert!(
        exact["exact_idle_ns"].as_u64().unwrap() + exact["exact_task_own_ns"].as_u64().unwrap() > 0
    );
    assert!(exact.contains_key("exact_softirq_net_rx_ns"), "{line}");
    // `watch` gives up capabilities that root has; a kernel may hide addresses from root, too.
    let hides = std::fs::read_to_string("/proc/sys/kernel/kptr_restrict");
    let is_hidden = hides.is_ok_and(|text| text.trim() == "2");
    assert!(is_hidden || !ran.stdout.contains("CAP_SYSLOG"), "{line}");
    assert!(
        line["counts"]["segments"]["data_skbs_sent"].is_u64(),
        "{line}"
    );
    assert!(line["payload_sent_bits_per_s"].is_f64(), "{line}");
    // The wake-up of `watch` itself is a task switch, so there is always one.
    assert!(
        line["counts"]["programs"]["self_programs_ns"]
            .as_u64()
            .unwrap()
            > 0,
        "{line}"
    );
}

/// Watches traffic in a namespace (1000 bytes there and back) until `is_wanted` holds for a line.
/// `None` if `is_refused` holds for one.
#[cfg(feature = "bpf")]
fn line_over_traffic(
    args: &[&str],
    is_refused: impl Fn(&serde_json::Value) -> bool,
    is_wanted: impl Fn(&serde_json::Value) -> bool,
) -> Option<serde_json::Value> {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut pairs = ["127.0.0.1", "::1"].map(|address| {
        let address: std::net::IpAddr = address.parse().unwrap();
        let client = TcpStream::connect((address, port)).unwrap();
        (client, listener.accept().unwrap().0)
    });
    let (mut child, out) = start(&Place::new(), args);
    let (send, lines) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        for line in out.lines() {
            let _ = send.send(line.unwrap());
        }
    });
    let mut lines_left = 100;
    let line = loop {
        for (client, server) in &mut pairs {
            // Bytes go both ways, so that nearly every ACK is on a data segment.
            client.write_all(&[1; 1000]).unwrap();
            server.read_exact(&mut [0; 1000]).unwrap();
            server.write_all(&[1; 1000]).unwrap();
            client.read_exact(&mut [0; 1000]).unwrap();
        }
        let Ok(line) = lines.try_recv() else { continue };
        let line: serde_json::Value = serde_json::from_str(&line).unwrap();
        if is_refused(&line) || is_wanted(&line) {
            break line;
        }
        lines_left -= 1;
        assert!(lines_left > 0, "{line}");
    };
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    reader.join().unwrap();
    match is_refused(&line) {
        true => {
            skip(&line["refused"].to_string());
            None
        }
        false => Some(line),
    }
}

/// True within 1 %: a reading may fall between two counts of one skb.
#[cfg(feature = "bpf")]
fn is_near(value: &serde_json::Value, expected: f64) -> bool {
    value
        .as_f64()
        .is_some_and(|value| (value / expected - 1.0).abs() < 0.01)
}

#[cfg(feature = "bpf")]
fn lacks_segments(line: &serde_json::Value) -> bool {
    line["refused"].to_string().contains("meter segments")
}

/// Sampling starts, because traffic exceeds the limit; figures are estimated from the samples.
#[cfg(feature = "bpf")]
#[test]
fn above_its_limit_it_samples_and_the_figures_stay_right() {
    tcpcost_testbed::in_namespace(|| {
        let args = [
            "watch",
            "--interval=1s",
            "--format=json",
            "--self-max",
            "0.01",
        ];
        let line = line_over_traffic(&args, lacks_segments, |line| {
            line["seen_ratio"].as_f64() < Some(0.5) && line["skb_bytes_mean"].is_f64()
        });
        let Some(line) = line else { return };
        let count = |meter: &str, of: &str| line["counts"][meter][of].as_f64().unwrap();
        assert!(is_near(&line["skb_bytes_mean"], 1000.0), "{line}");
        // Each 1000 bytes have 52 or 72 bytes of headers, and some ACKs carry no data. Estimates
        // have errors, and a busy machine runs other tasks between the two meters.
        let payload = count("segments", "data_skb_bytes_sent");
        let octets = count("netstat", "ip_octets_sent");
        assert!((0.5..1.2).contains(&(payload / octets)), "{line}");
    });
}

/// Compares each figure with the kernel's own counts, where they exist.
#[cfg(feature = "bpf")]
#[test]
fn figures_are_those_of_the_traffic() {
    tcpcost_testbed::in_namespace(|| {
        let mut args = vec![
            "watch",
            "--interval=200ms",
            "--format=json",
            "--self-max",
            "100",
        ];
        args.extend([
            "--by",
            "connection",
            "--top",
            "9",
            "--ip=6",
            "--address",
            "::1",
        ]);
        // Both meters are read some µs apart while traffic continues. On a busy machine another
        // task may run between them for milliseconds; such a line is passed over.
        let is_near_in_time = |line: &serde_json::Value| {
            let count = |meter: &str, of: &str| line["counts"][meter][of].as_f64();
            count("segments", "data_wire_segments_sent")
                .zip(count("netstat", "segments_sent"))
                .is_some_and(|(seen, by_kernel)| (seen / by_kernel - 1.0).abs() < 0.2)
        };
        let line = line_over_traffic(&args, lacks_segments, |line| {
            let views = line["connections"].as_array();
            line["host_exact_cpu_us_per_payload_kib"].is_f64()
                && views.is_some_and(|rows| rows.len() == 2)
                && is_near_in_time(line)
        });
        let Some(line) = line else { return };
        let of = |name: &str| line[name].as_f64().unwrap_or(f64::NAN);
        let count = |meter: &str, of: &str| line["counts"][meter][of].as_f64().unwrap();
        assert_eq!(of("seen_ratio"), 1.0, "{line}");
        assert!(is_near(&line["skb_bytes_mean"], 1000.0), "{line}");
        assert!(is_near(&line["wire_segments_per_data_skb"], 1.0), "{line}");
        assert_eq!(of("tail_ratio"), 0.0, "{line}");
        let sent = count("segments", "data_wire_segments_sent");
        let bits_per_s = sent * 8000.0 * 1e9 / line["duration_ns"].as_f64().unwrap();
        assert!((of("payload_sent_bits_per_s") / bits_per_s - 1.0).abs() < 1e-9);
        let drained = ["system_call", "net_rx", "tasklet", "timer"]
            .map(|by| of(&format!("drained_by_{by}_ratio")));
        assert!(is_near(&drained.iter().sum::<f64>().into(), 1.0), "{line}");
        assert!(of("self_cpu_ratio") > 0.0, "{line}");
        assert!((0.0..=1.0).contains(&of("exact_softirq_ratio")), "{line}");
        match line["tier"].as_str() {
            Some("pmu") => {
                let cycles = count("perf", "core_cycles");
                let kib = (count("segments", "data_skb_bytes_sent")
                    + count("segments", "data_skb_bytes_received"))
                    / 1024.0;
                let of_all = of("host_core_cycles_per_payload_kib") / (cycles / kib);
                assert!((of_all - 1.0).abs() < 1e-9, "{line}");
            }
            _ => assert!(line["refused"].to_string().contains("meter perf"), "{line}"),
        }
        for connection in line["connections"].as_array().unwrap() {
            assert!(connection["local"].as_str().unwrap().starts_with("[::1]:"));
            assert!(is_near(&connection["skb_bytes_mean"], 1000.0), "{line}");
            assert!(is_near(&connection["data_burst_segments"], 1.0), "{line}");
        }
    });
}

/// Starts `watch`. Returns its standard output.
fn start(place: &Place, args: &[&str]) -> (Child, BufReader<ChildStdout>) {
    let mut child = place.command(args).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the child is ours and not yet waited for, so the id names it.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn ctrl_c_ends_it_cleanly() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let place = Place::new();
        let (mut child, mut out) = start(&place, &["watch", "--interval=20ms", "--format=json"]);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        // The output ends with a whole line.
        out.read_to_string(&mut line).unwrap();
        assert!(line.ends_with("}\n"), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let (mut child, mut out) = start(&place, &["watch", "--interval=10ms"]);
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_wrong_interval_or_count_is_a_usage_error_of_one_line() {
    let place = Place::new();
    for args in [
        &["watch", "--interval=1h"][..],
        &["watch", "--interval=0"],
        &["watch", "--interval=1s", "--count=0"],
        &["watch", "--interval=1s", "--count=x"],
        &["watch", "--ip=5"],
        &["watch", "--metrics", "everywhere"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[cfg(feature = "bpf")]
#[test]
fn cpu_time_is_told_by_process_namespace_and_port() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let mut args = vec![
        "watch",
        "--interval=100ms",
        "--format=json",
        "--top",
        "1000",
        "--metrics",
        "0",
    ];
    args.extend([
        "--by",
        "process",
        "--by",
        "netns",
        "--by",
        "port",
        "--self-max",
        "100",
    ]);
    let (mut child, out) = start(&place, &args);
    let mut lines = out.lines().map(Result::unwrap);
    let row = |line: &serde_json::Value, view: &str, key: &str, value: u64| {
        let mut rows = line[view].as_array().unwrap().iter();
        rows.find(|row| row[key] == value).cloned()
    };
    let pid = u64::from(std::process::id());
    let softirqs = |row: &serde_json::Value| row["counts"]["holder_softirq_ns"].as_u64();
    let line = loop {
        for _ in 0..100 {
            client.write_all(&[1; 1000]).unwrap();
            server.read_exact(&mut [0; 1000]).unwrap();
        }
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        if let Some(refused) = line["refused"].as_array()
            && let Some(why) = refused.iter().find(|line| {
                let line = line.as_str().unwrap();
                line.starts_with("meter exact") || line.starts_with("no CPU time by owner")
            })
        {
            child.kill().unwrap();
            child.wait().unwrap();
            return skip(why.as_str().unwrap());
        }
        if row(&line, "ports", "port_served", port.into())
            .as_ref()
            .and_then(softirqs)
            > Some(0)
        {
            break line;
        }
    };
    // Both ends are in this process, so it also owns the port of the other end.
    let process = row(&line, "processes", "pid", pid).unwrap();
    let served = row(&line, "ports", "port_served", port.into()).unwrap();
    assert!(softirqs(&process) >= softirqs(&served), "{line}");
    let user = process["holder_user_ratio"].as_f64().unwrap();
    let system = process["holder_system_ratio"].as_f64().unwrap();
    let all = process["holder_cpu_ratio"].as_f64().unwrap();
    assert!(user + system <= all, "{process}");
    assert!(
        !served.as_object().unwrap().contains_key("holder_cpu_ratio"),
        "{served}"
    );
    let netns = tcpcost_host::namespace::inode().unwrap();
    let namespace = row(&line, "namespaces", "netns", netns).unwrap();
    assert!(softirqs(&namespace) >= softirqs(&served), "{line}");
    // Owners and host add up to all softirq time, if no owner was dropped for lack of a place.
    let rows = line["processes"].as_array().unwrap();
    assert_eq!(rows.last().unwrap()["host"], true, "{line}");
    let told: u64 = rows.iter().filter_map(softirqs).sum();
    let exact = line["counts"]["exact"].as_object().unwrap().iter();
    let all: u64 = exact
        .filter(|(name, _)| name.starts_with("exact_softirq_"))
        .map(|(_, ns)| ns.as_u64().unwrap())
        .sum();
    assert!(told >= all, "{told} {all} {line}");
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn another_network_namespace_is_watched_by_a_process_in_it() {
    if !tcpcost_testbed::can_make_namespaces() {
        return skip("needs to make namespaces");
    }
    let place = Place::new();
    let mut other = std::process::Command::new("unshare")
        .args(["--net", "cat"])
        .stdin(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = other.id().to_string();
    let own = std::fs::read_link("/proc/self/ns/net").unwrap();
    let there = format!("/proc/{pid}/ns/net");
    tcpcost_testbed::until("the namespace", || {
        (std::fs::read_link(&there).ok()? != own).then_some(())
    });
    let netns = std::fs::read_link(&there).unwrap();
    let ran = place.run(&[
        "watch",
        "--interval=10ms",
        "--count=1",
        "--format=json",
        "--by",
        "netns",
        "--netns",
        &pid,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let line: serde_json::Value = serde_json::from_str(ran.stdout.trim()).unwrap();
    // The namespace has no traffic, whatever the machine does.
    assert_eq!(
        line["counts"]["netstat"]["ip_octets_sent"], 0,
        "{line} {netns:?}"
    );
    drop(other.stdin.take());
    other.wait().unwrap();
    for (name, why) in [
        ("nobody-has-this-name", "No such file"),
        ("0", "No such file"),
    ] {
        let ran = place.run(&[
            "watch",
            "--interval=10ms",
            "--count=1",
            "--format=lines",
            "--netns",
            name,
        ]);
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
        assert!(ran.stderr.contains(why), "{ran:?}");
    }
}

#[test]
fn a_running_trial_is_watched_by_the_command_that_run_names() {
    if !is_root() || !common::able() {
        return skip("needs to be root, two CPUs, and to make namespaces");
    }
    let place = Place::new();
    let text = common::STUDY.replace("300ms", "100s");
    let study = place.write("long.toml", &text);
    let mut run = place.start(&["run", &study, "--out", "out", "-v"]);
    let line = run.wait_for("watch client live: tcpcost watch --netns ");
    let pid = line.trim_end().rsplit(' ').next().unwrap();
    assert_eq!(pid, run.agent_of("client").to_string());
    let command = [
        "watch",
        "--interval=100ms",
        "--count=1",
        "--format=json",
        "--netns",
        pid,
    ];
    // The traffic begins some time after the line.
    let octets = tcpcost_testbed::until("traffic", || {
        let line = &objects(&place.run(&command))[0];
        let octets = line["counts"]["netstat"]["ip_octets_sent"].as_u64();
        octets.filter(|octets| *octets > 0)
    });
    assert!(octets > 0);
    run.signal(libc::SIGINT);
    assert_eq!(run.end().code, Some(130));
}

#[test]
fn a_connection_is_told_with_its_process_and_filtered_by_port() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let views = [
        "--by",
        "connection",
        "--by",
        "process",
        "--by",
        "cgroup",
        "--top",
        "5",
    ];
    let mut args = vec![
        "watch",
        "--interval=100ms",
        "--format=json",
        "--port",
        port.as_str(),
    ];
    args.extend(views);
    let (mut child, out) = start(&place, &args);
    let mut lines = out.lines().map(Result::unwrap);
    // Traffic continues until it is shown, because the first reading may be before the first byte.
    let line: serde_json::Value = loop {
        client.write_all(&[1; 1000]).unwrap();
        server.read_exact(&mut [0; 1000]).unwrap();
        let line: serde_json::Value = serde_json::from_str(&lines.next().unwrap()).unwrap();
        if line["connections"].as_array().unwrap().len() == 2 {
            break line;
        }
    };
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    for connection in line["connections"].as_array().unwrap() {
        assert_eq!(connection["pid"], std::process::id(), "{line}");
        let ends = [&connection["local"], &connection["remote"]];
        let has_port =
            |end: &serde_json::Value| end.as_str().unwrap().ends_with(&format!(":{port}"));
        assert!(ends.into_iter().any(has_port), "{line}");
    }
    let processes = line["processes"].as_array().unwrap().iter();
    let mut ours = processes.filter(|row| row["pid"] == std::process::id());
    let process = ours.next().unwrap();
    assert_eq!(process["connections"], 2, "{line}");
    let counts = &process["counts"];
    assert_eq!(
        counts["conn_bytes_received"].as_u64().unwrap() % 1000,
        0,
        "{line}"
    );
    assert!(
        counts["conn_data_segments_sent"].as_u64().unwrap() > 0,
        "{line}"
    );
}

/// Sends an HTTP request. Returns the answer.
fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Starts `watch` with metrics and waits until it has totals. Returns its output and its address.
fn start_with_metrics(place: &Place) -> (Child, BufReader<ChildStdout>, String) {
    let (child, mut out) = start(place, &["watch", "--interval=100ms", "--metrics", "0"]);
    let (mut address, mut line) = (String::new(), String::new());
    // The first line follows a reading, so totals exist from then on.
    while !line.contains("us/KiB cyc") {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0);
        if let Some((_, url)) = line.trim_end().split_once("metrics: http://") {
            address = url.strip_suffix("/metrics").unwrap().to_string();
        }
    }
    (child, out, address)
}

#[test]
fn metrics_are_served_over_http_while_it_watches() {
    let place = Place::new();
    let (mut child, _out, address) = start_with_metrics(&place);
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // Connections without a request do not block other clients.
    let idle: Vec<TcpStream> = (0..40)
        .map(|_| TcpStream::connect(&address).unwrap())
        .collect();
    let answer = http(&address, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(
        answer.contains("openmetrics-text; version=1.0.0"),
        "{answer}"
    );
    assert!(answer.ends_with("# EOF\n"), "{answer}");
    drop(idle);
    for name in [
        "tcpcost_cpu_seconds_total{context=",
        "tcpcost_self_cpu_seconds_total ",
    ] {
        assert!(answer.contains(name), "{name}: {answer}");
    }
    assert!(!answer.contains("127.0.0.1"), "{answer}");
    assert!(http(&address, "GET /").starts_with("HTTP/1.1 404 "));
    assert!(http(&address, "POST /metrics").starts_with("HTTP/1.1 405 "));
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn no_scrape_of_twenty_clients_fails() {
    let place = Place::new();
    let (mut child, _out, address) = start_with_metrics(&place);
    // Clients that send no request, or half of one, do not block other clients.
    let slow = |index: usize| {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.write_all(&b"GET /metrics"[..index % 12]).unwrap();
        stream
    };
    let slow: Vec<TcpStream> = (0..300).map(slow).collect();
    std::thread::scope(|scope| {
        for _ in 0..20 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let answer = http(&address, "GET /metrics");
                    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
                    assert!(answer.ends_with('\n'), "{answer}");
                }
            });
        }
    });
    drop(slow);
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Compares the metrics in docs/records.md, their names and values of labels, with the metrics
/// served.
#[cfg(feature = "bpf")]
#[test]
fn every_documented_metric_is_served_where_all_meters_are() {
    let ran = Place::new().run(&["watch", "--interval=50ms", "--count=1", "--format=json"]);
    if let Some(refused) = objects(&ran)[0].get("refused") {
        return skip(&refused.to_string());
    }
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/records.md");
    let page = std::fs::read_to_string(page).unwrap();
    let documented = page.lines().filter(|line| line.starts_with("| tcpcost_"));
    let place = Place::new();
    let (mut child, _out, address) = start_with_metrics(&place);
    let answer = http(&address, "GET /metrics");
    signal(&child, libc::SIGINT);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut names = 0;
    for row in documented {
        let name = row.trim_start_matches("| ").split(' ').next().unwrap();
        let found = answer.lines().any(|line| {
            line.starts_with(&format!("{name} ")) || line.starts_with(&format!("{name}{{"))
        });
        assert!(found, "{name}: {answer}");
        names += 1;
    }
    let served = answer.lines().filter(|line| line.starts_with("# TYPE"));
    assert_eq!(served.count(), names, "{answer}");
}

#[test]
fn an_address_that_cannot_be_served_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Place::new().run(&[
        "watch",
        "--interval=20ms",
        "--count=1",
        "--metrics",
        &address,
    ]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert!(ran.stderr.contains(&address), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
}

#[test]
fn on_a_terminal_there_is_a_screen_that_q_ends() {
    let (mut near, mut far) = (-1, -1);
    let size = libc::winsize {
        ws_row: 24,
        ws_col: 100,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    // SAFETY: both descriptors and the size are valid; null means no name and no modes. On success
    // both descriptors are new and ours.
    let (mut near, far) = unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(
            libc::openpty(&mut near, &mut far, null, null.cast(), &size),
            0
        );
        (File::from_raw_fd(near), File::from_raw_fd(far))
    };
    let mut command = Place::new().command(&["watch", "--interval=50ms"]);
    command.current_dir("/");
    command.stdin(far.try_clone().unwrap());
    command.stderr(far.try_clone().unwrap());
    let mut child = command.stdout(far).spawn().unwrap();
    drop(command);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let mut is_asked = false;
    // The kernel returns EIO when the other end is closed.
    while let Ok(read @ 1..) = near.read(&mut buffer) {
        seen.extend_from_slice(&buffer[..read]);
        if !is_asked && String::from_utf8_lossy(&seen).contains("overview") {
            near.write_all(b"q").unwrap();
            is_asked = true;
        }
    }
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let seen = String::from_utf8_lossy(&seen);
    assert!(is_asked, "{seen}");
    // xterm's alternate screen is off again.
    assert!(seen.contains("\x1b[?1049l"), "{seen}");
}
