//! Where the stretches of a trial's traffic end: at instants, or with amounts of work.

use std::time::Duration;

use crate::protocol::{Span, clock_ns};

/// TCP_INFO is read this long before the first snapshot, so that traffic is in its stride again:
/// the time that reading takes, twice over, and two milliseconds.
const TCP_INFO_NS_PER_CONNECTION: u64 = 4_000;
const TCP_INFO_NS: u64 = 2_000_000;
/// Reading the totals by connection takes as long, both ends' where they are in one map.
const BY_CONNECTION_NS_PER_CONNECTION: u64 = 4_000;

/// A fixed amount of work is done within this, or the trial fails: a path at which nothing moves ends no trial by itself.
pub(super) const WORK_MAX: Duration = Duration::from_secs(60);
/// Traffic goes on so long after the second snapshot of a fixed amount of work: who is done first waits for the other, who has
/// what is in flight left to do.
const TAIL_OF_WORK_NS: u64 = 50_000_000;

/// A stretch of traffic, by what is done behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Leg {
    /// To where TCP_INFO is read.
    Lead,
    /// To the first snapshot.
    Warm,
    /// To the second.
    Measured,
    /// Until nobody needs it any more.
    Tail,
}

/// What a stretch of traffic ends with.
#[derive(Debug, Clone, Copy)]
pub(super) enum Goal {
    /// An instant, ns of the monotonic clock.
    At(u64),
    /// So many bytes sent and received by this worker.
    Moved(u64),
}

/// Where TCP_INFO is read, and the snapshots are taken.
#[derive(Debug)]
pub(super) struct Goals {
    lead: Goal,
    warm: Goal,
    measured: Goal,
    /// Of a span of time.
    stop_ns: Option<u64>,
}

impl Goals {
    /// Of a span of time, or of work: as much before the first snapshot as behind it, and a part between TCP_INFO and that, in which
    /// traffic is in its stride again, so small that what TCP_INFO tells is of the same work.
    pub(super) fn new(span: Span, lead_ns: u64, moved: u64) -> Goals {
        match span.work_bytes {
            None => Goals {
                lead: Goal::At(span.from_ns.saturating_sub(lead_ns)),
                warm: Goal::At(span.from_ns),
                measured: Goal::At(span.to_ns),
                stop_ns: Some(span.stop_ns),
            },
            Some(bytes) => Goals {
                lead: Goal::Moved(moved + bytes - bytes / 128),
                warm: Goal::Moved(moved + bytes),
                measured: Goal::Moved(moved + 2 * bytes),
                stop_ns: None,
            },
        }
    }

    /// What this one ends with.
    pub(super) fn of(&self, leg: Leg) -> Goal {
        match leg {
            Leg::Lead => self.lead,
            Leg::Warm => self.warm,
            Leg::Measured => self.measured,
            Leg::Tail => Goal::At(self.stop_ns.unwrap_or(clock_ns() + TAIL_OF_WORK_NS)),
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
