//! Whose softirq time it is on the ways that a packet and a socket can take: a router, GRO, ksoftirqd, pacing, a worker that
//! accepts, a socket that is passed. Needs root; says so and passes without.
//!
//! The command's sockets are those that this process makes while it is followed.
#![cfg(feature = "bpf")]

use std::io::{IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg, sockopt,
};
use tcpcost_counts::{Counts, Quantity as Q, Snapshot, Whose};
use tcpcost_meter::bpf::{self, Follower};
use tcpcost_meter::{Meter, Scope};
use tcpcost_testbed::{
    SERVER, has_program, in_namespace, skip, thread_id, unless_missed, until, with_bed,
};

/// What a child of this program does.
const CHILD: &str = "TCPCOST_TEST_CHILD";
const ROUNDS: usize = 2000;
const BULK: usize = 65_536;

/// One test at a time: to each the traffic of the others is that of neighbours.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

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
                skip(&error.to_string());
                None
            }
        }
    }

    /// Does something as the command: the sockets that it makes are the command's.
    fn as_command<T>(&self, work: impl FnOnce() -> T) -> T {
        self.follower.follow(std::process::id(), true).unwrap();
        let done = work();
        self.follower.follow(std::process::id(), false).unwrap();
        done
    }

    /// What grew while this was done.
    fn grown(&mut self, work: impl FnOnce()) -> Counts {
        let before = self.meter.snapshot().unwrap();
        work();
        self.since(&before)
    }

    fn since(&mut self, before: &Snapshot) -> Counts {
        let readings = self.meter.snapshot().unwrap().since(before).unwrap();
        let all = readings
            .into_iter()
            .find(|reading| matches!(reading.whose, Whose::Cpus(_)));
        all.unwrap().counts
    }
}

fn ask(stream: &mut TcpStream, bytes: usize) {
    exchange(stream, bytes, ROUNDS);
}

fn exchange(stream: &mut TcpStream, bytes: usize, rounds: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    for _ in 0..rounds {
        stream.write_all(&buffer).unwrap();
        stream.read_exact(&mut buffer[..1]).unwrap();
    }
}

/// Answers each message of so many bytes with one, until the client leaves.
fn answer(mut stream: TcpStream, bytes: usize) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = vec![0; bytes];
    while stream.read_exact(&mut buffer).is_ok() && stream.write_all(b"x").is_ok() {}
}

/// Listens at this address, tells where, and answers one connection.
fn serve(ip: &str, told: &mpsc::Sender<SocketAddr>, bytes: usize) {
    let listener = TcpListener::bind((ip, 0)).unwrap();
    told.send(listener.local_addr().unwrap()).unwrap();
    answer(listener.accept().unwrap().0, bytes);
}

fn owned(counts: &Counts) -> u64 {
    let softirqs = Q::EXACT_OWNED.iter().map(|[softirq, _]| counts[softirq]);
    softirqs.sum()
}

/// What grew while this was done, once less than 2 % of NET_RX has no owner: what other programs of this host drop
/// meanwhile has none either, so it is done again, a few times at most.
fn resolved(owners: &mut Owners, mut work: impl FnMut()) -> Counts {
    unless_missed(|| {
        let counts = owners.grown(&mut work);
        let net_rx = counts[&Q::ExactSoftirqNetRxNs] as f64;
        (net_rx > 0.0 && owned(&counts) as f64 > 0.98 * net_rx).then_some(counts)
    })
}

fn has_both_ends(counts: &Counts) {
    assert!(counts[&Q::ExactOwnSoftirqNs] > 0, "{counts:?}");
    assert!(counts[&Q::ExactPeerSoftirqNs] > 0, "{counts:?}");
}

