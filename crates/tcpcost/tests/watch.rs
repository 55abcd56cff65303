//! `tcpcost watch` as it is run: lines, JSON, how it ends, with and without privileges.

mod common;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::FromRawFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};

use common::{Place, Ran, is_root, skip};

/// Objects of `--json`.
fn objects(ran: &Ran) -> Vec<serde_json::Value> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.stdout.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs it as a user without privileges, if we are root.
fn unprivileged(place: &Place, args: &[&str]) -> Ran {
    let mut command = place.command(args);
    if is_root() {
        command.uid(65534).gid(65534).current_dir("/");
    }
    Ran::from(command.output().unwrap())
}

#[test]
fn so_many_lines_are_printed_under_a_header() {
    let ran = Place::new().run(&["watch", "20ms", "3"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let rows: Vec<&str> = ran
        .stdout
        .lines()
        .filter(|line| !line.starts_with('#'))
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
    let ran = unprivileged(&place, &["watch", "20ms", "1", "--json"]);
    let line = &objects(&ran)[0];
    assert_eq!(line["tier"], "counters", "{line}");
    assert_eq!(line["cpu_method"], "proc", "{line}");
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
    let ran = Place::new().run(&["watch", "50ms", "1", "--json", "--self-programs"]);
    let line = &objects(&ran)[0];
    if line["tier"] == "counters" {
        return skip(&line["refused"].to_string());
    }
    let exact = line["counts"]["exact"].as_object().unwrap();
    assert!(
        exact["exact_idle_ns"].as_u64().unwrap() + exact["exact_task_own_ns"].as_u64().unwrap() > 0
    );
    assert!(exact.contains_key("exact_softirq_net_rx_ns"), "{line}");
    assert!(
        line["counts"]["segments"]["data_skbs_sent"].is_u64(),
        "{line}"
    );
    assert_eq!(line["bytes_method"], "segments", "{line}");
    // At the latest our own wake-up is a task switch.
    assert!(
        line["counts"]["programs"]["self_programs_ns"]
            .as_u64()
            .unwrap()
            > 0,
        "{line}"
    );
}

/// Starts it and gives its output.
fn start(place: &Place, args: &[&str]) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = place.command(args).stdout(Stdio::piped()).spawn().unwrap();
    let out = BufReader::new(child.stdout.take().unwrap());
    (child, out)
}

fn signal(child: &Child, signal: i32) {
    // SAFETY: the child is ours and not yet waited for, so its id names it.
    assert_eq!(unsafe { libc::kill(child.id() as i32, signal) }, 0);
}

#[test]
fn ctrl_c_ends_it_cleanly() {
    for number in [libc::SIGINT, libc::SIGTERM] {
        let place = Place::new();
        let (mut child, mut out) = start(&place, &["watch", "20ms", "--json"]);
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        signal(&child, number);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        // Whole lines only.
        out.read_to_string(&mut line).unwrap();
        assert!(line.ends_with("}\n"), "{line}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let place = Place::new();
    let (mut child, mut out) = start(&place, &["watch", "10ms"]);
    out.read_line(&mut String::new()).unwrap();
    drop(out);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_wrong_interval_or_count_is_a_usage_error_of_one_line() {
    let place = Place::new();
    for args in [
        &["watch", "1h"][..],
        &["watch", "0"],
        &["watch", "1s", "0"],
        &["watch", "1s", "x"],
        &["watch", "-4", "-6"],
        &["watch", "--prometheus", "everywhere"],
    ] {
        let ran = place.run(args);
        assert_eq!(ran.code, Some(2), "{args:?} {ran:?}");
        assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    }
}

#[test]
fn a_connection_is_told_with_its_process_and_filtered_by_port() {
    let place = Place::new();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let views = ["--connections", "5", "--processes", "5", "--cgroups", "5"];
    let mut args = vec!["watch", "100ms", "--json", "--port", port.as_str()];
    args.extend(views);
    let (mut child, out) = start(&place, &args);
    let mut lines = out.lines().map(Result::unwrap);
    // Bytes until they show: the first look may be before or after the first of them.
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
    let process = &line["processes"][0];
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

/// The answer to an HTTP request.
fn http(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn metrics_are_served_over_http_while_it_watches() {
    let place = Place::new();
    let (mut child, mut out) = start(&place, &["watch", "100ms", "--prometheus", "0"]);
    let address = loop {
        let mut line = String::new();
        assert!(out.read_line(&mut line).unwrap() > 0);
        if let Some((_, url)) = line.trim_end().split_once("metrics: http://") {
            break url.strip_suffix("/metrics").unwrap().to_string();
        }
    };
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    // A line is shown only after a look, from when on there are totals.
    while !{
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        line.contains("us/KiB seg")
    } {}
    let answer = http(&address, "GET /metrics");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("openmetrics-text"), "{answer}");
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
fn an_address_that_cannot_be_served_is_said_in_one_line() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let ran = Place::new().run(&["watch", "20ms", "1", "--prometheus", &address]);
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
    // SAFETY: both descriptors and the size are valid to write and read; null asks for no name and no
    // modes. On success both are new and ours.
    let (mut near, far) = unsafe {
        let null = std::ptr::null_mut();
        assert_eq!(
            libc::openpty(&mut near, &mut far, null, null.cast(), &size),
            0
        );
        (File::from_raw_fd(near), File::from_raw_fd(far))
    };
    let mut command = Place::new().command(&["watch", "50ms"]);
    command.current_dir("/");
    command.stdin(far.try_clone().unwrap());
    command.stderr(far.try_clone().unwrap());
    let mut child = command.stdout(far).spawn().unwrap();
    drop(command);
    let mut seen = Vec::new();
    let mut buffer = [0; 4096];
    let mut is_asked = false;
    // The kernel says EIO once nobody has the other end any more.
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
    // The screen is left again (xterm's alternate screen off).
    assert!(seen.contains("\x1b[?1049l"), "{seen}");
}
