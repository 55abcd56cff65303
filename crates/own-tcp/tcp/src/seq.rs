//! Sequence numbers: arithmetic modulo 2³² (RFC 9293 §3.4).

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

/// Sequence number of one byte (or of a SYN or FIN) in one direction of a connection.
///
/// Not `Ord`: "less" is defined only between numbers less than 2³¹ apart and is not transitive over
/// the whole circle. Comparison is therefore a named method, and `sort` does not compile.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct SeqNum(u32);

impl SeqNum {
    /// Makes the number with this value in the header.
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Returns the value in the header.
    pub const fn value(self) -> u32 {
        self.0
    }

    /// Bytes from `earlier` up to `self`, modulo 2³².
    pub const fn since(self, earlier: Self) -> u32 {
        self.0.wrapping_sub(earlier.0)
    }

    /// True if `self < other`.
    pub const fn before(self, other: Self) -> bool {
        (self.0.wrapping_sub(other.0) as i32) < 0
    }

    /// True if `self <= other`.
    pub const fn at_or_before(self, other: Self) -> bool {
        !other.before(self)
    }

    /// True if `self > other`.
    pub const fn after(self, other: Self) -> bool {
        other.before(self)
    }

    /// True if `self >= other`.
    pub const fn at_or_after(self, other: Self) -> bool {
        !self.before(other)
    }

    /// Returns the later number.
    pub const fn max(self, other: Self) -> Self {
        if self.before(other) { other } else { self }
    }

    /// Returns the earlier number.
    pub const fn min(self, other: Self) -> Self {
        if self.before(other) { self } else { other }
    }
}

impl Add<u32> for SeqNum {
    type Output = Self;
    fn add(self, bytes: u32) -> Self {
        Self(self.0.wrapping_add(bytes))
    }
}

impl AddAssign<u32> for SeqNum {
    fn add_assign(&mut self, bytes: u32) {
        *self = *self + bytes;
    }
}

impl Sub<u32> for SeqNum {
    type Output = Self;
    fn sub(self, bytes: u32) -> Self {
        Self(self.0.wrapping_sub(bytes))
    }
}

impl fmt::Debug for SeqNum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn order_is_total_between_numbers_closer_than_half_the_circle(a: u32, d in 1..1u32 << 31) {
            let (a, b) = (SeqNum::new(a), SeqNum::new(a) + d);
            prop_assert!(a.before(b) && b.after(a) && a.at_or_before(b) && !b.at_or_before(a));
            prop_assert_eq!(a.max(b), b);
            prop_assert_eq!(a.min(b), a);
            prop_assert_eq!(b.since(a), d);
        }

        #[test]
        fn order_is_transitive_within_half_the_circle(a: u32, d in 1..1u32 << 30, e in 1..1u32 << 30) {
            let (a, b, c) = (SeqNum::new(a), SeqNum::new(a) + d, SeqNum::new(a) + d + e);
            prop_assert!(a.before(b) && b.before(c) && a.before(c));
        }
    }

    #[test]
    fn a_number_is_neither_before_nor_after_itself() {
        let a = SeqNum::new(u32::MAX);
        assert!(!a.before(a) && !a.after(a) && a.at_or_before(a) && a.at_or_after(a));
        assert_eq!(a + 1, SeqNum::new(0));
        assert_eq!(SeqNum::new(0) - 1, a);
    }
}
