//! TCP options: MSS (RFC 9293 §3.2), window scale and timestamps (RFC 7323), SACK (RFC 2018).

use std::num::NonZeroU8;

use crate::SeqNum;

/// Known options of one segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Largest payload that the sender can receive, in bytes. On SYNs only.
    pub mss: Option<u16>,
    /// Shift of all later window fields, 0..=14 (RFC 7323 §2.3). On SYNs only.
    pub window_scale: Option<u8>,
    /// True if the sender understands SACK blocks. On SYNs only.
    pub sack_permitted: bool,
    /// Timestamps.
    pub timestamps: Option<Timestamps>,
    /// ACK rate request: an announcement on SYNs, a request later.
    pub ack_rate: Option<AckRate>,
    /// Ranges received out of order, the latest first.
    pub sack: SackBlocks,
}

/// The TCP ACK Rate Request option (draft-ietf-tcpm-ack-rate-request-11).
///
/// Stored as a non-zero byte, so that `Option<AckRate>` is one byte too: [`Options`] are moved with
/// every segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AckRate(NonZeroU8);

impl AckRate {
    /// Announcement of support, on SYNs.
    pub const ANNOUNCED: Self = Self(NonZeroU8::MAX);

    /// Request for one acknowledgement per `segments` full-sized segments, 0..=127. 0 requests one
    /// ACK for this segment at once.
    pub const fn request(segments: u8) -> Self {
        // The field has seven bits.
        let segments = segments & 0x7f;
        Self(NonZeroU8::MIN.saturating_add(segments))
    }

    /// Requested number of segments; `None` for an announcement.
    pub fn requested(self) -> Option<u8> {
        (self != Self::ANNOUNCED).then(|| self.0.get() - 1)
    }
}

/// Timestamps option (RFC 7323 §3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timestamps {
    /// TSval: the sender's clock.
    pub value: u32,
    /// TSecr: the latest of our clock values that the sender received; 0 without the ACK flag.
    pub echo: u32,
}

/// Up to four ranges `[start, end)` of sequence numbers.
#[derive(Clone, Copy, Default)]
pub struct SackBlocks {
    blocks: [(SeqNum, SeqNum); 4],
    count: u8,
}

impl SackBlocks {
    /// Appends a block. False if there is no room.
    pub fn push(&mut self, start: SeqNum, end: SeqNum) -> bool {
        let Some(slot) = self.blocks.get_mut(usize::from(self.count)) else {
            return false;
        };
        *slot = (start, end);
        self.count += 1;
        true
    }

    /// Blocks in the order on the wire.
    pub fn as_slice(&self) -> &[(SeqNum, SeqNum)] {
        &self.blocks[..usize::from(self.count)]
    }

    /// Keeps only the first `count` blocks.
    pub fn truncate(&mut self, count: usize) {
        self.count = self.count.min(count as u8);
    }

    /// True if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }
}

impl PartialEq for SackBlocks {
    fn eq(&self, other: &Self) -> bool {
        self.as_slice() == other.as_slice()
    }
}

impl Eq for SackBlocks {}

impl std::fmt::Debug for SackBlocks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.as_slice()).finish()
    }
}

impl Options {
    /// Reads the options between the fixed header and the payload. An option with an invalid length
    /// ends the reading (MUST-7); earlier options remain valid, as in Linux. Unknown kinds are
    /// skipped by their length (MUST-6).
    #[inline]
    pub(super) fn read(&mut self, bytes: &[u8]) {
        // Fast path for the options of nearly all segments (Linux's `tcp_parse_aligned_timestamp`).
        match bytes {
            [NOP, NOP, TIMESTAMPS, 10, body @ ..] if body.len() == 8 => self.take(TIMESTAMPS, body),
            _ => self.read_any(bytes),
        }
    }

    fn read_any(&mut self, mut bytes: &[u8]) {
        while let [kind, after @ ..] = bytes {
            match *kind {
                END => break,
                NOP => bytes = after,
                kind => {
                    let Some(&len) = after.first() else { break };
                    let len = usize::from(len);
                    if len < 2 || len > bytes.len() {
                        break;
                    }
                    self.take(kind, &bytes[2..len]);
                    bytes = &bytes[len..];
                }
            }
        }
    }

    fn take(&mut self, kind: u8, body: &[u8]) {
        match (kind, body) {
            (MSS, &[a, b]) => self.mss = Some(u16::from_be_bytes([a, b])),
            // RFC 7323 §2.3: a shift above 14 is used as 14.
            (WINDOW_SCALE, &[shift]) => self.window_scale = Some(shift.min(14)),
            (SACK_PERMITTED, &[]) => self.sack_permitted = true,
            (TIMESTAMPS, body) if body.len() == 8 => {
                self.timestamps = Some(Timestamps {
                    value: word(body),
                    echo: word(&body[4..]),
                });
            }
            // RFC 6994 §3: experimental kinds are shared and distinguished by an identifier.
            (EXPERIMENT_1 | EXPERIMENT_2, &[a, b, ref rest @ ..])
                if u16::from_be_bytes([a, b]) == ACK_RATE =>
            {
                match *rest {
                    [] => self.ack_rate = Some(AckRate::ANNOUNCED),
                    // Seven bits of rate and a reserved bit.
                    [rate] => self.ack_rate = Some(AckRate::request(rate >> 1)),
                    _ => {}
                }
            }
            (SACK, body) if body.len() % 8 == 0 => {
                for block in body.chunks_exact(8) {
                    self.sack
                        .push(SeqNum::new(word(block)), SeqNum::new(word(&block[4..])));
                }
            }
            _ => {}
        }
    }

