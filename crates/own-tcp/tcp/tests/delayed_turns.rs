//! Two endpoints in virtual time that get the CPU late, so that packets which should arrive
//! separately arrive together. The policy `exactly` stays exact, and no ACK of the default policy
//! covers more than senders tolerate.

mod common;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Random, Slabs, Wire, ms};
use tcpcost_link::{Device, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{AckPolicy, Config, ConnId, Counters, Endpoint, Pool};

/// Payload of a full-sized segment.
const FULL: u64 = 1448;
/// Segments per ACK under `exactly`.
const SEGMENTS: u64 = 16;
/// Limit of segments that an ACK of `delayed` covers (docs/policies.md).
const DISTANCE_MAX: u64 = 45;
const DELAY: Duration = Duration::from_millis(40);

/// One end, which receives a batch of packets in each turn.
struct Side {
    endpoint: Endpoint,
    device: memory::Memory<Wire>,
}

impl Side {
    fn new(device: memory::Memory<Wire>, config: &Config, seed: u8) -> Self {
        let (pool, secret) = (Pool::default(), [seed; 16]);
        let endpoint = Endpoint::new(config.clone(), pool, secret, Checksum::Partial, ms(0));
        Self { endpoint, device }
    }

    fn transmit(&mut self, now: Instant) {
        let packets = std::iter::from_fn(|| self.endpoint.poll_packet(now).map(Wire));
        let mut out: VecDeque<Wire> = packets.collect();
        self.device.send(&mut out, now).unwrap();
        assert!(out.is_empty(), "the device holds all");
    }

    fn receive(&mut self, now: Instant) {
        let mut arrived = VecDeque::new();
        let mut source = Slabs(self.endpoint.pool().clone());
        self.device
            .receive(&mut source, &mut arrived, 64, now)
            .unwrap();
        let packets = arrived.into_iter().map(|Wire(packet)| packet);
        self.endpoint.on_packets(packets, now);
        self.endpoint.on_timeout(now);
    }

    fn counters(&self, id: ConnId) -> Counters {
        *self.endpoint.connection(id).unwrap().counters()
    }
}

/// Runs a client that always has data to send and a server that reads. One turn in a hundred is
/// late by up to `late_us`. An ACK under `ack` covers at most `covered_max`. Returns the counters
/// of both.
fn run(ack: AckPolicy, covered_max: u64, seed: u64, late_us: usize) -> (Counters, Counters) {
    let config = Config {
        ack,
        // Whole segments, so that a tail loss probe finds no unsent data.
        send_buffer: 700 * FULL as u32,
        receive_buffer: 4 << 20,
        ..Config::default()
    };
    let (near, far) = memory::pair(1 << 16);
    let (mut client, mut server) = (Side::new(near, &config, 1), Side::new(far, &config, 2));
    server.endpoint.listen(80, 10, config.clone()).unwrap();
    let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
    let remote = "10.0.0.2:80".parse().unwrap();
    let to = client.endpoint.connect(local, remote, ms(0)).unwrap();
    let mut from = None;
    let (mut random, mut due) = (Random::new(seed), [ms(0); 2]);
    let mut buffer = vec![0; 1 << 20];
    for _ in 0..10_000 {
        let at = usize::from(due[1] < due[0]);
        let now = due[at];
        let late = if random.below(100) == 0 { late_us } else { 300 };
        due[at] = now + Duration::from_micros(1 + random.below(late) as u64);
        let side = if at == 0 { &mut client } else { &mut server };
        side.transmit(now);
        side.receive(now);
        if at == 0 {
            side.endpoint
                .apply(to, |connection| connection.write(&buffer));
            client.transmit(now);
            continue;
        }
        from = from.or_else(|| server.endpoint.accept(80));
        let Some(id) = from else { continue };
        server
            .endpoint
            .apply(id, |connection| connection.read(&mut buffer, now));
        server.transmit(now);
        let counters = server.counters(id);
        let steps = counters.payload_bytes_received / (covered_max * FULL);
        let acks = counters.pure_acks_sent;
        assert!(acks >= steps, "{acks} ACKs where {steps} are due");
    }
    (client.counters(to), server.counters(from.unwrap()))
}

#[test]
fn exactly_is_exact_however_late_the_turns_come() {
    let exactly = AckPolicy::Exactly {
        segments: SEGMENTS as u32,
        delay_max: DELAY,
    };
    let mut again = 0;
    for seed in 0..4 {
        for late_us in [1000, 20_000, 100_000, 500_000] {
            let (client, server) = run(exactly, SEGMENTS, seed, late_us);
            let steps = server.payload_bytes_received / (SEGMENTS * FULL);
            let aside = server.delayed_acks_sent + u64::from(server.duplicates_received) + 4;
            let acks = server.pure_acks_sent;
            assert!(acks <= steps + aside, "{acks} ACKs where {steps} are due");
            // Nothing was lost: a report of a duplicate must not look like a gap.
            assert_eq!(client.recoveries, 0, "{client:?}");
            again += client.segments_retransmitted;
        }
    }
    assert!(again > 20, "too few came twice: {again}");
}

#[test]
fn no_ack_covers_more_than_senders_bear_however_late_the_turns_come() {
    let delayed = AckPolicy::Delayed { delay_max: DELAY };
    for late_us in [1000, 20_000, 100_000] {
        let (client, server) = run(delayed, DISTANCE_MAX, 1, late_us);
        let acks = server.pure_acks_sent;
        let segments = server.payload_bytes_received / FULL;
        assert!(acks < segments / 20, "{acks} ACKs of {segments} segments");
        assert_eq!(client.recoveries, 0, "{client:?}");
    }
}
