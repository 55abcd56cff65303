//! The TCP ACK Rate Request option, both sides (draft-ietf-tcpm-ack-rate-request-11, experimental).
//!
//! A SYN announces that it is understood. Then either sender may ask for one acknowledgement per R
//! full-sized segments; R = 0 asks for one at once and leaves the rate as it is. The draft does not
//! say how a request that is lost comes back: here it travels with data, in a segment that leaves
//! room for it, and is repeated with the next new data after a retransmission until data that
//! carried it is acknowledged. Not here: sending R = 0.

use super::{AckPolicy, Connection};
use crate::SeqNum;
use crate::wire::{AckRate, Segment};

/// Where it stands.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckRateState {
    /// Both ends announced it.
    pub agreed: bool,
    /// The rate last asked for; 0: none.
    asked: u8,
    /// The beginning of the data it travelled with.
    asked_from: SeqNum,
}

impl Connection {
    /// Whether our SYN announces it.
    pub(super) fn offers_ack_rate(&self) -> bool {
        matches!(self.config.ack, AckPolicy::Requested { .. })
    }

    /// What a segment after the handshake asks for.
    pub(super) fn take_ack_rate(&mut self, segment: &Segment) {
        let requested = segment.options.ack_rate.and_then(AckRate::requested);
        match requested.filter(|_| self.ack_rate.agreed) {
            None => {}
            Some(0) => self.owe_ack(),
            Some(segments) => self.ack.on_request(segments),
        }
    }

    /// What the new data that leaves now has to ask for.
    #[inline]
    pub(super) fn ack_rate_to_ask(&mut self) -> Option<AckRate> {
        if self.ack_rate.agreed {
            self.ack_rate_if_new()
        } else {
            None
        }
    }

    #[cold]
    fn ack_rate_if_new(&mut self) -> Option<AckRate> {
        let AckPolicy::Requested { segments, .. } = self.config.ack else {
            return None;
        };
        let wanted = segments.clamp(1, REQUEST_MAX) as u8;
        if self.ack_rate.asked == wanted {
            return None;
        }
        (self.ack_rate.asked, self.ack_rate.asked_from) = (wanted, self.snd.nxt);
        Some(AckRate::request(wanted))
    }

    /// Something is sent again: perhaps the request was lost with it.
    pub(super) fn doubt_ack_rate(&mut self) {
        if self.ack_rate.asked_from.at_or_after(self.snd.una) {
            self.ack_rate.asked = 0;
        }
    }
}

/// Room that a request takes in a segment, padding included.
pub(super) const REQUEST_BYTES: u32 = 8;
/// Seven bits.
const REQUEST_MAX: u32 = 127;
