//! Test of a relay between two endpoints in virtual time: forwarded data is never lost, duplicated
//! or reordered, whatever the wires do and however little room there is.

mod common;

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use common::{Host, Wire, ms, pattern};
use proptest::prelude::*;
use tcpcost_link::{Impaired, Impairment, Routed, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{
    AckPolicy, Config, ConnId, Connection, Endpoint, Pool, ReadError, Segmentation, Stopped,
    WriteError,
};

type Bad = Impaired<memory::Memory<Wire>, Wire>;

/// Impairments of the wires, settings of the hosts, and data to send.
#[derive(Clone, Debug)]
struct Scene {
    wire: Impairment,
    /// Settings of client, relay and server.
    configs: [Config; 3],
    /// Bytes to send from the client and from the server.
    bytes: [u64; 2],
    /// Limit of bytes that the relay moves at a time.
    most: usize,
    /// True if the relay reads into a buffer and writes from it.
    copies: bool,
    /// Limit of bytes that an end reads at a time.
    reads: usize,
    /// Number of bytes after which the client aborts; `None` if it does not.
    breaks_off_at: Option<u64>,
    seed: u64,
}

/// Progress of one end of the stream.
struct Speaker {
    id: ConnId,
    to_write: u64,
    written: u64,
    read: u64,
    /// Error of the last read, which ended the reading.
    ended: Option<ReadError>,
}

impl Speaker {
    fn new(id: ConnId, to_write: u64) -> Self {
        Self {
            id,
            to_write,
            written: 0,
            read: 0,
            ended: None,
        }
    }

    /// Writes as much as fits, then closes after the last byte. Reads at most `reads` and compares
    /// the bytes with the other end's stream, which begins at `first`.
    fn turn(
        &mut self,
        connection: &mut Connection,
        own: u64,
        first: u64,
        reads: usize,
        now: Instant,
    ) {
        let mut buffer = vec![0; reads.max(4096)];
        while self.written < self.to_write {
            let len = buffer.len().min((self.to_write - self.written) as usize);
            pattern(own + self.written, &mut buffer[..len]);
            match connection.write(&buffer[..len]) {
                Ok(0) | Err(_) => break,
                Ok(n) => self.written += n as u64,
            }
        }
        if self.written == self.to_write {
            connection.close();
        }
        match connection.read(&mut buffer[..reads], now) {
            Ok(n) => {
                let mut expected = vec![0; n];
                pattern(first + self.read, &mut expected);
                assert!(
                    buffer[..n] == expected,
                    "bytes {}.. are as written",
                    self.read
                );
                self.read += n as u64;
            }
            Err(ReadError::Empty) => {}
            Err(error) => self.ended = Some(error),
        }
    }
}

/// Start of the server's stream in the pattern. The client's starts at 0, so that the two differ.
const BACK: u64 = 1 << 20;

struct Relayed {
    client: Host<Bad>,
    relay: Host<Routed<Bad, Wire>>,
    server: Host<Bad>,
    now: Instant,
    /// Bytes that the relay had to copy.
    copied: usize,
    /// Acknowledgements without data from the relay to the client.
    acks: u64,
}

impl Scene {
    /// Runs until nothing more happens. Returns both ends, and the relay with its counts.
    fn run(&self) -> ([Speaker; 2], Relayed) {
        let ((a, a_far), (b, b_far)) = (memory::pair(1 << 16), memory::pair(1 << 16));
        let bad = |device, number| {
            Impaired::new(
                device,
                self.wire,
                Impairment::default(),
                self.seed * 4 + number,
            )
        };
        let endpoint = |index: usize| {
            let config = self.configs[index].clone();
            Endpoint::new(
                config,
                Pool::default(),
                [index as u8; 16],
                Checksum::Complete,
                ms(0),
            )
        };
        let network = |number| (IpAddr::from([10, 0, number, 2]), 24);
        let routed =
            Routed::new(vec![(bad(a_far, 1), network(0)), (bad(b, 2), network(1))]).unwrap();
        let mut all = Relayed {
            client: Host::new(endpoint(0), bad(a, 0)),
            relay: Host::new(endpoint(1), routed),
            server: Host::new(endpoint(2), bad(b_far, 3)),
            now: ms(0),
            copied: 0,
            acks: 0,
        };
        let listen =
            |host: &mut Endpoint, config: &Config| host.listen(80, 10, config.clone()).unwrap();
        listen(&mut all.relay.endpoint, &self.configs[1]);
        listen(&mut all.server.endpoint, &self.configs[2]);
        let speakers = all.exchange(self);
        (speakers, all)
    }
}

fn connect(endpoint: &mut Endpoint, local: &str, remote: &str, now: Instant) -> ConnId {
    let address = |text: &str| text.parse::<SocketAddr>().unwrap();
    endpoint
        .connect(address(local), address(remote), now)
        .unwrap()
}

/// Connections of an exchange, as far as they are open.
struct Exchange {
    client: Speaker,
    server: Option<Speaker>,
    /// Connections of the relay: from the client, and to the server.
    pair: Option<[ConnId; 2]>,
    /// True if the client aborted.
    broken: bool,
}

impl Exchange {
    fn is_over(&self) -> bool {
        let has_ended = |speaker: &Speaker| speaker.ended.is_some();
        self.server.as_ref().is_some_and(has_ended) && (has_ended(&self.client) || self.broken)
    }
}

impl Relayed {
    fn exchange(&mut self, scene: &Scene) -> [Speaker; 2] {
        let id = connect(
            &mut self.client.endpoint,
            "10.0.0.1:0",
            "10.0.0.2:80",
            self.now,
        );
        let mut exchange = Exchange {
            client: Speaker::new(id, scene.bytes[0]),
            server: None,
            pair: None,
            broken: false,
        };
        loop {
            self.accept(&mut exchange, scene);
            self.turn(&mut exchange, scene);
            if let Some([a, b]) = exchange.pair {
                self.forward(a, b, scene);
                self.forward(b, a, scene);
            }
            if self.carry() || self.has_unread(&exchange) {
                continue;
            }
            if exchange.is_over() {
                self.acks = self.relay.endpoint.counters().pure_acks_sent;
                return [exchange.client, exchange.server.expect("it has ended")];
            }
            self.wait(&exchange);
        }
    }

    /// Accepts what waits at the relay and the server.
    fn accept(&mut self, exchange: &mut Exchange, scene: &Scene) {
        if exchange.pair.is_none() {
            exchange.pair = self.relay.endpoint.accept(80).map(|from| {
                let to = connect(
                    &mut self.relay.endpoint,
                    "10.0.1.1:0",
                    "10.0.1.2:80",
                    self.now,
                );
                [from, to]
            });
        }
        if exchange.server.is_none() {
            let accepted = self.server.endpoint.accept(80);
            exchange.server = accepted.map(|id| Speaker::new(id, scene.bytes[1]));
        }
    }

    /// Lets both ends write and read, or the client abort.
    fn turn(&mut self, exchange: &mut Exchange, scene: &Scene) {
        let (now, reads) = (self.now, scene.reads);
        let client = &mut exchange.client;
        let is_time = scene.breaks_off_at.is_some_and(|at| client.written >= at);
        let endpoint = &mut self.client.endpoint;
        let id = client.id;
        if is_time && exchange.server.is_some() && !exchange.broken {
            exchange.broken = true;
            endpoint.apply(id, Connection::abort);
            endpoint.release(id, now);
        } else {
            endpoint.apply(id, |connection| {
                client.turn(connection, 0, BACK, reads, now)
            });
        }
        if let Some(server) = &mut exchange.server {
            let id = server.id;
            let endpoint = &mut self.server.endpoint;
            endpoint.apply(id, |connection| {
                server.turn(connection, BACK, 0, reads, now)
            });
        }
    }

    /// Carries packets between the hosts. True if any arrived.
    fn carry(&mut self) -> bool {
        for _ in 0..2 {
            self.client.transmit(self.now);
            self.relay.transmit(self.now);
            self.server.transmit(self.now);
        }
        self.client.receive(self.now) | self.relay.receive(self.now) | self.server.receive(self.now)
    }

    fn has_unread(&self, exchange: &Exchange) -> bool {
        let unread = |speaker: &Speaker, host: &Host<Bad>| {
            let connection = host.endpoint.connection(speaker.id);
            connection.is_some_and(|connection| connection.readable() > 0)
        };
        let server = exchange.server.as_ref();
        unread(&exchange.client, &self.client)
            || server.is_some_and(|server| unread(server, &self.server))
    }

    /// Advances the time to the next event, and lets timers expire.
    fn wait(&mut self, exchange: &Exchange) {
        let client = &exchange.client;
        let hosts = [
            self.client.next_event(),
            self.relay.next_event(),
            self.server.next_event(),
        ];
        let next = hosts.into_iter().flatten().min();
        let next = next.unwrap_or_else(|| {
            let state =
                |host: &Endpoint, id| host.connection(id).map(|one| (one.state(), one.ended()));
            let relay = exchange
                .pair
                .map(|pair| pair.map(|id| state(&self.relay.endpoint, id)));
            let server = exchange.server.as_ref();
            let server = server.map(|one| (state(&self.server.endpoint, one.id), one.ended));
            let client = (state(&self.client.endpoint, client.id), client.ended);
            panic!("nothing will ever happen again: {client:?}, {relay:?}, {server:?}")
        });
        self.now = self.now.max(next);
        assert!(
            self.now < ms(100_000_000),
            "it stalls at {} of {}",
            client.written,
            client.to_write
        );
        for host in [&mut self.client, &mut self.server] {
            host.endpoint.on_timeout(self.now);
        }
        self.relay.endpoint.on_timeout(self.now);
    }

    /// Forwards as a relay does, until no more can be moved.
    fn forward(&mut self, from: ConnId, to: ConnId, scene: &Scene) {
        let endpoint = &mut self.relay.endpoint;
        loop {
            let room = endpoint.connection(to).map_or(0, Connection::writable);
            let moved = if scene.copies {
                let mut buffer = vec![0; scene.most.min(1 << 16)];
                endpoint.forward_through(from, to, &mut buffer, self.now)
            } else {
                endpoint.forward(from, to, scene.most, self.now)
            };
            assert!(
                moved.bytes <= room.min(scene.most) && moved.copied <= moved.bytes,
                "{moved:?}"
            );
            self.copied += moved.copied;
            match moved.stopped {
                Stopped::Most if moved.bytes > 0 => continue,
                Stopped::Finished => drop(endpoint.apply(to, Connection::close)),
                // Data sent before the abort goes only as far as it got; no end waits for it here.
                Stopped::SourceEnded(Some(_)) | Stopped::SinkEnded(Some(WriteError::Ended(_))) => {
                    for id in [from, to] {
                        endpoint.apply(id, Connection::abort);
                        endpoint.release(id, self.now);
                    }
                }
                _ => {}
            }
            return;
        }
    }
}

fn config(buffer: u32, window: u32, ack: AckPolicy, supers: bool) -> Config {
    let segmentation = Segmentation {
        super_segment_bytes_max: if supers { 1 << 16 } else { 0 },
        ..Segmentation::default()
    };
    Config {
        send_buffer: buffer,
        receive_buffer: window,
        receive_buffer_max: 0,
        ack,
        segmentation,
        ..Config::default()
    }
}

fn acks() -> impl Strategy<Value = AckPolicy> {
    let delay_max = Duration::from_millis(40);
    prop_oneof![
        Just(Config::default().ack),
        Just(AckPolicy::Every {
            segments: 2,
            delay_max
        }),
        Just(AckPolicy::OnRead {
            segments: 64,
            delay_max
        }),
        Just(AckPolicy::LinuxLike { delay_max }),
    ]
}

fn configs() -> impl Strategy<Value = Config> {
    let bytes = prop_oneof![2_000u32..8_000, 8_000u32..100_000, Just(1u32 << 20)];
    (bytes.clone(), bytes, acks(), any::<bool>())
        .prop_map(|(buffer, window, ack, supers)| config(buffer, window, ack, supers))
}

fn wires() -> impl Strategy<Value = Impairment> {
    let ratio = || prop_oneof![Just(0.0), 0.0..0.08f64];
    (0u64..20, ratio(), ratio(), ratio(), ratio()).prop_map(
        |(delay, loss, duplicate, reorder, corrupt)| Impairment {
            delay: Duration::from_millis(delay),
            loss,
            duplicate,
            reorder,
            reorder_delay: Duration::from_millis(3),
            corrupt,
            ..Impairment::default()
        },
    )
}

fn scenes() -> impl Strategy<Value = Scene> {
    let most = prop_oneof![1usize..3_000, Just(usize::MAX)];
    let bytes = [0u64..120_000, 0u64..120_000];
    (
        wires(),
        [configs(), configs(), configs()],
        bytes,
        (most, any::<bool>()),
        1usize..40_000,
        any::<u32>(),
    )
        .prop_map(
            |(wire, configs, bytes, (most, copies), reads, seed)| Scene {
                wire,
                configs,
                bytes,
                most,
                copies,
                reads: reads.max(200),
                breaks_off_at: None,
                seed: seed.into(),
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn what_is_forwarded_arrives_once_and_in_order_and_so_does_its_end(scene in scenes()) {
        let ([client, server], _) = scene.run();
        prop_assert_eq!([server.read, client.read], scene.bytes);
        prop_assert_eq!([server.ended, client.ended], [Some(ReadError::Finished); 2]);
    }

    #[test]
    // Without losses, because a lost reset is not sent again and a waiting end would then wait for
    // ever.
    fn a_stream_that_broke_off_is_not_taken_for_a_whole_one(scene in scenes(), at in 0.0..1.0f64) {
        let at = (scene.bytes[0] as f64 * at) as u64;
        let scene = Scene { bytes: [scene.bytes[0] + 1, scene.bytes[1]], breaks_off_at: Some(at), wire: Impairment { loss: 0.0, corrupt: 0.0, ..scene.wire }, ..scene };
        let ([client, server], _) = scene.run();
        prop_assert!(server.read <= client.written);
        prop_assert!(server.read < scene.bytes[0] || client.written == scene.bytes[0]);
        if client.written < scene.bytes[0] {
            prop_assert!(matches!(server.ended, Some(ReadError::Ended(_))), "{:?}", server.ended);
        }
    }
}

/// Bulk transfer with super-segments over a perfect wire.
fn bulk(ack: AckPolicy) -> Scene {
    let quick = config(1 << 20, 1 << 20, Config::default().ack, true);
    Scene {
        wire: Impairment {
            delay: Duration::from_millis(1),
            ..Impairment::default()
        },
        configs: [
            quick.clone(),
            Config {
                ack,
                ..quick.clone()
            },
            quick,
        ],
        bytes: [4_000_000, 0],
        most: usize::MAX,
        copies: false,
        reads: 1 << 20,
        breaks_off_at: None,
        seed: 1,
    }
}

#[test]
fn pieces_of_super_segments_are_not_copied() {
    let ([_, server], relayed) = bulk(Config::default().ack).run();
    assert_eq!((server.read, relayed.copied), (4_000_000, 0));
}

#[test]
fn a_forward_is_the_read_that_an_ack_policy_waits_for() {
    let delay_max = Duration::from_millis(40);
    let acks = |ack| bulk(ack).run().1.acks;
    let every_two = acks(AckPolicy::Exactly {
        segments: 2,
        delay_max,
    });
    let on_read = acks(AckPolicy::OnRead {
        segments: 64,
        delay_max,
    });
    assert!(
        10 * on_read < every_two,
        "{on_read} on reads, {every_two} for every second"
    );
}

#[test]
fn no_more_is_moved_than_the_other_has_room_for() {
    let mut scene = bulk(Config::default().ack);
    // The server's receive buffer is small, so the relay's buffers fill, and then the client's.
    scene.configs[1] = config(10_000, 30_000, Config::default().ack, true);
    scene.configs[2] = config(1 << 20, 5_000, Config::default().ack, true);
    scene.bytes[0] = 300_000;
    let ([client, server], _) = scene.run();
    assert_eq!((client.written, server.read), (300_000, 300_000));
}
