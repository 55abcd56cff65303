//! Ends of the phases of a trial's traffic: at instants, or after amounts of work.

use std::time::Duration;

use crate::protocol::{Span, clock_ns};

/// Lead of TCP_INFO before the first snapshot, in which traffic recovers: twice the time that reading takes,
/// and two milliseconds.
const TCP_INFO_NS_PER_CONNECTION: u64 = 4_000;
const TCP_INFO_NS: u64 = 2_000_000;
/// Reading the totals by connection takes as long; if both ends' totals are in one map, for both.
const BY_CONNECTION_NS_PER_CONNECTION: u64 = 4_000;

/// Limit on the time for a fixed amount of work. Without it, a path that moves nothing would never end the
/// trial.
pub(super) const WORK_MAX: Duration = Duration::from_secs(60);
/// How long traffic goes on after the second snapshot of a fixed amount of work: the end that finishes first
/// waits for the other, which still has data in flight.
const TAIL_OF_WORK_NS: u64 = 50_000_000;

/// A phase of traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Until TCP_INFO is read.
    Lead,
    /// Until the first snapshot.
    Warm,
    /// Until the second snapshot.
    Measured,
    /// Until no end needs the traffic any more.
    Tail,
}

/// End of a phase of traffic.
#[derive(Debug, Clone, Copy)]
pub(super) enum PhaseEnd {
    /// An instant, ns of the monotonic clock.
    At(u64),
    /// Total of bytes sent and received by this worker.
    Moved(u64),
}

/// Ends of all phases.
#[derive(Debug)]
pub(super) struct PhaseEnds {
    lead: PhaseEnd,
    warm: PhaseEnd,
    measured: PhaseEnd,
    /// End of the tail, if the span has a duration.
    stop_ns: Option<u64>,
}

impl PhaseEnds {
    /// Sets the end of each phase: by time if the span has a duration, else by bytes moved. With bytes, the
    /// warm-up moves as many as the measured phase. TCP_INFO is read 1/128 of the work before its end:
    /// traffic recovers in that time, and TCP_INFO still covers almost the same work.
    pub(super) fn new(span: Span, lead_ns: u64, moved: u64) -> PhaseEnds {
        match span.work_bytes {
            None => PhaseEnds {
                lead: PhaseEnd::At(span.from_ns.saturating_sub(lead_ns)),
                warm: PhaseEnd::At(span.from_ns),
                measured: PhaseEnd::At(span.to_ns),
                stop_ns: Some(span.stop_ns),
            },
            Some(bytes) => PhaseEnds {
                lead: PhaseEnd::Moved(moved + bytes - bytes / 128),
                warm: PhaseEnd::Moved(moved + bytes),
                measured: PhaseEnd::Moved(moved + 2 * bytes),
                stop_ns: None,
            },
        }
    }

    /// End of a phase.
    pub(super) fn of(&self, phase: Phase) -> PhaseEnd {
        match phase {
            Phase::Lead => self.lead,
            Phase::Warm => self.warm,
            Phase::Measured => self.measured,
            Phase::Tail => PhaseEnd::At(self.stop_ns.unwrap_or(clock_ns() + TAIL_OF_WORK_NS)),
        }
    }
}

/// How long before the first snapshot TCP_INFO is read.
pub(super) fn lead_ns(connections: u64, by_connection: bool) -> u64 {
    let totals = match by_connection {
        true => BY_CONNECTION_NS_PER_CONNECTION * connections,
        false => 0,
    };
    TCP_INFO_NS + TCP_INFO_NS_PER_CONNECTION * connections + totals
}
