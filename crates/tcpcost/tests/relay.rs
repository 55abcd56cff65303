//! Runs `tcpcost relay` in front of a server of the test.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::time::Duration;

use common::{Place, Started};
use serde_json::Value;
use tcpcost_testbed::{has_program, in_namespace, is_root, skip, until};

/// Starts a relay and waits until it is ready. Returns it with its listening address.
fn relay(place: &Place, server: SocketAddr, more: &[&str]) -> (Started, SocketAddr) {
    let server = server.to_string();
    let args = [
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        &server,
        "--max-connections",
        "100",
    ];
    let mut started = place.start(&[&args[..], more].concat());
    let line = started.wait_for("tcpcost: relay on ");
    started.wait_for("tcpcost: ready");
    let local = line.split(' ').nth(3).unwrap();
    (started, local.parse().unwrap())
}

fn server() -> (TcpListener, SocketAddr) {
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = server.local_addr().unwrap();
    (server, address)
}

/// Sends a request of one byte, and reads an answer of `bytes`.
fn ask(client: &mut TcpStream, server: &TcpListener, bytes: usize) {
    client.write_all(b"?").unwrap();
    let (mut served, _) = server.accept().unwrap();
    served.read_exact(&mut [0]).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(move || served.write_all(&vec![b'!'; bytes]).unwrap());
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.len(), bytes);
    });
}

#[test]
fn it_tells_each_connection_and_the_totals_in_lines_of_json() {
    let place = Place::new();
    let (server, address) = server();
    for mode in ["copy", "splice", "auto", "io-uring"] {
        let (relay, local) = relay(&place, address, &["--format=json", "--mode", mode]);
        let mut client = TcpStream::connect(local).unwrap();
        let source = client.local_addr().unwrap().to_string();
        ask(&mut client, &server, 100_000);
        drop(client);
        relay.signal(libc::SIGTERM);
        let ran = relay.end();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let lines: Vec<Value> = ran
            .stdout
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let [connection, end] = &lines[..] else {
            panic!("{ran:?}");
        };
        assert_eq!(connection["event"], "connection");
        assert_eq!(connection["source"], source);
        assert_eq!(connection["upstream"], address.to_string());
        assert_eq!(connection["ending"], "finished");
        assert_eq!(end["event"], "end");
        assert_eq!(end["ended"]["finished"], 1);
        for line in [connection, end] {
            let relayed = |way: &str| {
                let bytes = &line[way];
                let of = |how: &str| bytes[how].as_u64().unwrap();
                of("copied_bytes") + of("spliced_bytes") + of("redirected_bytes")
            };
            assert_eq!(relayed("to_server"), 1, "{line}");
            assert_eq!(relayed("to_client"), 100_000, "{line}");
        }
    }
}

#[test]
fn bytes_of_a_connection_that_goes_on_are_in_the_metrics() {
    let place = Place::new();
    let (server, address) = server();
    let more = ["--mode", "splice", "--metrics", "127.0.0.1:0"];
    let server_address = address.to_string();
    let args = [
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        &server_address,
        "--max-connections",
        "10",
    ];
    let mut started = place.start(&[&args[..], &more].concat());
    let metrics = started.wait_for("http://");
    let metrics = metrics.trim().rsplit_once("http://").unwrap().1;
    let metrics = metrics.strip_suffix("/metrics").unwrap().to_string();
    let line = started.wait_for("relay on");
    let mut client = TcpStream::connect(line.split(' ').nth(3).unwrap()).unwrap();
    client.write_all(&[7; 5000]).unwrap();
    let (mut served, _) = server.accept().unwrap();
    served.read_exact(&mut [0; 5000]).unwrap();
    let scrape = || {
        let mut scraper = TcpStream::connect(&metrics).unwrap();
        let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        scraper.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        scraper.read_to_string(&mut text).unwrap();
        text
    };
    // The server may read the last bytes before the relay has counted them.
    let all = "tcpcost_relay_payload_bytes_total{direction=\"to_server\",how=\"spliced\"} 5000\n";
    until("all bytes are counted", || {
        scrape().contains(all).then_some(())
    });
    let text = scrape();
    for line in [
        "tcpcost_relay_connections 1\n",
        "tcpcost_relay_connections_accepted_total 1\n",
        "tcpcost_relay_connections_ended_total{ending=\"finished\"} 0\n",
    ] {
        assert!(text.contains(line), "{line}{text}");
    }
    drop((client, served));
    until("it has ended", || {
        scrape()
            .contains("tcpcost_relay_connections_ended_total{ending=\"finished\"} 1\n")
            .then_some(())
    });
    started.signal(libc::SIGINT);
    let ran = started.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    assert_eq!(
        ran.stdout,
        "1 connection, 5000 bytes: 100.0 % spliced, 0 abandoned\n"
    );
}

