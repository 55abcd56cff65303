//! Invariants of a connection between calls.

use super::{Connection, State};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Checks the invariants in debug builds, after every call that changes the connection.
    pub(super) fn debug_assert_invariants(&self) {
        if cfg!(debug_assertions) {
            self.check_send_space();
            self.check_receive_space();
            self.check_timers();
        }
    }

    /// Checks that the window in `segment` ends within the right edge that we have offered.
    pub(super) fn debug_assert_promises(&self, segment: Option<&Segment>) {
        if cfg!(debug_assertions)
            && let Some(segment) = segment
            && segment.flags.contains(Flags::ACK)
            && !segment.flags.contains(Flags::RST)
        {
            let shift = if segment.flags.contains(Flags::SYN) {
                0
            } else {
                self.rcv.shift
            };
            let edge = segment.ack + (u32::from(segment.window) << shift);
            debug_assert!(
                edge.at_or_before(self.rcv.edge),
                "{segment:?} {:?}",
                self.rcv
            );
        }
    }

    fn check_send_space(&self) {
        let snd = &self.snd;
        debug_assert!(snd.una.at_or_before(snd.nxt), "{snd:?}");
        debug_assert!(snd.mss > 0);
        debug_assert!(self.congestion.cwnd() > 0);
        if self.state == State::Closed || !self.state.is_synchronized() {
            return;
        }
        // After the SYN is acknowledged ISS is not compared: after 2³¹ bytes it would seem to lie
        // ahead.
        let data = snd.una;
        self.recovery
            .scoreboard
            .debug_assert_invariants(data, snd.nxt);
        let fin_acknowledged = snd.fin_sent && snd.una == snd.nxt;
        if !fin_acknowledged {
            debug_assert_eq!(
                snd.queue.start(),
                data,
                "the queue begins with what is unacknowledged"
            );
        }
        let sent = snd.nxt.since(data) - u32::from(snd.fin_sent && !fin_acknowledged);
        debug_assert!(
            sent <= snd.queue.len(),
            "sent {sent} of {}",
            snd.queue.len()
        );
        debug_assert!(!snd.fin_sent || snd.closed);
        let fin_state = !matches!(self.state, State::Established | State::CloseWait);
        debug_assert_eq!(snd.closed, fin_state, "{:?}", self.state);
    }

    fn check_receive_space(&self) {
        let rcv = &self.rcv;
        if !self.state.is_synchronized() {
            return;
        }
        debug_assert!(
            rcv.acked.at_or_before(rcv.nxt) && rcv.nxt.at_or_before(rcv.edge),
            "{rcv:?}"
        );
        rcv.queue.reassembly.debug_assert_invariants(rcv.nxt);
        debug_assert!(
            rcv.queue.reassembly.bytes() + rcv.queue.bytes() <= rcv.buffer,
            "more than was offered"
        );
        debug_assert_eq!(
            rcv.finished,
            !matches!(
                self.state,
                State::Established | State::FinWait1 | State::FinWait2
            )
        );
    }

    /// Checks that nothing can wait for ever: unacknowledged data has a timer.
    fn check_timers(&self) {
        use super::timers::Timer;
        let in_flight = self.state.is_synchronized() && self.recovery.scoreboard.flight() > 0;
        debug_assert!(
            !in_flight || self.timers.is_running(Timer::Retransmit) || self.owed.tail_probe,
            "in flight without a timer: {:?}",
            self.timers
        );
        debug_assert!(self.state != State::TimeWait || self.timers.is_running(Timer::TimeWait));
        debug_assert!(self.state != State::Closed || self.timers.next().is_none());
    }
}
