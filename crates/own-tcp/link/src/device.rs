//! Device trait of all ends and wrappers, and the packets that cross it.

use std::collections::VecDeque;
use std::io;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// One end of a wire. Calls never block.
pub trait Device<F: Frame> {
    /// Returns what the device does instead of its user.
    fn offloads(&self) -> Offloads;

    /// Takes packets from the front of `frames` and sends them. Packets that cannot be sent without
    /// blocking stay in `frames`.
    ///
    /// # Errors
    /// Fails if the device is broken. A packet that the device refuses is dropped and counted
    /// instead.
    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()>;

    /// Appends received packets to `frames`, at most `max`. Memory comes from `source`, unless the
    /// packets have their own.
    ///
    /// # Errors
    /// Fails if the device is broken.
    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()>;

    /// Time at which the device has work of its own; `None` if it has none. Then call
    /// [`send`](Self::send) (with no frames) and [`receive`](Self::receive) again.
    fn next_event(&self) -> Option<Instant> {
        None
    }

    /// Descriptor to wait on for received packets; `None` if the device is not a system device.
    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// True if the device keeps packets to send because the layer below has no room. Then also wait
    /// for the descriptor to become writable, and call [`send`](Self::send) (with no frames).
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

/// IP packet in its owner's representation: headers in one run of bytes, payload in any number of
/// runs.
pub trait Frame: Clone {
    /// Iterates over the packet's bytes in order, run by run.
    fn runs(&self) -> impl Iterator<Item = &[u8]>;

    /// Returns the remaining offload work, or the result of the device's checks.
    fn offload(&self) -> Offload;

    /// Makes a packet of these bytes, for wrappers that change packets.
    fn from_bytes(bytes: Vec<u8>, offload: Offload) -> Self;

    /// Number of bytes in all runs.
    fn len(&self) -> usize {
        self.runs().map(<[u8]>::len).sum()
    }

    /// True if there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Provider of packet buffers for a device that reads bytes. Makes a packet of what `read` writes
/// into the buffer.
pub trait Source<F> {
    /// Calls `read` once with a buffer of at least 64 KiB.
    ///
    /// # Errors
    /// The error of `read`.
    fn fill(&mut self, read: &mut dyn FnMut(&mut [u8]) -> io::Result<Filled>) -> io::Result<F>;
}

/// Result of a device's read.
#[derive(Clone, Copy, Debug)]
pub struct Filled {
    /// Bytes written at the start of the buffer.
    pub bytes: usize,
    /// Offload state that the device reported for these bytes.
    pub offload: Offload,
}

/// Work that a device does instead of its user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offloads {
    /// True if the device completes checksums ([`Offload::partial`]) of packets to send.
    pub checksum: bool,
    /// True if the device takes super-segments ([`Offload::segmentation`]).
    pub segmentation: bool,
}

impl Offloads {
    /// Both offloads.
    pub const ALL: Self = Self {
        checksum: true,
        segmentation: true,
    };
    /// No offload.
    pub const NONE: Self = Self {
        checksum: false,
        segmentation: false,
    };
}

/// Remaining offload work for a packet, in virtio's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// Checksum to complete; `None` if the transport checksum is complete. A received packet with a
    /// partial checksum was never on a wire and needs no check.
    pub partial: Option<PartialChecksum>,
    /// True if the device verified the transport checksum.
    pub verified: bool,
    /// Cutting of a super-segment; `None` for an ordinary packet.
    pub segmentation: Option<Segmentation>,
}

/// Partial checksum over everything from `start` on. It must be stored at `start + offset`, where
/// the sum over the pseudo-header already is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartialChecksum {
    /// Offset in bytes from the start of the packet.
    pub start: u16,
    /// Offset in bytes from `start`.
    pub offset: u16,
}

/// Parameters for cutting a super-segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Payload bytes of each segment except the last.
    pub size: u16,
    /// Bytes of headers, which every segment repeats.
    pub header_bytes: u16,
    /// True for IPv6, false for IPv4.
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

/// Frame that owns a copy of its bytes. For tests and for users without a pool.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Copied {
    /// Bytes of the packet.
    pub bytes: Vec<u8>,
    /// Remaining offload work.
    pub offload: Offload,
}

impl Copied {
    /// Makes a source that allocates a buffer for each packet.
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
        // Words 0x0102 and 0x0304, and the pseudo-header sum 0x0010 in the field.
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
