//! Softirq time by owner on this kernel: `exact` with owners. Needs root, else it is skipped.
//!
//! The command runs this same program with [`CHILD`] in its environment. The other end is a thread of the
//! test.
#![cfg(feature = "bpf")]

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc;
use std::thread;

use tcpcost_counts::{Counts, Quantity as Q, Whose};
use tcpcost_meter::bpf::{self, Follower};
use tcpcost_meter::{Meter, Scope};
use tcpcost_testbed::{SERVER, with_bed};

/// Task of the command: `WHAT ADDRESS`.
const CHILD: &str = "TCPCOST_TEST_CHILD";
const ROUNDS: usize = 2000;

/// Only one test runs at a time, because the traffic of others counts as neighbours'.
static ALONE: Mutex<()> = Mutex::new(());

struct Owners {
    meter: Box<dyn Meter + Send>,
    follower: Follower,
}

impl Owners {
    fn load() -> Option<Owners> {
        let scope = Scope {
            cpus: (0..thread::available_parallelism().unwrap().get()).collect(),
            owners: tcpcost_meter::Owners::Command,
            ..Scope::default()
        };
        match bpf::load_following(&scope) {
            Ok((meter, follower)) => Some(Owners { meter, follower }),
            Err(error) => {
                tcpcost_testbed::skip(&error.to_string());
                None
            }
        }
    }

    /// Growth during `work`.
    fn grown(&mut self, work: impl FnOnce(&Follower)) -> Counts {
        let before = self.meter.snapshot().unwrap();
        work(&self.follower);
        let readings = self.meter.snapshot().unwrap().since(&before).unwrap();
        let all = readings
            .into_iter()
            .find(|reading| matches!(reading.whose, Whose::Cpus(_)));
        all.unwrap().counts
    }

    /// Runs the command, followed, to its end.
    fn command(&mut self, what: &str, address: SocketAddr) -> Counts {
        self.grown(|follower| {
            follower.follow(std::process::id(), true).unwrap();
            let child = child(what, address).spawn();
            follower.follow(std::process::id(), false).unwrap();
            assert!(child.unwrap().wait().unwrap().success());
        })
    }
}

fn child(what: &str, address: SocketAddr) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "the_command", "--nocapture"])
        .env(CHILD, format!("{what} {address}"))
        .stdout(Stdio::null());
    command
}

/// Body of the command, if this program runs as one.
#[test]
fn the_command() {
    let Ok(line) = std::env::var(CHILD) else {
        return;
    };
    let (what, address) = line.split_once(' ').unwrap();
    let address: SocketAddr = address.parse().unwrap();
    match what {
        "transactions" => ask(TcpStream::connect(address).unwrap(), 1),
        "bulk" => ask(TcpStream::connect(address).unwrap(), 65_536),
        "connections" => {
            for _ in 0..ROUNDS / 10 {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(b"x").unwrap();
                stream.read_exact(&mut [0]).unwrap();
            }
        }
        "datagrams" => {
            let socket = UdpSocket::bind((address.ip(), 0)).unwrap();
            socket.connect(address).unwrap();
            for _ in 0..ROUNDS {
                socket.send(b"x").unwrap();
                assert_eq!(socket.recv(&mut [0; 2]).unwrap(), 1);
            }
        }
        "nothing" => {}
        _ => panic!("{what}"),
    }
}

fn ask(mut stream: TcpStream, bytes: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    for _ in 0..ROUNDS {
        stream.write_all(&buffer).unwrap();
        stream.read_exact(&mut buffer[..1]).unwrap();
    }
}

/// Answers each message of `bytes` bytes with one byte, until the client closes.
fn answer(mut stream: TcpStream, bytes: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(b"x").is_ok() {}
}

/// Starts a server of `connections` connections in this process, which is not followed.
fn server(ip: &str, connections: usize, bytes: usize) -> SocketAddr {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming().take(connections) {
            answer(stream.unwrap(), bytes);
        }
    });
    address
}

fn softirqs(counts: &Counts) -> u64 {
    Q::EXACT_SOFTIRQS.iter().map(|of| counts[of]).sum()
}

fn owned(counts: &Counts) -> u64 {
    Q::EXACT_OWNED
        .iter()
        .map(|[softirq, _]| counts[softirq])
        .sum()
}

/// Checks that nearly all NET_RX time has an owner: at most 1 % has no socket, for example because of drops.
fn check_resolved(counts: &Counts) {
    let net_rx = counts[&Q::ExactSoftirqNetRxNs];
    assert!(owned(counts) as f64 > 0.99 * net_rx as f64, "{counts:?}");
    assert!(owned(counts) <= softirqs(counts), "{counts:?}");
}

