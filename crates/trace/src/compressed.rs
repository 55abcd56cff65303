//! Decompression of gzip, zstd, lz4 and xz, recognised by their magic numbers. All members, frames
//! or streams of a file are read, one after the other, as `cat` and the parallel compressors write
//! them.

use std::io::{self, BufReader, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// Decompresses the input if it is compressed; otherwise returns it as it is.
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

/// Limits each read from a decompressor to 4 KiB: if the input is broken, the decompressor loses
/// what it made in the failed call.
struct ShortReads<R>(R);

impl<R: Read> Read for ShortReads<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        const MOST: usize = 4096;
        let length = into.len().min(MOST);
        self.0.read(&mut into[..length])
    }
}

/// Reader of lz4 frames. Between two frames, and after the last, the decoder returns 0 bytes.
struct Lz4<R: Read>(lz4_flex::frame::FrameDecoder<R>);

impl<R: Read> Read for Lz4<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.0.read(into)? {
            0 => self.0.read(into),
            count => Ok(count),
        }
    }
}

/// Reader of zstd frames, with skippable frames (RFC 8878 §3.1.2) between them.
struct Zstd<R: Read> {
    /// Input between two frames.
    input: Option<Pushback<R>>,
    /// Decoder within a frame.
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

/// One zstd frame (RFC 8878 §3.1.1), in whole blocks. If the input ends within a block, the frame
/// is made to end with the block before: the decoder keeps a window of its output until the frame
/// ends, and without an end that window would be lost.
struct Blocks<R> {
    inner: R,
    /// Part of the frame that is being returned, and the position in it.
    part: Vec<u8>,
    at: usize,
    next: Part,
    has_checksum: bool,
    cut: bool,
}

/// Next part of a frame.
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

    /// Input after the frame.
    fn into_inner(self) -> io::Result<R> {
        if self.cut {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "zstd: ends within a block",
            ));
        }
        Ok(self.inner)
    }

    /// Appends `count` bytes to this part. True if the input had them all.
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
        // Magic number, then the descriptor that gives the length of the rest.
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

    /// Reads a block. True if the input had it all.
    fn block(&mut self) -> io::Result<bool> {
        if !self.more(3)? {
            return Ok(false);
        }
        let head = u32::from_le_bytes([self.part[0], self.part[1], self.part[2], 0]);
        // The size of an RLE block is the length of the run; one byte of input follows.
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
                // The decoder reports the error in an incomplete header.
                Part::Header => self.next = Part::Nothing,
                _ if is_whole => {}
                _ => {
                    // An empty last block, and a checksum, which the decoder does not verify.
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

/// Reader whose next bytes can be examined before they are read.
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

    /// Bytes examined and not yet read.
    fn held(&self) -> usize {
        self.end - self.at
    }

    /// Returns the next `N` bytes (limit 8), padded with 0 if the input has fewer.
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
