//! The ring itself: what can be asked of it, the buffers that it receives into, and what became of what was asked.
//! It knows descriptors and addresses, and no connections.

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

/// What was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Connections of a listener, one after the other.
    Accept,
    Connect,
    /// Bytes of a connection, again and again.
    Receive,
    /// That a connection has something to read, once.
    Poll,
    /// A send that takes what there is room for; nothing is told of one that went whole.
    Send,
    /// What such a send left: it waits for room.
    SendRest,
    Cancel,
}

/// What became of it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Completion {
    pub(super) kind: Kind,
    /// Whose it is.
    pub(super) index: u32,
    /// As of the system call; negative: an error's number.
    pub(super) result: i32,
    /// The buffer that bytes are in, which is the caller's until it gives it back.
    pub(super) buffer: Option<u16>,
    /// More will be told without asking again.
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
    /// What is sent from.
    sources: ManuallyDrop<Vec<Arc<Mmap>>>,
    enabled: bool,
    /// Of io_uring_enter(2).
    calls: u64,
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ring").field(&self.ring.as_raw_fd()).finish()
    }
}

impl Piece {
    /// The part from `taken` on; `None` where that is nothing.
    pub(super) fn after(self, taken: u32) -> Option<Piece> {
        (taken < self.len).then_some(Piece {
            at: self.at + taken as usize,
            len: self.len - taken,
            ..self
        })
    }
}

impl Ring {
    /// Receives into `count` buffers, a power of two, of `size` bytes each.
    ///
    /// # Errors
    /// The kernel is older than 6.1, or io_uring is forbidden (sysctl kernel.io_uring_disabled, seccomp).
    pub(super) fn new(count: u16, size: usize) -> Result<Ring, StackError> {
        // Disabled until the first call, so that the thread that makes it need not be the one that uses it.
        let ring = IoUring::builder()
            .setup_cqsize(8 * ENTRIES)
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES)
            .map_err(call("io_uring_setup"))?;
        let buffers = BufferRing::new(count, size).map_err(call("mmap"))?;
        // SAFETY: they are dropped after the ring, and not at all while anything may be in flight (Drop).
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

    /// Whether the kernel has a buffer to take.
    pub(super) fn has_buffers(&self) -> bool {
        self.buffers.free() > 0
    }

    /// Calls of io_uring_enter(2) so far.
    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    /// Bytes in a buffer.
    #[inline]
    pub(super) fn bytes(&self, buffer: u16, from: usize, bytes: usize) -> &[u8] {
        self.buffers.bytes(buffer, from..from + bytes)
    }

    /// The kernel may take it again.
    #[inline]
    pub(super) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Keeps a source as long as something of it may be sent.
    pub(super) fn keep(&mut self, source: &Arc<Mmap>) {
        self.sources.push(Arc::clone(source));
    }

    /// Bytes of a source that is kept.
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

    /// [`Kind::Send`].
    #[inline]
    pub(super) fn send(&mut self, socket: BorrowedFd<'_>, piece: Piece, index: u32) {
        let entry = send(socket, piece, SendFlags::DONTWAIT).flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry, Kind::Send, index);
    }

    /// [`Kind::SendRest`].
    pub(super) fn send_rest(&mut self, socket: BorrowedFd<'_>, piece: Piece, index: u32) {
        let entry = send(socket, piece, SendFlags::empty());
        self.push(entry, Kind::SendRest, index);
    }

    /// [`Kind::Receive`].
    pub(super) fn receive(&mut self, socket: BorrowedFd<'_>, index: u32) {
        let entry = opcode::RecvMulti::new(Fd(socket.as_raw_fd()), GROUP).build();
        self.push(entry, Kind::Receive, index);
    }

    /// [`Kind::Poll`].
    pub(super) fn poll(&mut self, socket: BorrowedFd<'_>, index: u32) {
        let events = libc::POLLIN | libc::POLLRDHUP;
        let entry = opcode::PollAdd::new(Fd(socket.as_raw_fd()), events as u32).build();
        self.push(entry, Kind::Poll, index);
    }

    /// [`Kind::Accept`].
    pub(super) fn accept(&mut self, listener: BorrowedFd<'_>, index: u32) {
        let entry = opcode::AcceptMulti::new(Fd(listener.as_raw_fd()))
            .flags(SocketFlags::CLOEXEC.bits() as i32)
            .build();
        self.push(entry, Kind::Accept, index);
    }

    /// [`Kind::Connect`].
    pub(super) fn connect(&mut self, socket: BorrowedFd<'_>, remote: &SocketAddr, index: u32) {
        let ask = |address: *const SocketAddrOpaque, length| {
            let entry = opcode::Connect::new(Fd(socket.as_raw_fd()), address.cast(), length);
            self.push(entry.build(), Kind::Connect, index);
            // The kernel copies the address when it takes the entry, and it is only here now.
            self.submit();
        };
        // SAFETY: nobody looks at the address after the call.
        unsafe { remote.with_sockaddr(ask) };
    }

    /// Ends what was asked for; it completes all the same.
    pub(super) fn cancel(&mut self, kind: Kind, index: u32) {
        let entry = opcode::AsyncCancel::new(number(kind, index))
            .build()
            .flags(squeue::Flags::SKIP_SUCCESS);
        self.push(entry, Kind::Cancel, index);
    }

    /// Hands to the kernel what was asked for, and takes what has completed. Waits for that, if it must, so long at
    /// most (`None` is for ever). A system call, or none where there is nothing to do. Tells whether the kernel has all that
    /// was asked for.
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
            // What is not told yet may be of a send that is taken for whole.
            if !is_over_full && !self.ring.submission().cq_overflow() {
                return Ok(self.is_submitted());
            }
        }
    }

    /// Whether nothing waits to be handed to the kernel.
    pub(super) fn is_submitted(&mut self) -> bool {
        self.ring.submission().is_empty()
    }

    /// On the thread that uses it, which is its only one from then on.
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
        // SAFETY: memory that it refers to is the ring's, and descriptors are open until it is over: see `super::Socket`.
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

/// The descriptor that an accept gave.
pub(super) fn accepted(result: i32) -> Result<OwnedFd, i32> {
    match result {
        // SAFETY: the kernel has just made it for this ring, and nobody else has its number.
        0.. => Ok(unsafe { OwnedFd::from_raw_fd(result) }),
        error => Err(-error),
    }
}

/// All of it, so far as there is room or time.
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
        // What is cancelled writes no more, though its completion is still to come.
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
        // Else, as where the thread that used it has ended, the kernel may write to them yet.
        if nothing_in_flight {
            // SAFETY: dropped once, here, and nothing refers to them.
            unsafe {
                ManuallyDrop::drop(&mut self.buffers);
                ManuallyDrop::drop(&mut self.sources);
            }
        }
    }
}

/// Operations that are submitted together at most.
const ENTRIES: u32 = 1024;
const GROUP: u16 = 0;
