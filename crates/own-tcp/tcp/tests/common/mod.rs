//! Helpers shared by the tests: packets as frames of a device, and endpoints in virtual time.
#![allow(dead_code, unused_imports, reason = "every test file uses its part")]

use std::collections::VecDeque;
use std::sync::OnceLock;
use std::time::Instant;

use tcpcost_link::Device;
pub use tcpcost_stack::{Slabs, Wire};
use tcpcost_tcp::Endpoint;
pub use tcpcost_testbed::Random;

#[path = "../../src/time.rs"]
mod time;

pub(crate) use time::ms;

/// Endpoint at one end of a device.
pub struct Host<D> {
    pub endpoint: Endpoint,
    pub device: D,
    pub out: VecDeque<Wire>,
    source: Slabs,
}

impl<D: Device<Wire>> Host<D> {
    pub fn new(endpoint: Endpoint, device: D) -> Self {
        let source = Slabs(endpoint.pool().clone());
        Self {
            endpoint,
            device,
            out: VecDeque::new(),
            source,
        }
    }

    /// Sends all packets that the endpoint has.
    pub fn transmit(&mut self, now: Instant) {
        while let Some(packet) = self.endpoint.poll_packet(now) {
            self.out.push_back(Wire(packet));
        }
        self.device.send(&mut self.out, now).unwrap();
    }

    /// Processes received packets and due timers. True if a packet was received.
    pub fn receive(&mut self, now: Instant) -> bool {
        let mut arrived = VecDeque::new();
        self.device
            .receive(&mut self.source, &mut arrived, 64, now)
            .unwrap();
        let any = !arrived.is_empty();
        for Wire(packet) in arrived {
            self.endpoint.on_packet(packet, now);
        }
        self.endpoint.on_timeout(now);
        any
    }

    pub fn next_event(&self) -> Option<Instant> {
        [self.endpoint.next_timeout(), self.device.next_event()]
            .into_iter()
            .flatten()
            .min()
    }
}

/// Fills `to` with bytes of a stream that repeats after a product of primes, so that a lost,
/// duplicated or moved byte is noticed.
pub fn pattern(at: u64, mut to: &mut [u8]) {
    const PERIOD: u64 = 251 * 241;
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    let bytes = BYTES.get_or_init(|| {
        let byte = |n| (n % 251 + n / 251 % 241) as u8;
        (0..PERIOD).map(byte).collect()
    });
    let mut from = (at % PERIOD) as usize;
    while !to.is_empty() {
        let run = to.len().min(bytes.len() - from);
        to[..run].copy_from_slice(&bytes[from..from + run]);
        to = &mut to[run..];
        from = 0;
    }
}
