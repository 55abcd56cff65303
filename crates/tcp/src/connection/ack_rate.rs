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
#[derive(Debug, Default)]
pub(super) struct AckRateState {
    /// Both ends announced it.
    pub agreed: bool,
    /// The rate last asked for; 0: none.
    asked: u8,
    /// The end of the data it travelled with.
    asked_end: SeqNum,
}

impl Connection {
    /// Whether our SYN announces it.
    pub(super) fn offers_ack_rate(&self) -> bool {
        matches!(self.config.ack, AckPolicy::Requested { .. })
    }

    /// What a segment after the handshake asks for.
    pub(super) fn take_ack_rate(&mut self, segment: &Segment) {
        match segment.options.ack_rate {
            Some(AckRate::Request(0)) if self.ack_rate.agreed => self.owe_ack(),
            Some(AckRate::Request(segments)) if self.ack_rate.agreed => {
                self.ack.on_request(segments);
            }
            _ => {}
        }
    }

    /// What the next new data has to ask for.
    pub(super) fn ack_rate_to_ask(&self) -> Option<u8> {
        if !self.ack_rate.agreed {
            return None;
        }
        let AckPolicy::Requested { segments, .. } = self.config.ack else {
            return None;
        };
        let wanted = segments.clamp(1, REQUEST_MAX) as u8;
        (self.ack_rate.asked != wanted).then_some(wanted)
    }

    /// Puts the request into a segment of new data.
    pub(super) fn ask_ack_rate(&mut self, rate: u8, segment: &mut Segment) {
        segment.options.ack_rate = Some(AckRate::Request(rate));
        (self.ack_rate.asked, self.ack_rate.asked_end) = (rate, self.snd.nxt);
    }

    /// Something is sent again: perhaps the request was lost with it.
    pub(super) fn doubt_ack_rate(&mut self) {
        if self.ack_rate.asked_end.after(self.snd.una) {
            self.ack_rate.asked = 0;
        }
    }
}

/// Room that a request takes in a segment, padding included.
pub(super) const REQUEST_BYTES: u32 = 8;
/// Seven bits.
const REQUEST_MAX: u32 = 127;
