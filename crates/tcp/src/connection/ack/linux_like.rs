//! As Linux 6 acknowledges: `tcp_event_data_recv`, `tcp_measure_rcv_mss`, `__tcp_ack_snd_check`
//! (tcp_input.c), `tcp_send_delayed_ack` (tcp_output.c), `__tcp_cleanup_rbuf` (tcp.c),
//! `tcp_delack_timer_handler` (tcp_timer.c). What it does about gaps is `compress.rs`.
//!
//! Not here: the RTO as a bound of the timeout (`delay_max` is smaller), and the quick ACK for each
//! step of `rcv_ssthresh`, which we do not have. What a backlog is to the kernel is a batch to us:
//! [`LinuxAcks::backlog_ack_defer`].

use std::time::{Duration, Instant};

use super::compress::Compressed;
use super::{AckDecision, Arrival, Gap, LinuxAcks, Read};

/// `icsk_ack` of a socket.
#[derive(Debug)]
pub(super) struct LinuxLike {
    /// Acknowledgements that leave at once before delaying begins.
    quick: u8,
    /// The connection goes to and fro: an answer is likely to carry the acknowledgement.
    pub(super) pingpong: bool,
    /// The adaptive timeout; zero before the first data.
    ato: Duration,
    received: Option<Instant>,
    /// Size of the segments that the peer sends, by what was seen.
    rcv_mss: u32,
    last_segment: u32,
    /// Short or pushed segments since the last acknowledgement: 0, 1, 2 or more.
    pushed: u8,
    deadline: Option<Instant>,
    compressed: Compressed,
}

impl Default for LinuxLike {
    fn default() -> Self {
        Self {
            quick: 0,
            pingpong: false,
            ato: Duration::ZERO,
            received: None,
            rcv_mss: MSS_DEFAULT,
            last_segment: 0,
            pushed: 0,
            deadline: None,
            compressed: Compressed::default(),
        }
    }
}

impl LinuxLike {
    /// Acknowledgements that will leave at once.
    pub(super) fn quick(&self) -> u8 {
        if self.pingpong { 0 } else { self.quick }
    }

    /// The timeout as it has adapted.
    pub(super) fn delay_adapted(&self) -> Duration {
        self.ato
    }

    pub(super) fn on_segment(&mut self, arrival: &Arrival, delay_max: Duration) -> AckDecision {
        self.measure_mss(arrival.segment_bytes, arrival.push);
        self.adapt(arrival);
        let reader_keeps_up = arrival.window_new >= arrival.window_bytes;
        if self.is_due(arrival.unacked_bytes, reader_keeps_up) {
            return AckDecision::Now;
        }
        self.delay(arrival, delay_max)
    }

    /// There is a gap, and what came is behind it or filled a part of it.
    pub(super) fn on_gap(&mut self, gap: &Gap, settings: &LinuxAcks) -> AckDecision {
        self.measure_mss(gap.segment_bytes, gap.push);
        if self.is_due(gap.unacked_bytes, gap.reader_keeps_up) {
            return AckDecision::Now;
        }
        self.compressed.on_gap(gap, settings)
    }

    /// The first condition of `__tcp_ack_snd_check`.
    fn is_due(&self, unacked_bytes: u32, reader_keeps_up: bool) -> bool {
        let many = unacked_bytes > self.rcv_mss && reader_keeps_up;
        many || (self.quick > 0 && !self.pingpong)
    }

    /// `tcp_measure_rcv_mss`.
    fn measure_mss(&mut self, bytes: u32, push: bool) {
        let last_segment = std::mem::take(&mut self.last_segment);
        if bytes >= self.rcv_mss {
            self.rcv_mss = bytes;
            if push {
                self.pushed = self.pushed.max(1);
            }
            return;
        }
        // A short segment is the peer's size only if two of it follow each other, and only where
        // it is not the end of a write.
        if bytes >= MSS_DEFAULT || (bytes >= MSS_MIN && !push) {
            self.last_segment = bytes;
            if bytes == last_segment {
                self.rcv_mss = bytes;
                return;
            }
        }
        self.pushed = (self.pushed + 1).min(2);
    }

    /// `tcp_event_data_recv`: the timeout follows the time between segments.
    fn adapt(&mut self, arrival: &Arrival) {
        let since = self
            .received
            .map(|at| arrival.now.saturating_duration_since(at));
        self.received = Some(arrival.now);
        let Some(since) = since.filter(|_| !self.ato.is_zero()) else {
            self.grow_quick(QUICK_MAX, arrival.window_bytes);
            self.ato = ATO_MIN;
            return;
        };
        if since <= ATO_MIN / 2 {
            self.ato = self.ato / 2 + ATO_MIN / 2;
        } else if since < self.ato {
            self.ato = self.ato / 2 + since;
        } else if since > RESTART {
            // The sender restarts after idling and needs its ACKs to open its window.
            self.grow_quick(QUICK_MAX, arrival.window_bytes);
        }
    }

