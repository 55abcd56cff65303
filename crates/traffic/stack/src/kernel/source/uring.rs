//! io_uring: a submission and its completion for each call, so that a call is the same work as with
//! other sources. A server that submits for many connections at once saves system calls; that is
//! not measured here.

#![allow(
    unsafe_code,
    reason = "the ring's entries hold raw pointers and descriptors"
)]

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{IoUring, cqueue, opcode, squeue, types};
use memmap2::MmapMut;
use rustix::net::SendFlags;
use rustix::pipe::SpliceFlags;

use super::splice::HeldPipe;
use crate::error::{StackError, call};
use crate::files::{Files, slice};
use crate::stack::{Completions, Content, Moved};

/// IORING_SEND_ZC_REPORT_USAGE (linux/io_uring.h): the notification reports whether the data was
/// copied.
const REPORT_USAGE: u16 = 1 << 3;
/// IORING_NOTIF_USAGE_ZC_COPIED.
const COPIED: u32 = 1 << 31;

/// Makes a ring. Notifications of sends by reference come when the peer has acknowledged, so the
/// completion queue may need many entries.
fn ring(entries: u32, completions: u32) -> Result<IoUring, StackError> {
    IoUring::builder()
        .setup_cqsize(completions)
        .build(entries)
        .map_err(call("io_uring_setup"))
}

/// IORING_OP_SEND or IORING_OP_SEND_ZC from memory.
#[derive(Debug)]
pub(super) struct UringSend {
    // Declared before the memory, so that its registered buffers are dropped first.
    ring: Ring,
    map: MmapMut,
    is_by_reference: bool,
    /// Sends by reference whose notification has not come.
    outstanding: u64,
}

struct Ring(IoUring);

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("IoUring")
    }
}

impl UringSend {
    /// Makes a source that sends by IORING_OP_SEND.
    pub(super) fn copying(map: MmapMut) -> Result<Box<UringSend>, StackError> {
        Ok(Box::new(UringSend {
            ring: Ring(ring(2, 4)?),
            map,
            is_by_reference: false,
            outstanding: 0,
        }))
    }

    /// Makes a source that sends by IORING_OP_SEND_ZC (Linux 6.0) from a registered buffer, whose
    /// pages are looked up once.
    pub(super) fn by_reference(map: MmapMut) -> Result<Box<UringSend>, StackError> {
        let ring = ring(2, 4096)?;
        let buffer = libc::iovec {
            iov_base: map.as_ptr().cast_mut().cast(),
            iov_len: map.len(),
        };
        // SAFETY: the memory never changes (it is writable because the kernel requires that) and
        // outlives the ring: see the order of the fields.
        unsafe { ring.submitter().register_buffers(&[buffer]) }
            .map_err(call("io_uring_register of the buffer (RLIMIT_MEMLOCK?)"))?;
        Ok(Box::new(UringSend {
            ring: Ring(ring),
            map,
            is_by_reference: true,
            outstanding: 0,
        }))
    }

    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        completions: &mut Completions,
        at: u64,
        len: usize,
        flags: SendFlags,
    ) -> io::Result<usize> {
        let bytes = slice(&self.map, at, len)?;
        let (start, len) = (bytes.as_ptr(), bytes.len() as u32);
        let fd = types::Fd(socket.as_raw_fd());
        // A full send buffer must return an error, not wait in the ring.
        let flags = (flags | SendFlags::DONTWAIT).bits() as i32;
        let copying = || opcode::Send::new(fd, start, len).flags(flags).build();
        let entry = match self.is_by_reference {
            false => copying(),
            true => opcode::SendZc::new(fd, start, len)
                .buf_index(Some(0))
                .flags(flags)
                .zc_flags(REPORT_USAGE)
                .build(),
        };
        let mut result = self.complete(&entry, completions)?;
        // Same rule as in `zerocopy::send`: with none outstanding no notification would
        // come, so the bytes are sent by copy.
        if result == -libc::ENOBUFS || result == -libc::ENOMEM {
            if self.outstanding > 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            result = self.complete(&copying(), completions)?;
        }
        usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
    }

    /// Submits and returns the send's own result; counts notifications that came.
    fn complete(
        &mut self,
        entry: &squeue::Entry,
        completions: &mut Completions,
    ) -> io::Result<i32> {
        let ring = &mut self.ring.0;
        // SAFETY: the memory lives as long as the ring and never changes; the descriptor is open
        // until the send's own completion, which is waited for.
        unsafe { ring.submission().push(entry) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
        let mut result = None;
        loop {
            ring.submit_and_wait(1)?;
            for done in ring.completion() {
                if cqueue::notif(done.flags()) {
                    self.outstanding -= 1;
                    completions.sends += 1;
                    completions.copied += u64::from(done.result() as u32 & COPIED != 0);
                } else {
                    self.outstanding += u64::from(cqueue::more(done.flags()));
                    result = Some(done.result());
                }
            }
            if let Some(result) = result {
                return Ok(result);
            }
        }
    }
}

