//! Congestion control: limits the bytes in flight.
//!
//! The algorithm is an enum, not a trait object, because it runs once per ACK. Growth counts
//! acknowledged bytes, not ACKs (RFC 3465), so that a receiver that acknowledges rarely does not
//! slow its sender ([`WindowGrowth::PerAck`] is the exception). Not here: pacing and rate-based
//! control.

mod cubic;
mod hystart;

use std::time::{Duration, Instant};

use cubic::Cubic;
use hystart::{GROWTH_DIVISOR, HyStart, Start};

use super::config::{Config, CongestionControl, WindowGrowth};
use crate::SeqNum;

/// Congestion window and the algorithm that changes it.
#[derive(Clone, Debug)]
pub(crate) struct Congestion {
    cwnd: u32,
    ssthresh: u32,
    mss: u32,
    algorithm: Algorithm,
    /// True if the sender stopped because no further segment fitted into the window.
    is_full: bool,
}

#[derive(Clone, Debug)]
enum Algorithm {
    NewReno {
        bytes_acked: u32,
    },
    /// Boxed, and allocated at the first congestion, which most connections are too short to see.
    Cubic(Option<Box<Cubic>>),
    /// First slow start with HyStart++, followed by CUBIC (if `cubic`) or Reno.
    Starting {
        hystart: Box<HyStart>,
        cubic: bool,
    },
    Fixed,
}

/// Information from an ACK for congestion control.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Acked {
    /// Bytes newly acknowledged.
    pub bytes: u32,
    /// Bytes in flight when the sender last sent. Less than the window if the application is the
    /// limit; then the window must not grow (RFC 9293 has no rule; RFC 7661 argues for it).
    pub flight: u32,
    pub srtt: Option<Duration>,
    /// Round-trip time of the newly acknowledged data; `None` if it could not be measured.
    pub rtt: Option<Duration>,
    pub una: SeqNum,
    pub nxt: SeqNum,
    pub now: Instant,
}

impl Congestion {
    pub(crate) fn new(config: &Config, mss: u32) -> Self {
        let initial = initial_window(config, mss);
        let (cwnd, algorithm) = match config.congestion {
            control @ (CongestionControl::NewReno | CongestionControl::Cubic) if config.hystart => {
                let hystart = Box::new(HyStart::new());
                let cubic = control == CongestionControl::Cubic;
                (initial, Algorithm::Starting { hystart, cubic })
            }
            CongestionControl::NewReno => (initial, Algorithm::NewReno { bytes_acked: 0 }),
            CongestionControl::Cubic => (initial, Algorithm::Cubic(None)),
            CongestionControl::Fixed(bytes) => (bytes.max(mss), Algorithm::Fixed),
        };
        Self {
            cwnd,
            ssthresh: u32::MAX,
            mss,
            algorithm,
            is_full: false,
        }
    }

    /// Notes whether the window is full when the sender stops. Noted here and not at an ACK,
    /// because each of several ACKs processed together must see the same state as an ACK alone.
    pub(crate) fn on_rest(&mut self, flight: u32) {
        self.is_full = u64::from(flight) + u64::from(self.mss) > u64::from(self.cwnd);
    }

    /// Congestion window: limit of bytes in flight.
    pub(crate) fn cwnd(&self) -> u32 {
        self.cwnd
    }

    pub(crate) fn ssthresh(&self) -> u32 {
        self.ssthresh
    }

    /// True for [`CongestionControl::Fixed`]: losses do not change the window.
    pub(crate) fn is_fixed(&self) -> bool {
        matches!(self.algorithm, Algorithm::Fixed)
    }

    /// Sets a new segment size, at the handshake or when the path changes. Recomputes the initial
    /// window if nothing was sent yet.
    pub(crate) fn on_mss(&mut self, config: &Config, mss: u32, nothing_sent: bool) {
        self.mss = mss;
        if self.is_fixed() {
            self.cwnd = self.cwnd.max(mss);
        } else if nothing_sent {
            self.cwnd = initial_window(config, mss);
        } else {
            self.cwnd = self.cwnd.max(2 * mss);
        }
    }

