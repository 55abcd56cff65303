//! Slabs, the pool they come from, and the pieces that are parts of them.
//!
//! All `unsafe` of the crate but vector instructions in `wire/checksum.rs` lives here. It buys one thing: the unfilled end of a slab can be
//! written while pieces of its filled beginning are in flight, so that many small writes share one
//! slab instead of pinning one each.

#![allow(unsafe_code, reason = "hands out memory that is not yet written")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, Weak};

/// Hands out slabs and takes them back when their last piece is gone: last in, first out, because
/// the slab freed last is the one still in cache, and never cleared, because nobody can read what
/// was not written.
#[derive(Clone)]
pub struct Pool {
    free: Arc<FreeList>,
    slab_bytes: usize,
}

impl Pool {
    /// A pool of slabs of `slab_bytes` each that keeps at most `spare_max` unused ones.
    pub fn new(slab_bytes: usize, spare_max: usize) -> Self {
        let free = FreeList {
            slabs: Mutex::new(Vec::new()),
            spare_max,
        };
        Self {
            free: Arc::new(free),
            slab_bytes: slab_bytes.max(1),
        }
    }

    /// An empty slab to write into.
    pub fn writer(&self) -> Writer {
        let spare = self
            .free
            .slabs
            .lock()
            .ok()
            .and_then(|mut slabs| slabs.pop());
        let slab = spare.unwrap_or_else(|| {
            let home = Arc::downgrade(&self.free);
            Arc::new(Slab::of(vec![0; self.slab_bytes], home))
        });
        Writer {
            slab: Some(slab),
            filled: 0,
        }
    }

    /// One piece filled by `fill`, which says how many bytes it wrote into the slab it was lent.
    ///
    /// # Errors
    /// What `fill` returns; the slab goes back.
    pub fn fill<E>(&self, fill: impl FnOnce(&mut [u8]) -> Result<usize, E>) -> Result<Piece, E> {
        self.writer().fill(fill)
    }

    /// Slabs waiting to be used.
    pub fn spare(&self) -> usize {
        self.free.slabs.lock().map_or(0, |slabs| slabs.len())
    }
}

impl Default for Pool {
    /// Slabs of 64 KiB + 256 (a super-segment with its headers), 64 spare (4 MiB).
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
    slabs: Mutex<Vec<Arc<Slab>>>,
    spare_max: usize,
}

struct Slab {
    /// Of `memory`: asked for at each access, and so not behind a question whose it is.
    base: *mut u8,
    len: usize,
    home: Weak<FreeList>,
    _memory: Memory,
}

