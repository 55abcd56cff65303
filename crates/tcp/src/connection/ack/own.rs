//! A policy of somebody else's, from another crate.
//!
//! The built-in ones are told apart by a `match` and inlined; this one costs a virtual call a segment.
//! What no policy may do it cannot do either: wait for longer than 499 ms (RFC 9293 MUST-40), leave more
//! than half the window unacknowledged, or keep a window that was shut and opens to itself.

use std::fmt;

use super::{AckDecision, Arrival, DELAY_MAX, Read};

/// A policy as it is chosen: it makes a [`AckRule`] for each connection.
pub trait OwnAcks: fmt::Debug + Send + Sync {
    /// What decides for a connection, from its first segment on.
    fn rule(&self) -> Box<dyn AckRule>;
}

/// When one connection acknowledges data that came in order. Gaps, duplicates, FIN, probes and
/// congestion marks are acknowledged at once without asking (RFC 5681 §4.2).
pub trait AckRule: fmt::Debug + Send {
    /// Data arrived. `By(time)` counts from the first that is not acknowledged: a later time does not
    /// move an earlier one; `Nothing` is after 499 ms.
    fn on_segment(&mut self, arrival: &Arrival) -> AckDecision;

    /// The application read. By default at once if the window has opened enough to tell
    /// ([`Read::has_opened`]).
    fn on_read(&mut self, read: &Read) -> AckDecision {
        if read.has_opened() {
            AckDecision::Now
        } else {
            AckDecision::Nothing
        }
    }

    /// The time that was asked for is over: an acknowledgement leaves. By default nothing.
    fn on_timer(&mut self) {}

    /// A segment left and carried the acknowledgement of all that had arrived. By default nothing.
    fn on_sent(&mut self) {}
}

/// One [`OwnAcks`], compared by where it is.
#[derive(Clone, Copy, Debug)]
pub struct OwnAckPolicy(pub &'static dyn OwnAcks);

impl PartialEq for OwnAckPolicy {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for OwnAckPolicy {}

/// A connection's rule, and whose it is.
#[derive(Debug)]
pub(super) struct Own {
    pub policy: OwnAckPolicy,
    rule: Box<dyn AckRule>,
}

impl Own {
    pub(super) fn new(policy: OwnAckPolicy) -> Self {
        Self {
            policy,
            rule: policy.0.rule(),
        }
    }

    pub(super) fn on_segment(&mut self, arrival: &Arrival) -> AckDecision {
        let last = arrival.now + DELAY_MAX;
        match self.rule.on_segment(arrival) {
            _ if arrival.is_half_the_window() => AckDecision::Now,
            AckDecision::Now => AckDecision::Now,
            AckDecision::By(deadline) => AckDecision::By(deadline.min(last)),
            AckDecision::Nothing => AckDecision::By(last),
        }
    }

    pub(super) fn on_read(&mut self, read: &Read) -> AckDecision {
        let decision = self.rule.on_read(read);
        if read.has_reopened() {
            AckDecision::Now
        } else {
            decision
        }
    }

    pub(super) fn on_timer(&mut self) {
        self.rule.on_timer();
    }

    pub(super) fn on_sent(&mut self) {
        self.rule.on_sent();
    }
}
