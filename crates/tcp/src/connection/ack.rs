//! When to acknowledge: a policy is data, the scheduler applies it.
//!
//! Asked at three places (a segment arrived in order, the application read, the timer fired) and
//! told at a fourth (something was sent: every segment carries the acknowledgement). What must be
//! acknowledged at once whatever the policy (gaps, duplicates, FIN, probes, changed congestion
//! marks; RFC 5681 §4.2) never gets here: those steps ask for [`AckDecision::Now`] themselves.

use std::time::{Duration, Instant};

/// When an acknowledgement of data in order leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckPolicy {
    /// At least every second full-sized segment, counted in bytes, else after `delay_max`
    /// (RFC 9293 §3.8.6.3, SHLD-18, SHLD-19; MUST-40: under 500 ms).
    Delayed {
        /// Longest wait for a second segment.
        delay_max: Duration,
    },
    /// Every `segments` wire segments, however many arrive at once, else after `delay_max`. Never
    /// leaves more than half the window unacknowledged: a sender without window could not send the
    /// segment that is waited for.
    Every {
        /// Wire segments per acknowledgement, from 1.
        segments: u32,
        /// Longest wait for the last of them.
        delay_max: Duration,
    },
    /// One for each `segments` full-sized segments, counted in bytes, also when they arrive
    /// together: a super-segment then gets several, as its parts would have. For studies that need
    /// a certain number of ACKs at any speed. Else as `Every`.
    Exactly {
        /// Full-sized segments per acknowledgement, from 1.
        segments: u32,
        /// Longest wait for the last of them.
        delay_max: Duration,
    },
}

impl AckPolicy {
    /// Bytes each acknowledgement advances by, if one for all that has arrived will not do.
    pub(super) fn step_bytes(&self, full_segment_bytes: u32) -> Option<u32> {
        match *self {
            Self::Exactly { segments, .. } => {
                Some(segments.max(1).saturating_mul(full_segment_bytes))
            }
            Self::Delayed { .. } | Self::Every { .. } => None,
        }
    }

    /// Longest wait for the segment that makes an acknowledgement due.
    pub(super) fn delay_max(&self) -> Duration {
        match *self {
            Self::Delayed { delay_max }
            | Self::Every { delay_max, .. }
            | Self::Exactly { delay_max, .. } => delay_max.min(DELAY_MAX),
        }
    }
}

/// What to do about an acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AckDecision {
    /// Send it with the next poll.
    Now,
    /// Send it at this time unless another segment carries it before.
    By(Instant),
    /// Leave things as they are.
    Nothing,
}

/// A segment arrived in order: what a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    /// Wire segments it stands for. Not units: receive offload would change the meaning of a count.
    pub wire_segments: u32,
    /// Payload of a full-sized segment of this peer, by what was seen.
    pub full_segment_bytes: u32,
    /// Bytes received in order since the last acknowledgement left, these included.
    pub unacked_bytes: u32,
    /// Window the peer knew when the last acknowledgement left.
    pub window_bytes: u32,
    pub now: Instant,
}

/// The application read: what a policy may look at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    /// Window the peer knows.
    pub window_known: u32,
    /// Window we would announce now.
    pub window_new: u32,
    /// Size of the receive buffer.
    pub buffer: u32,
    /// A full-sized segment.
    pub full_segment_bytes: u32,
}

/// Applies an [`AckPolicy`].
#[derive(Debug, Default)]
pub(super) struct AckScheduler {
    unacked_segments: u32,
}

impl AckScheduler {
    pub(super) fn on_segment(&mut self, policy: &AckPolicy, arrival: &Arrival) -> AckDecision {
        self.unacked_segments = self.unacked_segments.saturating_add(arrival.wire_segments);
        let half_window = arrival.unacked_bytes >= arrival.window_bytes / 2;
        let due = match *policy {
            AckPolicy::Delayed { .. } => arrival.unacked_bytes >= 2 * arrival.full_segment_bytes,
            AckPolicy::Every { segments, .. } => self.unacked_segments >= segments || half_window,
            AckPolicy::Exactly { .. } => {
                let step = policy.step_bytes(arrival.full_segment_bytes);
                step.is_some_and(|step| arrival.unacked_bytes >= step) || half_window
            }
        };
        if due {
            AckDecision::Now
        } else {
            AckDecision::By(arrival.now + policy.delay_max())
        }
    }

