//! The partial segment at the end of a super-segment, before and after "tcp: refine TSO splits"
//! (Dumazet 2013, Linux 3.14): where to split, what Nagle's rule is asked about, and what
//! Minshall's variant remembers.

/// What becomes of a partial segment behind full ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRule {
    /// It leaves with the full ones unless Nagle's rule holds it: Linux since 3.14.
    Keep,
    /// It always leaves by itself, after the full ones: before.
    Split,
}

impl TailRule {
    /// `tcp_mss_split_point`: whether full segments leave without the partial one. `held` is
    /// Nagle's answer about that one; before 2014 it was not asked about the end of a
    /// super-segment.
    pub(super) fn splits(self, held: bool) -> bool {
        match self {
            Self::Keep => held,
            Self::Split => true,
        }
    }

    /// `tcp_minshall_update`: whether these bytes end in a small segment. Since 3.14 a
    /// super-segment may.
    pub(super) fn is_small(self, bytes: u32, mss: u32) -> bool {
        match self {
            Self::Keep => !bytes.is_multiple_of(mss),
            Self::Split => bytes < mss,
        }
    }
}
