//! Fifth check of RFC 9293 §3.10.7.4: the ACK field, with SACK (RFC 6675, RFC 2883).

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::recovery::tail_probe::Outcome;
use super::timers::Timer;
use super::{Connection, State};
use crate::SeqNum;
use crate::wire::{Flags, Segment};

/// Changes caused by one ACK.
#[derive(Debug, Default)]
pub(super) struct Progress {
    /// Bytes by which SND.UNA advanced.
    pub acked: u32,
    /// Bytes newly acknowledged, cumulatively or selectively: they left the network.
    pub delivered: u32,
    /// Segments newly acknowledged, cumulatively or selectively.
    pub delivered_segments: u32,
    /// True if the ACK is a duplicate by RFC 5681 §2: it only repeats an acknowledgement.
    pub repeats: bool,
    /// Round-trip time of the newly acknowledged data; `None` if it cannot be measured.
    pub rtt: Option<Duration>,
    /// True if, after a timeout, data sent before it and never retransmitted arrived.
    pub originals: bool,
    /// Range that the peer reports as received twice (DSACK).
    pub duplicate: Option<(SeqNum, SeqNum)>,
}

impl Progress {
    #[inline]
    fn count(&mut self, bytes: u32, mss: u32) {
        self.delivered += bytes;
        self.delivered_segments += if bytes > mss { bytes.div_ceil(mss) } else { 1 };
    }
}

impl Connection {
    /// Checks that the ACK can be valid. An ACK of our SYN establishes the connection.
    pub(super) fn check_ack(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        if !segment.flags.contains(Flags::ACK) {
            self.counters.dropped_bad_ack += 1;
            return ControlFlow::Break(());
        }
        if self.state == State::SynReceived {
            self.process_ack_of_syn(segment, now)?;
        }
        self.check_ack_range(segment, now)
    }

    pub(super) fn process_ack(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        let window_before = self.snd.wnd;
        self.update_window(segment);
        let progress = self.acknowledge(segment, window_before, now);
        self.on_ack_progress(&progress, segment, now);
        // MSG_MORE holds data only until the next ACK, as in Linux (`tcp_data_snd_check`).
        self.snd.more_over = true;
        self.process_ack_of_fin(now)
    }

    fn process_ack_of_syn(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        let acceptable = segment.ack.after(self.snd.una) && segment.ack.at_or_before(self.snd.nxt);
        if !acceptable {
            self.counters.dropped_bad_ack += 1;
            self.owed.reset = Some((segment.ack, false));
            return ControlFlow::Break(());
        }
        self.establish(segment, now);
        ControlFlow::Continue(())
    }

