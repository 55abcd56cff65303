//! What the tests share: packets as frames of a device, and two endpoints in virtual time.
#![allow(dead_code, reason = "every test file uses its part")]

use std::collections::VecDeque;
use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tcpcost_link::{Device, Filled, Frame, Offload, PartialChecksum, Segmentation, Source};
use tcpcost_tcp::wire::{Checksum, Header, Packet};
use tcpcost_tcp::{Endpoint, Piece, Pool};

/// The point `n` milliseconds after the beginning of the test run.
#[allow(
    clippy::disallowed_methods,
    reason = "tests need one Instant to count from"
)]
pub fn ms(n: u64) -> Instant {
    static START: OnceLock<Instant> = OnceLock::new();
    *START.get_or_init(Instant::now) + Duration::from_millis(n)
}

/// A packet of the TCP's on a device.
#[derive(Clone, Debug)]
pub struct Wire(pub Packet);

impl Frame for Wire {
    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.0.header.as_ref()).chain(self.0.payload.iter().map(Piece::as_ref))
    }

    fn offload(&self) -> Offload {
        let header = self.0.header.as_ref();
        let v6 = header.first().is_some_and(|first| first >> 4 == 6);
        let start = if v6 { 40 } else { 20 };
        let size = self.0.segment_size;
        Offload {
            partial: (self.0.checksum == Checksum::Partial)
                .then_some(PartialChecksum { start, offset: 16 }),
            verified: self.0.checksum == Checksum::Verified,
            segmentation: (size > 0).then_some(Segmentation {
                size,
                header_bytes: header.len() as u16,
                v6,
            }),
        }
    }

    fn from_bytes(bytes: Vec<u8>, offload: Offload) -> Self {
        Self(packet(Piece::from(bytes), &offload))
    }
}

fn packet(piece: Piece, offload: &Offload) -> Packet {
    let checksum = match offload {
        Offload {
            partial: Some(_), ..
        } => Checksum::Partial,
        Offload { verified: true, .. } => Checksum::Verified,
        _ => Checksum::Complete,
    };
    let segment_size = offload
        .segmentation
        .map_or(0, |segmentation| segmentation.size);
    Packet {
        checksum,
        segment_size,
        header: Header::default(),
        payload: piece.into(),
    }
}

/// Slabs to read packets into.
pub struct Slabs(pub Pool);

impl Source<Wire> for Slabs {
    fn fill(&mut self, read: &mut dyn FnMut(&mut [u8]) -> io::Result<Filled>) -> io::Result<Wire> {
        let mut offload = Offload::default();
        let piece = self.0.fill(|buffer| {
            let filled = read(buffer)?;
            offload = filled.offload;
            io::Result::Ok(filled.bytes)
        })?;
        Ok(Wire(packet(piece, &offload)))
    }
}

/// An endpoint at one end of a device.
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

    /// Sends what there is to send.
    pub fn transmit(&mut self, now: Instant) {
        while let Some(packet) = self.endpoint.poll_packet(now) {
            self.out.push_back(Wire(packet));
        }
        self.device.send(&mut self.out, now).unwrap();
    }

    /// Takes in what has arrived and what time has brought; says whether anything arrived.
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

/// Bytes of a stream that repeats after a prime number: a lost, doubled or moved byte shows.
pub fn pattern(at: u64, to: &mut [u8]) {
    for (byte, n) in to.iter_mut().zip(at..) {
        *byte = (n % 251 + n / 251 % 241) as u8;
    }
}
