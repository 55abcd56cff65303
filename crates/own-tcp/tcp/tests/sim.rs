//! Tests of two endpoints over an impaired link in virtual time: no byte is lost, duplicated or
//! changed. A table shows speed and cost.

mod common;

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use common::{Host, Wire, ms, pattern};
use tcpcost_link::{Impaired, Impairment, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{
    AckPolicy, Config, CongestionControl, ConnId, Counters, Endpoint, Pool, ReadError, Segmentation,
};

type End = Host<Impaired<memory::Memory<Wire>, Wire>>;

/// One run: impairments of the wire, settings of the ends, and number of bytes.
#[derive(Clone)]
struct Scene {
    to_server: Impairment,
    to_client: Impairment,
    client: Config,
    server: Config,
    bytes: u64,
    seed: u64,
}

struct Outcome {
    took: Duration,
    sender: Counters,
    receiver: Counters,
}

impl Scene {
    fn run(&self) -> Outcome {
        let (a, b) = memory::pair(1 << 20);
        let endpoint = |config: &Config, seed| {
            Endpoint::new(
                config.clone(),
                Pool::default(),
                [seed; 16],
                Checksum::Complete,
                ms(0),
            )
        };
        let mut client: End = Host::new(
            endpoint(&self.client, 1),
            Impaired::new(a, self.to_server, Impairment::default(), self.seed),
        );
        let mut server: End = Host::new(
            endpoint(&self.server, 2),
            Impaired::new(b, self.to_client, Impairment::default(), self.seed + 1),
        );
        server.endpoint.listen(80, 10, self.server.clone()).unwrap();
        let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let id = client
            .endpoint
            .connect(local, "10.0.0.2:80".parse().unwrap(), ms(0))
            .unwrap();
        Transfer {
            client,
            server,
            id,
            accepted: None,
            now: ms(0),
            written: 0,
            read: 0,
        }
        .run(self.bytes)
    }
}

struct Transfer {
    client: End,
    server: End,
    id: ConnId,
    accepted: Option<ConnId>,
    now: Instant,
    written: u64,
    read: u64,
}

impl Transfer {
    fn run(mut self, bytes: u64) -> Outcome {
        let mut finished = false;
        while !finished {
            self.write(bytes);
            finished = self.read();
            self.client.transmit(self.now);
            self.server.transmit(self.now);
            let next = [self.client.next_event(), self.server.next_event()]
                .into_iter()
                .flatten()
                .min();
            if !finished {
                let next = next.unwrap_or_else(|| {
                    let (id, accepted) = (self.id, self.accepted);
                    let server = accepted.and_then(|id| self.server.endpoint.connection(id));
                    panic!(
                        "nothing will ever happen again: {:?} and {server:?}",
                        self.client.endpoint.connection(id)
                    )
                });
                self.now = self.now.max(next);
            }
            assert!(
                self.now < ms(10_000_000),
                "it stalls at {} of {bytes}",
                self.read
            );
            // Frames that are due leave the wire first.
            self.client.transmit(self.now);
            self.server.transmit(self.now);
            self.client.receive(self.now);
            self.server.receive(self.now);
        }
        assert_eq!(self.read, bytes, "every byte once");
        let sender = *self.client.endpoint.connection(self.id).unwrap().counters();
        let accepted = self.accepted.unwrap();
        let receiver = *self
            .server
            .endpoint
            .connection(accepted)
            .unwrap()
            .counters();
        assert_eq!(receiver.payload_bytes_received, bytes);
        let took = self.now - ms(0);
        self.close(accepted);
        Outcome {
            took,
            sender,
            receiver,
        }
    }

    fn write(&mut self, bytes: u64) {
        let mut buffer = [0; 1 << 14];
        let (mut written, total) = (self.written, bytes);
        self.client.endpoint.apply(self.id, |connection| {
            while written < total {
                let len = buffer.len().min((total - written) as usize);
                pattern(written, &mut buffer[..len]);
                match connection.write(&buffer[..len]) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => written += n as u64,
                }
            }
            if written == total {
                connection.close();
            }
        });
        self.written = written;
    }

    /// Reads and compares what has arrived. True at the end of the stream.
    fn read(&mut self) -> bool {
        if self.accepted.is_none() {
            self.accepted = self.server.endpoint.accept(80);
        }
        let Some(id) = self.accepted else {
            return false;
        };
        let (now, mut at) = (self.now, self.read);
        let finished = self.server.endpoint.apply(id, |connection| {
            let (mut buffer, mut expected) = ([0; 1 << 14], [0; 1 << 14]);
            loop {
                match connection.read(&mut buffer, now) {
                    Ok(n) => {
                        pattern(at, &mut expected[..n]);
                        assert!(
                            buffer[..n] == expected[..n],
                            "bytes {at}.. are as they were written"
                        );
                        at += n as u64;
                    }
                    Err(ReadError::Empty) => return false,
                    Err(ReadError::Finished) => return true,
                    Err(error) => panic!("{error} at {at}"),
                }
            }
        });
        self.read = at;
        finished.unwrap()
    }

    /// Closes both ends, which must be removed whatever the wire does.
    fn close(mut self, accepted: ConnId) {
        self.server.endpoint.release(accepted, self.now);
        self.client.endpoint.release(self.id, self.now);
        for _ in 0..100_000 {
            self.client.transmit(self.now);
            self.server.transmit(self.now);
            let next = [self.client.next_event(), self.server.next_event()]
                .into_iter()
                .flatten()
                .min();
            let Some(next) = next else { break };
            self.now = self.now.max(next);
            self.client.transmit(self.now);
            self.server.transmit(self.now);
            self.client.receive(self.now);
            self.server.receive(self.now);
        }
        for end in [&self.client, &self.server] {
            assert_eq!(
                (end.endpoint.connections(), end.endpoint.time_waits()),
                (0, 0)
            );
        }
    }
}

