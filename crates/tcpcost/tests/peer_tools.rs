//! Runs `tcpcost peer` between other programs and our TCP: forwards, files over HTTP, standard
//! input and output, and its messages.

mod common;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{Place, Ran, Started};
use tcpcost_testbed::{has_program, in_namespace, skip};

const OURS: &str = "10.78.0.2";
const HOST: &str = "10.78.0.1";
const LOSSY: [&str; 6] = [
    "--set",
    "loss=1%,2%",
    "--set",
    "burst_loss=0.2%,0%",
    "--set",
    "jitter=1ms,0s",
];

/// Bytes that show if a piece is lost, doubled or moved.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|n| (n % 251) as u8).collect()
}

fn command(place: &Place, flags: &[&str]) -> Command {
    let mut args = vec!["peer", "--tun", "tcp0", "--local", "10.78.0.2/24"];
    args.extend(["--host-address", "10.78.0.1/24"]);
    args.extend(flags);
    place.command(&args)
}

fn start(place: &Place, flags: &[&str]) -> Started {
    let mut args = vec![
        "peer",
        "--tun",
        "tcp0",
        "--local",
        "10.78.0.2/24",
        "--format=json",
    ];
    args.extend(["--host-address", "10.78.0.1/24"]);
    args.extend(flags);
    let mut peer = place.start(&args);
    peer.wait_for("ready");
    peer
}

fn end(peer: Started) -> Vec<serde_json::Value> {
    peer.signal(libc::SIGINT);
    let ran: Ran = peer.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    ran.stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Runs a test in a namespace whose loopback device is up.
fn on_a_host(test: impl Fn(&Place) + Sync) {
    in_namespace(|| {
        if !std::path::Path::new("/dev/net/tun").exists() {
            return skip("needs /dev/net/tun");
        }
        tcpcost_host::link::set_up("lo").unwrap();
        test(&Place::new());
    });
}

/// Sets time limits, so that calls fail when nothing moves for a minute.
fn patient(stream: TcpStream) -> TcpStream {
    let minute = Some(Duration::from_secs(60));
    stream.set_read_timeout(minute).unwrap();
    stream.set_write_timeout(minute).unwrap();
    stream
}

fn connect(address: &str) -> TcpStream {
    patient(TcpStream::connect(address).unwrap())
}

/// Opens a listener of the kernel's TCP, before the interface exists. Returns it with the address
/// by which our TCP reaches it.
fn listener() -> (TcpListener, String) {
    let listener = TcpListener::bind("0.0.0.0:0").unwrap();
    let to = format!("{HOST}:{}", listener.local_addr().unwrap().port());
    (listener, to)
}

/// Accepts one connection, and sends back all bytes and then its end.
fn echo_once(listener: &TcpListener) -> std::thread::JoinHandle<usize> {
    let listener = listener.try_clone().unwrap();
    std::thread::spawn(move || {
        let mut stream = patient(listener.accept().unwrap().0);
        let mut sender = stream.try_clone().unwrap();
        let (mut buffer, mut bytes) = (vec![0; 1 << 16], 0);
        loop {
            let read = stream.read(&mut buffer).unwrap();
            if read == 0 {
                sender.shutdown(Shutdown::Write).unwrap();
                return bytes;
            }
            bytes += read;
            sender.write_all(&buffer[..read]).unwrap();
        }
    })
}

/// Sends and reads back `len` bytes, in both directions at once, with half-closes.
fn to_and_fro(mut stream: TcpStream, len: usize) {
    let mut sender = stream.try_clone().unwrap();
    let bytes = pattern(len);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&bytes).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert!(heard == bytes, "{} of {len} bytes", heard.len());
    });
}

#[test]
fn an_application_is_forwarded_by_our_tcp_with_half_closes_over_any_wire() {
    on_a_host(|_| {
        for (wire, len) in [(&[][..], 20_000_000), (&LOSSY, 1_000_000)] {
            let place = Place::new();
            let (listener, to) = listener();
            let forward = format!("8080={to}");
            let peer = start(&place, &[&["--forward", &forward], wire].concat());
            let echo = echo_once(&listener);
            to_and_fro(connect("127.0.0.1:8080"), len);
            assert_eq!(echo.join().unwrap(), len);
            let totals = end(peer).pop().unwrap();
            assert_eq!(totals["payload_bytes_sent"], len);
            assert_eq!(totals["payload_bytes_received"], len);
            assert_eq!(totals["connections_opened"], 1);
        }
    });
}

