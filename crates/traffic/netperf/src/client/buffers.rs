//! The buffers of a test: data to send, space to receive into.

use std::fs::File;
use std::io::{self, Read, Write};

use crate::Failure;
use crate::net::socket::Sizes;
use crate::options::{Direction, Options, Transport};
use crate::traffic;

/// Buffers of one test.
pub(super) struct Buffers {
    pub(super) send: Vec<u8>,
    pub(super) receive: Vec<u8>,
    pub(super) file: Option<File>,
}

/// Limit on the length of a buffer.
const BUFFER_MAX: usize = 1 << 30;

/// Largest datagram of UDP over IPv4, bytes.
const DATAGRAM_MAX: i32 = 65_535 - 20 - 8;

impl Buffers {
    pub(super) fn new(options: &Options, sizes: Sizes) -> Result<Buffers, Failure> {
        let length = |asked: i32, or: i32| {
            let length = if asked > 0 { asked } else { or };
            usize::try_from(length)
                .ok()
                .filter(|length| (1..=BUFFER_MAX).contains(length))
                .ok_or_else(|| {
                    Failure::usage(format!(
                        "a buffer of {length} bytes: expected 1 byte to 1 GiB"
                    ))
                })
        };
        let asked = |size: Option<i32>| size.unwrap_or(-1);
        let (send, receive) = match options.direction {
            Direction::Send => {
                let default = match options.transport {
                    Transport::Tcp => sizes.send,
                    Transport::Udp => sizes.send.min(DATAGRAM_MAX),
                };
                (length(asked(options.send_size.local), default)?, 0)
            }
            Direction::Receive => (0, length(asked(options.receive_size.local), sizes.receive)?),
            Direction::Both => (length(options.request, 1)?, length(options.response, 1)?),
        };
        let mut buffers = Buffers {
            send: traffic::filler(send),
            receive: vec![0; receive],
            file: None,
        };
        let from = options.fill.as_ref();
        let failed = |error: io::Error| {
            let name = from.map_or("a file in memory".to_string(), |path| {
                path.display().to_string()
            });
            Failure::usage(format!("-F {name}: {error}"))
        };
        if let Some(path) = from {
            let file = File::open(path).map_err(failed)?;
            fill(&mut buffers.send, &file).map_err(failed)?;
        }
        if options.test.sends_file {
            // A file that sendfile refuses, such as /dev/urandom, is sent from memory.
            let flags = rustix::fs::MemfdFlags::CLOEXEC;
            let memory =
                rustix::fs::memfd_create("netperf", flags).map_err(|error| failed(error.into()))?;
            let mut file = File::from(memory);
            file.write_all(&buffers.send).map_err(failed)?;
            buffers.file = Some(file);
        }
        Ok(buffers)
    }
}

/// Fills a buffer from a file, and repeats the file if it is shorter than the buffer.
fn fill(buffer: &mut [u8], mut file: &File) -> io::Result<()> {
    let mut have = 0;
    while have < buffer.len() {
        match file.read(&mut buffer[have..])? {
            0 if have == 0 => return Err(io::Error::other("is empty")),
            0 => {
                let (whole, rest) = buffer.split_at_mut(have);
                rest.iter_mut()
                    .zip(whole.iter().cycle())
                    .for_each(|(to, from)| *to = *from);
                return Ok(());
            }
            more => have += more,
        }
    }
    Ok(())
}
