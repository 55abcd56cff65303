//! Round-trip time and the retransmission timeout (RFC 6298).

use std::time::Duration;

/// Smoothed round-trip time, its variation, and the timeout computed from them.
#[derive(Clone, Debug)]
pub(super) struct RttEstimator {
    measured: Option<Measured>,
    /// Doublings of the timeout since the last new acknowledgement.
    backoff: u8,
    rto_min_ms: u16,
    rto_max_ms: u32,
}

/// Measured values in nanoseconds; half the memory of a `Duration` each.
#[derive(Clone, Copy, Debug)]
struct Measured {
    srtt_ns: u64,
    rttvar_ns: u64,
    rtt_min_ns: u64,
}

impl RttEstimator {
    /// Makes an estimator without samples. `rto_min` is limited to 65 s.
    pub(super) fn new(rto_min: Duration, rto_max: Duration) -> Self {
        Self {
            measured: None,
            backoff: 0,
            rto_min_ms: u16::try_from(rto_min.as_millis()).unwrap_or(u16::MAX),
            rto_max_ms: u32::try_from(rto_max.as_millis()).unwrap_or(u32::MAX),
        }
    }

    /// Adds a sample. The caller must not sample a retransmitted segment unless timestamps identify
    /// the copy that was acknowledged (Karn's rule, RFC 6298 §3).
    pub(super) fn on_sample(&mut self, rtt: Duration) {
        let rtt_ns = rtt.as_nanos().min(1 << 58) as u64;
        let measured = match self.measured {
            // RFC 6298 (2.2).
            None => Measured {
                srtt_ns: rtt_ns,
                rttvar_ns: rtt_ns / 2,
                rtt_min_ns: rtt_ns,
            },
            // RFC 6298 (2.3), alpha 1/8 and beta 1/4.
            Some(old) => Measured {
                rttvar_ns: (old.rttvar_ns * 3 + old.srtt_ns.abs_diff(rtt_ns)) / 4,
                srtt_ns: (old.srtt_ns * 7 + rtt_ns) / 8,
                rtt_min_ns: old.rtt_min_ns.min(rtt_ns),
            },
        };
        self.measured = Some(measured);
    }

    /// Resets the doublings after new data was acknowledged.
    pub(super) fn on_progress(&mut self) {
        self.backoff = 0;
    }

    /// Doubles the timeout (RFC 6298 (5.5)).
    pub(super) fn back_off(&mut self) {
        self.backoff = self.backoff.saturating_add(1);
    }

    pub(super) fn srtt(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.srtt_ns))
    }

    /// RTTVAR; `None` before the first sample.
    pub(super) fn rttvar(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.rttvar_ns))
    }

    pub(super) fn rtt_min(&self) -> Option<Duration> {
        self.measured
            .map(|measured| Duration::from_nanos(measured.rtt_min_ns))
    }

    /// Retransmission timeout including its doublings. As in Linux, `rto_min` is the lower limit of
    /// the variation, not of the whole timeout: even on a long, steady path an ACK may be that
    /// late.
    pub(super) fn rto(&self) -> Duration {
        let rto_min = Duration::from_millis(self.rto_min_ms.into());
        let base = match self.measured {
            None => RTO_INITIAL.max(rto_min),
            Some(measured) => {
                let variation = Duration::from_nanos(measured.rttvar_ns.saturating_mul(4));
                Duration::from_nanos(measured.srtt_ns) + variation.max(rto_min).max(GRANULARITY)
            }
        };
        base.saturating_mul(1 << self.backoff.min(16))
            .min(Duration::from_millis(self.rto_max_ms.into()))
    }
}

/// Timeout before the first sample (RFC 6298 (2.1)).
const RTO_INITIAL: Duration = Duration::from_secs(1);
/// G of RFC 6298. The time here is exact, but the driver may wake up late.
const GRANULARITY: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests {
    use super::*;

    const RTO_MAX: Duration = Duration::from_secs(120);

    fn ms(n: u64) -> Duration {
        Duration::from_millis(n)
    }

    #[test]
    fn the_first_sample_triples_and_doublings_end_with_progress() {
        let mut rtt = RttEstimator::new(ms(200), RTO_MAX);
        assert_eq!(rtt.rto(), ms(1000));
        rtt.on_sample(ms(100));
        assert_eq!(rtt.rto(), ms(300));
        rtt.back_off();
        rtt.back_off();
        assert_eq!(rtt.rto(), ms(1200));
        rtt.on_progress();
        assert_eq!(rtt.rto(), ms(300));
    }

    #[test]
    fn it_stays_within_its_bounds() {
        let mut rtt = RttEstimator::new(ms(200), RTO_MAX);
        rtt.on_sample(ms(0));
        assert_eq!(rtt.rto(), ms(200));
        for _ in 0..100 {
            rtt.back_off();
        }
        assert_eq!(rtt.rto(), RTO_MAX);
        let mut bounded = RttEstimator::new(ms(200), ms(700));
        bounded.on_sample(ms(50));
        let timeouts: [Duration; 3] = std::array::from_fn(|_| {
            bounded.back_off();
            bounded.rto()
        });
        assert_eq!(timeouts, [ms(500), ms(700), ms(700)]);
    }

    #[test]
    fn a_steady_path_converges_to_its_round_trip_time() {
        let mut rtt = RttEstimator::new(ms(1), RTO_MAX);
        for _ in 0..200 {
            rtt.on_sample(ms(50));
        }
        assert_eq!(rtt.srtt(), Some(ms(50)));
        assert!(rtt.rto() <= ms(52), "{:?}", rtt.rto());
    }

    #[test]
    fn an_ack_of_a_steady_path_may_be_late_by_the_lower_bound() {
        let mut rtt = RttEstimator::new(ms(200), RTO_MAX);
        for _ in 0..200 {
            rtt.on_sample(ms(300));
        }
        assert_eq!(rtt.rto(), ms(500));
    }
}