/// Asserts that a read fails because the connection was reset.
fn assert_reset(mut stream: TcpStream) {
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    let error = stream.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn a_first_signal_lets_connections_finish_and_a_second_one_resets_them() {
    let place = Place::new();
    for mode in ["copy", "splice", "auto", "io-uring"] {
        let (server, address) = server();
        let (mut relay, local) = relay(&place, address, &["--format=json", "--mode", mode]);
        let mut client = TcpStream::connect(local).unwrap();
        client.write_all(b"x").unwrap();
        let (mut served, _) = server.accept().unwrap();
        served.read_exact(&mut [0]).unwrap();
        // A second connection has a server that reads nothing, so all queues on the path are full.
        let mut stalled = TcpStream::connect(local).unwrap();
        let (stalled_served, _) = server.accept().unwrap();
        stalled
            .set_write_timeout(Some(Duration::from_millis(100)))
            .unwrap();
        while stalled.write(&[0; 1 << 16]).is_ok() {}
        relay.signal(libc::SIGTERM);
        until("it listens no more", || {
            TcpStream::connect(local).is_err().then_some(())
        });
        client.write_all(b"y").unwrap();
        let mut byte = [0];
        served.read_exact(&mut byte).unwrap();
        assert_eq!(&byte, b"y");
        relay.signal(libc::SIGTERM);
        let last = loop {
            let line: Value = serde_json::from_str(&relay.next_line()).unwrap();
            if line["event"] == "end" {
                break line;
            }
        };
        assert_eq!(relay.end().code, Some(130));
        for stream in [client, served, stalled, stalled_served] {
            assert_reset(stream);
        }
        // The connect above may have made a third connection.
        assert!(last["ended"]["stopped"].as_u64() >= Some(2), "{last}");
        let abandoned = last["to_server"]["abandoned_bytes"].as_u64();
        assert!(abandoned.unwrap() > 1 << 16, "{last}");
    }
}

#[test]
fn mistakes_are_told_in_one_line_with_what_works() {
    let place = Place::new();
    let (server, address) = server();
    let (to, used) = (address.to_string(), address.to_string());
    let own = self::server().1;
    let (own, wildcard) = (own.to_string(), format!("0.0.0.0:{}", own.port()));
    let user = ["--mode", "user", "--tap", "r0", "--local", "10.9.0.2/24"];
    let cases: &[(&[&str], i32, &str)] = &[
        (&["--to", &to], 2, "--listen ADDR is needed"),
        (&["--listen", "127.0.0.1:0"], 2, "--to"),
        (
            &["--listen", "127.0.0.1:0", "--to", "no-such-host.invalid:80"],
            2,
            "no-such-host.invalid:80\" has no address",
        ),
        (
            &["--listen", &used, "--to", &to],
            1,
            "Address already in use",
        ),
        (
            &["--listen", &used, "--to", &to, "--workers", "2"],
            1,
            "Address already in use",
        ),
        (
            &["--listen", "192.0.2.1:80", "--to", &to],
            1,
            "listen on 192.0.2.1:80",
        ),
        (
            &["--listen", "127.0.0.1:0", "--to", &to, "--mode", "sockmap"],
            77,
            "--mode auto works here",
        ),
        (
            &["--listen", "127.0.0.1:0", "--to", &to, "--mode", "fast"],
            2,
            "one of copy, splice, sockmap, io-uring, user, user-copy, auto",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                &to,
                "--max-connections",
                "9999999",
            ],
            77,
            "open files",
        ),
        (
            &["--listen", "127.0.0.1:0", "--to", &to, "--cpus", "4000"],
            2,
            "--cpus: CPU 4000 is offline or not allowed here; usable: [",
        ),
        (
            &["--listen", &own, "--to", &own],
            2,
            "this relay itself listens there",
        ),
        (
            &["--listen", &wildcard, "--to", &to, &own],
            2,
            "this relay itself listens there (0.0.0.0:",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                &to,
                "--allow",
                "10.0.0.0/33",
            ],
            2,
            "is no network",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                &to,
                "--set",
                "keepalive=1ms",
            ],
            2,
            "whole seconds",
        ),
        (
            &["--listen", "10.9.0.2:80", "--to", &to, "--mode", "user"],
            2,
            "--mode user needs --tap NAME and --local ADDR/PREFIX",
        ),
        (
            &[
                "--listen",
                "127.0.0.1:0",
                "--to",
                &to,
                "--set",
                "ack_every=2",
            ],
            2,
            "need --mode user",
        ),
        (
            &[
                &user[..],
                &["--listen", "127.0.0.1:0", "--to", "10.9.0.1:80"],
            ]
            .concat(),
            2,
            "--listen 127.0.0.1:0: no --local of ours",
        ),
        (
            &[&user[..], &["--listen", "10.9.0.2:80", "--to", &to]].concat(),
            2,
            "never leaves a host",
        ),
        (
            &[
                &user[..],
                &[
                    "--listen",
                    "10.9.0.2:80",
                    "--to",
                    "10.9.0.1:80",
                    "--cpus",
                    "0,1",
                ],
            ]
            .concat(),
            2,
            "--mode user has one worker",
        ),
    ];
    for (args, code, said) in cases {
        let ran = place.run(&[&["relay"], *args].concat());
        assert_eq!(ran.code, Some(*code), "{args:?} {ran:?}");
        let lines: Vec<&str> = ran.stderr.lines().collect();
        assert_eq!(lines.len(), 1, "{args:?} {ran:?}");
        assert!(lines[0].contains(said), "{args:?} {ran:?}");
        assert_eq!(ran.stdout, "", "{args:?}");
    }
    drop(server);
}

