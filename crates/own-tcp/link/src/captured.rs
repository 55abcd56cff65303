//! Capture of all packets of a device in a pcapng file.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::pcapng::{Direction, Header, Packet, Writer};
use crate::{Device, Frame, Offloads, Source};

/// Device whose packets are written to `W` as pcapng ([`crate::pcapng`]: raw IP, nanoseconds) in
/// the order in which they pass. A super-segment is one packet in the file, with a comment that
/// says so. A checksum that the device would complete is incomplete in the file.
pub struct CapturingDevice<D, W> {
    inner: D,
    to: Arc<Mutex<Writer<W>>>,
    /// Instant that corresponds to `epoch`.
    started: Instant,
    /// Time since 1970 at `started`.
    epoch: Duration,
}

impl<D, W: Write> CapturingDevice<D, W> {
    /// Starts a capture of whole packets. `epoch` is the time since 1970 at `started`.
    ///
    /// # Errors
    /// Fails if the file's header cannot be written.
    pub fn new(inner: D, to: W, started: Instant, epoch: Duration) -> io::Result<Self> {
        let to = Writer::new(to, Header::default())?;
        Ok(Self::into_file(
            inner,
            Arc::new(Mutex::new(to)),
            started,
            epoch,
        ))
    }

    /// Adds the device's packets to an open file of raw IP packets, which several devices may
    /// share.
    pub fn into_file(
        inner: D,
        to: Arc<Mutex<Writer<W>>>,
        started: Instant,
        epoch: Duration,
    ) -> Self {
        Self {
            inner,
            to,
            started,
            epoch,
        }
    }

    /// Writes out buffered data and returns the device and the file. The file is `None` if another
    /// device still uses it.
    ///
    /// # Errors
    /// Fails if writing fails.
    pub fn finish(self) -> io::Result<(D, Option<W>)> {
        let file = Arc::into_inner(self.to).map(|file| {
            let file = file.into_inner().unwrap_or_else(PoisonError::into_inner);
            file.finish(0, None)
        });
        Ok((self.inner, file.transpose()?))
    }

    /// Returns the wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn record<F: Frame>(
        &mut self,
        frame: &F,
        direction: Direction,
        now: Instant,
    ) -> io::Result<()> {
        let at = self.epoch + now.saturating_duration_since(self.started);
        let comment = frame
            .offload()
            .segmentation
            .map(|segmentation| format!("super-segment, {} bytes a segment", segmentation.size));
        let packet = Packet {
            at_ns: at.as_nanos() as u64,
            len: frame.len() as u32,
            direction: Some(direction),
            comment: comment.as_deref().unwrap_or_default(),
        };
        let mut to = self.to.lock().unwrap_or_else(PoisonError::into_inner);
        to.packet(packet, frame.runs())
    }
}

impl<D: Device<F>, F: Frame, W: Write> Device<F> for CapturingDevice<D, W> {
    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<F>, now: Instant) -> io::Result<()> {
        // Frames that the device does not take are sent again later, so only those taken are
        // recorded.
        let before: Vec<F> = frames.iter().cloned().collect();
        self.inner.send(frames, now)?;
        let taken = before.len() - frames.len();
        before[..taken]
            .iter()
            .try_for_each(|frame| self.record(frame, Direction::Outbound, now))
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
            .try_for_each(|frame| self.record(frame, Direction::Inbound, now))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Copied, Offload, Segmentation, memory};

    #[test]
    fn blocks_follow_each_other_and_hold_the_packet() {
        let (near, _far) = memory::pair::<Copied>(1);
        let now = Instant::now();
        let mut near = CapturingDevice::new(near, Vec::new(), now, Duration::from_secs(1)).unwrap();
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
        let file = near.finish().unwrap().1.unwrap();
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