fn segments_only() -> Config {
    Config {
        segmentation: Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        },
        ..Config::default()
    }
}

fn scene() -> Scene {
    let delay = Impairment {
        delay: Duration::from_millis(10),
        rate_bits_per_s: Some(200_000_000),
        queue_bytes: Some(1_000_000),
        ..Impairment::default()
    };
    Scene {
        to_server: delay,
        to_client: delay,
        client: segments_only(),
        server: segments_only(),
        bytes: 1_000_000,
        seed: 1,
    }
}

#[test]
fn bytes_survive_every_impairment() {
    let kinds = [
        Impairment {
            loss: 0.02,
            ..Impairment::default()
        },
        Impairment {
            loss: 0.2,
            ..Impairment::default()
        },
        Impairment {
            burst: 0.01,
            burst_goes_on: 0.8,
            ..Impairment::default()
        },
        Impairment {
            reorder: 0.1,
            reorder_delay: Duration::from_millis(7),
            ..Impairment::default()
        },
        Impairment {
            duplicate: 0.2,
            ..Impairment::default()
        },
        Impairment {
            corrupt: 0.05,
            ..Impairment::default()
        },
        Impairment {
            rate_bits_per_s: Some(20_000_000),
            queue_bytes: Some(30_000),
            ..Impairment::default()
        },
        Impairment {
            loss: 0.03,
            duplicate: 0.05,
            corrupt: 0.02,
            reorder: 0.05,
            reorder_delay: Duration::from_millis(15),
            jitter: Duration::from_millis(3),
            ..Impairment::default()
        },
    ];
    for (seed, kind) in kinds.into_iter().enumerate() {
        for window in [4_000, 60_000, 4 << 20] {
            for sack in [true, false] {
                for supers in [false, true] {
                    let impairment = Impairment {
                        delay: Duration::from_millis(10),
                        ..kind
                    };
                    let config = if supers {
                        Config::default()
                    } else {
                        segments_only()
                    };
                    let client = Config { sack, ..config };
                    let server = Config {
                        receive_buffer: window,
                        receive_buffer_max: 0,
                        ..client.clone()
                    };
                    let bytes = if window < 10_000 { 60_000 } else { 300_000 };
                    Scene {
                        to_server: impairment,
                        to_client: impairment,
                        client,
                        server,
                        bytes,
                        seed: seed as u64,
                    }
                    .run();
                }
            }
        }
    }
}

#[test]
fn bytes_survive_fifty_seeds_of_a_bad_wire() {
    for seed in 0..50 {
        let impairment = Impairment {
            delay: Duration::from_millis(seed % 7 * 5),
            loss: 0.05,
            duplicate: 0.05,
            reorder: 0.1,
            reorder_delay: Duration::from_millis(seed % 11),
            corrupt: 0.01,
            ..Impairment::default()
        };
        Scene {
            to_server: impairment,
            to_client: impairment,
            seed,
            bytes: 150_000,
            ..scene()
        }
        .run();
    }
}

