//! CUBIC (RFC 9438), in units of segments as the RFC writes it.

use std::time::{Duration, Instant};

use super::Acked;

#[derive(Clone, Debug, Default)]
pub(super) struct Cubic {
    /// W_max: the window before the last reduction, in segments.
    w_max: f64,
    /// Current congestion avoidance stage; `None` until its first ACK.
    epoch: Option<Epoch>,
}

#[derive(Clone, Debug)]
struct Epoch {
    start: Instant,
    /// Seconds until the curve reaches `w_max`.
    k: f64,
    /// W_est: the window that Reno would have, in segments.
    w_est: f64,
    /// Growth below one byte, kept for the next ACK.
    fraction: f64,
}

impl Cubic {
    /// Returns the window in bytes after an ACK in congestion avoidance (RFC 9438 §4.2 to §4.5).
    pub(super) fn on_ack(&mut self, cwnd: u32, mss: u32, acked: &Acked) -> u32 {
        let mss = f64::from(mss);
        let window = f64::from(cwnd) / mss;
        let segments = f64::from(acked.bytes) / mss;
        let w_max = self.w_max.max(window);
        let epoch = self.epoch.get_or_insert_with(|| Epoch {
            start: acked.now,
            k: ((w_max - window) / C).cbrt(),
            w_est: window,
            fraction: 0.0,
        });
        let t =
            acked.now.saturating_duration_since(epoch.start) + acked.srtt.unwrap_or(Duration::ZERO);
        let target = C * (t.as_secs_f64() - epoch.k).powi(3) + w_max;
        // RFC 9438 §4.3: alpha compensates for our smaller reduction; after W_max is reached it is
        // 1, as in Reno.
        let alpha = if epoch.w_est < w_max {
            3.0 * (1.0 - BETA) / (1.0 + BETA)
        } else {
            1.0
        };
        epoch.w_est += alpha * segments / window;
        let grown = window + (target.clamp(window, 1.5 * window) - window) / window * segments;
        let bytes = grown.max(epoch.w_est) * mss + epoch.fraction;
        epoch.fraction = bytes.fract();
        bytes as u32
    }

    /// Stores W_max and returns the new ssthresh in bytes (§4.6, §4.7).
    pub(super) fn on_congestion(&mut self, cwnd: u32, mss: u32) -> u32 {
        let window = f64::from(cwnd) / f64::from(mss);
        // Fast convergence: a second reduction in a row leaves room for new flows.
        self.w_max = if window < self.w_max {
            window * (1.0 + BETA) / 2.0
        } else {
            window
        };
        self.epoch = None;
        (f64::from(cwnd) * BETA) as u32
    }

    /// Starts a new stage with the next ACK.
    pub(super) fn restart(&mut self) {
        self.epoch = None;
    }
}

/// Constant C in segments/s³ (RFC 9438 §5).
const C: f64 = 0.4;
/// Factor by which congestion reduces the window (RFC 9438 §4.6).
const BETA: f64 = 0.7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::ms;

    /// Returns the window after `rounds` of 100 ms, with an MSS of 1000.
    fn after(rounds: u64, mut cwnd: u32, cubic: &mut Cubic) -> u32 {
        for round in 1..=rounds {
            let acked = Acked {
                bytes: cwnd,
                flight: cwnd,
                srtt: Some(Duration::from_millis(100)),
                rtt: None,
                una: crate::SeqNum::default(),
                nxt: crate::SeqNum::default(),
                now: ms(round * 100),
            };
            cwnd = cubic.on_ack(cwnd, 1000, &acked);
        }
        cwnd
    }

    #[test]
    fn it_is_back_at_its_maximum_after_k_seconds() {
        let mut cubic = Cubic::default();
        let cwnd = cubic.on_congestion(100_000, 1000);
        assert_eq!(cwnd, 70_000);
        // K = cbrt(30 / 0.4) = 4.2 s.
        let plateau = after(42, cwnd, &mut cubic);
        assert!((95_000..=102_000).contains(&plateau), "{plateau}");
        let mut beyond = Cubic::default();
        beyond.on_congestion(100_000, 1000);
        assert!(after(100, cwnd, &mut beyond) > 150_000, "then it probes");
    }

    #[test]
    fn on_a_short_path_it_is_not_slower_than_reno() {
        let mut cubic = Cubic::default();
        let mut cwnd = cubic.on_congestion(10_000, 1000);
        for round in 1..=20 {
            let acked = Acked {
                bytes: cwnd,
                flight: cwnd,
                srtt: Some(Duration::from_millis(1)),
                rtt: None,
                una: crate::SeqNum::default(),
                nxt: crate::SeqNum::default(),
                now: ms(round),
            };
            cwnd = cubic.on_ack(cwnd, 1000, &acked);
        }
        // Reno with beta 0.7 grows by 0.53 segments a round: 7 + 20 * 0.53.
        assert!(cwnd >= 16_000, "{cwnd}");
    }
}