#[test]
fn many_are_forwarded_at_once_by_several_instances() {
    on_a_host(|place| {
        let (listener, to) = listener();
        let forward = format!("8080={to}");
        let flags = [
            "--forward",
            &forward,
            "--instances",
            "2",
            "--pcap",
            "p.pcapng",
        ];
        let peer = start(place, &flags);
        let echoes: Vec<_> = (0..20).map(|_| echo_once(&listener)).collect();
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| to_and_fro(connect("127.0.0.1:8080"), 200_000));
            }
        });
        assert!(
            echoes
                .into_iter()
                .all(|echo| echo.join().unwrap() == 200_000)
        );
        let totals = end(peer).pop().unwrap();
        assert_eq!(totals["payload_bytes_received"], 20 * 200_000);
        let capture = std::fs::read(place.path("p.pcapng")).unwrap();
        assert!(
            capture.len() > 40 * 200_000,
            "both ways of all: {}",
            capture.len()
        );
    });
}

#[test]
fn who_is_refused_or_reset_sees_it() {
    on_a_host(|place| {
        let forwards = [
            "--forward",
            "8080=10.78.0.1:9",
            "--forward",
            "8081=10.78.0.1:8090",
        ];
        let peer = start(place, &forwards);
        let error = connect("127.0.0.1:8080").read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        let listener = TcpListener::bind((HOST, 8090)).unwrap();
        let mut client = connect("127.0.0.1:8081");
        let server = patient(listener.accept().unwrap().0);
        client.write_all(b"x").unwrap();
        // A byte that is not read turns the close into a reset.
        (&server).read_exact(&mut []).unwrap();
        rustix::net::sockopt::set_socket_linger(&server, Some(Duration::ZERO)).unwrap();
        drop(server);
        let error = client.read(&mut [0]).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        end(peer);
    });
}

#[test]
fn files_are_served_to_many_and_none_outside_the_directory() {
    if !has_program("curl") {
        return;
    }
    on_a_host(|_| {
        for (wire, len) in [(&[][..], 20_000_000), (&LOSSY, 1_000_000)] {
            let place = Place::new();
            std::fs::create_dir(place.path("www")).unwrap();
            place.write("outside", "secret");
            let bytes = pattern(len);
            std::fs::write(place.path("www/big"), &bytes).unwrap();
            let peer = start(
                &place,
                &[&["--listen", "80", "--service=serve:www"], wire].concat(),
            );
            let get = |more: &[&str], path: &str| {
                let url = format!("http://{OURS}{path}");
                let got = Command::new("curl")
                    .args(["-sS", "--max-time", "60", "--path-as-is"])
                    .args(more)
                    .arg(&url)
                    .output()
                    .unwrap();
                assert!(got.status.success(), "{got:?}");
                got.stdout
            };
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| assert!(get(&[], "/big") == bytes));
                }
            });
            // Two requests on one connection.
            let url = format!("http://{OURS}/big");
            assert_eq!(get(&["-o", "/dev/null", &url], "/big").len(), len);
            let status = |path: &str| get(&["-o", "/dev/null", "-w", "%{http_code}"], path);
            assert_eq!(status("/../outside"), b"404");
            assert_eq!(status("/"), b"404");
            let head = String::from_utf8(get(&["-I"], "/big")).unwrap();
            assert!(
                head.contains(&format!("content-length: {len}\r\n")),
                "{head}"
            );
            let totals = end(peer).pop().unwrap();
            assert_eq!(totals["connections_opened"], 7);
        }
    });
}

#[test]
fn who_sends_nonsense_to_the_files_gets_an_answer_and_the_end() {
    on_a_host(|place| {
        std::fs::create_dir(place.path("www")).unwrap();
        let peer = start(place, &["--listen", "80", "--service=serve:www"]);
        let mut stream = connect("10.78.0.2:80");
        stream.write_all(b"\x16\x03\x01 nonsense\r\n\r\n").unwrap();
        let mut said = Vec::new();
        // The server closes with an error or by a reset.
        let _ = stream.read_to_end(&mut said);
        assert!(
            said.is_empty() || said.starts_with(b"HTTP/1.1 400"),
            "{said:?}"
        );
        end(peer);
    });
}

