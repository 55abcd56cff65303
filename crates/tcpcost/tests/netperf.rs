//! Runs `tcpcost netperf` and `tcpcost netserver`, and the original netperf if it is on PATH.

mod common;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

use common::{Place, Ran};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketType, bind, connect, socket};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tcpcost_testbed::{has_program, in_namespace, is_root, skip, until};

const BINARY: &str = env!("CARGO_BIN_EXE_tcpcost");

/// Netserver that ends when its input is closed.
struct Server {
    child: Child,
    _input: ChildStdin,
    ports: Vec<u16>,
}

impl Server {
    fn start(more: &[&str]) -> Server {
        let mut command = Command::new(BINARY);
        command.args(["netserver", "-e", "-p", "0"]).args(more);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let addresses = line.strip_prefix("netserver listens at ").expect(&line);
        let port = |address: &str| address.rsplit(':').next()?.parse().ok();
        let ports = addresses.split_whitespace().filter_map(port).collect();
        Server {
            child,
            _input: input,
            ports,
        }
    }

    fn port(&self) -> String {
        self.ports[0].to_string()
    }

    /// Field of the netserver's /proc/PID/status.
    fn status(&self, field: &str) -> String {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let mut lines = status.lines();
        let value = lines.find_map(|line| line.strip_prefix(field)?.strip_prefix(":\t"));
        value.unwrap().to_string()
    }

