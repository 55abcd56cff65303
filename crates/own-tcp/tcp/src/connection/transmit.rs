//! Transmission: which segment leaves next.

use std::time::{Duration, Instant};

use super::ack::AckDecision;
use super::ack_rate::REQUEST_BYTES;
use super::mtu_search::Turn;
use super::recovery::Phase;
use super::recovery::scoreboard::Fate;
use super::recovery::tail_probe::TailProbe;
use super::segmentation::{Cut, SendView};
use super::timers::Timer;
use super::{Connection, State};
use crate::wire::{AckRate, Ecn, Flags, Options, Segment, Timestamps};
use crate::{Chain, SeqNum, WindowGrowth, WindowRestart};

impl Connection {
    /// Returns the next segment to send; `None` if there is nothing to send now.
    pub fn poll_segment(&mut self, now: Instant) -> Option<Segment> {
        // Fast path, because every further access to the segment moves it once more.
        if !(self.snd.urgent || cfg!(debug_assertions)) {
            return self.next_segment(now);
        }
        let mut segment = self.next_segment(now);
        if self.snd.urgent
            && let Some(segment) = &mut segment
        {
            self.mark_urgent(segment);
        }
        self.debug_assert_promises(segment.as_ref());
        self.debug_assert_invariants();
        segment
    }

    fn next_segment(&mut self, now: Instant) -> Option<Segment> {
        if let Some(segment) = self.next_reset(now) {
            return Some(segment);
        }
        if matches!(self.state, State::SynSent | State::SynReceived) {
            let syn = self.next_syn(now);
            if syn.is_some() || !self.is_early() {
                return syn;
            }
        }
        if self.state == State::Closed {
            return None;
        }
        // SACK blocks are sent only in segments without payload, so that a data segment keeps its
        // full size. Those segments leave first.
        if self.owed.acks > 0 && self.has_sack_to_tell() {
            return Some(self.next_ack(now));
        }
        if let Some(segment) = self.next_retransmission(now) {
            return Some(segment);
        }
        if let Some(segment) = self.next_tail_probe(now) {
            return Some(segment);
        }
        if let Some(segment) = self.next_data(now) {
            return Some(segment);
        }
        self.note_limit(now);
        if self.config.window_growth == WindowGrowth::PerAck {
            self.congestion.on_rest(self.recovery.flight(self.snd.mss));
        }
        if std::mem::take(&mut self.owed.probe) {
            return Some(self.segment(self.snd.una - 1, Flags::ACK, Chain::new(), now));
        }
        (self.owed.acks > 0).then(|| self.next_ack(now))
    }

    fn next_reset(&mut self, now: Instant) -> Option<Segment> {
        let (seq, with_ack) = self.owed.reset.take()?;
        self.count_sent(1, 0);
        let flags = Flags::RST.with(Flags::ACK, with_ack);
        // RFC 7323 §3.2: a reset has timestamps once they are agreed on.
        let timestamps = self.timestamps && self.state != State::SynSent;
        Some(Segment {
            seq,
            ack: self.rcv.nxt,
            flags,
            dscp: self.config.dscp,
            options: Options {
                timestamps: timestamps.then(|| self.stamps(now)),
                ..Options::default()
            },
            ..Segment::default()
        })
    }

    fn next_ack(&mut self, now: Instant) -> Segment {
        let more = self.owed.acks - 1;
        let (partial, whole) = (self.partial_ack(), self.ack.is_whole());
        let mut segment = self.segment(self.snd.nxt, Flags::ACK, Chain::new(), now);
        self.owed.acks = more;
        match partial {
            // A duplicate is reported in the last of several ACKs: before an ACK that covers it the
            // block would look like data after a gap (RFC 2883 §4).
            Some(ack) => self.acknowledge_only(ack, whole, &mut segment, now),
            None => self.add_sack_blocks(&mut segment.options),
        }
        self.counters.pure_acks_sent += 1;
        segment
    }

