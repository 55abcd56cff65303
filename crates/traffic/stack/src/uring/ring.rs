//! The ring: its operations, its receive buffers, and completions. It knows descriptors and
//! addresses, and no connections.

#![allow(
    unsafe_code,
    reason = "operations in flight refer to memory and descriptors by number"
)]

use std::io;
use std::mem::ManuallyDrop;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
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

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Accepts connections of a listener (multishot).
    Accept,
    Connect,
    /// Receives bytes of a connection (multishot).
    Receive,
    /// Completes once when a connection is readable.
    Poll,
    /// Sends as much as there is room for; a complete send has no completion.
    Send,
    /// Sends the rest of a [`Kind::Send`], waiting for room.
    SendRest,
    Cancel,
}

/// Completion of an operation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) kind: Kind,
    /// Index of the connection or listener.
    pub(super) index: u32,
    /// Result of the system call; negative: an error number.
    pub(super) result: i32,
    /// Buffer with the received bytes. The caller owns it until [`Ring::give_back`].
    pub(super) buffer: Option<u16>,
    /// True if the operation will complete again.
    pub(super) goes_on: bool,
}

/// Bytes of a source, which the ring keeps.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    at: usize,
    len: u32,
    flags: SendFlags,
}

pub(super) struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<BufferRing>,
    /// Sources to send from.
    sources: ManuallyDrop<Vec<Arc<Mmap>>>,
    enabled: bool,
    /// Calls of io_uring_enter(2).
    calls: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ring").field(&self.ring.as_raw_fd()).finish()
    }
}

impl Piece {
    /// Rest of the piece after `taken` bytes; `None` if nothing is left.
    pub(super) fn after(self, taken: u32) -> Option<Piece> {
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
    pub(super) fn new(count: u16, size: usize) -> Result<Ring, StackError> {
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
            enabled: false,
            calls: 0,
        })
    }

    /// True if the kernel has a free buffer.
    pub(super) fn has_buffers(&self) -> bool {
        self.buffers.free() > 0
    }

    /// Calls of io_uring_enter(2) so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// `bytes` bytes of a buffer, starting at `from`.
    #[inline]
    pub(super) fn bytes(&self, buffer: u16, from: usize, bytes: usize) -> &[u8] {
        self.buffers.bytes(buffer, from..from + bytes)
    }

    /// Returns a buffer to the kernel.
    #[inline]
    pub(super) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Keeps a source as long as bytes of it may be sent.
    pub(super) fn keep(&mut self, source: &Arc<Mmap>) {
        self.sources.push(Arc::clone(source));
    }

    /// Piece of a source that the ring keeps.
    #[inline]
    pub(super) fn piece(source: &Mmap, at: u64, len: usize, more: bool) -> io::Result<Piece> {
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

    /// Pushes a [`Kind::Send`].
    #[inline]
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, piece: Piece, index: u32) {
        let entry = send(socket, piece, SendFlags::DONTWAIT).flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry, Kind::Send, index);
    }

    /// Pushes a [`Kind::SendRest`].
    pub(super) fn send_rest(&mut self, socket: BorrowedFd<'_>, piece: Piece, index: u32) {
        let entry = send(socket, piece, SendFlags::empty());
        self.push(entry, Kind::SendRest, index);
    }

    /// Pushes a [`Kind::Receive`].
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, index: u32) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build();
        self.push(entry, Kind::Receive, index);
    }

    /// Pushes a [`Kind::Poll`].
    pub(super) fn poll(&mut self, socket: BorrowedFd<'_>, index: u32) {
        let events = libc::POLLIN | libc::POLLRDHUP;
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events as u32).build();
        self.push(entry, Kind::Poll, index);
    }

    /// Pushes a [`Kind::Accept`].
    pub(super) fn accept(&mut self, listener: BorrowedFd<'_>, index: u32) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd()))
            .flags(SocketFlags::CLOEXEC.bits() as i32)
            .build();
        self.push(entry, Kind::Accept, index);
    }

    /// Submits a [`Kind::Connect`].
    pub(super) fn connect(&mut self, socket: BorrowedFd<'_>, remote: &SocketAddr, index: u32) {
        let ask = |address: *const SocketAddrOpaque, length| {
            let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), address.cast(), length);
            self.push(entry.build(), Kind::Connect, index);
            // Submitted at once: the kernel copies the address when it takes the entry, and the
            // address is valid only here.
            self.submit();
        };
        // SAFETY: the kernel does not use the address after the call.
        unsafe { remote.with_sockaddr(ask) };
    }

    /// Cancels an operation; it still completes.
    pub(super) fn cancel(&mut self, kind: Kind, index: u32) {
        let entry = opcode::AsyncCancel::new(number(kind, index))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry, Kind::Cancel, index);
    }

    /// Submits pushed operations and appends completions. Waits for a completion if there is none,
    /// at most for `timeout` (`None`: without limit). Makes no system call if there is nothing to
    /// do. Returns true if the kernel has all pushed operations.
    pub(super) fn enter(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
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
                let (kind, index) = kind_and_index(entry.user_data());
                completions.push(Completion {
                    kind,
                    index,
                    result: entry.result(),
                    buffer,
                    goes_on: cqueue::more(entry.flags()),
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
    pub(super) fn is_submitted(&mut self) -> bool {
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
    fn push(&mut self, entry: squeue::Entry, kind: Kind, index: u32) {
        if self.ring.submission().is_full() {
            self.submit();
        }
        let entry = entry.user_data(number(kind, index));
        // SAFETY: the ring keeps the memory that the entry refers to, and descriptors are open
        // until the operation is over: see `super::Socket`.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        pushed.expect("room was made");
    }

    fn submit(&mut self) {
        self.calls += 1;
        self.enable()
            .and_then(|()| self.ring.submit())
            .expect("the ring takes what it has room for: beyond the room for completions the kernel keeps them");
    }
}

/// Descriptor that an accept returned, or the error number.
pub(super) fn accepted(result: i32) -> Result<OwnedFd, i32> {
    match result {
        // SAFETY: the kernel has just made it for this ring, and no other code has its number.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result) }),
        error => Err(-error),
    }
}

/// Entry that sends all of a piece, as far as there is room or time.
fn send(socket: BorrowedFd<'_>, piece: Piece, more: SendFlags) -> squeue::Entry {
    let flags = piece.flags | more;
    opcode::Send::new(Fd(socket.as_raw_fd()), piece.at as *const u8, piece.len)
        .flags(flags.bits() as i32 | libc::MSG_WAITALL)
        .build()
}

fn number(kind: Kind, index: u32) -> u64 {
    u64::from(index) << 8 | kind as u64
}

fn kind_and_index(number: u64) -> (Kind, u32) {
    const KINDS: [Kind; 7] = [
        Kind::Accept,
        Kind::Connect,
        Kind::Receive,
        Kind::Poll,
        Kind::Send,
        Kind::SendRest,
        Kind::Cancel,
    ];
    (KINDS[(number & 0xff) as usize], (number >> 8) as u32)
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
        // the buffers and sources, so they are leaked.
        if nothing_in_flight {
            // SAFETY: dropped once, here, and no operation refers to them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sources);
            }
        }
    }
}

/// Entries of the submission queue, which limits the operations submitted together.
const ENTRIES: u32 = 1024;
const GROUP: u16 = 0;
