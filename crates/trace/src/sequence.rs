//! Sequence numbers that do not wrap.

/// The number in 64 bits that is nearest to `reference` and ends in these 32: right as long as
/// segments stand within 2 GiB of the newest one, which RFC 7323's largest window ensures.
#[inline]
pub(crate) fn extend(reference: u64, number: u32) -> u64 {
    let ahead = number.wrapping_sub(reference as u32).cast_signed();
    reference.wrapping_add_signed(i64::from(ahead))
}

/// The first number of a direction: far enough from 0 that older ones do not go below it. An ACK may
/// come first, the data that it is about stand 2 GiB before it, and the next ACK 2 GiB before those.
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
