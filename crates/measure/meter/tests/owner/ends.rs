//! Each end of a connection has its share, and others have none.

use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread;

use tcpcost_counts::{Counts, Quantity as Q};
use tcpcost_testbed::{SERVER, with_bed};

use super::{BULK, Owners, ROUNDS, answer, ask, both_ends, child, owned, server, softirqs};

/// True if at most 1 % of NET_RX has no owner.
fn is_resolved(counts: &Counts) -> bool {
    assert!(owned(counts) <= softirqs(counts), "{counts:?}");
    owned(counts) as f64 > 0.99 * counts[&Q::ExactSoftirqNetRxNs] as f64
}

/// Checks that at most 1 % of NET_RX has no owner.
fn check_resolved(counts: &Counts) {
    assert!(is_resolved(counts), "{counts:?}");
}

/// Counts of a command with at most 1 % of NET_RX without an owner. It has three tries: packets of
/// other programs that are dropped or have no socket have no owner, either.
fn resolved(run: impl FnMut() -> Counts) -> Counts {
    let mut tries = std::iter::repeat_with(run).take(3);
    let found = tries.find(is_resolved);
    found.expect("three commands had more than 1 % of NET_RX without an owner")
}

#[test]
fn a_command_without_sockets_has_no_softirq_beside_a_busy_neighbour() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let address = server("127.0.0.1", 1, 1);
    let counts = owners.grown(|owners| {
        let mut neighbour = child("transactions", address).spawn().unwrap();
        let nothing = owners.as_command(|| child("nothing", address).spawn());
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
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    for (what, connections, bytes) in [
        ("transactions", 1, 1),
        ("bulk", 1, BULK),
        ("connections", ROUNDS / 10, 1),
    ] {
        for ip in ["127.0.0.1", "::1"] {
            let counts = resolved(|| owners.command(what, server(ip, connections, bytes)));
            let [own, peer] = both_ends(&counts).map(|ns| ns as f64);
            // Each end gets as many packets as the other, or more by its ACKs; two CPUs may differ by a factor of three.
            assert!(
                own > peer / 10.0 && peer > own / 10.0,
                "{what} {ip} {counts:?}"
            );
        }
    }
}

/// On loopback each message raises a run for its receiver; two may share one.
#[test]
fn each_end_has_its_runs_and_the_command_its_sleeps() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let counts = resolved(|| owners.command("transactions", server("127.0.0.1", 1, 1)));
    let runs = |of| counts[&of];
    let [own, peer, neighbours] = [
        Q::ExactOwnNetRxRuns,
        Q::ExactPeerNetRxRuns,
        Q::ExactNeighbourNetRxRuns,
    ]
    .map(runs);
    let all = runs(Q::ExactNetRxRuns);
    assert!(own + peer + neighbours <= all, "{counts:?}");
    let rounds = ROUNDS as u64;
    assert!(own > rounds / 2 && peer > rounds / 2, "{counts:?}");
    assert!(own + peer <= 3 * rounds, "{counts:?}");
    assert!(runs(Q::ExactTaskOwnSleeps) > 0, "{counts:?}");
    for (own, all) in [
        (Q::ExactOwnRescheduleIpis, Q::ExactRescheduleIpis),
        (Q::ExactOwnCallIpis, Q::ExactCallIpis),
        (
            Q::ExactOwnExtraTimerInterrupts,
            Q::ExactExtraTimerInterrupts,
        ),
    ] {
        assert!(counts.get(&own) <= counts.get(&all), "{own} {counts:?}");
        assert_eq!(counts.contains_key(&own), counts.contains_key(&all));
    }
}

#[test]
fn datagrams_have_owners() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    for ip in ["127.0.0.1", "::1"] {
        let counts = resolved(|| {
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
            counts
        });
        // An unconnected socket of another process is a neighbour's.
        assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
        assert!(counts[&Q::ExactNeighbourSoftirqNs] > 0, "{counts:?}");
    }
}

#[test]
fn the_command_may_be_the_server() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    // This process is followed, and the child is not.
    let address = owners.as_command(|| server("127.0.0.1", 1, 1));
    let counts = owners.grown(|_| {
        let mut client = child("transactions", address).spawn().unwrap();
        assert!(client.wait().unwrap().success());
    });
    check_resolved(&counts);
    both_ends(&counts);
}

#[test]
fn open_sockets_of_a_followed_process_are_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let counts = owners.grown(|owners| {
        owners.as_command(|| {
            owners.follower.adopt_open_sockets().unwrap();
            let echo = thread::spawn(move || answer(accepted, 1));
            ask(&mut stream, 1);
            drop(stream);
            echo.join().unwrap();
        });
    });
    check_resolved(&counts);
    assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
    assert_eq!(counts[&Q::ExactPeerSoftirqNs], 0, "both ends are its own");
}

#[test]
fn each_end_of_a_veth_has_its_share() {
    // Loaded outside: a namespace's own /sys shows no cgroups.
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    for (what, bytes) in [("transactions", 1), ("bulk", BULK)] {
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
        both_ends(&counts);
    }
}
