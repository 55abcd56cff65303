//! Two directly connected connections in virtual time, one unit at a time: the answers to a packet
//! leave before the next packet arrives, as on a host that processes packets one by one.
#![allow(dead_code, reason = "every test file uses its part")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tcpcost_tcp::wire::{Flags, Segment};
use tcpcost_tcp::{Clock, Config, Connection, Pool, SeqNum};

use crate::common::ms;

/// One end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Who {
    Client,
    Server,
}

impl Who {
    pub fn peer(self) -> Who {
        match self {
            Who::Client => Who::Server,
            Who::Server => Who::Client,
        }
    }
}

/// Unit that leaves one end, or reaches the other.
#[derive(Clone, Debug)]
pub struct Passed {
    pub from: Who,
    pub sent: bool,
    pub start: u32,
    pub bytes: u32,
    pub push: bool,
    pub ack: u32,
    pub wire_segments: u32,
}

/// Client, server, and a wire between them that preserves order.
pub struct Face {
    ends: [Connection; 2],
    wires: [VecDeque<(Instant, Segment)>; 2],
    busy_until: [Instant; 2],
    latency: Duration,
    /// Time that each unit occupies the wire.
    spacing: Duration,
    pub now: Instant,
    pub log: Vec<Passed>,
    /// Number of the server's next pure ACKs to lose.
    pub acks_to_lose: u32,
}

const CLIENT_ISS: u32 = 1000;
const SERVER_ISS: u32 = u32::MAX - 20_000;

impl Face {
    /// Makes an established connection over a wire with this latency.
    pub fn new(client: Config, server: Config, latency: Duration, spacing: Duration) -> Self {
        let (pool, now) = (Pool::default(), ms(0));
        let clock = Clock {
            epoch: now,
            offset: 7,
        };
        let iss = SeqNum::new(CLIENT_ISS);
        let mut client = Connection::connect(Arc::new(client), pool.clone(), iss, clock, now);
        let syn = client.poll_segment(now).expect("a SYN");
        let later = now + latency;
        let iss = SeqNum::new(SERVER_ISS);
        let mut server = Connection::accept(Arc::new(server), pool, iss, clock, &syn, later);
        let answer = server.poll_segment(later).expect("a SYN-ACK");
        let now = later + latency;
        client.on_segment(answer, now);
        let mut face = Self {
            ends: [client, server],
            wires: [VecDeque::new(), VecDeque::new()],
            busy_until: [now; 2],
            latency,
            spacing,
            now,
            log: Vec::new(),
            acks_to_lose: 0,
        };
        face.transmit();
        while face.step(|_, _, _| {}) && !face.wires.iter().all(VecDeque::is_empty) {}
        face.log.clear();
        face
    }

    pub fn end(&mut self, who: Who) -> &mut Connection {
        &mut self.ends[who as usize]
    }

    fn note(&mut self, from: Who, sent: bool, segment: &Segment) {
        let isses = match from {
            Who::Client => [CLIENT_ISS, SERVER_ISS],
            Who::Server => [SERVER_ISS, CLIENT_ISS],
        };
        self.log.push(Passed {
            from,
            sent,
            start: segment.seq.since(SeqNum::new(isses[0])),
            bytes: segment.payload.len() as u32,
            push: segment.flags.contains(Flags::PSH),
            ack: segment.ack.since(SeqNum::new(isses[1])),
            wire_segments: segment.wire_segments(),
        });
    }

    /// Sends all segments that the ends have.
    pub fn transmit(&mut self) {
        for who in [Who::Client, Who::Server] {
            let at = who as usize;
            while let Some(segment) = self.ends[at].poll_segment(self.now) {
                self.note(who, true, &segment);
                let leaves = self.busy_until[at].max(self.now) + self.spacing;
                self.busy_until[at] = leaves;
                if who == Who::Server && segment.payload.is_empty() && self.acks_to_lose > 0 {
                    self.acks_to_lose -= 1;
                    continue;
                }
                self.wires[at].push_back((leaves + self.latency, segment));
            }
        }
    }

    /// Runs the next event: a unit arrives or a timer fires. Its consequences leave; then
    /// `application` runs at the end of the event, and its consequences leave too. False if no
    /// event will ever happen again.
    pub fn step(&mut self, application: impl Fn(&mut Connection, Who, Instant)) -> bool {
        let arrival = |at: usize| self.wires[at].front().map(|(due, _)| *due);
        let events = [
            (arrival(0), Who::Server),
            (arrival(1), Who::Client),
            (self.ends[0].next_timeout(), Who::Client),
            (self.ends[1].next_timeout(), Who::Server),
        ];
        let next = events
            .into_iter()
            .filter_map(|(due, who)| Some((due?, who)));
        let Some((due, who)) = next.min_by_key(|(due, _)| *due) else {
            return false;
        };
        self.now = self.now.max(due);
        let from = who.peer();
        let wire = &mut self.wires[from as usize];
        if wire.front().is_some_and(|(due, _)| *due <= self.now)
            && let Some((_, segment)) = wire.pop_front()
        {
            self.note(from, false, &segment);
            self.ends[who as usize].on_segment(segment, self.now);
        }
        self.ends[who as usize].on_timeout(self.now);
        self.transmit();
        application(&mut self.ends[who as usize], who, self.now);
        self.transmit();
        true
    }
}