    /// End of the next ACK's step if the policy wants several ACKs for the data that arrived;
    /// `None` if the next ACK may cover all of it.
    fn partial_ack(&self) -> Option<SeqNum> {
        let step = self
            .ack
            .step_bytes(&self.config.ack, self.rcv.full_segment)?;
        let ack = self.rcv.acked + step;
        let in_order = self.rcv.queue.reassembly.is_empty() && !self.rcv.finished;
        (in_order && ack.before(self.rcv.nxt)).then_some(ack)
    }

    /// Makes `segment` acknowledge only up to `ack`, and arranges the next ACK: at once if `whole`
    /// or if a whole step is left, else after the policy's delay.
    fn acknowledge_only(&mut self, ack: SeqNum, whole: bool, segment: &mut Segment, now: Instant) {
        let left = self.rcv.nxt.since(ack);
        let free = self.window_free().min(self.window_max()) + left;
        segment.window = self.promise(ack, self.rcv.edge.since(ack), free);
        segment.ack = ack;
        self.rcv.acked = ack;
        let (window, full) = (self.rcv.acked_window, self.rcv.full_segment);
        let due = self.ack.on_step(&self.config.ack, left, window, full);
        if whole {
            self.owe_ack();
            return;
        }
        self.follow(if due {
            AckDecision::Now
        } else {
            AckDecision::By(now + self.config.ack.delay_max())
        });
    }

    /// Retransmits the first lost range, or as much of it as the congestion window allows.
    fn next_retransmission(&mut self, now: Instant) -> Option<Segment> {
        let lost = self.recovery.scoreboard.next_lost()?;
        if self.recovery.is_probing() {
            return None;
        }
        let (mss, flight) = (self.snd.mss, self.recovery.flight(self.snd.mss));
        let room = self.congestion.cwnd().saturating_sub(flight);
        let len = lost.end.since(lost.start);
        // With nothing in flight no ACK would ever open the window, so one segment is always
        // allowed.
        if room < len.min(mss) && flight > 0 {
            return None;
        }
        let segmentation = &self.config.segmentation;
        let rate = self.sizing_rate().filter(|_| segmentation.is_linux());
        let sized = rate.map_or(u32::MAX, |rate| segmentation.paced_bytes_max(rate, mss));
        let ceiling = match self.snd.urgent {
            // A device that cuts the segment would repeat the urgent pointer. Same limit as in Linux.
            true => mss,
            false => segmentation
                .super_segment_bytes_max
                .min(SUPER_SEGMENT_MAX)
                .min(sized)
                .max(mss),
        };
        let len = len.min((room.min(ceiling) / mss * mss).max(mss));
        let segment = self.retransmit(lost.start, lost.start + len, now);
        self.timers.start(Timer::Retransmit, now + self.rtt.rto());
        self.on_left(len);
        Some(segment)
    }

    fn retransmit(&mut self, start: SeqNum, end: SeqNum, now: Instant) -> Segment {
        let fin = self.snd.fin_sent && end == self.snd.nxt;
        let bytes = end.since(start) - u32::from(fin);
        let payload = self.snd.queue.chain(start, bytes);
        self.recovery.scoreboard.on_retransmitted(start, end, now);
        self.doubt_ack_rate();
        self.recovery.last_sent = Some(now);
        let stamp = self.stamp(now);
        if self.recovery.is_repairing()
            && let Some(undo) = &mut self.recovery.undo
        {
            undo.on_retransmitted(start, end.since(start), stamp);
        }
        self.counters.payload_bytes_retransmitted += u64::from(bytes);
        self.counters.segments_retransmitted += u64::from(bytes.div_ceil(self.snd.mss).max(1));
        let pushed = self.config.segmentation.is_linux() && bytes > self.snd.mss;
        let ends = end == self.snd.nxt || self.snd.queue.is_pushed(start + bytes);
        let push = pushed || (ends && bytes > 0);
        self.segment(
            start,
            Flags::ACK.with(Flags::FIN, fin).with(Flags::PSH, push),
            payload,
            now,
        )
    }

