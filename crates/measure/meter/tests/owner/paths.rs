//! Owners on the ways that a packet and a socket can take: a router, GRO, ksoftirqd, pacing, a worker that accepts, a socket that
//! is passed.

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
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
    SERVER, has_program, in_namespace, skip, thread_id, unless_missed, until, with_bed,
};

use super::{BULK, Owners, ROUNDS, answer, ask, both_ends, command, exchange, owned, softirqs};

/// Listens at this address, tells where, and answers one connection.
fn serve(ip: &str, told: &mpsc::Sender<SocketAddr>, bytes: usize) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    told.send(listener.local_addr().unwrap()).unwrap();
    answer(listener.accept().unwrap().0, bytes);
}

/// Growth of the counts during the work, once less than 2 % of NET_RX has no owner. The work is repeated a few times, because
/// packets that other programs drop meanwhile have no owner either: as much as neighbours own may be theirs.
fn resolved(owners: &mut Owners, mut work: impl FnMut()) -> Counts {
    unless_missed(|| {
        let counts = owners.grown(|_| work());
        let net_rx = counts[&Q::ExactSoftirqNetRxNs] as f64;
        let unowned = net_rx - owned(&counts) as f64;
        (net_rx > 0.0 && unowned < 0.02 * net_rx + of_neighbours(&counts)).then_some(counts)
    })
}

fn of_neighbours(counts: &Counts) -> f64 {
    counts[&Q::ExactNeighbourSoftirqNs] as f64
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
        received_in_namespace()
    };
    let client = move || {
        set("c");
        ready.send(()).unwrap();
        let address: SocketAddr = address.recv().unwrap();
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        resolved(&mut owners, || ask(&mut stream, BULK))
    };
    let Some((counts, (skbs, segments))) = with_bed(client, server) else {
        return;
    };
    both_ends(&counts);
    assert!(segments > 2 * skbs, "{segments} segments in {skbs} skbs");
}

/// Packets that this namespace received, as IPv4 saw them and as they were on the wire.
fn received_in_namespace() -> (u64, u64) {
    let value = |file: &str, name: &str| -> u64 {
        let text = std::fs::read_to_string(format!("/proc/thread-self/net/{file}")).unwrap();
        let lines: Vec<Vec<&str>> = text.lines().map(|line| line.split(' ').collect()).collect();
        let found = lines.chunks(2).find_map(|pair| {
            let column = pair[0].iter().position(|of| *of == name)?;
            pair[1][column].parse().ok()
        });
        found.unwrap()
    };
    (value("snmp", "InReceives"), value("netstat", "InNoECTPkts"))
}

/// Segments without offloads keep softirqs busy for longer than the kernel lets them, so ksoftirqd goes on with them. Its run time
/// has the softirqs that run in it, and the meter's context is its loop alone: the difference is softirq time in ksoftirqd.
#[test]
fn softirqs_in_ksoftirqd_have_owners() {
    if !has_program("ethtool") {
        return;
    }
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let set = |device: &str| run(&format!("ethtool -K {device} tso off gso off gro off"));
    let (told, address) = mpsc::channel();
    let (ready, is_ready) = mpsc::channel::<()>();
    let server = move || {
        set("s");
        is_ready.recv().unwrap();
        let listener = TcpListener::bind((SERVER, 0)).unwrap();
        told.send(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    };
    let client = move || {
        set("c");
        ready.send(()).unwrap();
        let address: SocketAddr = address.recv().unwrap();
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        let buffer = vec![0; BULK];
        let work = || (0..ROUNDS / 4).for_each(|_| stream.write_all(&buffer).unwrap());
        owned_in_ksoftirqd(&mut owners, work)
    };
    let Some((found, ())) = with_bed(client, server) else {
        return;
    };
    match found {
        Some(Ok(counts)) => _ = both_ends(&counts),
        Some(Err(why)) => panic!("{why}"),
        None => skip("too little softirq time in ksoftirqd, or busy neighbours"),
    }
}

/// Growth of the counts during the work, once network softirqs without an owner took less than half of the time of network
/// softirqs in ksoftirqd: most of that time then has an owner. `None` if ksoftirqd never ran long enough.
fn owned_in_ksoftirqd(
    owners: &mut Owners,
    mut work: impl FnMut(),
) -> Option<Result<Counts, String>> {
    let mut found = None;
    for _ in 0..30 {
        let before = ksoftirqd_ns();
        let counts = owners.grown(|_| work());
        let ran = (ksoftirqd_ns() - before) as f64;
        let of_network: u64 = NETWORK.iter().map(|of| counts[of]).sum();
        let others = softirqs(&counts) - of_network;
        // At least: as if all others had run there.
        let inside = ran - (counts[&Q::ExactKsoftirqdNs] + others) as f64;
        let unowned = of_network as f64 - owned(&counts) as f64;
        // Time without an owner may belong to other programs if they are busy, too.
        if inside < 0.03 * of_network as f64 || of_neighbours(&counts) > inside / 2.0 {
            continue;
        }
        if unowned < inside / 2.0 {
            return Some(Ok(counts));
        }
        found = Some(Err(format!("{unowned} ns, {inside} ns {counts:?}")));
    }
    found
}

/// Softirqs that have a packet or a socket in hand.
const NETWORK: [Q; 4] = [
    Q::ExactSoftirqNetRxNs,
    Q::ExactSoftirqNetTxNs,
    Q::ExactSoftirqTaskletNs,
    Q::ExactSoftirqHrtimerNs,
];

/// Run time of the kernel's threads ksoftirqd.
fn ksoftirqd_ns() -> u64 {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let of = |process: std::fs::DirEntry| {
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        let is_one = name.starts_with("ksoftirqd/");
        let times = is_one.then(|| std::fs::read_to_string(process.path().join("schedstat")));
        times?.ok()?.split(' ').next()?.parse::<u64>().ok()
    };
    processes.filter_map(of).sum()
}

/// TCP paces itself to a limit of its rate, whichever the congestion control.
#[test]
fn the_softirqs_of_pacing_are_the_commands() {
    let paced = check_pacing(1000, |stream| {
        set_int(stream, libc::SO_MAX_PACING_RATE, 200_000_000);
        Ok(())
    });
    assert_ne!(
        paced,
        Some(false),
        "a socket with a limit of its rate is paced"
    );
}

#[test]
fn the_softirqs_of_bbrs_pacing_are_the_commands() {
    let paced = check_pacing(4 * ROUNDS, |stream| {
        let set = sockopt::set_tcp_congestion(stream, "bbr");
        set.map_err(|error| format!("congestion control bbr: {error}"))
    });
    if paced == Some(false) {
        skip("bbr paced little");
    }
}

/// Sends so many pieces over a socket that is told to pace. True if pacing's timers had some work, which then has an owner;
/// `None` if the test is skipped.
fn check_pacing(
    pieces: usize,
    pace: impl FnOnce(&TcpStream) -> Result<(), String>,
) -> Option<bool> {
    let (_alone, mut owners) = Owners::load()?;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    // A reader that never answers, so that the sender is paced, not stopped.
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        std::io::copy(&mut stream, &mut std::io::sink()).unwrap();
    });
    let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
    if let Err(why) = pace(&stream) {
        drop(stream);
        server.join().unwrap();
        skip(&why);
        return None;
    }
    let buffer = vec![0; BULK];
    let counts = resolved(&mut owners, || {
        (0..pieces).for_each(|_| stream.write_all(&buffer).unwrap());
    });
    drop(stream);
    server.join().unwrap();
    both_ends(&counts);
    let (net_rx, paced) = (Q::ExactSoftirqNetRxNs, Q::ExactSoftirqHrtimerNs);
    let (net_rx, paced) = (counts[&net_rx] as f64, counts[&paced] as f64);
    if paced < 0.05 * net_rx {
        return Some(false);
    }
    // Without pacing's, what has owners would be NET_RX and TCP small queues alone, at most.
    let queues = counts[&Q::ExactSoftirqTaskletNs] as f64;
    let least = net_rx + queues + 0.5 * paced;
    assert!(owned(&counts) as f64 > least, "{counts:?}");
    Some(true)
}

