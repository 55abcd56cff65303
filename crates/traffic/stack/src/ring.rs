//! A ring of io_uring: its operations, its receive buffers, and completions. It knows descriptors,
//! addresses and the caller's tokens, and no connections.
//!
//! Memory that an operation in flight uses belongs to the ring until the operation completes:
//! buffers by number, sources that it keeps, boxes that the caller handed over. So nothing can be
//! freed while the kernel uses it.

#![allow(
    unsafe_code,
    reason = "operations in flight refer to memory and descriptors by number"
)]

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use memmap2::Mmap;
use rustix::net::addr::{SocketAddrArg, SocketAddrOpaque};
use rustix::net::{SendFlags, SocketFlags};

use crate::buffer_ring::BufferRing;
use crate::error::{StackError, call};
use crate::files::slice;

/// Completion of an operation.
#[derive(Debug, Clone, Copy)]
pub struct RingCompletion {
    /// Token that the operation was given.
    pub token: u64,
    /// Result of the system call; negative: an error number.
    pub result: i32,
    /// Buffer with the received bytes. The caller owns it until [`Ring::give_back`].
    pub buffer: Option<u16>,
    /// True if the operation will complete again.
    pub goes_on: bool,
    /// True if the socket has more bytes to receive.
    pub has_more: bool,
}

/// Bytes of a source, which the ring keeps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Piece {
    at: usize,
    len: u32,
    flags: SendFlags,
}

/// A ring and the memory that its operations use. The thread that first submits an operation is its
/// only user from then on.
pub struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<BufferRing>,
    /// Sources to send from.
    sources: ManuallyDrop<Vec<Arc<Mmap>>>,
    /// Boxes to send from, by token.
    boxes: ManuallyDrop<HashMap<u64, Box<[u8]>>>,
    enabled: bool,
    calls: u64,
    operations: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ring").field(&self.ring.as_raw_fd()).finish()
    }
}

impl Piece {
    /// Rest of the piece after `taken` bytes; `None` if nothing is left.
    pub(crate) fn after(self, taken: u32) -> Option<Piece> {
        (taken < self.len).then_some(Piece {
            at: self.at + taken as usize,
            len: self.len - taken,
            ..self
        })
    }
}

impl Ring {
    /// Makes a ring that receives into `count` buffers, a power of two, of `size` bytes each.
    ///
    /// # Errors
    /// The kernel is older than 6.1, or io_uring is forbidden (sysctl kernel.io_uring_disabled,
    /// seccomp).
    pub fn new(count: u16, size: usize) -> Result<Ring, StackError> {
        // Disabled until the first call, so that the thread that makes the ring need not be the one
        // that uses it.
        let ring = IoUring::builder()
            .setup_cqsize(8 * ENTRIES)
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
            .map_err(call("io_uring_setup"))?;
        let buffers = BufferRing::new(count, size).map_err(call("mmap"))?;
        // SAFETY: the buffers are dropped after the ring, and not at all while an operation may be
        // in flight (see `Drop`).
        unsafe { buffers.register(&ring.submitter(), GROUP) }
            .map_err(call("io_uring_register of buffers"))?;
        Ok(Ring {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            sources: ManuallyDrop::default(),
            boxes: ManuallyDrop::default(),
            enabled: false,
            calls: 0,
            operations: 0,
        })
    }

    /// Buffers that the kernel may use now.
    pub fn free(&self) -> usize {
        self.buffers.free()
    }

    /// Calls of io_uring_enter(2) so far.
    pub fn calls(&self) -> u64 {
        self.calls
    }

    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Bytes of a buffer.
    #[inline]
    pub fn bytes(&self, buffer: u16, range: Range<usize>) -> &[u8] {
        self.buffers.bytes(buffer, range)
    }

    /// Returns a buffer to the kernel.
    #[inline]
    pub fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Keeps a source as long as bytes of it may be sent.
    pub(crate) fn keep(&mut self, source: &Arc<Mmap>) {
        self.sources.push(Arc::clone(source));
    }

