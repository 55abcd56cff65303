//! Timeouts, and changes of the path MTU.

use std::time::Instant;

use super::ack::AckDecision;
use super::recovery::Phase;
use super::recovery::frto::Frto;
use super::timers::Timer;
use super::{Connection, State};
use crate::SeqNum;

impl Connection {
    /// Runs the timers that are due at `now`.
    pub fn on_timeout(&mut self, now: Instant) {
        while let Some((timer, late)) = self.timers.expire(now) {
            match timer {
                Timer::Retransmit => self.on_retransmission_timeout(now),
                Timer::TailProbe => {
                    self.owed.tail_probe = true;
                    // RFC 8985 §7.3: the retransmission timeout counts from the probe.
                    self.timers.set(Timer::Retransmit, now + self.rtt.rto());
                }
                Timer::Reorder => self.on_reordering_timeout(now),
                Timer::Persist => self.on_persist_timeout(now),
                Timer::Ack => {
                    let unacked = self.rcv.nxt.since(self.rcv.acked);
                    let full = self.rcv.full_segment;
                    let delayed = self.ack.on_timer(&self.config.ack, unacked, full, now);
                    self.counters.delayed_acks_sent += u64::from(delayed);
                    self.follow(AckDecision::Now);
                }
                // The announced data did not come in time.
                Timer::Cork => (self.snd.more, self.snd.flush) = (false, true),
                Timer::Pace => self.on_pace_timeout(late),
                Timer::KeepAlive => self.on_keepalive_timeout(now),
                Timer::User => self.end(Some(self.given_up())),
                Timer::TimeWait => self.end(None),
            }
            if self.state == State::Closed {
                break;
            }
        }
        self.debug_assert_invariants();
    }

    /// Handles a retransmission timeout (RFC 6298 (5.4) to (5.7), RFC 5681 §3.1).
    fn on_retransmission_timeout(&mut self, now: Instant) {
        self.counters.timeouts += 1;
        self.retries = self.retries.saturating_add(1);
        self.rtt.back_off();
        if matches!(self.state, State::SynSent | State::SynReceived) {
            if self.retries > self.config.syn_retries_max {
                self.end(Some(self.given_up()));
            } else {
                self.owed.syn = true;
                // RFC 3168 §6.1.1.1: the SYN may have been dropped because of its ECN bits.
                self.ecn.on = false;
            }
            return;
        }
        if self.retries > self.config.retries_max {
            self.end(Some(self.given_up()));
            return;
        }
        self.forget_mtu_probe();
        self.suspect_black_hole(now);
        let first = !matches!(self.recovery.phase, Phase::Loss { .. });
        let flight = self.snd.nxt.since(self.snd.una);
        let reduces = first && !self.is_repaired_once();
        if reduces {
            self.remember_window();
        }
        self.congestion.on_timeout(flight, reduces);
        self.recovery.scoreboard.mark_all_lost();
        self.recovery.duplicate_acks = 0;
        self.recovery.tail_probe = None;
        self.owed.tail_probe = false;
        self.recovery.phase = Phase::Loss {
            until: self.snd.nxt,
            frto: if reduces && !self.timestamps {
                Frto::Armed
            } else {
                Frto::Off
            },
        };
        self.timers.stop(Timer::TailProbe);
        self.timers.stop(Timer::Reorder);
        self.timers.start(Timer::Retransmit, now + self.rtt.rto());
    }

    /// True if recovery has already lowered ssthresh for this flight.
    fn is_repaired_once(&self) -> bool {
        matches!(self.recovery.phase, Phase::Recovery { .. })
    }

    /// Handles the end of the reordering window (RFC 8985 §6.2): segments that might have been late
    /// are lost.
    fn on_reordering_timeout(&mut self, now: Instant) {
        let flight = self.recovery.flight(self.snd.mss);
        self.detect_loss_by_time(now);
        let lost = self.recovery.scoreboard.lost_bytes() > 0;
        if lost && !self.recovery.is_repairing() {
            if self.is_only_probe_lost() {
                return;
            }
            self.enter_recovery(flight, &super::acknowledge::Progress::default());
        } else if lost && let Phase::Recovery { prr, .. } = &mut self.recovery.phase {
            let flight = self.recovery.scoreboard.flight();
            let cwnd = prr.on_ack(0, false, flight, self.congestion.ssthresh(), self.snd.mss);
            self.congestion.set_cwnd(cwnd);
        }
    }

