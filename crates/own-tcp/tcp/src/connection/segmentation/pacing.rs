//! Pacing: a timer spreads new data over the round trip, like Linux's internal pacing
//! (`tcp_update_pacing_rate`, `tcp_tso_autosize`).
//!
//! Not here: Linux's allowance for larger super-segments on short paths (`tcp_tso_rtt_log`) in the
//! size of paced super-segments, which would hide the effect where it is measured; pacing of
//! retransmissions.

use std::time::{Duration, Instant};

use super::Segmentation;
use crate::connection::Connection;
use crate::connection::timers::Timer;

/// Rate at which a timer spreads new data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pacing {
    /// No pacing: data leaves as soon as the windows allow.
    Off,
    /// The congestion window per smoothed round-trip time, times 2 in slow start and 1.2 later, so
    /// that the window remains the limit.
    Window,
    /// This many payload bytes per second.
    BytesPerSecond(u64),
}

impl Segmentation {
    /// Limit of a super-segment in bytes: a millisecond (2⁻¹⁰ s) of the rate, as in Linux
    /// (`sk_pacing_shift` 10), but at least `paced_segments_min`.
    pub(in crate::connection) fn paced_bytes_max(&self, rate: u64, mss: u32) -> u32 {
        let millisecond = (rate >> 10).min(u64::from(u32::MAX)) as u32;
        millisecond.max(self.paced_segments_min.saturating_mul(mss))
    }
}

impl Connection {
    /// Payload bytes per second; `None` if pacing is off or no rate is known.
    #[inline]
    pub(in crate::connection) fn paced_rate(&self) -> Option<u64> {
        match self.config.segmentation.pacing {
            Pacing::Off => None,
            Pacing::BytesPerSecond(rate) => Some(rate.max(1)),
            Pacing::Window => self.window_rate(),
        }
    }

    /// Payload bytes per second that determine the size of super-segments:
    /// [`paced_rate`](Self::paced_rate), or with Linux's rules the window's rate plus an allowance
    /// for short paths (`tcp_tso_rtt_log`): 64 KiB per millisecond, halved for each 512 µs of the
    /// smallest round-trip time.
    #[inline]
    pub(in crate::connection) fn sizing_rate(&self) -> Option<u64> {
        if !self.config.segmentation.is_linux() {
            return self.paced_rate();
        }
        let halvings = self.rtt.rtt_min()?.as_micros() >> 9;
        let allowance = (1_u64 << 16) >> halvings.min(63);
        Some(self.window_rate()?.saturating_add(allowance << 10))
    }

    fn window_rate(&self) -> Option<u64> {
        let srtt_ns = self.rtt.srtt()?.as_nanos().max(1);
        let (cwnd, ssthresh) = (self.congestion.cwnd(), self.congestion.ssthresh());
        let percent = if cwnd < ssthresh / 2 { 200 } else { 120 };
        let window = u128::from(cwnd.max(self.in_flight()));
        let rate = window * percent * 10_000_000 / srtt_ns;
        Some(u64::try_from(rate).unwrap_or(u64::MAX).max(1))
    }

    /// True if new data must wait for the pacing timer.
    pub(in crate::connection) fn is_paced_out(&self) -> bool {
        self.timers.is_running(Timer::Pace)
    }

    /// Starts the pause after `bytes` have left. The pause counts from the time at which they were
    /// due, not from when the timer was handled; else every late wake-up would lower the rate.
    #[inline]
    pub(in crate::connection) fn pace(&mut self, bytes: u32, now: Instant) {
        let Some(rate) = self.paced_rate() else {
            return;
        };
        let ns = u128::from(bytes) * 1_000_000_000 / u128::from(rate);
        let gap = Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX)).min(GAP_MAX);
        let late = Duration::from_nanos(self.snd.pace_late_ns.into()).min(gap.max(LATE_MAX));
        self.snd.pace_late_ns = nanos(late.saturating_sub(gap));
        if gap > late {
            self.timers.set(Timer::Pace, now + (gap - late));
        }
    }

    /// Handles the pacing timer, which was due `late` ago. If no data waited, nothing is late.
    pub(in crate::connection) fn on_pace_timeout(&mut self, late: Duration) {
        self.snd.pace_late_ns = if self.unsent() > 0 { nanos(late) } else { 0 };
    }
}

fn nanos(late: Duration) -> u32 {
    u32::try_from(late.as_nanos()).unwrap_or(u32::MAX)
}

/// Longest pause, so that a very low rate does not look like a stall.
const GAP_MAX: Duration = Duration::from_secs(1);
/// Limit of lateness that is made up for, unless the pause itself is longer: about one
/// super-segment.
const LATE_MAX: Duration = Duration::from_millis(1);
