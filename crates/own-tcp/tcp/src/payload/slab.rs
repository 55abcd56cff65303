//! Slabs, the pool that owns unused slabs, and the pieces that are parts of slabs.
//!
//! All `unsafe` code of the crate is here, except the vector instructions in `checksum.rs`. It
//! allows one thing: the unfilled end of a slab can be written while pieces of its filled beginning
//! are in flight. So many small writes share one slab instead of holding one slab each.

#![allow(unsafe_code, reason = "hands out memory that is not yet written")]

use std::cell::UnsafeCell;
use std::fmt;
use std::ops::Range;
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
    /// Makes a pool of slabs of `slab_bytes` each that keeps up to `spare_max` unused slabs.
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
            Arc::new(Slab::of(vec![0; self.slab_bytes], home))
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
    slabs: Mutex<Vec<Arc<Slab>>>,
    spare_max: usize,
}

struct Slab {
    /// Start of the bytes in `_memory`. Kept here, so that an access need not ask which variant
    /// owns them.
    base: *mut u8,
    len: usize,
    home: Weak<FreeList>,
    _memory: Memory,
}

/// Owner of a slab's bytes. Never read; only the slab's writer changes the bytes.
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
    /// Takes the vector's memory without copying.
    fn of(bytes: Vec<u8>, home: Weak<FreeList>) -> Slab {
        let bytes = shared(bytes.into_boxed_slice());
        Slab {
            base: UnsafeCell::raw_get(bytes.as_ptr()),
            len: bytes.len(),
            home,
            _memory: Memory::Ours(bytes),
        }
    }

    /// Drops one reference. If it was the last, returns the slab to its pool.
    fn release(mut slab: Arc<Self>) {
        // `get_mut` also orders this thread after the last read of every other holder.
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

/// The only writer of a slab. It writes from the beginning to the end.
#[derive(Default)]
pub struct Writer {
    slab: Option<Arc<Slab>>,
    filled: usize,
}

impl Writer {
    /// Number of bytes that still fit.
    pub fn space(&self) -> usize {
        self.slab.as_ref().map_or(0, |slab| slab.len - self.filled)
    }

    /// True if there is a slab and less than a sixteenth of it is free.
    pub(crate) fn is_spent(&self) -> bool {
        (self.slab.as_ref()).is_some_and(|slab| slab.len - self.filled < slab.len / 16)
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

/// Immutable bytes, shared by reference counting. A clone copies 16 bytes and increments the count.
#[derive(Default)]
pub struct Piece {
    slab: Option<Arc<Slab>>,
    start: u32,
    len: u32,
}

impl Piece {
    /// Makes a piece of memory that `owner` holds, such as a mapped file, without copying. The
    /// owner is dropped with the last piece. Bytes beyond 4 GiB are cut off.
    pub fn lend(owner: impl AsRef<[u8]> + Send + Sync + 'static) -> Self {
        // Boxed first, because the address that `as_ref` returns must stay valid.
        let owner = Box::new(owner);
        let bytes = (*owner).as_ref();
        // Only a slab with a writer is written, and a slab made here never has a writer.
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
        let slab = self.slab.as_ref().map(Arc::clone);
        Self {
            slab,
            start: self.start + start as u32,
            len: (end - start) as u32,
        }
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

    /// Appends `next` if it directly follows `self` in the same slab. True if it did.
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
    /// Takes the vector's memory without copying. Bytes beyond 4 GiB are cut off.
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
