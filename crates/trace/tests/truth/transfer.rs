//! Transfer between two ends of our own TCP in virtual time, captured at both.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tcpcost_link::{CapturingDevice, Impaired, Impairment, LaneCounters, memory};
use tcpcost_tcp::wire::Checksum;
use tcpcost_tcp::{Config, ConnId, Counters, Endpoint, Pool, ReadError, Segmentation};
use tcpcost_trace::{Analysis, Connection, Report, Settings, read};

use super::ends::{Host, Wire, ms};

type Wired = Impaired<memory::Memory<Wire>, Wire>;
type End = Host<CapturingDevice<Wired, Vec<u8>>>;

/// Transfer: its data, paths, and settings of both ends.
#[derive(Clone)]
pub struct Scene {
    pub to_server: Impairment,
    pub to_client: Impairment,
    pub client: Config,
    pub server: Config,
    pub bytes: u64,
    /// Interval of the reads.
    pub reads_every: Duration,
    /// Limit of a read, bytes.
    pub read_bytes: usize,
    /// True if a read comes before arrived data are acknowledged, as in a stack that is polled;
    /// false if after that, as by a reader that must be woken.
    pub reads_first: bool,
    pub seed: u64,
}

/// Result at one end: its counters, and the analysis of a capture there.
pub struct Seen {
    pub counted: Counters,
    pub traced: Connection,
    pub report: Report,
    /// Pure ACKs that a read triggered.
    pub acks_by_read: u64,
    /// Counters of the path for the packets that this end sent.
    pub lane: LaneCounters,
}

/// Default scene: 10 ms each way at 200 Mbit/s, packets of one segment each.
pub fn scene() -> Scene {
    let path = Impairment {
        delay: Duration::from_millis(10),
        rate_bits_per_s: Some(200_000_000),
        ..Impairment::default()
    };
    let config = Config {
        segmentation: Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        },
        ..Config::default()
    };
    Scene {
        to_server: path,
        to_client: path,
        client: config.clone(),
        server: config,
        bytes: 2_000_000,
        reads_every: Duration::ZERO,
        read_bytes: usize::MAX,
        reads_first: true,
        seed: 1,
    }
}

/// All impairments on this path.
pub fn impairments(path: Impairment) -> Vec<(&'static str, Impairment)> {
    vec![
        ("none", path),
        ("loss", Impairment { loss: 0.02, ..path }),
        (
            "bursts",
            Impairment {
                burst: 0.01,
                burst_goes_on: 0.7,
                ..path
            },
        ),
        (
            "reorder",
            Impairment {
                reorder: 0.05,
                reorder_delay: Duration::from_millis(3),
                ..path
            },
        ),
        (
            "duplicate",
            Impairment {
                duplicate: 0.1,
                ..path
            },
        ),
        (
            "corrupt",
            Impairment {
                corrupt: 0.02,
                ..path
            },
        ),
        (
            "jitter",
            Impairment {
                jitter: Duration::from_millis(5),
                ..path
            },
        ),
        (
            "queue",
            Impairment {
                rate_bits_per_s: path.rate_bits_per_s.map(|rate| rate / 10),
                queue_bytes: Some(30_000),
                ..path
            },
        ),
    ]
}

impl Scene {
    /// Runs the transfer. Returns the results of the sender and of the receiver.
    pub fn run(&self) -> [Seen; 2] {
        let (a, b) = memory::pair(1 << 20);
        let end = |config: &Config, near, impairment, seed: u64| -> End {
            let secret = [seed as u8; 16];
            let endpoint = Endpoint::new(
                config.clone(),
                Pool::default(),
                secret,
                Checksum::Complete,
                ms(0),
            );
            let wired = Impaired::new(near, impairment, Impairment::default(), seed);
            let epoch = Duration::from_secs(1_700_000_000);
            Host::new(
                endpoint,
                CapturingDevice::new(wired, Vec::new(), ms(0), epoch).unwrap(),
            )
        };
        let mut client = end(&self.client, a, self.to_server, self.seed);
        let mut server = end(&self.server, b, self.to_client, self.seed + 100);
        server.endpoint.listen(80, 10, self.server.clone()).unwrap();
        let local: SocketAddr = "10.0.0.1:0".parse().unwrap();
        let remote = "10.0.0.2:80".parse().unwrap();
        let id = client.endpoint.connect(local, remote, ms(0)).unwrap();
        let mut transfer = Transfer {
            ends: [client, server],
            id,
            accepted: None,
            now: ms(0),
            next_read: ms(0),
            left: self.bytes,
            read: 0,
            acks_by_read: 0,
        };
        transfer.run(self);
        let ids = [id, transfer.accepted.unwrap()];
        let by_read = transfer.acks_by_read;
        let mut ids = ids.into_iter();
        transfer
            .ends
            .map(|end| Seen::at(end, ids.next().unwrap(), by_read))
    }
}

