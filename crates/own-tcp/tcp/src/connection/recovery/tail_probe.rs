//! Tail loss probe (RFC 8985 §7): when the last segments of a flight may be lost, sends one more
//! segment instead of waiting for the retransmission timeout.

use std::time::Duration;

use crate::SeqNum;

/// Probe in flight.
#[derive(Clone, Copy, Debug)]
pub(in crate::connection) struct TailProbe {
    /// TLP.end_seq: SND.NXT after the probe.
    pub end: SeqNum,
    /// TLP.is_retrans: true if the probe repeated old data.
    pub is_retransmission: bool,
}

/// Result of an ACK for a probe.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::connection) enum Outcome {
    /// Not known yet.
    Pending,
    /// The original had arrived, or the probe was new data.
    NoLoss,
    /// The probe repaired a loss that nothing else will show: reduce the window.
    RepairedLoss,
}

impl TailProbe {
    /// Processes an ACK of `ack` (RFC 8985 §7.4.2). `says_duplicate`: it has a DSACK. `repeats`: it
    /// is a duplicate ACK without SACK blocks, so the probe was a duplicate.
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

/// Timeout of the probe (TLP_calc_PTO, RFC 8985 §7.2), without the limit by the retransmission
/// timeout.
pub(in crate::connection) fn probe_timeout(
    srtt: Option<Duration>,
    one_segment: bool,
    ack_delay: Duration,
) -> Duration {
    let timeout = srtt.map_or(Duration::from_secs(1), |srtt| 2 * srtt);
    // Only one segment is in flight, so its ACK may be a delayed one.
    let timeout = if one_segment {
        timeout + ack_delay
    } else {
        timeout
    };
    timeout.max(MIN)
}

/// Shortest timeout: two ticks of a usual peer's timer, as in Linux.
const MIN: Duration = Duration::from_millis(2);
