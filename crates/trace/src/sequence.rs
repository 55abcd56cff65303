//! Sequence numbers in 64 bits, which do not wrap.

/// Extends `number` to the 64-bit number nearest to `reference`. The result is right if segments
/// are within 2 GiB of the newest, which RFC 7323's largest window ensures.
#[inline]
pub(crate) fn extend(reference: u64, number: u32) -> u64 {
    let ahead = number.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(ahead))
}

/// Extends the first number of a direction, far enough from 0 that older numbers stay positive. An
/// ACK may come first, its data may be 2 GiB lower, and the next ACK 2 GiB below those.
#[inline]
pub(crate) fn first(number: u32) -> u64 {
    (1 << 34) + u64::from(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_wrapped_is_ahead_and_an_old_one_behind() {
        let near_end = first(0xffff_fff0);
        assert_eq!(extend(near_end, 0x10), near_end + 0x20);
        assert_eq!(extend(near_end + 0x20, 0xffff_fff0), near_end);
        assert_eq!(extend(first(5), 0xffff_ffff), first(5) - 6);
        let older = extend(first(0), 1 << 31);
        assert!(extend(extend(older, 0), 1 << 31) < first(0));
    }
}
