//! Runs `tcpcost peer` with ordinary clients in a network namespace of its own; every byte is
//! checked.
//!
//! The clients are curl, iperf3, and sockets of the kernel in the test itself.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use common::{Place, Ran, Started};
use tcpcost_testbed::{has_program, in_namespace, skip, until};

/// Bytes that the services `source` and `serve` send from offset `at`.
fn pattern(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|n| (n % 251) as u8).collect()
}

const V4: &str = "10.78.0.2";
const V6: &str = "fd78::2";

/// Ways to reach the peer: layer, address, and impairments of the wire.
const BEDS: [(&str, &str, &[&str]); 6] = [
    ("--tap", V4, &[]),
    ("--tap", V6, &[]),
    ("--tun", V4, &[]),
    ("--tun", V6, &[]),
    ("--tap", V4, LOSSY),
    ("--tap", V6, LOSSY),
];
const LOSSY: &[&str] = &[
    "--set",
    "loss=1%",
    "--set",
    "reorder=1%",
    "--set",
    "corrupt=0.5%",
];

/// Bytes of a transfer: fewer if the wire loses packets.
fn bytes(wire: &[&str]) -> usize {
    if wire.is_empty() {
        30_000_000
    } else {
        2_000_000
    }
}

/// Starts the peer with these flags.
fn peer(place: &Place, layer: &str, flags: &[&[&str]]) -> Started {
    let mut args = vec!["peer", layer, "tcp0", "--format=json"];
    args.extend(["--local", "10.78.0.2/24", "--host-address", "10.78.0.1/24"]);
    args.extend(["--local", "fd78::2/64", "--host-address", "fd78::1/64"]);
    args.extend(flags.iter().copied().flatten());
    let mut peer = place.start(&args);
    peer.wait_for("ready");
    peer
}

/// Ends the peer by SIGINT. Returns its totals.
fn end(peer: Started) -> serde_json::Value {
    peer.signal(libc::SIGINT);
    ended_well(peer.end())
}

fn ended_well(ran: Ran) -> serde_json::Value {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert!(
        !std::fs::read_to_string("/proc/thread-self/net/dev")
            .unwrap()
            .contains("tcp0"),
        "the interface went with it"
    );
    serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap()
}

fn address(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Sets time limits, so that calls fail when nothing moves for a minute instead of waiting forever.
fn client(stream: TcpStream) -> TcpStream {
    let minute = Some(Duration::from_secs(60));
    stream.set_read_timeout(minute).unwrap();
    stream.set_write_timeout(minute).unwrap();
    stream
}

fn connect(ip: &str, port: u16) -> TcpStream {
    client(TcpStream::connect(address(ip, port)).unwrap())
}

/// Reads until the peer closes.
fn hear(stream: &mut TcpStream) -> Vec<u8> {
    let mut heard = Vec::new();
    if let Err(error) = stream.read_to_end(&mut heard) {
        panic!("after {} bytes: {error}", heard.len());
    }
    heard
}

/// Runs a test on every bed.
fn on_every_bed(test: impl Fn(&Place, &str, &str, &[&str]) + Sync) {
    in_namespace(|| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skip("needs /dev/net/tun");
        }
        for (layer, ip, wire) in BEDS {
            println!("{layer} {ip} {wire:?}");
            test(&Place::new(), layer, ip, wire);
        }
    });
}

#[test]
fn curl_gets_what_is_served() {
    if !has_program("curl") {
        return;
    }
    on_every_bed(|place, layer, ip, wire| {
        let bytes = bytes(wire);
        let peer = peer(
            place,
            layer,
            &[
                &["--listen", "80", "--service", &format!("serve:{bytes}B")],
                wire,
            ],
        );
        for _ in 0..2 {
            let url = match ip {
                V4 => format!("http://{V4}/"),
                _ => format!("http://[{V6}]/"),
            };
            let got = Command::new("curl")
                .args(["-sS", "--max-time", "60", &url])
                .output()
                .unwrap();
            assert!(got.status.success(), "{:?}", got.stderr);
            assert!(got.stdout == pattern(0, bytes));
        }
        let totals = end(peer);
        assert_eq!(totals["connections_opened"], 2);
        assert!(totals["payload_bytes_sent"].as_u64().unwrap() >= 2 * bytes as u64);
        if !wire.is_empty() {
            assert!(totals["segments_retransmitted"].as_u64().unwrap() > 0);
        }
    });
}

