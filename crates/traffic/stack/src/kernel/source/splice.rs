//! splice(2): file pages go into a pipe, the pipe goes into the socket.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::pipe::SpliceFlags;

use super::pipe;
use crate::error::{StackError, call};
use crate::files::Files;
use crate::stack::{Content, Moved};

#[derive(Debug)]
pub(super) struct Splice {
    files: Files,
    pipe: HeldPipe,
}

/// A pipe, and the position of the bytes in it.
#[derive(Debug)]
pub(super) struct HeldPipe {
    pub(super) from: OwnedFd,
    pub(super) into: OwnedFd,
    null: File,
    /// Bytes that the last socket did not take and that are still in the pipe: content from
    /// `held_at`. They serve any connection that continues there, because the content depends on
    /// the offset alone.
    pub(super) held: usize,
    pub(super) held_at: u64,
}

impl HeldPipe {
    pub(super) fn new(bytes: usize) -> Result<HeldPipe, StackError> {
        let (from, into) = pipe(bytes)?;
        let null = File::options()
            .write(true)
            .open("/dev/null")
            .map_err(call("open /dev/null"))?;
        Ok(HeldPipe {
            from,
            into,
            null,
            held: 0,
            held_at: 0,
        })
    }

    /// Empties the pipe unless it holds the first bytes of the `len` bytes from `at`.
    pub(super) fn make_ready(&mut self, at: u64, len: usize) -> io::Result<()> {
        if self.held_at != at || self.held > len {
            while self.held > 0 {
                self.held -=
                    rustix::pipe::splice(&self.from, None, &self.null, None, self.held, FLAGS)?;
            }
        }
        Ok(())
    }

    /// Notes that `bytes` of the pipe were sent.
    pub(super) fn gave(&mut self, bytes: usize) -> Moved {
        self.held -= bytes;
        self.held_at += bytes as u64;
        // A short count has other reasons than a full send buffer, too: a pipe's slots.
        Moved { bytes, again: true }
    }
}

const FLAGS: SpliceFlags = SpliceFlags::NONBLOCK.union(SpliceFlags::MOVE);

impl Splice {
    pub(super) fn new(content: &mut Content<'_>) -> Result<Splice, StackError> {
        Ok(Splice {
            files: Files::on_disk(content)?,
            pipe: HeldPipe::new(content.call_bytes)?,
        })
    }

    pub(super) fn send(
        &mut self,
        socket: impl AsFd,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let pipe = &mut self.pipe;
        pipe.make_ready(at, len)?;
        if pipe.held == 0 {
            let (file, mut offset) = self.files.file(at)?;
            pipe.held =
                rustix::pipe::splice(file, Some(&mut offset), &pipe.into, None, len, FLAGS)?;
            pipe.held_at = at;
        }
        let flags = match more {
            true => FLAGS | SpliceFlags::MORE,
            false => FLAGS,
        };
        let bytes = rustix::pipe::splice(&pipe.from, None, socket, None, pipe.held, flags)?;
        Ok(pipe.gave(bytes))
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }
}
