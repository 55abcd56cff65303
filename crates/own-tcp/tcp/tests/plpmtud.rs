//! Tests of path MTU probing in virtual time, on paths that drop packets above a size with or
//! without an ICMP error. Every byte arrives, segments become nearly as large as possible, and a
//! lost probe does not change the window.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Random, ms, pattern};
use tcpcost_tcp::wire::{Checksum, Packet, Sum};
use tcpcost_tcp::{
    Config, ConnId, Counters, Endpoint, MtuProbes, MtuProbing, Nagle, Piece, Pool, ReadError,
};

const LATENCY: Duration = Duration::from_millis(10);

/// Path between a client that sends and a server.
#[derive(Clone, Copy, Debug)]
struct Path {
    ipv6: bool,
    /// Largest packet that arrives at the server.
    mtu: usize,
    /// True if a router reports larger packets.
    icmp: bool,
    /// One packet in this many is lost; `None`: none.
    loss: Option<usize>,
    seed: u64,
}

struct Net {
    client: Endpoint,
    server: Endpoint,
    id: ConnId,
    accepted: Option<ConnId>,
    path: Path,
    random: Random,
    wire: VecDeque<(Instant, bool, Packet)>,
    now: Instant,
    written: u64,
    read: u64,
    /// Largest packet that has arrived at the server.
    largest: usize,
}

fn config(probing: MtuProbing) -> Config {
    Config {
        mtu_probing: probing,
        ..Config::default()
    }
}

/// Largest packet on the wire made from one of our packets: the device cuts super-segments.
fn packet_bytes(packet: &Packet) -> usize {
    match usize::from(packet.segment_size) {
        0 => packet.len(),
        size => packet.header.as_ref().len() + size.min(packet.payload.len()),
    }
}

/// ICMP error of a router about a packet larger than `mtu`.
fn too_big(about: &Packet, mtu: usize) -> Packet {
    let mut inner = about.header.as_ref()[..28].to_vec();
    inner[8] -= 1;
    let mtu = u16::try_from(mtu).unwrap().to_be_bytes();
    let mut icmp = [&[3, 4, 0, 0, 0, 0, mtu[0], mtu[1]], &inner[..]].concat();
    let sum = Sum::new().add_bytes(&icmp).finish();
    icmp[2..4].copy_from_slice(&sum.to_be_bytes());
    let length = 20 + icmp.len() as u8;
    let mut ip = [0x45, 0, 0, length, 0, 0, 0x40, 0, 64, 1, 0, 0].to_vec();
    ip.extend([10, 0, 0, 9, 10, 0, 0, 1]);
    let sum = Sum::new().add_bytes(&ip).finish();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    Packet::from_piece(Piece::from([ip, icmp].concat()))
}

impl Net {
    fn new(path: Path, config: Config) -> Self {
        let endpoint = |seed, config: &Config| {
            let pool = Pool::default();
            Endpoint::new(config.clone(), pool, [seed; 16], Checksum::Complete, ms(0))
        };
        let (mut client, mut server) = (endpoint(1, &config), endpoint(2, &config));
        let off = Config {
            mtu_probing: MtuProbing::Off,
            ..config
        };
        server.listen(80, 10, off).unwrap();
        let (local, remote) = match path.ipv6 {
            false => ("10.0.0.1:0", "10.0.0.2:80"),
            true => ("[fd00::1]:0", "[fd00::2]:80"),
        };
        let local: SocketAddr = local.parse().unwrap();
        let id = client
            .connect(local, remote.parse().unwrap(), ms(0))
            .unwrap();
        Self {
            client,
            server,
            id,
            accepted: None,
            path,
            random: Random::new(path.seed),
            wire: VecDeque::new(),
            now: ms(0),
            written: 0,
            read: 0,
            largest: 0,
        }
    }

    fn transmit(&mut self) {
        while let Some(packet) = self.client.poll_packet(self.now) {
            let bytes = packet_bytes(&packet);
            let lost = self
                .path
                .loss
                .is_some_and(|one| self.random.below(one) == 0);
            if bytes > self.path.mtu {
                if self.path.icmp {
                    let said = too_big(&packet, self.path.mtu);
                    self.wire.push_back((self.now + LATENCY, false, said));
                }
            } else if !lost {
                self.largest = self.largest.max(bytes);
                self.wire.push_back((self.now + LATENCY, true, packet));
            }
        }
        while let Some(packet) = self.server.poll_packet(self.now) {
            self.wire.push_back((self.now + LATENCY, false, packet));
        }
    }