fn run(line: &str) {
    let output = Command::new("sh").args(["-c", line]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{line}: {said}");
}

/// The client's namespace, a router's, and the server's behind it.
#[test]
fn what_a_router_forwards_is_its_senders_or_receivers() {
    let _alone = alone();
    if !has_program("ip") {
        return;
    }
    let Some(mut owners) = Owners::load() else {
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
    has_both_ends(&counts);
}

/// GRO merges what a sender without segmentation offload sends, so lists of several packets come up at once.
#[test]
fn packets_that_gro_merges_on_a_veth_have_owners() {
    let _alone = alone();
    if !has_program("ethtool") {
        return;
    }
    let Some(mut owners) = Owners::load() else {
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
    has_both_ends(&counts);
}

/// Bulk over a veth makes softirqs overstay, so that ksoftirqd goes on with them; on a machine where they never do, there is
/// nothing to see.
#[test]
fn softirqs_in_ksoftirqd_have_owners() {
    let _alone = alone();
    let Some(mut owners) = Owners::load() else {
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
    has_both_ends(&counts);
}

#[test]
fn the_softirqs_of_bbrs_pacing_are_the_commands() {
    let _alone = alone();
    let Some(mut owners) = Owners::load() else {
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
    has_both_ends(&counts);
    // Without pacing's, what has owners would be NET_RX alone, at most.
    assert!(owned(&counts) as f64 > net_rx + 0.5 * paced, "{counts:?}");
}

/// A shaper holds packets back, and its timer sends them in softirqs.
#[test]
fn what_a_queueing_discipline_sends_is_its_sockets() {
    let _alone = alone();
    if !has_program("tc") {
        return;
    }
    let Some(mut owners) = Owners::load() else {
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
    has_both_ends(&counts);
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

/// No packet arrives, so all is a timer's that tries to send again.
#[test]
fn what_a_timer_sends_is_its_sockets() {
    let _alone = alone();
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap();
    if !symbols.contains(" tcp_tsq_workfn") {
        return skip("this kernel's timers are seen by the packets that they send alone");
    }
    if !has_program("tc") || !has_program("ip") {
        return;
    }
    let Some(mut owners) = Owners::load() else {
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
        // Longer than the bucket are all packets.
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

fn child(what: &str, stdin: OwnedFd) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "the_child", "--nocapture"])
        .env(CHILD, what)
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::null());
    command
}

/// The child, where this program is run as one: its standard input is a socket.
#[test]
fn the_child() {
    let Ok(what) = std::env::var(CHILD) else {
        return;
    };
    let stdin = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
    match &*what {
        "accept" => answer(TcpListener::from(stdin).accept().unwrap().0, 1),
        "be passed" => answer(received(&UnixStream::from(stdin)), 1),
        _ => panic!("{what}"),
    }
}

/// A worker accepts from the listener that its parent made.
#[test]
fn what_a_worker_accepts_is_the_commands() {
    let _alone = alone();
    let Some(mut owners) = Owners::load() else {
        return;
    };
    let (mut worker, address) = owners.as_command(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        (child("accept", listener.into()).spawn().unwrap(), address)
    });
    let counts = owners.grown(|| ask(&mut TcpStream::connect(address).unwrap(), 1));
    assert!(worker.wait().unwrap().success());
    has_both_ends(&counts);
}

/// A socket that the command is handed by another process while it runs is found when open sockets are looked for.
#[test]
fn a_passed_socket_is_the_commands_once_it_is_looked_for() {
    let _alone = alone();
    let Some(mut owners) = Owners::load() else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (accepted, _) = listener.accept().unwrap();
    let (here, there) = UnixStream::pair().unwrap();
    let mut command = owners.as_command(|| child("be passed", there.into()).spawn().unwrap());
    pass(&here, accepted);
    // An answer shows that the command has it.
    let mut byte = [0];
    stream.write_all(b"x").unwrap();
    stream.read_exact(&mut byte).unwrap();
    owners.follower.adopt_open_sockets().unwrap();
    let counts = owners.grown(|| ask(&mut stream, 1));
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

fn received(from: &UnixStream) -> TcpStream {
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