    /// Writes the options in Linux's order and with Linux's padding, so that the same scripts fit
    /// both. Returns the length, a multiple of four, at most 40. SACK blocks that do not fit are
    /// omitted. `to` must have at least 40 bytes.
    pub(super) fn emit(&self, to: &mut [u8]) -> usize {
        match self.timestamps {
            Some(timestamps) if self.are_timestamps() => {
                let [a, b, c, d] = timestamps.value.to_be_bytes();
                let [e, f, g, h] = timestamps.echo.to_be_bytes();
                to[..12].copy_from_slice(&[NOP, NOP, TIMESTAMPS, 10, a, b, c, d, e, f, g, h]);
                12
            }
            _ => self.emit_any(to),
        }
    }

    /// True if the only option is timestamps.
    fn are_timestamps(&self) -> bool {
        self.timestamps.is_some()
            && self.mss.is_none()
            && self.window_scale.is_none()
            && !self.sack_permitted
            && self.ack_rate.is_none()
            && self.sack.is_empty()
    }

    fn emit_any(&self, to: &mut [u8]) -> usize {
        let mut out = Out { to, len: 0 };
        if let Some(mss) = self.mss {
            out.put(&[MSS, 4]);
            out.put(&mss.to_be_bytes());
        }
        match (self.sack_permitted, self.timestamps) {
            (true, Some(_)) => out.put(&[SACK_PERMITTED, 2]),
            (true, None) => out.put(&[NOP, NOP, SACK_PERMITTED, 2]),
            (false, Some(_)) => out.put(&[NOP, NOP]),
            (false, None) => {}
        }
        if let Some(timestamps) = self.timestamps {
            out.put(&[TIMESTAMPS, 10]);
            out.put(&timestamps.value.to_be_bytes());
            out.put(&timestamps.echo.to_be_bytes());
        }
        if let Some(shift) = self.window_scale {
            out.put(&[NOP, WINDOW_SCALE, 3, shift]);
        }
        let [a, b] = ACK_RATE.to_be_bytes();
        match self.ack_rate.map(AckRate::requested) {
            None => {}
            Some(None) => out.put(&[EXPERIMENT_1, 4, a, b]),
            Some(Some(rate)) => out.put(&[NOP, NOP, NOP, EXPERIMENT_1, 5, a, b, rate << 1]),
        }
        let fit = (40 - out.len).saturating_sub(4) / 8;
        let blocks = &self.sack.as_slice()[..fit.min(self.sack.as_slice().len())];
        if !blocks.is_empty() {
            out.put(&[NOP, NOP, SACK, 2 + 8 * blocks.len() as u8]);
            for (start, end) in blocks {
                out.put(&start.value().to_be_bytes());
                out.put(&end.value().to_be_bytes());
            }
        }
        out.len
    }
}

struct Out<'a> {
    to: &'a mut [u8],
    len: usize,
}

impl Out<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.to[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

const END: u8 = 0;
const NOP: u8 = 1;
const MSS: u8 = 2;
const WINDOW_SCALE: u8 = 3;
const SACK_PERMITTED: u8 = 4;
const SACK: u8 = 5;
const TIMESTAMPS: u8 = 8;
/// Experimental kinds (RFC 4727 §2.2).
const EXPERIMENT_1: u8 = 253;
const EXPERIMENT_2: u8 = 254;
/// ExID of the ACK rate request.
const ACK_RATE: u16 = 0x00AC;

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(bytes: &[u8]) -> Options {
        let mut options = Options::default();
        options.read(bytes);
        options
    }

    #[test]
    fn an_impossible_length_ends_the_options_and_nothing_else() {
        for bad in [&[3u8, 0][..], &[3, 1], &[3, 9, 1], &[8], &[5, 255, 0]] {
            let bytes = [&[MSS, 4, 5, 180], bad].concat();
            assert_eq!(parse(&bytes).mss, Some(1460));
        }
    }

    #[test]
    fn unknown_options_are_skipped_by_their_length() {
        let options = parse(&[254, 4, 2, 4, 3, 3, 99]);
        assert_eq!(options.window_scale, Some(14));
        assert_eq!(options.mss, None);
    }

    #[test]
    fn an_ack_rate_is_told_and_understood() {
        for ack_rate in [
            AckRate::ANNOUNCED,
            AckRate::request(0),
            AckRate::request(127),
        ] {
            let options = Options {
                timestamps: Some(Timestamps { value: 1, echo: 2 }),
                ack_rate: Some(ack_rate),
                ..Options::default()
            };
            let mut bytes = [0; 40];
            let len = options.emit(&mut bytes);
            assert!(len.is_multiple_of(4));
            assert_eq!(parse(&bytes[..len]), options);
        }
        // Another experiment, and a length that the draft does not define.
        assert_eq!(parse(&[253, 4, 0xf9, 0x89]).ack_rate, None);
        assert_eq!(parse(&[254, 6, 0, 0xac, 1, 2]).ack_rate, None);
    }

    #[test]
    fn three_sack_blocks_fit_beside_timestamps() {
        let mut options = Options {
            timestamps: Some(Timestamps { value: 1, echo: 2 }),
            ..Options::default()
        };
        for n in 0..4 {
            options
                .sack
                .push(SeqNum::new(n * 10), SeqNum::new(n * 10 + 5));
        }
        let mut bytes = [0; 40];
        let len = options.emit(&mut bytes);
        assert_eq!(len, 40);
        options.sack.truncate(3);
        assert_eq!(parse(&bytes[..len]), options);
    }
}