#[test]
fn iperf3_measures_both_directions() {
    if !has_program("iperf3") {
        return;
    }
    on_every_bed(|place, layer, ip, wire| {
        let peer = peer(
            place,
            layer,
            &[&["--listen", "5201", "--service=iperf3"], wire],
        );
        let bytes = bytes(wire);
        for (way, streams) in [
            (&[][..], 1),
            (&["-R"], 1),
            (&["-P", "3"], 3),
            (&["-R", "-P", "3"], 3),
        ] {
            let ran = Command::new("timeout")
                .args(["60", "iperf3", "-J", "-c", ip, "-C", "cubic"])
                .args(["-n", &bytes.to_string()])
                .args(way)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success(), "{way:?}: {said}");
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            assert!(said.get("error").is_none(), "{said}");
            assert_eq!(said["end"]["streams"].as_array().unwrap().len(), streams);
            let count = |sum: &str| said["end"][sum]["bytes"].as_u64().unwrap();
            let (sent, received) = (count("sum_sent"), count("sum_received"));
            assert!(sent >= bytes as u64, "{way:?}: {sent} of {bytes}");
            // Bytes in the queues when the client says that it is done are not received.
            assert!(
                received > 0 && received <= sent,
                "{way:?}: {received} of {sent}"
            );
        }
        let totals = end(peer);
        assert_eq!(totals["connections_opened"], 4 + 1 + 1 + 3 + 3);
        // A lost FIN is sent again after our end.
        if wire.is_empty() {
            assert_eq!(totals["connections"], 0, "nothing is left of a test");
        }
    });
}

#[test]
fn what_iperf3_cannot_have_here_is_refused_and_the_next_test_runs() {
    if !has_program("iperf3") {
        return;
    }
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5201", "--service=iperf3"]],
        );
        let run = |more: &[&str]| {
            Command::new("timeout")
                .args(["60", "iperf3", "-c", V4, "-n", "1M"])
                .args(more)
                .output()
                .unwrap()
        };
        let refused = run(&["--bidir"]);
        assert!(!refused.status.success(), "{refused:?}");
        let measured = run(&[]);
        assert!(measured.status.success(), "{measured:?}");
        end(peer);
    });
}

/// Makes a wire that silently drops frames with more than 1300 bytes of IP. False if tc cannot.
fn make_a_black_hole() -> bool {
    let tc = |arguments: &[&str]| {
        let status = Command::new("tc").args(arguments).status();
        status.is_ok_and(|status| status.success())
    };
    // Classic BPF: load the length of the frame; above 1314, drop.
    let program = "4,128 0 0 0,37 0 1 1314,6 0 0 2,6 0 0 4294967295";
    let filter = ["filter", "add", "dev", "tcp0", "ingress"];
    let rule = ["bpf", "da", "bytecode", program];
    tc(&["qdisc", "add", "dev", "tcp0", "clsact"]) && tc(&[filter.as_slice(), &rule].concat())
}

