//! io_uring, as far as a relay needs it: receive into buffers that the kernel takes when bytes are there, send from them.
//!
//! Memory that an operation in flight uses belongs to the ring until it is over: buffers by number, and boxes that
//! were handed over. So nothing here can be freed under the kernel.

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

/// What an operation came to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Completion {
    pub(crate) token: u64,
    /// As of the system call; negative: an error's number.
    pub(crate) result: i32,
    /// The buffer that bytes are in, which is the caller's until it gives it back.
    pub(crate) buffer: Option<u16>,
    /// More was there to be received.
    pub(crate) has_more: bool,
}

/// A ring and its buffers.
pub(crate) struct Ring {
    ring: ManuallyDrop<IoUring>,
    buffers: ManuallyDrop<BufferRing>,
    size: usize,
    /// Sent from, by token.
    boxes: HashMap<u64, Box<[u8]>>,
    in_flight: usize,
    /// Operations so far.
    #[cfg(test)]
    pub(crate) operations: usize,
}

/// One way of a connection, as the ring has it.
#[derive(Debug, Default)]
pub(crate) struct RingFlow {
    pub(crate) receiving: bool,
    pub(crate) sending: Option<Sending>,
    /// Most that is asked for since the receiver did not take all.
    pub(crate) careful: Option<usize>,
}

/// What is being sent: from a buffer, or what was left of one.
#[derive(Debug)]
pub(crate) enum Sending {
    Buffer { buffer: u16, bytes: usize },
    Boxed { at: usize, bytes: usize },
}

impl Ring {
    /// To be used by the thread that makes it alone. `count`: of buffers, a power of two.
    ///
    /// # Errors
    /// The kernel is older than 6.1, or io_uring is forbidden (sysctl kernel.io_uring_disabled, seccomp).
    pub(crate) fn new(count: u16, size: usize) -> io::Result<Ring> {
        let ring = IoUring::builder()
            .setup_cqsize(8 * ENTRIES)
            .setup_single_issuer()
            .setup_defer_taskrun()
            .build(ENTRIES)?;
        let buffers = BufferRing::new(count, size)?;
        // SAFETY: they are dropped after the ring, and not at all while anything is in flight (Drop).
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

    /// Bytes in a buffer.
    pub(crate) fn bytes(&self, buffer: u16, from: usize, to: usize) -> &[u8] {
        self.buffers.bytes(buffer, from..to)
    }

    /// Buffers that the kernel may take now.
    pub(crate) fn free(&self) -> usize {
        self.buffers.free()
    }

    /// The kernel may take it again.
    pub(crate) fn give_back(&mut self, buffer: u16) {
        self.buffers.give_back(buffer);
    }

    /// Receives so many bytes at most into a buffer. `waits`: nothing is there, so it is not even tried at first.
    pub(crate) fn receive(&mut self, socket: impl AsFd, most: usize, waits: bool, token: u64) {
        let fd = Fd(socket.as_fd().as_raw_fd());
        let operation = opcode::Recv::new(fd, std::ptr::null_mut(), most.min(self.size) as u32)
            .buf_group(GROUP)
            .ioprio(if waits { POLL_FIRST } else { 0 })
            .build()
            .flags(squeue::Flags::BUFFER_SELECT);
        self.push(operation.user_data(token));
    }

    /// Sends what is in a buffer, without waiting for room. `then_next`: the operation that is pushed next begins when
    /// all of it was sent, and is cancelled if not.
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
            // A link ends where what is pushed is submitted.
            self.make_room(2);
        }
        self.push(operation.user_data(token));
    }

    /// Sends from a box as soon as there is room; it is the ring's until then.
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

    /// The box of an operation that is over.
    pub(crate) fn take_box(&mut self, token: u64) -> Option<Box<[u8]>> {
        self.boxes.remove(&token)
    }

    /// Completes when a descriptor is readable.
    pub(crate) fn poll(&mut self, descriptor: impl AsFd, token: u64) {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let operation = opcode::PollAdd::new(fd, libc::POLLIN as u32).build();
        self.push(operation.user_data(token));
    }

    /// Cancels all that is in flight on a descriptor; each operation still completes.
    pub(crate) fn cancel(&mut self, descriptor: impl AsFd, token: u64) {
        let fd = Fd(descriptor.as_fd().as_raw_fd());
        let operation = opcode::AsyncCancel2::new(CancelBuilder::fd(fd).all()).build();
        self.push(operation.user_data(token));
    }

    /// Submits, waits for a completion if there is none, and gives all that there are.
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
        // SAFETY: what it refers to is a buffer or a box of the ring's, or descriptors, which the kernel holds.
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
            // It takes all of them: completions have eight times the room, and beyond that the kernel keeps them.
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
            // After a panic: the kernel may still write to them.
            std::mem::take(&mut self.boxes)
                .into_values()
                .for_each(|one| {
                    Box::leak(one);
                });
            return;
        }
        // SAFETY: dropped once, here, and nothing refers to them.
        unsafe { ManuallyDrop::drop(&mut self.buffers) };
    }
}

/// Operations that are submitted together at most.
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
