//! Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16-bit words.

#![allow(unsafe_code, reason = "vector instructions")]

/// Unfinished sum: congruent to the sum of the words modulo 2⁶⁴ - 1, and so modulo 2¹⁶ - 1. It is 0
/// only if all added bytes are 0. Pieces of even length may be added in any order; pieces of odd
/// length need [`Sum::add_pieces`] or [`Sum::followed_by`], which keep track of the half word.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sum(u64);

impl Sum {
    /// Makes the sum over no bytes.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`. An odd length is padded with a zero byte.
    #[must_use]
    #[inline]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        self.add(wide::sum(bytes))
    }

    /// Copies `from` into `to`, which must have the same length, and adds the bytes, in one pass.
    #[must_use]
    #[inline]
    pub fn add_copied(self, to: &mut [u8], from: &[u8]) -> Self {
        self.add(wide::copy(to, from))
    }

    /// Returns the sum of `bytes` bytes with this sum and directly following bytes with the sum
    /// `next`.
    #[must_use]
    #[inline]
    pub fn followed_by(self, bytes: u32, next: Self) -> Self {
        // RFC 1071 §2(B): the sum of byte-swapped words is the swapped sum, which is 2⁸ times the
        // sum.
        self.add(next.0.rotate_left(8 * (bytes % 2)))
    }

    /// Adds a 16-bit word given in host order.
    #[must_use]
    #[inline]
    pub fn add_word(self, word: u16) -> Self {
        self.add(u64::from(word.to_be()))
    }

    /// Adds pieces as one run of bytes, whatever their lengths.
    #[must_use]
    #[inline]
    pub fn add_pieces<'a>(self, pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let (mut sum, mut bytes) = (self, 0);
        for piece in pieces {
            sum = sum.followed_by(bytes, Self(wide::sum(piece)));
            bytes = bytes.wrapping_add(piece.len() as u32);
        }
        sum
    }

    /// Returns the sum, not complemented, in host order. A device that completes a checksum expects
    /// this value in the field.
    #[inline]
    pub fn partial(self) -> u16 {
        u16::from_be(fold(self.0))
    }

    /// Returns the checksum in host order.
    #[inline]
    pub fn finish(self) -> u16 {
        !self.partial()
    }

    /// True if the added bytes include their correct checksum.
    #[inline]
    pub fn is_valid(self) -> bool {
        self.partial() == 0xffff
    }

    #[inline]
    fn add(self, sum: u64) -> Self {
        Self(add(self.0, sum))
    }
}

/// Adds modulo 2⁶⁴ - 1. The result is 0 only if both are 0.
#[inline]
fn add(a: u64, b: u64) -> u64 {
    let (sum, carried) = a.overflowing_add(b);
    sum + u64::from(carried)
}

#[inline]
fn fold(sum: u64) -> u16 {
    let sum = (sum >> 32) + (sum & 0xffff_ffff);
    // 33 bits; then 18 bits; then 17 bits.
    let sum = (sum >> 16) + (sum & 0xffff);
    let sum = (sum >> 16) + (sum & 0xffff);
    ((sum >> 16) + (sum & 0xffff)) as u16
}

/// Sums of bytes as 8-byte words, the last padded with zero bytes. Vectors have no carry, so two
/// sums are kept: that of the words modulo 2⁶⁴, and that of their upper halves, which cannot
/// overflow. Together they give the sum of the lower halves.
mod wide {
    use super::add;

    #[inline]
    pub(super) fn sum(bytes: &[u8]) -> u64 {
        if bytes.len() < LONG {
            return rest(0, bytes);
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the check above found AVX2 on this CPU.
            return unsafe { sum_avx2(bytes) };
        }
        sum_by(bytes)
    }

    #[inline]
    pub(super) fn copy(to: &mut [u8], from: &[u8]) -> u64 {
        if from.len() < LONG {
            to.copy_from_slice(from);
            return rest(0, from);
        }
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the check above found AVX2 on this CPU.
            return unsafe { copy_avx2(to, from) };
        }
        copy_by(to, from)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn sum_avx2(bytes: &[u8]) -> u64 {
        sum_by(bytes)
    }

