//! How much of the queued data the next segment takes: a pure function of what is known. Each
//! policy beside the plain cut has a file.

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

/// How to cut segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Most payload bytes handed to the device at once; rounded down to whole segments, at least
    /// one. 0 or up to one segment: no segmentation offload. Default 65,160 (45 segments of 1448),
    /// and never more than fits an IP packet.
    pub super_segment_bytes_max: u32,
    /// What becomes of a partial segment at the end of a super-segment. Default [`TailRule::Keep`].
    pub tail: TailRule,
    /// Whether a partial segment waits for the acknowledgement of others. Default [`Nagle::Minshall`].
    pub nagle: Nagle,
    /// Let the window open to this fraction before sending less than a whole super-segment, as
    /// Linux's `tcp_tso_win_divisor` (3 there); 0: to three segments. Default none: send what fits.
    pub window_divisor: Option<u32>,
    /// Send super-segments whole or not at all, as Linux did until 2.6.12; their size is then at
    /// most the congestion window over `window_divisor` (8 if none). Default no.
    pub whole_only: bool,
    /// Which rules bound a super-segment beside these choices. Default [`SegmentationRules::Plain`];
    /// [`Segmentation::linux`] has Linux's, with Linux's `window_divisor`.
    pub rules: SegmentationRules,
    /// Whether a timer spreads what is sent. Default [`Pacing::Off`].
    pub pacing: Pacing,
    /// Segments that pacing leaves a super-segment at least: Linux's `tcp_min_tso_segs`. Default 2.
    pub paced_segments_min: u32,
    /// How long a corked partial segment waits at most. Default 200 ms as in Linux.
    pub cork_max: Duration,
    /// A rule of another crate's that sends less of what these would. Default none.
    pub own: Option<OwnSegmentation>,
}

/// What bounds a super-segment, and where PSH is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentationRules {
    /// A super-segment takes what the windows leave, and PSH is where the queue ends.
    Plain,
    /// As Linux 6.18. A super-segment takes at most half the congestion window, so that two are in flight, and half of the
    /// largest window of the peer's (`tcp_cwnd_test`, `tcp_bound_to_half_wnd`). It takes no more than a millisecond of what
    /// pacing would send, more on short paths, and `paced_segments_min` at least, even where no timer paces
    /// (`tcp_tso_autosize`). Each has PSH, so that a receiver's offload hands on what it has at once.
    Linux,
}

/// Whether a partial segment waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Nagle {
    /// Never: TCP_NODELAY.
    Off,
    /// While another partial segment is unacknowledged (Minshall 1999): Linux.
    Minshall,
    /// While anything is unacknowledged (RFC 9293 §3.7.4).
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

/// What the cut depends on, all in bytes.
#[derive(Clone, Copy, Debug)]
pub struct SendView {
    /// Written and not sent.
    pub unsent: u32,
    /// Left of the peer's window.
    pub window_left: u32,
    /// Largest window the peer ever offered.
    pub window_max: u32,
    /// Left of the congestion window.
    pub cwnd_left: u32,
    /// Smaller of the two windows, whole.
    pub window: u32,
    /// Congestion window, whole.
    pub cwnd: u32,
    /// Payload bytes per second that pacing allows, or that super-segments are sized by.
    pub paced_rate: Option<u64>,
    /// The next ACK is expected so soon that it is worth waiting for.
    pub ack_is_near: bool,
    /// Payload of a full segment.
    pub mss: u32,
    /// Something is unacknowledged.
    pub in_flight: bool,
    /// A partial segment is unacknowledged.
    pub small_in_flight: bool,
    /// More was announced (MSG_MORE, TCP_CORK): keep partial segments.
    pub corked: bool,
    /// Nothing will follow (FIN): the last partial segment may leave.
    pub closed: bool,
    /// The wait is over: a partial segment may leave.
    pub flush: bool,
}

/// What to do with the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// Send so many bytes.
    Send(u32),
    /// An acknowledgement will change things.
    Wait,
    /// A corked partial segment waits for more, or for its time.
    Corked,
    /// The peer's window has no room for the next segment.
    WindowFull,
    /// The congestion window has none.
    CwndFull,
}

impl Segmentation {
    /// Linux 6.18's: its rules, and its default of `tcp_tso_win_divisor`, 3.
    pub fn linux() -> Self {
        Self {
            rules: SegmentationRules::Linux,
            window_divisor: Some(3),
            ..Self::default()
        }
    }

    /// Whether it has Linux's rules.
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

    /// Most bytes of a super-segment now: whole segments, at least one.
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

    /// Whether bytes that left together end what Nagle's rule calls a small segment.
    pub(super) fn is_small(&self, bytes: u32, queue: &SendView) -> bool {
        let mss = queue.mss.max(1);
        if self.whole_only {
            bytes < self.ceiling(queue, mss)
        } else {
            self.tail.is_small(bytes, mss)
        }
    }

    /// Everything unsent fits.
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

    /// Less than a segment fits, and more is waiting.
    fn cut_short(&self, queue: &SendView, fits: u32) -> Cut {
        if queue.window_left.min(queue.unsent) > queue.cwnd_left {
            return Cut::CwndFull;
        }
        // RFC 9293 §3.8.6.2.1 (3): half the largest window seen is worth sending; less waits for
        // the persist timer, the override.
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

/// A packet of 65,535 bytes less IPv6 and TCP headers with all their options.
const PAYLOAD_MAX: u32 = 65_535 - 100;