    /// Grows the window after an ACK of new data outside of recovery.
    pub(crate) fn on_ack(&mut self, growth: WindowGrowth, mut acked: Acked) {
        let slow_start = self.cwnd < self.ssthresh;
        let mut start = Start::Slow;
        if let Algorithm::Starting { hystart, .. } = &mut self.algorithm {
            start = hystart.on_ack(&acked);
        }
        if start == Start::Over {
            // RFC 9406 §4.2: slow start ends at this window.
            self.ssthresh = self.cwnd;
            self.end_start();
            return;
        }
        let is_used = match (growth, slow_start) {
            // Linux 2.6.11 `tcp_ack`: packets in flight before the ACK >= snd_cwnd.
            (WindowGrowth::PerAck, _) => self.is_full,
            (WindowGrowth::Bytes, true) => 2 * u64::from(acked.flight) > u64::from(self.cwnd),
            (WindowGrowth::Bytes, false) => {
                u64::from(acked.flight) + u64::from(self.mss) > u64::from(self.cwnd)
            }
        };
        if !is_used || self.is_fixed() {
            return;
        }
        if growth == WindowGrowth::PerAck {
            acked.bytes = self.mss;
        }
        if slow_start {
            // RFC 3465 §2.2 with L unlimited, as in Linux: an ACK of forty segments opens the
            // window as much as forty ACKs would.
            let room = self.ssthresh - self.cwnd;
            if start == Start::Conservative {
                acked.bytes /= GROWTH_DIVISOR;
            }
            self.cwnd = self
                .cwnd
                .saturating_add(acked.bytes.min(room))
                .min(CWND_MAX);
            return;
        }
        match &mut self.algorithm {
            Algorithm::NewReno { bytes_acked } => {
                // RFC 3465 §2.1.
                *bytes_acked = bytes_acked.saturating_add(acked.bytes);
                if *bytes_acked >= self.cwnd {
                    *bytes_acked -= self.cwnd;
                    self.cwnd = self.cwnd.saturating_add(self.mss).min(CWND_MAX);
                }
            }
            Algorithm::Cubic(cubic) => {
                self.cwnd = cubic
                    .get_or_insert_default()
                    .on_ack(self.cwnd, self.mss, &acked)
                    .min(CWND_MAX);
            }
            Algorithm::Starting { .. } | Algorithm::Fixed => {}
        }
    }

    /// Switches from HyStart++ to CUBIC or Reno.
    #[cold]
    fn end_start(&mut self) {
        if let Algorithm::Starting { cubic, .. } = self.algorithm {
            self.algorithm = if cubic {
                Algorithm::Cubic(None)
            } else {
                Algorithm::NewReno { bytes_acked: 0 }
            };
        }
    }

    /// Reduces ssthresh after a loss or a congestion mark (RFC 5681 (4), RFC 9438 §4.6). The caller
    /// then reduces the window: at once for a mark, by proportional rate reduction for a loss.
    pub(crate) fn on_congestion(&mut self, flight: u32) {
        self.end_start();
        self.ssthresh = match &mut self.algorithm {
            Algorithm::NewReno { bytes_acked } => {
                *bytes_acked = 0;
                flight / 2
            }
            Algorithm::Cubic(cubic) => cubic
                .get_or_insert_default()
                .on_congestion(self.cwnd, self.mss),
            Algorithm::Starting { .. } | Algorithm::Fixed => return,
        }
        .max(2 * self.mss);
    }

    /// Sets the window to one segment after a retransmission timeout (RFC 5681 §3.1). `first` is
    /// false for a repeated timeout, which does not reduce ssthresh again.
    pub(crate) fn on_timeout(&mut self, flight: u32, first: bool) {
        if self.is_fixed() {
            return;
        }
        if first {
            self.on_congestion(flight);
        }
        if let Algorithm::Cubic(Some(cubic)) = &mut self.algorithm {
            cubic.restart();
        }
        self.cwnd = self.mss;
    }

    /// Returns to the initial window (RFC 5681 §4.1).
    pub(crate) fn restart(&mut self, config: &Config) {
        if self.is_fixed() {
            return;
        }
        if let Algorithm::Cubic(Some(cubic)) = &mut self.algorithm {
            cubic.restart();
        }
        self.cwnd = self.cwnd.min(initial_window(config, self.mss));
    }

    /// Restores the state `before`; keeps a window or ssthresh that is larger now.
    pub(crate) fn restore(&mut self, before: Self) {
        let cwnd = self.cwnd.max(before.cwnd);
        *self = Self {
            cwnd,
            mss: self.mss,
            ssthresh: self.ssthresh.max(before.ssthresh),
            ..before
        };
    }

    /// Sets the window; used by recovery.
    pub(crate) fn set_cwnd(&mut self, bytes: u32) {
        if !self.is_fixed() {
            self.cwnd = bytes.max(self.mss);
        }
    }
}

/// Initial window in bytes (RFC 6928 §2, or `config.initial_window`).
fn initial_window(config: &Config, mss: u32) -> u32 {
    match config.initial_window {
        None => (10 * mss).min(14600.max(2 * mss)),
        Some(segments) => (u32::from(segments.get()) * mss).min(CWND_MAX),
    }
}

