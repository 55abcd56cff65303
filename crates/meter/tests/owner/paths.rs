//! Owners on the ways that a packet and a socket can take: a router, GRO, ksoftirqd, pacing, a worker that accepts, a socket that
//! is passed.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::mpsc;
use std::thread;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use tcpcost_counts::{Counts, Quantity as Q};
use tcpcost_testbed::{
    SERVER, has_program, in_namespace, skip, thread_id, unless_missed, with_bed,
};

use super::{BULK, Owners, ROUNDS, answer, ask, both_ends, command, owned};

/// Listens at this address, tells where, and answers one connection.
fn serve(ip: &str, told: &mpsc::Sender<SocketAddr>, bytes: usize) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    told.send(listener.local_addr().unwrap()).unwrap();
    answer(listener.accept().unwrap().0, bytes);
}

/// What grew while this was done, once less than 2 % of NET_RX has no owner: what other programs of this host drop
/// meanwhile has none either, so it is done again, a few times at most.
fn resolved(owners: &mut Owners, mut work: impl FnMut()) -> Counts {
    unless_missed(|| {
        let counts = owners.grown(|_| work());
        let net_rx = counts[&Q::ExactSoftirqNetRxNs] as f64;
        (net_rx > 0.0 && owned(&counts) as f64 > 0.98 * net_rx).then_some(counts)
    })
}

fn run(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// The client's namespace, a router's, and the server's behind it.
#[test]
fn what_a_router_forwards_is_its_senders_or_receivers() {
    if !has_program("ip") {
        return;
    }
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let (told, address) = mpsc::channel();
    let (client_ends, client_ended) = mpsc::channel::<()>();
    let router = move || {
        let (id_sender, id) = mpsc::channel();
        let (made_sender, made) = mpsc::channel::<()>();
        thread::scope(|scope| {
            scope.spawn(move || {
                in_namespace(move || {
                    id_sender.send(thread_id()).unwrap();
                    made.recv().unwrap();
                    run("ip addr add 10.211.1.2/30 dev e && ip link set e up");
                    run("ip route add default via 10.211.1.1");
                    serve("10.211.1.2", &told, 1);
                });
            });
            run(&format!(
                "ip link add r type veth peer name e netns {}",
                id.recv().unwrap()
            ));
            run("ip addr add 10.211.1.1/30 dev r && ip link set r up");
            std::fs::write("/proc/sys/net/ipv4/ip_forward", "1").unwrap();
            made_sender.send(()).unwrap();
            let _ = client_ended.recv();
        });
    };
    let client = move || {
        let _client_ends = client_ends;
        let address: SocketAddr = address.recv().unwrap();
        run(&format!("ip route add 10.211.1.0/30 via {SERVER}"));
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        resolved(&mut owners, || ask(&mut stream, 1))
    };
    let Some((counts, ())) = with_bed(client, router) else {
        return;
    };
    both_ends(&counts);
}

/// GRO merges what a sender without segmentation offload sends, so lists of several packets come up at once.
#[test]
fn packets_that_gro_merges_on_a_veth_have_owners() {
    if !has_program("ethtool") {
        return;
    }
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let set = |device: &str| {
        run(&format!("ethtool -K {device} tso off gso off gro on"));
        run(&format!(
            "ethtool -k {device} | grep -q 'generic-receive-offload: on'"
        ));
    };
    let (told, address) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel::<()>();
    let server = move || {
        set("s");
        is_ready.recv().unwrap();
        serve(&SERVER.to_string(), &told, BULK);
    };
    let client = move || {
        set("c");
        ready.send(()).unwrap();
        let address: SocketAddr = address.recv().unwrap();
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        resolved(&mut owners, || ask(&mut stream, BULK))
    };
    let Some((counts, ())) = with_bed(client, server) else {
        return;
    };
    both_ends(&counts);
}

/// Bulk over a veth makes softirqs overstay, so that ksoftirqd goes on with them; on a machine where they never do, there is
/// nothing to see.
#[test]
fn softirqs_in_ksoftirqd_have_owners() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let (told, address) = mpsc::channel();
    let server = move || serve(&SERVER.to_string(), &told, BULK);
    let client = move || {
        let address: SocketAddr = address.recv().unwrap();
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        (0..5).find_map(|_| {
            let counts = resolved(&mut owners, || ask(&mut stream, BULK));
            (counts[&Q::ExactKsoftirqdNs] > 0).then_some(counts)
        })
    };
    let Some((counts, ())) = with_bed(client, server) else {
        return;
    };
    let Some(counts) = counts else {
        return skip("no softirq went to ksoftirqd");
    };
    both_ends(&counts);
}

#[test]
fn the_softirqs_of_bbrs_pacing_are_the_commands() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A reader that never answers, so that the sender is paced, not stopped.
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    });
    let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
    if let Err(error) = sockopt::set_tcp_congestion(&stream, "bbr") {
        drop(stream);
        server.join().unwrap();
        return skip(&format!("congestion control bbr: {error}"));
    }
    let buffer = vec![0; BULK];
    let counts = resolved(&mut owners, || {
        (0..4 * ROUNDS).for_each(|_| stream.write_all(&buffer).unwrap());
    });
    drop(stream);
    server.join().unwrap();
    let (net_rx, paced) = (Q::ExactSoftirqNetRxNs, Q::ExactSoftirqHrtimerNs);
    let (net_rx, paced) = (counts[&net_rx] as f64, counts[&paced] as f64);
    if paced < 0.05 * net_rx {
        return skip(&format!("bbr paced little: {paced} ns of {net_rx}"));
    }
    both_ends(&counts);
    // Without pacing's, what has owners would be NET_RX alone, at most.
    assert!(owned(&counts) as f64 > net_rx + 0.5 * paced, "{counts:?}");
}

/// A worker accepts from the listener that its parent made.
#[test]
fn what_a_worker_accepts_is_the_commands() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let (mut worker, address) = owners.as_command(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (
            command("accept")
                .stdin(OwnedFd::from(listener))
                .spawn()
                .unwrap(),
            address,
        )
    });
    let counts = owners.grown(|_| ask(&mut TcpStream::connect(address).unwrap(), 1));
    assert!(worker.wait().unwrap().success());
    both_ends(&counts);
}

/// A socket that the command is handed by another process while it runs is found when open sockets are looked for.
#[test]
fn a_passed_socket_is_the_commands_once_it_is_looked_for() {
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let mut command = owners.as_command(|| {
        command("passed")
            .stdin(OwnedFd::from(there))
            .spawn()
            .unwrap()
    });
    pass(&here, accepted);
    // An answer shows that the command has it.
    let mut byte = [0];
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut byte).unwrap();
    owners.follower.adopt_open_sockets().unwrap();
    let counts = owners.grown(|_| ask(&mut stream, 1));
    drop(stream);
    assert!(command.wait().unwrap().success());
    assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
}

/// unix(7), SCM_RIGHTS.
fn pass(to: &UnixStream, socket: TcpStream) {
    let fds = [socket.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(
        to,
        &[IoSlice::new(b"x")],
        &mut ancillary,
        SendFlags::empty(),
    )
    .unwrap();
}

pub fn received(from: &UnixStream) -> TcpStream {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    let slices = &mut [IoSliceMut::new(&mut byte)];
    recvmsg(from, slices, &mut ancillary, RecvFlags::empty()).unwrap();
    let mut messages = ancillary.drain();
    match messages.next() {
        Some(RecvAncillaryMessage::ScmRights(mut fds)) => TcpStream::from(fds.next().unwrap()),
        _ => panic!("no socket was passed"),
    }
}
