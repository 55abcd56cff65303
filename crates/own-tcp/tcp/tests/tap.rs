//! Tests of our TCP against the kernel's over TAP, in a network namespace of its own: checked data
//! in both directions. Needs root; prints that it was skipped otherwise.

mod common;

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Host, pattern};
use tcpcost_link::{Impaired, Impairment, Layer, Offloads, Tap};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{Config, ConnId, Connection, Endpoint, Pool, ReadError, State};
use tcpcost_testbed::{in_namespace, skip};

const OFFLOADS: Offloads = Offloads::ALL;
const NO_OFFLOADS: Offloads = Offloads::NONE;

#[derive(Clone, Copy)]
struct Bed {
    layer: Layer,
    offloads: Offloads,
    v6: bool,
    impairment: Option<Impairment>,
    bytes: u64,
    /// True if the kernel's address is resolved by ARP or neighbour discovery, as any other host's.
    asks: bool,
}

impl Bed {
    /// Transfers 20 MB, or the number in the variable BYTES: see `bench/transfers`.
    fn new(layer: Layer, offloads: Offloads, v6: bool) -> Self {
        Self {
            layer,
            offloads,
            v6,
            impairment: None,
            asks: false,
            bytes: wanted_bytes().unwrap_or(20_000_000),
        }
    }

    fn kernel(&self) -> IpAddr {
        if self.v6 { "fd77::1" } else { "10.77.0.1" }
            .parse()
            .unwrap()
    }

    fn ours(&self) -> IpAddr {
        if self.v6 { "fd77::2" } else { "10.77.0.2" }
            .parse()
            .unwrap()
    }

    /// Runs `test` in a namespace that ends with its thread.
    fn run(self, test: fn(Self, Peer)) {
        in_namespace(|| {
            let mut tap = match Tap::open("tap%d", self.layer, self.offloads) {
                Ok(tap) => tap,
                Err(error) => {
                    return skip(&error.to_string());
                }
            };
            tap.answer_for(self.ours());
            if self.asks {
                tap.resolve_in(self.ours(), if self.v6 { 64 } else { 24 });
            }
            self.bring_up(tap.name());
            test(self, Peer::new(&self, tap));
        });
    }

    fn bring_up(&self, name: &str) {
        let ip = |arguments: &str| {
            let status = Command::new("ip")
                .args(arguments.split_whitespace())
                .status()
                .unwrap();
            assert!(status.success(), "ip {arguments}");
        };
        // A burst that begins when everything waits for a timeout drops one retransmission after
        // the other, and each doubles the kernel's timeout, up to two minutes. Since Linux 6.15 the
        // timeout can be limited; 1 s is the minimum.
        let _ = std::fs::write("/proc/sys/net/ipv4/tcp_rto_max_ms", "1000");
        // A closed socket is by default given up when its timeout has reached that limit, and then
        // resets a peer that has not received its FIN (tcp_orphan_retries in net/ipv4/tcp_timer.c).
        // A burst of four packets is enough for that. A burst of seven drops a SYN and its
        // retransmissions.
        for retries in [
            "orphan_retries",
            "retries2",
            "syn_retries",
            "synack_retries",
        ] {
            std::fs::write(format!("/proc/sys/net/ipv4/tcp_{retries}"), "100").unwrap();
        }
        ip("link set lo up");
        ip(&format!("link set {name} up"));
        if self.v6 {
            ip(&format!("addr add fd77::1/64 dev {name} nodad"));
        } else {
            ip(&format!("addr add 10.77.0.1/24 dev {name}"));
        }
    }
}

fn wanted_bytes() -> Option<u64> {
    std::env::var("BYTES").ok()?.parse().ok()
}

/// Longest time between two checks of the test's condition.
const TURN_MAX: Duration = Duration::from_millis(50);

type OurDevice = Impaired<Tap, common::Wire>;

/// Our side, driven by hand.
struct Peer {
    host: Host<OurDevice>,
}

impl Peer {
    fn new(bed: &Bed, tap: Tap) -> Self {
        // Limited like the kernel's, and not given up in a long burst.
        let config = Config {
            rto_max: Duration::from_secs(1),
            retries_max: u8::MAX,
            syn_retries_max: u8::MAX,
            ..Config::default()
        };
        let impairment = bed.impairment.unwrap_or_default();
        let mut endpoint = Endpoint::new(
            config.clone(),
            Pool::default(),
            [5; 16],
            Checksum::Complete,
            now(),
        );
        endpoint.set_offloads(bed.offloads.checksum, bed.offloads.segmentation);
        endpoint.listen(5000, 10, config).unwrap();
        Self {
            host: Host::new(endpoint, Impaired::new(tap, impairment, impairment, 9)),
        }
    }

    /// Runs one turn: packets out, packets in, wait if nothing came.
    fn turn(&mut self) {
        self.host.transmit(now());
        if !self.host.receive(now()) {
            self.host.transmit(now());
            let due = self.host.next_event();
            let wait = due.map_or(TURN_MAX, |at| {
                at.saturating_duration_since(now()).min(TURN_MAX)
            });
            self.host.device.inner().wait(Some(wait)).unwrap();
        }
    }

