//! Samples of one connection over time: the state of a host's first connection of our own TCP.

use serde::{Deserialize, Serialize};

/// Samples of a host's first connection between the two snapshots (`[measure] series`). Each list
/// is as long as [`Self::at_ns`]; the lists of limits may be empty. Counts are totals since the
/// connection began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSeries {
    /// Times of the samples, ns since the first snapshot.
    pub at_ns: Vec<u64>,
    /// Congestion window, bytes.
    pub congestion_window_bytes: Vec<u64>,
    /// Wire segments with payload received.
    pub data_segments_received: Vec<u64>,
    /// Pure ACKs sent.
    pub pure_acks_sent: Vec<u64>,
    /// Pure ACKs among them that were sent because the delay ended.
    pub delayed_acks_sent: Vec<u64>,
    /// Number of segments after which `avoidance` acknowledges. Empty under other policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ack_limit: Vec<u64>,
    /// Upper bound to which this limit grows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ack_limit_max: Vec<u64>,
}

/// One sample.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SeriesSample {
    /// Congestion window, bytes.
    pub congestion_window_bytes: u64,
    /// Wire segments with payload received.
    pub data_segments_received: u64,
    /// Pure ACKs sent.
    pub pure_acks_sent: u64,
    /// Pure ACKs among them that were sent because the delay ended.
    pub delayed_acks_sent: u64,
    /// Limit of `avoidance`, and the upper bound to which it grows. `None` under other policies.
    pub ack_limits: Option<[u64; 2]>,
}

impl ConnectionSeries {
    /// Appends a sample.
    pub fn push(&mut self, at_ns: u64, look: SeriesSample) {
        self.at_ns.push(at_ns);
        self.congestion_window_bytes
            .push(look.congestion_window_bytes);
        self.data_segments_received
            .push(look.data_segments_received);
        self.pure_acks_sent.push(look.pure_acks_sent);
        self.delayed_acks_sent.push(look.delayed_acks_sent);
        if let Some([limit, limit_max]) = look.ack_limits {
            self.ack_limit.push(limit);
            self.ack_limit_max.push(limit_max);
        }
    }

    /// Highest limit in the samples. `None` if the policy has none.
    pub fn ack_limit_top(&self) -> Option<u64> {
        self.ack_limit.iter().copied().max()
    }

    /// Number of steps between samples in which the delay ended and the limit was lower at the
    /// later sample, and number of steps in which the delay ended at all. `None` if the policy has
    /// no limit. A limit that fell and rose again before the next sample is not seen.
    pub fn falls(&self) -> Option<(u64, u64)> {
        if self.ack_limit.is_empty() {
            return None;
        }
        let steps = self
            .ack_limit
            .windows(2)
            .zip(self.delayed_acks_sent.windows(2));
        let ended = steps.filter(|(_, delayed)| delayed[1] > delayed[0]);
        let (mut falls, mut ends) = (0, 0);
        for (limit, _) in ended {
            ends += 1;
            falls += u64::from(limit[1] < limit[0]);
        }
        Some((falls, ends))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fall_is_a_lower_limit_after_the_delay_ended() {
        let mut series = ConnectionSeries::default();
        assert_eq!((series.falls(), series.ack_limit_top()), (None, None));
        // Learned upwards; lowered by the timer; up again; lower without the timer; and a timer
        // that found it higher.
        for (at, (limit, delayed)) in [(4, 0), (9, 0), (3, 1), (8, 1), (1, 1), (6, 2)]
            .into_iter()
            .enumerate()
        {
            series.push(
                at as u64,
                SeriesSample {
                    ack_limits: Some([limit, 22]),
                    delayed_acks_sent: delayed,
                    ..SeriesSample::default()
                },
            );
        }
        assert_eq!(series.falls(), Some((1, 2)));
        assert_eq!(series.ack_limit_top(), Some(9));
        assert_eq!(series.at_ns.len(), series.ack_limit_max.len());
    }
}
