//! The TCP header (RFC 9293 §3.1).

use super::{DropReason, FastOpen, Flags, Segment};
use crate::SeqNum;

/// Fields of a TCP header that are not in [`Segment`].
pub(super) struct TcpHeader {
    pub source: u16,
    pub dest: u16,
    pub header_bytes: usize,
}

impl TcpHeader {
    /// Reads the header at the start of `bytes` into `segment`, except the payload.
    #[inline]
    pub(super) fn parse(bytes: &[u8], segment: &mut Segment) -> Result<Self, DropReason> {
        let fixed: &[u8; 20] = bytes.first_chunk().ok_or(DropReason::Truncated)?;
        let header_bytes = usize::from(fixed[12] >> 4) * 4;
        if header_bytes < 20 {
            return Err(DropReason::BadTcp);
        }
        let options = bytes.get(20..header_bytes).ok_or(DropReason::Truncated)?;
        let half = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
        let word = |at: usize| {
            u32::from_be_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]])
        };
        segment.seq = SeqNum::new(word(4));
        segment.ack = SeqNum::new(word(8));
        segment.flags = Flags::from_bits(fixed[13]);
        segment.window = half(14);
        segment.urgent = half(18);
        segment.options.read(options);
        if segment.flags.contains(Flags::SYN) {
            segment.fast_open = FastOpen::read(options).map(Box::new);
        }
        Ok(Self {
            source: half(0),
            dest: half(2),
            header_bytes,
        })
    }

    /// Writes the header of `segment` with a checksum of 0 and returns its length.
    #[inline]
    pub(super) fn emit(source: u16, dest: u16, segment: &Segment, to: &mut [u8]) -> usize {
        let (to, options) = to.split_at_mut(20);
        let mut option_bytes = segment.options.emit(options);
        if let Some(fast_open) = &segment.fast_open {
            option_bytes = fast_open.emit(options, option_bytes);
        }
        let header_bytes = 20 + option_bytes;
        to[0..2].copy_from_slice(&source.to_be_bytes());
        to[2..4].copy_from_slice(&dest.to_be_bytes());
        to[4..8].copy_from_slice(&segment.seq.value().to_be_bytes());
        let ack = if segment.flags.contains(Flags::ACK) {
            segment.ack.value()
        } else {
            0
        };
        to[8..12].copy_from_slice(&ack.to_be_bytes());
        to[12] = ((header_bytes / 4) as u8) << 4;
        to[13] = segment.flags.bits();
        to[14..16].copy_from_slice(&segment.window.to_be_bytes());
        to[16..18].fill(0);
        to[18..20].copy_from_slice(&segment.urgent.to_be_bytes());
        header_bytes
    }
}
