//! Which segments may go on: sequence numbers, PAWS, RST and SYN, with RFC 5961's answers.

use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::ack::Unacceptable;
use super::timers::Timer;
use super::{Connection, Ended, State};
use crate::wire::{Flags, Segment};

impl Connection {
    /// The peer's SYN again while we wait for the acknowledgement of ours: its SYN-ACK if both
    /// opened at once (go on without the SYN, which is acknowledged as any duplicate: RFC 9293
    /// §3.10.7.4), else a sign that our SYN-ACK was lost. No SACK block reports it: the handshake of figure 7
    /// sends each SYN twice, and RFC 2883 is about data. A sender that counts such reports would take its path
    /// for one that reorders or duplicates.
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

    /// PAWS (RFC 7323 §5.3 R1), and §3.2: once agreed on, timestamps are in every segment. A SYN without them is
    /// of a peer that may have restarted: it goes on to [`Self::check_syn`], since RFC 5961 §4.2 must answer it.
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
        // §5.5: a TS.Recent older than the clock's wrap says nothing.
        if older && self.since_heard(now) < PAWS_IDLE_MAX {
            self.counters.dropped_paws += 1;
            self.answer_unacceptable(segment, now);
            return ControlFlow::Break(());
        }
        ControlFlow::Continue(())
    }

    /// The segment must touch the window. Wider than the RFC's table at the right edge, as Linux:
    /// what begins there brings no text in but its ACK counts. So does, while the window is shut,
    /// that of a segment further out ("special allowance should be made to accept valid ACKs").
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
            // The peer did not get our last ACK: another 2 MSL.
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

    /// TS.Recent (RFC 7323 §4.3 (2)): only from a segment that covers the last ACK sent, so that
    /// the echo dates from the oldest segment that the next ACK acknowledges. Called when nothing can
    /// refuse the segment any more: a forged one would shut out the peer's by PAWS.
    pub(super) fn take_timestamps(&mut self, segment: &Segment) {
        let Some(timestamps) = segment.options.timestamps.filter(|_| self.timestamps) else {
            return;
        };
        if segment.seq.at_or_before(self.rcv.acked) {
            self.rcv.ts_recent = timestamps.value;
        }
    }

    /// RFC 5961 §3.2: only the exact next sequence number resets; the rest of the window is asked.
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
            // Nobody waits for these any more.
            State::Closing | State::LastAck | State::TimeWait => None,
            _ => Some(Ended::Reset),
        };
        self.end(reason);
        ControlFlow::Break(())
    }

    /// RFC 5961 §4.2: a SYN on a synchronised connection is answered with a challenge.
    pub(super) fn check_syn(&mut self, segment: &Segment, now: Instant) -> ControlFlow<()> {
        if !segment.flags.contains(Flags::SYN) {
            return ControlFlow::Continue(());
        }
        self.challenge(now);
        ControlFlow::Break(())
    }

    /// An ACK that makes the peer prove itself.
    pub(super) fn challenge(&mut self, now: Instant) {
        if self.may_answer_unacceptable(now) {
            self.counters.challenge_acks_sent += 1;
            self.owe_ack();
        }
    }

    /// An ACK that says where we stand, to a segment that is of no use. Data and
    /// FINs are always answered: their sender may be waiting for a lost ACK.
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

    /// RFC 5961 §7. Per connection: a shared limit is a side channel.
    fn may_answer_unacceptable(&mut self, now: Instant) -> bool {
        let now = self.clock().at(now);
        let may = self.challenge_limit.allows(now);
        self.counters.acks_suppressed += u32::from(!may);
        may
    }
}

/// How often unacceptable segments were answered in the second that runs (RFC 5961 §7).
#[derive(Debug)]
pub(super) struct ChallengeLimit {
    /// When the second began, by the timestamp clock.
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

    /// Counts an answer, if one more is allowed.
    fn allows(&mut self, now: u32) -> bool {
        if now.wrapping_sub(self.began) >= 1000 {
            *self = ChallengeLimit::new(now);
        }
        let allows = self.answers < CHALLENGE_ACKS_MAX;
        self.answers += u8::from(allows);
        allows
    }
}

/// RFC 7323 §5.5: less than the 24.8 days in which half of a millisecond clock's circle passes.
const PAWS_IDLE_MAX: Duration = Duration::from_secs(24 * 24 * 3600);
/// RFC 5961 §7 suggests ten in five seconds.
const CHALLENGE_ACKS_MAX: u8 = 10;