    /// Piece of a source that the ring keeps.
    #[inline]
    pub(crate) fn piece(source: &Mmap, at: u64, len: usize, more: bool) -> io::Result<Piece> {
        let bytes = slice(source, at, len)?;
        let more = match more {
            true => SendFlags::MORE,
            false => SendFlags::empty(),
        };
        Ok(Piece {
            at: bytes.as_ptr() as usize,
            len: u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
            flags: more | SendFlags::NOSIGNAL,
        })
    }

    /// Sends as much of a piece as there is room for. A complete send has no completion.
    #[inline]
    pub(crate) fn send(&mut self, socket: impl AsFd, piece: Piece, token: u64) {
        let flags = piece.flags | SendFlags::DONTWAIT;
        let entry = send(&socket, piece.at as *const u8, piece.len, flags, WAIT_ALL);
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// Sends a piece, waiting for room.
    pub(crate) fn send_rest(&mut self, socket: impl AsFd, piece: Piece, token: u64) {
        let flags = piece.flags;
        let entry = send(&socket, piece.at as *const u8, piece.len, flags, WAIT_ALL);
        self.push(entry, token);
    }

    /// Sends part of a buffer, as much as there is room for. `then_next`: the next operation begins
    /// when all bytes were sent, and is cancelled otherwise.
    pub fn send_buffer(
        &mut self,
        socket: impl AsFd,
        buffer: u16,
        range: Range<usize>,
        then_next: bool,
        token: u64,
    ) {
        let bytes = self.bytes(buffer, range);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let mut entry = send(&socket, bytes.as_ptr(), bytes.len() as u32, flags, WAIT_ALL);
        if then_next {
            entry = entry.flags(squeue::Flags::IO_LINK);
            // A link must not be split between two submissions.
            self.make_room(2);
        }
        self.push(entry, token);
    }

    /// Sends from a box as soon as there is room for a part. The ring owns the box until
    /// [`Ring::take_box`].
    pub fn send_box(&mut self, socket: impl AsFd, bytes: Box<[u8]>, from: usize, token: u64) {
        let rest = &bytes[from..];
        let flags = SendFlags::NOSIGNAL;
        let entry = send(&socket, rest.as_ptr(), rest.len() as u32, flags, 0);
        self.boxes.insert(token, bytes);
        self.push(entry, token);
    }

    /// Removes the box of a completed operation.
    pub fn take_box(&mut self, token: u64) -> Option<Box<[u8]>> {
        self.boxes.remove(&token)
    }

    /// Receives up to `most` bytes into a buffer. `waits`: the socket is known to be empty, so the
    /// kernel polls first.
    pub fn receive(&mut self, socket: impl AsFd, most: usize, waits: bool, token: u64) {
        let entry = opcode::Recv::new(fd(&socket), std::ptr::null_mut(), most as u32)
            .buf_group(GROUP)
            .ioprio(if waits { POLL_FIRST } else { 0 })
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push(entry, token);
    }

    /// Receives into buffers, again and again (multishot).
    pub(crate) fn receive_all(&mut self, socket: impl AsFd, token: u64) {
        self.push(opcode::RecvMulti::new(fd(&socket), GROUP).build(), token);
    }

    /// Completes once when the descriptor is readable.
    pub fn poll(&mut self, descriptor: impl AsFd, token: u64) {
        let events = libc::POLLIN | libc::POLLRDHUP;
        let entry = opcode::PollAdd::new(fd(&descriptor), events as u32).build();
        self.push(entry, token);
    }

    /// Accepts connections of a listener (multishot).
    pub(crate) fn accept(&mut self, listener: impl AsFd, token: u64) {
        let entry = opcode::AcceptMulti::new(fd(&listener))
            .flags(SocketFlags::CLOEXEC.bits() as i32)
            .build();
        self.push(entry, token);
    }

    /// Connects; submitted at once.
    pub(crate) fn connect(&mut self, socket: impl AsFd, remote: &SocketAddr, token: u64) {
        let ask = |address: *const SocketAddrOpaque, length| {
            let entry = opcode::Connect::new(fd(&socket), address.cast(), length);
            self.push(entry.build(), token);
            // Submitted at once: the kernel copies the address when it takes the entry, and the
            // address is valid only here.
            self.submit();
        };
        // SAFETY: the kernel does not use the address after the call.
        unsafe { remote.with_sockaddr(ask) };
    }

    /// Cancels the operation with the token `of`; it still completes.
    pub(crate) fn cancel(&mut self, of: u64, token: u64) {
        let entry = opcode::AsyncCancel::new(of).build();
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// Cancels all operations on a descriptor; each of them still completes.
    pub fn cancel_all(&mut self, descriptor: impl AsFd, token: u64) {
        let all = CancelBuilder::fd(fd(&descriptor)).all();
        let entry = opcode::AsyncCancel2::new(all).build();
        self.push(entry.flags(squeue::Flags::SKIP_SUCCESS), token);
    }

    /// Submits pushed operations and appends completions. Waits for a completion if there is none,
    /// at most for `timeout` (`None`: without limit). Makes no system call if there is nothing to
    /// do. Returns true if the kernel has all pushed operations.
    ///
    /// # Errors
    /// The ring is broken.
    pub fn enter(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<RingCompletion>,
    ) -> io::Result<bool> {
        self.enable()?;
        loop {
            let (is_idle, is_over_full) = {
                let queue = self.ring.submission();
                let has_news = queue.taskrun() || queue.cq_overflow();
                (queue.is_empty() && !has_news, queue.cq_overflow())
            };
            let waits = timeout != Some(Duration::ZERO) && self.ring.completion().is_empty();
            self.calls += u64::from(waits || !is_idle);
            let entered = match (waits, timeout) {
                (false, _) if is_idle => Ok(0),
                (false, _) => self.ring.submitter().submit_and_wait(0),
                (true, None) => self.ring.submitter().submit_and_wait(1),
                (true, Some(timeout)) => {
                    let span = Timespec::new()
                        .sec(timeout.as_secs())
                        .nsec(timeout.subsec_nanos());
                    let args = SubmitArgs::new().timespec(&span);
                    self.ring.submitter().submit_with_args(1, &args)
                }
            };
            if let Err(error) = entered {
                match error.raw_os_error() {
                    Some(libc::ETIME | libc::EINTR | libc::EBUSY | libc::EAGAIN) => {}
                    _ => return Err(error),
                }
            }
            for entry in self.ring.completion() {
                let buffer = cqueue::buffer_select(entry.flags());
                if buffer.is_some() {
                    self.buffers
                        .taken(usize::try_from(entry.result()).unwrap_or(0));
                }
                completions.push(RingCompletion {
                    token: entry.user_data(),
                    result: entry.result(),
                    buffer,
                    goes_on: cqueue::more(entry.flags()),
                    has_more: cqueue::sock_nonempty(entry.flags()),
                });
            }
            // A completion that is not reported yet may be that of a send that would be taken as
            // complete.
            if !is_over_full && !self.ring.submission().cq_overflow() {
                return Ok(self.is_submitted());
            }
        }
    }

    /// True if no pushed operation waits to be submitted.
    pub(crate) fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// Enables the ring on the calling thread, which is its only user from then on.
    fn enable(&mut self) -> io::Result<()> {
        if !self.enabled {
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        Ok(())
    }

    #[inline]
    fn push(&mut self, entry: squeue::Entry, token: u64) {
        self.make_room(1);
        self.operations += 1;
        let entry = entry.user_data(token);
        // SAFETY: the ring keeps the memory that the entry refers to. A descriptor that the caller
        // closes before the operation is over may be of another file, but no memory is freed by it.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("room was made");
    }

    #[inline]
    fn make_room(&mut self, entries: usize) {
        let queue = self.ring.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        if room < entries {
            self.submit();
        }
    }

    fn submit(&mut self) {
        self.calls += 1;
        self.enable()
            .and_then(|()| self.ring.submit())
            .expect("the ring takes what it has room for: beyond the room for completions the kernel keeps them");
    }
}

/// Descriptor that an accept returned, or the error number.
pub(crate) fn accepted(result: i32) -> Result<OwnedFd, i32> {
    match result {
        // SAFETY: the kernel has just made it for this ring, and no other code has its number.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result) }),
        error => Err(-error),
    }
}

fn fd(descriptor: &impl AsFd) -> Fd {
    Fd(descriptor.as_fd().as_raw_fd())
}

fn send(socket: &impl AsFd, at: *const u8, len: u32, flags: SendFlags, more: i32) -> squeue::Entry {
    opcode::Send::new(fd(socket), at, len)
        .flags(flags.bits() as i32 | more)
        .build()
}

impl Drop for Ring {
    fn drop(&mut self) {
        // A cancelled operation writes no more, though its completion is still to come.
        let cancel = |ring: &IoUring| {
            let bound = Some(Timespec::new().sec(1));
            let cancelled = ring
                .submitter()
                .register_sync_cancel(bound, CancelBuilder::any());
            match cancelled {
                Ok(()) => true,
                Err(error) => error.raw_os_error() == Some(libc::ENOENT),
            }
        };
        let nothing_in_flight = !self.enabled || cancel(&self.ring);
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        // Otherwise, e.g. if the thread that used the ring has ended, the kernel may still access
        // the memory, so it is leaked.
        if nothing_in_flight {
            // SAFETY: dropped once, here, and no operation refers to them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sources);
                ManuallyDrop::drop(&mut self.boxes);
            }
        }
    }
}

/// Entries of the submission queue, which limits the operations submitted together.
const ENTRIES: u32 = 1024;
const GROUP: u16 = 0;
/// MSG_WAITALL: a send that was begun sends all, as far as there is room or time.
const WAIT_ALL: i32 = libc::MSG_WAITALL;
/// IORING_RECVSEND_POLL_FIRST (linux/io_uring.h).
const POLL_FIRST: u16 = 1;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    fn ring() -> Option<Ring> {
        match Ring::new(2, 4096) {
            Ok(ring) => Some(ring),
            Err(error) => {
                tcpcost_testbed::skip(&error.to_string());
                None
            }
        }
    }

    #[test]
    fn bytes_come_in_buffers_and_a_linked_receive_follows_a_whole_send() {
        let Some(mut ring) = ring() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut seen = Vec::new();
        far.write_all(b"hello").unwrap();
        ring.receive(&near, 4096, false, 7);
        while seen.is_empty() {
            ring.enter(None, &mut seen).unwrap();
        }
        let got = seen.remove(0);
        assert_eq!((got.token, got.result), (7, 5));
        let buffer = got.buffer.unwrap();
        assert_eq!(ring.bytes(buffer, 0..5), b"hello");
        ring.send_buffer(&near, buffer, 0..5, true, 8);
        ring.receive(&near, 4096, false, 9);
        far.write_all(b"x").unwrap();
        while seen.len() < 2 {
            ring.enter(None, &mut seen).unwrap();
        }
        let tokens: Vec<_> = seen.iter().map(|one| (one.token, one.result)).collect();
        assert_eq!(tokens, [(8, 5), (9, 1)]);
        let mut back = [0; 5];
        far.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }

    #[test]
    fn what_is_cancelled_completes_and_no_buffer_is_an_error() {
        let Some(mut ring) = ring() else { return };
        let (near, mut far) = UnixStream::pair().unwrap();
        let mut seen = Vec::new();
        ring.receive(&near, 4096, true, 1);
        ring.cancel_all(&near, 2);
        while seen.is_empty() {
            ring.enter(None, &mut seen).unwrap();
        }
        let cancelled = seen.remove(0);
        assert_eq!(
            (cancelled.token, cancelled.result),
            (1, -libc::ECANCELED),
            "the cancel itself has no completion"
        );
        for token in 0..3 {
            far.write_all(b"x").unwrap();
            ring.receive(&near, 1, false, token);
            while seen.len() <= token as usize {
                ring.enter(None, &mut seen).unwrap();
            }
        }
        assert_eq!(seen[2].result, -libc::ENOBUFS);
    }
}
