//! List of the pieces that make up the payload of one segment.

use std::ops::Range;

use super::Piece;
use crate::checksum::Sum;

/// Payload of a segment or super-segment, in order. Up to two pieces need no allocation. The size
/// is 72 bytes, because a chain is moved with every segment.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    inline: [Piece; INLINE],
    rest: Vec<Piece>,
    len: u32,
    inline_count: u8,
    /// True if `sum` is the folded checksum sum over all bytes.
    is_summed: bool,
    sum: u16,
}

impl Chain {
    /// Makes an empty chain.
    pub fn new() -> Self {
        Self::default()
    }

    /// Number of bytes in all pieces.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// True if there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends `piece`; extends the last piece instead if both are adjacent in one slab.
    // Inlined for the reason given at [`Piece::join`].
    #[inline(always)]
    pub fn push(&mut self, piece: Piece) {
        if piece.is_empty() {
            return;
        }
        self.len += piece.len() as u32;
        self.is_summed = false;
        let count = self.inline_count as usize;
        let last = self.rest.last_mut().or(self.inline[..count].last_mut());
        let Some(piece) = piece.join(last) else {
            return;
        };
        if count < INLINE {
            self.inline[count] = piece;
            self.inline_count += 1;
        } else {
            self.rest.push(piece);
        }
    }

    /// Sets the known checksum sum over all bytes; `None` if it is not known.
    pub(crate) fn set_sum(&mut self, sum: Option<Sum>) {
        self.is_summed = sum.is_some();
        self.sum = sum.map_or(0, Sum::partial);
    }

    /// Returns the checksum sum over all bytes: the known one, or else computed now.
    pub(crate) fn sum(&self) -> Sum {
        if self.is_summed {
            return Sum::new().add_word(self.sum);
        }
        self.sum_of_bytes()
    }

    /// Computes the checksum sum over all bytes, even if it is known.
    pub(crate) fn sum_of_bytes(&self) -> Sum {
        Sum::new().add_pieces(self.iter().map(Piece::as_ref))
    }

    /// Iterates over the pieces, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Piece> {
        self.inline[..self.inline_count as usize]
            .iter()
            .chain(&self.rest)
    }

    /// Converts the chain into its pieces, in order.
    pub fn into_pieces(mut self) -> impl Iterator<Item = Piece> {
        let inline = std::mem::take(&mut self.inline);
        let rest = std::mem::take(&mut self.rest);
        inline
            .into_iter()
            .take(self.inline_count as usize)
            .chain(rest)
    }

    /// Passes each piece to `take`, in order, and leaves the chain empty. The chain itself is not
    /// moved.
    pub(crate) fn drain(&mut self, mut take: impl FnMut(Piece)) {
        let count = usize::from(std::mem::take(&mut self.inline_count));
        (self.len, self.is_summed) = (0, false);
        for piece in &mut self.inline[..count] {
            take(std::mem::take(piece));
        }
        self.rest.drain(..).for_each(take);
    }

    /// Moves the first `bytes` bytes to the end of `front`.
    #[inline]
    pub(crate) fn move_front(&mut self, bytes: usize, front: &mut Self) {
        let first = &mut self.inline[0];
        if first.len() > bytes {
            front.push(first.split_front(bytes));
            self.len -= bytes as u32;
            self.is_summed = false;
            return;
        }
        front.append(&mut self.slice(0..bytes));
        *self = self.slice(bytes..self.len());
    }

    /// Appends all of `next` and leaves `next` empty.
    pub(crate) fn append(&mut self, next: &mut Self) {
        next.drain(|piece| self.push(piece));
    }

    /// Returns the bytes in `range` without copying. A range beyond the end is cut.
    pub fn slice(&self, range: Range<usize>) -> Self {
        let mut part = Self::new();
        let mut start = 0;
        for piece in self.iter() {
            let end = start + piece.len();
            if end > range.start && start < range.end {
                part.push(piece.slice(range.start.saturating_sub(start)..range.end - start));
            }
            start = end;
        }
        part
    }

    /// Copies all bytes into one vector, for tests and captures.
    pub fn to_vec(&self) -> Vec<u8> {
        self.iter()
            .flat_map(|piece| piece.as_ref().iter().copied())
            .collect()
    }
}

impl From<Piece> for Chain {
    fn from(piece: Piece) -> Self {
        let mut chain = Self::new();
        chain.push(piece);
        chain
    }
}

impl FromIterator<Piece> for Chain {
    fn from_iter<I: IntoIterator<Item = Piece>>(pieces: I) -> Self {
        let mut chain = Self::new();
        pieces.into_iter().for_each(|piece| chain.push(piece));
        chain
    }
}

/// Number of pieces that need no allocation. A super-segment cut from slabs of its own size
/// spans at most two slabs.
pub const INLINE: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_slice_is_what_it_is_of_the_bytes(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..20), 0..6),
            a in 0usize..80, b in 0usize..80,
        ) {
            let chain: Chain = parts.iter().map(|part| Piece::from(part.as_slice())).collect();
            let bytes = parts.concat();
            prop_assert_eq!(chain.to_vec(), bytes.clone());
            let range = a.min(b).min(bytes.len())..a.max(b).min(bytes.len());
            prop_assert_eq!(chain.slice(a.min(b)..a.max(b)).to_vec(), &bytes[range]);
            prop_assert_eq!(chain.len(), bytes.len());
        }
    }
}
