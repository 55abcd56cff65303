//! Tail loss probe (RFC 8985 §7): when the last segments of a flight may be lost, send one more
//! rather than wait for the retransmission timeout.

use std::time::Duration;

use crate::SeqNum;

/// A probe that is out.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct TailProbe {
    /// TLP.end_seq: SND.NXT after the probe.
    pub end: SeqNum,
    /// TLP.is_retrans: it repeated old data.
    pub is_retransmission: bool,
}

/// What an ACK says about a probe.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) enum Outcome {
    /// Still unknown.
    Pending,
    /// The original was there, or the probe was new data.
    NoLoss,
    /// The probe repaired a loss that nothing else will show: reduce the window.
    RepairedLoss,
}

impl TailProbe {
    /// RFC 8985 §7.4.2: an ACK of `ack` that `says_duplicate` (DSACK), or shows by repeating
    /// itself without anything new that the probe was a duplicate.
    pub(in crate::connection) fn on_ack(
        &self,
        ack: SeqNum,
        says_duplicate: bool,
        repeats: bool,
    ) -> Outcome {
        if ack.before(self.end) {
            return Outcome::Pending;
        }
        if !self.is_retransmission || says_duplicate || repeats {
            Outcome::NoLoss
        } else if ack.after(self.end) {
            Outcome::RepairedLoss
        } else {
            Outcome::Pending
        }
    }
}

/// RFC 8985 §7.2 (TLP_calc_PTO), but for the bound by the retransmission timeout.
pub(in crate::connection) fn probe_timeout(
    srtt: Option<Duration>,
    one_segment: bool,
    ack_delay: Duration,
) -> Duration {
    let timeout = srtt.map_or(Duration::from_secs(1), |srtt| 2 * srtt);
    // Nothing in flight behind a lone segment: its ACK may be a delayed one.
    let timeout = if one_segment {
        timeout + ack_delay
    } else {
        timeout
    };
    timeout.max(MIN)
}

/// As Linux: never sooner than two ticks of a usual peer's timer.
const MIN: Duration = Duration::from_millis(2);