    /// `tcp_incr_quickack`: half the window's worth of segments.
    fn grow_quick(&mut self, max: u8, window: u32) {
        let segments = match window / (2 * self.rcv_mss.max(1)) {
            0 => 2,
            segments => segments,
        };
        let segments = segments.min(u32::from(max)) as u8;
        self.quick = self.quick.max(segments);
    }

    /// `tcp_enter_quickack_mode`.
    pub(super) fn enter_quick_mode(&mut self, max: u8, window: u32) {
        self.grow_quick(max, window);
        self.pingpong = false;
        self.ato = ATO_MIN;
    }

    /// `tcp_rcv_synsent_state_process` with a writer that waits: its data take the SYN-ACK's
    /// acknowledgement along, and are an answer.
    pub(super) fn on_opened_by_writer(&mut self, window: u32, now: Instant) {
        self.enter_quick_mode(QUICK_MAX, window);
        self.received = Some(now);
    }

    /// `tcp_send_delayed_ack`.
    fn delay(&mut self, arrival: &Arrival, delay_max: Duration) -> AckDecision {
        let mut ato = self.ato;
        if ato > ATO_MIN {
            let mut max = if self.pingpong || self.pushed > 0 {
                DELAY_MAX
            } else {
                DELAY_MAX_BULK
            };
            if let Some(srtt) = arrival.srtt {
                max = max.min(srtt.max(ATO_MIN));
            }
            ato = ato.min(max);
        }
        let ato = ato.min(delay_max);
        let deadline = arrival.now + ato;
        if let Some(pending) = self.deadline {
            if pending <= arrival.now + ato / 4 {
                return AckDecision::Now;
            }
            self.deadline = Some(pending.min(deadline));
        } else {
            self.deadline = Some(deadline);
        }
        AckDecision::By(deadline)
    }

    /// `__tcp_cleanup_rbuf`.
    pub(super) fn is_due_on_read(&self, read: &Read) -> bool {
        let many = read.unacked_bytes > self.rcv_mss;
        let end = self.pushed > 1 || (self.pushed == 1 && !self.pingpong);
        many || (read.unacked_bytes > 0 && end && read.drained) || read.has_opened()
    }

    /// `tcp_delack_timer_handler`: nobody answered in time; or, which says nothing about answers,
    /// the time of compressed SACKs is over. Whether it was the former.
    pub(super) fn on_timer(&mut self, now: Instant) -> bool {
        if self.compressed.any() && self.deadline.is_none_or(|deadline| deadline > now) {
            return false;
        }
        if self.pingpong {
            self.pingpong = false;
            self.ato = ATO_MIN;
        } else {
            self.ato = (2 * self.ato).min(RESTART);
        }
        true
    }

    /// `tcp_event_ack_sent` and `tcp_event_data_sent`; `scheduled`: there was something to
    /// acknowledge. Whether SACK blocks are still to be told.
    pub(super) fn on_sent(&mut self, data: bool, scheduled: bool, now: Instant) -> bool {
        if scheduled {
            if self.quick == 1 {
                self.ato = ATO_MIN;
            }
            self.quick = self.quick.saturating_sub(1);
        }
        self.pushed = 0;
        self.deadline = None;
        let soon = |at: Instant| now.saturating_duration_since(at) < self.ato;
        if data && self.received.is_some_and(soon) {
            self.pingpong = true;
        }
        self.compressed.on_sent()
    }
}

/// `TCP_MAX_QUICKACKS`: at first, after a pause, and (`tcp_data_queue`, `tcp_send_dupack`) for data
/// that is old or beyond the window.
pub(super) const QUICK_MAX: u8 = 16;
/// `tcp_data_ecn_check`.
pub(super) const QUICK_ECN: u8 = 2;
/// `TCP_ATO_MIN`, `TCP_DELACK_MIN`: HZ / 25.
const ATO_MIN: Duration = Duration::from_millis(40);
/// `TCP_DELACK_MAX`.
const DELAY_MAX: Duration = Duration::from_millis(200);
/// HZ / 2, when the sender streams.
const DELAY_MAX_BULK: Duration = Duration::from_millis(500);
/// Linux compares with the RTO of the other direction, which is 200 ms where the path is short.
const RESTART: Duration = Duration::from_millis(200);
/// `TCP_MSS_DEFAULT`, `TCP_MIN_MSS`.
const MSS_DEFAULT: u32 = 536;
const MSS_MIN: u32 = 88;
