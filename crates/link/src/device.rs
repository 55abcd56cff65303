//! The trait every end and every wrapper has, and what crosses it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// One end of a wire; never blocks.
pub trait Device<F: Frame> {
    /// What the device does so that its user need not.
    fn offloads(&self) -> Offloads;

    /// Takes packets from the front of `frames` and sends them; what would block stays in it.
    ///
    /// # Errors
    /// If the device is broken; a packet it refuses is dropped and counted instead.
    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()>;

    /// Adds packets that have arrived to the end of `frames`, at most `max`. Memory for them comes
    /// from `source` unless they bring their own.
    ///
    /// # Errors
    /// If the device is broken.
    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()>;

    /// When the device has something to do by itself: then call [`send`](Self::send) (of nothing)
    /// and [`receive`](Self::receive) again.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// What to wait on until packets arrive, if the device is one of the system's.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Whether it keeps packets that were to be sent because what is under it has no room: then
    /// wait for the descriptor to become writable, too, and call [`send`](Self::send) (of nothing).
    fn is_blocked(&self) -> bool {
        false
    }
}

impl<F: Frame, D: Device<F> + ?Sized> Device<F> for Box<D> {
    fn offloads(&self) -> Offloads {
        (**self).offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        (**self).send(frames, now)
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        (**self).receive(source, frames, max, now)
    }

    fn next_event(&self) -> Option<Instant> {
        (**self).next_event()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        (**self).descriptor()
    }

    fn is_blocked(&self) -> bool {
        (**self).is_blocked()
    }
}

/// An IP packet as its owner keeps it: headers in one place, payload in as many as there are.
pub trait Frame: Clone {
    /// The bytes, in order, in as many runs as they lie in.
    fn runs(&self) -> impl Iterator<Item = &[u8]>;

    /// What is left to do about it, or was not done.
    fn offload(&self) -> Offload;

    /// A packet of these bytes: for wrappers that change some.
    fn from_bytes(bytes: Vec<u8>, offload: Offload) -> Self;

    /// Bytes in all runs.
    fn len(&self) -> usize {
        self.runs().map(<[u8]>::len).sum()
    }

    /// Whether there are none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Where a device that reads bytes puts them: makes a packet of what `read` writes into the buffer
/// it is lent.
pub trait Source<F> {
    /// Calls `read` once with a buffer of at least 64 KiB.
    ///
    /// # Errors
    /// What `read` returns.
    fn fill(&mut self, read: &mut dyn FnMut(&mut [u8]) -> io::Result<Filled>) -> io::Result<F>;
}

/// What a device read.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// Bytes written to the beginning of the buffer.
    pub bytes: usize,
    /// What the device says about them.
    pub offload: Offload,
}

/// What a device does so that its user need not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// Completes checksums ([`Offload::partial`]) of packets it is given.
    pub checksum: bool,
    /// Takes super-segments ([`Offload::segmentation`]).
    pub segmentation: bool,
}

impl Offloads {
    /// All of them.
    pub const ALL: Self = Self {
        checksum: true,
        segmentation: true,
    };
    /// None of them.
    pub const NONE: Self = Self {
        checksum: false,
        segmentation: false,
    };
}

/// What is left to do about a packet: virtio's vocabulary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// The transport checksum is not complete; a packet that arrives so was never on a wire and
    /// needs no check.
    pub partial: Option<PartialChecksum>,
    /// The device found the transport checksum right.
    pub verified: bool,
    /// It stands for several packets on the wire.
    pub segmentation: Option<Segmentation>,
}

/// A checksum over everything from `start` on, to be stored at `start + offset`, where the sum
/// over the pseudo-header is already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Bytes from the beginning of the packet.
    pub start: u16,
    /// Bytes from `start`.
    pub offset: u16,
}

/// How a super-segment is to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes of each segment but the last.
    pub size: u16,
    /// Bytes of headers that every segment repeats.
    pub header_bytes: u16,
    /// Over IPv6 instead of IPv4.
    pub v6: bool,
}

impl Offload {
    /// Completes a partial checksum in `bytes`, as a network card would.
    pub fn complete(&mut self, bytes: &mut [u8]) {
        let Some(PartialChecksum { start, offset }) = self.partial.take() else {
            return;
        };
        let (start, field) = (usize::from(start), usize::from(start) + usize::from(offset));
        if field + 2 > bytes.len() {
            return;
        }
        let mut sum = 0u64;
        for pair in bytes[start..].chunks(2) {
            sum += u64::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        bytes[field..field + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    }
}

/// The simplest frame: its own copy of its bytes. For tests and for users without a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// The packet.
    pub bytes: Vec<u8>,
    /// What is left to do about it.
    pub offload: Offload,
}

impl Copied {
    /// A source that allocates.
    pub fn source() -> impl Source<Self> {
        struct Allocate;
        impl Source<Copied> for Allocate {
            fn fill(
                &mut self,
                read: &mut dyn FnMut(&mut [u8]) -> io::Result<Filled>,
            ) -> io::Result<Copied> {
                let mut bytes = vec![0; 1 << 16];
                let filled = read(&mut bytes)?;
                bytes.truncate(filled.bytes);
                Ok(Copied {
                    bytes,
                    offload: filled.offload,
                })
            }
        }
        Allocate
    }
}

impl From<&[u8]> for Copied {
    fn from(bytes: &[u8]) -> Self {
        Self {
            bytes: bytes.to_vec(),
            offload: Offload::default(),
        }
    }
}

impl Frame for Copied {
    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.bytes.as_slice())
    }

    fn offload(&self) -> Offload {
        self.offload
    }

    fn from_bytes(bytes: Vec<u8>, offload: Offload) -> Self {
        Self { bytes, offload }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_checksum_is_completed_over_everything_from_its_start() {
        // The words 0x0102 and 0x0304 and the pseudo sum 0x0010 that was in the field.
        let mut bytes = [0xff, 0xff, 1, 2, 0x00, 0x10, 3, 4];
        let mut offload = Offload {
            partial: Some(PartialChecksum {
                start: 2,
                offset: 2,
            }),
            ..Offload::default()
        };
        offload.complete(&mut bytes);
        assert_eq!(
            u16::from_be_bytes([bytes[4], bytes[5]]),
            !(0x0102 + 0x0010 + 0x0304)
        );
        assert_eq!(offload.partial, None);
    }
}
