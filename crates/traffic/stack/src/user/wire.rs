//! Packets of our TCP as frames of a device: the same bytes in the types of two crates.

use std::io;

use tcpcost_link::{Filled, Frame, Offload, PartialChecksum, Segmentation, Source};
use tcpcost_tcp::wire::{Checksum, Header, Packet};
use tcpcost_tcp::{Piece, Pool};

/// A packet of our TCP on a device.
#[derive(Clone, Debug, Default)]
pub struct Wire(pub Packet);

impl Frame for Wire {
    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.0.header.as_ref()).chain(self.0.payload.iter().map(Piece::as_ref))
    }

    fn offload(&self) -> Offload {
        let header = self.0.header.as_ref();
        let v6 = header.first().is_some_and(|first| first >> 4 == 6);
        let partial = PartialChecksum {
            start: if v6 { 40 } else { 20 },
            offset: CHECKSUM_AT,
        };
        let size = self.0.segment_size;
        Offload {
            partial: (self.0.checksum == Checksum::Partial).then_some(partial),
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

/// Slabs of a pool that a device reads packets into.
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

/// Offset of the checksum in a TCP header.
const CHECKSUM_AT: u16 = 16;
