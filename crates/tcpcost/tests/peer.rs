//! `tcpcost peer` and ordinary clients, in a network namespace of its own: every byte checked.
//!
//! curl, iperf3, and sockets of the kernel that are driven from here.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::time::Duration;

use common::{Place, Ran, Started};
use tcpcost_testbed::{has_program, in_namespace, skip, until};

/// The bytes of `--source` and `--serve` from offset `at`.
fn pattern(at: usize, len: usize) -> Vec<u8> {
    (at..at + len).map(|n| (n % 251) as u8).collect()
}

const V4: &str = "10.78.0.2";
const V6: &str = "fd78::2";

/// Each way to reach it: layer and address, and what is wrong with the wire.
const BEDS: [(&str, &str, &[&str]); 6] = [
    ("--tap", V4, &[]),
    ("--tap", V6, &[]),
    ("--tun", V4, &[]),
    ("--tun", V6, &[]),
    ("--tap", V4, LOSSY),
    ("--tap", V6, LOSSY),
];
const LOSSY: &[&str] = &["--loss", "1%", "--reorder", "1%", "--corrupt", "0.5%"];

/// Bytes of a transfer: less where a wire loses.
fn bytes(wire: &[&str]) -> usize {
    if wire.is_empty() {
        30_000_000
    } else {
        2_000_000
    }
}

/// Starts it with these flags.
fn peer(place: &Place, layer: &str, flags: &[&[&str]]) -> Started {
    let mut args = vec!["peer", layer, "tcp0", "--json"];
    args.extend([
        "--address",
        "10.78.0.2/24",
        "--host-address",
        "10.78.0.1/24",
    ]);
    args.extend(["--address", "fd78::2/64", "--host-address", "fd78::1/64"]);
    args.extend(flags.iter().copied().flatten());
    let mut peer = place.start(&args);
    peer.wait_for("ready");
    peer
}

/// Ctrl-C; the totals it ended with.
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

/// A client whose calls fail when nothing moves for a minute, instead of waiting for ever for a
/// peer that is gone.
fn client(stream: TcpStream) -> TcpStream {
    let minute = Some(Duration::from_secs(60));
    stream.set_read_timeout(minute).unwrap();
    stream.set_write_timeout(minute).unwrap();
    stream
}

fn connect(ip: &str, port: u16) -> TcpStream {
    client(TcpStream::connect(address(ip, port)).unwrap())
}

/// Everything until the peer closes.
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
            &[&["--listen", "80", "--serve", &format!("{bytes}B")], wire],
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
        let peer = peer(place, layer, &[&["--listen", "5201", "--iperf3"], wire]);
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
            // What is in the queues when the client says that it is done is not received.
            assert!(
                received > 0 && received <= sent,
                "{way:?}: {received} of {sent}"
            );
        }
        let totals = end(peer);
        assert_eq!(totals["connections_opened"], 4 + 1 + 1 + 3 + 3);
        // A FIN that was lost is sent again after our end.
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
        let peer = peer(&place, "--tun", &[&["--listen", "5201", "--iperf3"]]);
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

/// The next byte that an iperf3 server says.
fn said(stream: &mut TcpStream) -> u8 {
    let mut byte = [0];
    stream.read_exact(&mut byte).unwrap();
    byte[0]
}

/// A text of iperf3's control connection, behind its length.
fn say(stream: &mut TcpStream, text: &str) {
    let length = u32::try_from(text.len()).unwrap();
    stream.write_all(&length.to_be_bytes()).unwrap();
    stream.write_all(text.as_bytes()).unwrap();
}

