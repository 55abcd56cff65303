//! What one end's ACKs cover.

use crate::histogram::Histogram;
use crate::policy::{PolicyGuess, Undisturbed};

/// ACKs of one end that acknowledged payload for the first time.
#[derive(Debug, Clone, Default)]
pub struct AckCoverage {
    /// Wire segments that each pure ACK covers; a segment covered in part counts with the later ACK.
    pub wire_segments_per_pure_ack: Histogram,
    /// Payload bytes that each pure ACK covers.
    pub bytes_per_pure_ack: Histogram,
    /// Pure ACKs that cover more than two full-sized segments (RFC 2525 §2.13).
    pub stretch_acks: u64,
    /// ACKs that came with data, a SYN or a FIN.
    pub piggybacked_acks: u64,
    /// Payload bytes covered by either.
    pub bytes_acked: u64,
    undisturbed: Undisturbed,
}

/// One ACK that covered payload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Covered {
    pub(crate) pure: bool,
    pub(crate) bytes: u64,
    pub(crate) wire_segments: u64,
    pub(crate) packets: u64,
    pub(crate) on_boundary: bool,
    pub(crate) window: Window,
    /// Time since the last packet covered in which nothing else passed, less the RTT, ns.
    pub(crate) late_ns: Option<u64>,
    /// Whether it left at a time of its own between two arrivals.
    pub(crate) between_arrivals: bool,
    /// Whether a gap or a duplicate made it leave.
    pub(crate) disturbed: bool,
}

/// The window that an ACK offers.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Window {
    /// How far its right edge moved since the ACK before: what was read in between, as far as the
    /// receiver offers what its buffer has room for. `None` if the window's scale is unknown.
    pub(crate) edge_bytes: Option<u64>,
    /// What the scale cuts off: edges are known to this much.
    pub(crate) unit_bytes: u64,
    /// Whether it is as wide as any before, to a segment: as far as it tells, nothing is left to be read.
    pub(crate) is_full: bool,
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

    /// The policy that the pure ACKs look like.
    pub fn policy(&self) -> PolicyGuess {
        let by_pure_acks = self.bytes_per_pure_ack.sum();
        if by_pure_acks * 2 < self.bytes_acked {
            let acks = self.piggybacked_acks;
            return PolicyGuess::unknown(format!(
                "{acks} ACKs came with data and cover most: those tell when the application answered"
            ));
        }
        self.undisturbed.guess()
    }
}