impl Seen {
    fn at(end: End, id: ConnId, acks_by_read: u64) -> Seen {
        let counted = *end.endpoint.connection(id).unwrap().counters();
        let (wired, capture) = end.device.finish().unwrap();
        let capture = capture.expect("the file is its own");
        let mut analysis = Analysis::new(Settings::default());
        let (reading, outcome) = read(&capture[..], &mut analysis);
        outcome.unwrap();
        let (mut connections, ()) = analysis.finish();
        let report = Report::new("own", &reading, Ok(()), &connections);
        Seen {
            counted,
            traced: connections.remove(0),
            report,
            acks_by_read,
            lane: wired.counters().sent,
        }
    }
}

struct Transfer {
    ends: [End; 2],
    id: ConnId,
    accepted: Option<ConnId>,
    now: Instant,
    next_read: Instant,
    left: u64,
    read: u64,
    acks_by_read: u64,
}

impl Transfer {
    /// Runs until all data are read and acknowledged, so that neither end has anything left to do.
    fn run(&mut self, scene: &Scene) {
        loop {
            self.write();
            if !scene.reads_first {
                self.transmit();
            }
            if self.now >= self.next_read {
                self.read(scene);
            }
            let before = self.acks_sent();
            self.transmit();
            if !scene.reads_first {
                self.acks_by_read += self.acks_sent() - before;
            }
            let ends = self.ends.iter().filter_map(Host::next_event);
            let reads =
                (self.read < scene.bytes && !scene.reads_every.is_zero()).then_some(self.next_read);
            let Some(next) = ends.chain(reads).min() else {
                break;
            };
            self.now = self.now.max(next);
            assert!(self.now < ms(10_000_000), "it stalls at {}", self.read);
            // Frames that are due leave the wire first.
            self.transmit();
            for end in &mut self.ends {
                end.receive(self.now);
            }
        }
        assert_eq!(self.read, scene.bytes);
    }

    fn acks_sent(&self) -> u64 {
        let connection = self
            .accepted
            .and_then(|id| self.ends[1].endpoint.connection(id));
        connection.map_or(0, |connection| connection.counters().pure_acks_sent)
    }

    fn transmit(&mut self) {
        for end in &mut self.ends {
            end.transmit(self.now);
        }
    }

    fn write(&mut self) {
        let left = &mut self.left;
        self.ends[0].endpoint.apply(self.id, |connection| {
            let buffer = [7; 1 << 14];
            while *left > 0 {
                let len = buffer.len().min(*left as usize);
                match connection.write(&buffer[..len]) {
                    Ok(0) | Err(_) => break,
                    Ok(written) => *left -= written as u64,
                }
            }
        });
    }

    fn read(&mut self, scene: &Scene) {
        self.next_read = self.now + scene.reads_every;
        let server = &mut self.ends[1].endpoint;
        self.accepted = self.accepted.or_else(|| server.accept(80));
        let Some(id) = self.accepted else {
            return;
        };
        let (now, read) = (self.now, &mut self.read);
        server.apply(id, |connection| {
            let mut buffer = [0; 1 << 14];
            let mut room = scene.read_bytes;
            while room > 0 {
                let len = buffer.len().min(room);
                match connection.read(&mut buffer[..len], now) {
                    Ok(n) => (*read, room) = (*read + n as u64, room - n),
                    Err(ReadError::Empty) => return,
                    Err(error) => panic!("{error} at {read}"),
                }
            }
        });
    }
}