    /// Kills the netserver. Returns its standard error.
    fn end(mut self) -> String {
        let mut said = String::new();
        let mut stderr = self.child.stderr.take().unwrap();
        self.child.kill().unwrap();
        stderr.read_to_string(&mut said).unwrap();
        said
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn netperf(line: &str) -> Ran {
    let words = line.split_whitespace();
    let mut command = Command::new(BINARY);
    command.arg("netperf").args(words).stdin(Stdio::null());
    command.output().unwrap().into()
}

/// The `NAME=value` lines of a successful run.
#[track_caller]
fn values(ran: &Ran) -> BTreeMap<String, String> {
    assert_eq!(ran.code, Some(0), "{ran:?}");
    let lines = ran.stdout.lines().filter_map(|line| line.split_once('='));
    lines
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

#[test]
fn every_test_is_done_over_ipv4_and_ipv6() {
    in_namespace(|| {
        let server = Server::start(&[]);
        assert_eq!(server.ports.len(), 2, "both loopbacks");
        for host in ["127.0.0.1", "::1"] {
            for (test, more, sent, received) in [
                ("TCP_STREAM -l -300000", "", 300_000, 0),
                ("TCP_SENDFILE -l -300000", "-m 5000", 300_000, 0),
                ("TCP_MAERTS -l -300000", "", 0, 300_000),
                ("TCP_RR -l -100", "-r 10,20", 1000, 2000),
                ("TCP_CRR -l -100", "-r 10,20", 1000, 2000),
                ("OMNI -l -100", "-d rr -r 1,2 -b 3", 100, 200),
            ] {
                let ran = netperf(&format!(
                    "-P 0 -H {host} -p {} -t {test} -- {more} -k LOCAL_BYTES_SENT,LOCAL_BYTES_RECVD,REMOTE_BYTES_RECVD,REMOTE_BYTES_SENT,THROUGHPUT",
                    server.port()
                ));
                let values = values(&ran);
                let of = |name: &str| values[name].parse::<u64>().unwrap();
                assert_eq!(of("LOCAL_BYTES_SENT"), sent, "{test} {host}: {ran:?}");
                assert_eq!(of("REMOTE_BYTES_RECVD"), sent, "{test} {host}: {ran:?}");
                assert_eq!(of("LOCAL_BYTES_RECVD"), received, "{test} {host}: {ran:?}");
                assert_eq!(of("REMOTE_BYTES_SENT"), received, "{test} {host}: {ran:?}");
                assert!(values["THROUGHPUT"].parse::<f64>().unwrap() > 0.0);
                assert_eq!(ran.stderr, "");
            }
        }
    });
}

#[test]
fn columns_are_where_scripts_look_for_them() {
    in_namespace(|| {
        let server = Server::start(&["-L", "127.0.0.1"]);
        let run = |line: &str| {
            let ran = netperf(&format!("-H 127.0.0.1 -p {} {line}", server.port()));
            assert_eq!(ran.code, Some(0), "{ran:?}");
            ran.stdout.lines().map(str::to_string).collect::<Vec<_>>()
        };
        for test in ["TCP_STREAM", "TCP_MAERTS", "TCP_SENDFILE", "TCP_RR"] {
            let lines = run(&format!("-t {test} -l -1000"));
            // super_netperf reads the last word of the seventh line.
            let last = lines[6].split_whitespace().last().unwrap();
            assert!(last.parse::<f64>().unwrap() > 0.0, "{lines:?}");
            let bare = run(&format!("-t {test} -l -1000 -P 0"));
            assert_eq!(bare.len(), lines.len() - 6, "{bare:?}");
            let brief = run(&format!("-t {test} -l -1000 -P 0 -v 0 -B brand"));
            assert_eq!(brief.len(), 1);
            assert!(brief[0].ends_with(" brand"), "{brief:?}");
        }
        let csv = run("-t omni -l -1000 -P 1 -- -o throughput,throughput_units,nothing_such");
        assert_eq!(csv[1], "Throughput,Throughput Units");
        assert!(csv[2].ends_with(",10^6bits/s"), "{csv:?}");
        let human = run("-t omni -l -1000 -P 0 -- -O all");
        assert_eq!(human.len(), 7, "four blocks and a blank line between");
    });
}

#[test]
fn interim_results_come_at_their_interval() {
    in_namespace(|| {
        let server = Server::start(&[]);
        for test in ["TCP_STREAM", "TCP_MAERTS", "TCP_RR"] {
            let ran = netperf(&format!(
                "-P 0 -H 127.0.0.1 -p {} -t {test} -l 1 -D -0.25 -- -k THROUGHPUT,ELAPSED_TIME",
                server.port()
            ));
            let values = values(&ran);
            let interval = |line: u32| {
                let value = values.get(&format!("NETPERF_INTERVAL[{line}]"))?;
                value.parse::<f64>().ok()
            };
            // A timer of a busy machine may fire late, but never early.
            let first = interval(0).expect("an interim result");
            assert!(first > 0.249, "{ran:?}");
            assert!(values.contains_key("NETPERF_INTERIM_RESULT[0]"));
            assert!(values["ELAPSED_TIME"].parse::<f64>().unwrap() >= 1.0 || test == "TCP_MAERTS");
        }
    });
}

#[test]
fn whose_cpu_it_is_is_told() {
    in_namespace(|| {
        let server = Server::start(&[]);
        let ran = netperf(&format!(
            "-P 0 -H 127.0.0.1 -p {} -t TCP_RR -l -2000 -c -C -v 2 -- -k LOCAL_SD,REMOTE_SD,SD_UNITS,LOCAL_CPU_COUNT,LOCAL_SD_METHOD,LOCAL_SD_CPU_NS,REMOTE_SD_METHOD,REMOTE_SD_CPU_NS",
            server.port()
        ));
        let values = values(&ran);
        for end in ["LOCAL", "REMOTE"] {
            let method = values[&format!("{end}_SD_METHOD")].as_str();
            assert!(["exact", "share"].contains(&method), "{ran:?}");
            let demand: f64 = values[&format!("{end}_SD")].parse().unwrap();
            let cpu_ns: f64 = values[&format!("{end}_SD_CPU_NS")].parse().unwrap();
            assert!(cpu_ns > 0.0, "{ran:?}");
            assert!((demand - cpu_ns / 1e3 / 2000.0).abs() < 0.001, "{ran:?}");
        }
        assert_eq!(values["SD_UNITS"], "usec/Tran");
        assert!(ran.stderr.contains("local service demand: "), "{ran:?}");
    });
}

#[test]
fn it_is_started_through_ssh_and_ends_with_the_test() {
    in_namespace(|| {
        let place = Place::new();
        // Stand-in for ssh: a shell with the addresses of the connection.
        let ssh = place.path("ssh");
        let script =
            "#!/bin/sh\nSSH_CONNECTION='127.0.0.1 1 127.0.0.1 22' exec /bin/sh -c \"$2\"\n";
        std::fs::write(&ssh, script).unwrap();
        std::fs::set_permissions(&ssh, std::fs::Permissions::from_mode(0o755)).unwrap();
        symlink(BINARY, place.path("tcpcost")).unwrap();
        // This folder alone: the machine's own may have a tcpcost that somebody installed.
        let path = place.directory.path();
        let mut command = place.command(&["netperf", "-H", "ssh:db1", "-l", "-1000"]);
        let ran: Ran = command.env("PATH", path).output().unwrap().into();
        assert_eq!(ran.code, Some(0), "{ran:?}");
        assert!(ran.stdout.contains(" to db1 (127.0.0.1)"), "{ran:?}");
        // The host has no tcpcost.
        std::fs::remove_file(place.path("tcpcost")).unwrap();
        let mut command = place.command(&["netperf", "-H", "ssh:db1", "-l", "-1000"]);
        let ran: Ran = command.env("PATH", path).output().unwrap().into();
        assert_eq!(ran.code, Some(255), "{ran:?}");
        assert!(ran.stderr.contains("through ssh db1"), "{ran:?}");
    });
}

#[test]
fn it_is_started_in_a_namespace() {
    if !has_program("nsenter") {
        return;
    }
    in_namespace(|| {
        let server = Server::start(&[]);
        let pid = server.child.id();
        let ran = netperf(&format!("-H netns:{pid}@127.0.0.1 -t TCP_RR -l -10"));
        assert_eq!(ran.code, Some(0), "{ran:?}");
        let ran = netperf("-H netns:nothing-such@127.0.0.1");
        assert_eq!(ran.code, Some(255), "{ran:?}");
    });
}

#[test]
fn a_bed_is_made_for_a_test_and_goes_with_it() {
    in_namespace(|| {
        for family in ["-4", "-6"] {
            let ran = netperf(&format!("-H bed:veth {family} -t TCP_RR -l -10"));
            assert_eq!(ran.code, Some(0), "{ran:?}");
            let side = if family == "-4" {
                "10.57.0.2"
            } else {
                "fd57::2"
            };
            assert!(ran.stdout.contains(side), "{ran:?}");
        }
        let links = std::fs::read_to_string("/proc/net/dev").unwrap();
        assert!(!links.contains("tcpcost0"), "{links}");
    });
}

#[test]
fn by_its_own_name_netserver_leaves_the_foreground_and_asks_for_its_passphrase() {
    in_namespace(|| {
        let place = Place::new();
        for name in ["netperf", "netserver"] {
            symlink(BINARY, place.path(name)).unwrap();
        }
        let word = format!("word-{}", std::process::id());
        let output = Command::new(place.path("netserver"))
            .args(["-p", "0", "-4", "-Z", &word])
            .output()
            .unwrap();
        let started: Ran = output.into();
        assert_eq!(started.code, Some(0), "{started:?}");
        let port = started
            .stdout
            .trim()
            .rsplit(':')
            .next()
            .unwrap()
            .to_string();
        let run = |more: &[&str]| -> Ran {
            let mut command = Command::new(place.path("netperf"));
            command.args(["-H", "127.0.0.1", "-p", &port, "-l", "-1000"]);
            command.args(more).output().unwrap().into()
        };
        let with = run(&["-Z", &word]);
        let without = run(&[]);
        let pid = daemon(&word);
        // SAFETY: only this process has our word in its command line.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        assert_eq!(with.code, Some(0), "{with:?}");
        assert_eq!(without.code, Some(255), "{without:?}");
        let wants = "netperf: netserver wants a passphrase (-Z WORD)\n";
        assert_eq!(without.stderr, wants);
        until("its end", || {
            (!Path::new(&format!("/proc/{pid}")).exists()).then_some(())
        });
    });
}

/// Opens connections to loopback, from these addresses in turn, that send nothing.
fn idle(port: u16, count: u16, from: impl Fn(u16) -> Ipv4Addr) -> Vec<OwnedFd> {
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let connect = |index: u16| -> OwnedFd {
        let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        bind(&socket, &SocketAddr::from((from(index), 0))).unwrap();
        connect(&socket, &to).unwrap();
        socket
    };
    (0..count).map(connect).collect()
}

#[test]
fn idle_connections_shut_nobody_out() {
    in_namespace(|| {
        let limit = getrlimit(Resource::Nofile);
        if limit.maximum.is_some_and(|maximum| maximum < 4000) {
            return skip("4000 descriptors");
        }
        let raised = Rlimit {
            current: limit.maximum,
            ..limit
        };
        setrlimit(Resource::Nofile, raised).unwrap();
        let many = |index: u16| Ipv4Addr::from([127, 1, (index >> 8) as u8, index as u8]);
        let one = |_| Ipv4Addr::LOCALHOST;
        for (more, count, from) in [
            (&[][..], 600, many as fn(u16) -> Ipv4Addr),
            (&[], 600, one),
            (&[], 1100, many),
            // With -f, netserver runs one test after the other.
            (&["-f"], 3, one),
        ] {
            let server = Server::start(&[&["-L", "127.0.0.1"], more].concat());
            let idle = idle(server.ports[0], count, from);
            let ran = netperf(&format!(
                "-H 127.0.0.1 -p {} -t TCP_RR -l -10",
                server.port()
            ));
            assert_eq!(ran.code, Some(0), "{count}: {ran:?}");
            drop(idle);
        }
    });
}

#[test]
fn a_netserver_of_roots_does_for_its_clients_what_nobody_may() {
    if !is_root() {
        return skip("root");
    }
    in_namespace(|| {
        let as_nobody = Server::start(&["-L", "127.0.0.1"]);
        assert_eq!(as_nobody.status("Uid"), ["65534"; 4].join("\t"));
        assert_eq!(as_nobody.status("Groups").trim(), "");
        for set in ["CapInh", "CapAmb"] {
            assert_eq!(as_nobody.status(set), "0".repeat(16));
        }
        // The only capabilities left may be CAP_PERFMON and CAP_BPF.
        for set in ["CapPrm", "CapEff", "CapBnd"] {
            let held = u64::from_str_radix(&as_nobody.status(set), 16).unwrap();
            assert_eq!(held & !(1 << 38 | 1 << 39), 0, "{set} {held:x}");
        }
        assert_eq!(as_nobody.status("NoNewPrivs"), "1");
        // The priority needs CAP_NET_ADMIN. As in netperf, it is reported and not fatal.
        let ran = netperf(&format!(
            "-P 0 -H 127.0.0.1 -p {} -t TCP_RR -l -10 -y 0,7 -- -k REMOTE_SOCKET_PRIO",
            as_nobody.port()
        ));
        assert_eq!(values(&ran)["REMOTE_SOCKET_PRIO"], "-2", "{ran:?}");
        let mut asked = Vec::new();
        let of_proc = |name: &str| {
            std::fs::read_to_string(format!("/proc/sys/net/ipv4/tcp_{name}_congestion_control"))
        };
        if let (Ok(known), Ok(allowed)) = (of_proc("available"), of_proc("allowed")) {
            let allowed: Vec<&str> = allowed.split_whitespace().collect();
            let mut known = known.split_whitespace();
            let forbidden = known.find(|known| !allowed.contains(known));
            asked.extend(forbidden.map(|forbidden| format!("-- -K {forbidden}")));
        }
        let why = "netserver refuses the test: Operation not permitted";
        for words in asked {
            let ran = netperf(&format!(
                "-H 127.0.0.1 -p {} -t TCP_RR -l -10 {words}",
                as_nobody.port()
            ));
            assert_ne!(ran.code, Some(0), "{words}: {ran:?}");
            assert!(ran.stderr.contains(why), "{words}: {ran:?}");
        }
        let said = as_nobody.end();
        assert!(
            said.contains("netserver: runs as user 65534, with "),
            "{said}"
        );
        let as_root = Server::start(&["-L", "127.0.0.1", "-u", "root"]);
        assert_eq!(as_root.status("Uid"), ["0"; 4].join("\t"));
        let said = as_root.end();
        assert!(said.contains("runs as root with all privileges"), "{said}");
    });
}

#[test]
fn only_root_becomes_another_user_and_only_one_that_there_is() {
    in_namespace(|| {
        let run = |user: &str| -> Ran {
            let mut command = Command::new(BINARY);
            command.args(["netserver", "-p", "0", "-u", user]);
            command.output().unwrap().into()
        };
        let ran = run("nobody-of-this-name");
        assert_eq!(ran.code, Some(1), "{ran:?}");
        let why = "netserver: -u nobody-of-this-name: no such user in /etc/passwd, and no number\n";
        assert_eq!(ran.stderr, why);
    });
}

/// The lock of the exact meter was once a name that every user could take.
#[test]
fn no_name_that_anybody_can_take_keeps_root_from_the_exact_meter() {
    if !is_root() {
        return skip("root");
    }
    in_namespace(|| {
        let taken = socket(AddressFamily::UNIX, SocketType::DGRAM, None).unwrap();
        let name = SocketAddrUnix::new_abstract_name(b"tcpcost-netperf-exact").unwrap();
        bind(&taken, &name).unwrap();
        let server = Server::start(&["-L", "127.0.0.1"]);
        let run = |cpu: &str| {
            netperf(&format!(
                "-P 0 -H 127.0.0.1 -p {} -t TCP_RR -l -200 {cpu} -- -k LOCAL_SD_METHOD,REMOTE_SD_METHOD",
                server.port()
            ))
        };
        let ran = run("-c");
        let exact = values(&ran)["LOCAL_SD_METHOD"] == "exact";
        if !exact {
            return skip("the meter exact");
        }
        let ran = run("-C");
        assert_eq!(values(&ran)["REMOTE_SD_METHOD"], "exact", "{ran:?}");
        // Both ends use the meter at once.
        let ran = run("-c -C");
        let values = values(&ran);
        for end in ["LOCAL", "REMOTE"] {
            assert_eq!(values[&format!("{end}_SD_METHOD")], "exact", "{ran:?}");
        }
        assert!(!server.end().contains("not exactly"));
    });
}

/// Process with this word in its command line.
fn daemon(word: &str) -> i32 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has = |pid: &i32| {
        let line = std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.split('\0').any(|one| one == word)
    };
    pids.find(has).expect("the netserver in the background")
}

#[test]
fn nothing_is_listened_at_but_loopback_unless_it_is_named() {
    in_namespace(|| {
        let server = Server::start(&[]);
        let listening = |family: &str| {
            let table =
                std::fs::read_to_string(format!("/proc/{}/net/{family}", server.child.id()))
                    .unwrap();
            // State 0A is LISTEN.
            let lines = table
                .lines()
                .skip(1)
                .filter(|line| line.split_whitespace().nth(3) == Some("0A"));
            lines
                .map(|line| line.split_whitespace().nth(1).unwrap().to_string())
                .collect::<Vec<_>>()
        };
        let v4 = listening("tcp");
        assert_eq!(v4.len(), 1, "{v4:?}");
        assert!(v4[0].starts_with("0100007F:"), "{v4:?}");
        let v6 = listening("tcp6");
        assert!(
            v6.iter()
                .all(|address| address.starts_with("00000000000000000000000001000000:")),
            "{v6:?}"
        );
    });
}

/// Sends SIGINT to one process, as Ctrl-C does.
fn interrupt(child: &Child) {
    // SAFETY: the child is ours and not yet waited for, so its id names it.
    assert_eq!(unsafe { libc::kill(child.id() as i32, libc::SIGINT) }, 0);
}

/// Starts netperf for 1000 s, and interrupts it after an interim result that is not 0.
fn interrupted(port: &str, words: &str) -> Ran {
    let all = format!("netperf -H 127.0.0.1 -p {port} -P 0 -l 1000 -D 0.05 {words}");
    let mut child = Command::new(BINARY)
        .args(all.split_whitespace())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut out = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    let has_some = |line: &str| {
        let interim = line.strip_prefix("NETPERF_INTERIM_RESULT[");
        interim.is_some_and(|rest| !rest.trim().ends_with("]=0.00"))
    };
    while !has_some(&line) {
        line.clear();
        assert!(out.read_line(&mut line).unwrap() > 0, "{words}");
    }
    interrupt(&child);
    out.read_to_string(&mut line).unwrap();
    let mut ran = Ran::from(child.wait_with_output().unwrap());
    ran.stdout = line;
    ran
}

#[test]
fn an_interrupted_test_shows_what_was_measured_so_far() {
    in_namespace(|| {
        let server = Server::start(&["-4"]);
        for words in [
            "-t TCP_STREAM --",
            "-t TCP_SENDFILE --",
            "-t TCP_MAERTS --",
            "-t TCP_RR --",
            "-t TCP_RR -- -b 8 -r 100,10000",
            "-t TCP_CRR --",
            "-t TCP_STREAM -i 5,3 --",
        ] {
            let words = format!("{words} -k THROUGHPUT,ELAPSED_TIME,REMOTE_BYTES_RECVD");
            let ran = interrupted(&server.port(), &words);
            let values = values(&ran);
            let of = |name: &str| values[name].parse::<f64>().unwrap();
            assert!(of("THROUGHPUT") > 0.0, "{words}: {ran:?}");
            assert!(of("ELAPSED_TIME") < 999.0, "{words}: {ran:?}");
            assert_eq!(ran.stderr, "", "{words}");
            if !words.contains("MAERTS") {
                assert!(of("REMOTE_BYTES_RECVD") > 0.0, "{words}: {ran:?}");
            }
        }
    });
}

#[test]
fn before_the_test_an_interrupt_ends_netperf() {
    // This netserver never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let mut child = Command::new(BINARY)
        .args(["netperf", "-H", "127.0.0.1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let (mut control, _) = listener.accept().unwrap();
    control.read_exact(&mut [0; 656]).unwrap();
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

/// True if PATH has the original netperf by this name.
fn original(name: &str) -> bool {
    if !has_program(name) {
        return false;
    }
    let version = Command::new(name).arg("-V").output().unwrap();
    let is_it = Command::new(name).args(["-h"]).output().unwrap();
    let is_ours = String::from_utf8_lossy(&is_it.stdout).contains("docs/fronts.md");
    if is_ours || !version.status.success() {
        skip(&format!("needs the original {name}"));
        return false;
    }
    true
}

#[test]
fn the_original_netperf_talks_to_our_netserver() {
    // The original netperf takes no address in a namespace with lo alone (AI_ADDRCONFIG), so it is
    // run outside.
    if !original("netperf") {
        return;
    }
    let server = Server::start(&["-4"]);
    // Only builds with --enable-burst have -b; others complain and continue.
    let burst = &["--", "-b", "8", "-r", "100,10000"][..];
    for (test, length, more) in [
        ("TCP_STREAM", "-100000", &[][..]),
        ("TCP_MAERTS", "-100000", &[]),
        ("TCP_RR", "-100", &[]),
        ("TCP_RR", "1", burst),
        ("TCP_CRR", "-20", &[]),
        ("TCP_SENDFILE", "1", &[]),
    ] {
        let ran: Ran = Command::new("netperf")
            .args([
                "-H",
                "127.0.0.1",
                "-p",
                &server.port(),
                "-t",
                test,
                "-l",
                length,
                "-C",
            ])
            .args(more)
            .output()
            .unwrap()
            .into();
        assert_eq!(ran.code, Some(0), "{test}: {ran:?}");
        let rate = ran.stdout.lines().nth(6).unwrap().split_whitespace();
        assert!(rate.count() >= 5, "{test}: {ran:?}");
    }
}

#[test]
fn our_netperf_talks_to_the_original_netserver() {
    if !original("netserver") || !is_root() {
        return;
    }
    let port = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap().port().to_string()
    };
    let mut server = Command::new("netserver")
        .args(["-D", "-L", "127.0.0.1,4", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    until("the netserver", || {
        std::net::TcpStream::connect(format!("127.0.0.1:{port}")).ok()
    });
    let runs: Vec<(&str, Ran)> = [
        "TCP_STREAM -l -200",
        "TCP_MAERTS -l -200",
        "TCP_SENDFILE -l -200",
        "TCP_RR -l -200",
        "TCP_CRR -l -200",
        "TCP_RR -l 1 -- -b 32",
        "OMNI -l 1 -- -d rr -b 8 -r 1000,100000",
        "TCP_CRR -l 1 -- -r 1,100000",
    ]
    .into_iter()
    .map(|test| {
        let more = if test.contains("--") { "" } else { "--" };
        (
            test,
            netperf(&format!(
                "-H 127.0.0.1 -p {port} -c -C -t {test} {more} -k REMOTE_SD_METHOD,THROUGHPUT"
            )),
        )
    })
    .collect();
    server.kill().unwrap();
    server.wait().unwrap();
    for (test, ran) in runs {
        assert_eq!(ran.code, Some(0), "{test}: {ran:?}");
        assert!(
            ran.stdout.contains("REMOTE_SD_METHOD=machine"),
            "{test}: {ran:?}"
        );
    }
}
