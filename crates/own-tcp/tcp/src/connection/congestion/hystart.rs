//! HyStart++ (RFC 9406): ends slow start when the round-trip time grows, before a queue overflows.
//!
//! Used only in the first slow start, as §4.3 requires. L, the limit of segments that one ACK may
//! add, is unlimited as elsewhere in slow start here: the RFC's 8 would slow a sender whose peer
//! acknowledges super-segments. A round with fewer than eight samples decides nothing, so with such
//! rare ACKs the window grows as without HyStart++.

use std::time::Duration;

use super::Acked;
use crate::SeqNum;

/// Round-trip times of the rounds of slow start.
#[derive(Clone, Debug)]
pub(super) struct HyStart {
    /// windowEnd: SND.NXT when the round began; `None` before the first round.
    round_end: Option<SeqNum>,
    /// lastRoundMinRTT.
    last: Option<Duration>,
    /// currentRoundMinRTT.
    current: Option<Duration>,
    /// rttSampleCount.
    samples: u32,
    conservative: Option<Conservative>,
}

/// Conservative slow start, until it is clear that the delay really grew.
#[derive(Clone, Debug)]
struct Conservative {
    /// cssBaselineMinRtt.
    baseline: Duration,
    /// Rounds that ended since, including the round in which it began.
    rounds: u32,
}

/// Growth of the window after an ACK.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// Growth by all acknowledged bytes.
    Slow,
    /// Growth by the acknowledged bytes divided by [`GROWTH_DIVISOR`].
    Conservative,
    /// Slow start is over: congestion avoidance.
    Over,
}

impl HyStart {
    pub(super) fn new() -> Self {
        Self {
            round_end: None,
            last: None,
            current: None,
            samples: 0,
            conservative: None,
        }
    }

    /// Processes an ACK in slow start (§4.2).
    pub(super) fn on_ack(&mut self, acked: &Acked) -> Start {
        if self.round_end.is_none_or(|end| acked.una.at_or_after(end)) {
            self.begin_round(acked.nxt);
            if let Some(conservative) = &mut self.conservative {
                conservative.rounds += 1;
                if conservative.rounds >= CONSERVATIVE_ROUNDS {
                    return Start::Over;
                }
            }
        }
        if let Some(rtt) = acked.rtt {
            self.current = Some(self.current.map_or(rtt, |least| least.min(rtt)));
            self.samples += 1;
        }
        if self.samples >= SAMPLES_MIN {
            self.judge();
        }
        match self.conservative {
            None => Start::Slow,
            Some(_) => Start::Conservative,
        }
    }

    fn begin_round(&mut self, nxt: SeqNum) {
        self.last = self.current.take();
        self.samples = 0;
        self.round_end = Some(nxt);
    }

    fn judge(&mut self) {
        let (Some(current), last) = (self.current, self.last) else {
            return;
        };
        match (&self.conservative, last) {
            (Some(conservative), _) if current < conservative.baseline => self.conservative = None,
            (None, Some(last)) => {
                let threshold = (last / RTT_DIVISOR).clamp(THRESHOLD_MIN, THRESHOLD_MAX);
                if current >= last + threshold {
                    self.conservative = Some(Conservative {
                        baseline: current,
                        rounds: 0,
                    });
                }
            }
            _ => {}
        }
    }
}

/// CSS_GROWTH_DIVISOR.
pub(super) const GROWTH_DIVISOR: u32 = 4;
/// MIN_RTT_THRESH, MAX_RTT_THRESH, MIN_RTT_DIVISOR, N_RTT_SAMPLE, CSS_ROUNDS (§4.3).
const THRESHOLD_MIN: Duration = Duration::from_millis(4);
const THRESHOLD_MAX: Duration = Duration::from_millis(16);
const RTT_DIVISOR: u32 = 8;
const SAMPLES_MIN: u32 = 8;
const CONSERVATIVE_ROUNDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    /// Runs a round of ten ACKs of 100 bytes each with these round-trip times. Returns the last
    /// result.
    fn round(hystart: &mut HyStart, number: u32, rtt_ms: impl Fn(u32) -> u64) -> Start {
        let mut start = Start::Slow;
        for n in 0..10 {
            start = hystart.on_ack(&Acked {
                bytes: 100,
                flight: 1000,
                srtt: None,
                rtt: Some(Duration::from_millis(rtt_ms(n))),
                una: SeqNum::new(number * 1000 + n * 100),
                nxt: SeqNum::new(number * 1000 + 1000),
                now: ms(0),
            });
            if start == Start::Over {
                break;
            }
        }
        start
    }

    #[test]
    fn five_rounds_after_the_delay_grew_slow_start_is_over() {
        let mut hystart = HyStart::new();
        assert_eq!(round(&mut hystart, 0, |_| 40), Start::Slow);
        assert_eq!(
            round(&mut hystart, 1, |_| 44),
            Start::Slow,
            "an eighth is 5 ms"
        );
        assert_eq!(round(&mut hystart, 2, |_| 50), Start::Conservative);
        for number in 3..7 {
            assert_eq!(round(&mut hystart, number, |_| 60), Start::Conservative);
        }
        assert_eq!(round(&mut hystart, 7, |_| 60), Start::Over);
    }

    #[test]
    fn a_false_alarm_is_taken_back() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, |_| 40);
        assert_eq!(round(&mut hystart, 1, |_| 60), Start::Conservative);
        assert_eq!(round(&mut hystart, 2, |_| 45), Start::Slow);
    }

    #[test]
    fn the_least_of_eight_samples_decides() {
        let mut hystart = HyStart::new();
        round(&mut hystart, 0, |_| 40);
        let jitter = |n| if n % 4 == 0 { 41 } else { 90 };
        assert_eq!(round(&mut hystart, 1, jitter), Start::Slow);
        // The threshold is at least 4 ms and at most 16 ms.
        let mut short = HyStart::new();
        round(&mut short, 0, |_| 1);
        assert_eq!(round(&mut short, 1, |_| 4), Start::Slow);
        assert_eq!(round(&mut short, 2, |_| 8), Start::Conservative);
        let mut long = HyStart::new();
        round(&mut long, 0, |_| 400);
        assert_eq!(round(&mut long, 1, |_| 416), Start::Conservative);
    }
}