#[test]
fn a_command_without_sockets_has_no_softirq_beside_a_busy_neighbour() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(mut owners) = Owners::load() else {
        return;
    };
    let address = server("127.0.0.1", 1, 1);
    let counts = owners.grown(|follower| {
        let mut neighbour = child("transactions", address).spawn().unwrap();
        follower.follow(std::process::id(), true).unwrap();
        let nothing = child("nothing", address).spawn();
        follower.follow(std::process::id(), false).unwrap();
        assert!(nothing.unwrap().wait().unwrap().success());
        assert!(neighbour.wait().unwrap().success());
    });
    assert!(counts[&Q::ExactTaskOwnNs] > 0);
    for of in Q::EXACT_OWNED[..2].as_flattened() {
        assert_eq!(counts[of], 0, "{of} {counts:?}");
    }
    assert!(counts[&Q::ExactNeighbourSoftirqNs] > 0, "{counts:?}");
    check_resolved(&counts);
}

#[test]
fn each_end_of_a_loopback_connection_has_its_share() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(mut owners) = Owners::load() else {
        return;
    };
    for (what, connections, bytes) in [
        ("transactions", 1, 1),
        ("bulk", 1, 65_536),
        ("connections", ROUNDS / 10, 1),
    ] {
        for ip in ["127.0.0.1", "::1"] {
            let counts = owners.command(what, server(ip, connections, bytes));
            check_resolved(&counts);
            let [own, peer] = [0, 1].map(|owner| counts[&Q::EXACT_OWNED[owner][0]] as f64);
            // Each end gets as many packets as the other, plus ACKs. Two CPUs may differ by a factor of
            // three.
            assert!(
                own > peer / 10.0 && peer > own / 10.0,
                "{what} {ip} {counts:?}"
            );
        }
    }
}

#[test]
fn datagrams_have_owners() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(mut owners) = Owners::load() else {
        return;
    };
    for ip in ["127.0.0.1", "::1"] {
        let socket = UdpSocket::bind((ip, 0)).unwrap();
        let address = socket.local_addr().unwrap();
        let echo = thread::spawn(move || {
            for _ in 0..ROUNDS {
                let (_, from) = socket.recv_from(&mut [0; 2]).unwrap();
                socket.send_to(b"x", from).unwrap();
            }
        });
        let counts = owners.command("datagrams", address);
        echo.join().unwrap();
        check_resolved(&counts);
        // An unconnected socket of another process belongs to a neighbour.
        assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
        assert!(counts[&Q::ExactNeighbourSoftirqNs] > 0, "{counts:?}");
    }
}

#[test]
fn the_command_may_be_the_server() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let Some(mut owners) = Owners::load() else {
        return;
    };
    // This process is followed, and the child is not.
    owners.follower.follow(std::process::id(), true).unwrap();
    let address = server("127.0.0.1", 1, 1);
    owners.follower.follow(std::process::id(), false).unwrap();
    let counts = owners.grown(|_| {
        let mut client = child("transactions", address).spawn().unwrap();
        assert!(client.wait().unwrap().success());
    });
    check_resolved(&counts);
    let [own, peer] = [0, 1].map(|owner| counts[&Q::EXACT_OWNED[owner][0]]);
    assert!(own > 0 && peer > 0, "{counts:?}");
}

#[test]
fn open_sockets_of_a_followed_process_are_found() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let Some(mut owners) = Owners::load() else {
        return;
    };
    let counts = owners.grown(|follower| {
        follower.follow(std::process::id(), true).unwrap();
        follower.adopt_open_sockets().unwrap();
        let echo = thread::spawn(move || answer(accepted, 1));
        ask(stream, 1);
        echo.join().unwrap();
        follower.follow(std::process::id(), false).unwrap();
    });
    check_resolved(&counts);
    assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
    assert_eq!(counts[&Q::ExactPeerSoftirqNs], 0, "both ends are its own");
}

#[test]
fn each_end_of_a_veth_has_its_share() {
    let _alone = ALONE
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    // Loaded outside, because /sys in a new namespace shows no cgroups.
    let Some(mut owners) = Owners::load() else {
        return;
    };
    for (what, bytes) in [("transactions", 1), ("bulk", 65_536)] {
        let owners = &mut owners;
        let (listens, address) = mpsc::channel();
        let serve = move || {
            let listener = TcpListener::bind((SERVER, 0)).unwrap();
            listens.send(listener.local_addr().unwrap()).unwrap();
            answer(listener.accept().unwrap().0, bytes);
        };
        let ask = move || owners.command(what, address.recv().unwrap());
        let Some((counts, ())) = with_bed(ask, serve) else {
            return;
        };
        check_resolved(&counts);
        let [own, peer] = [0, 1].map(|owner| counts[&Q::EXACT_OWNED[owner][0]]);
        assert!(own > 0 && peer > 0, "{what} {counts:?}");
    }
}
