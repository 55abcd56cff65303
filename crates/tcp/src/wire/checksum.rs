//! The Internet checksum (RFC 1071): the ones' complement of the ones' complement sum of 16-bit
//! words.

#![allow(unsafe_code, reason = "vector instructions")]

/// A sum in the making. Adding is associative over pieces of even length; an odd piece is only
/// right in front of a piece added with [`Sum::add_pieces`], which keeps track of the half word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sum(u64);

impl Sum {
    /// The sum over nothing.
    pub const fn new() -> Self {
        Self(0)
    }

    /// Adds `bytes`, the last padded with a zero if they are odd.
    #[must_use]
    pub fn add_bytes(self, bytes: &[u8]) -> Self {
        let (words, tail) = bytes.split_at(bytes.len() / 4 * 4);
        let mut last = [0; 4];
        last[..tail.len()].copy_from_slice(tail);
        let sum = wide::sum(words) + u64::from(u32::from_ne_bytes(last));
        Self(self.0 + fold(sum))
    }

    /// Copies `from` into `to`, which is as long, and adds it: one pass for both.
    #[must_use]
    pub fn add_copied(self, to: &mut [u8], from: &[u8]) -> Self {
        let whole = from.len() / 4 * 4;
        let (words, tail) = from.split_at(whole);
        let (to_words, to_tail) = to.split_at_mut(whole);
        to_tail.copy_from_slice(tail);
        let sum = wide::copy(to_words, words);
        Self(self.0 + fold(sum)).add_bytes(tail)
    }

    /// The sum of a run of `bytes` bytes with this sum and of one right behind it.
    #[must_use]
    pub fn followed_by(self, bytes: u32, next: Self) -> Self {
        // RFC 1071 §2(B): the sum of swapped bytes is the swapped sum.
        let next = match bytes % 2 {
            0 => fold(next.0),
            _ => u64::from((fold(next.0) as u16).swap_bytes()),
        };
        Self(fold(self.0) + next)
    }

    /// Adds one 16-bit word given in host order.
    #[must_use]
    pub fn add_word(self, word: u16) -> Self {
        Self(self.0 + u64::from(word.to_be()))
    }

    /// Adds pieces as if they were one run of bytes, whatever their lengths.
    #[must_use]
    pub fn add_pieces<'a>(self, pieces: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut sum = self;
        let mut odd = false;
        for piece in pieces {
            let part = Self::new().add_bytes(piece);
            // RFC 1071 §2(B): the sum of swapped bytes is the swapped sum.
            let part = if odd {
                u64::from((fold(part.0) as u16).swap_bytes())
            } else {
                part.0
            };
            sum = Self(sum.0 + part);
            odd ^= piece.len() % 2 == 1;
        }
        sum
    }

    /// The sum, not complemented, in host order: what a device that completes a checksum expects
    /// to find in the field.
    pub fn partial(self) -> u16 {
        u16::from_be(fold(self.0) as u16)
    }

    /// The checksum, in host order.
    pub fn finish(self) -> u16 {
        !self.partial()
    }

    /// Whether what was added included a right checksum.
    pub fn is_valid(self) -> bool {
        self.partial() == 0xffff
    }
}

fn fold(mut sum: u64) -> u64 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum
}

/// Sums of whole words of four bytes into 64 bits: the compiler makes vector code of it, and the
/// carries of 2³² steps fit.
mod wide {
    pub(super) fn sum(words: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if words.len() >= LONG && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: this CPU has AVX2.
            return unsafe { sum_avx2(words) };
        }
        sum_by(words)
    }

    pub(super) fn copy(to: &mut [u8], words: &[u8]) -> u64 {
        #[cfg(target_arch = "x86_64")]
        if words.len() >= LONG && std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: this CPU has AVX2.
            return unsafe { copy_avx2(to, words) };
        }
        copy_by(to, words)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn sum_avx2(words: &[u8]) -> u64 {
        sum_by(words)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn copy_avx2(to: &mut [u8], words: &[u8]) -> u64 {
        copy_by(to, words)
    }

    #[inline(always)]
    fn sum_by(words: &[u8]) -> u64 {
        words.chunks_exact(4).map(word).sum()
    }

    #[inline(always)]
    fn copy_by(to: &mut [u8], words: &[u8]) -> u64 {
        let mut sum = 0;
        for (to, from) in to.chunks_exact_mut(4).zip(words.chunks_exact(4)) {
            to.copy_from_slice(from);
            sum += word(from);
        }
        sum
    }

    #[inline(always)]
    fn word(bytes: &[u8]) -> u64 {
        u64::from(u32::from_ne_bytes(bytes.try_into().unwrap_or_default()))
    }

    /// Shorter ones, headers that is, are not worth a look at what the CPU can.
    #[cfg(target_arch = "x86_64")]
    const LONG: usize = 256;
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
        !(fold(sum) as u16)
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
