//! Loss: from acknowledged data to lost data and the window.

use std::time::Instant;

use super::acknowledge::Progress;
use super::congestion::Acked;
use super::recovery::Phase;
use super::recovery::frto::{Frto, NEW_SEGMENTS, Verdict};
use super::recovery::prr::Prr;
use super::recovery::rack::Rtts;
use super::recovery::tail_probe::probe_timeout;
use super::recovery::undo::Undo;
use super::timers::Timer;
use super::{Connection, State};
use crate::SeqNum;
use crate::wire::Segment;

impl Connection {
    /// Runs loss detection, then applies the ACK to the current phase.
    pub(super) fn repair(&mut self, progress: &Progress, ack: SeqNum, now: Instant) {
        let mss = self.snd.mss;
        // Duplicate ACKs already allowed this many bytes to leave.
        let reported = match self.sack {
            true => 0,
            false => self.recovery.duplicate_acks.saturating_mul(mss),
        };
        let flight_before = self.recovery.flight(mss).saturating_add(progress.delivered);
        self.leave_phase(ack);
        self.detect_loss(progress, now);
        let flight = self.recovery.flight(mss);
        let loses = self.recovery.scoreboard.lost_bytes() > 0 && !self.is_only_probe_lost();
        match &mut self.recovery.phase {
            Phase::Open | Phase::Reduced { .. } if loses => {
                self.enter_recovery(flight_before, progress);
            }
            Phase::Loss {
                frto: Frto::Probing,
                ..
            } => self.congestion.set_cwnd(NEW_SEGMENTS * mss),
            Phase::Open | Phase::Loss { .. } if progress.acked > 0 => {
                let growth = self.config.window_growth;
                self.congestion.on_ack(
                    growth,
                    Acked {
                        // Data reported before it was acknowledged is not counted again, as in
                        // Linux. Nor is data delivered during a recovery, which the recovery's last
                        // ACK covers: ssthresh accounts for it.
                        bytes: (progress.delivered.saturating_sub(reported))
                            .max(progress.delivered.min(mss)),
                        flight: self.recovery.flight_at_send,
                        srtt: self.rtt.srtt(),
                        rtt: progress.rtt,
                        una: self.snd.una,
                        nxt: self.snd.nxt,
                        now,
                    },
                );
            }
            Phase::Recovery { prr, .. } if progress.delivered > 0 || progress.repeats => {
                // Without SACK a duplicate ACK is the only sign of a delivery.
                let delivered = if self.sack || progress.acked > 0 {
                    progress.delivered
                } else {
                    mss
                };
                let ssthresh = self.congestion.ssthresh();
                let cwnd = prr.on_ack(delivered, progress.acked > 0, flight, ssthresh, mss);
                self.congestion.set_cwnd(cwnd);
            }
            _ => {}
        }
    }

    /// Ends the phase if everything sent before its start is acknowledged.
    fn leave_phase(&mut self, ack: SeqNum) {
        match self.recovery.phase {
            Phase::Recovery { until, .. } if ack.at_or_after(until) => {
                self.congestion
                    .set_cwnd(self.congestion.ssthresh().min(CWND_AFTER_MAX));
            }
            Phase::Loss { until, .. } | Phase::Reduced { until } if ack.at_or_after(until) => {}
            _ => return,
        }
        if !matches!(self.recovery.phase, Phase::Reduced { .. }) {
            self.recovery.rack.on_recovered();
        }
        self.recovery.phase = Phase::Open;
        self.recovery.duplicate_acks = 0;
    }