    /// Runs until `bytes` more are read.
    fn transfer(&mut self, bytes: u64) {
        let (total, limit) = (self.read + bytes, self.now + Duration::from_secs(3600));
        let mut buffer = [0; 1 << 14];
        while self.read < total {
            assert!(self.now < limit, "stalls at {} of {total}", self.read);
            let mut written = self.written;
            self.client.apply(self.id, |connection| {
                while written < total {
                    let len = buffer.len().min((total - written) as usize);
                    pattern(written, &mut buffer[..len]);
                    match connection.write(&buffer[..len]).unwrap() {
                        0 => break,
                        n => written += n as u64,
                    }
                }
            });
            self.written = written;
            self.transmit();
            let arrival = self.wire.front().map(|(at, ..)| *at);
            let due = [
                arrival,
                self.client.next_timeout(),
                self.server.next_timeout(),
            ];
            let next = due.into_iter().flatten().min();
            self.now = self.now.max(next.expect("something is due"));
            while self.wire.front().is_some_and(|(at, ..)| *at <= self.now) {
                let (_, to_server, packet) = self.wire.pop_front().unwrap();
                let to = if to_server {
                    &mut self.server
                } else {
                    &mut self.client
                };
                to.on_packet(packet, self.now);
            }
            self.client.on_timeout(self.now);
            self.server.on_timeout(self.now);
            self.read();
        }
    }

    fn read(&mut self) {
        self.accepted = self.accepted.or_else(|| self.server.accept(80));
        let Some(id) = self.accepted else { return };
        let (now, mut at) = (self.now, self.read);
        self.server.apply(id, |connection| {
            let (mut buffer, mut expected) = ([0; 1 << 14], [0; 1 << 14]);
            loop {
                match connection.read(&mut buffer, now) {
                    Ok(n) => {
                        pattern(at, &mut expected[..n]);
                        assert!(buffer[..n] == expected[..n], "bytes {at}.. are as written");
                        at += n as u64;
                    }
                    Err(ReadError::Empty) => return,
                    Err(error) => panic!("{error} at {at}"),
                }
            }
        });
        self.read = at;
    }

    fn counters(&self) -> Counters {
        *self.client.connection(self.id).unwrap().counters()
    }

    fn probes(&self) -> MtuProbes {
        self.client
            .connection(self.id)
            .unwrap()
            .info(self.now)
            .mtu_probes
    }

    fn mss(&self) -> u32 {
        self.client.connection(self.id).unwrap().mss()
    }

    /// Payload and options of the largest packets that the path carries.
    fn room(&self) -> u32 {
        self.path.mtu as u32 - if self.path.ipv6 { 60 } else { 40 }
    }
}

fn silent(ipv6: bool, mtu: usize, seed: u64) -> Path {
    Path {
        ipv6,
        mtu,
        icmp: false,
        loss: None,
        seed,
    }
}

/// Both address families, with and without timestamps, SACK and super-segments.
fn variants() -> impl Iterator<Item = (bool, Config)> {
    (0..16).map(|bits| {
        let mut config = config(MtuProbing::BlackHole);
        config.timestamps = bits & 1 == 0;
        config.sack = bits & 2 == 0;
        if bits & 4 == 0 {
            config.segmentation.super_segment_bytes_max = 0;
        }
        (bits & 8 == 0, config)
    })
}

#[test]
fn a_black_hole_is_found_and_the_path_used_as_far_as_it_goes() {
    for (ipv6, config) in variants() {
        for mtu in [1280, 1401, 1479] {
            let case = format!("{ipv6} {mtu} {config:?}");
            let mut net = Net::new(silent(ipv6, mtu, 1), config.clone());
            net.transfer(3_000_000);
            let (counters, options) = (net.counters(), if config.timestamps { 12 } else { 0 });
            assert_eq!(
                (counters.timeouts, net.probes().black_holes),
                (4, 1),
                "{case}"
            );
            let found = net.mss() + options;
            assert!(found <= net.room(), "{case}: {found}");
            assert!(net.room() - found < 8, "{case}: {found}");
            assert!(net.largest <= mtu && net.largest + 8 > mtu, "{case}");
            assert!(net.probes().lost >= 1, "{case}: {counters:?}");
            // The loss of a probe is no sign of congestion.
            assert_eq!(counters.recoveries, 0, "{case}: {counters:?}");
        }
    }
}

#[test]
fn without_probing_nothing_large_gets_through_a_black_hole() {
    let mut net = Net::new(silent(false, 1400, 1), config(MtuProbing::Off));
    let stalls = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| net.transfer(100_000)));
    assert!(stalls.is_err());
    assert_eq!(net.read, 0);
}

