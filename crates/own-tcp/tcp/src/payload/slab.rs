//! Slabs, the pool that owns unused slabs, and the pieces that are parts of slabs.
//!
//! All `unsafe` code of the crate is here, except the vector instructions in `checksum.rs`. It
//! allows one thing: the unfilled end of a slab can be written while pieces of its filled beginning
//! are in flight. So many small writes share one slab instead of holding one slab each.

#![allow(unsafe_code, reason = "hands out memory that is not yet written")]

use std::fmt;
use std::mem::ManuallyDrop;
use std::ops::{Deref, Range};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, Weak};

/// Provides slabs and takes each back after its last piece is dropped. Last in, first out, because
/// the slab freed last is still in cache. Slabs are not cleared, because no piece covers bytes that
/// were not written.
#[derive(Clone)]
pub struct Pool {
    free: Arc<FreeList>,
    slab_bytes: usize,
}

impl Pool {
    /// Makes a pool of slabs of `slab_bytes` each (1 B to 4 GiB) that keeps up to `spare_max` unused slabs.
    pub fn new(slab_bytes: usize, spare_max: usize) -> Self {
        let free = FreeList {
            slabs: Mutex::new(Vec::new()),
            spare_max,
        };
        Self {
            free: Arc::new(free),
            slab_bytes: slab_bytes.clamp(1, u32::MAX as usize),
        }
    }

    /// Returns a writer of an unused slab.
    pub fn writer(&self) -> Writer {
        let spare = self
            .free
            .slabs
            .lock()
            .ok()
            .and_then(|mut slabs| slabs.pop());
        let slab = spare.unwrap_or_else(|| {
            let home = Arc::downgrade(&self.free);
            Share::all_of(Box::new(Slab::of(vec![0; self.slab_bytes], home)))
        });
        Writer {
            slab: Some(slab),
            filled: 0,
        }
    }

    /// Makes one piece that `fill` writes. `fill` gets the whole slab and returns how many bytes it
    /// wrote, from the beginning.
    ///
    /// # Errors
    /// The error of `fill`; the slab returns to the pool.
    pub fn fill<E>(&self, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Piece, E> {
        self.writer().fill(fill)
    }

    /// Number of unused slabs in the pool.
    pub fn spare(&self) -> usize {
        self.free.slabs.lock().map_or(0, |slabs| slabs.len())
    }
}

impl Default for Pool {
    /// Slabs of 64 KiB + 256 bytes (a super-segment with its headers); up to 64 unused slabs (4
    /// MiB).
    fn default() -> Self {
        Self::new((64 << 10) + 256, 64)
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Pool({} spare of {} bytes)",
            self.spare(),
            self.slab_bytes
        )
    }
}

struct FreeList {
    /// The only shares of their slabs.
    slabs: Mutex<Vec<Share>>,
    spare_max: usize,
}

struct Slab {
    /// Start of the bytes in `_memory`. Kept here, so that an access need not ask which variant
    /// owns them.
    base: *mut u8,
    len: usize,
    /// References that all shares hold together.
    references: AtomicU64,
    home: Weak<FreeList>,
    _memory: Memory,
}