#[test]
fn standard_input_is_sent_and_standard_output_is_what_comes() {
    on_a_host(|place| {
        let bytes = pattern(3_000_000);
        std::fs::write(place.path("in"), &bytes).unwrap();
        let (listener, to) = listener();
        let echo = echo_once(&listener);
        let ran = command(place, &["--connect", &to, "--service=stdio"])
            .stdin(std::fs::File::open(place.path("in")).unwrap())
            .output()
            .unwrap();
        assert!(
            ran.status.success(),
            "{:?}",
            String::from_utf8_lossy(&ran.stderr)
        );
        assert!(ran.stdout == bytes);
        assert_eq!(echo.join().unwrap(), bytes.len());
    });
}

#[test]
fn the_one_connection_of_a_listener_is_that_of_standard_input() {
    on_a_host(|place| {
        let mut child = command(place, &["--listen", "7", "--service=stdio"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stream = tcpcost_testbed::until("the listener", || {
            TcpStream::connect((OURS, 7)).map(patient).ok()
        });
        child.stdin.take().unwrap().write_all(b"from here").unwrap();
        let mut heard = Vec::new();
        stream.read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"from here");
        assert!(TcpStream::connect((OURS, 7)).is_err(), "one connection");
        stream.write_all(b"and back").unwrap();
        drop(stream);
        let ran = child.wait_with_output().unwrap();
        assert!(ran.status.success(), "{ran:?}");
        assert_eq!(ran.stdout, b"and back");
    });
}

#[test]
fn each_line_is_json_the_first_the_configuration_and_connections_are_rows() {
    on_a_host(|place| {
        let flags = [
            "--listen",
            "5000",
            "--service=sink",
            "--top",
            "--set",
            "ack_policy=avoidance",
        ];
        let mut peer = start(place, &[&flags[..], &LOSSY].concat());
        let mut stream = connect("10.78.0.2:5000");
        let rows = tcpcost_testbed::until("a row", || {
            stream.write_all(&pattern(50_000)).unwrap();
            let line: serde_json::Value = serde_json::from_str(&peer.next_line()).unwrap();
            if let Some(configuration) = line.get("configuration") {
                assert_eq!(configuration["policies"]["ack_policy"], "avoidance");
                assert_eq!(configuration["wire_sent"]["loss"], 0.01);
                assert_eq!(configuration["wire_received"]["loss"], 0.02);
                assert_eq!(configuration["segmentation_offload"], false);
            }
            let rows = line.get("connection_table")?.as_array()?.clone();
            (!rows.is_empty()).then_some(rows)
        });
        assert_eq!(rows[0]["state"], "ESTABLISHED");
        assert_eq!(rows[0]["ack"]["policy"], "avoidance");
        assert!(rows[0]["ack"]["limit"].is_number(), "{rows:?}");
        drop(stream);
        let totals = end(peer).pop().unwrap();
        assert!(totals["dropped"]["checksum"].is_number());
    });
}

#[test]
fn what_cannot_be_asked_for_is_refused_in_one_line() {
    on_a_host(|place| {
        for (flags, said) in [
            (
                &["--forward", "8080=127.0.0.1:80"][..],
                "never leaves a host",
            ),
            (&["--forward", "8080=10.78.0.2:80"], "our own address"),
            (&["--forward", "8080"], "LOCAL:PORT=HOST:PORT"),
            (
                &["--forward", "8080=10.78.0.1:80", "--service=sink"],
                "needs --listen or --connect",
            ),
            (&["--listen", "80"], "need --service"),
            (
                &["--listen", "80", "--service=serve:nowhere"],
                "a directory that exists",
            ),
            (
                &["--listen", "80", "--service=sink", "--set", "loss=1%,2%,3%"],
                "--set loss=1%,2%,3%: ",
            ),
            (
                &[
                    "--listen",
                    "80",
                    "--service=sink",
                    "--set",
                    "wire_rate=1Mbit/s,-",
                    "--set",
                    "wire_queue=9KiB",
                ],
                "wire_queue",
            ),
        ] {
            let ran = Ran::from(command(place, flags).output().unwrap());
            assert_eq!(ran.code, Some(2), "{flags:?}: {ran:?}");
            assert!(
                ran.stderr.lines().last().unwrap().contains(said),
                "{flags:?}: {ran:?}"
            );
        }
        let taken = TcpListener::bind("127.0.0.1:8080").unwrap();
        let ran = command(place, &["--forward", "8080=10.78.0.1:80"])
            .output()
            .unwrap();
        assert_eq!(ran.status.code(), Some(1), "{ran:?}");
        drop(taken);
    });
}