    /// Returns a tail loss probe (RFC 8985 §7.3): new data if there is any and the peer's window
    /// allows it, else the last segment again.
    fn next_tail_probe(&mut self, now: Instant) -> Option<Segment> {
        if !std::mem::take(&mut self.owed.tail_probe) {
            return None;
        }
        let unsent = self.unsent();
        let unsent = self.snd.queue.share(self.snd.nxt, unsent);
        let segment = if unsent > 0 && self.window_left() >= unsent.min(self.snd.mss) {
            self.recovery.tail_probe = Some(TailProbe {
                end: self.snd.nxt,
                is_retransmission: false,
            });
            self.send_new(unsent.min(self.snd.mss), unsent < self.snd.mss, None, now)
        } else {
            let last = *self
                .recovery
                .scoreboard
                .last()
                .filter(|last| last.fate != Fate::Sacked)?;
            let len = last.end.since(last.start);
            let len = match len % self.snd.mss {
                0 => self.snd.mss.min(len),
                partial => partial,
            };
            self.recovery.tail_probe = Some(TailProbe {
                end: self.snd.nxt,
                is_retransmission: true,
            });
            self.retransmit(last.end - len, last.end, now)
        };
        self.counters.tail_probes_sent += 1;
        self.timers.stop(Timer::TailProbe);
        self.timers.set(Timer::Retransmit, now + self.rtt.rto());
        Some(segment)
    }

    /// Returns new data, a FIN, or both.
    fn next_data(&mut self, now: Instant) -> Option<Segment> {
        let may_send = matches!(
            self.state,
            State::Established
                | State::CloseWait
                | State::FinWait1
                | State::Closing
                | State::LastAck
        ) || self.is_early();
        if !may_send || self.snd.fin_sent {
            return None;
        }
        let unsent = self.unsent();
        if unsent == 0 {
            return self.snd.closed.then(|| self.send_new(0, false, None, now));
        }
        if self.is_paced_out() {
            return None;
        }
        self.restart_window(now);
        let record = self.snd.queue.share(self.snd.nxt, unsent);
        if self.mtu_search.is_some() {
            match self.mtu_turn(record, now) {
                Turn::Probe(size) => return Some(self.send_mtu_probe(size, now)),
                Turn::Wait => return None,
                Turn::Pass => {}
            }
        }
        let mut queue = self.send_queue_view(record, now);
        // More data follows the record, so the record itself will not grow.
        queue.closed |= record < unsent;
        match self.config.segmentation.cut(&queue) {
            Cut::Send(bytes) => {
                let bytes = if self.snd.urgent {
                    bytes.min(self.snd.mss)
                } else {
                    bytes
                };
                self.pace(bytes, now);
                let ask = self.ack_rate_to_ask();
                let (bytes, small) = match ask {
                    None => (bytes, self.config.segmentation.is_small(bytes, &queue)),
                    // The segment is short because of the option, so Nagle's rule does not apply.
                    Some(_) => (bytes.min(self.snd.mss - REQUEST_BYTES), false),
                };
                Some(self.send_new(bytes, small, ask, now))
            }
            Cut::Corked => {
                self.timers
                    .start(Timer::Cork, now + self.config.segmentation.cork_max);
                None
            }
            Cut::WindowFull if self.recovery.scoreboard.is_empty() => {
                self.timers.start(Timer::Persist, now + self.rtt.rto());
                None
            }
            Cut::Wait | Cut::WindowFull | Cut::CwndFull => None,
        }
    }

    fn send_queue_view(&self, unsent: u32, now: Instant) -> SendView {
        let snd = &self.snd;
        let flight = self.recovery.flight(snd.mss);
        SendView {
            unsent,
            window_left: self.window_left(),
            window_max: snd.wnd_max,
            cwnd_left: self.congestion.cwnd().saturating_sub(flight),
            window: snd.wnd.min(self.congestion.cwnd()),
            cwnd: self.congestion.cwnd(),
            paced_rate: self.sizing_rate(),
            ack_is_near: self.config.segmentation.window_divisor.is_some() && self.is_ack_near(now),
            mss: snd.mss,
            in_flight: !self.recovery.scoreboard.is_empty(),
            small_in_flight: snd.small_end.after(snd.una) && snd.small_end.at_or_before(snd.nxt),
            corked: snd.cork || (snd.more && !snd.more_over),
            closed: snd.closed,
            flush: snd.flush,
        }
    }

