//! A segment as a value.

use std::fmt;
use std::ops::BitOr;

use super::{Ecn, Options};
use crate::{Chain, SeqNum};

/// One segment, or a super-segment standing for several on the wire. Ports and addresses are
/// beside it ([`FourTuple`](super::FourTuple)): a connection does not look at them.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// SEG.SEQ: of the SYN if there is one, else of the first payload byte.
    pub seq: SeqNum,
    /// SEG.ACK: meaningless without the ACK flag.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND as on the wire, not scaled.
    pub window: u16,
    /// Options we know.
    pub options: Options,
    /// Payload.
    pub payload: Chain,
    /// Payload bytes of each wire segment but the last, if this is a super-segment; 0 if it is an
    /// ordinary segment.
    pub segment_size: u16,
    /// Congestion marks of the IP header.
    pub ecn: Ecn,
}

impl Segment {
    /// SEG.LEN: sequence numbers it occupies, SYN and FIN included.
    pub fn len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// Whether it occupies no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The sequence number after its last.
    pub fn end(&self) -> SeqNum {
        self.seq + self.len()
    }

    /// Segments on the wire that it stands for, at least 1.
    pub fn wire_segments(&self) -> u32 {
        match self.segment_size {
            0 => 1,
            size => (self.payload.len() as u32).div_ceil(u32::from(size)).max(1),
        }
    }
}

/// Control bits (RFC 9293 §3.1), with ECE and CWR (RFC 3168).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Flags(u8);

impl Flags {
    /// No more data from the sender.
    pub const FIN: Self = Self(0x01);
    /// Synchronise sequence numbers.
    pub const SYN: Self = Self(0x02);
    /// Reset the connection.
    pub const RST: Self = Self(0x04);
    /// Push: nothing follows at once.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// No flag.
    pub const fn none() -> Self {
        Self(0)
    }

    /// The flags of byte 13 of a header.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Byte 13 of a header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Whether all of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Whether any of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// `self` with `other` if `yes`.
    #[must_use]
    pub const fn with(self, other: Self, yes: bool) -> Self {
        if yes { Self(self.0 | other.0) } else { self }
    }

    /// `self` without `other`.
    #[must_use]
    pub const fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl fmt::Debug for Flags {
    /// tcpdump's letters: `S.`, `F.`, `P.`, `R`, `.`, with `E` and `W`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (flag, letter) in [
            (Self::FIN, 'F'),
            (Self::SYN, 'S'),
            (Self::RST, 'R'),
            (Self::PSH, 'P'),
            (Self::URG, 'U'),
            (Self::ECE, 'E'),
            (Self::CWR, 'W'),
            (Self::ACK, '.'),
        ] {
            if self.contains(flag) {
                write!(f, "{letter}")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Piece;

    #[test]
    fn a_super_segment_stands_for_its_wire_segments() {
        let check = |bytes: usize, segment_size, expected| {
            let payload = Chain::from(Piece::from(vec![0; bytes]));
            let segment = Segment {
                payload,
                segment_size,
                ..Segment::default()
            };
            assert_eq!(segment.wire_segments(), expected);
        };
        check(0, 0, 1);
        check(1460, 0, 1);
        check(4096, 1448, 3);
        check(2896, 1448, 2);
        check(10, 1448, 1);
    }
}