/// Table of goodput in Mbit/s, wire segments, pure ACKs, retransmissions and timeouts, by loss,
/// congestion control and ACK policy, then by other impairments: 4 MB over 200 Mbit/s and 20 ms.
/// After an intended change, update it with `UPDATE=1 cargo test` and review the difference.
#[test]
fn the_table_is_as_it_was() {
    let controls = [
        ("newreno", CongestionControl::NewReno),
        ("cubic", CongestionControl::Cubic),
        ("fixed", CongestionControl::Fixed(500_000)),
    ];
    let mut table = String::from(HEAD);
    for loss in [0.0, 0.001, 0.01, 0.05] {
        for control in controls {
            for segments in [2, 8, 32] {
                let wire = Impairment {
                    loss,
                    ..scene().to_server
                };
                row(&mut table, &format!("loss {loss}"), wire, control, segments);
            }
        }
    }
    let clean = scene().to_server;
    let late = |reorder, ms| Impairment {
        reorder,
        reorder_delay: Duration::from_millis(ms),
        ..clean
    };
    let shallow = |bytes| Impairment {
        rate_bits_per_s: Some(50_000_000),
        queue_bytes: Some(bytes),
        ..clean
    };
    for (name, wire) in [
        ("1% 1 ms late", late(0.01, 1)),
        ("1% 15 ms late", late(0.01, 15)),
        ("10% 3 ms late", late(0.1, 3)),
        (
            "10% twice",
            Impairment {
                duplicate: 0.1,
                ..clean
            },
        ),
        (
            "bursts of 5",
            Impairment {
                burst: 0.002,
                burst_goes_on: 0.8,
                ..clean
            },
        ),
        ("queue 30 kB", shallow(30_000)),
        ("queue 1 MB", shallow(1_000_000)),
    ] {
        for control in controls {
            row(&mut table, name, wire, control, 2);
        }
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/sim.snap");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(path, &table).unwrap();
    }
    let expected = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        table == expected,
        "the table changed; look at it, then UPDATE=1:\n{table}"
    );
}

const HEAD: &str =
    "wire           control  ACK every  mbit_per_s  segments  acks  retransmitted  timeouts\n";

fn row(
    table: &mut String,
    name: &str,
    wire: Impairment,
    control: (&str, CongestionControl),
    segments: u32,
) {
    let ack = AckPolicy::Every {
        segments,
        delay_max: Duration::from_millis(40),
    };
    let base = scene();
    let outcome = Scene {
        to_server: wire,
        client: Config {
            congestion: control.1,
            ..base.client.clone()
        },
        server: Config {
            ack,
            ..base.server.clone()
        },
        bytes: 4_000_000,
        seed: 42,
        ..base
    }
    .run();
    let mbit = 4_000_000.0 * 8.0 / outcome.took.as_secs_f64() / 1e6;
    let (sender, receiver) = (outcome.sender, outcome.receiver);
    writeln!(
        table,
        "{name:<14} {:<8} {segments:>9} {mbit:>11.1} {:>9} {:>5} {:>14} {:>9}",
        control.0,
        sender.segments_sent,
        receiver.pure_acks_sent,
        sender.segments_retransmitted,
        sender.timeouts,
    )
    .unwrap();
}

/// A receiver that waits for its n-th segment and a sender that waits for room must not wait for
/// each other, whatever the window and the size of super-segments (Jones's anomaly of 2005).
#[test]
fn no_bulk_transfer_needs_the_delay_of_an_ack() {
    for segments in [1, 2, 8, 16, 64] {
        for window in [20_000, 65_535, 300_000] {
            for supers in [0, 16_000, 65_160] {
                for window_divisor in [None, Some(3)] {
                    let base = scene();
                    let segmentation = Segmentation {
                        super_segment_bytes_max: supers,
                        window_divisor,
                        ..Segmentation::default()
                    };
                    let congestion = CongestionControl::Fixed(1 << 20);
                    let ack = AckPolicy::Every {
                        segments,
                        delay_max: Duration::from_millis(400),
                    };
                    let server = Config {
                        ack,
                        receive_buffer: window,
                        receive_buffer_max: 0,
                        ..base.server.clone()
                    };
                    let client = Config {
                        segmentation,
                        congestion,
                        ..base.client.clone()
                    };
                    let outcome = Scene {
                        client,
                        server,
                        bytes: 500_000,
                        ..base
                    }
                    .run();
                    let delayed = outcome.receiver.delayed_acks_sent;
                    assert!(
                        delayed == 0 && outcome.sender.timeouts == 0,
                        "{delayed} delayed: ACK every {segments}, window {window}, super-segments {supers}, divisor {window_divisor:?}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_run_is_the_same_each_time() {
    let run = || {
        let outcome = Scene {
            to_server: Impairment {
                loss: 0.05,
                ..scene().to_server
            },
            ..scene()
        }
        .run();
        (outcome.took, outcome.sender, outcome.receiver)
    };
    assert_eq!(run(), run());
}
