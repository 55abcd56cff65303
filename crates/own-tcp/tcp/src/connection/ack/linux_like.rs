//! Acknowledgement as in Linux 6: `tcp_event_data_recv`, `tcp_measure_rcv_mss`,
//! `__tcp_ack_snd_check` (tcp_input.c), `tcp_send_delayed_ack` (tcp_output.c), `__tcp_cleanup_rbuf`
//! (tcp.c), `tcp_delack_timer_handler` (tcp_timer.c). `compress.rs` handles gaps.
//!
//! Not here: the RTO as a limit of the delay (`delay_max` is smaller), and the quick ACK for each
//! step of `rcv_ssthresh`, which we do not have. A batch here corresponds to the kernel's backlog:
//! [`LinuxAcks::backlog_ack_defer`].

use std::time::{Duration, Instant};

use super::compress::Compressed;
use super::{AckDecision, Arrival, Gap, LinuxAcks, Read};

/// State that Linux keeps in `icsk_ack`.
#[derive(Debug)]
pub(super) struct LinuxLike {
    /// Remaining acknowledgements to send at once before delaying begins.
    quick: u8,
    /// True if the connection alternates requests and responses: a response is likely to carry the
    /// acknowledgement.
    pub(super) pingpong: bool,
    /// Adaptive delay (`ato`); zero before the first data.
    ato: Duration,
    received: Option<Instant>,
    /// Estimate of the peer's segment size from segments seen.
    rcv_mss: u32,
    last_segment: u32,
    /// Short or pushed segments since the last acknowledgement; 2 means two or more.
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
    /// Number of acknowledgements that will be sent at once.
    pub(super) fn quick(&self) -> u8 {
        if self.pingpong { 0 } else { self.quick }
    }

    /// Current adaptive delay.
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

    /// Called for a segment after a gap or one that fills a part of it.
    pub(super) fn on_gap(&mut self, gap: &Gap, settings: &LinuxAcks) -> AckDecision {
        self.measure_mss(gap.segment_bytes, gap.push);
        if self.is_due(gap.unacked_bytes, gap.reader_keeps_up) {
            return AckDecision::Now;
        }
        self.compressed.on_gap(gap, settings)
    }

    /// First condition of `__tcp_ack_snd_check`.
    fn is_due(&self, unacked_bytes: u32, reader_keeps_up: bool) -> bool {
        let many = unacked_bytes > self.rcv_mss && reader_keeps_up;
        many || (self.quick > 0 && !self.pingpong)
    }

    /// Estimates the peer's segment size (`tcp_measure_rcv_mss`).
    fn measure_mss(&mut self, bytes: u32, push: bool) {
        let last_segment = std::mem::take(&mut self.last_segment);
        if bytes >= self.rcv_mss {
            self.rcv_mss = bytes;
            if push {
                self.pushed = self.pushed.max(1);
            }
            return;
        }
        // A short size is taken only if two segments of it follow each other, and a very short one
        // only if it is not pushed, i.e. not the end of a write.
        if bytes >= MSS_DEFAULT || (bytes >= MSS_MIN && !push) {
            self.last_segment = bytes;
            if bytes == last_segment {
                self.rcv_mss = bytes;
                return;
            }
        }
        self.pushed = (self.pushed + 1).min(2);
    }

    /// Adapts the delay to the time between segments (`tcp_event_data_recv`).
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
            // The sender was idle and needs quick ACKs to open its window.
            self.grow_quick(QUICK_MAX, arrival.window_bytes);
        }
    }

    /// Raises `quick` to half the window in segments (`tcp_incr_quickack`).
    fn grow_quick(&mut self, max: u8, window: u32) {
        let segments = match window / (2 * self.rcv_mss.max(1)) {
            0 => 2,
            segments => segments,
        };
        let segments = segments.min(u32::from(max)) as u8;
        self.quick = self.quick.max(segments);
    }

    /// Enters quick-ACK mode (`tcp_enter_quickack_mode`).
    pub(super) fn enter_quick_mode(&mut self, max: u8, window: u32) {
        self.grow_quick(max, window);
        self.pingpong = false;
        self.ato = ATO_MIN;
    }

    /// Called when our SYN is acknowledged and data waits to be sent
    /// (`tcp_rcv_synsent_state_process`): the data carries the ACK of the SYN-ACK and counts as a
    /// response.
    pub(super) fn on_opened_by_writer(&mut self, window: u32, now: Instant) {
        self.enter_quick_mode(QUICK_MAX, window);
        self.received = Some(now);
    }

    /// Sets the deadline of a delayed ACK (`tcp_send_delayed_ack`).
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

    /// True if a read makes an acknowledgement due (`__tcp_cleanup_rbuf`).
    pub(super) fn is_due_on_read(&self, read: &Read) -> bool {
        let many = read.unacked_bytes > self.rcv_mss;
        let end = self.pushed > 1 || (self.pushed == 1 && !self.pingpong);
        many || (read.unacked_bytes > 0 && end && read.drained) || read.has_opened()
    }

    /// Called when the timer fires (`tcp_delack_timer_handler`). True if the delayed ACK was due:
    /// no response carried it. False if only the delay of compressed SACKs expired.
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

    /// Called when a segment was sent (`tcp_event_ack_sent`, `tcp_event_data_sent`). `scheduled` is
    /// true if there was something to acknowledge. True if SACK blocks were omitted and must still
    /// be sent.
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

/// Quick ACKs at the start, after a pause, and for old data or data beyond the window
/// (`TCP_MAX_QUICKACKS`; `tcp_data_queue`, `tcp_send_dupack`).
pub(super) const QUICK_MAX: u8 = 16;
/// Quick ACKs after a congestion mark (`tcp_data_ecn_check`).
pub(super) const QUICK_ECN: u8 = 2;
/// Linux's `TCP_ATO_MIN` and `TCP_DELACK_MIN`: HZ / 25.
const ATO_MIN: Duration = Duration::from_millis(40);
/// Linux's `TCP_DELACK_MAX`.
const DELAY_MAX: Duration = Duration::from_millis(200);
/// Limit of the delay while the sender streams: HZ / 2.
const DELAY_MAX_BULK: Duration = Duration::from_millis(500);
/// Pause after which the sender restarts. Linux uses the RTO of the other direction, which is 200
/// ms on a short path.
const RESTART: Duration = Duration::from_millis(200);
/// Linux's `TCP_MSS_DEFAULT` and `TCP_MIN_MSS`.
const MSS_DEFAULT: u32 = 536;
const MSS_MIN: u32 = 88;