    /// True if the next ACK is close, by Linux's conditions: data was sent within the last
    /// millisecond, nothing is being repaired, and the round-trip time predicts the next ACK within
    /// half of it or a millisecond.
    fn is_ack_near(&self, now: Instant) -> bool {
        let recent = |sent| now.saturating_duration_since(sent) <= NEAR;
        if self.recovery.is_repairing() || !self.recovery.last_sent.is_some_and(recent) {
            return false;
        }
        let (Some(head), Some(srtt)) = (self.recovery.scoreboard.first(), self.rtt.srtt()) else {
            return false;
        };
        let expected = head.sent_at + srtt;
        expected.saturating_duration_since(now) <= NEAR.min(srtt / 2)
    }

    /// Sends `bytes` new bytes, with the FIN if it follows directly. `small`: remember the segment
    /// as a small one (Minshall's `snd_sml`). `ask`: carries this request for a rate of
    /// acknowledgements.
    pub(super) fn send_new(
        &mut self,
        bytes: u32,
        small: bool,
        ask: Option<AckRate>,
        now: Instant,
    ) -> Segment {
        let start = self.snd.nxt;
        let payload = self.snd.queue.chain(start, bytes);
        let last = start + bytes == self.snd.queue.end();
        let fin = self.snd.closed && last;
        let reduced = bytes > 0 && std::mem::take(&mut self.ecn.reduced);
        let pushed = self.config.segmentation.is_linux() && bytes > self.snd.mss;
        let push = pushed
            || (last && bytes > 0 && (!self.snd.more || fin))
            || (bytes > 0 && self.snd.queue.is_pushed(start + bytes));
        let flags = Flags::ACK
            .with(Flags::PSH, push)
            .with(Flags::FIN, fin)
            .with(Flags::CWR, reduced);
        let len = bytes + u32::from(fin);
        self.snd.nxt += len;
        self.snd.fin_sent |= fin;
        self.snd.flush = false;
        if small {
            self.snd.small_end = start + bytes;
        }
        self.recovery.scoreboard.on_sent(start, self.snd.nxt, now);
        self.on_left(len);
        self.recovery.last_sent = Some(now);
        self.timers.stop(Timer::Persist);
        self.timers.stop(Timer::Cork);
        if !self.timers.is_running(Timer::Retransmit) {
            self.timers.set_in(Timer::Retransmit, now, self.rtt.rto());
        }
        if let Some(timeout) = self.config.user_timeout {
            self.timers.start(Timer::User, now + timeout);
        }
        self.arm_tail_probe(now);
        let mut segment = self.segment(start, flags, payload, now);
        if self.ecn.on && bytes > 0 {
            segment.ecn = Ecn::Capable0;
        }
        segment.options.ack_rate = ask;
        segment
    }

    /// Accounts for a segment that occupies sequence numbers.
    fn on_left(&mut self, bytes: u32) {
        if let Phase::Recovery { prr, .. } = &mut self.recovery.phase {
            prr.on_sent(bytes);
        }
        self.recovery.flight_at_send = self.recovery.flight(self.snd.mss);
    }

