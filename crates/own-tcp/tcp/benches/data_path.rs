//! Cost of the data path: `cargo bench -p tcpcost-tcp [-- idle|flows]`. CPU time of this process,
//! best of several runs, next to a memcpy in the same run.
#![allow(clippy::disallowed_methods, reason = "a bench is about time")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tcpcost_tcp::wire::{Checksum, Packet, Segment, Sum};
use tcpcost_tcp::{
    Clock, Config, CongestionControl, ConnId, Connection, Endpoint, Piece, Pool, SeqNum,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.iter().any(|argument| argument == "idle") {
        idle(1_000_000);
        return;
    }
    if arguments.iter().any(|argument| argument == "flows") {
        flows();
        return;
    }
    memcpy();
    fused();
    for (name, way) in [
        (
            "endpoints, 64 KiB units, no copies",
            Way {
                copies: false,
                checksum: Checksum::Partial,
                cut: false,
            },
        ),
        (
            "endpoints, 64 KiB units, copied in and out",
            Way {
                copies: true,
                checksum: Checksum::Partial,
                cut: false,
            },
        ),
        (
            "endpoints, 64 KiB units, copied, checksummed twice",
            Way {
                copies: true,
                checksum: Checksum::Complete,
                cut: false,
            },
        ),
    ] {
        stream(name, &Config::default(), way);
    }
    let mut segments = Config::default();
    for (name, copies, checksum) in [
        (
            "endpoints, MTU 1500, super-segments cut, no copies",
            false,
            Checksum::Partial,
        ),
        (
            "endpoints, MTU 1500, super-segments cut, copied",
            true,
            Checksum::Partial,
        ),
        (
            "endpoints, MTU 1500, super-segments cut, copied and summed in one pass, verified",
            true,
            Checksum::Complete,
        ),
    ] {
        let cut = true;
        stream(
            name,
            &segments,
            Way {
                copies,
                checksum,
                cut,
            },
        );
    }
    segments.segmentation.super_segment_bytes_max = 0;
    for (name, copies, checksum) in [
        ("endpoints, MTU 1500, no copies", false, Checksum::Partial),
        ("endpoints, MTU 1500, copied", true, Checksum::Partial),
        (
            "endpoints, MTU 1500, copied and summed in one pass, verified",
            true,
            Checksum::Complete,
        ),
        (
            "endpoints, MTU 1500, no copies, summed, verified",
            false,
            Checksum::Complete,
        ),
    ] {
        let cut = false;
        stream(
            name,
            &segments,
            Way {
                copies,
                checksum,
                cut,
            },
        );
    }
    one_pass_or_two(&segments);
    calls();
    idle(10_000);
}

#[derive(Clone, Copy)]
struct Way {
    copies: bool,
    checksum: Checksum,
    /// True if the endpoint cuts super-segments, because the wire takes only segments.
    cut: bool,
}

const RUNS: usize = 7;
const BYTES: usize = 256 << 20;

fn memcpy() {
    let (from, mut to) = (vec![1u8; 64 << 10], vec![0u8; 64 << 10]);
    let best = best_of(|| {
        for _ in 0..BYTES / from.len() {
            to.copy_from_slice(black_box(&from));
            black_box(&to);
        }
    });
    report("memcpy of 64 KiB in cache", best, BYTES);
}

/// Compares "copied and summed in one pass" with a sum computed when a segment leaves: alternating
/// runs, median of the ratios.
fn one_pass_or_two(segments: &Config) {
    let config = bulk(segments);
    let way = Way {
        copies: true,
        checksum: Checksum::Complete,
        cut: false,
    };
    let once = |one_pass: bool| {
        let mut pair = Pair::new(&config, way);
        pair.client
            .configure(|config| config.sum_on_write = one_pass);
        let begun = cpu();
        pair.transfer(BYTES);
        (cpu() - begun).as_secs_f64()
    };
    let mut ratios: Vec<f64> = (0..21).map(|_| once(true) / once(false)).collect();
    ratios.sort_by(f64::total_cmp);
    println!(
        "{:>12.3} of it / of the same summed when it leaves, median of 21 pairs in turn [{:.3}, {:.3}]",
        ratios[10], ratios[5], ratios[15]
    );
}

