//! The bytes of a capture as they come, behind a buffer that readers look into without copying.
//!
//! No mmap: a pipe has none, a file that shrinks under one kills the process, and a copy of 256 KiB
//! that stays in the cache costs under a tenth of the analysis.

use std::io::{self, Read};

use crate::read::{Reading, Sink};

/// A window over the bytes of a reader.
pub(crate) struct Bytes<R> {
    reader: R,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes before `start`.
    offset: u64,
    stopped: bool,
}

/// What one look asks at most: no packet or block is longer.
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

    /// What is there.
    #[inline]
    pub(crate) fn held(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Goes on behind the first `count` bytes held.
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

    /// Whether the sink ended the reading.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Reads until `want` bytes are held, or the input or the sink ends it; tells how many are.
    ///
    /// # Errors
    /// What the reader says, but [`io::ErrorKind::WouldBlock`]: nothing more is there yet.
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
