//! Everything that passes, in a pcapng file.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::{Device, Frame, Offloads, Source};

/// A device whose packets are written to `W` as pcapng (raw IP, nanoseconds) in the order they
/// pass. A super-segment is one packet in it, with a comment that says so; a checksum that the
/// device would have completed is shown incomplete.
pub struct Captured<D, W> {
    inner: D,
    to: W,
    /// The point in time that `epoch` was at.
    started: Instant,
    /// Time since 1970 at `started`.
    epoch: Duration,
    record: Vec<u8>,
}

impl<D, W: Write> Captured<D, W> {
    /// Begins a capture. `epoch` is the time since 1970 at `started`.
    ///
    /// # Errors
    /// If the file's header cannot be written.
    pub fn new(inner: D, mut to: W, started: Instant, epoch: Duration) -> io::Result<Self> {
        let mut header = Vec::new();
        // Section header: byte order, version 1.0, length unknown.
        block(&mut header, 0x0a0d_0d0a, |body| {
            body.extend(0x1a2b_3c4du32.to_le_bytes());
            body.extend([1, 0, 0, 0]);
            body.extend(u64::MAX.to_le_bytes());
        });
        // Interface: raw IP, no snap length, times in nanoseconds (if_tsresol 9).
        block(&mut header, 1, |body| {
            body.extend(LINKTYPE_RAW.to_le_bytes());
            body.extend([0; 6]);
            option(body, 9, &[9]);
            option(body, 0, &[]);
        });
        to.write_all(&header)?;
        Ok(Self {
            inner,
            to,
            started,
            epoch,
            record: Vec::new(),
        })
    }

    /// Writes out what is buffered and gives back the device and the file.
    ///
    /// # Errors
    /// If writing fails.
    pub fn finish(mut self) -> io::Result<(D, W)> {
        self.to.flush()?;
        Ok((self.inner, self.to))
    }

    /// The device behind it.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn record<F: Frame>(&mut self, frame: &F, direction: u32, now: Instant) -> io::Result<()> {
        let at = self.epoch + now.saturating_duration_since(self.started);
        let ns = at.as_nanos() as u64;
        let len = frame.len() as u32;
        self.record.clear();
        // Enhanced packet.
        block(&mut self.record, 6, |body| {
            body.extend(0u32.to_le_bytes());
            body.extend(((ns >> 32) as u32).to_le_bytes());
            body.extend((ns as u32).to_le_bytes());
            body.extend(len.to_le_bytes());
            body.extend(len.to_le_bytes());
            frame.runs().for_each(|run| body.extend_from_slice(run));
            pad(body);
            if let Some(segmentation) = frame.offload().segmentation {
                let comment = format!("super-segment, {} bytes a segment", segmentation.size);
                option(body, 1, comment.as_bytes());
            }
            option(body, 2, &direction.to_le_bytes());
            option(body, 0, &[]);
        });
        self.to.write_all(&self.record)
    }
}

impl<D: Device<F>, F: Frame, W: Write> Device<F> for Captured<D, W> {
    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        // What the device leaves will come again: record only what it takes.
        let before: Vec<F> = frames.iter().cloned().collect();
        self.inner.send(frames, now)?;
        let taken = before.len() - frames.len();
        before[..taken]
            .iter()
            .try_for_each(|frame| self.record(frame, OUTBOUND, now))
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<F>,
        frames: &mut VecDeque<F>,
        max: usize,
        now: Instant,
    ) -> io::Result<()> {
        let before = frames.len();
        self.inner.receive(source, frames, max, now)?;
        frames
            .range(before..)
            .try_for_each(|frame| self.record(frame, INBOUND, now))
    }

    fn next_event(&self) -> Option<Instant> {
        self.inner.next_event()
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }

    fn is_blocked(&self) -> bool {
        self.inner.is_blocked()
    }
}

/// A block with its length at both ends.
fn block(to: &mut Vec<u8>, kind: u32, fill: impl FnOnce(&mut Vec<u8>)) {
    let start = to.len();
    to.extend(kind.to_le_bytes());
    to.extend([0; 4]);
    fill(to);
    pad(to);
    let len = (to.len() - start + 4) as u32;
    to.extend(len.to_le_bytes());
    to[start + 4..start + 8].copy_from_slice(&len.to_le_bytes());
}

fn option(to: &mut Vec<u8>, code: u16, value: &[u8]) {
    to.extend(code.to_le_bytes());
    to.extend((value.len() as u16).to_le_bytes());
    to.extend(value);
    pad(to);
}

/// Blocks begin at multiples of four, so everything within may be padded from the beginning.
fn pad(to: &mut Vec<u8>) {
    to.resize(to.len().next_multiple_of(4), 0);
}

/// IPv4 or IPv6, told apart by the first four bits.
const LINKTYPE_RAW: u16 = 101;
/// Directions of epb_flags.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copied, Offload, Segmentation, memory};

    #[test]
    fn blocks_follow_each_other_and_hold_the_packet() {
        let (near, _far) = memory::pair::<Copied>(1);
        let now = Instant::now();
        let mut near = Captured::new(near, Vec::new(), now, Duration::from_secs(1)).unwrap();
        let segmentation = Some(Segmentation {
            size: 2,
            header_bytes: 1,
            v6: false,
        });
        let frame = Copied {
            bytes: vec![0x45, 1, 2, 3, 4],
            offload: Offload {
                segmentation,
                ..Offload::default()
            },
        };
        near.send(
            &mut VecDeque::from([frame.clone(), frame]),
            now + Duration::from_nanos(5),
        )
        .unwrap();
        let (_, file) = near.finish().unwrap();
        let (mut at, mut kinds) = (0, Vec::new());
        while at < file.len() {
            let word = |at: usize| u32::from_le_bytes(file[at..at + 4].try_into().unwrap());
            let len = word(at + 4) as usize;
            assert_eq!(word(at + len - 4) as usize, len);
            kinds.push(word(at));
            if kinds.len() == 3 {
                assert_eq!(
                    u64::from(word(at + 12)) << 32 | u64::from(word(at + 16)),
                    1_000_000_005
                );
                assert_eq!(&file[at + 28..at + 33], [0x45, 1, 2, 3, 4]);
                assert!(
                    String::from_utf8_lossy(&file[at..at + len]).contains("super-segment, 2 bytes")
                );
            }
            at += len;
        }
        assert_eq!(
            kinds,
            [0x0a0d_0d0a, 1, 6],
            "what the device did not take is not recorded"
        );
    }
}