/// Two linked IORING_OP_SPLICE: file to pipe, pipe to socket. The kernel runs each on a worker
/// thread (REQ_F_FORCE_ASYNC in io_uring/splice.c).
#[derive(Debug)]
pub(super) struct UringSplice {
    ring: Ring,
    files: Files,
    pipe: HeldPipe,
}

impl UringSplice {
    pub(super) fn new(content: &mut Content<'_>) -> Result<Box<UringSplice>, StackError> {
        Ok(Box::new(UringSplice {
            ring: Ring(ring(2, 4)?),
            files: Files::on_disk(content)?,
            pipe: HeldPipe::new(content.call_bytes)?,
        }))
    }

    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        at: u64,
        len: usize,
        more: bool,
    ) -> io::Result<Moved> {
        let pipe = &mut self.pipe;
        pipe.make_ready(at, len)?;
        let flags = SpliceFlags::NONBLOCK | SpliceFlags::MOVE;
        let flags_out = match more {
            true => flags | SpliceFlags::MORE,
            false => flags,
        };
        let [from, into] = [&pipe.from, &pipe.into].map(|fd| types::Fd(fd.as_raw_fd()));
        let splice = |from, offset, into, len: usize, flags: SpliceFlags| {
            opcode::Splice::new(from, offset, into, -1, len as u32).flags(flags.bits())
        };
        let out = |len| splice(from, -1, types::Fd(socket.as_raw_fd()), len, flags_out).build();
        let ring = &mut self.ring.0;
        if pipe.held == 0 {
            let (file, offset) = self.files.file(at)?;
            let file = types::Fd(file.as_fd().as_raw_fd());
            let fill = splice(file, offset as i64, into, len, flags)
                .build()
                .flags(squeue::Flags::IO_LINK);
            let [filled, sent] = both(ring, [fill, out(len)])?;
            pipe.held = count(filled)?;
            pipe.held_at = at;
            // A pipe with fewer slots than the call has pages took less, which breaks the link.
            if sent != -libc::ECANCELED {
                return Ok(pipe.gave(count(sent)?));
            }
        }
        let held = pipe.held;
        Ok(pipe.gave(count(one(ring, out(held))?)?))
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }
}

fn count(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result))
}

fn one(ring: &mut IoUring, entry: squeue::Entry) -> io::Result<i32> {
    // SAFETY: all descriptors are open until the completion, which is waited for.
    unsafe { ring.submission().push(&entry) }.map_err(|_| io::ErrorKind::OutOfMemory)?;
    loop {
        ring.submit_and_wait(1)?;
        if let Some(done) = ring.completion().next() {
            return Ok(done.result());
        }
    }
}

/// Submits two entries and returns their results in the same order.
fn both(ring: &mut IoUring, entries: [squeue::Entry; 2]) -> io::Result<[i32; 2]> {
    for (place, entry) in (0..).zip(entries) {
        // SAFETY: as in `one`.
        unsafe { ring.submission().push(&entry.user_data(place)) }
            .map_err(|_| io::ErrorKind::OutOfMemory)?;
    }
    let mut results = [None, None];
    loop {
        ring.submit_and_wait(1)?;
        for done in ring.completion() {
            results[done.user_data() as usize] = Some(done.result());
        }
        if let [Some(first), Some(second)] = results {
            return Ok([first, second]);
        }
    }
}