/// Compares a separate copy and sum of a segment with both in one pass: alternating runs, median of
/// the ratios.
fn fused() {
    let (from, mut to) = (vec![1u8; 64 << 10], vec![0u8; 64 << 10]);
    let once = |one_pass: bool, to: &mut [u8]| {
        let begun = cpu();
        for _ in 0..BYTES / 4 / from.len() {
            let from = black_box(&from[..]);
            if one_pass {
                for (to, from) in to.chunks_mut(1448).zip(from.chunks(1448)) {
                    black_box(Sum::new().add_copied(to, from));
                }
            } else {
                to.copy_from_slice(from);
                for part in black_box(&*to).chunks(1448) {
                    black_box(Sum::new().add_bytes(part));
                }
            }
        }
        cpu() - begun
    };
    let mut pairs: Vec<(Duration, Duration)> = (0..21)
        .map(|_| (once(false, &mut to), once(true, &mut to)))
        .collect();
    let ratio = |(two, one): &(Duration, Duration)| one.as_secs_f64() / two.as_secs_f64();
    pairs.sort_by(|a, b| ratio(a).total_cmp(&ratio(b)));
    let two = pairs.iter().map(|pair| pair.0).min().unwrap_or_default();
    let one = pairs.iter().map(|pair| pair.1).min().unwrap_or_default();
    for (name, took) in [
        ("copy of 64 KiB, then a sum of each segment", two),
        ("copy and sum of each segment in one pass", one),
    ] {
        report(name, took, BYTES / 4);
        println!(
            "{:>12.0} ns per segment of 1448 bytes",
            took.as_nanos() as f64 / (BYTES as f64 / 4.0 / 1448.0)
        );
    }
    println!(
        "{:>12.3} one pass / two, median of {} pairs in turn [{:.3}, {:.3}]",
        ratio(&pairs[10]),
        pairs.len(),
        ratio(&pairs[5]),
        ratio(&pairs[15])
    );
}

fn stream(name: &str, config: &Config, way: Way) {
    let config = bulk(config);
    let mut units = 0;
    let best = best_of(|| units = Pair::new(&config, way).transfer(BYTES));
    report(name, best, BYTES);
    println!(
        "{:>12.0} ns per data unit, all of both ends",
        best.as_nanos() as f64 / units as f64
    );
}

/// 512 KiB in flight, which fit into the second-level cache.
fn bulk(config: &Config) -> Config {
    Config {
        congestion: CongestionControl::Fixed(512 << 10),
        receive_buffer: 1 << 20,
        receive_buffer_max: 0,
        ..config.clone()
    }
}

/// Compares a thousand flows with one flow, in alternating runs: ratio of their costs.
fn flows() {
    let config = bulk(&Config::default());
    for (name, cut) in [
        ("units of 64 KiB, copied in and out", false),
        ("segments of 1448 bytes, copied in and out", true),
    ] {
        let way = Way {
            copies: true,
            checksum: Checksum::Partial,
            cut,
        };
        let once = |count: usize| {
            let mut pair = Pair::with_flows(&config, way, count);
            // Every flow has sent before the measurement.
            pair.transfer(count * UNIT_BYTES);
            let begun = cpu();
            pair.transfer(BYTES);
            (cpu() - begun).as_secs_f64()
        };
        let mut pairs: Vec<(f64, f64)> = (0..11).map(|_| (once(1), once(1000))).collect();
        pairs.sort_by(|a, b| (a.1 / a.0).total_cmp(&(b.1 / b.0)));
        let ratio = |n: usize| pairs[n].1 / pairs[n].0;
        let kib = (BYTES / 1024) as f64;
        println!(
            "{:>12.3} of 1,000 flows / of one, {name}: median of 11 pairs in turn [{:.3}, {:.3}]; {:.4} and {:.4} us/KiB there",
            ratio(5),
            ratio(2),
            ratio(8),
            1e6 * pairs[5].1 / kib,
            1e6 * pairs[5].0 / kib,
        );
    }
}

/// Bytes that the application writes at a time.
const UNIT_BYTES: usize = 64 << 10;
/// Flows, of many, that send in one turn: as many units as a single flow has in flight.
const FLOWS_A_TURN: usize = 8;

struct Pair {
    client: Endpoint,
    server: Endpoint,
    /// Connection of each flow at both ends.
    flows: Vec<[ConnId; 2]>,
    now: Instant,
    way: Way,
}

impl Pair {
    fn new(config: &Config, way: Way) -> Self {
        Self::with_flows(config, way, 1)
    }