/// Owner of a slab's bytes. Never read; only the slab's writer changes the bytes. Not a box: a box that is moved claims
/// that no other pointer leads to its bytes.
enum Memory {
    Ours(#[allow(dead_code, reason = "it is kept")] Vec<u8>),
    Lent(#[allow(dead_code, reason = "it is kept")] Arc<dyn Send + Sync>),
}

// SAFETY: bytes below a writer's `filled` are only read and bytes at or above it are touched only
// through the one `Writer` of the slab (`&mut self`, not `Clone`); a piece never reaches above.
unsafe impl Sync for Slab {}
// SAFETY: owns plain bytes, or an owner of bytes that may go to another thread.
unsafe impl Send for Slab {}

impl Slab {
    /// Takes the vector's memory without copying.
    fn of(mut bytes: Vec<u8>, home: Weak<FreeList>) -> Slab {
        Slab {
            base: bytes.as_mut_ptr(),
            len: bytes.len(),
            references: AtomicU64::new(0),
            home,
            _memory: Memory::Ours(bytes),
        }
    }

    /// Returns the slab to its pool, after its last share.
    fn recycle(self: Box<Self>) {
        let Some(home) = self.home.upgrade() else {
            return;
        };
        if let Ok(mut slabs) = home.slabs.lock()
            && slabs.len() < home.spare_max
        {
            slabs.push(Share::all_of(self));
        }
    }
}

/// Some of the references to a slab (weighted reference counting: Bevan 1987). Atomic operations, one where a segment was cut
/// off and one where it was joined, took a sixth of a segment's time. So a share that is divided gives away references of its
/// own, and one that is joined with another takes over its references: neither touches the slab's count.
///
/// Packed, so that a writer is 16 bytes and a piece 20: a connection has two writers, a segment two pieces.
#[repr(C, packed(4))]
struct Share {
    slab: NonNull<Slab>,
    /// At least 1.
    references: u32,
}

// SAFETY: a share is no more than shared access to its slab, which is `Send` and `Sync`.
unsafe impl Send for Share {}
// SAFETY: as above; `&Share` changes only the slab's count, which is atomic.
unsafe impl Sync for Share {}

impl Share {
    /// References that a share has from the count: enough for the segments that a super-segment is cut into.
    const SOME: u32 = 256;

    /// The only share of a slab.
    fn all_of(mut slab: Box<Slab>) -> Share {
        *slab.references.get_mut() = u64::from(Self::SOME);
        Share {
            slab: NonNull::from(Box::leak(slab)),
            references: Self::SOME,
        }
    }

    /// Adds references to the slab's count. `Relaxed`, as in `Arc`: who has a share keeps the slab, so nothing
    /// depends on the order.
    fn count_more(&self) -> u32 {
        let more = u64::from(Self::SOME);
        (**self).references.fetch_add(more, Ordering::Relaxed);
        Self::SOME
    }

    /// Another share, by the slab's count.
    fn another(&self) -> Share {
        Share {
            slab: self.slab,
            references: self.count_more(),
        }
    }

    /// Gives one of its references away.
    fn divide(&mut self) -> Share {
        if self.references == 1 {
            self.references += self.count_more();
        }
        self.references -= 1;
        Share {
            slab: self.slab,
            references: 1,
        }
    }

    /// Takes over the references of another share of the same slab.
    fn join(&mut self, other: Share) {
        debug_assert_eq!({ self.slab }, { other.slab });
        if let Some(sum) = self.references.checked_add(other.references) {
            self.references = sum;
            // Its references are this share's now.
            let _kept = ManuallyDrop::new(other);
        }
    }
}

impl Deref for Share {
    type Target = Slab;

    fn deref(&self) -> &Slab {
        // SAFETY: the slab lives until its count falls to zero, and this share is part of the count.
        unsafe { { self.slab }.as_ref() }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let references = u64::from(self.references);
        // The load saves the dearer subtraction if this is the only share. Either is ordered as in `Arc`: what other
        // holders did with the slab happens before what follows.
        let is_last = (**self).references.load(Ordering::Acquire) == references
            || (**self).references.fetch_sub(references, Ordering::Release) == references;
        if is_last {
            fence(Ordering::Acquire);
            // SAFETY: from `Box::leak` in `all_of`, and no share is left that could reach it.
            unsafe { Box::from_raw(self.slab.as_ptr()) }.recycle();
        }
    }
}

/// The only writer of a slab. It writes from the beginning to the end.
#[derive(Default)]
pub struct Writer {
    slab: Option<Share>,
    filled: u32,
}

impl Writer {
    /// Number of bytes that still fit.
    pub fn space(&self) -> usize {
        self.slab
            .as_ref()
            .map_or(0, |slab| slab.len - self.filled as usize)
    }

    /// True if there is a slab and less than a sixteenth of it is free.
    pub(crate) fn is_spent(&self) -> bool {
        (self.slab.as_ref()).is_some_and(|slab| self.space() < slab.len / 16)
    }

    /// Copies as many of `bytes` as fit and returns them as a piece.
    pub fn append(&mut self, bytes: &[u8]) -> Piece {
        let len = bytes.len().min(self.space());
        let copied: Result<Piece, std::convert::Infallible> = self.fill(|space| {
            space[..len].copy_from_slice(&bytes[..len]);
            Ok(len)
        });
        copied.unwrap_or_default()
    }

    /// Passes the free space to `fill`, which returns how many bytes it wrote from the beginning.
    /// The piece is empty if the writer has no slab.
    ///
    /// # Errors
    /// The error of `fill`; then nothing counts as written.
    pub fn fill<E>(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Piece, E> {
        let Some(slab) = &mut self.slab else {
            return Ok(Piece::default());
        };
        let start = self.filled;
        let space = slab.len - start as usize;
        // SAFETY: the range is inside the slab and initialised (allocated as zeroes), no piece
        // reaches into it, and `&mut self` makes this the only writer.
        let unfilled =
            unsafe { std::slice::from_raw_parts_mut(slab.base.add(start as usize), space) };
        let written = fill(unfilled)?.min(space);
        self.filled += written as u32;
        Ok(Piece {
            slab: Some(slab.divide()),
            start,
            len: written as u32,
        })
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} filled, {} left)", self.filled, self.space())
    }
}

/// Immutable bytes, shared by reference counting. A clone copies 20 bytes and changes the count.
#[derive(Default)]
pub struct Piece {
    slab: Option<Share>,
    start: u32,
    len: u32,
}

impl Piece {
    /// Makes a piece of memory that `owner` holds, such as a mapped file, without copying. The
    /// owner is dropped with the last piece. Bytes beyond 4 GiB are cut off.
    pub fn lend(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        // First in its place, because the address that `as_ref` returns must stay valid.
        let owner = Arc::new(owner);
        let bytes = (*owner).as_ref();
        // Only a slab with a writer is written, and a slab made here never has a writer.
        let (base, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        Self {
            slab: Some(Share::all_of(Box::new(Slab {
                base,
                len,
                references: AtomicU64::new(0),
                home: Weak::new(),
                _memory: Memory::Lent(owner),
            }))),
            start: 0,
            len: len.min(u32::MAX as usize) as u32,
        }
    }

    /// Number of bytes in this piece.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the part in `range` without copying. A range beyond the end is cut.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        Self {
            slab: self.slab.as_ref().map(Share::another),
            start: self.start + start as u32,
            len: (end - start) as u32,
        }
    }

