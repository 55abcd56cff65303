//! Input of a capture, through a buffer that readers examine without copying.
//!
//! No mmap: a pipe cannot be mapped, and the kernel kills a process whose mapped file shrinks. A
//! copy of 256 KiB at a time stays in the cache and costs under a tenth of the analysis.

use std::io::{self, Read};

use crate::read::{Reading, Sink};

/// A window over the bytes of a reader.
pub(crate) struct Bytes<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of the input before `start`.
    offset: u64,
    stopped: bool,
}

/// Limit of the bytes requested at once: no packet or block is longer.
pub(crate) const LONGEST: usize = 16 << 20;

const AT_ONCE: usize = 256 << 10;

impl<R: Read> Bytes<R> {
    pub(crate) fn new(reader: R) -> Bytes<R> {
        Bytes {
            reader,
            buffer: vec![0; AT_ONCE],
            start: 0,
            end: 0,
            offset: 0,
            stopped: false,
        }
    }

    /// Bytes read and not yet consumed.
    #[inline]
    pub(crate) fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Consumes the first `count` bytes held.
    #[inline]
    pub(crate) fn consume(&mut self, count: usize) {
        let count = count.min(self.end - self.start);
        self.start += count;
        self.offset += count as u64;
    }

    /// Bytes consumed so far.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// True if the sink ended the reading.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Reads until `want` bytes are held, the input ends, or the sink ends the reading. Returns the
    /// number of bytes held.
    ///
    /// # Errors
    /// The reader's error, except [`io::ErrorKind::WouldBlock`], after which it is asked again.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        want: usize,
        sink: &mut impl Sink,
        so_far: &mut Reading,
    ) -> io::Result<usize> {
        debug_assert!(want <= LONGEST);
        if self.end - self.start >= want {
            return Ok(self.end - self.start);
        }
        self.read_more(want, sink, so_far)
    }

    #[cold]
    fn read_more(
        &mut self,
        want: usize,
        sink: &mut impl Sink,
        so_far: &mut Reading,
    ) -> io::Result<usize> {
        self.buffer.copy_within(self.start..self.end, 0);
        self.end -= self.start;
        self.start = 0;
        if want > self.buffer.len() {
            self.buffer.resize(want.next_power_of_two(), 0);
        }
        while self.end < want {
            so_far.bytes = self.offset;
            self.stopped |= !sink.goes_on(so_far);
            if self.stopped {
                break;
            }
            match self.reader.read(&mut self.buffer[self.end..]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock
                    ) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(self.end)
    }
}
