//! Segment as a value.

use std::fmt;
use std::ops::BitOr;

use super::{Ecn, FastOpen, Options};
use crate::{Chain, SeqNum};

/// A segment, or a super-segment that represents several on the wire. Ports and addresses are kept
/// separately ([`FourTuple`](super::FourTuple)), because a connection does not use them.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// SEG.SEQ: number of the SYN if there is one, else of the first payload byte.
    pub seq: SeqNum,
    /// SEG.ACK: undefined without the ACK flag.
    pub ack: SeqNum,
    /// Control bits.
    pub flags: Flags,
    /// SEG.WND as on the wire, not scaled.
    pub window: u16,
    /// Known options other than Fast Open.
    pub options: Options,
    /// Payload bytes.
    pub payload: Chain,
    /// Payload bytes of each wire segment except the last, in a super-segment; else 0.
    pub segment_size: u16,
    /// ECN field of the IP header.
    pub ecn: Ecn,
    /// Differentiated services code point of the IP header (RFC 2474), 0 to 63.
    pub dscp: u8,
    /// Urgent pointer: bytes from `seq` to the end of the urgent data (RFC 6093 §4). Undefined
    /// without the URG flag, which no super-segment has.
    pub urgent: u16,
    /// Fast Open option (RFC 7413), on SYNs. Not in `options`, because those are moved with every
    /// segment.
    pub fast_open: Option<Box<FastOpen>>,
}

impl Segment {
    /// SEG.LEN: number of sequence numbers that it occupies, including SYN and FIN.
    pub fn len(&self) -> u32 {
        self.payload.len() as u32
            + u32::from(self.flags.contains(Flags::SYN))
            + u32::from(self.flags.contains(Flags::FIN))
    }

    /// True if it occupies no sequence number.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// True if it carries only an acknowledgement.
    pub fn is_pure_ack(&self) -> bool {
        self.is_empty() && !self.flags.contains(Flags::RST)
    }

    /// Sequence number after its last.
    pub fn end(&self) -> SeqNum {
        self.seq + self.len()
    }

    /// Splits a super-segment into its wire segments, as a device would: PSH and FIN on the last
    /// only, CWR on the first only.
    pub fn split(self) -> impl Iterator<Item = Self> {
        let (count, size) = (self.wire_segments(), u32::from(self.segment_size));
        (0..count).map(move |n| {
            if count == 1 {
                return Self {
                    segment_size: 0,
                    ..self.clone()
                };
            }
            let (first, last) = (n == 0, n + 1 == count);
            let mut flags = self.flags;
            if !first {
                flags = flags.without(Flags::CWR);
            }
            if !last {
                flags = flags.without(Flags::PSH | Flags::FIN);
            }
            let payload = self
                .payload
                .slice((n * size) as usize..((n + 1) * size) as usize);
            Self {
                seq: self.seq + n * size,
                flags,
                payload,
                segment_size: 0,
                ..self.clone()
            }
        })
    }

    /// Removes and returns the first wire segment of a super-segment; `None` if only one is left.
    pub(crate) fn cut_first(&mut self) -> Option<Self> {
        let size = usize::from(self.segment_size);
        if size == 0 || self.payload.len() <= size {
            self.segment_size = 0;
            return None;
        }
        let mut payload = Chain::new();
        self.payload.move_front(size, &mut payload);
        let first = Self {
            flags: self.flags.without(Flags::PSH | Flags::FIN),
            payload,
            seq: self.seq,
            ack: self.ack,
            window: self.window,
            options: self.options,
            segment_size: 0,
            ecn: self.ecn,
            dscp: self.dscp,
            urgent: 0,
            fast_open: None,
        };
        self.seq += size as u32;
        self.flags = self.flags.without(Flags::CWR);
        Some(first)
    }

    /// Appends `next` if receive offload would: consecutive full-sized segments that differ only in
    /// their payload and a last PSH or FIN. True if appended; `next` is then empty.
    pub(crate) fn couple(&mut self, next: &mut Self) -> bool {
        let size = self.full_size();
        let follows = next.seq == self.seq + self.payload.len() as u32
            && self.may_go_on()
            && next.flags.without(Flags::PSH | Flags::FIN) == self.flags
            && next.segment_size == 0
            && !next.payload.is_empty()
            && next.payload.len() <= size
            && self.has_room_for(next.payload.len());
        let alike = next.ack == self.ack
            && next.window == self.window
            && next.ecn == self.ecn
            && next.options == self.options;
        if !follows || !alike {
            return false;
        }
        self.payload.append(&mut next.payload);
        self.segment_size = size as u16;
        self.flags = next.flags;
        true
    }