#[test]
fn a_black_hole_is_found_by_probing() {
    if !has_program("tc") {
        return;
    }
    in_namespace(|| {
        for (ip, probing) in [(V4, "black-hole"), (V6, "black-hole"), (V4, "always")] {
            let place = Place::new();
            let flags = ["--listen", "80", "--service=source:300000B"];
            // A super-segment would always be too large.
            let probing = format!("mtu_probing={probing}");
            let probes = ["--set", "super_segment=0B", "--set", &probing];
            let peer = peer(&place, "--tap", &[&flags, &probes]);
            if !make_a_black_hole() {
                return skip("needs tc with clsact and cls_bpf");
            }
            assert!(hear(&mut connect(ip, 80)) == pattern(0, 300_000));
            let totals = end(peer);
            let again = totals["segments_retransmitted"].as_u64().unwrap();
            assert!((1..200).contains(&again), "{ip} {probing}: {again}");
        }
    });
}

/// Reads the next byte from an iperf3 server.
fn said(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

/// Sends a text of iperf3's control connection, after its length.
fn say(stream: &mut TcpStream, text: &str) {
    let length = u32::try_from(text.len()).unwrap();
    stream.write_all(&length.to_be_bytes()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
}

/// A client limits the rate for some seconds, and reads the results of both ends.
#[test]
fn an_iperf3_client_gets_the_rate_the_blocks_and_the_omission_it_asks_for() {
    if !has_program("iperf3") {
        return;
    }
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5201", "--service=iperf3"]],
        );
        let run = |flags: &[&str]| {
            let ran = Command::new("timeout")
                .args(["60", "iperf3", "-J", "-c", V4])
                .args(flags)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(ran.status.success(), "{flags:?}: {said}");
            let said: serde_json::Value = serde_json::from_str(&said).unwrap();
            said["end"].clone()
        };
        let bytes = |end: &serde_json::Value, sum: &str| end[sum]["bytes"].as_u64().unwrap();

        let paced = run(&["-R", "-t", "1", "-b", "8M"]);
        assert!(
            (1..2_000_000).contains(&bytes(&paced, "sum_sent")),
            "{paced}"
        );
        let blocks = run(&["-R", "-k", "10", "-l", "1000"]);
        assert_eq!(bytes(&blocks, "sum_sent"), 10_000, "{blocks}");
        assert_eq!(
            bytes(&run(&["-R", "-n", "1M", "-P", "3"]), "sum_sent"),
            1 << 20
        );
        // The first second of 8 Mbit/s is omitted, the second one counts.
        for way in [&[][..], &["-R"]] {
            let omitted = run(&[&["-O", "1", "-t", "1", "-b", "8M"], way].concat());
            for sum in ["sum_sent", "sum_received"] {
                assert!(
                    (1..1_700_000).contains(&bytes(&omitted, sum)),
                    "{sum}: {omitted}"
                );
            }
        }
        for way in [&[][..], &["-R"]] {
            let many = run(&[&["-P", "128", "-n", "1M"], way].concat());
            assert_eq!(many["streams"].as_array().unwrap().len(), 128);
        }
        end(peer);
    });
}

/// Opens the control connection of a test. Returns it with the server's answer.
fn begin(letter: u8) -> (TcpStream, u8) {
    let mut control = connect(V4, 5201);
    control.write_all(&[letter; 37]).unwrap();
    let answer = said(&mut control);
    (control, answer)
}

#[test]
fn iperf3_clients_that_say_nothing_or_are_gone_are_in_nobodys_way() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5201", "--service=iperf3"]],
        );
        let (_silent, answer) = begin(b'a');
        assert_eq!(answer, 9, "PARAM_EXCHANGE");
        let _wordless = connect(V4, 5201);
        // The client's last words and FIN are lost, so the server still has its test.
        let (mut gone, answer) = begin(b'b');
        assert_eq!(answer, 9, "PARAM_EXCHANGE");
        say(&mut gone, "{\"tcp\": true, \"parallel\": 1}");
        assert_eq!(said(&mut gone), 10, "CREATE_STREAMS");
        let mut data = connect(V4, 5201);
        data.write_all(&[b'b'; 37]).unwrap();
        assert_eq!(
            [said(&mut gone), said(&mut gone)],
            [1, 2],
            "TEST_START, TEST_RUNNING"
        );
        // The test has all the connections that it asked for.
        let (_, answer) = begin(b'b');
        assert_eq!(answer, 0xff, "ACCESS_DENIED");
        gone.write_all(&[4]).unwrap();
        assert_eq!(said(&mut gone), 13, "EXCHANGE_RESULTS");
        say(&mut gone, "{}");
        let length = [0; 4].map(|_: u8| said(&mut gone));
        let mut results = vec![0; u32::from_be_bytes(length) as usize];
        gone.read_exact(&mut results).unwrap();
        assert_eq!(said(&mut gone), 14, "DISPLAY_RESULTS");

        let (_next, answer) = begin(b'c');
        assert_eq!(answer, 9, "beside them");
        let totals = end(peer);
        assert_eq!(totals["connections_opened"], 6);
    });
}

