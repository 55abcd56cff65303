//! Our TCP against the kernel's over TAP, on one CPU in a network namespace of its own, and the
//! bare system calls: `cargo bench -p tcpcost-tcp --bench tap` as root. With `-- loss [PAIRS]`:
//! goodput of both sides' CUBIC through the same lossy wire, in alternating runs.
#![allow(clippy::disallowed_methods, reason = "a bench is about time")]

#[path = "../tests/common/mod.rs"]
mod common;
#[path = "tap/sockets.rs"]
mod sockets;

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::Command;
use std::time::{Duration, Instant};

use common::{Host, Wire};
use rustix::time::{ClockId, clock_gettime};
use sockets::{PacketSocket, cubic};
use tcpcost_link::{Device, Impaired, Impairment, Layer, Offloads, Tap};
use tcpcost_tcp::wire::{Checksum, Header, Packet};
use tcpcost_tcp::{AckPolicy, Config, CongestionControl, Endpoint, Piece, Pool, ReadError};

/// Bytes transferred in each run.
const BYTES: u64 = 1 << 30;
const RUNS: usize = 3;

fn main() {
    // SAFETY: reads an id; moves this process, which has one thread, into a new namespace.
    if unsafe { libc::geteuid() != 0 || libc::unshare(libc::CLONE_NEWNET) != 0 } {
        println!("skipped: needs root to make a network namespace and a TAP");
        return;
    }
    pin();
    ip("link set lo up");
    let mut arguments = std::env::args().skip_while(|argument| argument != "loss");
    if arguments.next().is_some() {
        let pairs = arguments.next().and_then(|pairs| pairs.parse().ok());
        goodput_under_loss(pairs.unwrap_or(12));
        return;
    }
    println!(
        "us of CPU per KiB: this process's thread, and with the kernel's reader or writer; Gbit/s that \
         one CPU carries so"
    );
    run("memcpy of 64 KiB in cache", memcpy);
    for offloads in [Offloads::ALL, Offloads::NONE] {
        let on = if offloads.segmentation { "on" } else { "off" };
        run(
            &format!("bare write of units that the kernel drops, offloads {on}"),
            || raw_write(offloads),
        );
        run(
            &format!("bare read of units that a packet socket puts there, offloads {on}"),
            || raw_read(offloads),
        );
        for copies in [false, true] {
            let how = if copies { "one copy" } else { "no copy" };
            run(&format!("we send, {how}, offloads {on}"), || {
                send(offloads, copies)
            });
            run(&format!("we receive, {how}, offloads {on}"), || {
                receive(offloads, copies)
            });
        }
    }
}

/// Prints goodput in Mbit/s over a wire of 10 ms each way that loses 1 % of the segments.
fn goodput_under_loss(pairs: u64) {
    let impairment = Impairment {
        delay: Duration::from_millis(10),
        loss: 0.01,
        ..Impairment::default()
    };
    let clean = Impairment {
        loss: 0.0,
        ..impairment
    };
    let mut all: Vec<(f64, f64)> = Vec::new();
    for seed in 1..=pairs {
        let ours = || lossy(|tap| Impaired::new(tap, impairment, clean, seed), true);
        let kernels = || lossy(|tap| Impaired::new(tap, clean, impairment, seed), false);
        // The order changes from pair to pair.
        let (ours, kernels) = if seed % 2 == 0 {
            (ours(), kernels())
        } else {
            let kernels = kernels();
            (ours(), kernels)
        };
        println!("seed {seed}: ours {ours:.2} Mbit/s, the kernel's {kernels:.2} Mbit/s");
        all.push((ours, kernels));
    }
    let sorted = |of: fn(&(f64, f64)) -> f64| {
        let mut values: Vec<f64> = all.iter().map(of).collect();
        values.sort_by(f64::total_cmp);
        values
    };
    let median = |values: &[f64]| (values[(values.len() - 1) / 2] + values[values.len() / 2]) / 2.0;
    let ratios = sorted(|(ours, kernels)| ours / kernels);
    let out = interval_out(ratios.len());
    println!(
        "medians: ours {:.2}, the kernel's {:.2}; ratio {:.3} [{:.3}, {:.3}] (n = {}, 95 % by order statistics)",
        median(&sorted(|pair| pair.0)),
        median(&sorted(|pair| pair.1)),
        median(&ratios),
        ratios[out],
        ratios[ratios.len() - 1 - out],
        ratios.len(),
    );
}