    /// Payload of its first wire segment.
    pub(super) fn full_size(&self) -> usize {
        match self.segment_size {
            0 => self.payload.len(),
            size => usize::from(size),
        }
    }

    /// True if segments may be appended: the last one was full-sized and not pushed.
    pub(super) fn may_go_on(&self) -> bool {
        self.flags.without(Flags::ECE) == Flags::ACK
            && self.payload.len().is_multiple_of(self.full_size().max(1))
    }

    /// True if `bytes` more payload still fit into an IP packet.
    pub(super) fn has_room_for(&self, bytes: usize) -> bool {
        self.payload.len() + bytes <= TRAIN_BYTES_MAX
    }

    /// Number of wire segments, at least 1.
    pub fn wire_segments(&self) -> u32 {
        match self.segment_size {
            0 => 1,
            size => (self.payload.len() as u32).div_ceil(u32::from(size)).max(1),
        }
    }
}

/// Limit of the payload of an IP packet.
const TRAIN_BYTES_MAX: usize = 65_535 - 100;

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
    /// Push: deliver the data to the application without waiting for more.
    pub const PSH: Self = Self(0x08);
    /// The acknowledgement field is significant.
    pub const ACK: Self = Self(0x10);
    /// The urgent pointer is significant.
    pub const URG: Self = Self(0x20);
    /// ECN echo.
    pub const ECE: Self = Self(0x40);
    /// Congestion window reduced.
    pub const CWR: Self = Self(0x80);

    /// Makes an empty set of flags.
    pub const fn none() -> Self {
        Self(0)
    }

    /// Makes flags from byte 13 of a header.
    pub const fn from_bits(bits: u8) -> Self {
        Self(bits)
    }

    /// Returns byte 13 of a header.
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// True if all flags of `other` are set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// True if any flag of `other` is set.
    pub const fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// Returns `self`, with the flags of `other` set if `yes`.
    #[must_use]
    pub const fn with(self, other: Self, yes: bool) -> Self {
        if yes { Self(self.0 | other.0) } else { self }
    }

    /// Returns `self` without the flags of `other`.
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
    /// Writes tcpdump's letters: `S.`, `F.`, `P.`, `R`, `.`, with `E` and `W`.
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
    use crate::{Chain, Piece, SeqNum};

    #[test]
    fn split_it_is_the_same_bytes_with_the_flags_where_they_belong() {
        let payload = Chain::from(Piece::from((0..10).collect::<Vec<u8>>()));
        let flags = Flags::ACK | Flags::PSH | Flags::FIN | Flags::CWR;
        let whole = Segment {
            seq: SeqNum::new(5),
            flags,
            payload,
            segment_size: 4,
            ..Segment::default()
        };
        let parts: Vec<String> = whole
            .clone()
            .split()
            .map(|part| {
                format!(
                    "{:?} {:?} {:?}",
                    part.seq,
                    part.flags,
                    part.payload.to_vec()
                )
            })
            .collect();
        assert_eq!(
            parts,
            ["5 W. [0, 1, 2, 3]", "9 . [4, 5, 6, 7]", "13 FP. [8, 9]"]
        );
        assert_eq!(
            Segment {
                segment_size: 0,
                ..whole
            }
            .split()
            .count(),
            1
        );
    }

    #[test]
    fn what_is_cut_off_one_by_one_can_be_coupled_again() {
        let payload = Chain::from(Piece::from((0..10).collect::<Vec<u8>>()));
        let whole = Segment {
            seq: SeqNum::new(5),
            flags: Flags::ACK | Flags::PSH,
            payload,
            segment_size: 4,
            ..Segment::default()
        };
        let mut rest = whole.clone();
        let mut parts: Vec<Segment> = std::iter::from_fn(|| rest.cut_first()).collect();
        parts.push(rest);
        let split: Vec<Segment> = whole.clone().split().collect();
        for (part, same) in parts.iter().zip(&split) {
            assert_eq!((part.seq, part.flags), (same.seq, same.flags));
            assert_eq!(part.payload.to_vec(), same.payload.to_vec());
        }
        let mut parts = parts.into_iter();
        let mut train = parts.next().unwrap();
        for mut part in parts {
            assert!(train.couple(&mut part));
        }
        assert_eq!((train.segment_size, train.flags), (4, whole.flags));
        assert_eq!(train.payload.to_vec(), whole.payload.to_vec());
        // A short segment ends the train.
        let mut next = Segment {
            seq: train.end(),
            flags: Flags::ACK,
            payload: Chain::from(Piece::from(vec![1])),
            ..Segment::default()
        };
        assert!(!train.couple(&mut next));
    }

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