/// A test may end when the next client is already connected; that client must not notice.
#[test]
fn the_late_end_of_an_iperf3_test_does_not_end_the_next() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5201", "--service=iperf3"]],
        );
        let (mut first, answer) = begin(b'a');
        assert_eq!(answer, 9, "PARAM_EXCHANGE");
        say(&mut first, "{\"tcp\": true, \"parallel\": 1}");
        assert_eq!(said(&mut first), 10, "CREATE_STREAMS");
        let mut data = connect(V4, 5201);
        data.write_all(&[b'a'; 37]).unwrap();
        assert_eq!(
            [said(&mut first), said(&mut first)],
            [1, 2],
            "TEST_START, TEST_RUNNING"
        );
        // The data connection is closed, and its place is free for the next client.
        data.shutdown(Shutdown::Write).unwrap();
        assert_eq!(hear(&mut data), b"");
        let (mut second, answer) = begin(b'b');
        assert_eq!(answer, 9, "PARAM_EXCHANGE");
        first.write_all(&[16]).unwrap();
        assert_eq!(hear(&mut first), b"", "IPERF_DONE");
        say(&mut second, "{\"tcp\": true, \"parallel\": 1}");
        assert_eq!(said(&mut second), 10, "CREATE_STREAMS");
        end(peer);
    });
}

/// Silent clients hold the 64 places for at most ten seconds.
#[test]
fn as_many_iperf3_clients_as_there_may_be_do_not_block_the_next_for_ever() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5201", "--service=iperf3"]],
        );
        let silent: Vec<_> = (0..64).map(begin).collect();
        assert!(silent.iter().all(|(_, answer)| *answer == 9));
        let mut refusals = 0;
        let mut next = until("the next client's turn", || match begin(b'x') {
            (next, 9) => Some(next),
            (_, answer) => {
                assert_eq!(answer, 0xff, "ACCESS_DENIED");
                refusals += 1;
                None
            }
        });
        assert!(
            refusals > 0,
            "a client that was heard just now keeps its place"
        );
        say(&mut next, "{\"tcp\": true, \"parallel\": 1}");
        assert_eq!(said(&mut next), 10, "CREATE_STREAMS");
        end(peer);
    });
}

#[test]
fn an_interface_that_was_there_is_afterwards_as_it_was() {
    if !has_program("ip") {
        return;
    }
    in_namespace(|| {
        let place = Place::new();
        let ip = |words: &str| {
            let ran = Command::new("ip").args(words.split(' ')).output().unwrap();
            assert!(ran.status.success(), "{words}: {ran:?}");
            String::from_utf8(ran.stdout).unwrap()
        };
        ip("tuntap add mode tap tcp0");
        ip("link set tcp0 mtu 1400");
        ip("address add 10.77.0.1/24 dev tcp0");
        ip("address add 10.78.0.1/24 dev tcp0");
        let seen = || {
            let link = ip("-o link show tcp0");
            let word = |after: &str| {
                let (_, rest) = link.split_once(after).unwrap();
                rest.split(['\\', ' ']).next().unwrap().to_string()
            };
            let (up, mtu, queue) = (link.contains("UP"), word(" mtu "), word(" qlen "));
            (up, mtu, queue, ip("-o address show tcp0"))
        };
        let before = seen();
        let peer = peer(
            &place,
            "--tap",
            &[&["--listen", "5000", "--service=sink", "--set", "mtu=9000"]],
        );
        let (up, mtu, queue, addresses) = seen();
        assert!(
            up && mtu == "9000" && queue == "8192" && addresses.contains("fd78::1"),
            "{addresses}"
        );
        peer.signal(libc::SIGTERM);
        assert_eq!(peer.end().code, Some(0));
        assert_eq!(seen(), before);
    });
}