/// Number of values outside, at each end, of the interval that holds the true median with at least
/// 95 % (docs/method.md). 0 for fewer than six values.
fn interval_out(n: usize) -> usize {
    let (mut chance, mut sum, mut out) = (0.5f64.powi(n as i32), 0.0, 0);
    for below in 0..n / 2 {
        sum += chance;
        if 2.0 * sum > 0.05 {
            break;
        }
        out = below;
        chance *= (n - below) as f64 / (below + 1) as f64;
    }
    out
}

fn lossy(wrap: impl FnOnce(Tap) -> Impaired<Tap, Wire>, we_send: bool) -> f64 {
    const SECONDS: u64 = 8;
    let mut tap = Tap::open("tap%d", Layer::Ethernet, Offloads::NONE).unwrap();
    tap.answer_for("10.77.0.2".parse().unwrap());
    ip(&format!("addr add 10.77.0.1/24 dev {}", tap.name()));
    ip(&format!("link set {} txqueuelen 10000 up", tap.name()));
    let mut config = Config {
        receive_buffer: 4 << 20,
        ..Config::default()
    };
    config.segmentation.super_segment_bytes_max = 0;
    let mut endpoint = Endpoint::new(
        config.clone(),
        Pool::default(),
        [5; 16],
        Checksum::Complete,
        Instant::now(),
    );
    endpoint.listen(5000, 5, config).unwrap();
    let mut host = Host::new(endpoint, wrap(tap));
    let listener = TcpListener::bind("10.77.0.1:6000").unwrap();
    let kernel = std::thread::spawn(move || {
        if we_send {
            let (mut stream, _) = listener.accept().unwrap();
            let (mut buffer, mut total) = (vec![0; 1 << 18], 0u64);
            while let Ok(n @ 1..) = stream.read(&mut buffer) {
                total += n as u64;
            }
            total
        } else {
            let mut stream = cubic([10, 77, 0, 2], 5000);
            while stream.write_all(&[7; 1 << 16]).is_ok() {}
            0
        }
    });
    let mut id = we_send.then(|| {
        let (local, remote) = (
            "10.77.0.2:0".parse().unwrap(),
            "10.77.0.1:6000".parse().unwrap(),
        );
        host.endpoint
            .connect(local, remote, Instant::now())
            .unwrap()
    });
    let begun = Instant::now();
    let mut received = 0;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        let now = Instant::now();
        id = id.or_else(|| host.endpoint.accept(5000));
        if let Some(id) = id {
            host.endpoint.apply(id, |connection| {
                while we_send && connection.writable() > 65_536 {
                    connection.write(&[7; 1 << 16]).unwrap();
                }
                while let Ok(piece) = connection.read_piece(usize::MAX, now) {
                    received += piece.len() as u64;
                }
            });
        }
        host.transmit(now);
        if !host.receive(now) {
            let due = host.next_event().map_or(Duration::from_millis(50), |at| {
                at.saturating_duration_since(now)
            });
            host.device.inner().wait(Some(due)).unwrap();
        }
    }
    if let Some(id) = id {
        received = received.max(host.endpoint.connection(id).map_or(0, |connection| {
            connection.counters().payload_bytes_sent
                - connection.counters().payload_bytes_retransmitted
        }));
        host.endpoint.apply(id, tcpcost_tcp::Connection::abort);
    }
    for _ in 0..5 {
        host.transmit(Instant::now());
        std::thread::sleep(Duration::from_millis(20));
    }
    let total = kernel.join().unwrap();
    let bytes = if we_send { total } else { received };
    bytes as f64 * 8.0 / SECONDS as f64 / 1e6
}

/// Bytes carried, CPU time of this thread, and CPU time of all threads of the process.
struct Cost {
    bytes: u64,
    own: Duration,
    all: Duration,
}

/// Runs the case only if its name contains every word of the command line, for use with a profiler.
fn run(name: &str, mut once: impl FnMut() -> Cost) {
    let mut words = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with('-'));
    if !words.all(|word| name.contains(&word)) {
        return;
    }
    let costs: Vec<Cost> = std::iter::repeat_with(&mut once).take(RUNS).collect();
    let per_kib = |time: Duration, bytes: u64| time.as_secs_f64() * 1e6 / (bytes as f64 / 1024.0);
    let best = |of: fn(&Cost) -> Duration| {
        costs
            .iter()
            .map(|cost| per_kib(of(cost), cost.bytes))
            .fold(f64::MAX, f64::min)
    };
    let all = best(|cost| cost.all);
    println!(
        "{:>8.4} {all:>8.4} {:>7.1} {name}",
        best(|cost| cost.own),
        8.192 / all
    );
}

fn memcpy() -> Cost {
    let (from, mut to) = (vec![1u8; 64 << 10], vec![0u8; 64 << 10]);
    let begun = Clocks::now();
    for _ in 0..BYTES / from.len() as u64 {
        to.copy_from_slice(std::hint::black_box(&from));
        std::hint::black_box(&to);
    }
    begun.cost(BYTES)
}

