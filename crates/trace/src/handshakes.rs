//! Handshakes of a capture, by result.

use serde::Serialize;

use crate::connection::{Connection, Handshake};
use crate::segment::Endpoint;

/// Counts of connections whose client's SYN was captured, by the handshake's result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Handshakes {
    /// Connections in which an end sent a packet other than SYN or RST.
    pub completed: u64,
    /// Connections whose SYN was answered, and whose client sent nothing more.
    pub half_open: u64,
    /// Connections whose SYN was answered by a RST.
    pub refused: u64,
    /// Connections whose SYN was not answered.
    pub unanswered: u64,
    /// Connections whose handshake was under way when the capture ended.
    pub open: u64,
    /// Handshakes that were let go to save memory: whether something followed them is unknown.
    pub not_analysed: u64,
    /// Retransmitted SYNs of either end, over all these connections.
    pub syns_retransmitted: u64,
}

impl Handshakes {
    /// Number of failed handshakes: half-open, refused and unanswered.
    pub fn failed(&self) -> u64 {
        self.half_open + self.refused + self.unanswered
    }

    pub(crate) fn add(&mut self, connection: &Connection) {
        let Some(handshake) = connection.handshake() else {
            return;
        };
        *match handshake {
            Handshake::Completed => &mut self.completed,
            Handshake::HalfOpen => &mut self.half_open,
            Handshake::Refused => &mut self.refused,
            Handshake::Unanswered => &mut self.unanswered,
            Handshake::Open => &mut self.open,
        } += 1;
        let resent = connection
            .directions
            .each_ref()
            .map(|of| of.syns_retransmitted);
        self.syns_retransmitted += resent.iter().sum::<u64>();
    }
}

/// Most frequent destinations among many connections, in bounded memory (Misra and Gries 1982). A
/// destination of about a ninth of them or more is certainly found. Each has a lower bound of its
/// frequency.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct CommonestEndpoints([Option<(Endpoint, u64)>; 8]);

impl CommonestEndpoints {
    pub(crate) fn add(&mut self, end: Endpoint) {
        let places = &mut self.0;
        if let Some(place) = places.iter_mut().flatten().find(|place| place.0 == end) {
            place.1 += 1;
        } else if let Some(place) = places.iter_mut().find(|place| place.is_none()) {
            *place = Some((end, 1));
        } else {
            for place in places {
                *place = place
                    .filter(|place| place.1 > 1)
                    .map(|(end, n)| (end, n - 1));
            }
        }
    }

    /// Most frequent destination. `None` without connections.
    pub(crate) fn most(&self) -> Option<Endpoint> {
        let of = self.0.iter().flatten().max_by_key(|place| place.1);
        of.map(|place| place.0)
    }
}
