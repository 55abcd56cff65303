//! The part of io_uring that a relay needs: receive into provided buffers, and send from them.
//!
//! Memory that an operation in flight uses belongs to the ring until the operation completes:
//! buffers by number, and boxes that the caller handed over. So nothing can be freed while the
//! kernel uses it.

#![allow(
    unsafe_code,
    reason = "operations in flight refer to memory by address"
)]

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use io_uring::types::{CancelBuilder, Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, cqueue, opcode, squeue};
use tcpcost_stack::BufferRing;

/// Completion of an operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    /// Result of the system call; negative: an error number.
    pub(crate) result: i32,
    /// Buffer with the received bytes. The caller owns it until [`Ring::give_back`].
    pub(crate) buffer: Option<u16>,
    /// True if the socket has more bytes to receive.
    pub(crate) has_more: bool,
}

/// A ring and its buffers.
pub(crate) struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<BufferRing>,
    size: usize,
    /// Boxes to send from, by token.
    boxes: HashMap<u64, Box<[u8]>>,
    in_flight: usize,
    /// Operations submitted so far.
    #[cfg(test)]
    pub(crate) operations: usize,
}

/// State of one direction of a connection in the ring.
#[derive(Debug, Default)]
pub(crate) struct RingFlow {
    pub(crate) receiving: bool,
    pub(crate) sending: Option<Sending>,
    /// Limit of a receive, bytes, set since the receiver did not accept all.
    pub(crate) careful: Option<usize>,
}

/// Source of a send in flight: a buffer, or a box with the rest of one.
#[derive(Debug)]
pub(crate) enum Sending {
    Buffer { buffer: u16, bytes: usize },
    Boxed { at: usize, bytes: usize },
}