    /// Takes the first `bytes` bytes off, or all.
    pub fn split_front(&mut self, bytes: usize) -> Self {
        let bytes = bytes.min(self.len()) as u32;
        let front = Self {
            slab: self.slab.as_mut().map(Share::divide),
            start: self.start,
            len: bytes,
        };
        self.start += bytes;
        self.len -= bytes;
        front
    }

    /// Drops the first `bytes` bytes.
    pub fn trim_front(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len()) as u32;
        self.start += bytes;
        self.len -= bytes;
    }

    /// Keeps only the first `bytes` bytes.
    pub fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(bytes.min(u32::MAX as usize) as u32);
    }

    /// Joins this piece to `last` if it directly follows in the same slab. Otherwise returns it.
    // Inlined: out of line a piece is passed in memory, and reading it waits until it is stored.
    #[inline(always)]
    pub fn join(mut self, last: Option<&mut Self>) -> Option<Self> {
        let Some(last) = last else { return Some(self) };
        match (&mut last.slab, self.slab.take()) {
            (Some(share), Some(own))
                if { share.slab } == { own.slab } && last.start + last.len == self.start =>
            {
                share.join(own);
                last.len += self.len;
                None
            }
            (_, own) => {
                self.slab = own;
                Some(self)
            }
        }
    }

    /// Bytes of memory that this piece keeps allocated, at least its own length.
    pub fn held_bytes(&self) -> usize {
        self.slab.as_ref().map_or(0, |slab| slab.len)
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        let Some(slab) = &self.slab else { return &[] };
        // SAFETY: `start + len` was filled before the piece was made, filled bytes are never
        // written again while a piece exists, and `slab` keeps them alive for the borrow.
        unsafe { std::slice::from_raw_parts(slab.base.add(self.start as usize), self.len()) }
    }
}

impl Clone for Piece {
    fn clone(&self) -> Self {
        Self {
            slab: self.slab.as_ref().map(Share::another),
            start: self.start,
            len: self.len,
        }
    }
}

impl From<Vec<u8>> for Piece {
    /// Takes the vector's memory without copying. Bytes beyond 4 GiB are cut off.
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len().min(u32::MAX as usize) as u32;
        Self {
            slab: Some(Share::all_of(Box::new(Slab::of(bytes, Weak::new())))),
            start: 0,
            len,
        }
    }
}

