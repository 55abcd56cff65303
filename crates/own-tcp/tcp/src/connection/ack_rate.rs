//! The TCP ACK Rate Request option, both sides (draft-ietf-tcpm-ack-rate-request-11, experimental).
//!
//! A SYN announces support. Then either sender may request one acknowledgement per R full-sized
//! segments; R = 0 requests one ACK at once and does not change the rate. The draft does not say
//! how a lost request is repeated. Here a request is sent with data, in a segment that leaves room
//! for it, and is repeated with the next new data after a retransmission, until data that carried
//! it is acknowledged. Not implemented: sending R = 0.

use super::{AckPolicy, Connection};
use crate::SeqNum;
use crate::wire::{AckRate, Segment};

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct AckRateState {
    /// True if both ends announced support.
    pub agreed: bool,
    /// Rate last requested by us; 0 if none.
    asked: u8,
    /// First sequence number of the data that carried the request.
    asked_from: SeqNum,
}

impl Connection {
    /// True if our SYN announces support.
    pub(super) fn offers_ack_rate(&self) -> bool {
        matches!(self.config.ack, AckPolicy::Requested { .. })
    }

    /// Follows the request in a received segment.
    pub(super) fn take_ack_rate(&mut self, segment: &Segment) {
        let requested = segment.options.ack_rate.and_then(AckRate::requested);
        match requested.filter(|_| self.ack_rate.agreed) {
            None => {}
            Some(0) => self.owe_ack(),
            Some(segments) => self.ack.on_request(segments),
        }
    }

    /// Returns the request to send with the new data that leaves now; `None` if there is none.
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

    /// Called on a retransmission: repeats the request if it may have been lost too.
    pub(super) fn doubt_ack_rate(&mut self) {
        if self.ack_rate.asked_from.at_or_after(self.snd.una) {
            self.ack_rate.asked = 0;
        }
    }
}

/// Bytes of a request in a segment, including padding.
pub(super) const REQUEST_BYTES: u32 = 8;
/// The field has seven bits.
const REQUEST_MAX: u32 = 127;
