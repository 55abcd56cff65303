//! Acceptance tests of a segment: sequence numbers, PAWS, RST and SYN, with RFC 5961's answers.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::ack::Unacceptable;
use super::timers::Timer;
use super::{Connection, Ended, State};
use crate::wire::{Flags, Segment};

impl Connection {
    /// Handles a repetition of the peer's SYN in SYN-RECEIVED. If both sides opened at once, it is
    /// the peer's SYN-ACK: processing continues without the SYN, which is acknowledged as a
    /// duplicate (RFC 9293 §3.10.7.4). Else our SYN-ACK was lost and is sent again. No SACK block
    /// reports the repeated SYN: the handshake of figure 7 sends each SYN twice, and RFC 2883 is
    /// about data. A sender that counts such reports would conclude that its path reorders or
    /// duplicates.
    pub(super) fn check_repeated_syn(&mut self, segment: &mut Segment) -> ControlFlow<()> {
        let repeated = self.state == State::SynReceived
            && segment.flags.contains(Flags::SYN)
            && segment.seq == self.rcv.irs;
        if !repeated || segment.flags.contains(Flags::RST) {
            return ControlFlow::Continue(());
        }
        if segment.flags.contains(Flags::ACK) && !self.passive {
            self.owe_ack();
            segment.seq += 1;
            segment.flags = segment.flags.without(Flags::SYN);
            return ControlFlow::Continue(());
        }
        self.owed.syn = true;
        ControlFlow::Break(())
    }

    /// Checks PAWS (RFC 7323 §5.3 R1) and that a segment has timestamps once they are agreed on
    /// (§3.2). A SYN without timestamps comes from a peer that may have restarted: it passes on to
    /// [`Self::check_syn`], because RFC 5961 §4.2 requires an answer.
    pub(super) fn check_timestamps(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        if !self.timestamps || segment.flags.contains(Flags::RST) {
            return ControlFlow::Continue(());
        }
        let Some(timestamps) = segment.options.timestamps else {
            if segment.flags.contains(Flags::SYN) {
                return ControlFlow::Continue(());
            }
            self.counters.dropped_paws += 1;
            return ControlFlow::Break(());
        };
        let older = (timestamps.value.wrapping_sub(self.rcv.ts_recent) as i32) < 0;
        // RFC 7323 §5.5: a TS.Recent older than a wrap of the clock is not comparable.
        if older && self.since_heard(now) < PAWS_IDLE_MAX {
            self.counters.dropped_paws += 1;
            self.answer_unacceptable(segment, now);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// Checks that the segment touches the window. At the right edge we accept more than the RFC's
    /// table, as Linux does: a segment that begins there adds no text but its ACK counts. While the
    /// window is zero, the ACK of a segment further out counts too ("special allowance should be
    /// made to accept valid ACKs").
    pub(super) fn check_sequence(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        let new = if segment.is_empty() {
            segment.seq.at_or_after(self.rcv.nxt)
        } else {
            segment.end().after(self.rcv.nxt)
        };
        let acceptable = new && segment.seq.at_or_before(self.rcv.edge);
        if acceptable {
            return ControlFlow::Continue(());
        }
        self.counters.dropped_unacceptable += 1;
        if segment.flags.contains(Flags::RST) {
            return ControlFlow::Break(());
        }
        if self.is_beyond_a_shut_window(segment) {
            self.check_ack(segment, now)?;
            self.process_ack(segment, now)?;
        }
        if self.state == State::TimeWait && segment.flags.contains(Flags::FIN) {
            // The peer did not get our last ACK: restart the 2 MSL.
            self.timers
                .set(Timer::TimeWait, now + self.config.time_wait);
        }
        if !segment.payload.is_empty() && segment.end().at_or_before(self.rcv.nxt) {
            self.counters.duplicates_received += 1;
            let text = segment.seq + u32::from(segment.flags.contains(Flags::SYN));
            self.report_duplicate(text, text + segment.payload.len() as u32);
        }
        self.answer_unacceptable(segment, now);
        ControlFlow::Break(())
    }

    fn is_beyond_a_shut_window(&self, segment: &Segment) -> bool {
        self.state.is_synchronized()
            && !segment.flags.intersects(Flags::SYN)
            && self.rcv.wnd() == 0
            && segment.seq.after(self.rcv.edge)
            && segment.seq.since(self.rcv.edge) <= self.rcv.buffer
    }

    /// Updates TS.Recent (RFC 7323 §4.3 (2)) only from a segment that covers the last ACK sent, so
    /// that the echo dates from the oldest segment that the next ACK acknowledges. Called after all
    /// checks, because a forged value would make PAWS refuse the peer's segments.
    pub(super) fn take_timestamps(&mut self, segment: &Segment) {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.timestamps) else {
            return;
        };
        if segment.seq.at_or_before(self.rcv.acked) {
            self.rcv.ts_recent = timestamps.value;
        }
    }

    /// Checks RST (RFC 5961 §3.2): only the exact next sequence number resets; any other in the
    /// window gets a challenge ACK.
    pub(super) fn check_reset(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        if !segment.flags.contains(Flags::RST) {
            return ControlFlow::Continue(());
        }
        if segment.seq != self.rcv.nxt {
            self.challenge(now);
            return ControlFlow::Break(());
        }
        let reason = match self.state {
            State::SynReceived if !self.passive => Some(Ended::Refused),
            // The application has closed and waits for nothing.
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Ended::Reset),
        };
        self.end(reason);
        ControlFlow::Break(())
    }

