//! Round-trip times as seen at the point of capture: from data to their ACK. Each direction shows
//! the way to the end that acknowledges and back.

use crate::histogram::Histogram;

/// RTT samples of one direction, in µs.
#[derive(Debug, Clone, Default)]
pub struct Rtt {
    /// Time from data to the ACK that covers them; never of data that were sent twice (Karn).
    pub by_ack_us: Histogram,
    /// Time from a timestamp to its echo.
    pub by_timestamp_us: Histogram,
    /// Smallest sample by either method, ns. `None` without samples.
    pub min_ns: Option<u64>,
    /// True if a sample ended with an ACK that came without data. An ACK that came with an answer may have waited for the
    /// other end's application.
    pub(crate) is_of_path: bool,
    /// Time from a pure ACK's timestamp to its echo: a round trip, and the wait of the other end.
    /// Only while data came continuously.
    pub(crate) of_acks_us: Histogram,
    of_ack: bool,
    awaited: Option<(u32, u64)>,
    /// First and last timestamp, for calculating the length of a tick.
    first: Option<(u32, u64)>,
    last: Option<(u32, u64)>,
}

impl Rtt {
    /// Adds the time from data to their ACK.
    #[inline]
    pub(crate) fn on_ack(&mut self, ns: u64, is_alone: bool) {
        self.is_of_path |= is_alone;
        self.by_ack_us.add(ns / 1000);
        self.smaller(ns);
    }

    /// Records a segment with this TSval. One echo is awaited at a time, and only of the first
    /// segment with a value: the echo of a later segment may be that of the first.
    #[inline]
    pub(crate) fn on_sent(&mut self, value: u32, at_ns: u64, is_data: bool) {
        if self.last.is_some_and(|(last, _)| last == value) {
            return;
        }
        self.last = Some((value, at_ns));
        self.first.get_or_insert((value, at_ns));
        if self.awaited.is_none() {
            self.awaited = Some((value, at_ns));
            self.of_ack = !is_data;
        }
    }

    /// Handles a segment with this TSecr. `silence_ns`: time since the last packet.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32, at_ns: u64, silence_ns: u64) {
        if let Some((value, sent_ns)) = self.awaited
            && echo.wrapping_sub(value).cast_signed() >= 0
        {
            self.awaited = None;
            if self.of_ack {
                self.on_echo_of_ack(echo, value, at_ns.saturating_sub(sent_ns), silence_ns);
            } else if echo == value {
                // The echo of a later timestamp gives no sample of this one.
                let ns = at_ns.saturating_sub(sent_ns);
                self.by_timestamp_us.add(ns / 1000);
                self.smaller(ns);
            }
        }
    }

    /// Adds a sample of an ACK's echo. An ACK that released no data is not echoed; the echo is then
    /// of an ACK sent `later` ticks after it.
    fn on_echo_of_ack(&mut self, echo: u32, value: u32, mut ns: u64, silence_ns: u64) {
        let later = u64::from(echo.wrapping_sub(value));
        if later > 0 {
            let Some(((first, since_ns), (last, until_ns))) = self.first.zip(self.last) else {
                return;
            };
            let ticks = u64::from(last.wrapping_sub(first));
            if ticks < TICKS_ENOUGH {
                return;
            }
            let tick_ns = until_ns.saturating_sub(since_ns) / ticks;
            ns = ns.saturating_sub(tick_ns.saturating_mul(later));
        }
        // After a silence it was not the path that delayed the answer.
        if ns > 0 && silence_ns < ns / 2 {
            self.of_acks_us.add(ns / 1000);
        }
    }

    /// Returns the smallest sample, ns. An end that sent no data has none: then the smallest echo of its ACKs. `None` without either.
    pub(crate) fn least_ns(&self) -> Option<u64> {
        let of_acks = || Some(self.of_acks_us.quantile(0.0)?.saturating_mul(1000));
        self.min_ns.or_else(of_acks)
    }

    fn smaller(&mut self, ns: u64) {
        self.min_ns = Some(self.min_ns.map_or(ns, |min| min.min(ns)));
    }
}

/// Ticks needed to know the length of a tick to a hundredth.
const TICKS_ENOUGH: u64 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_of_the_tick_before_is_no_round_trip() {
        let mut rtt = Rtt::default();
        rtt.on_sent(7, 0, true);
        rtt.on_echo(7, 500_000, 0);
        // Same tick: the next echo may be of the segment before.
        rtt.on_sent(7, 600_000, true);
        rtt.on_echo(7, 604_000, 0);
        assert_eq!((rtt.min_ns, rtt.by_timestamp_us.n()), (Some(500_000), 1));
    }

    #[test]
    fn an_ack_that_is_not_echoed_is_measured_by_the_next_one_that_is() {
        const MS: u64 = 1_000_000;
        let mut rtt = Rtt::default();
        // One ACK each ms. The first 120 are not echoed; the echo of the next comes after 200 ms.
        for tick in 0..=320 {
            rtt.on_sent(tick, u64::from(tick) * MS, false);
        }
        rtt.on_echo(120, 320 * MS, MS);
        assert_eq!(rtt.of_acks_us.max(), Some(200_000));
        // An answer that its sender held back shows nothing of the path.
        rtt.on_sent(321, 321 * MS, false);
        rtt.on_echo(321, 800 * MS, 400 * MS);
        assert_eq!(rtt.of_acks_us.n(), 1);
    }
}