/// Asserts one line, exit code 2 and no changes.
#[test]
fn what_cannot_be_is_refused_in_one_line() {
    in_namespace(|| {
        let place = Place::new();
        let check = |line: &str, said: &str| {
            let mut words: Vec<&str> = vec!["peer"];
            words.extend(
                line.split(' ')
                    .map(|word| if word == "''" { "" } else { word }),
            );
            let ran = place.start(&words).end();
            assert_eq!(ran.code, Some(2), "{line}: {ran:?}");
            assert!(ran.stderr.contains(said), "{line}: {ran:?}");
            assert_eq!(ran.stderr.lines().count(), 1, "{line}: {ran:?}");
        };
        let to = |address: &str, rest: &str| format!("--tun t0 --local {address} {rest}");
        for address in [
            "0.0.0.0/24",
            "127.0.0.1/8",
            "224.0.0.1/24",
            "10.9.0.255/24",
            "10.9.0.0/24",
            "ff02::1/64",
        ] {
            check(&to(address, "--listen 80 --service sink"), "--local");
        }
        let sink = |rest: &str| to("10.9.0.2/24", &format!("--listen 80 --service sink {rest}"));
        check(&sink("--local 10.9.0.3/24"), "one of each family");
        check(&sink("--host-address 10.9.0.2/24"), "is --local");
        check(&sink("--set send_buffer=1B"), "from 4KiB");
        check(&sink("--set receive_buffer=1B"), "from 4KiB");
        check(&sink("--nope"), "see tcpcost peer --help");
        check(&sink("--set mss=9000"), "does not fit an MTU of 1500");
        check(&sink("--set comp_sack_nr=8"), "--set comp_sack_nr needs");
        for name in ["''", "..", "a/b", "twenty-one-characters"] {
            let line = format!("--tun {name} --local 10.9.0.2/24 --listen 80 --service sink");
            check(&line, "1 to 15 bytes");
        }
        let tap = "--tap t0 --local 10.9.0.2/24";
        check(
            &format!("{tap} --listen 80 --service sink --set mtu=65535"),
            "65521",
        );
        check(
            &format!("{tap} --listen 65535 --service sink --instances 3"),
            "--instances",
        );
        for remote in ["10.9.0.2:80", "10.9.0.1:0", "224.0.0.1:80", "[fd00::1]:80"] {
            check(
                &format!("{tap} --service sink --connect {remote}"),
                "--connect",
            );
        }
    });
}

/// The kernel's interface goes down: nothing is acknowledged, nothing answers.
#[test]
fn a_peer_that_is_gone_is_found_out_in_the_time_that_was_asked_for() {
    if !has_program("ip") {
        return;
    }
    in_namespace(|| {
        for (service, flag) in [
            ("--service=source", &["--set", "user_timeout=300ms"][..]),
            (
                "--service=sink",
                &[
                    "--set",
                    "keepalive=100ms",
                    "--set",
                    "keepalive_interval=50ms",
                    "--set",
                    "keepalive_probes=2",
                ],
            ),
        ] {
            let place = Place::new();
            let listener = TcpListener::bind(address("0.0.0.0", 6000)).unwrap();
            let connect = ["--connect", "10.78.0.1:6000", service];
            let peer = peer(&place, "--tun", &[&connect, flag]);
            let (stream, _) = listener.accept().unwrap();
            let down = ["link", "set", "tcp0", "down"];
            assert!(Command::new("ip").args(down).status().unwrap().success());
            let ran = peer.end();
            assert_eq!(ran.code, Some(1), "{ran:?}");
            assert!(ran.stderr.contains("timed out"), "{ran:?}");
            drop(stream);
        }
    });
}

