//! Messages that a segment did not get there (RFC 9293 §3.9.2.2, RFC 5461).
//!
//! They are easily forged and often pass by themselves: they end only the attempt to connect. Of a
//! connection that stands none is hard, as in Linux and as RFC 5927 §5.2 asks, not even those that
//! RFC 1122 calls so: they are kept as the reason in case the peer is given up.

use super::{Connection, Ended, State};
use crate::SeqNum;
use crate::wire::Unreachable;

impl Connection {
    /// A router or host said that the segment beginning at `seq` did not get there. Believed only about
    /// what is in flight (RFC 5927 §4).
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

    /// Why the peer is given up.
    pub(super) fn given_up(&self) -> Ended {
        self.soft_error.map_or(Ended::TimedOut, Ended::Unreachable)
    }
}