    /// Checks the ACK's range (RFC 5961 §5.2): an ACK of data never sent, or older than a window,
    /// gets a challenge ACK.
    fn check_ack_range(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        let oldest = self.snd.una - self.snd.wnd_max;
        if segment.ack.after(self.snd.nxt) || segment.ack.before(oldest) {
            self.counters.dropped_bad_ack += 1;
            self.challenge(now);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Updates SND.WND from the newest segment (SND.WL1, SND.WL2). As in Linux, a segment that
    /// acknowledges new data is newer too: a retransmission of early data carries the current
    /// window.
    fn update_window(&mut self, segment: &Segment) {
        let newer = segment.ack.after(self.snd.una)
            || self.snd.wl1.before(segment.seq)
            || (self.snd.wl1 == segment.seq && self.snd.wl2.at_or_before(segment.ack));
        if segment.ack.before(self.snd.una) || !newer {
            return;
        }
        self.snd.wnd = u32::from(segment.window) << self.snd.shift;
        self.snd.wnd_max = self.snd.wnd_max.max(self.snd.wnd);
        self.snd.wl1 = segment.seq;
        self.snd.wl2 = segment.ack;
        if self.snd.wnd > 0 {
            self.timers.stop(Timer::Persist);
        } else {
            // The peer is alive; it may keep its window closed for ever (MUST-36).
            self.retries = 0;
        }
    }

    /// Updates SND.UNA and the scoreboard.
    fn acknowledge(&mut self, segment: &Segment, window_before: u32, now: Instant) -> Progress {
        let mut progress = Progress {
            acked: if segment.ack.after(self.snd.una) {
                segment.ack.since(self.snd.una)
            } else {
                0
            },
            repeats: segment.ack == self.snd.una
                && segment.is_empty()
                && self.snd.wnd == window_before
                && !self.recovery.scoreboard.is_empty(),
            ..Progress::default()
        };
        let (mss, rtt_min) = (self.snd.mss, self.rtt.rtt_min());
        let timeout = self.recovery.timeout();
        let mut rtt: Option<Duration> = None;
        let (scoreboard, rack) = (&mut self.recovery.scoreboard, &mut self.recovery.rack);
        if progress.acked > 0 {
            scoreboard.on_acknowledged(segment.ack, |sent| {
                progress.count(sent.end.since(sent.start), mss);
                progress.originals |= sent.is_original(timeout);
                rack.on_delivered(sent, rtt_min, now);
                if !sent.retransmitted && rtt.is_none() {
                    rtt = Some(now.saturating_duration_since(sent.sent_at));
                }
            });
            self.snd.una = segment.ack;
            self.snd.queue.acknowledge(segment.ack);
        }
        if self.sack {
            self.take_sack_blocks(segment, rtt_min, &mut progress, now);
        }
        self.counters.segments_delivered += u64::from(progress.delivered_segments);
        if progress.acked > 0 {
            progress.rtt = self.take_rtt(segment, rtt, now);
        }
        progress
    }

    fn take_sack_blocks(
        &mut self,
        segment: &Segment,
        rtt_min: Option<Duration>,
        progress: &mut Progress,
        now: Instant,
    ) {
        let (mss, timeout) = (self.snd.mss, self.recovery.timeout());
        let blocks = segment.options.sack.as_slice();
        for (index, &(start, end)) in blocks.iter().enumerate() {
            // RFC 2883 §4: the first block is a duplicate if it is below the ACK or inside the
            // second.
            let inside = |outer: &(_, _)| start.at_or_after(outer.0) && end.at_or_before(outer.1);
            if index == 0 && (end.at_or_before(segment.ack) || blocks.get(1).is_some_and(inside)) {
                progress.duplicate = Some((start, end));
                self.recovery.rack.on_dsack(self.snd.una, self.snd.nxt);
                continue;
            }
            let possible = start.before(end)
                && start.at_or_after(self.snd.una)
                && end.at_or_before(self.snd.nxt);
            if !possible {
                continue;
            }
            let (scoreboard, rack) = (&mut self.recovery.scoreboard, &mut self.recovery.rack);
            scoreboard.on_sacked(start, end, self.snd.mss, |sent| {
                progress.count(sent.end.since(sent.start), mss);
                progress.originals |= sent.is_original(timeout);
                rack.on_delivered(sent, rtt_min, now);
            });
        }
    }

    /// Samples the round-trip time: from the oldest segment if it was sent once, else from the
    /// timestamp echo, which identifies the copy that arrived (RFC 7323 §4.1).
    fn take_rtt(
        &mut self,
        segment: &Segment,
        rtt: Option<Duration>,
        now: Instant,
    ) -> Option<Duration> {
        let echo = segment
            .options
            .timestamps
            .filter(|stamps| self.timestamps && stamps.echo != 0);
        let by_echo = || self.clock().since(now, echo?.echo);
        let rtt = rtt.or_else(by_echo);
        if let Some(rtt) = rtt {
            self.rtt.on_sample(rtt);
        }
        self.rtt.on_progress();
        self.retries = 0;
        rtt
    }

    /// Applies the progress to probes, recovery, the window and the timers.
    fn on_ack_progress(&mut self, progress: &Progress, segment: &Segment, now: Instant) {
        if let Some(probe) = self.recovery.tail_probe {
            match probe.on_ack(
                segment.ack,
                progress.duplicate.is_some(),
                progress.repeats && segment.options.sack.is_empty(),
            ) {
                Outcome::Pending => {}
                Outcome::NoLoss => self.recovery.tail_probe = None,
                Outcome::RepairedLoss => {
                    self.recovery.tail_probe = None;
                    self.reduce_window();
                }
            }
        }
        if self.ecn.on && segment.flags.contains(Flags::ECE) {
            self.on_congestion_echo();
        }
        self.check_spurious(progress, segment);
        if self.recovery.timeout().is_some() {
            self.check_timeout(progress);
        }
        self.repair(progress, segment.ack, now);
        if progress.acked > 0 {
            if self.mtu_search.is_some() {
                self.settle_mtu_probe();
            }
            self.restart_retransmission_timers(now);
        } else if progress.delivered > 0 {
            self.arm_tail_probe(now);
        }
    }

    /// Handles the ACK of our FIN: the FIN is acknowledged if everything is.
    fn process_ack_of_fin(&mut self, now: Instant) -> ControlFlow<()> {
        if !self.snd.fin_sent || self.snd.una != self.snd.nxt {
            return ControlFlow::Continue(());
        }
        match self.state {
            State::FinWait1 => {
                self.become_state(State::FinWait2);
                if self.rcv.abandoned {
                    // The application does not wait for the peer's FIN. As in Linux, we do not wait
                    // for ever.
                    self.timers
                        .set(Timer::TimeWait, now + self.config.time_wait);
                }
            }
            State::Closing => self.enter_time_wait(now),
            State::LastAck => {
                self.end(None);
                return ControlFlow::Break(());
            }
            _ => {}
        }
        ControlFlow::Continue(())
    }

    pub(super) fn enter_time_wait(&mut self, now: Instant) {
        self.become_state(State::TimeWait);
        self.timers.stop_all();
        self.timers
            .set(Timer::TimeWait, now + self.config.time_wait);
    }
}
