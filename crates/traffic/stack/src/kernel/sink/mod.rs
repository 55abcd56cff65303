//! Sinks of the kernel's TCP.

use std::fs::File;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::net::RecvFlags;
use rustix::pipe::SpliceFlags;
use tcpcost_knobs::ReceiveWith;

use crate::error::{StackError, call};
use crate::kernel::source::pipe;
use crate::stack::{Completions, Moved};

mod mapped;

/// Destination of payload that a [`super::KernelStack`] receives. One per worker: its buffer stays
/// in the cache, whatever the number of connections.
#[derive(Debug)]
pub struct KernelSink(Sink);

#[derive(Debug)]
enum Sink {
    Read(Vec<u8>),
    /// The buffer only gives the length: TCP drops the bytes and never writes to it.
    Trunc(Vec<u8>),
    Zerocopy(mapped::Mapped),
    Splice {
        into: OwnedFd,
        from: OwnedFd,
        null: File,
        len: usize,
    },
}

impl KernelSink {
    pub(super) fn new(with: ReceiveWith, read_bytes: usize) -> Result<KernelSink, StackError> {
        Ok(KernelSink(match with {
            ReceiveWith::Read => Sink::Read(vec![0; read_bytes]),
            ReceiveWith::RecvTrunc => Sink::Trunc(vec![0; read_bytes]),
            ReceiveWith::Zerocopy => Sink::Zerocopy(mapped::Mapped::new(read_bytes)),
            ReceiveWith::Splice => {
                let (from, into) = pipe(read_bytes)?;
                let null = File::options()
                    .write(true)
                    .open("/dev/null")
                    .map_err(call("open /dev/null"))?;
                Sink::Splice {
                    into,
                    from,
                    null,
                    len: read_bytes,
                }
            }
        }))
    }

    /// Receives once. A buffer that was not filled means that the socket is empty now: later bytes
    /// are a new edge. A FIN that came with those bytes is no new edge;
    /// [`crate::Ready::peer_closed`] reports it.
    #[inline]
    pub(super) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        completions: &mut Completions,
    ) -> io::Result<Moved> {
        match &mut self.0 {
            Sink::Zerocopy(mapped) => mapped.receive(fd, completions),
            Sink::Read(buffer) => {
                let len = buffer.len();
                let bytes = rustix::io::read(fd, &mut buffer[..])?;
                Ok(Moved {
                    bytes,
                    again: bytes == len,
                })
            }
            Sink::Trunc(buffer) => {
                let len = buffer.len();
                let (_, bytes) = rustix::net::recv(fd, &mut buffer[..], RecvFlags::TRUNC)?;
                Ok(Moved {
                    bytes,
                    again: bytes == len,
                })
            }
            Sink::Splice {
                into,
                from,
                null,
                len,
            } => {
                let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
                let bytes = rustix::pipe::splice(fd, None, into, None, *len, flags)?;
                let mut left = bytes;
                while left > 0 {
                    left -= rustix::pipe::splice(&from, None, &null, None, left, flags)?;
                }
                // A short splice may also mean that the pipe ran out of slots.
                Ok(Moved { bytes, again: true })
            }
        }
    }

    #[inline]
    pub(super) fn received(&self, bytes: usize) -> Option<&[u8]> {
        match &self.0 {
            Sink::Read(buffer) => buffer.get(..bytes),
            Sink::Trunc(_) | Sink::Zerocopy(_) | Sink::Splice { .. } => None,
        }
    }
}
