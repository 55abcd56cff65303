//! Segmentation: how much of the queued data the next segment takes, as a pure function of a
//! [`SendView`]. Each policy other than the plain cut has a file.

mod defer;
mod own;
mod pacing;
mod tail;
mod whole;

#[cfg(test)]
mod tests;

use std::time::Duration;

pub use own::{OwnCut, OwnSegmentation};
pub use pacing::Pacing;
pub use tail::TailRule;

/// Rules for cutting the stream into segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Limit of payload bytes passed to the device at once, rounded down to whole segments, at
    /// least one. 0 to one segment: no segmentation offload. Default 65,160 (45 segments of 1448).
    /// The payload of an IP packet is a further limit.
    pub super_segment_bytes_max: u32,
    /// Treatment of a partial segment at the end of a super-segment. Default [`TailRule::Keep`].
    pub tail: TailRule,
    /// Condition under which a partial segment waits for an acknowledgement. Default
    /// [`Nagle::Minshall`].
    pub nagle: Nagle,
    /// Wait until the window divided by this number is free before sending less than a whole
    /// super-segment, as Linux's `tcp_tso_win_divisor` (3 in Linux). 0: wait until more than three
    /// segments fit. Default `None`: send what fits.
    pub window_divisor: Option<u32>,
    /// Send only whole super-segments, as Linux did until 2.6.12. Their size is then at most the
    /// congestion window divided by `window_divisor` (8 if `None`). Default false.
    pub whole_only: bool,
    /// Further limits of a super-segment. Default [`SegmentationRules::Plain`].
    /// [`Segmentation::linux`] has Linux's rules and Linux's `window_divisor`.
    pub rules: SegmentationRules,
    /// Pacing of new data by a timer. Default [`Pacing::Off`].
    pub pacing: Pacing,
    /// Minimum of segments in a super-segment that pacing or Linux's rules limit (Linux's
    /// `tcp_min_tso_segs`). Default 2.
    pub paced_segments_min: u32,
    /// Longest wait of a corked partial segment. Default 200 ms as in Linux.
    pub cork_max: Duration,
    /// Rule of another crate that may send less than the built-in rules. Default `None`.
    pub own: Option<OwnSegmentation>,
}

/// Limits of a super-segment, and segments that carry PSH.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationRules {
    /// A super-segment takes what the windows leave; PSH is set at the end of the queue.
    Plain,
    /// Linux 6.18. A super-segment takes at most half the congestion window, so that two are in
    /// flight, and at most half of the peer's largest window (`tcp_cwnd_test`,
    /// `tcp_bound_to_half_wnd`). It takes at most what the pacing rate sends in a millisecond, more
    /// on short paths, but at least `paced_segments_min`, even if no timer paces
    /// (`tcp_tso_autosize`). Each super-segment has PSH, so that the receiver's offload delivers it
    /// at once.
    Linux,
}

/// Condition under which a partial segment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nagle {
    /// Never waits: TCP_NODELAY.
    Off,
    /// Waits while another partial segment is unacknowledged (Minshall 1999), as in Linux.
    Minshall,
    /// Waits while any data is unacknowledged (RFC 9293 §3.7.4).
    Classic,
}

impl Default for Segmentation {
    fn default() -> Self {
        Self {
            super_segment_bytes_max: 65_160,
            tail: TailRule::Keep,
            nagle: Nagle::Minshall,
            window_divisor: None,
            whole_only: false,
            rules: SegmentationRules::Plain,
            pacing: Pacing::Off,
            paced_segments_min: 2,
            cork_max: Duration::from_millis(200),
            own: None,
        }
    }
}

/// Inputs of the decision how much to send. Sizes in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SendView {
    /// Bytes written and not sent.
    pub unsent: u32,
    /// Free part of the peer's window.
    pub window_left: u32,
    /// Largest window that the peer ever offered.
    pub window_max: u32,
    /// Free part of the congestion window.
    pub cwnd_left: u32,
    /// Smaller of the peer's window and the congestion window, including the used part.
    pub window: u32,
    /// Congestion window, including the used part.
    pub cwnd: u32,
    /// Payload bytes per second that pacing allows, or that determine the size of super-segments;
    /// `None` if there is no such rate.
    pub paced_rate: Option<u64>,
    /// True if the next ACK is expected so soon that waiting for it is worth while.
    pub ack_is_near: bool,
    /// Payload of a full-sized segment.
    pub mss: u32,
    /// True if data is unacknowledged.
    pub in_flight: bool,
    /// True if a partial segment is unacknowledged.
    pub small_in_flight: bool,
    /// True if more data was announced (MSG_MORE, TCP_CORK): partial segments wait.
    pub corked: bool,
    /// True if nothing follows the queue (FIN): its last partial segment may leave.
    pub closed: bool,
    /// True if the wait is over: a partial segment may leave.
    pub flush: bool,
}