fn host(offloads: Offloads) -> Host<Tap> {
    let mut tap = Tap::open("tap%d", Layer::Ethernet, offloads).unwrap();
    tap.answer_for("10.77.0.2".parse().unwrap());
    ip(&format!("addr add 10.77.0.1/24 dev {}", tap.name()));
    ip(&format!("link set {} txqueuelen 1000 up", tap.name()));
    let config = Config {
        receive_buffer: 1 << 20,
        receive_buffer_max: 0,
        // An ACK per 128 KiB: see the measurements in `bench/`.
        ack: AckPolicy::Every {
            segments: 90,
            delay_max: Duration::from_millis(20),
        },
        congestion: CongestionControl::Fixed(1 << 20),
        ..Config::default()
    };
    let mut endpoint = Endpoint::new(
        config.clone(),
        Pool::default(),
        [5; 16],
        Checksum::Complete,
        Instant::now(),
    );
    endpoint.set_offloads(offloads.checksum, offloads.segmentation);
    endpoint.listen(5000, 5, config).unwrap();
    Host::new(endpoint, tap)
}

fn turn(host: &mut Host<Tap>, now: Instant) {
    host.transmit(now);
    if !host.receive(now) {
        let wait = host.next_event().map_or(Duration::from_millis(50), |at| {
            at.saturating_duration_since(now)
        });
        host.device.wait(Some(wait)).unwrap();
    }
}

fn send(offloads: Offloads, copies: bool) -> Cost {
    let mut host = host(offloads);
    let listener = TcpListener::bind("10.77.0.1:6000").unwrap();
    let reader = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut buffer, mut total) = (vec![0; 1 << 18], 0u64);
        while let Ok(n @ 1..) = stream.read(&mut buffer) {
            total += n as u64;
        }
        total
    });
    let (local, remote): (SocketAddr, SocketAddr) = (
        "10.77.0.2:0".parse().unwrap(),
        "10.77.0.1:6000".parse().unwrap(),
    );
    let id = host
        .endpoint
        .connect(local, remote, Instant::now())
        .unwrap();
    let source = vec![7; 64_240];
    let piece = Piece::from(source.clone());
    let begun = Clocks::now();
    let (mut written, mut done) = (0, false);
    while !done {
        let now = Instant::now();
        done = host
            .endpoint
            .apply(id, |connection| {
                while written < BYTES && connection.writable() >= source.len() {
                    if copies {
                        connection.write(&source).unwrap();
                    } else {
                        connection.write_piece(piece.clone()).unwrap();
                    }
                    written += source.len() as u64;
                }
                if written >= BYTES {
                    connection.close();
                }
                written >= BYTES && connection.unacknowledged() == 0
            })
            .unwrap();
        turn(&mut host, now);
    }
    let cost = begun.cost(written);
    host.endpoint.apply(id, tcpcost_tcp::Connection::abort);
    host.transmit(Instant::now());
    assert_eq!(reader.join().unwrap(), written);
    cost
}

fn receive(offloads: Offloads, copies: bool) -> Cost {
    let mut host = host(offloads);
    let writer = std::thread::spawn(move || {
        let mut stream = cubic([10, 77, 0, 2], 5000);
        let source = vec![7; 1 << 18];
        for _ in 0..BYTES / source.len() as u64 {
            stream.write_all(&source).unwrap();
        }
    });
    let id = loop {
        let now = Instant::now();
        if let Some(id) = host.endpoint.accept(5000) {
            break id;
        }
        turn(&mut host, now);
    };
    let begun = Clocks::now();
    let (mut read, mut finished, mut buffer) = (0, false, vec![0; 1 << 18]);
    while !finished {
        let now = Instant::now();
        turn(&mut host, now);
        finished = host
            .endpoint
            .apply(id, |connection| {
                loop {
                    let n = if copies {
                        connection.read(&mut buffer, now)
                    } else {
                        connection
                            .read_piece(usize::MAX, now)
                            .map(|piece| piece.len())
                    };
                    match n {
                        Ok(n) => read += n as u64,
                        Err(error) => return error == ReadError::Finished,
                    }
                }
            })
            .unwrap();
    }
    let cost = begun.cost(read);
    host.endpoint.release(id, Instant::now());
    host.transmit(Instant::now());
    writer.join().unwrap();
    cost
}

