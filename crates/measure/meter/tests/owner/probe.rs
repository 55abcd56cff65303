//! Owners without programs of cgroups: `tcp_probe` names the sockets. What it misses shows next to a second copy of the programs,
//! which has all points.

use std::net::{TcpListener, TcpStream};
use std::thread;

use tcpcost_counts::{Counts, Quantity as Q};
use tcpcost_meter::Scope;

use super::{
    Alone, BULK, Owners, ROUNDS, alone, answer, ask, both_ends, child, owned, server, softirqs,
};

fn load() -> Option<(Alone, Owners)> {
    Some((alone(), load_probe()?))
}

fn load_probe() -> Option<Owners> {
    let owners = Owners::loaded(Scope {
        without_cgroups: true,
        ..Scope::default()
    })?;
    let misses = owners.meter.misses().unwrap();
    assert!(misses.contains("tcp_probe"), "{misses}");
    Some(owners)
}

/// Softirq time of the command and of the other ends by `tcp_probe`, over what they have by all points, in the same run.
fn ratios(what: &str, address: std::net::SocketAddr, all: &mut Owners) -> Option<[f64; 2]> {
    let mut probe = load_probe()?;
    let mut by_probe = Counts::new();
    let by_all = all.grown(|all| {
        by_probe = probe.grown(|probe| {
            let child = all.as_command(|| probe.as_command(|| child(what, address).spawn()));
            assert!(child.unwrap().wait().unwrap().success());
        });
    });
    assert!(owned(&by_probe) <= softirqs(&by_probe), "{by_probe:?}");
    let (by_probe, by_all) = (both_ends(&by_probe), both_ends(&by_all));
    let ratios = [0, 1].map(|end| by_probe[end] as f64 / by_all[end] as f64);
    println!("{what}: {ratios:.3?} of {by_all:?} ns");
    Some(ratios)
}

/// Nearly all: no task has the socket of a transaction locked when its packet comes.
#[test]
fn both_ends_of_transactions_have_what_they_have_by_all_points() {
    let Some((_alone, mut all)) = Owners::load() else {
        return;
    };
    for ip in ["127.0.0.1", "::1"] {
        let Some(ratios) = ratios("transactions", server(ip, 1, 1), &mut all) else {
            return;
        };
        let is_all = |ratio: &f64| (0.7..1.4).contains(ratio);
        assert!(ratios.iter().all(is_all), "{ip} {ratios:?}");
    }
}

/// SYN, SYN-ACK and what comes to half closed ends are in no owner's time; nor are ACKs while a system call sends.
#[test]
fn what_opens_and_closes_connections_has_no_owner() {
    let Some((_alone, mut all)) = Owners::load() else {
        return;
    };
    let address = server("127.0.0.1", ROUNDS / 10, 1);
    let Some([own, peer]) = ratios("connections", address, &mut all) else {
        return;
    };
    // The two ratios are of different runs: on a busy machine either may be a third too large.
    assert!((0.1..1.4).contains(&own), "{own}");
    assert!((0.1..1.4).contains(&peer), "{peer}");
    let Some([own, peer]) = ratios("bulk", server("127.0.0.1", 1, BULK), &mut all) else {
        return;
    };
    assert!((0.2..1.5).contains(&own), "{own}");
    assert!((0.2..1.5).contains(&peer), "{peer}");
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
    assert!(owned(&counts) <= softirqs(&counts), "{counts:?}");
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
}
