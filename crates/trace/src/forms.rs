//! Reader of captures in any known format. The first bytes decide the format.

use std::io::Read;

use crate::bytes::Bytes;
use crate::compressed::decompressed;
use crate::read::{CaptureFormat, ReadFailure, Reading, Sink};
use crate::{pcap, pcapng, tcpdump};

/// Reads a capture to its end: pcap, pcapng or tcpdump's text, uncompressed or compressed by gzip,
/// zstd, lz4 or xz. The first bytes decide each. No seek is needed, so a pipe will do.
///
/// Returns what was read, and why reading stopped if it stopped before the end.
pub fn read<'r>(input: impl Read + 'r, sink: &mut impl Sink) -> (Reading, Result<(), ReadFailure>) {
    let mut reading = Reading::default();
    let outcome = decompressed(Box::new(input))
        .map_err(|error| ReadFailure::io(0, &error))
        .and_then(|input| read_plain(Bytes::new(input), sink, &mut reading));
    (reading, outcome)
}

/// Reads a capture that is still being written, like [`read`] but without decompression: a
/// compressor holds its input back, so a packet would appear in its file long after it passed.
///
/// The input may return [`WouldBlock`](std::io::ErrorKind::WouldBlock) now and then, which gives
/// the sink its turn.
pub fn follow(input: impl Read, sink: &mut impl Sink) -> (Reading, Result<(), ReadFailure>) {
    let mut reading = Reading::default();
    let outcome = read_plain(Bytes::new(input), sink, &mut reading);
    (reading, outcome)
}

fn read_plain<R: Read>(
    mut bytes: Bytes<R>,
    sink: &mut impl Sink,
    reading: &mut Reading,
) -> Result<(), ReadFailure> {
    bytes
        .fill(4, sink, reading)
        .map_err(|error| ReadFailure::io(0, &error))?;
    let outcome = match bytes.held() {
        [] => Err(ReadFailure::new(0, "empty")),
        held if pcap::Order::of(held).is_some() => {
            reading.form = Some(CaptureFormat::Pcap);
            pcap::read(&mut bytes, sink, reading)
        }
        [0x0a, 0x0d, 0x0d, 0x0a, ..] => {
            reading.form = Some(CaptureFormat::Pcapng);
            pcapng::read(&mut bytes, sink, reading)
        }
        held if held
            .iter()
            .all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()) =>
        {
            reading.form = Some(CaptureFormat::TcpdumpText);
            tcpdump::read(&mut bytes, sink, reading)
        }
        [0x1f, 0x8b, ..]
        | [0x28, 0xb5, 0x2f, 0xfd, ..]
        | [0x04, 0x22, 0x4d, 0x18, ..]
        | [0xfd, b'7', b'z', b'X', ..] => Err(ReadFailure::new(
            0,
            "compressed once more, or followed: decompress it first",
        )),
        [b's', b'n', b'o', b'o', b'p', ..] => Err(ReadFailure::new(
            0,
            "snoop's form is not read: editcap -F pcap makes it a pcap",
        )),
        held => {
            let magic: String = held
                .iter()
                .take(4)
                .map(|byte| format!("{byte:02x}"))
                .collect();
            let what = format!("neither pcap, pcapng nor tcpdump's text: begins with {magic}");
            Err(ReadFailure::new(0, what))
        }
    };
    reading.bytes = bytes.offset();
    // If the sink stopped the reading, that may be within a packet: no error.
    if bytes.stopped() { Ok(()) } else { outcome }
}