    /// Detects loss: RACK if SACK is in use, else three duplicate ACKs and partial ACKs (RFC 5681,
    /// RFC 6582).
    fn detect_loss(&mut self, progress: &Progress, now: Instant) {
        if self.sack {
            if progress.delivered > 0 && !self.recovery.scoreboard.is_empty() {
                self.detect_loss_by_time(now);
            }
            return;
        }
        let mss = self.snd.mss;
        let recovery = &mut self.recovery;
        if progress.acked > 0 {
            let others = progress.acked.div_ceil(mss).saturating_sub(1);
            recovery.duplicate_acks = match recovery.phase {
                Phase::Recovery { .. } => recovery.duplicate_acks.saturating_sub(others),
                _ => 0,
            };
            if matches!(recovery.phase, Phase::Recovery { .. }) {
                recovery.scoreboard.mark_head_lost(mss);
            }
        } else if progress.repeats {
            // Duplicates beyond the number of segments in flight are ignored: an attacker sent
            // them.
            let segments = recovery.scoreboard.flight().div_ceil(mss);
            recovery.duplicate_acks = (recovery.duplicate_acks + 1).min(segments);
            if recovery.duplicate_acks == DUPLICATES
                && matches!(recovery.phase, Phase::Open | Phase::Reduced { .. })
            {
                recovery.scoreboard.mark_head_lost(mss);
            }
        }
    }

    /// Runs RACK's time-based detection (RFC 8985 §6.2 step 5).
    pub(super) fn detect_loss_by_time(&mut self, now: Instant) {
        let repairing = self.recovery.is_repairing();
        let rtt = Rtts {
            min: self.rtt.rtt_min(),
            smoothed: self.rtt.srtt(),
        };
        let recovery = &mut self.recovery;
        match recovery.rack.detect_loss(
            &mut recovery.scoreboard,
            repairing,
            &rtt,
            self.snd.mss,
            now,
        ) {
            Some(wait) => self.timers.set(Timer::Reorder, now + wait),
            None => self.timers.stop(Timer::Reorder),
        }
    }

    pub(super) fn enter_recovery(&mut self, flight_before: u32, progress: &Progress) {
        // One reduction per round trip: a congestion mark may have reduced the window already.
        self.recovery.undo = None;
        if matches!(self.recovery.phase, Phase::Open) {
            self.remember_window();
            // FlightSize of RFC 5681 includes data reported as arrived.
            let flight_size = self
                .snd
                .nxt
                .since(self.snd.una)
                .saturating_add(progress.acked);
            self.congestion.on_congestion(flight_size);
        }
        self.counters.recoveries += 1;
        self.timers.stop(Timer::TailProbe);
        self.ecn.reduced = self.ecn.on;
        let mut prr = Prr::new(flight_before);
        let (flight, mss) = (self.recovery.flight(self.snd.mss), self.snd.mss);
        let cwnd = prr.on_ack(
            progress.delivered,
            progress.acked > 0,
            flight,
            self.congestion.ssthresh(),
            mss,
        );
        self.congestion.set_cwnd(cwnd);
        self.recovery.phase = Phase::Recovery {
            until: self.snd.nxt,
            prr,
        };
    }

    /// Saves the window before a reduction that may have to be undone.
    pub(super) fn remember_window(&mut self) {
        self.recovery.undo = Some(Box::new(Undo::new(self.congestion.clone(), self.snd.nxt)));
    }

    /// Undoes the reduction if the ACK shows that nothing was lost.
    pub(super) fn check_spurious(&mut self, progress: &Progress, segment: &Segment) {
        let Some(undo) = &mut self.recovery.undo else {
            return;
        };
        let echo = segment
            .options
            .timestamps
            .filter(|stamps| self.timestamps && stamps.echo != 0);
        let by_echo = progress.acked > 0
            && echo.is_some_and(|stamps| undo.is_spurious_by_echo(segment.ack, stamps.echo));
        let by_report = progress
            .duplicate
            .is_some_and(|(start, end)| undo.is_spurious_by_report(start, end));
        // After the repair, an echo older than the first retransmission proves nothing: it may belong to
        // other data that was sent before that retransmission.
        let by_echo = by_echo && self.recovery.is_repairing();
        if by_echo || by_report {
            self.take_back();
        }
    }

