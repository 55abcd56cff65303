//! Handshakes of a capture, by what became of them.

use serde::Serialize;

use crate::connection::{Connection, Handshake};
use crate::segment::Endpoint;

/// Connections whose SYN was captured, by what followed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Handshakes {
    /// Something followed the handshake.
    pub completed: u64,
    /// A SYN was answered, and its sender never said more.
    pub half_open: u64,
    /// A SYN was answered by a RST.
    pub refused: u64,
    /// A SYN was not answered.
    pub unanswered: u64,
    /// SYNs of either end that were sent again, of all of these.
    pub syns_retransmitted: u64,
}

impl Handshakes {
    /// Those that went nowhere.
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
        } += 1;
        let resent = connection
            .directions
            .each_ref()
            .map(|of| of.syns_retransmitted);
        self.syns_retransmitted += resent.iter().sum::<u64>();
    }
}

/// The ends that most of many connections went to, if they are about a ninth of them or more (Misra and
/// Gries 1982): each with how often it came, or less.
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

    /// The commonest.
    pub(crate) fn most(&self) -> Option<Endpoint> {
        let of = self.0.iter().flatten().max_by_key(|place| place.1);
        of.map(|place| place.0)
    }
}