    /// Whether the window has opened enough to tell: from nothing, by a segment; else when it
    /// doubles, and then only if the peer knows of less than half the buffer (as Linux). This is
    /// also the receiver's silly-window avoidance (RFC 9293 §3.8.6.2.2).
    pub(super) fn on_read(&self, read: &Read) -> AckDecision {
        let segment = read.full_segment_bytes.min(read.buffer / 2);
        let opened = if read.window_known < segment {
            read.window_new >= segment
        } else {
            2 * u64::from(read.window_known) <= u64::from(read.buffer)
                && u64::from(read.window_new) >= 2 * u64::from(read.window_known)
        };
        if opened {
            AckDecision::Now
        } else {
            AckDecision::Nothing
        }
    }

    /// A segment left and carried the acknowledgement.
    pub(super) fn on_sent(&mut self) {
        self.unacked_segments = 0;
    }
}

/// RFC 9293 MUST-40.
const DELAY_MAX: Duration = Duration::from_millis(499);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    /// Feeds units of so many full segments and compares the indices at which an ACK leaves.
    fn check(policy: AckPolicy, units: &[u32], window_bytes: u32, expected: &[usize]) {
        let mut scheduler = AckScheduler::default();
        let mut unacked_bytes = 0;
        let mut acks = Vec::new();
        for (index, &wire_segments) in units.iter().enumerate() {
            unacked_bytes += wire_segments * 1000;
            let arrival = Arrival {
                wire_segments,
                full_segment_bytes: 1000,
                unacked_bytes,
                window_bytes,
                now: ms(0),
            };
            if scheduler.on_segment(&policy, &arrival) == AckDecision::Now {
                acks.push(index);
                unacked_bytes = 0;
                scheduler.on_sent();
            }
        }
        assert_eq!(acks, expected, "{policy:?}");
    }

    const DELAY: Duration = Duration::from_millis(40);

    #[test]
    fn every_second_full_segment_and_every_super_segment() {
        check(
            AckPolicy::Delayed { delay_max: DELAY },
            &[1, 1, 1, 1, 44, 1, 1],
            1 << 20,
            &[1, 3, 4, 6],
        );
    }

    #[test]
    fn every_eighth_counts_wire_segments_not_units() {
        let policy = AckPolicy::Every {
            segments: 8,
            delay_max: DELAY,
        };
        check(policy, &[1; 17], 1 << 20, &[7, 15]);
        check(policy, &[3; 6], 1 << 20, &[2, 5]);
        check(
            AckPolicy::Every {
                segments: 1,
                delay_max: DELAY,
            },
            &[1, 44],
            1 << 20,
            &[0, 1],
        );
    }

    #[test]
    fn never_more_than_half_the_window() {
        check(
            AckPolicy::Every {
                segments: 100,
                delay_max: DELAY,
            },
            &[1; 9],
            8000,
            &[3, 7],
        );
    }

    #[test]
    fn the_odd_one_waits_for_the_delay() {
        let mut scheduler = AckScheduler::default();
        let arrival = Arrival {
            wire_segments: 1,
            full_segment_bytes: 1000,
            unacked_bytes: 1000,
            window_bytes: 1 << 20,
            now: ms(2),
        };
        let policy = AckPolicy::Delayed { delay_max: DELAY };
        assert_eq!(
            scheduler.on_segment(&policy, &arrival),
            AckDecision::By(ms(42))
        );
    }

    #[test]
    fn a_reopened_window_is_told_at_once_and_a_wider_one_when_it_has_doubled() {
        let check = |window_known, window_new, expected| {
            let read = Read {
                window_known,
                window_new,
                buffer: 64_000,
                full_segment_bytes: 1000,
            };
            assert_eq!(
                AckScheduler::default().on_read(&read),
                expected,
                "{window_known} to {window_new}"
            );
        };
        check(0, 999, AckDecision::Nothing);
        check(0, 1000, AckDecision::Now);
        check(10_000, 19_999, AckDecision::Nothing);
        check(10_000, 20_000, AckDecision::Now);
        check(40_000, 64_000, AckDecision::Nothing);
    }
}