fn set_int(socket: &impl AsRawFd, name: i32, value: i32) {
    // SAFETY: the value outlives the call, which is told its size.
    let status = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            name,
            (&raw const value).cast(),
            size_of_val(&value) as u32,
        )
    };
    assert_eq!(status, 0, "{}", std::io::Error::last_os_error());
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

/// A shaper holds packets back, and its timer sends them in softirqs.
#[test]
fn what_a_queueing_discipline_sends_is_its_sockets() {
    if !has_program("tc") {
        return;
    }
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let (told, address) = mpsc::channel();
    let server = move || serve(&SERVER.to_string(), &told, BULK);
    let client = move || {
        run("tc qdisc replace dev c root tbf rate 1gbit burst 64k latency 50ms");
        let address: SocketAddr = address.recv().unwrap();
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        resolved(&mut owners, || exchange(&mut stream, BULK, ROUNDS / 20))
    };
    let Some((counts, ())) = with_bed(client, server) else {
        return;
    };
    both_ends(&counts);
    let (net_rx, sent) = (Q::ExactSoftirqNetRxNs, Q::ExactSoftirqNetTxNs);
    let (net_rx, sent) = (counts[&net_rx] as f64, counts[&sent] as f64);
    if sent < 0.05 * net_rx {
        return skip(&format!(
            "the shaper held little back: {sent} ns of {net_rx}"
        ));
    }
    // Without what the shaper sends, what has owners would be NET_RX alone, at most.
    assert!(owned(&counts) as f64 > net_rx + 0.5 * sent, "{counts:?}");
}

/// No packet arrives, so all softirq time of the command is that of a timer that sends again.
#[test]
fn what_a_timer_sends_is_its_sockets() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    if !symbols.contains(" tcp_tsq_workfn") {
        return skip("this kernel's timers are seen by the packets that they send alone");
    }
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let Some((_alone, mut owners)) = Owners::load() else {
        return;
    };
    let (told, address) = mpsc::channel();
    let server = move || serve(&SERVER.to_string(), &told, 1);
    let client = move || {
        let address: SocketAddr = address.recv().unwrap();
        run(&format!("ip route replace {SERVER} dev c rto_min 5ms"));
        let mut stream = owners.as_command(|| TcpStream::connect(address).unwrap());
        let _lost = Lost::on("c");
        stream.write_all(b"x").unwrap();
        // A first softirq may be that of a packet that was on its way.
        for _ in 0..3 {
            let before = owners.meter.snapshot().unwrap();
            until("a softirq of the command", || {
                let counts = owners.since(&before);
                (counts[&Q::ExactOwnSoftirqNs] > 0).then_some(())
            });
        }
    };
    with_bed(client, server);
}

/// While this lives, a device of this namespace drops what it should send.
struct Lost(&'static str);

impl Lost {
    fn on(device: &'static str) -> Lost {
        // All packets are longer than the bucket.
        run(&format!(
            "tc qdisc replace dev {device} root tbf rate 1gbit burst 10 limit 10"
        ));
        Lost(device)
    }
}

impl Drop for Lost {
    fn drop(&mut self) {
        run(&format!("tc qdisc del dev {} root", self.0));
    }
}