/// A closed terminal ends the peer and removes its interface.
#[test]
fn a_closed_terminal_ends_it_with_totals() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(&place, "--tun", &[&["--listen", "5000", "--service=sink"]]);
        peer.signal(libc::SIGHUP);
        assert_eq!(ended_well(peer.end())["connections"], 0);
    });
}

#[test]
fn what_the_kernel_sends_arrives_as_it_was() {
    on_every_bed(|place, layer, ip, wire| {
        let bytes = bytes(wire);
        let sink = [
            "--listen",
            "5000",
            "--service=sink:check",
            "--set",
            "ack_every=8",
        ];
        let peer = peer(place, layer, &[&sink, wire]);
        let mut stream = connect(ip, 5000);
        stream.write_all(&pattern(0, bytes)).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "it closes in its turn");
        let totals = end(peer);
        assert_eq!(totals["payload_bytes_received"], bytes);
        assert_eq!(totals["wrong_bytes"], 0);
        let count = |name: &str| totals[name].as_u64().unwrap();
        if wire.is_empty() {
            assert!(
                (6..=9).contains(&(count("segments_received") / count("pure_acks_sent"))),
                "on the wire, not a batch: {totals}"
            );
        }
    });
}

#[test]
fn several_instances_have_a_port_each_and_one_report() {
    in_namespace(|| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skip("needs /dev/net/tun");
        }
        for layer in ["--tap", "--tun"] {
            let flags: &[&str] = &[
                "--listen",
                "7001",
                "--service=sink:check",
                "--instances",
                "3",
            ];
            let peer = peer(&Place::new(), layer, &[flags]);
            let clients = (7001..7004).flat_map(|port| [(V4, port), (V6, port)]);
            let clients: Vec<_> = clients
                .map(|(ip, port)| {
                    let mut stream = connect(ip, port);
                    stream.write_all(&pattern(0, 1_000_000)).unwrap();
                    stream
                })
                .collect();
            for mut stream in clients {
                stream.shutdown(Shutdown::Write).unwrap();
                assert_eq!(hear(&mut stream), b"");
            }
            assert!(
                TcpStream::connect(address(V4, 7004)).is_err(),
                "no more ports than instances"
            );
            let totals = end(peer);
            assert_eq!(totals["connections_opened"], 6);
            assert_eq!(totals["payload_bytes_received"], 6_000_000);
            assert_eq!(totals["wrong_bytes"], 0);
        }
    });
}

#[test]
fn wrong_bytes_are_found_and_are_a_failure() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tun",
            &[&["--listen", "5000", "--service=sink:check"]],
        );
        let mut stream = connect(V4, 5000);
        let mut bytes = pattern(0, 10_000);
        bytes[5000] ^= 1;
        stream.write_all(&bytes).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0);
        peer.signal(libc::SIGTERM);
        let ran = peer.end();
        assert_eq!(ran.code, Some(1), "{ran:?}");
        assert!(ran.stdout.contains("\"wrong_bytes\":1,"), "{ran:?}");
    });
}

#[test]
fn an_echo_is_what_was_sent() {
    on_every_bed(|place, layer, ip, wire| {
        let bytes = bytes(wire) / 2;
        let peer = peer(place, layer, &[&["--listen", "7", "--service=echo"], wire]);
        let mut stream = connect(ip, 7);
        let mut sender = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(&pattern(3, bytes)).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            assert!(hear(&mut stream) == pattern(3, bytes));
        });
        let totals = end(peer);
        assert_eq!(totals["payload_bytes_received"], bytes);
        assert_eq!(totals["payload_bytes_sent"], bytes, "what was queued, too");
    });
}

