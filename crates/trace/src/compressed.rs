//! gzip, zstd, lz4 and xz, known by their magic: all members, frames or streams of a file, as `cat` and
//! the parallel compressors write them one behind the other.

use std::io::{self, BufReader, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The input behind its compression, if it has any.
pub(crate) fn decompressed<'r>(input: Box<dyn Read + 'r>) -> io::Result<Box<dyn Read + 'r>> {
    let mut whole = Pushback::new(input);
    let head = whole.peek::<6>()?;
    let compressed: Box<dyn Read + 'r> = match head {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Box::new(Zstd {
            input: Some(Pushback::new(BufReader::new(whole))),
            frame: None,
        }),
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => {
            Box::new(Lz4(lz4_flex::frame::FrameDecoder::new(whole)))
        }
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Box::new(lzma_rust2::XzReader::new(BufReader::new(whole), true))
        }
        _ => return Ok(Box::new(whole)),
    };
    Ok(Box::new(ShortReads(compressed)))
}

/// Asks a decompressor for little at a time: what it had made before it found the input broken goes
/// with the error.
struct ShortReads<R>(R);

impl<R: Read> Read for ShortReads<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        const MOST: usize = 4096;
        let length = into.len().min(MOST);
        self.0.read(&mut into[..length])
    }
}

/// Frames of lz4: between two of them, and behind the last, it reads nothing.
struct Lz4<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => self.0.read(into),
            count => Ok(count),
        }
    }
}

/// Frames of zstd, and skippable ones (RFC 8878 §3.1.2) between them.
struct Zstd<R: Read> {
    /// Between two frames.
    input: Option<Pushback<R>>,
    /// Within one.
    frame: Option<Box<StreamingDecoder<Blocks<Pushback<R>>, FrameDecoder>>>,
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut frame) = self.frame.take() {
                let count = frame.read(into)?;
                if count > 0 || into.is_empty() {
                    self.frame = Some(frame);
                    return Ok(count);
                }
                self.input = Some(frame.into_inner().into_inner()?);
            }
            let Some(mut input) = self.input.take() else {
                return Ok(0);
            };
            match input.peek::<8>()? {
                [0, ..] if input.held() == 0 => return Ok(0),
                [0x50..=0x5f, 0x2a, 0x4d, 0x18, a, b, c, d] => {
                    let length = 8 + u64::from(u32::from_le_bytes([a, b, c, d]));
                    if io::copy(&mut input.by_ref().take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                    self.input = Some(input);
                }
                _ => {
                    let frame = StreamingDecoder::new(Blocks::new(input))
                        .map_err(|error| io::Error::other(format!("zstd: {error}")))?;
                    self.frame = Some(Box::new(frame));
                }
            }
        }
    }
}

/// One frame of zstd (RFC 8878 §3.1.1), whole blocks of it: where the input ends within one, the frame
/// ends with the block before. The decoder keeps a window of what it made until the frame ends, so
/// without that end as much would be lost.
struct Blocks<R> {
    inner: R,
    /// The part that is given out, and how far it is.
    part: Vec<u8>,
    at: usize,
    next: Part,
    has_checksum: bool,
    cut: bool,
}

/// What comes next of a frame.
#[derive(PartialEq)]
enum Part {
    Header,
    Block,
    Nothing,
}

impl<R: Read> Blocks<R> {
    fn new(inner: R) -> Blocks<R> {
        Blocks {
            inner,
            part: Vec::new(),
            at: 0,
            next: Part::Header,
            has_checksum: false,
            cut: false,
        }
    }

    /// What stands behind the frame.
    fn into_inner(self) -> io::Result<R> {
        if self.cut {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "zstd: ends within a block",
            ));
        }
        Ok(self.inner)
    }

    /// Reads so many bytes more of this part; tells whether they were there.
    fn more(&mut self, count: usize) -> io::Result<bool> {
        let wanted = count as u64;
        let got = self
            .inner
            .by_ref()
            .take(wanted)
            .read_to_end(&mut self.part)?;
        Ok(got == count)
    }

    fn header(&mut self) -> io::Result<bool> {
        // Magic, then the descriptor that tells the length of the rest.
        if !self.more(5)? {
            return Ok(false);
        }
        let descriptor = self.part[4];
        let single_segment = descriptor & 0x20 != 0;
        let dictionary = [0, 1, 2, 4][usize::from(descriptor & 3)];
        let content_size = match descriptor >> 6 {
            0 => usize::from(single_segment),
            field => 1 << field,
        };
        self.has_checksum = descriptor & 4 != 0;
        self.more(usize::from(!single_segment) + dictionary + content_size)
    }

    /// A block; tells whether it is whole.
    fn block(&mut self) -> io::Result<bool> {
        if !self.more(3)? {
            return Ok(false);
        }
        let head = u32::from_le_bytes([self.part[0], self.part[1], self.part[2], 0]);
        // Of a run of one byte the size is that of the run.
        let is_run = head >> 1 & 3 == 1;
        let size = if is_run { 1 } else { (head >> 3) as usize };
        let checksum = if head & 1 != 0 && self.has_checksum {
            4
        } else {
            0
        };
        if head & 1 != 0 {
            self.next = Part::Nothing;
        }
        self.more(size + checksum)
    }
}

impl<R: Read> Read for Blocks<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.at == self.part.len() {
            self.part.clear();
            self.at = 0;
            let is_whole = match self.next {
                Part::Nothing => return Ok(0),
                Part::Header => self.header()?,
                Part::Block => self.block()?,
            };
            match self.next {
                Part::Header if is_whole => self.next = Part::Block,
                // The decoder says what is wrong with half a header.
                Part::Header => self.next = Part::Nothing,
                _ if is_whole => {}
                _ => {
                    // An empty last block, and a checksum that nobody looks at.
                    self.part.clear();
                    self.part.extend([1, 0, 0]);
                    let checksum = if self.has_checksum { 4 } else { 0 };
                    self.part.resize(3 + checksum, 0);
                    (self.next, self.cut) = (Part::Nothing, true);
                }
            }
        }
        let count = into.len().min(self.part.len() - self.at);
        into[..count].copy_from_slice(&self.part[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}

/// A reader whose next bytes can be looked at.
struct Pushback<R> {
    head: [u8; 8],
    at: usize,
    end: usize,
    inner: R,
}

impl<R: Read> Pushback<R> {
    fn new(inner: R) -> Pushback<R> {
        Pushback {
            head: [0; 8],
            at: 0,
            end: 0,
            inner,
        }
    }

    /// Bytes that were looked at and not read.
    fn held(&self) -> usize {
        self.end - self.at
    }

    /// The next bytes, 8 at most; 0 where there are fewer.
    fn peek<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.head.copy_within(self.at..self.end, 0);
        (self.at, self.end) = (0, self.end - self.at);
        while self.end < N {
            match self.inner.read(&mut self.head[self.end..N]) {
                Ok(0) => break,
                Ok(count) => self.end += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        self.head[self.end..].fill(0);
        let mut next = [0; N];
        next.copy_from_slice(&self.head[..N]);
        Ok(next)
    }
}

impl<R: Read> Read for Pushback<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if self.held() == 0 {
            return self.inner.read(into);
        }
        let count = self.held().min(into.len());
        into[..count].copy_from_slice(&self.head[self.at..self.at + count]);
        self.at += count;
        Ok(count)
    }
}