    /// Makes a segment with the fields common to all segments: acknowledgement, window, timestamps,
    /// ECN echo.
    // The segment is built last: any later access moves it once more, which costs a tenth of all
    // time at MTU 1500.
    #[inline]
    fn segment(&mut self, seq: SeqNum, flags: Flags, payload: Chain, now: Instant) -> Segment {
        let window = self.offer_window();
        let (bytes, mss) = (payload.len() as u32, self.snd.mss);
        let (segment_size, wire_segments) = if bytes > mss {
            (mss as u16, bytes.div_ceil(mss))
        } else {
            (0, 1)
        };
        self.count_sent(wire_segments, bytes);
        let scheduled = self.owed.acks > 0 || self.rcv.acked != self.rcv.nxt;
        self.rcv.acked = self.rcv.nxt;
        let untold = self.ack.on_sent(bytes > 0, scheduled, now);
        self.owed.acks = u8::from(untold);
        self.timers.stop(Timer::Ack);
        let timestamps = self.timestamps.then(|| self.stamps(now));
        Segment {
            seq,
            ack: self.rcv.nxt,
            flags: flags.with(Flags::ECE, self.ecn.echo),
            window,
            options: Options {
                timestamps,
                ..Options::default()
            },
            payload,
            segment_size,
            ecn: Ecn::NotCapable,
            dscp: self.config.dscp,
            urgent: 0,
            fast_open: None,
        }
    }

    /// Returns our timestamp clock at `now`, as [`Clock::at`](super::Clock::at) does.
    fn stamp(&self, now: Instant) -> u32 {
        let elapsed_ms = self.timers.ns(now) / 1_000_000;
        self.clock_offset.wrapping_add(elapsed_ms as u32)
    }

    fn stamps(&self, now: Instant) -> Timestamps {
        Timestamps {
            value: self.stamp(now),
            echo: self.rcv.ts_recent,
        }
    }

    fn has_sack_to_tell(&self) -> bool {
        self.sack && (self.rcv.duplicate.is_some() || !self.rcv.queue.reassembly.is_empty())
    }

    fn add_sack_blocks(&mut self, options: &mut Options) {
        let duplicate = self.rcv.duplicate.take();
        if !self.sack {
            return;
        }
        // RFC 2018 §3: three blocks fit next to timestamps.
        let mut room = if self.timestamps { 3 } else { 4 };
        let reassembly = &mut self.rcv.queue.reassembly;
        if let Some((start, end)) = duplicate {
            options.sack.push(start, end);
            room -= 1;
            // RFC 2883 §4.2: if the duplicate lies in a range that we hold, that range comes
            // second.
            if let Some((start, end)) = reassembly.range_around(start) {
                options.sack.push(start, end);
                room -= 1;
            }
        }
        reassembly.sack_blocks(&mut options.sack, room);
        if reassembly.news() > 0 {
            self.owe_ack();
        }
    }

    pub(super) fn count_sent(&mut self, wire_segments: u32, bytes: u32) {
        self.counters.super_segments_sent += 1;
        self.counters.segments_sent += u64::from(wire_segments);
        self.counters.payload_bytes_sent += u64::from(bytes);
    }

    /// Number of bytes written and never sent.
    pub(super) fn unsent(&self) -> u32 {
        if self.snd.fin_sent || (self.snd.nxt == self.snd.iss && !self.state.is_synchronized()) {
            return 0;
        }
        self.snd.queue.end().since(self.snd.nxt)
    }

    /// Bytes left in the peer's window.
    pub(super) fn window_left(&self) -> u32 {
        // The SYN does not count against the window.
        let syn = u32::from(self.state == State::SynReceived);
        let sent = self.snd.nxt.since(self.snd.una).saturating_sub(syn);
        self.snd.wnd.saturating_sub(sent)
    }

    /// Restarts from the initial window where [`Config::window_restart`] says so.
    fn restart_window(&mut self, now: Instant) {
        let restarts = match self.config.window_restart {
            _ if !self.recovery.scoreboard.is_empty() => false,
            WindowRestart::Off => false,
            WindowRestart::Idle => {
                let last = self.recovery.last_sent;
                let idle = last.map(|sent| now.saturating_duration_since(sent));
                idle.is_some_and(|idle| idle > self.rtt.rto())
            }
            WindowRestart::EachSend => self.snd.nxt == self.snd.una,
        };
        if restarts {
            self.congestion.restart(&self.config);
        }
    }
}

/// Longest deferral in Linux.
const NEAR: Duration = Duration::from_millis(1);
/// Limit for retransmissions, as for new data: the payload of an IP packet.
const SUPER_SEGMENT_MAX: u32 = 65_535 - 100;