/// As a client whose last words and FIN are lost: for the server it is still there.
#[test]
fn an_iperf3_client_that_is_gone_after_its_results_does_not_block_the_next() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(&place, "--tun", &[&["--listen", "5201", "--iperf3"]]);
        let cookie = |letter: u8| [letter; 37];
        let mut gone = connect(V4, 5201);
        gone.write_all(&cookie(b'a')).unwrap();
        assert_eq!(said(&mut gone), 9, "PARAM_EXCHANGE");
        say(&mut gone, "{\"tcp\": true, \"parallel\": 1}");
        assert_eq!(said(&mut gone), 10, "CREATE_STREAMS");
        let mut data = connect(V4, 5201);
        data.write_all(&cookie(b'a')).unwrap();
        assert_eq!(
            [said(&mut gone), said(&mut gone)],
            [1, 2],
            "TEST_START, TEST_RUNNING"
        );
        // While a test runs, another is turned away.
        let mut early = connect(V4, 5201);
        early.write_all(&cookie(b'b')).unwrap();
        assert_eq!(said(&mut early), 0xff, "ACCESS_DENIED");
        gone.write_all(&[4]).unwrap();
        assert_eq!(said(&mut gone), 13, "EXCHANGE_RESULTS");
        say(&mut gone, "{}");
        let length = [0; 4].map(|_: u8| said(&mut gone));
        let mut results = vec![0; u32::from_be_bytes(length) as usize];
        gone.read_exact(&mut results).unwrap();
        assert_eq!(said(&mut gone), 14, "DISPLAY_RESULTS");

        let mut next = connect(V4, 5201);
        next.write_all(&cookie(b'c')).unwrap();
        assert_eq!(said(&mut next), 9, "the next has its turn");
        let totals = end(peer);
        assert_eq!(totals["connections_opened"], 4);
    });
}

/// Ten seconds after the last word of a client that is still connected.
#[test]
fn an_iperf3_client_that_falls_silent_does_not_block_the_next_for_ever() {
    in_namespace(|| {
        let place = Place::new();
        let peer = peer(&place, "--tun", &[&["--listen", "5201", "--iperf3"]]);
        let mut silent = connect(V4, 5201);
        silent.write_all(&[b'a'; 37]).unwrap();
        assert_eq!(said(&mut silent), 9, "PARAM_EXCHANGE");
        let mut refusals = 0;
        let mut next = until("the next client's turn", || {
            let mut next = connect(V4, 5201);
            next.write_all(&[b'b'; 37]).unwrap();
            match said(&mut next) {
                9 => Some(next),
                said => {
                    assert_eq!(said, 0xff, "ACCESS_DENIED");
                    refusals += 1;
                    None
                }
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
fn what_the_kernel_sends_arrives_as_it_was() {
    on_every_bed(|place, layer, ip, wire| {
        let bytes = bytes(wire);
        let sink = ["--listen", "5000", "--sink", "--check", "--ack-every", "8"];
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
                count("pure_acks_sent") * 4 < count("segments_received"),
                "{totals}"
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
            let flags: &[&str] = &["--listen", "7001", "--sink", "--check", "--instances", "3"];
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
            &[&["--listen", "5000", "--sink", "--check"]],
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
        let peer = peer(place, layer, &[&["--listen", "7", "--echo"], wire]);
        let mut stream = connect(ip, 7);
        let mut sender = stream.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                sender.write_all(&pattern(3, bytes)).unwrap();
                sender.shutdown(Shutdown::Write).unwrap();
            });
            assert!(hear(&mut stream) == pattern(3, bytes));
        });
        end(peer);
    });
}

#[test]
fn it_connects_sends_and_ends_by_itself() {
    on_every_bed(|place, layer, ip, wire| {
        let (bytes, any) = (bytes(wire), if ip == V4 { "0.0.0.0" } else { "::" });
        // Any port: a child that another test is about to start holds the last listener until its exec.
        let listener = TcpListener::bind(address(any, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let (to, size) = (
            address(if ip == V4 { "10.78.0.1" } else { "fd78::1" }, port),
            format!("{bytes}B"),
        );
        let source = ["--connect", &to.to_string(), "--source", "--bytes", &size];
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
        let connect = ["--connect", "10.78.0.1:9", "--sink"];
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
                "--listen", "80", "--source", "--bytes", "100000B", "--pcap", "p.pcapng",
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
