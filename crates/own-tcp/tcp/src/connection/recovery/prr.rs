//! Proportional rate reduction (RFC 9937): how much to send while the window shrinks.

/// Spreads the reduction from the flight at the start to ssthresh over the ACKs of one round trip.
/// All in bytes.
#[derive(Clone, Debug)]
pub(in crate::connection) struct Prr {
    /// RecoverFS.
    flight_at_start: u32,
    /// prr_delivered.
    delivered: u32,
    /// prr_out.
    sent: u32,
}

impl Prr {
    pub(in crate::connection) fn new(flight_at_start: u32) -> Self {
        Self {
            flight_at_start: flight_at_start.max(1),
            delivered: 0,
            sent: 0,
        }
    }

    /// Returns the congestion window after an ACK that delivered `delivered` bytes, with `flight`
    /// bytes in the network. `progress`: the ACK moved SND.UNA.
    pub(in crate::connection) fn on_ack(
        &mut self,
        delivered: u32,
        progress: bool,
        flight: u32,
        ssthresh: u32,
        mss: u32,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let may_send = if flight > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let share = share
                .div_ceil(u64::from(self.flight_at_start))
                .min(u64::from(u32::MAX)) as u32;
            share.saturating_sub(self.sent)
        } else {
            // Slow start reduction bound if SND.UNA moves, else the conservative bound.
            let extra = if progress { mss } else { 0 };
            let limit = self.delivered.saturating_sub(self.sent).max(delivered) + extra;
            (ssthresh - flight).min(limit)
        };
        // The first retransmission always leaves.
        let may_send = if self.sent == 0 {
            may_send.max(mss)
        } else {
            may_send
        };
        flight.saturating_add(may_send)
    }

    pub(in crate::connection) fn on_sent(&mut self, bytes: u32) {
        self.sent = self.sent.saturating_add(bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loss_of_twenty_halves_the_window_over_one_round_trip() {
        let mut prr = Prr::new(20_000);
        let mut flight = 19_000;
        let mut sent = 0;
        for _ in 0..19 {
            flight -= 1000;
            let cwnd = prr.on_ack(1000, false, flight, 10_000, 1000);
            let room = (cwnd - flight) / 1000 * 1000;
            prr.on_sent(room);
            sent += room;
            flight += room;
        }
        assert!((9000..=10_000).contains(&flight), "{flight}");
        assert!(
            (9000..=10_000).contains(&sent),
            "one sent for two delivered: {sent}"
        );
    }

    #[test]
    fn after_heavy_loss_it_grows_back_to_ssthresh_and_not_beyond() {
        let mut prr = Prr::new(20_000);
        let mut flight = 2000;
        for _ in 0..10 {
            flight -= 1000;
            let cwnd = prr.on_ack(1000, true, flight, 10_000, 1000);
            prr.on_sent(cwnd - flight);
            flight = cwnd;
            assert!(flight <= 10_000);
        }
        assert_eq!(flight, 10_000);
    }
}