/// Sends up to 13 MB from a socket with a receive buffer of 4 KiB, reads nothing, and closes.
fn never_read(ip: &str, port: u16) {
    use rustix::net::{AddressFamily, SocketType, sockopt};
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    sockopt::set_socket_recv_buffer_size(&socket, 4096).unwrap();
    rustix::net::connect(&socket, &address(ip, port)).unwrap();
    let mut stream = TcpStream::from(socket);
    stream
        .set_write_timeout(Some(Duration::from_millis(200)))
        .unwrap();
    // An echo accepts less than this; other services accept all.
    for _ in 0..200 {
        if stream.write(&[b'x'; 1 << 16]).is_err() {
            return;
        }
    }
}

#[test]
fn clients_that_never_read_and_leave_are_in_nobodys_way() {
    const SERVICES: [&[&str]; 4] = [
        &["--service=echo"],
        &["--service=source"],
        &["--service=serve:1MiB"],
        &["--service=iperf3"],
    ];
    in_namespace(|| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skip("needs /dev/net/tun");
        }
        for service in SERVICES {
            let place = Place::new();
            let peer = peer(&place, "--tun", &[&["--listen", "7"], service]);
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| never_read(V4, 7));
                }
            });
            // An iperf3 server answers a cookie of 37 bytes; other services answer a request.
            let mut stream = connect(V4, 7);
            stream
                .write_all(b"GET / HTTP/1.0\r\n\r\n and 19 bytes more.")
                .unwrap();
            stream
                .read_exact(&mut [0])
                .unwrap_or_else(|error| panic!("{service:?}: {error}"));
            drop(stream);
            end(peer);
        }
    });
}

#[test]
fn it_connects_sends_and_ends_by_itself() {
    on_every_bed(|place, layer, ip, wire| {
        let (bytes, any) = (bytes(wire), if ip == V4 { "0.0.0.0" } else { "::" });
        // The port is free, because a child of another test may hold the last listener until its
        // exec.
        let listener = TcpListener::bind(address(any, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (to, size) = (
            address(if ip == V4 { "10.78.0.1" } else { "fd78::1" }, port),
            format!("source:{bytes}B"),
        );
        let source = ["--connect", &to.to_string(), "--service", &size];
        let peer = peer(place, layer, &[&source, wire]);
        let mut stream = client(listener.accept().unwrap().0);
        assert!(hear(&mut stream) == pattern(0, bytes));
        drop(stream);
        let totals = ended_well(peer.end());
        assert_eq!(totals["payload_bytes_sent"], bytes);
    });
}

#[test]
fn a_refused_connect_is_an_error_that_says_so() {
    in_namespace(|| {
        let place = Place::new();
        let connect = ["--connect", "10.78.0.1:9", "--service=sink"];
        let ran = peer(&place, "--tap", &[&connect]).end();
        assert_eq!(ran.code, Some(1));
        assert!(
            ran.stderr
                .contains("connection to 10.78.0.1:9: connection refused"),
            "{ran:?}"
        );
    });
}

#[test]
fn a_capture_holds_what_passed() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(
            &place,
            "--tap",
            &[&[
                "--listen",
                "80",
                "--service=source:100000B",
                "--pcap",
                "p.pcapng",
            ]],
        );
        let heard = hear(&mut connect(V4, 80));
        assert!(heard == pattern(0, 100_000));
        end(peer);
        let capture = std::fs::read(place.path("p.pcapng")).unwrap();
        assert_eq!(capture[..4], [0x0a, 0x0d, 0x0d, 0x0a]);
        assert!(capture.len() > 100_000);
        let part = &heard[50_000..50_100];
        assert!(capture.windows(100).any(|window| window == part));
    });
}
