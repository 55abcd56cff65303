//! Runs `tcpcost trace` on the published traces.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use common::Place;
use serde_json::Value;
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_study::{Counts, Quantity};
use tcpcost_testbed::{CLIENT, SERVER, in_namespace, skip, until, with_bed};
use tcpcost_trace::{Analysis, Endpoint, Report, Segment, Settings, Sink, flag, read};

fn published(name: &str) -> String {
    format!("{}/../trace/tests/data/{name}", env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_text_begins_with_what_costs_most() {
    let place = Place::new();
    // Requests of 100 bytes, each in four writes without Nagle's rule.
    let mut text = String::new();
    for number in 0..2000 {
        let (from, to) = (number * 25 + 1, number * 25 + 26);
        text += &format!("IP 10.0.0.1.5000 > 10.0.0.2.80: P {from}:{to}(25) ack 1 win 900\n");
    }
    std::fs::write(place.path("small.txt"), text).unwrap();
    let ran = place.run(&["trace", "small.txt"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let costs = ran.stdout.find("1. Small packets: ");
    let list = ran.stdout.find("client > server").expect(&ran.stdout);
    let table = ran.stdout.find("sender > receiver").expect(&ran.stdout);
    assert!(costs.expect(&ran.stdout) < list && list < table, "{ran:?}");
    // Nine packets cost no CPU; the table has their tails.
    let ran = place.run(&["trace", &published("dumazet2013_trace_before.txt")]);
    assert!(!ran.stdout.contains("Short tails"), "{ran:?}");
    assert!(ran.stdout.contains("tails"), "{ran:?}");
}

#[test]
fn one_connection_in_depth_names_its_policy_and_evidence() {
    let place = Place::new();
    let file = published("jones2005_trace_ack_avoidance.txt");
    let ran = place.run(&["trace", &file, "--connection", "2"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    for part in [
        "avoidance growing to 8: the first 8 pure ACKs",
        "1460 bytes, inferred from payload sizes",
    ] {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
    let ran = place.run(&["trace", &file, "--connection", "3"]);
    assert_eq!(ran.code, Some(2));
    assert!(
        ran.stderr.contains("--connection 3: the capture has 2"),
        "{ran:?}"
    );
}

#[test]
fn json_and_csv_hold_the_same_and_unknown_times_are_null() {
    let place = Place::new();
    let file = published("dumazet2013_trace_after.txt");
    let ran = place.run(&["trace", &file, "--format=json"]);
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!(json["schema_version"], 3);
    let end = &json["captures"][0]["connections"][0]["ends"][0];
    assert_eq!(end["sent"]["data_wire_segments"], 9);
    assert_eq!(end["mss"]["source"], "assumed");
    assert_eq!(end["quantities"]["conn_bytes_sent"], 12_288);
    assert_eq!(end["sent"]["window_limited_ns"], Value::Null);
    let ran = place.run(&["trace", &file, "--format=csv"]);
    assert!(
        ran.stdout
            .starts_with("file,connection,end,quantity,value\n")
    );
    assert!(
        ran.stdout.contains(",1,A,sent.data_wire_segments,9\n"),
        "{ran:?}"
    );
}

#[test]
fn filters_leave_what_they_ask_for() {
    let place = Place::new();
    let file = published("jones2005_trace_ack_avoidance.txt");
    let connections = |args: &[&str]| {
        let ran = place.run(&[&["trace", &file, "--format=json"], args].concat());
        let json: Value = serde_json::from_str(&ran.stdout).unwrap();
        let packets = json["captures"][0]["total"]["captured_packets"].as_u64();
        (
            json["captures"][0]["connections"].as_array().map(Vec::len),
            packets,
        )
    };
    assert_eq!(connections(&[]), (Some(2), Some(68)));
    assert_eq!(connections(&["--port", "12865"]), (Some(1), Some(5)));
    assert_eq!(connections(&["--address", "10.0.0.1"]), (Some(0), Some(0)));
    // The first four packets arrive within 581 µs, the fifth after 2.9 ms.
    assert_eq!(connections(&["--until", "1ms"]).1, Some(4));
}

#[test]
fn a_broken_file_is_one_line_and_exit_code_1_and_the_rest_is_reported() {
    let place = Place::new();
    let bad = place.write("bad.pcap", "\u{1}\u{2}\u{3}\u{4}");
    let good = published("jones2005_trace_ack_every_other.txt");
    let ran = place.run(&["trace", &bad, &good]);
    assert_eq!(ran.code, Some(1), "{ran:?}");
    assert_eq!(ran.stderr.lines().count(), 1, "{ran:?}");
    assert!(
        ran.stderr.contains("bad.pcap: at byte 0: neither pcap"),
        "{ran:?}"
    );
    assert!(ran.stdout.contains("every two segments"), "{ran:?}");
}

#[test]
fn standard_input_in_pieces_tells_what_the_file_does() {
    let text = std::fs::read(published("jones2005_trace_ack_avoidance.txt")).unwrap();
    let from_pipe = |pieces: &[&[u8]]| {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tcpcost"))
            .args(["trace", "-", "--format=csv"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        for piece in pieces {
            stdin.write_all(piece).unwrap();
            stdin.flush().unwrap();
        }
        drop(stdin);
        child.wait_with_output().unwrap().stdout
    };
    let (first, second) = text.split_at(1234);
    assert_eq!(from_pipe(&[first, second]), from_pipe(&[&text]));
}

#[test]
fn the_page_is_written_where_it_is_asked_for() {
    let place = Place::new();
    let page = place.write("page.html", "");
    let file = published("jones2005_trace_ack_avoidance.txt");
    let ran = place.run(&[
        "trace",
        &file,
        "--connection",
        "2",
        "--format=text",
        "--format=html",
        "-o",
        &page,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("time and sequence: what 192.168.1.212:32970 sent"));
}

#[test]
fn without_a_number_the_page_shows_the_largest_connection() {
    let place = Place::new();
    let page = place.write("page.html", "");
    let of = |port, length| {
        format!("00:00:0{port}.000000 IP A.{port} > B.80: P 1:{length}({length}) ack 1 win 9\n")
    };
    let file = place.write("two.txt", &(of(1, 10) + &of(2, 1000)));
    let ran = place.run(&[
        "trace",
        &file,
        "--format=text",
        "--format=html",
        "-o",
        &page,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains("what A:2 sent") && !page.contains("what A:1 sent"));
}

/// Starts `tcpcost trace` with these arguments. Returns the lines of its standard output.
fn started(args: &[&str]) -> (Child, impl Iterator<Item = String> + use<>) {
    let mut child = Command::new(env!("CARGO_BIN_EXE_tcpcost"))
        .args(["trace", "--interval", "10ms"])
        .args(args)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = BufReader::new(child.stdout.take().unwrap());
    (child, stdout.lines().map_while(Result::ok))
}

/// Sends SIGINT, as Ctrl-C does.
fn interrupt(child: &Child) {
    // SAFETY: the child is not yet waited for, so the id names it.
    unsafe { libc::kill(child.id() as libc::pid_t, libc::SIGINT) };
}

#[test]
fn a_file_is_followed_as_it_grows_and_is_replaced_until_ctrl_c() {
    let place = Place::new();
    let text = std::fs::read_to_string(published("jones2005_trace_ack_avoidance.txt")).unwrap();
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let (first, rest) = lines.split_at(20);
    let (second, third) = rest.split_at(20);
    let path = place.write("growing.txt", &first.concat());
    let (mut child, mut looks) = started(&["--follow", &path]);
    let mut until = |packets: usize| {
        looks
            .find(|line| line.contains(&format!(" s: {packets} packets, ")))
            .expect("a look at so many packets");
    };
    until(20);
    // Half a packet must not be counted.
    let (whole, half) = (second.concat(), &third.concat()[..30]);
    let mut file = std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap();
    file.write_all((whole + half).as_bytes()).unwrap();
    until(40);
    file.write_all(&third.concat().as_bytes()[30..]).unwrap();
    until(lines.len());
    std::fs::rename(&path, place.path("old")).unwrap();
    place.write("growing.txt", &first.concat());
    until(lines.len() + 20);
    interrupt(&child);
    let last: Vec<String> = looks.collect();
    let mut said = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut said)
        .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("replaced: continues with the new file"),
        "{said}"
    );
    let packets = format!("growing.txt: tcpdump's text, {} packets", lines.len() + 20);
    assert!(last.iter().any(|line| line.contains(&packets)), "{last:#?}");
    assert!(
        last.iter()
            .any(|line| line.contains("Events that cost CPU")),
        "{last:#?}"
    );
}

#[test]
fn what_follows_ends_with_the_pipe_or_after_so_many_looks() {
    let place = Place::new();
    let file = published("jones2005_trace_ack_avoidance.txt");
    let ran = place.run(&[
        "trace",
        "--follow",
        "--interval",
        "10ms",
        "--count",
        "2",
        "--format=json",
        &file,
    ]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let documents: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(documents.len(), 3);
    assert!(documents[1] == documents[2]);
    let at_once = place.run(&["trace", "--format=json", &file]);
    assert_eq!(
        documents[2],
        serde_json::from_str::<Value>(&at_once.stdout).unwrap()
    );
    // Standard input is empty.
    let ran = place.run(&["trace", "--follow", "-"]);
    assert_eq!(
        (ran.code, ran.stderr.as_str()),
        (Some(1), "tcpcost: -: at byte 0: empty\n")
    );
    let ran = place.run(&["trace", "--follow", &file, &file]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
}

#[test]
fn an_interface_is_followed_and_agrees_with_what_the_kernel_counted() {
    in_namespace(|| {
        let (mut child, mut looks) = started(&["-i", "lo", "--format=json"]);
        let parsed = |line: String| serde_json::from_str::<Value>(&line).unwrap();
        let Some(first) = looks.next().map(parsed) else {
            let mut said = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut said)
                .unwrap();
            assert_eq!(child.wait().unwrap().code(), Some(77), "{said}");
            return skip(said.trim());
        };
        assert_eq!(first["captures"][0]["form"], "live");
        let counted = transfer();
        let ended = looks
            .map(parsed)
            .find(|look| look["captures"][0]["connections"][0]["ended"]["fin"] != Value::Null)
            .unwrap();
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let capture = &ended["captures"][0];
        assert_eq!(capture["dropped_by_capture"], 0);
        let seen = &capture["connections"][0]["ends"][0]["quantities"];
        assert_eq!(
            seen["conn_bytes_sent"].as_u64(),
            counted.get(&Quantity::ConnBytesSent).copied()
        );
        assert_eq!(seen["conn_bytes_received"], 100_000);
    });
}

/// VXLAN header, Ethernet, IPv4, and TCP with one byte.
fn in_vxlan() -> Vec<u8> {
    let ip = [
        0x45, 0, 0, 41, 0, 1, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 1, 10, 9, 0, 2, 0, 9, 0, 80, 0, 0, 0,
        1, 0, 0, 0, 1, 0x50, 0x18, 0, 9, 0, 0, 0, 0, 7,
    ];
    [&[8, 0, 0, 0, 0, 0, 7, 0][..], &[2; 12], &[8, 0], &ip].concat()
}

#[test]
fn tunnels_pass_the_filter_of_an_interface() {
    in_namespace(|| {
        let (mut child, looks) = started(&["-i", "lo", "--format=json"]);
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut seen = false;
        // At least 20 s.
        for look in looks.take(2000) {
            let look: Value = serde_json::from_str(&look).unwrap();
            let connection = &look["captures"][0]["connections"][0];
            seen |= connection["tunnel"] == "vxlan";
            if seen {
                break;
            }
            // No socket listens, so ICMP makes the next send fail; that does not matter here.
            sender.send_to(&in_vxlan(), "127.0.0.1:4789").ok();
        }
        interrupt(&child);
        let status = child.wait().unwrap().code();
        if status == Some(77) {
            return skip("needs libpcap and CAP_NET_RAW");
        }
        assert_eq!((status, seen), (Some(0), true));
    });
}

/// Makes a VXLAN of the kernel over a veth between two namespaces. False if the kernel has none.
fn has_vxlan(device: &str, local: Ipv4Addr, remote: Ipv4Addr, inner: &str) -> bool {
    let (local, remote) = (local.to_string(), remote.to_string());
    let add = ["link", "add", "x", "type", "vxlan", "id", "7", "dstport"];
    let ends = ["4789", "dev", device, "local", &local, "remote", &remote];
    [
        &[&add[..], &ends].concat()[..],
        &["addr", "add", inner, "dev", "x"],
        &["link", "set", "x", "up"],
    ]
    .iter()
    .all(|arguments| {
        let ran = Command::new("ip").args(*arguments).status();
        ran.is_ok_and(|status| status.success())
    })
}

#[test]
fn below_a_vxlan_the_inner_connection_is_seen_and_its_tunnel_named() {
    let (ready_sender, ready) = mpsc::channel();
    let client = move || {
        let is_made = has_vxlan("c", CLIENT, SERVER, "10.213.0.1/24");
        if !(ready.recv().unwrap() && is_made) {
            return skip("needs vxlan in the kernel and ip(8)");
        }
        let (mut child, mut looks) = started(&["-i", "c", "--format=json"]);
        if looks.next().is_none() {
            assert_eq!(child.wait().unwrap().code(), Some(77));
            return skip("needs libpcap and CAP_NET_RAW");
        }
        let mut stream = TcpStream::connect("10.213.0.2:80").unwrap();
        stream.write_all(&[7; 100_000]).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        stream.read_to_end(&mut Vec::new()).unwrap();
        let seen = looks.find_map(|look| {
            let mut look: Value = serde_json::from_str(&look).unwrap();
            let connection = look["captures"][0]["connections"][0].take();
            (connection["ended"]["fin"] != Value::Null).then_some(connection)
        });
        interrupt(&child);
        assert_eq!(child.wait().unwrap().code(), Some(0));
        let seen = seen.unwrap();
        assert_eq!(seen["tunnel"], "vxlan");
        assert_eq!(seen["ends"][0]["sent"]["payload_bytes"], 100_000);
    };
    let server = move || {
        let is_made = has_vxlan("s", SERVER, CLIENT, "10.213.0.2/24");
        let listener = is_made.then(|| TcpListener::bind("10.213.0.2:80").unwrap());
        ready_sender.send(is_made).unwrap();
        // No connection comes if the client's device could not be made.
        if let Some(listener) = listener {
            listener.set_nonblocking(true).unwrap();
            let client = until("a connection, or the client's end", || {
                match listener.accept() {
                    Ok((stream, _)) => Some(Some(stream)),
                    Err(_) if ready_sender.send(true).is_err() => Some(None),
                    Err(_) => None,
                }
            });
            if let Some(mut stream) = client {
                stream.set_nonblocking(false).unwrap();
                stream.read_to_end(&mut Vec::new()).unwrap();
            }
        }
    };
    with_bed(client, server);
}

#[test]
fn all_interfaces_and_a_tun_are_followed_by_a_filter_that_suits_their_links() {
    in_namespace(|| {
        let tun = ["tuntap", "add", "dev", "tun0", "mode", "tun"];
        let made = Command::new("ip").args(tun).status();
        let is_up = Command::new("ip")
            .args(["link", "set", "tun0", "up"])
            .status();
        let has_tun = [made, is_up]
            .iter()
            .all(|ran| ran.as_ref().is_ok_and(|status| status.success()));
        for interface in ["any", "tun0"] {
            if interface == "tun0" && !has_tun {
                skip("needs /dev/net/tun");
                continue;
            }
            let (mut child, mut looks) = started(&["-i", interface, "--format=json"]);
            let Some(look) = looks.next() else {
                let mut said = String::new();
                let stderr = child.stderr.as_mut().unwrap();
                stderr.read_to_string(&mut said).unwrap();
                assert_eq!(
                    child.wait().unwrap().code(),
                    Some(77),
                    "{interface}: {said}"
                );
                return skip(said.trim());
            };
            let look: Value = serde_json::from_str(&look).unwrap();
            assert_eq!(look["captures"][0]["form"], "live", "{interface}");
            interrupt(&child);
            assert_eq!(child.wait().unwrap().code(), Some(0), "{interface}");
        }
    });
}

#[test]
fn two_captures_are_held_against_each_other() {
    let place = Place::new();
    let (before, after) = (
        published("dumazet2013_trace_before.txt"),
        published("dumazet2013_trace_after.txt"),
    );
    let ran = place.run(&["trace", "--compare", &before, &after, "--format=json"]);
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let json: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert!(
        json["causes"]["packets"]
            .as_array()
            .is_some_and(|rows| !rows.is_empty())
    );
    let ran = place.run(&["trace", "--compare", &before]);
    assert_eq!(ran.code, Some(2), "{ran:?}");
    assert!(ran.stderr.contains("wants two captures"), "{ran:?}");
}

/// Connects to a server in this namespace, sends, receives and closes. Returns the kernel's counts
/// for the client.
fn transfer() -> Counts {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let server = std::thread::spawn(move || {
        let (mut server, _) = listener.accept().unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).unwrap();
        server.write_all(&received[..100_000]).unwrap();
    });
    for message in [4096, 65_536, 1, 1_000_000] {
        client.write_all(&vec![7; message]).unwrap();
    }
    client.shutdown(Shutdown::Write).unwrap();
    client.read_to_end(&mut Vec::new()).unwrap();
    server.join().unwrap();
    let snapshot = TcpInfo::default().snapshot([client.as_fd()]).unwrap();
    snapshot.totals[0].counts.clone()
}

#[test]
fn a_capture_agrees_with_what_the_kernel_counted() {
    in_namespace(|| {
        // With lo's own 64 KiB, half of the peer's first window is less than the MSS. Until the
        // window grows, the kernel counts two segments where a capture shows one of MSS size
        // (tcp_bound_to_half_wnd).
        let set = Command::new("ip")
            .args(["link", "set", "lo", "mtu", "1500"])
            .status();
        if !set.is_ok_and(|set| set.success()) {
            return skip("needs ip");
        }
        let tcpdump = Command::new("tcpdump")
            .args([
                "-i",
                "lo",
                "-s",
                "96",
                "--immediate-mode",
                "-U",
                "-w",
                "-",
                "tcp",
            ])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut tcpdump) = tcpdump else {
            return skip("needs tcpdump");
        };
        let mut said = BufReader::new(tcpdump.stderr.take().unwrap()).lines();
        if !said.any(|line| line.is_ok_and(|line| line.contains("listening on"))) {
            return skip("tcpdump cannot capture here");
        }
        let counted = transfer();

        let mut analysis = Analysis::new(Settings::default());
        let mut fins: Vec<(Endpoint, u32)> = Vec::new();
        let stdout = tcpdump.stdout.take().unwrap();
        let pid = tcpdump.id();
        let (reading, outcome) = read(stdout, &mut |segment: &Segment| {
            analysis.segment(segment);
            if let (true, Some(seq)) = (segment.any(flag::FIN), segment.seq) {
                fins.push((segment.source, seq.wrapping_add(segment.payload + 1)));
            }
            let (of, ack) = (segment.destination, segment.ack);
            if fins.len() == 2 && segment.is_pure_ack() && fins[1] == (of, ack) {
                // The last segment is the ACK of the second FIN; an ACK of data may come between.
                // SAFETY: the child is not yet waited for, so the id names it.
                unsafe { libc::kill(pid as libc::pid_t, libc::SIGTERM) };
            }
        });
        tcpdump.wait().unwrap();
        outcome.unwrap();
        let (connections, ()) = analysis.finish();
        let report = Report::new("lo", &reading, Ok(()), &connections);
        let seen = &report.connections[0].ends[0].quantities;
        for (quantity, of_kernel) in counted {
            // The kernel counts SYN and FIN as acknowledged bytes, and FIN as a received byte.
            let extra = match quantity {
                Quantity::ConnBytesAcked => 2,
                Quantity::ConnBytesReceived => 1,
                _ => 0,
            };
            if let Some(&seen) = seen.get(&quantity) {
                assert_eq!(seen + extra, of_kernel, "{quantity}");
            }
        }
        assert!(seen.len() >= 8, "{seen:?}");
    });
}
