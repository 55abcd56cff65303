//! gzip, zstd and lz4, known by their magic: all members or frames of a file, as `cat` and the parallel
//! compressors write them one behind the other.

use std::io::{self, BufReader, Read};

use ruzstd::decoding::{FrameDecoder, StreamingDecoder};

/// The input behind its compression, if it has any.
pub(crate) fn decompressed<'r>(input: Box<dyn Read + 'r>) -> io::Result<Box<dyn Read + 'r>> {
    let mut whole = Pushback::new(input);
    let head = whole.peek::<4>()?;
    let compressed: Box<dyn Read + 'r> = match head {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] | [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Box::new(Zstd {
            input: Some(Pushback::new(BufReader::new(whole))),
            frame: None,
        }),
        [0x04, 0x22, 0x4d, 0x18] | [0x02, 0x21, 0x4c, 0x18] => {
            Box::new(Lz4(lz4_flex::frame::FrameDecoder::new(whole)))
        }
        _ => return Ok(Box::new(whole)),
    };
    Ok(Box::new(Steps(compressed)))
}

/// Asks a decompressor for little at a time: what it had made before it found the input broken goes
/// with the error.
struct Steps<R>(R);

impl<R: Read> Read for Steps<R> {
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
    frame: Option<Box<StreamingDecoder<Pushback<R>, FrameDecoder>>>,
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
                self.input = Some(frame.into_inner());
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
                    let frame = StreamingDecoder::new(input)
                        .map_err(|error| io::Error::other(format!("zstd: {error}")))?;
                    self.frame = Some(Box::new(frame));
                }
            }
        }
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
