//! Sources of the kernel's TCP; the larger mechanisms have files of their own.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use memmap2::{Mmap, MmapMut};
use rustix::net::SendFlags;
use rustix::pipe::PipeFlags;
use tcpcost_knobs::SendWith;

use crate::error::{StackError, call};
use crate::files::{Files, slice};
use crate::kernel::{Socket, zerocopy};
use crate::reader::Reader;
use crate::stack::{Completions, Content, Moved, Pages};

mod splice;
mod uring;

use splice::Splice;
use uring::{UringSend, UringSplice};

/// Payload that a [`super::KernelStack`] sends; its content never changes once made.
#[derive(Debug)]
pub struct KernelSource(Source);

#[derive(Debug)]
enum Source {
    Write(Mmap),
    Send(Mmap),
    /// MSG_ZEROCOPY lends pages to the kernel until their completion, and a write to them before
    /// that changes what is sent or retransmitted. These pages are mapped read-only and always hold
    /// the same bytes, so they may be lent any number of times at once. They are a separate
    /// mapping, not heap: after it is unmapped the kernel still holds its own references, and no
    /// allocator can reuse the pages.
    Zerocopy(Mmap),
    ReadWrite(Reader),
    ReadSend(Reader),
    MmapSend(Files),
    MmapZerocopy(Files),
    Sendfile(Files),
    Splice(Splice),
    UringSend(Box<UringSend>),
    UringSplice(Box<UringSplice>),
}

/// Makes a pipe for `bytes`, or as many as the kernel allows (fs.pipe-max-size, 1 MiB).
pub(super) fn pipe(bytes: usize) -> Result<(OwnedFd, OwnedFd), StackError> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (from, into) = rustix::pipe::pipe_with(flags).map_err(call("pipe2"))?;
    if bytes > 65536 {
        // A smaller pipe only makes more calls of fewer bytes, which the counts show.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, bytes.min(1 << 20));
    }
    Ok((from, into))
}

/// Makes a separate mapping that holds the content.
pub(crate) fn memory(content: &mut Content<'_>) -> Result<Mmap, StackError> {
    writable(content)?
        .make_read_only()
        .map_err(call("mprotect"))
}

fn writable(content: &mut Content<'_>) -> Result<MmapMut, StackError> {
    let len = usize::try_from(content.bytes)
        .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
        .map_err(call("mmap"))?;
    let mut map = MmapMut::map_anon(len).map_err(call("mmap"))?;
    (content.fill)(0, &mut map);
    Ok(map)
}

impl KernelSource {
    pub(super) fn new(
        with: SendWith,
        content: &mut Content<'_>,
    ) -> Result<KernelSource, StackError> {
        Ok(KernelSource(match with {
            SendWith::Write => Source::Write(memory(content)?),
            SendWith::Send => Source::Send(memory(content)?),
            SendWith::Zerocopy => Source::Zerocopy(memory(content)?),
            SendWith::ReadWrite => Source::ReadWrite(Reader::new(content)?),
            SendWith::ReadSend => Source::ReadSend(Reader::new(content)?),
            SendWith::MmapSend => Source::MmapSend(Files::on_disk(content)?),
            SendWith::MmapZerocopy => Source::MmapZerocopy(Files::on_disk(content)?),
            SendWith::Sendfile => Source::Sendfile(Files::on_disk(content)?),
            SendWith::SendfileMemfd => Source::Sendfile(Files::in_memory(content)?),
            SendWith::Splice => Source::Splice(Splice::new(content)?),
            SendWith::UringSend => Source::UringSend(UringSend::copying(writable(content)?)?),
            SendWith::UringSendZc => {
                Source::UringSend(UringSend::by_reference(writable(content)?)?)
            }
            SendWith::UringSplice => Source::UringSplice(UringSplice::new(content)?),
        }))
    }

    #[inline]
    pub(super) fn send(
        &mut self,
        socket: &mut Socket,
        completions: &mut Completions,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let mut flags = SendFlags::NOSIGNAL;
        if more {
            flags |= SendFlags::MORE;
        }
        // A short count means that the send buffer is full. The kernel has then noted that it must
        // report room (SOCK_NOSPACE), as it does with EAGAIN.
        let short_is_full = |bytes: usize| Moved {
            bytes,
            again: bytes == len,
        };
        match &mut self.0 {
            Source::Write(map) => {
                rustix::io::write(&socket.fd, slice(map, at, len)?).map(short_is_full)
            }
            Source::Send(map) => {
                rustix::net::send(&socket.fd, slice(map, at, len)?, flags).map(short_is_full)
            }
            Source::MmapSend(files) => {
                rustix::net::send(&socket.fd, files.mapped(at, len)?, flags).map(short_is_full)
            }
            Source::Zerocopy(map) => {
                return zerocopy::send(socket, completions, slice(map, at, len)?, flags)
                    .map(short_is_full);
            }
            Source::MmapZerocopy(files) => {
                return zerocopy::send(socket, completions, files.mapped(at, len)?, flags)
                    .map(short_is_full);
            }
            Source::ReadWrite(reader) => {
                let write = |bytes: &[u8]| Ok(rustix::io::write(&socket.fd, bytes)?);
                return reader.send(at, len, write).map(short_is_full);
            }
            Source::ReadSend(reader) => {
                let send = |bytes: &[u8]| Ok(rustix::net::send(&socket.fd, bytes, flags)?);
                return reader.send(at, len, send).map(short_is_full);
            }
            // In sendfile and splice a short count has other reasons, too (a pipe's slots).
            Source::Sendfile(files) => {
                let (file, mut offset) = files.file(at)?;
                rustix::fs::sendfile(&socket.fd, file, Some(&mut offset), len)
                    .map(|bytes| Moved { bytes, again: true })
            }
            Source::Splice(splice) => return splice.send(&socket.fd, at, len, more),
            Source::UringSend(uring) => {
                return uring
                    .send(socket.fd.as_fd(), completions, at, len, flags)
                    .map(short_is_full);
            }
            Source::UringSplice(splice) => {
                return splice.send(socket.fd.as_fd(), at, len, more);
            }
        }
        .map_err(io::Error::from)
    }

    /// Pages of the files sent from; `None` for a source in memory, or if mincore(2) fails.
    pub(super) fn pages(&self) -> Option<Pages> {
        let files = match &self.0 {
            Source::Write(_) | Source::Send(_) | Source::Zerocopy(_) | Source::UringSend(_) => {
                return None;
            }
            Source::MmapSend(files) | Source::MmapZerocopy(files) | Source::Sendfile(files) => {
                files
            }
            Source::ReadWrite(reader) | Source::ReadSend(reader) => reader.files(),
            Source::Splice(splice) => splice.files(),
            Source::UringSplice(splice) => splice.files(),
        };
        files.pages().ok()
    }
}