#[test]
fn a_path_that_takes_all_costs_one_probe() {
    for (ipv6, config) in variants() {
        let config = Config {
            mtu_probing: MtuProbing::Always,
            ..config
        };
        let mut net = Net::new(silent(ipv6, 1500, 1), config.clone());
        net.transfer(1);
        let options = if config.timestamps { 12 } else { 0 };
        assert_eq!(net.mss(), 1024, "at first");
        net.transfer(1_000_000);
        assert_eq!(net.mss(), net.room() - options);
        let counters = net.counters();
        assert_eq!((net.probes().arrived, net.probes().lost), (1, 0));
        assert_eq!((counters.timeouts, counters.segments_retransmitted), (0, 0));
    }
}

/// A lost probe does not change the congestion window: as much as before is in flight.
#[test]
fn a_lost_probe_is_repaired_without_a_smaller_window() {
    for (ipv6, config) in variants() {
        let case = format!("{ipv6} {config:?}");
        let always = Config {
            mtu_probing: MtuProbing::Always,
            ..config
        };
        let mut net = Net::new(silent(ipv6, 1300, 1), always);
        net.transfer(2_000_000);
        let counters = net.counters();
        assert!(net.probes().lost >= 2, "{case}: {counters:?}");
        assert!(net.probes().arrived >= 1, "{case}: {counters:?}");
        let troubles = (
            counters.timeouts,
            counters.recoveries,
            net.probes().black_holes,
        );
        assert_eq!(troubles, (0, 0, 0), "{case}: {counters:?}");
        let info = net.client.connection(net.id).unwrap().info(net.now);
        assert_eq!(info.ssthresh_bytes, None, "{case}");
        // The data of each lost probe is sent once more, and nothing else.
        let again = counters.payload_bytes_retransmitted;
        assert!(
            again <= u64::from(net.probes().lost) * 1460,
            "{case}: {again}"
        );
    }
}

#[test]
fn bytes_survive_loss_beside_probes() {
    for seed in 0..40 {
        for probing in [MtuProbing::BlackHole, MtuProbing::Always] {
            let (sack, supers) = (seed % 2 == 0, seed % 3 == 0);
            let mut config = Config {
                sack,
                ..config(probing)
            };
            if !supers {
                config.segmentation.super_segment_bytes_max = 0;
            }
            config.segmentation.nagle = Nagle::Off;
            let mtu = 1100 + 9 * seed as usize;
            let path = Path {
                loss: Some(50),
                ..silent(seed % 5 == 0, mtu, seed)
            };
            let mut net = Net::new(path, config);
            net.transfer(400_000);
            assert!(net.largest <= mtu);
        }
    }
}

#[test]
fn a_router_that_speaks_ends_the_search_at_what_it_says() {
    let path = Path {
        icmp: true,
        ..silent(false, 1300, 1)
    };
    let mut net = Net::new(path, config(MtuProbing::Always));
    net.transfer(1_000_000);
    let counters = net.counters();
    assert_eq!(net.mss(), 1300 - 40 - 12);
    // One probe was too big; the next had the size that the router reported.
    assert_eq!((net.probes().lost, net.probes().arrived), (1, 1));
    assert_eq!((counters.timeouts, counters.recoveries), (0, 0));
}

#[test]
fn what_the_user_limits_is_not_searched_above() {
    let mut net = Net::new(silent(false, 1500, 1), config(MtuProbing::Always));
    net.transfer(1);
    net.client
        .apply(net.id, |connection| connection.limit_mss(1200))
        .unwrap();
    net.transfer(1_000_000);
    assert_eq!(net.mss(), 1200 - 12);
    net.client
        .apply(net.id, |connection| connection.limit_mss(900))
        .unwrap();
    net.transfer(1_000_000);
    assert_eq!((net.mss(), net.probes().lost), (900 - 12, 0));
}

/// After ten minutes a larger size is tried again, and a path that became narrower is detected.
#[test]
fn paths_change() {
    let mut net = Net::new(silent(false, 1300, 1), config(MtuProbing::Always));
    net.transfer(3_000_000);
    let narrow = net.mss();
    assert!(narrow <= 1300 - 52, "{narrow}");
    net.path.mtu = 1500;
    net.transfer(1_000_000);
    assert_eq!(net.mss(), narrow, "not yet");
    net.now += Duration::from_secs(601);
    net.transfer(1_000_000);
    assert_eq!(net.mss(), 1460 - 12);
    net.path.mtu = 800;
    net.transfer(10_000_000);
    assert_eq!(net.probes().black_holes, 1);
    let found = net.mss() + 12;
    assert!(found <= 760 && found + 8 > 760, "{found}");
}
