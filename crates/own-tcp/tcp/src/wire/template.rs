//! Header template for consecutive segments, whose headers differ only in sequence number and
//! checksum. Made once when a super-segment is cut or when segments are joined.

use super::Sum;
use super::ip::IpHeader;
use super::packet::{Header, TCP};
use crate::SeqNum;

/// Headers of one segment. The following segments of the same length differ in two fields only.
#[derive(Debug)]
pub(super) struct Template {
    header: Header,
    /// Offset of the TCP header.
    tcp: usize,
    /// Checksum sum over the pseudo-header and the TCP header, without sequence number, checksum
    /// field and payload.
    sum: Sum,
}

impl Template {
    /// Makes a template from `header`, at the start of a packet of `total` bytes; `None` if that is
    /// not IP and TCP.
    pub(super) fn of(mut header: Header, total: usize) -> Option<Self> {
        let bytes = &header.bytes[..usize::from(header.len)];
        let ip = IpHeader::parse(bytes, total).ok()?;
        let tcp = ip.header_bytes;
        let fixed: &[u8; 20] = bytes.get(tcp..)?.first_chunk()?;
        let header_bytes = tcp + usize::from(fixed[12] >> 4) * 4;
        if ip.protocol != TCP || header_bytes < tcp + 20 || header_bytes > bytes.len() {
            return None;
        }
        header.len = header_bytes as u8;
        let sum = ip
            .pseudo_sum()
            .add_bytes(&header.bytes[tcp..tcp + SEQ])
            .add_bytes(&header.bytes[tcp + SEQ + 4..tcp + CHECKSUM])
            .add_bytes(&header.bytes[tcp + CHECKSUM + 2..header_bytes]);
        Some(Self { header, tcp, sum })
    }

    /// Length of the headers in bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        usize::from(self.header.len)
    }

    /// Sets the control bits of the following segments.
    pub(super) fn set_flags(&mut self, flags: u8) {
        let at = self.tcp + FLAGS;
        let word = |flags| u16::from_be_bytes([self.header.bytes[at - 1], flags]);
        // RFC 1624: subtract the old word, add the new one.
        self.sum = self
            .sum
            .add_word(!word(self.header.bytes[at]))
            .add_word(word(flags));
        self.header.bytes[at] = flags;
    }

    /// Writes the headers of the segment at `seq`. `payload` is the checksum sum of its payload;
    /// `None` leaves the checksum field to the device.
    // The whole header is copied first, then two fields are changed: bytes written in parts are
    // slow to read as a whole.
    #[inline]
    pub(super) fn write(&self, header: &mut Header, seq: SeqNum, payload: Option<Sum>) {
        header.clone_from(&self.header);
        let seq = seq.value().to_be_bytes();
        if let Some(payload) = payload {
            let field = self.sum.add_bytes(&seq).followed_by(0, payload).finish();
            let at = self.tcp + CHECKSUM;
            header.bytes[at..at + 2].copy_from_slice(&field.to_be_bytes());
        }
        let at = self.tcp + SEQ;
        header.bytes[at..at + 4].copy_from_slice(&seq);
    }

    /// True if `head` starts with these headers, for the segment at `seq`. The checksum is not
    /// compared.
    #[inline]
    pub(super) fn matches(&self, head: &[u8], seq: SeqNum) -> bool {
        let own = self.header.as_ref();
        let Some(head) = head.get(..own.len()) else {
            return false;
        };
        // Compared in words of four bytes: loads larger than the preceding stores would wait for
        // them.
        let (own, head) = (own.as_chunks::<4>().0, head.as_chunks::<4>().0);
        let (seq_at, checksum_at) = ((self.tcp + SEQ) / 4, (self.tcp + CHECKSUM) / 4);
        let alike = |from: usize, to: usize| {
            let pairs = own[from..to].iter().zip(&head[from..to]);
            pairs.into_iter().all(|(own, its)| own == its)
        };
        // The urgent pointer is in the same word as the checksum.
        head[seq_at] == seq.value().to_be_bytes()
            && head[checksum_at][2..] == own[checksum_at][2..]
            && alike(0, seq_at)
            && alike(seq_at + 1, checksum_at)
            && alike(checksum_at + 1, own.len())
    }

    /// True if the checksum in `head`, which must [match](Self::matches), is correct for this
    /// payload.
    #[inline]
    pub(super) fn is_valid(&self, head: &[u8], payload: Sum) -> bool {
        let (seq, checksum) = (self.tcp + SEQ, self.tcp + CHECKSUM);
        self.sum
            .add_bytes(&head[seq..seq + 4])
            .add_bytes(&head[checksum..checksum + 2])
            .followed_by(0, payload)
            .is_valid()
    }
}

/// Offsets in a TCP header (RFC 9293 §3.1).
const SEQ: usize = 4;
const FLAGS: usize = 13;
const CHECKSUM: usize = 16;