/// Cost of the write calls without our TCP: packets that the kernel does not answer.
fn raw_write(offloads: Offloads) -> Cost {
    let mut host = host(offloads);
    let size = if offloads.segmentation {
        44 * 1448
    } else {
        1448
    };
    let (payload, mut written) = (Piece::from(vec![7u8; size]), 0);
    // IPv4 packets of protocol 253 (for experiments) to the kernel, which drops them.
    let total = 40 + size as u16;
    let mut header = [
        0x45,
        0,
        (total >> 8) as u8,
        total as u8,
        0,
        0,
        0x40,
        0,
        64,
        253,
        0,
        0,
        10,
        77,
        0,
        2,
        10,
        77,
        0,
        1,
    ];
    let sum = tcpcost_tcp::wire::Sum::new().add_bytes(&header).finish();
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    let header = [&header[..], &[0; 20]].concat();
    let packet = Packet {
        header: Header::from(header.as_slice()),
        payload: payload.into(),
        ..Packet::default()
    };
    let begun = Clocks::now();
    while written < BYTES / 4 {
        let mut out: VecDeque<Wire> = VecDeque::from([Wire(packet.clone())]);
        host.device.send(&mut out, Instant::now()).unwrap();
        written += size as u64;
    }
    begun.cost(written)
}

/// Cost of the read calls without our TCP: a packet socket writes units like a sender's to the
/// interface, and they are read into slabs. `own` is the CPU time of the reads alone.
fn raw_read(offloads: Offloads) -> Cost {
    let mut host = host(offloads);
    let name = std::ffi::CString::new(host.device.name()).unwrap();
    let size: u16 = if offloads.segmentation {
        44 * 1448
    } else {
        1448
    };
    let socket = PacketSocket::new(&name);
    let total = (40 + size).to_be_bytes();
    // struct virtio_net_hdr: partial checksum, TCPv4, header length, segment size, checksum
    // position.
    let virtio: [u8; 10] = if offloads.segmentation {
        let [a, b] = 1448u16.to_le_bytes();
        [1, 1, 54, 0, a, b, 34, 0, 16, 0]
    } else {
        [0; 10]
    };
    // A TAP is told from the kernel's end by the last bit (neighbours/mod.rs); frames to others are dropped.
    let shown = std::process::Command::new("ip")
        .args(["-o", "link", "show", "dev", host.device.name()])
        .output()
        .unwrap();
    let shown = String::from_utf8(shown.stdout).unwrap();
    let (_, address) = shown.split_once("link/ether ").unwrap();
    let bytes = address[..17].split(':');
    let bytes = bytes.map(|byte| u8::from_str_radix(byte, 16).unwrap());
    let mut ethernet: Vec<u8> = bytes.collect();
    ethernet[5] ^= 1;
    ethernet.extend([2, 0, 0, 0, 0, 2, 8, 0]);
    let ip = [
        0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 77, 0, 1, 10, 77, 0, 2,
    ];
    let tcp = [
        0, 80, 0, 81, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 1, 0, 0, 0, 0, 0,
    ];
    let payload = vec![7; usize::from(size)];
    let unit = [&virtio[..], &ethernet, &ip, &tcp, &payload].concat();
    let mut source = common::Slabs(host.endpoint.pool().clone());
    let (mut read, mut reading) = (0, Duration::ZERO);
    let begun = Clocks::now();
    while read < BYTES / 4 {
        // 32 units: as many as wait for a slow reader, and fewer than the interface's queue holds.
        (0..32).for_each(|_| socket.send(&unit));
        let before = cpu(ClockId::ThreadCPUTime);
        let mut arrived: VecDeque<Wire> = VecDeque::new();
        host.device
            .receive(&mut source, &mut arrived, 64, Instant::now())
            .unwrap();
        let units = arrived
            .iter()
            .filter(|unit| unit.0.len() == 40 + payload.len());
        read += (units.count() * payload.len()) as u64;
        drop(arrived);
        reading += cpu(ClockId::ThreadCPUTime) - before;
    }
    Cost {
        own: reading,
        ..begun.cost(read)
    }
}

struct Clocks {
    own: Duration,
    all: Duration,
}

impl Clocks {
    fn now() -> Self {
        Self {
            own: cpu(ClockId::ThreadCPUTime),
            all: cpu(ClockId::ProcessCPUTime),
        }
    }

    fn cost(&self, bytes: u64) -> Cost {
        let end = Self::now();
        Cost {
            bytes,
            own: end.own - self.own,
            all: end.all - self.all,
        }
    }
}

fn cpu(clock: ClockId) -> Duration {
    let time = clock_gettime(clock);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Pins everything to one CPU, so that the sum of both sides' CPU time equals the wall-clock time.
fn pin() {
    // SAFETY: a CPU set is plain bits; this thread and the threads it starts move to the first CPU.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set);
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status()
        .unwrap();
    assert!(status.success(), "ip {arguments}");
}
