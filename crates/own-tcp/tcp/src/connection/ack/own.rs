//! Acknowledgement policy of another crate.
//!
//! Built-in policies are selected by a `match` and inlined; a policy of another crate costs a
//! virtual call per segment. Limits hold for it too: it cannot wait longer than 499 ms (RFC 9293
//! MUST-40), leave more than half the window unacknowledged, or hide that a closed window has
//! opened.

use std::fmt;

use super::{AckDecision, Arrival, DELAY_MAX, Read};

/// Factory of rules: makes an [`AckRule`] for each connection.
pub trait OwnAcks: fmt::Debug + Send + Sync {
    /// Makes the rule of a connection. Called at the first segment.
    fn rule(&self) -> Box<dyn AckRule>;
}

/// Decisions of one connection about data that arrived in order. Gaps, duplicates, FIN, probes and
/// congestion marks are acknowledged at once, without a call (RFC 5681 §4.2).
pub trait AckRule: fmt::Debug + Send {
    /// Decides when data arrived. `By(time)` applies from the first unacknowledged segment on: a
    /// later time does not move an earlier one. `Nothing` means after 499 ms.
    fn on_segment(&mut self, arrival: &Arrival) -> AckDecision;

    /// Decides when the application read. Default: at once if the window has opened enough
    /// ([`Read::has_opened`]).
    fn on_read(&mut self, read: &Read) -> AckDecision {
        if read.has_opened() {
            AckDecision::Now
        } else {
            AckDecision::Nothing
        }
    }

    /// Called when the time of `By` has come and an acknowledgement leaves. Default: does nothing.
    fn on_timer(&mut self) {}

    /// Called when a segment left and carried the acknowledgement of all data. Default: does
    /// nothing.
    fn on_sent(&mut self) {}
}

/// Policy of another crate. Two are equal if they have the same address.
#[derive(Clone, Copy, Debug)]
pub struct OwnAckPolicy(pub &'static dyn OwnAcks);

impl PartialEq for OwnAckPolicy {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}

impl Eq for OwnAckPolicy {}

/// Rule of a connection and the policy that made it.
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
