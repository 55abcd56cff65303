//! ICMP errors about segments that did not arrive (RFC 9293 §3.9.2.2, RFC 5461).
//!
//! They are easily forged and often temporary, so they end only an attempt to connect. On an
//! established connection no error is hard, not even those that RFC 1122 calls hard, as in Linux
//! and as RFC 5927 §5.2 recommends. The last error is kept and becomes the reason if the peer is
//! given up.

use super::{Connection, Ended, State};
use crate::SeqNum;
use crate::wire::Unreachable;

impl Connection {
    /// Handles an ICMP error that the segment beginning at `seq` did not arrive. Ignored unless
    /// `seq` is in flight (RFC 5927 §4).
    pub fn on_unreachable(&mut self, seq: SeqNum, why: Unreachable) {
        let in_flight = seq.at_or_after(self.snd.una) && seq.before(self.snd.nxt);
        if !in_flight || self.state == State::Closed {
            return;
        }
        let opening = matches!(self.state, State::SynSent | State::SynReceived);
        if opening && !self.is_early() {
            self.end(Some(Ended::Unreachable(why)));
        } else {
            self.soft_error = Some(why);
        }
        self.debug_assert_invariants();
    }

    /// Reason for giving the peer up: the last ICMP error, else a timeout.
    pub(super) fn given_up(&self) -> Ended {
        self.soft_error.map_or(Ended::TimedOut, Ended::Unreachable)
    }
}