/// Decision about the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Send this many bytes.
    Send(u32),
    /// Wait for an acknowledgement.
    Wait,
    /// Hold a corked partial segment until more data comes or its time is over.
    Corked,
    /// The peer's window has no room for the next segment.
    WindowFull,
    /// The congestion window has no room for the next segment.
    CwndFull,
}

impl Segmentation {
    /// Segmentation of Linux 6.18: its rules, and its default `tcp_tso_win_divisor` of 3.
    pub fn linux() -> Self {
        Self {
            rules: SegmentationRules::Linux,
            window_divisor: Some(3),
            ..Self::default()
        }
    }

    /// True for [`SegmentationRules::Linux`].
    pub(super) fn is_linux(&self) -> bool {
        self.rules == SegmentationRules::Linux
    }

    pub(super) fn cut(&self, queue: &SendView) -> Cut {
        match (self.plain_cut(queue), self.own) {
            (Cut::Send(bytes), Some(own)) => own.cut(bytes, queue),
            (cut, _) => cut,
        }
    }

    #[inline]
    fn plain_cut(&self, queue: &SendView) -> Cut {
        let mss = queue.mss.max(1);
        let ceiling = self.ceiling(queue, mss);
        if self.whole_only
            && let Some(cut) = self.cut_whole(queue, ceiling)
        {
            return cut;
        }
        let fits = queue
            .unsent
            .min(queue.window_left)
            .min(queue.cwnd_left)
            .min(ceiling);
        let full = fits - fits % mss;
        if fits == queue.unsent {
            return self.cut_last(queue, full, fits, mss);
        }
        if full == 0 {
            return self.cut_short(queue, fits);
        }
        if self.defers(queue, full, ceiling) {
            Cut::Wait
        } else {
            Cut::Send(full)
        }
    }

    /// Current limit of a super-segment in bytes: whole segments, at least one.
    fn ceiling(&self, queue: &SendView, mss: u32) -> u32 {
        let mut bytes = self.super_segment_bytes_max.min(PAYLOAD_MAX);
        if let Some(rate) = queue.paced_rate {
            bytes = bytes.min(self.paced_bytes_max(rate, mss));
        }
        if self.whole_only {
            bytes = self.whole_bytes(bytes, queue.window_max, queue.cwnd);
        }
        if self.is_linux() {
            bytes = bytes.min(queue.cwnd / 2).min(queue.window_max / 2);
        }
        (bytes / mss).max(1) * mss
    }

    /// True if `bytes` sent together end in a small segment by Nagle's rule.
    pub(super) fn is_small(&self, bytes: u32, queue: &SendView) -> bool {
        let mss = queue.mss.max(1);
        if self.whole_only {
            bytes < self.ceiling(queue, mss)
        } else {
            self.tail.is_small(bytes, mss)
        }
    }

    /// Decides when all unsent data fits.
    fn cut_last(&self, queue: &SendView, full: u32, fits: u32, mss: u32) -> Cut {
        let partial = !fits.is_multiple_of(mss);
        let held = partial && !queue.flush && !queue.closed && self.holds_partial(queue);
        match (full, partial) {
            (0, true) if held && queue.corked => Cut::Corked,
            (0, true) if held => Cut::Wait,
            (0, true) => Cut::Send(fits),
            (_, true) if self.tail.splits(held) => Cut::Send(full),
            _ if fits == 0 => Cut::Wait,
            _ => Cut::Send(fits),
        }
    }

    /// Decides when less than a segment fits and more data is waiting.
    fn cut_short(&self, queue: &SendView, fits: u32) -> Cut {
        if queue.window_left.min(queue.unsent) > queue.cwnd_left {
            return Cut::CwndFull;
        }
        // RFC 9293 §3.8.6.2.1 (3): half the largest window seen is worth sending; less waits for
        // the override timeout (the persist timer).
        let worth = fits > 0 && fits >= queue.window_max / 2;
        if worth || (fits > 0 && queue.flush) {
            Cut::Send(fits)
        } else {
            Cut::WindowFull
        }
    }

    fn holds_partial(&self, queue: &SendView) -> bool {
        queue.corked
            || match self.nagle {
                Nagle::Off => false,
                Nagle::Minshall => queue.small_in_flight,
                Nagle::Classic => queue.in_flight,
            }
    }
}

/// Payload of a packet of 65,535 bytes, less IPv6 and TCP headers with all options.
const PAYLOAD_MAX: u32 = 65_535 - 100;