    /// Decides from two ACKs whether a timeout was spurious (F-RTO, RFC 5682).
    pub(super) fn check_timeout(&mut self, progress: &Progress) {
        let new_data = self.unsent().min(self.window_left()) >= self.snd.mss;
        let Phase::Loss { frto, .. } = &mut self.recovery.phase else {
            return;
        };
        match frto.on_ack(progress.acked > 0, progress.originals, new_data) {
            Verdict::Next(next) => *frto = next,
            Verdict::Spurious => self.take_back(),
        }
    }

    /// Undoes the last reduction (RFC 4015).
    fn take_back(&mut self) {
        if let Some(undo) = self.recovery.undo.take() {
            self.congestion.restore(undo.before);
        }
        self.counters.spurious_repairs += 1;
        self.recovery.rack.on_spurious();
        if self.recovery.is_repairing() {
            self.recovery.scoreboard.mark_none_lost();
            self.recovery.phase = Phase::Open;
            self.recovery.duplicate_acks = 0;
        }
    }

    /// Handles ECE: the peer saw a congestion mark (RFC 3168 §6.1.2).
    pub(super) fn on_congestion_echo(&mut self) {
        if matches!(self.recovery.phase, Phase::Open) {
            self.counters.ecn_reductions += 1;
            self.reduce_window();
        }
    }

    /// Reduces the window to ssthresh at once, at most once per round trip.
    pub(super) fn reduce_window(&mut self) {
        if !matches!(self.recovery.phase, Phase::Open) {
            return;
        }
        self.congestion.on_congestion(self.recovery.flight_at_send);
        self.congestion
            .set_cwnd(self.congestion.ssthresh().min(CWND_AFTER_MAX));
        self.ecn.reduced = self.ecn.on;
        self.recovery.phase = Phase::Reduced {
            until: self.snd.nxt,
        };
    }

    /// Restarts the timers after new data was acknowledged (RFC 6298 (5.2), (5.3)).
    pub(super) fn restart_retransmission_timers(&mut self, now: Instant) {
        if self.recovery.scoreboard.is_empty() {
            for timer in [Timer::Retransmit, Timer::TailProbe, Timer::Reorder] {
                self.timers.stop(timer);
            }
        } else {
            self.timers.set_in(Timer::Retransmit, now, self.rtt.rto());
            self.arm_tail_probe(now);
        }
        match self
            .config
            .user_timeout
            .filter(|_| !self.snd.queue_is_quiet())
        {
            Some(timeout) => self.timers.set(Timer::User, now + timeout),
            None => self.timers.stop(Timer::User),
        }
    }

    /// Arms the tail loss probe (RFC 8985 §7.2): with SACK, outside of recovery, one probe at a
    /// time.
    pub(super) fn arm_tail_probe(&mut self, now: Instant) {
        let recovery = &self.recovery;
        let wanted = self.config.tail_loss_probe
            && self.sack
            && matches!(recovery.phase, Phase::Open | Phase::Reduced { .. })
            && recovery.tail_probe.is_none()
            && recovery.scoreboard.flight() > 0
            && recovery.scoreboard.sacked_bytes() == 0
            && self.state != State::SynReceived;
        if !wanted {
            self.timers.stop(Timer::TailProbe);
            return;
        }
        let one_segment = recovery.scoreboard.flight() <= self.snd.mss;
        let timeout = probe_timeout(self.rtt.srtt(), one_segment, self.config.rto_min);
        self.timers.set_in(Timer::TailProbe, now, timeout);
        self.timers.bound(Timer::TailProbe, Timer::Retransmit);
    }
}

/// DupThresh of RFC 5681 §3.2.
const DUPLICATES: u32 = 3;
/// Largest window after a recovery. `Fixed` has no ssthresh; its window does not change anyway.
const CWND_AFTER_MAX: u32 = 1 << 30;
