//! The bytes of payload: a pattern whose period is prime, so that no buffer, page or segment size
//! divides it and bytes that are lost, doubled or moved show up as a mismatch.

use tcpcost_knobs::Side;

use crate::error::Mismatch;

/// Period of the pattern, bytes: a prime just below a page.
pub(crate) const PERIOD: usize = 4093;

/// Byte `offset` of the pattern: a multiplicative hash, so that a shift by any number of bytes
/// below the period changes nearly every byte (255 of 256 on average).
fn byte(offset: u64) -> u8 {
    let within = offset % PERIOD as u64;
    ((within + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
}

/// Offset in the pattern where a connection's byte stream starts, so that bytes that went to
/// another connection, or came from the other end, show up, too.
pub(crate) fn phase(connection: u32, sender: Side) -> u32 {
    let direction = match sender {
        Side::Connects => 0,
        Side::Listens => 1,
    };
    // 1021 is prime, so 4093 successive connections have different phases.
    ((u64::from(connection) * 2 + direction) * 1021 % PERIOD as u64) as u32
}

/// Fills `bytes` with the pattern, starting at `offset`.
pub(crate) fn fill(offset: u64, bytes: &mut [u8]) {
    let head = bytes.len().min(PERIOD);
    for (at, slot) in bytes[..head].iter_mut().enumerate() {
        *slot = byte(offset + at as u64);
    }
    let mut done = head;
    while done < bytes.len() {
        let part = (bytes.len() - done).min(done / PERIOD * PERIOD);
        bytes.copy_within(..part, done);
        done += part;
    }
}

/// Compares received bytes with the pattern.
#[derive(Debug)]
pub(crate) struct Checker {
    /// Pattern of one read buffer and one more period: the bytes at any offset are then contiguous.
    expected: Vec<u8>,
}

impl Checker {
    pub(crate) fn new(read_bytes: usize) -> Checker {
        let mut expected = vec![0; read_bytes + PERIOD];
        fill(0, &mut expected);
        Checker { expected }
    }

    /// Compares `found`, at most one read buffer long, with the pattern at `offset`.
    #[inline]
    pub(crate) fn compare(&self, offset: u64, found: &[u8]) -> Result<(), Mismatch> {
        let start = (offset % PERIOD as u64) as usize;
        let expected = &self.expected[start..start + found.len()];
        if expected == found {
            return Ok(());
        }
        let at = expected
            .iter()
            .zip(found)
            .position(|(expected, found)| expected != found)
            .expect("unequal slices of one length differ somewhere");
        Err(Mismatch {
            after: at as u64,
            expected: expected[at],
            found: found[at],
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_piece_of_the_stream_compares_equal(offset in 0u64..1 << 40, len in 0usize..20_000) {
            let mut bytes = vec![0; len];
            fill(offset, &mut bytes);
            prop_assert_eq!(Checker::new(len).compare(offset, &bytes), Ok(()));
        }

        #[test]
        fn one_changed_byte_is_found_where_it_is(len in 1usize..20_000, at in any::<prop::sample::Index>(), flip in 1u8..) {
            let mut bytes = vec![0; len];
            fill(3, &mut bytes);
            let at = at.index(len);
            bytes[at] ^= flip;
            let mismatch = Checker::new(len).compare(3, &bytes).unwrap_err();
            prop_assert_eq!(mismatch, Mismatch { after: at as u64, expected: bytes[at] ^ flip, found: bytes[at] });
        }

        #[test]
        fn a_shift_is_found(shift in 1u64..PERIOD as u64) {
            let mut bytes = vec![0; 64];
            fill(shift, &mut bytes);
            prop_assert!(Checker::new(64).compare(0, &bytes).is_err());
        }
    }

    #[test]
    fn neighbours_and_directions_have_phases_of_their_own() {
        let mut phases: Vec<u32> = (0..2000)
            .flat_map(|connection| Side::BOTH.map(|side| phase(connection, side)))
            .collect();
        phases.sort_unstable();
        phases.dedup();
        assert_eq!(phases.len(), 4000);
    }
}