    fn with_flows(config: &Config, way: Way, count: usize) -> Self {
        let now = Instant::now();
        let endpoint = |seed| {
            let pool = Pool::default();
            let mut endpoint = Endpoint::new(config.clone(), pool, [seed; 16], way.checksum, now);
            endpoint.set_offloads(way.checksum == Checksum::Partial, !way.cut);
            endpoint
        };
        let (mut client, mut server) = (endpoint(1), endpoint(2));
        server.listen(80, 5, config.clone()).unwrap();
        let ends = ["10.0.0.1:0", "10.0.0.2:80"].map(|end| end.parse().unwrap());
        let mut connect = |_| {
            let id = client.connect(ends[0], ends[1], now).unwrap();
            for _ in 0..3 {
                pass(&mut client, &mut server, now);
                pass(&mut server, &mut client, now);
            }
            [id, server.accept(80).unwrap()]
        };
        Self {
            flows: (0..count).map(&mut connect).collect(),
            client,
            server,
            now,
            way,
        }
    }

    /// Transfers `bytes`. A single flow fills its window; of many flows, [`FLOWS_A_TURN`] send one
    /// unit each per turn.
    fn transfer(&mut self, bytes: usize) -> u64 {
        let source = vec![7u8; UNIT_BYTES];
        let shared = Piece::from(source.clone());
        let mut buffer = vec![0; UNIT_BYTES];
        let (mut written, mut read) = (0, 0);
        let way = self.way;
        let most = match self.flows.len() {
            1 => usize::MAX,
            _ => 1,
        };
        let mut turns = self.flows.chunks(FLOWS_A_TURN).cycle();
        while read < bytes {
            // One clock reading per turn, as in a driver.
            self.now += Duration::from_micros(50);
            let now = self.now;
            let turn = turns.next().unwrap();
            for [id, _] in turn {
                self.client.apply(*id, |connection| {
                    let mut units = 0;
                    while written < bytes && units < most && connection.writable() >= source.len() {
                        if way.copies {
                            written += connection.write(&source).unwrap();
                        } else {
                            connection.write_piece(shared.clone()).unwrap();
                            written += shared.len();
                        }
                        units += 1;
                    }
                });
            }
            pass(&mut self.client, &mut self.server, now);
            for [_, accepted] in turn {
                self.server.apply(*accepted, |connection| {
                    if way.copies {
                        while let Ok(n) = connection.read(&mut buffer, now) {
                            read += n;
                        }
                    } else {
                        while let Ok(piece) = connection.read_piece(usize::MAX, now) {
                            read += piece.len();
                        }
                    }
                });
            }
            pass(&mut self.server, &mut self.client, now);
        }
        let counters = self
            .flows
            .iter()
            .map(|[id, _]| self.client.connection(*id).unwrap().counters());
        let units = counters.map(|counters| match way.cut {
            true => counters.segments_sent,
            false => counters.super_segments_sent,
        });
        units.sum()
    }
}

fn pass(from: &mut Endpoint, to: &mut Endpoint, now: Instant) {
    to.on_packets(std::iter::from_fn(|| from.poll_packet(now)), now);
    to.on_timeout(now);
}

/// Cost of the two calls alone, without addresses, wire or hash.
fn calls() {
    let config = Arc::new(Config {
        congestion: CongestionControl::Fixed(1 << 20),
        receive_buffer: 4 << 20,
        receive_buffer_max: 0,
        ..Config::default()
    });
    let (now, pool) = (Instant::now(), Pool::default());
    let clock = Clock {
        epoch: now,
        offset: 0,
    };
    let mut client = Connection::connect(
        Arc::clone(&config),
        pool.clone(),
        SeqNum::new(1),
        clock,
        now,
    );
    let syn = client.poll_segment(now).unwrap();
    let mut server = Connection::accept(config, pool, SeqNum::new(9), clock, &syn, now);
    client.on_segment(server.poll_segment(now).unwrap(), now);
    server.on_segment(client.poll_segment(now).unwrap(), now);
    let piece = Piece::from(vec![1; 65_160]);
    let mut spent = [Duration::ZERO; 4];
    let mut counts = [0u32; 4];
    let mut timed = |which: usize, call: &mut dyn FnMut() -> u32| {
        let begun = Instant::now();
        counts[which] += call();
        spent[which] += begun.elapsed();
    };
    for _ in 0..20_000 {
        for _ in 0..8 {
            let _ = client.write_piece(piece.clone());
        }
        let mut data: Vec<Segment> = Vec::with_capacity(16);
        timed(0, &mut || {
            data.extend(std::iter::from_fn(|| client.poll_segment(now)));
            data.len() as u32
        });
        let mut acks: Vec<Segment> = Vec::with_capacity(16);
        let units = data.len() as u32;
        timed(1, &mut || {
            data.drain(..)
                .for_each(|segment| server.on_segment(segment, now));
            units
        });
        while server.read_piece(usize::MAX, now).is_ok() {}
        timed(2, &mut || {
            acks.extend(std::iter::from_fn(|| server.poll_segment(now)));
            acks.len() as u32
        });
        let units = acks.len() as u32;
        timed(3, &mut || {
            acks.drain(..)
                .for_each(|segment| client.on_segment(segment, now));
            units
        });
    }
    for (name, n) in [
        ("poll_segment, data", 0),
        ("on_segment, data", 1),
        ("poll_segment, ACK of 8", 2),
        ("on_segment, ACK of 8", 3),
    ] {
        println!(
            "{:>12.0} ns {name}",
            spent[n].as_nanos() as f64 / f64::from(counts[n].max(1))
        );
    }
}

