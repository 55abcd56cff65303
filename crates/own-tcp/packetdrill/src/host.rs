//! The endpoint, its clock and its wire.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use tcpcost_tcp::wire::{Checksum, Packet};
use tcpcost_tcp::{Config, Endpoint, Piece, Pool};

/// A host whose time passes only on request.
pub struct Host {
    pub endpoint: Endpoint,
    epoch: Instant,
    now_us: u64,
    /// Packets sent, each with its time, µs.
    sent: VecDeque<(u64, Vec<u8>)>,
}

impl Host {
    pub fn new(config: Config) -> Self {
        let epoch = Instant::now();
        Self {
            endpoint: Endpoint::new(config, Pool::default(), [7; 16], Checksum::Complete, epoch),
            epoch,
            now_us: START_US,
            sent: VecDeque::new(),
        }
    }

    pub fn now(&self) -> Instant {
        self.at(self.now_us)
    }

    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    fn at(&self, us: u64) -> Instant {
        self.epoch + Duration::from_micros(us - START_US)
    }

    /// Sends the packets that are pending.
    pub fn settle(&mut self) {
        while let Some(packet) = self.endpoint.poll_packet(self.now()) {
            let mut bytes = packet.header.as_ref().to_vec();
            bytes.extend(packet.payload.to_vec());
            self.sent.push_back((self.now_us, bytes));
        }
    }

    /// Fires the next timer, if it is due by `until_us`. True if one fired.
    pub fn tick(&mut self, until_us: u64) -> bool {
        let due = self.endpoint.next_timeout();
        let Some(due) = due.filter(|due| *due <= self.at(until_us)) else {
            return false;
        };
        let due_us = (due - self.epoch).as_nanos().div_ceil(1000) as u64 + START_US;
        self.now_us = self.now_us.max(due_us);
        self.endpoint.on_timeout(self.now());
        self.settle();
        true
    }

    /// Advances the time to `until_us`; no timer is due before.
    pub fn pass(&mut self, until_us: u64) {
        self.now_us = self.now_us.max(until_us);
        self.settle();
    }

    pub fn arrive(&mut self, bytes: &[u8]) {
        let packet = Packet::from_piece(Piece::from(bytes));
        self.endpoint.on_packet(packet, self.now());
        self.settle();
    }

    pub fn next_sent(&mut self) -> Option<(u64, Vec<u8>)> {
        self.sent.pop_front()
    }
}

/// Time at the start, µs since 1970: packetdrill asks for a time of day.
const START_US: u64 = 1_700_000_000_000_000;
