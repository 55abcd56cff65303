//! The six ways to send.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::OwnedFd;

use memmap2::{Mmap, MmapMut};
use rustix::fs::MemfdFlags;
use rustix::net::SendFlags;
use rustix::pipe::{PipeFlags, SpliceFlags};
use tcpcost_study::SendWith;

use crate::error::{StackError, call};
use crate::kernel::{Socket, zerocopy};
use crate::stack::{Completions, Moved};

/// What a [`super::KernelStack`] sends from; its content never changes once made.
#[derive(Debug)]
pub struct KernelSource(Source);

#[derive(Debug)]
enum Source {
    Write(Mmap),
    Send(Mmap),
    /// MSG_ZEROCOPY lends pages to the kernel until it says that it is done, and whoever writes to
    /// them before that changes what is sent or retransmitted. These are mapped read-only and
    /// always hold the same bytes, so they may be lent any number of times at once. They are a
    /// mapping of their own, not heap: after it is unmapped the kernel still holds its own
    /// references, and no allocator can give the pages to somebody who writes.
    Zerocopy(Mmap),
    Sendfile(OwnedFd),
    Splice(Splice),
}

/// File pages go into the pipe, the pipe goes into the socket.
#[derive(Debug)]
struct Splice {
    file: OwnedFd,
    from: OwnedFd,
    into: OwnedFd,
    null: File,
    /// What the last socket did not take, still in the pipe: bytes of the file from `held_at`.
    /// It serves any connection that goes on from there, as the content depends on the offset alone.
    held: usize,
    held_at: u64,
}

/// A pipe that holds `bytes` if the kernel allows (fs.pipe-max-size, 1 MiB), or what it does.
pub(super) fn pipe(bytes: usize) -> Result<(OwnedFd, OwnedFd), StackError> {
    let flags = PipeFlags::CLOEXEC | PipeFlags::NONBLOCK;
    let (from, into) = rustix::pipe::pipe_with(flags).map_err(call("pipe2"))?;
    if bytes > 65536 {
        // A smaller pipe only makes more calls of fewer bytes, which the counts show.
        let _ = rustix::pipe::fcntl_setpipe_size(&into, bytes.min(1 << 20));
    }
    Ok((from, into))
}

impl KernelSource {
    pub(super) fn new(
        with: SendWith,
        len: u64,
        write_bytes: usize,
        fill: &mut dyn FnMut(u64, &mut [u8]),
    ) -> Result<KernelSource, StackError> {
        let mut memory = || -> Result<Mmap, StackError> {
            let len = usize::try_from(len)
                .map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))
                .map_err(call("mmap"))?;
            let mut map = MmapMut::map_anon(len).map_err(call("mmap"))?;
            fill(0, &mut map);
            map.make_read_only().map_err(call("mprotect"))
        };
        Ok(KernelSource(match with {
            SendWith::Write => Source::Write(memory()?),
            SendWith::Send => Source::Send(memory()?),
            SendWith::Zerocopy => Source::Zerocopy(memory()?),
            SendWith::Sendfile => Source::Sendfile(disk_file(len, fill)?),
            SendWith::SendfileMemfd => {
                let memfd = rustix::fs::memfd_create("tcpcost", MemfdFlags::CLOEXEC)
                    .map_err(call("memfd_create"))?;
                Source::Sendfile(filled(File::from(memfd), len, fill)?)
            }
            SendWith::Splice => {
                let (from, into) = pipe(write_bytes)?;
                Source::Splice(Splice {
                    file: disk_file(len, fill)?,
                    from,
                    into,
                    null: File::options()
                        .write(true)
                        .open("/dev/null")
                        .map_err(call("open /dev/null"))?,
                    held: 0,
                    held_at: 0,
                })
            }
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
        // A short count means that the send buffer is full; the kernel has then noted that it must
        // tell when there is room (SOCK_NOSPACE), just as it does with EAGAIN.
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
            Source::Zerocopy(map) => {
                return zerocopy::send(socket, completions, slice(map, at, len)?, flags)
                    .map(short_is_full);
            }
            // Inside sendfile and splice a short count has other reasons too (a pipe's slots).
            Source::Sendfile(file) => {
                let mut offset = at;
                rustix::fs::sendfile(&socket.fd, file, Some(&mut offset), len)
                    .map(|bytes| Moved { bytes, again: true })
            }
            Source::Splice(splice) => splice.send(socket, at, len, more),
        }
        .map_err(io::Error::from)
    }
}

impl Splice {
    fn send(
        &mut self,
        socket: &Socket,
        at: u64,
        len: usize,
        more: bool,
    ) -> rustix::io::Result<Moved> {
        let mut flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        if self.held_at != at || self.held > len {
            while self.held > 0 {
                self.held -=
                    rustix::pipe::splice(&self.from, None, &self.null, None, self.held, flags)?;
            }
        }
        if self.held == 0 {
            let mut offset = at;
            self.held =
                rustix::pipe::splice(&self.file, Some(&mut offset), &self.into, None, len, flags)?;
            self.held_at = at;
        }
        if more {
            flags |= SpliceFlags::MORE;
        }
        let bytes = rustix::pipe::splice(&self.from, None, &socket.fd, None, self.held, flags)?;
        self.held -= bytes;
        self.held_at += bytes as u64;
        Ok(Moved { bytes, again: true })
    }
}

/// The bytes of one call. A range outside of the source is the caller's mistake, and an error.
#[inline]
fn slice(map: &Mmap, at: u64, len: usize) -> io::Result<&[u8]> {
    usize::try_from(at)
        .ok()
        .and_then(|at| map.get(at..at.checked_add(len)?))
        .ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput))
}

/// In the temporary directory (TMPDIR), without a name from the start, so nothing is left behind.
fn disk_file(len: u64, fill: &mut dyn FnMut(u64, &mut [u8])) -> Result<OwnedFd, StackError> {
    let file = tempfile::tempfile().map_err(call("open a file in the temporary directory"))?;
    filled(file, len, fill)
}

fn filled(
    mut file: File,
    len: u64,
    fill: &mut dyn FnMut(u64, &mut [u8]),
) -> Result<OwnedFd, StackError> {
    let mut chunk = vec![0; 1 << 20];
    let mut at = 0;
    while at < len {
        let part = usize::try_from(len - at).map_or(chunk.len(), |left| left.min(chunk.len()));
        fill(at, &mut chunk[..part]);
        file.write_all(&chunk[..part])
            .map_err(call("write the file to send from"))?;
        at += part as u64;
    }
    Ok(file.into())
}