/// Memory of idle established connections, and the cost of their endpoint.
fn idle(count: u32) {
    let config = Config::default();
    let mut now = Instant::now();
    let mut server = Endpoint::new(
        config.clone(),
        Pool::default(),
        [1; 16],
        Checksum::Partial,
        now,
    );
    server.listen(80, 16, config).unwrap();
    let before = resident_bytes();
    for n in 0..count {
        open(&mut server, n, now);
        if n % 1000 == 999 {
            // Connections opened earlier become dormant.
            for _ in 0..2 {
                now += Duration::from_secs(2);
                server.on_timeout(now);
            }
        }
    }
    let each = (resident_bytes() - before) / u64::from(count);
    println!(
        "{count:>12} idle connections, {each} bytes each, {} on size_of",
        size_of::<Connection>()
    );
    assert_eq!(server.connections(), count as usize);
    let begun = Instant::now();
    for _ in 0..1000 {
        server.on_timeout(now);
        black_box(server.poll_packet(now));
        black_box(server.next_timeout());
    }
    println!(
        "{:>12.0} ns per turn with all of them idle",
        begun.elapsed().as_nanos() as f64 / 1000.0
    );
}

/// Makes a client's three segments by hand, because clients of our own would double the memory.
fn open(server: &mut Endpoint, n: u32, now: Instant) {
    use tcpcost_tcp::wire::{Flags, FourTuple};
    let local = std::net::SocketAddr::from((
        [10, 1, (n >> 24) as u8, (n >> 16) as u8],
        1024 + (n & 0x7fff) as u16,
    ));
    let local = if n & 0x8000 == 0 {
        local
    } else {
        (
            std::net::Ipv4Addr::from(u32::from_be_bytes([
                10,
                2,
                (n >> 24) as u8,
                (n >> 16) as u8,
            ])),
            local.port(),
        )
            .into()
    };
    let path = FourTuple {
        local,
        remote: "10.0.0.2:80".parse().unwrap(),
    };
    let syn = Segment {
        flags: Flags::SYN,
        window: 65535,
        ..Segment::default()
    };
    server.on_packet(Packet::emit(&path, syn, Checksum::Partial), now);
    let (_, answer) = server.poll_packet(now).unwrap().parse().unwrap();
    let ack = Segment {
        seq: SeqNum::new(1),
        ack: answer.seq + 1,
        flags: Flags::ACK,
        window: 65535,
        ..Segment::default()
    };
    server.on_packet(Packet::emit(&path, ack, Checksum::Partial), now);
    server.accept(80).unwrap();
    while server.poll_packet(now).is_some()
        || server.poll_ready().is_some()
        || server.poll_acceptable().is_some()
    {}
}

fn resident_bytes() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm
        .split_whitespace()
        .nth(1)
        .and_then(|pages| pages.parse::<u64>().ok())
        .unwrap_or(0)
        * 4096
}

fn best_of(mut run: impl FnMut()) -> Duration {
    let once = || {
        let begun = cpu();
        run();
        cpu() - begun
    };
    std::iter::repeat_with(once)
        .take(RUNS)
        .min()
        .unwrap_or_default()
}

fn cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

fn report(name: &str, took: Duration, bytes: usize) {
    let us_per_kib = took.as_secs_f64() * 1e6 / (bytes as f64 / 1024.0);
    let gbit_per_s = bytes as f64 * 8.0 / took.as_secs_f64() / 1e9;
    println!("{us_per_kib:>12.4} us/KiB {gbit_per_s:>8.1} Gbit/s  {name}");
}