impl From<&[u8]> for Piece {
    fn from(bytes: &[u8]) -> Self {
        bytes.to_vec().into()
    }
}

impl fmt::Debug for Piece {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Piece({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slab_returns_to_its_pool_with_its_last_piece() {
        let pool = Pool::new(100, 4);
        let mut writer = pool.writer();
        let a = writer.append(b"one");
        let b = a.slice(1..3);
        drop(writer);
        drop(a);
        assert_eq!(pool.spare(), 0);
        assert_eq!(b.as_ref(), b"ne");
        drop(b);
        assert_eq!(pool.spare(), 1);
        let _again = pool.writer();
        assert_eq!(pool.spare(), 0);
    }

    #[test]
    fn what_is_lent_ends_with_its_last_piece() {
        let owner = Arc::new(b"somebody's".to_vec());
        struct Lent(Arc<Vec<u8>>);
        impl AsRef<[u8]> for Lent {
            fn as_ref(&self) -> &[u8] {
                &self.0
            }
        }
        let whole = Piece::lend(Lent(Arc::clone(&owner)));
        let part = whole.slice(4..8);
        drop(whole);
        assert_eq!(part.as_ref(), b"body");
        assert_eq!(Arc::strong_count(&owner), 2);
        drop(part);
        assert_eq!(Arc::strong_count(&owner), 1);
    }

    #[test]
    fn pieces_of_one_slab_written_one_after_the_other_join() {
        let pool = Pool::new(10, 4);
        let mut writer = pool.writer();
        let mut a = writer.append(b"abcd");
        let b = writer.append(b"efgh");
        let c = writer.append(b"ijkl");
        assert_eq!(c.as_ref(), b"ij", "no more than fits");
        let again = b.clone();
        assert!(b.join(Some(&mut a)).is_none());
        assert_eq!(a.as_ref(), b"abcdefgh");
        assert!(a.join(Some(&mut again.clone())).is_some(), "it is before");
        assert!(again.join(None).is_some());
    }

    #[test]
    fn a_slice_beyond_the_end_is_cut() {
        let piece = Piece::from(b"hello".as_slice());
        assert_eq!(piece.slice(3..99).as_ref(), b"lo");
        assert!(piece.slice(7..9).is_empty());
    }

    #[test]
    fn the_pool_keeps_no_more_than_it_was_told() {
        let pool = Pool::new(10, 1);
        let (a, b) = (pool.writer(), pool.writer());
        drop((a, b));
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    #[allow(
        clippy::disallowed_methods,
        reason = "pieces may cross threads, if not ours"
    )]
    fn shares_of_many_threads_return_their_slab_once() {
        let pool = Pool::new(1000, 4);
        let mut whole = pool.writer().append(&[7; 1000]);
        let parts: Vec<Piece> = (0..10).map(|_| whole.split_front(100)).collect();
        let threads = parts.into_iter().map(|mut part| {
            std::thread::spawn(move || {
                let again = part.slice(50..100);
                let mut first = part.split_front(30);
                let last = part.clone();
                assert!(part.join(Some(&mut first)).is_none());
                drop((first, last));
                again
            })
        });
        let threads: Vec<_> = threads.collect();
        let again: Vec<Piece> = threads.into_iter().map(|one| one.join().unwrap()).collect();
        drop(whole);
        assert_eq!(pool.spare(), 0);
        assert!(again.iter().all(|part| part.as_ref() == [7; 50]));
        drop(again);
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    fn a_share_never_lacks_references() {
        let pool = Pool::new(2000, 4);
        let mut whole = pool.writer().append(&[7; 2000]);
        // More than a share has at first.
        let mut parts: Vec<Piece> = (0..1000).map(|_| whole.split_front(2)).collect();
        let parts = parts.drain(..).filter(|part| !part.is_empty());
        let mut joined = Piece::default();
        for part in parts {
            joined = match part.join(Some(&mut joined)) {
                Some(first) => first,
                None => joined,
            };
        }
        assert_eq!(joined.len(), 2000);
        drop((whole, joined));
        assert_eq!(pool.spare(), 1);
    }

    #[test]
    fn pieces_may_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Piece>();
        check::<Pool>();
    }
}