    fn turn_until<T>(&mut self, mut done: impl FnMut(&mut Endpoint) -> Option<T>) -> T {
        // Ten minutes, and the time of BYTES at 2 MB/s.
        let most = Duration::from_secs(600 + wanted_bytes().unwrap_or(0) / 2_000_000);
        let deadline = now() + most;
        loop {
            if let Some(value) = done(&mut self.host.endpoint) {
                return value;
            }
            assert!(now() < deadline, "no end after {most:?}");
            self.turn();
        }
    }
}

#[allow(clippy::disallowed_methods, reason = "the kernel keeps real time")]
fn now() -> Instant {
    Instant::now()
}

#[allow(
    clippy::disallowed_methods,
    reason = "the kernel's side blocks in its calls"
)]
fn kernel_side<T: Send + 'static>(
    run: impl FnOnce() -> T + Send + 'static,
) -> std::thread::JoinHandle<T> {
    // A new thread is in the namespace of the thread that starts it.
    std::thread::spawn(run)
}

/// Selects cubic, whatever this machine's default is, because bbr paces.
fn use_cubic(stream: &TcpStream) {
    let name = b"cubic";
    // SAFETY: an open socket and the bytes of a name. If the kernel has no cubic, the default
    // stays.
    unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        )
    };
}

fn mbit_per_s(bytes: u64, begun: Instant) -> f64 {
    bytes as f64 * 8.0 / (now() - begun).as_secs_f64() / 1e6
}

/// The kernel connects and sends; we compare.
fn kernel_sends(bed: Bed, mut peer: Peer) {
    let to = SocketAddr::new(bed.ours(), 5000);
    let sender = kernel_side(move || {
        let mut stream = TcpStream::connect(to).unwrap();
        use_cubic(&stream);
        let (mut at, mut buffer) = (0, vec![0; 1 << 17]);
        while at < bed.bytes {
            let len = buffer.len().min((bed.bytes - at) as usize);
            pattern(at, &mut buffer[..len]);
            stream.write_all(&buffer[..len]).unwrap();
            at += len as u64;
        }
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stream.read(&mut [0]).unwrap(), 0, "our end closes in order");
    });
    let id = peer.turn_until(|endpoint| endpoint.accept(5000));
    let begun = now();
    let (mut at, mut buffer, mut expected) = (0, vec![0; 1 << 17], vec![0; 1 << 17]);
    peer.turn_until(|endpoint| {
        endpoint.apply(id, |connection| {
            loop {
                match connection.read(&mut buffer, now()) {
                    Ok(n) => {
                        pattern(at, &mut expected[..n]);
                        assert!(
                            buffer[..n] == expected[..n],
                            "bytes {at}.. are as they were written"
                        );
                        at += n as u64;
                    }
                    Err(ReadError::Empty) => return None,
                    Err(ReadError::Finished) => return Some(()),
                    Err(error) => panic!("{error}"),
                }
            }
        })?
    });
    assert_eq!(at, bed.bytes);
    let rate = mbit_per_s(bed.bytes, begun);
    let counters = *peer.host.endpoint.connection(id).unwrap().counters();
    finish(&mut peer, id);
    sender.join().unwrap();
    eprintln!(
        "kernel sends {at} bytes, {rate:.0} Mbit/s: {} wire segments in {} units, {} ACKs, {} out of order",
        counters.segments_received,
        counters.super_segments_received,
        counters.pure_acks_sent,
        counters.out_of_order_received,
    );
    if bed.offloads.segmentation && bed.impairment.is_none() {
        assert!(
            counters.super_segments_received * 4 < counters.segments_received,
            "super-segments arrive whole"
        );
    }
    assert_eq!(peer.host.endpoint.counters().dropped_malformed, 0);
}

/// We connect and send; the kernel compares.
fn we_send(bed: Bed, mut peer: Peer) {
    let listener = TcpListener::bind(SocketAddr::new(bed.kernel(), 6000)).unwrap();
    let receiver = kernel_side(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut at, mut buffer, mut expected) = (0, vec![0; 1 << 17], vec![0; 1 << 17]);
        loop {
            let n = stream.read(&mut buffer).unwrap();
            if n == 0 {
                return at;
            }
            pattern(at, &mut expected[..n]);
            assert!(
                buffer[..n] == expected[..n],
                "bytes {at}.. are as they were written"
            );
            at += n as u64;
        }
    });
    let (local, remote) = (
        SocketAddr::new(bed.ours(), 0),
        SocketAddr::new(bed.kernel(), 6000),
    );
    let id = peer.host.endpoint.connect(local, remote, now()).unwrap();
    let begun = now();
    let (mut at, mut buffer) = (0, vec![0; 1 << 16]);
    peer.turn_until(|endpoint| {
        endpoint.apply(id, |connection| {
            while at < bed.bytes {
                let len = buffer
                    .len()
                    .min((bed.bytes - at) as usize)
                    .min(connection.writable());
                pattern(at, &mut buffer[..len]);
                match connection.write(&buffer[..len]).unwrap() {
                    0 => return None,
                    n => at += n as u64,
                }
            }
            connection.close();
            (connection.unacknowledged() == 0).then_some(())
        })?
    });
    let counters = *peer.host.endpoint.connection(id).unwrap().counters();
    peer.turn_until(|endpoint| (endpoint.connection(id)?.state() == State::TimeWait).then_some(()));
    assert_eq!(receiver.join().unwrap(), bed.bytes);
    eprintln!(
        "we send {at} bytes, {:.0} Mbit/s: {} wire segments in {} units, {} ACKs received, {} retransmitted, {} timeouts",
        mbit_per_s(bed.bytes, begun),
        counters.segments_sent,
        counters.super_segments_sent,
        counters.pure_acks_received,
        counters.segments_retransmitted,
        counters.timeouts,
    );
    if bed.offloads.segmentation && bed.impairment.is_none() {
        assert!(
            counters.super_segments_sent * 4 < counters.segments_sent,
            "super-segments leave whole"
        );
    }
    assert_eq!(peer.host.device.inner().counters().refused, 0);
}