#[test]
fn our_own_tcp_relays_over_an_interface_that_goes_with_it() {
    // Mode, and true if every byte is copied.
    for (mode, copies) in [("user", false), ("user-copy", true)] {
        in_namespace(|| relays_over_an_interface(mode, copies));
    }
}

fn relays_over_an_interface(mode: &str, copies: bool) {
    let place = Place::new();
    let server = TcpListener::bind("0.0.0.0:0").unwrap();
    let to = format!("10.9.0.1:{}", server.local_addr().unwrap().port());
    let args = [
        "relay",
        "--mode",
        mode,
        "--tap",
        "r0",
        "--local",
        "10.9.0.2/24",
        "--host-address",
        "10.9.0.1/24",
        "--listen",
        "10.9.0.2:80",
        "--to",
        &to,
        "--set",
        "ack_policy=on-read",
        "--format=json",
    ];
    let mut relay = place.start(&args);
    let line = relay.wait_for("tcpcost: relay on ");
    assert!(line.contains("on 10.9.0.2:80 to 10.9.0.1:"), "{line}");
    relay.wait_for("tcpcost: ready");
    let mut client = TcpStream::connect("10.9.0.2:80").unwrap();
    ask(&mut client, &server, 1_000_000);
    drop(client);
    relay.signal(libc::SIGTERM);
    let ran = relay.end();
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let last: Value = serde_json::from_str(ran.stdout.lines().last().unwrap()).unwrap();
    assert_eq!(last["ended"]["finished"], 1, "{last}");
    let back = &last["to_client"];
    let moved = |how: &str| back[how].as_u64().unwrap();
    assert_eq!(moved("redirected_bytes") + moved("copied_bytes"), 1_000_000);
    assert!(!copies || moved("redirected_bytes") == 0, "{last}");
    assert!(
        !std::fs::read_to_string("/proc/thread-self/net/dev")
            .unwrap()
            .contains("r0:")
    );
}

