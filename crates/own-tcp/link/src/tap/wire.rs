//! Wire between two TAPs: frames that the kernel sends into one leave the other, possibly delayed
//! or lost.
//!
//! Ethernet frames cross unchanged, with their virtio-net headers, so that super-segments and
//! partial checksums are preserved. One thread carries both directions; its CPU time is counted
//! separately from that of the ends.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::virtio::{self, HEADER_BYTES};
use super::{Layer, TapError};
use crate::impaired::Lane;
use crate::{Frame, Impairment, LaneCounters, Offload, Offloads};

/// Two TAPs and the wire between them.
pub struct TapWire {
    ends: [End; 2],
    /// Buffers of frames that have left, for reuse.
    spare: Vec<Vec<u8>>,
}

/// One TAP, and the direction that starts at it.
struct End {
    file: File,
    name: String,
    lane: Lane<Raw>,
    /// Frames that have left the other end's lane and had no room here.
    waiting: VecDeque<Raw>,
}

/// Limit of frames read from one end before the other end's turn.
const BATCH: usize = 64;
/// Largest frame: a super-segment of IPv4 or IPv6 without jumbograms, with its Ethernet and
/// virtio-net headers.
const FRAME_BYTES: usize = 65_536 + 64;
/// Limit of buffers kept for reuse.
const SPARE: usize = 1024;

impl TapWire {
    /// Makes both interfaces in the network namespace of the calling thread; they can be moved to
    /// other namespaces. Use `segmentation` = false for a wire that impairs single packets: then no
    /// super-segments enter it.
    ///
    /// # Errors
    /// [`TapError`] with the step that failed.
    pub fn open(names: [&str; 2], segmentation: bool) -> Result<TapWire, TapError> {
        let offloads = Offloads {
            checksum: true,
            segmentation,
        };
        let end = |name: &str| {
            let file = virtio::open()?;
            let name = virtio::attach(&file, name, Layer::Ethernet, false)?;
            virtio::set_offloads(&file, offloads)?;
            Ok::<_, TapError>(End {
                file,
                name,
                lane: Lane::new(Impairment::default(), 0),
                waiting: VecDeque::new(),
            })
        };
        Ok(TapWire {
            ends: [end(names[0])?, end(names[1])?],
            spare: Vec::new(),
        })
    }

    /// Names of the interfaces.
    pub fn names(&self) -> [&str; 2] {
        [&self.ends[0].name, &self.ends[1].name]
    }

    /// Sets the impairments of what the first end sends and of what the second end sends. Frames on
    /// their way are lost, and the counters start at 0.
    pub fn set(&mut self, impairments: [Impairment; 2], seed: u64) {
        for (index, (end, impairment)) in self.ends.iter_mut().zip(impairments).enumerate() {
            end.lane = Lane::new(impairment, seed.wrapping_add(index as u64));
            end.waiting.clear();
        }
    }

    /// Counts of the frames that each end sent.
    pub fn counters(&self) -> [LaneCounters; 2] {
        [self.ends[0].lane.counters(), self.ends[1].lane.counters()]
    }

    /// Carries frames that are ready, then sleeps until more arrive, a frame is due, or `also` is
    /// readable, at most `most`. True if `also` is readable.
    ///
    /// # Errors
    /// Fails if a TAP is gone.
    pub fn carry(&mut self, most: Duration, also: BorrowedFd<'_>) -> io::Result<bool> {
        let now = Instant::now();
        for from in 0..2 {
            for _ in 0..BATCH {
                let Some(frame) = self.read(from)? else {
                    break;
                };
                self.ends[from].lane.enter(frame, now);
            }
            while let Some(frame) = self.ends[from].lane.leave(now) {
                self.ends[1 - from].waiting.push_back(frame);
            }
        }
        for to in 0..2 {
            self.write(to)?;
        }
        let due = self.ends.iter().filter_map(|end| end.lane.next()).min();
        let sleep = due.map_or(most, |due| due.saturating_duration_since(now).min(most));
        let flags = |to: &End| match to.waiting.is_empty() {
            true => PollFlags::IN,
            false => PollFlags::IN | PollFlags::OUT,
        };
        let end = |end| PollFd::from_borrowed_fd(end_fd(end), flags(end));
        let also = PollFd::from_borrowed_fd(also, PollFlags::IN);
        let mut all = [end(&self.ends[0]), end(&self.ends[1]), also];
        let timeout = Timespec::try_from(sleep).ok();
        match poll(&mut all, timeout.as_ref()) {
            Ok(_) => Ok(!all[2].revents().is_empty()),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn read(&mut self, from: usize) -> io::Result<Option<Raw>> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.resize(FRAME_BYTES, 0);
        match self.ends[from].file.read(&mut bytes) {
            Ok(length) => {
                bytes.truncate(length);
                Ok(Some(Raw(bytes)))
            }
            Err(error) if is_not_now(&error) => {
                self.keep(bytes);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn write(&mut self, to: usize) -> io::Result<()> {
        while let Some(frame) = self.ends[to].waiting.pop_front() {
            match self.ends[to].file.write(&frame.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.ends[to].waiting.push_front(frame);
                    return Ok(());
                }
                // The interface is down or the kernel refuses the header: the frame is lost, as on
                // a wire.
                Ok(_) => self.keep(frame.0),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    self.ends[to].waiting.push_front(frame);
                }
                Err(_) => self.keep(frame.0),
            }
        }
        Ok(())
    }

    fn keep(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(bytes);
        }
    }
}

fn end_fd(end: &End) -> BorrowedFd<'_> {
    end.file.as_fd()
}

/// True for temporary errors; EIO means that the interface is down.
fn is_not_now(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    ) || error.raw_os_error() == Some(libc::EIO)
}

/// Frame with its virtio-net header.
#[derive(Clone)]
struct Raw(Vec<u8>);

impl Frame for Raw {
    fn runs(&self) -> impl Iterator<Item = &[u8]> {
        std::iter::once(self.0.get(HEADER_BYTES..).unwrap_or_default())
    }

    /// No offload, because the offload state stays in the virtio-net header.
    fn offload(&self) -> Offload {
        Offload::default()
    }

    fn from_bytes(bytes: Vec<u8>, _: Offload) -> Raw {
        Raw([vec![0; HEADER_BYTES], bytes].concat())
    }
}
