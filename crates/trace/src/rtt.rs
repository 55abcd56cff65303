//! Round-trip times as the point of capture sees them: from data to its ACK, so each direction
//! tells the way to the end that acknowledges and back.

use crate::histogram::Histogram;

/// RTT samples of one direction, µs in the distribution.
#[derive(Debug, Clone, Default)]
pub struct Rtt {
    /// From data to the ACK that covers it; never of what was sent twice (Karn).
    pub by_ack_us: Histogram,
    /// From a timestamp to its echo.
    pub by_timestamp_us: Histogram,
    /// The smallest by either, ns.
    pub min_ns: Option<u64>,
    /// From a pure ACK's timestamp to its echo: a round trip and what the other end waited for.
    pub(crate) of_acks_us: Histogram,
    of_ack: bool,
    awaited: Option<(u32, u64)>,
    last: Option<u32>,
}

impl Rtt {
    /// Data was acknowledged.
    #[inline]
    pub(crate) fn on_ack(&mut self, ns: u64) {
        self.by_ack_us.add(ns / 1000);
        self.smaller(ns);
    }

    /// A segment with this TSval went out. One echo is awaited at a time, and only of the first segment
    /// with a value: the echo of a later one may be that of the first.
    #[inline]
    pub(crate) fn on_sent(&mut self, value: u32, at_ns: u64, is_data: bool) {
        let is_first = self.last != Some(value);
        self.last = Some(value);
        if is_first && self.awaited.is_none() {
            self.awaited = Some((value, at_ns));
            self.of_ack = !is_data;
        }
    }

    /// A segment with this TSecr came back.
    #[inline]
    pub(crate) fn on_echo(&mut self, echo: u32, at_ns: u64) {
        if let Some((value, sent_ns)) = self.awaited
            && echo.wrapping_sub(value).cast_signed() >= 0
        {
            self.awaited = None;
            // A later stamp tells nothing about this one.
            if echo == value {
                let ns = at_ns.saturating_sub(sent_ns);
                if self.of_ack {
                    self.of_acks_us.add(ns / 1000);
                } else {
                    self.by_timestamp_us.add(ns / 1000);
                    self.smaller(ns);
                }
            }
        }
    }

    fn smaller(&mut self, ns: u64) {
        self.min_ns = Some(self.min_ns.map_or(ns, |min| min.min(ns)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_echo_of_the_tick_before_is_no_round_trip() {
        let mut rtt = Rtt::default();
        rtt.on_sent(7, 0, true);
        rtt.on_echo(7, 500_000);
        // Of the same tick: the next echo is that of one before.
        rtt.on_sent(7, 600_000, true);
        rtt.on_echo(7, 604_000);
        assert_eq!((rtt.min_ns, rtt.by_timestamp_us.n()), (Some(500_000), 1));
    }
}