    /// Handles the persist timer: the peer's window is closed or too small for a segment. Sends
    /// what fits, or a probe.
    fn on_persist_timeout(&mut self, now: Instant) {
        self.unanswered = self.unanswered.saturating_add(1);
        if self.unanswered > self.config.retries_max {
            self.end(Some(self.given_up()));
            return;
        }
        self.rtt.back_off();
        if self.window_left() > 0 {
            self.snd.flush = true;
            return;
        }
        // The probe has an old sequence number, not a byte beyond the window, as in Linux. RFC 9293
        // §3.10.7.4 requires an answer to it too, and no byte has to be taken back.
        self.owed.probe = true;
        self.counters.window_probes_sent += 1;
        self.timers.set(Timer::Persist, now + self.rtt.rto());
    }

    /// Handles the keepalive timer (RFC 9293 §3.8.4). Activity does not restart the timer; when it
    /// fires it checks when the peer was last heard. That costs a store per probe, not one per
    /// segment.
    fn on_keepalive_timeout(&mut self, now: Instant) {
        let Some(keepalive) = self.config.keepalive else {
            return;
        };
        let busy = !self.recovery.scoreboard.is_empty();
        let due = self.heard_at() + keepalive.idle;
        if self.unanswered == 0 && (busy || due > now) {
            let next = if due > now {
                due
            } else {
                now + keepalive.interval
            };
            self.timers.set(Timer::KeepAlive, next);
            return;
        }
        if self.unanswered >= keepalive.probes {
            self.owed.reset = Some((self.snd.nxt, true));
            let reset = self.owed.reset;
            self.end(Some(self.given_up()));
            self.owed.reset = reset;
            return;
        }
        self.unanswered += 1;
        self.owed.probe = true;
        self.counters.keepalives_sent += 1;
        self.timers.set(Timer::KeepAlive, now + keepalive.interval);
    }

    /// Handles an ICMP error that a packet starting at `seq` was too big and that the path carries
    /// `payload_bytes` of payload and options (RFC 1191, RFC 8201). Ignored unless `seq` is in
    /// flight (RFC 5927 §7); limits below 536 bytes count as 536.
    pub fn on_mtu(&mut self, seq: SeqNum, payload_bytes: u32) {
        let in_flight = seq.at_or_after(self.snd.una) && seq.before(self.snd.nxt);
        let mss = payload_bytes.max(PATH_MSS_MIN);
        if self.state == State::SynSent && in_flight && mss < self.snd.mss_path {
            self.on_mtu_of_syn(mss);
            return;
        }
        if !self.state.is_synchronized()
            || !in_flight
            || mss >= self.snd.mss_path.min(self.snd.mss_peer)
        {
            return;
        }
        self.snd.mss_path = mss;
        if self.snd.mss + self.option_bytes() <= mss {
            // Only a probe in flight can have been larger than the new limit.
            self.lose_mtu_probe();
            self.set_mss();
            self.debug_assert_invariants();
            return;
        }
        self.set_mss();
        self.forget_mtu_probe();
        // Larger segments in flight will not arrive; that is no sign of congestion.
        self.recovery.scoreboard.mark_all_lost();
        self.recovery.tail_probe = None;
        self.recovery.phase = Phase::Loss {
            until: self.snd.nxt,
            frto: Frto::Off,
        };
        self.timers.stop(Timer::TailProbe);
        self.debug_assert_invariants();
    }

    /// Handles a path MTU error for our SYN. Only a SYN with data can have been too big: it is sent
    /// again at once without the data. As in Linux, it announces no larger MSS than the path
    /// carries.
    #[cold]
    fn on_mtu_of_syn(&mut self, mss: u32) {
        self.snd.mss_path = mss;
        self.set_mss();
        if self.carries_data_with_syn() {
            self.send_plain_syn();
            self.owed.syn = true;
            // The first SYN did not arrive, so the answer is to the second.
            self.recovery.last_sent = None;
        }
        self.debug_assert_invariants();
    }
}

/// Size that every path carries (RFC 9293 §3.7.1). A forged smaller limit would only cost us
/// segments.
const PATH_MSS_MIN: u32 = 536;