    /// Copies and sums with intrinsics, because the compiler would make two passes.
    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn copy_avx2(to: &mut [u8], from: &[u8]) -> u64 {
        use std::arch::x86_64::{
            __m256i, _mm256_add_epi64, _mm256_loadu_si256, _mm256_setzero_si256, _mm256_srli_epi64,
            _mm256_storeu_si256,
        };
        let ((to_blocks, to_tail), (blocks, tail)) =
            (to.as_chunks_mut::<64>(), from.as_chunks::<64>());
        // One accumulator for each half of a block.
        let (mut all, mut upper) = ([_mm256_setzero_si256(); 2], [_mm256_setzero_si256(); 2]);
        for (to, block) in to_blocks.iter_mut().zip(blocks) {
            let to = to.as_mut_ptr().cast::<__m256i>();
            let block = block.as_ptr().cast::<__m256i>();
            for half in 0..2 {
                // SAFETY: each block holds two vectors, and these loads and stores need no
                // alignment.
                let vector = unsafe {
                    let vector = _mm256_loadu_si256(block.add(half));
                    _mm256_storeu_si256(to.add(half), vector);
                    vector
                };
                all[half] = _mm256_add_epi64(all[half], vector);
                upper[half] = _mm256_add_epi64(upper[half], _mm256_srli_epi64::<32>(vector));
            }
        }
        to_tail.copy_from_slice(tail);
        let lanes = |[a, b]: [__m256i; 2]| -> u64 {
            let mut lanes = [0u64; 4];
            // SAFETY: `lanes` has the size of a vector.
            unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), _mm256_add_epi64(a, b)) };
            lanes.iter().fold(0, |sum, lane| sum.wrapping_add(*lane))
        };
        rest(both(lanes(all), lanes(upper)), tail)
    }

    // Plain loops over words, because the compiler vectorises them but not loops over arrays of
    // lanes.
    #[inline(always)]
    fn sum_by(bytes: &[u8]) -> u64 {
        let (words, tail) = bytes.as_chunks();
        let (mut all, mut upper) = (0u64, 0);
        for word in words {
            let word = u64::from_ne_bytes(*word);
            all = all.wrapping_add(word);
            upper += word >> 32;
        }
        rest(both(all, upper), tail)
    }

    #[inline(always)]
    fn copy_by(to: &mut [u8], from: &[u8]) -> u64 {
        let ((to_words, to_tail), (words, tail)) = (to.as_chunks_mut(), from.as_chunks());
        let (mut all, mut upper) = (0u64, 0);
        for (to, word) in to_words.iter_mut().zip(words) {
            *to = *word;
            let word = u64::from_ne_bytes(*word);
            all = all.wrapping_add(word);
            upper += word >> 32;
        }
        to_tail.copy_from_slice(tail);
        rest(both(all, upper), tail)
    }

    /// Returns the sum of the words modulo 2⁶⁴ - 1. `all` is their sum modulo 2⁶⁴, `upper` the sum
    /// of their upper halves.
    #[inline(always)]
    fn both(all: u64, upper: u64) -> u64 {
        let lower = all.wrapping_sub(upper << 32);
        // Multiplication by 2³² is a rotation by 32 bits.
        add(lower, upper.rotate_left(32))
    }

    /// Adds a few bytes, word by word.
    #[inline(always)]
    fn rest(mut sum: u64, bytes: &[u8]) -> u64 {
        let (words, tail) = bytes.as_chunks();
        for word in words {
            sum = add(sum, u64::from_ne_bytes(*word));
        }
        if tail.is_empty() {
            return sum;
        }
        let mut last = [0; 8];
        last[..tail.len()].copy_from_slice(tail);
        add(sum, u64::from_ne_bytes(last))
    }

    /// Shortest length for which the check of the CPU's features pays. Headers are shorter.
    const LONG: usize = 128;
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn naive(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]));
        }
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        !(sum as u16)
    }

    proptest! {
        #[test]
        fn equals_the_definition(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
            prop_assert_eq!(Sum::new().add_bytes(&bytes).finish(), naive(&bytes));
        }

        #[test]
        fn a_copy_that_sums_is_a_copy_and_a_sum(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 0..5),
        ) {
            let (mut all, mut bytes) = (Sum::new(), 0);
            for part in &parts {
                let mut to = vec![0; part.len()];
                let sum = Sum::new().add_copied(&mut to, part);
                prop_assert_eq!(&to, part);
                all = all.followed_by(bytes, sum);
                bytes += part.len() as u32;
            }
            prop_assert_eq!(all.finish(), naive(&parts.concat()));
        }

        #[test]
        fn does_not_depend_on_where_the_bytes_are_cut(
            parts in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..9),
        ) {
            let sum = Sum::new().add_pieces(parts.iter().map(Vec::as_slice));
            prop_assert_eq!(sum.finish(), naive(&parts.concat()));
        }
    }

    #[test]
    fn the_example_of_rfc_1071_section_3() {
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(Sum::new().add_bytes(&bytes).partial(), 0xddf2);
    }
}