#[test]
fn sockets_of_a_service_manager_are_taken_and_it_is_told_when_all_is_ready() {
    if !has_program("sh") {
        return;
    }
    let place = Place::new();
    let (server, address) = server();
    let (handed, local) = self::server();
    let notified = std::os::unix::net::UnixDatagram::bind(place.path("notify")).unwrap();
    notified
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    // The shell does as systemd: it sets LISTEN_PID to its own id, and the socket is descriptor 3.
    let script = "LISTEN_PID=$$ LISTEN_FDS=1 exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command
        .args([
            "-c",
            script,
            env!("CARGO_BIN_EXE_tcpcost"),
            "relay",
            "--to",
            &address.to_string(),
        ])
        .env("NOTIFY_SOCKET", place.path("notify"))
        .stderr(std::process::Stdio::null())
        .stdout(std::process::Stdio::null());
    let fd = std::os::fd::AsRawFd::as_raw_fd(&handed);
    // SAFETY: dup2 is async-signal-safe (signal-safety(7)).
    unsafe {
        command.pre_exec(move || match libc::dup2(fd, 3) {
            3 => {
                // The descriptor would be closed at exec if dup2 had nothing to do.
                libc::fcntl(3, libc::F_SETFD, 0);
                Ok(())
            }
            _ => Err(std::io::Error::last_os_error()),
        });
    }
    let mut child = command.spawn().unwrap();
    let mut told = [0; 64];
    let bytes = notified.recv(&mut told).unwrap();
    assert_eq!(&told[..bytes], b"READY=1");
    let mut client = TcpStream::connect(local).unwrap();
    ask(&mut client, &server, 10);
    drop(client);
    let pid = i32::try_from(child.id()).unwrap();
    // SAFETY: the child is ours and not yet waited for.
    assert_eq!(unsafe { libc::kill(pid, libc::SIGTERM) }, 0);
    let bytes = notified.recv(&mut told).unwrap();
    assert_eq!(&told[..bytes], b"STOPPING=1");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

/// Opens many connections as the user nobody: descriptors and memory are bounded, and each
/// connection gets its own bytes.
#[test]
fn a_thousand_connections_of_an_unprivileged_user_stay_small() {
    const CONNECTIONS: usize = 1000;
    if !is_root() {
        return skip("needs root to become another user");
    }
    let place = Place::new();
    let (server, address) = server();
    let mut command = place.command(&[
        "relay",
        "--listen",
        "127.0.0.1:0",
        "--to",
        &address.to_string(),
        "--mode",
        "splice",
        "--max-connections",
        "1100",
    ]);
    command.uid(65_534).gid(65_534).current_dir("/");
    command
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null());
    let Ok(mut child) = command.spawn() else {
        return skip("another user cannot run the binary where it is");
    };
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    let local: SocketAddr = line
        .split(' ')
        .nth(3)
        .unwrap_or_else(|| panic!("{line}"))
        .parse()
        .unwrap();
    let mut pairs = Vec::new();
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(local).unwrap();
        pairs.push((client, server.accept().unwrap().0));
    }
    let piece = vec![7; 30_000];
    for (client, served) in &mut pairs {
        client.write_all(&piece).unwrap();
        served.read_exact(&mut vec![0; piece.len()]).unwrap();
    }
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let resident = status
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .unwrap();
    let kib: usize = resident
        .trim()
        .trim_end_matches(" kB")
        .trim()
        .parse()
        .unwrap();
    assert!(kib < 64 << 10, "{kib} KiB");
    let pipes = std::fs::read_dir(format!("/proc/{}/fd", child.id())).unwrap();
    let pipes = pipes.filter(|entry| {
        let target = std::fs::read_link(entry.as_ref().unwrap().path());
        target.is_ok_and(|target| target.to_string_lossy().starts_with("pipe:"))
    });
    let pipes = pipes.count();
    assert!(pipes < 32, "{pipes} ends of pipes, though nobody was slow");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn with_few_descriptors_it_takes_as_many_as_fit_and_the_others_later() {
    if !has_program("sh") {
        return;
    }
    let (server, address) = server();
    let script = "ulimit -n 400; exec \"$0\" \"$@\"";
    let mut command = std::process::Command::new("sh");
    command
        .args(["-c", script, env!("CARGO_BIN_EXE_tcpcost"), "relay"])
        .args(["--listen", "127.0.0.1:0", "--to", &address.to_string()])
        .stderr(std::process::Stdio::piped())
        .stdout(std::process::Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
    let mut line = String::new();
    std::io::BufRead::read_line(&mut stderr, &mut line).unwrap();
    // Each connection needs 2 descriptors; 336 are for pipes, listeners and the rest.
    assert!(line.contains("at most 32 connections"), "{line}");
    let local: SocketAddr = line.split(' ').nth(3).unwrap().parse().unwrap();
    let mut clients: Vec<_> = (0..50)
        .map(|_| TcpStream::connect(local).unwrap())
        .collect();
    for (client, number) in clients.iter_mut().zip(0_u8..) {
        client.write_all(&[number]).unwrap();
    }
    let mut seen = Vec::new();
    for _ in 0..50 {
        // No connection is accepted twice and none is lost, though only 32 fit at a time.
        let (mut served, _) = server.accept().unwrap();
        let mut number = [0];
        served.read_exact(&mut number).unwrap();
        served.write_all(&number).unwrap();
        let client = &mut clients[usize::from(number[0])];
        client.shutdown(std::net::Shutdown::Write).unwrap();
        let mut back = [0];
        client.read_exact(&mut back).unwrap();
        assert_eq!(back, number);
        seen.push(number[0]);
    }
    seen.sort_unstable();
    assert_eq!(seen, (0..50).collect::<Vec<u8>>());
    child.kill().unwrap();
    child.wait().unwrap();
}