/// Whoever owns the bytes; nobody asks it for them again or changes them but through the slab's writer.
enum Memory {
    Ours(#[allow(dead_code, reason = "it is kept")] Box<[UnsafeCell<u8>]>),
    Lent(#[allow(dead_code, reason = "it is kept")] Box<dyn Send + Sync>),
}

// SAFETY: bytes below a writer's `filled` are only read and bytes at or above it are touched only
// through the one `Writer` of the slab (`&mut self`, not `Clone`); a piece never reaches above.
unsafe impl Sync for Slab {}
// SAFETY: owns plain bytes, or an owner of bytes that may go to another thread.
unsafe impl Send for Slab {}

impl Slab {
    /// Takes the vector's memory.
    fn of(bytes: Vec<u8>, home: Weak<FreeList>) -> Slab {
        let bytes = shared(bytes.into_boxed_slice());
        Slab {
            base: UnsafeCell::raw_get(bytes.as_ptr()),
            len: bytes.len(),
            home,
            _memory: Memory::Ours(bytes),
        }
    }

    /// Gives up one reference, and the slab to its pool if it was the last.
    fn release(mut slab: Arc<Self>) {
        // `get_mut` also orders this thread after every other holder's last read.
        if Arc::strong_count(&slab) > 1 || Arc::get_mut(&mut slab).is_none() {
            return;
        }
        let Some(home) = slab.home.upgrade() else {
            return;
        };
        if let Ok(mut slabs) = home.slabs.lock()
            && slabs.len() < home.spare_max
        {
            slabs.push(slab);
        }
    }
}

fn shared(bytes: Box<[u8]>) -> Box<[UnsafeCell<u8>]> {
    // SAFETY: `UnsafeCell<u8>` has the layout of `u8`, and the box is the only owner.
    unsafe { Box::from_raw(Box::into_raw(bytes) as *mut [UnsafeCell<u8>]) }
}

/// The one place that may write into a slab, from its beginning to its end.
#[derive(Default)]
pub struct Writer {
    slab: Option<Arc<Slab>>,
    filled: usize,
}

impl Writer {
    /// Bytes that still fit.
    pub fn space(&self) -> usize {
        self.slab.as_ref().map_or(0, |slab| slab.len - self.filled)
    }

    /// Whether there is a slab, with less than a sixteenth of it left.
    pub(crate) fn is_spent(&self) -> bool {
        (self.slab.as_ref()).is_some_and(|slab| slab.len - self.filled < slab.len / 16)
    }

    /// Copies as much of `bytes` as fits and returns it as a piece.
    pub fn append(&mut self, bytes: &[u8]) -> Piece {
        let len = bytes.len().min(self.space());
        let copied: Result<Piece, std::convert::Infallible> = self.fill(|space| {
            super::copy(&mut space[..len], &bytes[..len]);
            Ok(len)
        });
        copied.unwrap_or_default()
    }

    /// Lends the space left to `fill`, which says how many bytes it wrote from its beginning.
    ///
    /// # Errors
    /// What `fill` returns; then nothing was written.
    pub fn fill<E>(
        &mut self,
        fill: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Result<Piece, E> {
        let Some(slab) = &self.slab else {
            return Ok(Piece::default());
        };
        let space = slab.len - self.filled;
        // SAFETY: the range is inside the slab and initialised (allocated as zeroes), no piece
        // reaches into it, and `&mut self` makes this the only writer.
        let unfilled = unsafe { std::slice::from_raw_parts_mut(slab.base.add(self.filled), space) };
        let written = fill(unfilled)?.min(space);
        let start = self.filled;
        self.filled += written;
        Ok(Piece {
            slab: Some(Arc::clone(slab)),
            start: start as u32,
            len: written as u32,
        })
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            Slab::release(slab);
        }
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Writer({} filled, {} left)", self.filled, self.space())
    }
}

/// Some bytes that never change, shared by counting references. Cloning copies 16 bytes.
#[derive(Default)]
pub struct Piece {
    slab: Option<Arc<Slab>>,
    start: u32,
    len: u32,
}

impl Piece {
    /// Memory that somebody else owns, such as a mapped file: nothing is copied, and the owner is dropped with the last
    /// piece of it. Bytes beyond 4 GiB are left out.
    pub fn lend(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        // Boxed first, so that what it gives stays where it is.
        let owner = Box::new(owner);
        let bytes = (*owner).as_ref();
        // Only a slab with a writer is written, and one that is lent never has any.
        let (base, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        Self {
            slab: Some(Arc::new(Slab {
                base,
                len,
                home: Weak::new(),
                _memory: Memory::Lent(owner),
            })),
            start: 0,
            len: len.min(u32::MAX as usize) as u32,
        }
    }

    /// Bytes in this piece.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The part of it in `range`; parts beyond its end are left out.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let end = range.end.min(self.len());
        let start = range.start.min(end);
        let slab = self.slab.as_ref().map(Arc::clone);
        Self {
            slab,
            start: self.start + start as u32,
            len: (end - start) as u32,
        }
    }

    /// Drops the first `bytes`.
    pub fn trim_front(&mut self, bytes: usize) {
        let bytes = bytes.min(self.len()) as u32;
        self.start += bytes;
        self.len -= bytes;
    }

    /// Keeps only the first `bytes`.
    pub fn truncate(&mut self, bytes: usize) {
        self.len = self.len.min(bytes.min(u32::MAX as usize) as u32);
    }

    /// Joins `next` to the end of `self` if it lies right behind it in the same slab.
    pub fn try_extend(&mut self, next: &Self) -> bool {
        let adjacent = match (&self.slab, &next.slab) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) && self.start + self.len == next.start,
            _ => false,
        };
        if adjacent {
            self.len += next.len;
        }
        adjacent
    }

    /// Bytes of memory this piece keeps alive, whatever its own length.
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
        let slab = self.slab.as_ref().map(Arc::clone);
        Self {
            slab,
            start: self.start,
            len: self.len,
        }
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        if let Some(slab) = self.slab.take() {
            Slab::release(slab);
        }
    }
}

impl From<Vec<u8>> for Piece {
    /// Takes the vector's memory; nothing is copied. Bytes beyond 4 GiB are left out.
    fn from(bytes: Vec<u8>) -> Self {
        let len = bytes.len().min(u32::MAX as usize) as u32;
        Self {
            slab: Some(Arc::new(Slab::of(bytes, Weak::new()))),
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
        assert!(a.try_extend(&b));
        assert_eq!(a.as_ref(), b"abcdefgh");
        assert!(!b.clone().try_extend(&a));
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
    fn pieces_may_cross_threads() {
        fn check<T: Send + Sync>() {}
        check::<Piece>();
        check::<Pool>();
    }
}
