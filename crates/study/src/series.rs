//! One connection over time: what a host's first connection of our own TCP was at each of many looks.

use serde::{Deserialize, Serialize};

/// Looks at a host's first connection between the two snapshots (`[measure] series`), each list as long as [`Self::at_ns`].
/// Counts are totals since the connection began.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionSeries {
    /// When, ns since the first snapshot.
    pub at_ns: Vec<u64>,
    /// Congestion window, bytes.
    pub congestion_window_bytes: Vec<u64>,
    /// Wire segments with payload received.
    pub data_segments_received: Vec<u64>,
    /// Pure ACKs sent.
    pub pure_acks_sent: Vec<u64>,
    /// Of these, ACKs that the delay's end sent.
    pub delayed_acks_sent: Vec<u64>,
    /// Segments after which `avoidance` acknowledges; empty under other policies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ack_limit: Vec<u64>,
    /// The most that this limit grows to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ack_limit_max: Vec<u64>,
}

/// One look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Look {
    /// Congestion window, bytes.
    pub congestion_window_bytes: u64,
    /// Wire segments with payload received.
    pub data_segments_received: u64,
    /// Pure ACKs sent.
    pub pure_acks_sent: u64,
    /// Of these, ACKs that the delay's end sent.
    pub delayed_acks_sent: u64,
    /// The limit of `avoidance`, and the most that it grows to.
    pub ack_limits: Option<[u64; 2]>,
}

impl ConnectionSeries {
    /// Adds a look.
    pub fn push(&mut self, at_ns: u64, look: Look) {
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

    /// The highest limit seen; `None` where the policy has none.
    pub fn ack_limit_top(&self) -> Option<u64> {
        self.ack_limit.iter().copied().max()
    }

    /// How often the delay ended from one look to the next, the limit being lower at the later; and in how many steps it
    /// ended at all. A limit that fell and has climbed above where it was before the next look is not seen.
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
        // Learned upwards, fallen by the timer, up again, lower without the timer, and a timer that found it higher.
        for (at, (limit, delayed)) in [(4, 0), (9, 0), (3, 1), (8, 1), (1, 1), (6, 2)]
            .into_iter()
            .enumerate()
        {
            series.push(
                at as u64,
                Look {
                    ack_limits: Some([limit, 22]),
                    delayed_acks_sent: delayed,
                    ..Look::default()
                },
            );
        }
        assert_eq!(series.falls(), Some((1, 2)));
        assert_eq!(series.ack_limit_top(), Some(9));
        assert_eq!(series.at_ns.len(), series.ack_limit_max.len());
    }
}
