//! Tests of two directly connected connections in virtual time.

mod application;
mod flow;
mod mandatory;
mod pacing;
mod refused;
mod states;
mod urgent;
mod window;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::{
    AckPolicy, Clock, Connection, Ended, Nagle, Pacing, ReadError, Segmentation, State, TailRule,
};
use crate::time::ms;
use crate::wire::{Ecn, Flags, Segment};
use crate::{Config, CongestionControl, KeepAlive, Piece, Pool, SeqNum};

/// Direction of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    ToServer,
    ToClient,
}

/// Client and server with a wire of 10 ms between them.
struct Pair {
    client: Connection,
    server: Option<Connection>,
    server_config: Arc<Config>,
    pool: Pool,
    now: Instant,
    wire: VecDeque<(Instant, Way, Segment)>,
    /// Returns true if a segment is lost; may change the segment.
    meddle: Meddle,
    log: Vec<(u64, Way, Segment)>,
}

type Meddle = Box<dyn FnMut(Way, &mut Segment) -> bool>;

const LATENCY: Duration = Duration::from_millis(10);

impl Pair {
    fn new(client: Config, server: Config) -> Self {
        let pool = Pool::default();
        let clock = Clock {
            epoch: ms(0),
            offset: 7,
        };
        Self {
            client: Connection::connect(
                Arc::new(client),
                pool.clone(),
                SeqNum::new(u32::MAX - 500),
                clock,
                ms(0),
            ),
            server: None,
            server_config: Arc::new(server),
            pool,
            now: ms(0),
            wire: VecDeque::new(),
            meddle: Box::new(|_, _| false),
            log: Vec::new(),
        }
    }

    fn connected(client: Config, server: Config) -> Self {
        let mut pair = Self::new(client, server);
        pair.run_for(100);
        assert_eq!(pair.client.state(), State::Established);
        assert_eq!(pair.server().state(), State::Established);
        pair.log.clear();
        pair
    }

    fn server(&mut self) -> &mut Connection {
        self.server.as_mut().unwrap()
    }

    fn elapsed(&self) -> u64 {
        (self.now - ms(0)).as_millis() as u64
    }

    fn transmit(&mut self) {
        loop {
            let (way, mut segment) = if let Some(segment) = self.client.poll_segment(self.now) {
                (Way::ToServer, segment)
            } else if let Some(segment) = self
                .server
                .as_mut()
                .and_then(|server| server.poll_segment(self.now))
            {
                (Way::ToClient, segment)
            } else {
                break;
            };
            self.log.push((self.elapsed(), way, segment.clone()));
            if !(self.meddle)(way, &mut segment) {
                self.wire.push_back((self.now + LATENCY, way, segment));
            }
        }
    }

    fn deliver(&mut self) {
        while self.wire.front().is_some_and(|(at, _, _)| *at <= self.now) {
            let (_, way, segment) = self.wire.pop_front().unwrap();
            match (way, &mut self.server) {
                (Way::ToClient, _) => self.client.on_segment(segment, self.now),
                (Way::ToServer, Some(server)) => server.on_segment(segment, self.now),
                (Way::ToServer, server) => {
                    if segment.flags == Flags::SYN
                        || segment.flags == Flags::SYN | Flags::ECE | Flags::CWR
                    {
                        let clock = Clock {
                            epoch: ms(0),
                            offset: 99,
                        };
                        let config = Arc::clone(&self.server_config);
                        *server = Some(Connection::accept(
                            config,
                            self.pool.clone(),
                            SeqNum::new(1000),
                            clock,
                            &segment,
                            self.now,
                        ));
                    }
                }
            }
        }
    }

    /// Time of the next event without outside action: an arrival or a timer.
    fn next_event(&self) -> Option<Instant> {
        let wire = self.wire.front().map(|(at, _, _)| *at);
        let server = self.server.as_ref().and_then(Connection::next_timeout);
        [wire, self.client.next_timeout(), server]
            .into_iter()
            .flatten()
            .min()
    }

    fn step(&mut self, until: Instant) -> bool {
        self.transmit();
        let Some(next) = self.next_event().filter(|next| *next <= until) else {
            self.now = until;
            return false;
        };
        self.now = self.now.max(next);
        self.deliver();
        self.client.on_timeout(self.now);
        if let Some(server) = &mut self.server {
            server.on_timeout(self.now);
        }
        true
    }

    fn run_for(&mut self, milliseconds: u64) {
        let until = self.now + Duration::from_millis(milliseconds);
        while self.step(until) {}
        self.transmit();
    }

    /// Writes `bytes` at the client and reads them at the server. Returns the time taken in ms.
    fn transfer(&mut self, bytes: usize) -> u64 {
        let data: Vec<u8> = (0..bytes).map(|n| (n % 251) as u8).collect();
        let begun = self.elapsed();
        let (mut written, mut read) = (0, Vec::<u8>::new());
        let mut buffer = vec![0; 1 << 16];
        while read.len() < bytes {
            written += self.client.write(&data[written..]).unwrap();
            self.step(self.now + Duration::from_secs(1000));
            let now = self.now;
            while let Ok(n) = self.server().read(&mut buffer, now) {
                read.extend(&buffer[..n]);
            }
            assert!(self.elapsed() - begun < 10_000_000, "it stalls");
        }
        assert!(read == data, "what is read is what was written");
        self.elapsed() - begun
    }

    /// Segments sent since the log was cleared, one line each.
    fn sent(&self, wanted: Way) -> Vec<String> {
        let lines = self.log.iter().filter(|(_, way, _)| *way == wanted);
        lines
            .map(|(at, _, segment)| format!("{at} {:?} {}", segment.flags, segment.payload.len()))
            .collect()
    }
}

fn plain() -> Config {
    Config {
        timestamps: false,
        ..Config::default()
    }
}