impl Ring {
    /// Makes a ring, which only the calling thread may use. `count`: number of buffers, a power of
    /// two; `size`: bytes of each.
    ///
    /// # Errors
    /// The kernel is older than 6.1, or io_uring is forbidden (sysctl kernel.io_uring_disabled,
    /// seccomp).
    pub(crate) fn new(count: u16, size: usize) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_cqsize(8 * ENTRIES)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES)?;
        let buffers = BufferRing::new(count, size)?;
        // SAFETY: the buffers are dropped after the ring, and not at all while an operation is in
        // flight (see `Drop`).
        unsafe { buffers.register(&ring.submitter(), GROUP)? };
        Ok(Ring {
            ring: ManuallyDrop::new(ring),
            buffers: ManuallyDrop::new(buffers),
            size,
            boxes: HashMap::new(),
            in_flight: 0,
            #[cfg(test)]
            operations: 0,
        })
    }

    /// Bytes `from..to` of a buffer.
    pub(crate) fn bytes(&self, buffer: u16, from: usize, to: usize) -> &[u8] {
        self.buffers.bytes(buffer, from..to)
    }

    /// Buffers that the kernel may use now.
    pub(crate) fn free(&self) -> usize {
        self.buffers.free()
    }

    /// Returns a buffer to the kernel.
    pub(crate) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Receives up to `most` bytes into a buffer. `waits`: the socket is known to be empty, so the
    /// kernel polls first.
    pub(crate) fn receive(&mut self, socket: impl AsFd, most: usize, waits: bool, token: u64) {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let operation = opcode::Recv::new(fd, std::ptr::null_mut(), most.min(self.size) as u32)
            .buf_group(GROUP)
            .ioprio(if waits { POLL_FIRST } else { 0 })
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push(operation.user_data(token));
    }

    /// Sends part of a buffer, without waiting for room. `then_next`: the next operation pushed
    /// begins when all bytes were sent, and is cancelled otherwise.
    pub(crate) fn send(
        &mut self,
        socket: impl AsFd,
        buffer: u16,
        range: std::ops::Range<usize>,
        then_next: bool,
        token: u64,
    ) {
        let bytes = self.bytes(buffer, range.start, range.end);
        let fd = Fd(socket.as_fd().as_raw_fd());
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT | libc::MSG_WAITALL;
        let operation = opcode::Send::new(fd, bytes.as_ptr(), bytes.len() as u32)
            .flags(flags)
            .build();
        let operation = match then_next {
            true => operation.flags(squeue::Flags::IO_LINK),
            false => operation,
        };
        if then_next {
            // A link must not be split between two submissions.
            self.make_room(2);
        }
        self.push(operation.user_data(token));
    }

    /// Sends from a box as soon as there is room. The ring owns the box until [`Ring::take_box`].
    pub(crate) fn send_box(
        &mut self,
        socket: impl AsFd,
        bytes: Box<[u8]>,
        from: usize,
        token: u64,
    ) {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let rest = &bytes[from..];
        let operation = opcode::Send::new(fd, rest.as_ptr(), rest.len() as u32)
            .flags(libc::MSG_NOSIGNAL)
            .build();
        self.boxes.insert(token, bytes);
        self.push(operation.user_data(token));
    }

    /// Removes the box of a completed operation.
    pub(crate) fn take_box(&mut self, token: u64) -> Option<Box<[u8]>> {
        self.boxes.remove(&token)
    }

    /// Completes when the descriptor is readable.
    pub(crate) fn poll(&mut self, descriptor: impl AsFd, token: u64) {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let operation = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        self.push(operation.user_data(token));
    }

    /// Cancels all operations in flight on a descriptor; each of them still completes.
    pub(crate) fn cancel(&mut self, descriptor: impl AsFd, token: u64) {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let operation = opcode::AsyncCancel2::new(CancelBuilder::fd(fd).all()).build();
        self.push(operation.user_data(token));
    }

    /// Submits, waits if there is no completion yet, and appends all completions.
    pub(crate) fn wait(
        &mut self,
        timeout: Option<Duration>,
        completions: &mut Vec<Completion>,
    ) -> io::Result<()> {
        let span = timeout.map(|timeout| {
            Timespec::new()
                .sec(timeout.as_secs())
                .nsec(timeout.subsec_nanos())
        });
        let args = match &span {
            Some(span) => SubmitArgs::new().timespec(span),
            None => SubmitArgs::new(),
        };
        let want = usize::from(self.ring.completion().is_empty());
        match self.ring.submitter().submit_with_args(want, &args) {
            Ok(_) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::ETIME | libc::EINTR | libc::EBUSY) => {}
                _ => return Err(error),
            },
        }
        for entry in self.ring.completion() {
            self.in_flight -= 1;
            let buffer = cqueue::buffer_select(entry.flags());
            if buffer.is_some() {
                self.buffers
                    .taken(usize::try_from(entry.result()).unwrap_or(0));
            }
            completions.push(Completion {
                token: entry.user_data(),
                result: entry.result(),
                buffer,
                has_more: cqueue::sock_nonempty(entry.flags()),
            });
        }
        Ok(())
    }

    fn push(&mut self, operation: squeue::Entry) {
        self.make_room(1);
        // SAFETY: the operation refers to a buffer or a box of the ring, or to descriptors, whose
        // files the kernel holds.
        let pushed = unsafe { self.ring.submission().push(&operation) };
        pushed.expect("room was made");
        self.in_flight += 1;
        #[cfg(test)]
        {
            self.operations += 1;
        }
    }

    fn make_room(&mut self, entries: usize) {
        let queue = self.ring.submission();
        let room = queue.capacity() - queue.len();
        drop(queue);
        if room < entries {
            // The kernel accepts all entries: the completion queue is eight times as large, and the
            // kernel keeps completions beyond that.
            self.ring
                .submit()
                .expect("the ring takes what it has room for");
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // SAFETY: dropped once, here.
        unsafe { ManuallyDrop::drop(&mut self.ring) };
        if self.in_flight > 0 {
            // After a panic: the kernel may still access the boxes and buffers, so they are leaked.
            std::mem::take(&mut self.boxes)
                .into_values()
                .for_each(|one| {
                    Box::leak(one);
                });
            return;
        }
        // SAFETY: dropped once, here, and no operation refers to them.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

/// Entries of the submission queue, which limits the operations submitted together.
const ENTRIES: u32 = 1024;
const GROUP: u16 = 0;
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
                tcpcost_testbed::skip(&format!("io_uring: {error}"));
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
            ring.wait(None, &mut seen).unwrap();
        }
        let got = seen.remove(0);
        assert_eq!((got.token, got.result), (7, 5));
        let buffer = got.buffer.unwrap();
        assert_eq!(ring.bytes(buffer, 0, 5), b"hello");
        ring.send(&near, buffer, 0..5, true, 8);
        ring.receive(&near, 4096, false, 9);
        far.write_all(b"x").unwrap();
        while seen.len() < 2 {
            ring.wait(None, &mut seen).unwrap();
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
        ring.cancel(&near, 2);
        while seen.len() < 2 {
            ring.wait(None, &mut seen).unwrap();
        }
        assert!(
            seen.iter()
                .any(|one| (one.token, one.result) == (1, -libc::ECANCELED))
        );
        seen.clear();
        for token in 0..3 {
            far.write_all(b"x").unwrap();
            ring.receive(&near, 1, false, token);
            while seen.len() <= token as usize {
                ring.wait(None, &mut seen).unwrap();
            }
        }
        assert_eq!(seen[2].result, -libc::ENOBUFS);
    }
}
