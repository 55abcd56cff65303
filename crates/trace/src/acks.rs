//! Coverage of the ACKs that one end sends.

use crate::histogram::Histogram;
use crate::policy::{Covered, PolicyGuess, Undisturbed};

/// ACKs of one end that acknowledged payload for the first time.
#[derive(Debug, Clone, Default)]
pub struct AckCoverage {
    /// Wire segments that each pure ACK covers; a segment covered in part counts with the later
    /// ACK.
    pub wire_segments_per_pure_ack: Histogram,
    /// Payload bytes that each pure ACK covers.
    pub bytes_per_pure_ack: Histogram,
    /// Pure ACKs that cover more than two full-sized segments (RFC 2525 §2.13).
    pub stretch_acks: u64,
    /// ACKs that came with data, a SYN or a FIN.
    pub piggybacked_acks: u64,
    /// Payload bytes covered by pure and piggybacked ACKs.
    pub bytes_acked: u64,
    undisturbed: Undisturbed,
}

impl AckCoverage {
    #[inline]
    pub(crate) fn add(&mut self, covered: Covered, mss: u32) {
        self.bytes_acked += covered.bytes;
        if !covered.pure {
            self.piggybacked_acks += 1;
            return;
        }
        let wire = covered.wire_segments;
        self.wire_segments_per_pure_ack.add(wire);
        self.bytes_per_pure_ack.add(covered.bytes);
        self.stretch_acks += u64::from(covered.bytes > 2 * u64::from(mss));
        if !covered.disturbed {
            self.undisturbed.add(covered, mss);
        }
    }

    /// ACK policy that fits the pure ACKs. Unknown if they cover less than half of the bytes
    /// acknowledged.
    pub fn policy(&self) -> PolicyGuess {
        let by_pure_acks = self.bytes_per_pure_ack.sum();
        if by_pure_acks * 2 < self.bytes_acked {
            let acks = self.piggybacked_acks;
            return PolicyGuess::unknown(format!(
                "{acks} ACKs carry data and cover most of the data: they show when the application answered"
            ));
        }
        self.undisturbed.guess()
    }
}