    /// Checks SYN (RFC 5961 §4.2): a SYN on a synchronised connection gets a challenge ACK.
    pub(super) fn check_syn(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        if !segment.flags.contains(Flags::SYN) {
            return ControlFlow::Continue(());
        }
        self.challenge(now);
        ControlFlow::Break(())
    }

    /// Sends a challenge ACK, within the rate limit.
    pub(super) fn challenge(&mut self, now: Instant) {
        if self.may_answer_unacceptable(now) {
            self.counters.challenge_acks_sent += 1;
            self.owe_ack();
        }
    }

    /// Answers an unacceptable segment with an ACK of our current state. Data and FINs are always
    /// answered, because their sender may be waiting for a lost ACK.
    fn answer_unacceptable(&mut self, segment: &Segment, now: Instant) {
        if !segment.is_empty() || self.may_answer_unacceptable(now) {
            self.owe_ack();
            let old = !segment.payload.is_empty() && segment.seq.before(self.rcv.nxt);
            self.note_unacceptable(if old {
                Unacceptable::OldData
            } else {
                Unacceptable::Other
            });
        }
    }

    /// Applies the rate limit of RFC 5961 §7. The limit is per connection, because a shared limit
    /// is a side channel.
    fn may_answer_unacceptable(&mut self, now: Instant) -> bool {
        let now = self.clock().at(now);
        let may = self.challenge_limit.allows(now);
        self.counters.acks_suppressed += u32::from(!may);
        may
    }
}

/// Count of unacceptable segments answered in the current second (RFC 5961 §7).
#[derive(Debug)]
pub(super) struct ChallengeLimit {
    /// Start of the second, in ms of the timestamp clock.
    began: u32,
    answers: u8,
}

impl ChallengeLimit {
    pub(super) fn new(now: u32) -> ChallengeLimit {
        ChallengeLimit {
            began: now,
            answers: 0,
        }
    }

    /// Counts an answer and returns true if the limit allows it.
    fn allows(&mut self, now: u32) -> bool {
        if now.wrapping_sub(self.began) >= 1000 {
            *self = ChallengeLimit::new(now);
        }
        let allows = self.answers < CHALLENGE_ACKS_MAX;
        self.answers += u8::from(allows);
        allows
    }
}

/// RFC 7323 §5.5: below the 24.8 days in which a millisecond clock advances by 2³¹.
const PAWS_IDLE_MAX: Duration = Duration::from_secs(24 * 24 * 3600);
/// Answers per second. RFC 5961 §7 suggests ten in five seconds.
const CHALLENGE_ACKS_MAX: u8 = 10;