/// Largest window that a peer can announce (RFC 7323 §2.2).
const CWND_MAX: u32 = 1 << 30;

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::time::ms;

    fn acked(bytes: u32, flight: u32) -> Acked {
        Acked {
            bytes,
            flight,
            srtt: Some(Duration::from_millis(10)),
            rtt: None,
            una: SeqNum::default(),
            nxt: SeqNum::default(),
            now: ms(0),
        }
    }

    fn congestion(control: CongestionControl) -> Congestion {
        let config = Config {
            congestion: control,
            ..Config::default()
        };
        Congestion::new(&config, 1000)
    }

    #[test]
    fn a_sender_of_2005_counts_acks_and_only_when_its_window_is_full() {
        let config = Config {
            congestion: CongestionControl::NewReno,
            initial_window: NonZeroU16::new(3),
            ..Config::default()
        };
        let mut reno = Congestion::new(&config, 1000);
        let mut ack = |flight, bytes| {
            reno.on_rest(flight);
            reno.on_ack(WindowGrowth::PerAck, acked(bytes, flight));
            reno.cwnd()
        };
        assert_eq!(ack(3000, 3000), 4000, "one segment for three");
        assert_eq!(ack(3000, 1000), 4000, "another would have fitted");
        assert_eq!(ack(3400, 1000), 5000, "none would have fitted");
        // Two ACKs that arrive together, before the sender could fill the window again.
        reno.on_ack(WindowGrowth::PerAck, acked(1000, 3400));
        assert_eq!(reno.cwnd(), 6000, "each counts");
    }

    #[test]
    fn a_stretch_ack_opens_the_window_like_the_acks_it_stands_for() {
        for control in [CongestionControl::NewReno, CongestionControl::Cubic] {
            let mut often = congestion(control);
            let mut rarely = often.clone();
            for _ in 0..10 {
                often.on_ack(WindowGrowth::Bytes, acked(1000, often.cwnd()));
            }
            rarely.on_ack(WindowGrowth::Bytes, acked(10_000, rarely.cwnd()));
            assert_eq!(often.cwnd(), 20_000);
            assert_eq!(rarely.cwnd(), 20_000);
        }
    }

    /// The round-trip time grows as the window exceeds the path's 40 segments.
    #[test]
    fn hystart_ends_slow_start_before_the_queue_is_many_times_the_path() {
        for control in [CongestionControl::NewReno, CongestionControl::Cubic] {
            let config = Config {
                congestion: control,
                hystart: true,
                ..Config::default()
            };
            let mut congestion = Congestion::new(&config, 1000);
            let (mut una, mut rounds) = (SeqNum::new(0), 0);
            while congestion.ssthresh() == u32::MAX {
                let round = congestion.cwnd();
                let nxt = una + round;
                let rtt = Duration::from_millis(u64::from(round.max(40_000)) / 1000);
                for _ in 0..round / 1000 {
                    una += 1000;
                    congestion.on_ack(
                        WindowGrowth::Bytes,
                        Acked {
                            rtt: Some(rtt),
                            una,
                            nxt,
                            ..acked(1000, round)
                        },
                    );
                }
                rounds += 1;
                assert!(rounds < 20);
            }
            let ssthresh = congestion.ssthresh();
            assert!((40_000..300_000).contains(&ssthresh), "{ssthresh}");
            congestion.on_congestion(ssthresh);
            assert!(congestion.ssthresh() < ssthresh, "as without");
        }
    }

    #[test]
    fn reno_grows_by_one_segment_a_window() {
        let mut reno = congestion(CongestionControl::NewReno);
        reno.on_congestion(10_000);
        reno.set_cwnd(reno.ssthresh());
        assert_eq!(reno.cwnd(), 5000);
        for _ in 0..5 {
            reno.on_ack(WindowGrowth::Bytes, acked(1000, reno.cwnd()));
        }
        assert_eq!(reno.cwnd(), 6000);
    }

    #[test]
    fn a_window_that_is_not_used_does_not_grow() {
        let mut reno = congestion(CongestionControl::NewReno);
        reno.on_ack(WindowGrowth::Bytes, acked(3000, 3000));
        assert_eq!(reno.cwnd(), 10_000);
    }

    #[test]
    fn fixed_stays_fixed() {
        let mut fixed = congestion(CongestionControl::Fixed(123_456));
        fixed.on_ack(WindowGrowth::Bytes, acked(50_000, 123_456));
        fixed.on_congestion(123_456);
        fixed.on_timeout(123_456, true);
        fixed.restart(&Config::default());
        fixed.set_cwnd(1);
        assert_eq!(fixed.cwnd(), 123_456);
    }

    #[test]
    fn a_timeout_starts_over_with_one_segment() {
        let mut cubic = congestion(CongestionControl::Cubic);
        cubic.on_timeout(10_000, true);
        assert_eq!((cubic.cwnd(), cubic.ssthresh()), (1000, 7000));
        cubic.on_timeout(1000, false);
        assert_eq!(
            cubic.ssthresh(),
            7000,
            "a second timeout in a row does not halve again"
        );
    }
}