fn finish(peer: &mut Peer, id: ConnId) {
    peer.host.endpoint.apply(id, Connection::close);
    peer.turn_until(|endpoint| match endpoint.connection(id)?.state() {
        State::Closed | State::TimeWait => Some(()),
        _ => None,
    });
}

#[test]
fn the_kernel_sends_with_offloads() {
    Bed::new(Layer::Ethernet, OFFLOADS, false).run(kernel_sends);
}

#[test]
fn the_kernel_sends_without_offloads() {
    Bed::new(Layer::Ethernet, NO_OFFLOADS, false).run(kernel_sends);
}

#[test]
fn we_send_with_offloads() {
    Bed::new(Layer::Ethernet, OFFLOADS, false).run(we_send);
}

#[test]
fn we_send_without_offloads() {
    Bed::new(Layer::Ethernet, NO_OFFLOADS, false).run(we_send);
}

#[test]
fn over_ipv6_neighbours_find_each_other() {
    Bed::new(Layer::Ethernet, OFFLOADS, true).run(kernel_sends);
    Bed::new(Layer::Ethernet, OFFLOADS, true).run(we_send);
}

#[test]
fn the_kernel_can_be_asked_where_it_is() {
    for v6 in [false, true] {
        let bed = Bed {
            asks: true,
            ..Bed::new(Layer::Ethernet, OFFLOADS, v6)
        };
        bed.run(kernel_sends);
        bed.run(we_send);
    }
}

#[test]
fn over_a_tun_there_is_no_ethernet() {
    Bed::new(Layer::Ip, OFFLOADS, false).run(kernel_sends);
    Bed::new(Layer::Ip, OFFLOADS, false).run(we_send);
}

/// Runs both directions, with super-segments and without, over a wire with this impairment in 1 %
/// of the packets; or, if BYTES is set, in 0.01 %, since 1 % loss leaves only a few Mbit/s.
fn over(name: &str, kind: impl Fn(f64) -> Impairment) {
    let share = if wanted_bytes().is_some() { 1e-4 } else { 0.01 };
    for offloads in [OFFLOADS, NO_OFFLOADS] {
        let tso = if offloads.segmentation { "on" } else { "off" };
        eprintln!("{name} {share}, TSO {tso}:");
        let bed = Bed {
            impairment: Some(kind(share)),
            bytes: wanted_bytes().unwrap_or(if offloads.segmentation {
                10_000_000 // about 150 super-segments
            } else {
                1_500_000
            }),
            ..Bed::new(Layer::Ethernet, offloads, false)
        };
        bed.run(kernel_sends);
        bed.run(we_send);
    }
}

#[test]
fn bytes_survive_loss() {
    over("loss", |loss| Impairment {
        loss,
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_bursts_of_loss() {
    over("bursts of five, begun by a fifth of", |share| Impairment {
        burst: share / 5.0,
        burst_goes_on: 0.8,
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_reordering() {
    over("1 ms late", |reorder| Impairment {
        reorder,
        reorder_delay: Duration::from_millis(1),
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_duplicates() {
    over("twice", |duplicate| Impairment {
        duplicate,
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_damage() {
    over("one bit changed", |corrupt| Impairment {
        corrupt,
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_delay() {
    over("5 ms of delay, 1 ms of jitter, none of", |_| Impairment {
        delay: Duration::from_millis(5),
        jitter: Duration::from_millis(1),
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_a_narrow_wire() {
    let narrow = wanted_bytes().map_or(100_000_000, |_| 1_000_000_000);
    over("1 Gbit/s (tests: 100 Mbit/s), none of", |_| Impairment {
        delay: Duration::from_millis(1),
        rate_bits_per_s: Some(narrow),
        queue_bytes: Some(500_000),
        ..Impairment::default()
    });
}

#[test]
fn bytes_survive_all_of_it_at_once() {
    over("each of five faults", |share| Impairment {
        delay: Duration::from_millis(1),
        loss: share,
        duplicate: share,
        corrupt: share,
        reorder: 2.0 * share,
        reorder_delay: Duration::from_millis(1),
        ..Impairment::default()
    });
}
