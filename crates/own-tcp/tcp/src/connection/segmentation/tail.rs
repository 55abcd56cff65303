//! Partial segment at the end of a super-segment, before and after the commit "tcp: refine TSO
//! splits" (Dumazet 2013, Linux 3.14): where to split, what Nagle's rule applies to, and what
//! Minshall's variant remembers.

/// Treatment of a partial segment after full-sized ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRule {
    /// Sent with the full-sized segments unless Nagle's rule holds it: Linux since 3.14.
    Keep,
    /// Always sent separately, after the full-sized segments: Linux before 3.14.
    Split,
}

impl TailRule {
    /// True if the full-sized segments leave without the partial one (`tcp_mss_split_point`).
    /// `held` is true if Nagle's rule holds the partial segment; before 3.14 the rule did not apply
    /// to the end of a super-segment.
    pub(super) fn splits(self, held: bool) -> bool {
        match self {
            Self::Keep => held,
            Self::Split => true,
        }
    }

    /// True if `bytes` end in a small segment (`tcp_minshall_update`). Since 3.14 a super-segment
    /// may.
    pub(super) fn is_small(self, bytes: u32, mss: u32) -> bool {
        match self {
            Self::Keep => !bytes.is_multiple_of(mss),
            Self::Split => bytes < mss,
        }
    }
}
