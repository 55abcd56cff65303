//! Owners without programs of cgroups: `tcp_probe` names the sockets.

use std::net::{TcpListener, TcpStream};
use std::thread;

use tcpcost_counts::{Counts, Quantity as Q};
use tcpcost_meter::Scope;

use super::{Alone, BULK, Owners, ROUNDS, answer, ask, both_ends, child, owned, server, softirqs};

fn load() -> Option<(Alone, Owners)> {
    let (alone, owners) = Owners::loaded(Scope {
        without_cgroups: true,
        ..Scope::default()
    })?;
    let misses = owners.meter.misses().unwrap();
    assert!(misses.contains("tcp_probe"), "{misses}");
    Some((alone, owners))
}

/// Share of NET_RX that has no owner. The owners have no more than there was.
fn unresolved(counts: &Counts) -> f64 {
    assert!(owned(counts) <= softirqs(counts), "{counts:?}");
    1.0 - owned(counts) as f64 / counts[&Q::ExactSoftirqNetRxNs] as f64
}

/// All but the set-up of the connection: no task has the socket of a transaction locked when its packet comes.
#[test]
fn both_ends_of_transactions_have_all_but_the_set_up() {
    let Some((_alone, mut owners)) = load() else {
        return;
    };
    for ip in ["127.0.0.1", "::1"] {
        let counts = owners.command("transactions", server(ip, 1, 1));
        let [own, peer] = both_ends(&counts).map(|ns| ns as f64);
        assert!(own > peer / 10.0 && peer > own / 10.0, "{ip} {counts:?}");
        assert!(unresolved(&counts) < 0.02, "{ip} {counts:?}");
    }
}

#[test]
fn what_it_misses_is_the_hosts() {
    let Some((_alone, mut owners)) = load() else {
        return;
    };
    let counts = owners.command("bulk", server("127.0.0.1", 1, BULK));
    both_ends(&counts);
    assert!(unresolved(&counts) < 0.5, "{counts:?}");
    let counts = owners.command("connections", server("127.0.0.1", ROUNDS / 10, 1));
    both_ends(&counts);
    // SYN, SYN-ACK, and the FINs of half closed ends.
    assert!((0.05..0.7).contains(&unresolved(&counts)), "{counts:?}");
}

#[test]
fn a_command_without_sockets_has_no_softirq_beside_a_busy_neighbour() {
    let Some((_alone, mut owners)) = load() else {
        return;
    };
    let address = server("127.0.0.1", 1, 1);
    let counts = owners.grown(|owners| {
        let mut neighbour = child("transactions", address).spawn().unwrap();
        let nothing = owners.as_command(|| child("nothing", address).spawn());
        assert!(nothing.unwrap().wait().unwrap().success());
        assert!(neighbour.wait().unwrap().success());
    });
    for of in Q::EXACT_OWNED[..2].as_flattened() {
        assert_eq!(counts[of], 0, "{of} {counts:?}");
    }
    assert!(counts[&Q::ExactNeighbourSoftirqNs] > 0, "{counts:?}");
    assert!(unresolved(&counts) < 0.02, "{counts:?}");
}

#[test]
fn open_sockets_are_found() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let Some((_alone, mut owners)) = load() else {
        return;
    };
    let counts = owners.grown(|owners| {
        owners.as_command(|| owners.follower.adopt_open_sockets().unwrap());
        let echo = thread::spawn(move || answer(accepted, 1));
        ask(&mut stream, 1);
        drop(stream);
        echo.join().unwrap();
    });
    assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
    assert_eq!(counts[&Q::ExactPeerSoftirqNs], 0, "both ends are its own");
    assert!(unresolved(&counts) < 0.02, "{counts:?}");
}
