//! Buffers that an io_uring receives into: some are lent to the kernel, the others are kept back.
//!
//! The kernel uses its buffers in turn, so it soon touches all that it may use. In bulk it is lent
//! no more than fit the cache until they are read.

#![allow(
    unsafe_code,
    reason = "the kernel reads entries and writes to buffers by address"
)]

use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::Submitter;
use io_uring::types::BufRingEntry;
use memmap2::MmapMut;

/// Buffers of one size, by number, for one ring.
#[derive(Debug)]
pub(crate) struct BufferRing {
    /// Entries that the kernel reads: address, size and number of each buffer that it may use.
    entries: MmapMut,
    memory: MmapMut,
    count: u16,
    size: usize,
    tail: u16,
    /// Buffers kept from the kernel, the last used on top.
    spare: Vec<u16>,
    /// Buffers that the kernel may use.
    free: u16,
    /// Running mean of bytes received at a time.
    received_mean: usize,
}

impl BufferRing {
    /// Makes `count` buffers, a power of two up to 32,768, of `size` bytes each. Memory is touched
    /// as it is used.
    ///
    /// # Errors
    /// Errors of mmap.
    pub(crate) fn new(count: u16, size: usize) -> io::Result<BufferRing> {
        let mut own = BufferRing {
            entries: MmapMut::map_anon(usize::from(count) * size_of::<BufRingEntry>())?,
            memory: MmapMut::map_anon(usize::from(count) * size)?,
            count,
            size,
            tail: 0,
            spare: (0..count).rev().collect(),
            free: 0,
            received_mean: size,
        };
        own.lend_spare();
        Ok(own)
    }

    /// Lets the ring of this submitter receive into these buffers, as group `group`.
    ///
    /// # Safety
    /// The buffers are dropped after the ring, once no operation is in flight that may write to
    /// them.
    ///
    /// # Errors
    /// The kernel is older than 5.19.
    pub(crate) unsafe fn register(&self, submitter: &Submitter<'_>, group: u16) -> io::Result<()> {
        let base = self.entries.as_ptr() as u64;
        // SAFETY: the entries are mapped, page-aligned, and stay until after the ring is gone, as
        // the caller promises.
        unsafe { submitter.register_buf_ring_with_flags(base, self.count, group, 0) }
    }

    /// Buffers that the kernel may use.
    pub(crate) fn free(&self) -> usize {
        self.free.into()
    }

    /// Bytes of a buffer.
    #[inline]
    pub(crate) fn bytes(&self, buffer: u16, range: Range<usize>) -> &[u8] {
        let start = usize::from(buffer) * self.size;
        &self.memory[start..start + self.size][range]
    }

    /// Notes that the kernel put `bytes` bytes into a buffer. The caller owns it until
    /// [`BufferRing::give_back`].
    #[inline]
    pub(crate) fn taken(&mut self, bytes: usize) {
        self.free -= 1;
        self.received_mean = (15 * self.received_mean + bytes) / 16;
    }

    /// Takes a buffer back from the caller. The kernel may then use it, or another that was used
    /// more recently.
    #[inline]
    pub(crate) fn give_back(&mut self, buffer: u16) {
        self.spare.push(buffer);
        self.lend_spare();
    }

    fn lend_spare(&mut self) {
        let count = usize::from(self.count);
        let most = match self.received_mean {
            0..BULK_BYTES => count,
            bulk => (HOT_BYTES / bulk).max(BUFFERS_LEAST),
        };
        while count - self.spare.len() < most
            && let Some(buffer) = self.spare.pop()
        {
            self.lend(buffer);
        }
    }

    fn lend(&mut self, buffer: u16) {
        let base: *mut BufRingEntry = self.entries.as_mut_ptr().cast();
        let at = usize::from(self.tail & (self.count - 1));
        let address = self.memory.as_ptr() as u64 + (usize::from(buffer) * self.size) as u64;
        // SAFETY: the entry is one of `count` that are mapped; the kernel reads it only once the
        // tail is past it.
        unsafe {
            let entry = &mut *base.add(at);
            entry.set_addr(address);
            entry.set_len(self.size as u32);
            entry.set_bid(buffer);
        }
        self.tail = self.tail.wrapping_add(1);
        self.free += 1;
        // SAFETY: the tail is in the first entry's last field, aligned, and only this function
        // writes it.
        let tail = unsafe { AtomicU16::from_ptr(BufRingEntry::tail(base).cast_mut()) };
        tail.store(self.tail, Ordering::Release);
    }
}

/// Bytes of the second-level cache that buffers may fill. With 100 bulk flows and all 256 buffers
/// of 64 KiB lent, a relayed KiB costs 909 ns. With 8 of them it costs 751 ns, like a copy through
/// one buffer (docs/relay.md).
const HOT_BYTES: usize = 512 << 10;
/// Buffers that are lent at least, whatever their size. With fewer buffers than connections with
/// bytes, each of the other connections costs a failed operation.
const BUFFERS_LEAST: usize = 8;
/// Receives with a smaller mean are no bulk: a failed receive costs more than reading so few bytes
/// from outside the cache.
const BULK_BYTES: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes the buffer that was lent first, as the kernel does.
    fn take(ring: &mut BufferRing, head: &mut u16, bytes: usize) -> u16 {
        let at = usize::from(*head & (ring.count - 1)) * size_of::<BufRingEntry>();
        *head += 1;
        ring.taken(bytes);
        // struct io_uring_buf (linux/io_uring.h): addr u64, len u32, bid u16.
        u16::from_ne_bytes([ring.entries[at + 12], ring.entries[at + 13]])
    }

    #[test]
    fn as_many_are_lent_as_stay_in_the_cache() {
        let mut ring = BufferRing::new(32, 64 << 10).unwrap();
        let lent = |ring: &BufferRing| usize::from(ring.count) - ring.spare.len();
        assert_eq!(lent(&ring), BUFFERS_LEAST, "bulk, until more is known");
        let mut head = 0;
        for _ in 0..100 {
            let buffer = take(&mut ring, &mut head, 1);
            ring.give_back(buffer);
        }
        assert_eq!((lent(&ring), ring.free), (32, 32), "small messages");
        for _ in 0..200 {
            let buffer = take(&mut ring, &mut head, 64 << 10);
            ring.give_back(buffer);
        }
        assert_eq!((lent(&ring), ring.free), (8, 8), "bulk again");
    }

    #[test]
    fn none_is_lent_twice_and_those_that_are_held_are_not_lent() {
        let mut ring = BufferRing::new(4, 4096).unwrap();
        let mut head = 0;
        let held: Vec<u16> = (0..4).map(|_| take(&mut ring, &mut head, 1)).collect();
        assert_eq!(held, [0, 1, 2, 3]);
        assert!(ring.free == 0);
        ring.give_back(2);
        assert_eq!(take(&mut ring, &mut head, 1), 2);
        assert!(ring.free == 0);
    }
}
