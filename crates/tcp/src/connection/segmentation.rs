//! How much of the queued data the next segment takes: a pure function of what is known.

use std::time::Duration;

/// How to cut segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segmentation {
    /// Most payload bytes handed to the device at once; rounded down to whole segments, at least
    /// one. 0 or up to one segment: no segmentation offload. Default 65,160 (45 segments of 1448),
    /// and never more than fits an IP packet.
    pub super_segment_bytes_max: u32,
    /// What becomes of a partial segment at the end of a super-segment. Default [`TailRule::WithLast`].
    pub tail: TailRule,
    /// Whether a partial segment waits for the acknowledgement of others. Default [`Nagle::Minshall`].
    pub nagle: Nagle,
    /// Let the window open to this fraction before sending less than a whole super-segment, as
    /// Linux's `tcp_tso_win_divisor`; 0: send what fits. Default 0.
    pub window_divisor: u32,
    /// How long a corked partial segment waits at most. Default 200 ms as in Linux.
    pub cork_max: Duration,
}

/// What becomes of a partial segment behind full ones (Dumazet 2013).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TailRule {
    /// It leaves with the full ones unless Nagle's rule holds it: Linux since 3.14.
    WithLast,
    /// It always leaves by itself, after the full ones: before.
    OnItsOwn,
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
            tail: TailRule::WithLast,
            nagle: Nagle::Minshall,
            window_divisor: 0,
            cork_max: Duration::from_millis(200),
        }
    }
}

/// What the cut depends on, all in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Queue {
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
    pub(super) fn cut(&self, queue: &Queue) -> Cut {
        let mss = queue.mss.max(1);
        let ceiling = (self.super_segment_bytes_max.min(PAYLOAD_MAX) / mss).max(1) * mss;
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
        let wanted = queue.unsent.min(ceiling);
        let deferred = self.window_divisor > 0
            && queue.in_flight
            && full < wanted
            && full < queue.window / self.window_divisor;
        if deferred { Cut::Wait } else { Cut::Send(full) }
    }

    /// Everything unsent fits.
    fn cut_last(&self, queue: &Queue, full: u32, fits: u32, mss: u32) -> Cut {
        let partial = !fits.is_multiple_of(mss);
        let held = partial && !queue.flush && !queue.closed && self.holds_partial(queue);
        match (full, partial) {
            (0, true) if held && queue.corked => Cut::Corked,
            (0, true) if held => Cut::Wait,
            (0, true) => Cut::Send(fits),
            (_, true) if held || self.tail == TailRule::OnItsOwn => Cut::Send(full),
            _ if fits == 0 => Cut::Wait,
            _ => Cut::Send(fits),
        }
    }

    /// Less than a segment fits, and more is waiting.
    fn cut_short(&self, queue: &Queue, fits: u32) -> Cut {
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

    fn holds_partial(&self, queue: &Queue) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;

    const OPEN: Queue = Queue {
        unsent: 0,
        window_left: 1 << 20,
        window_max: 1 << 20,
        cwnd_left: 1 << 20,
        window: 1 << 20,
        mss: 1448,
        in_flight: false,
        small_in_flight: false,
        corked: false,
        closed: false,
        flush: false,
    };

    fn check(segmentation: Segmentation, queue: Queue, expected: Cut) {
        assert_eq!(
            segmentation.cut(&queue),
            expected,
            "{segmentation:?} {queue:?}"
        );
    }

    #[test]
    fn a_4096_byte_write_is_one_unit_today_and_was_two_before_2013() {
        let after = Segmentation::default();
        let before = Segmentation {
            tail: TailRule::OnItsOwn,
            ..after
        };
        let write = Queue {
            unsent: 4096,
            ..OPEN
        };
        check(after, write, Cut::Send(4096));
        check(before, write, Cut::Send(2896));
        check(
            before,
            Queue {
                unsent: 1200,
                in_flight: true,
                ..OPEN
            },
            Cut::Send(1200),
        );
    }

    #[test]
    fn a_partial_tail_stays_behind_while_another_partial_is_in_flight() {
        let queue = Queue {
            in_flight: true,
            small_in_flight: true,
            ..OPEN
        };
        let minshall = Segmentation::default();
        check(
            minshall,
            Queue {
                unsent: 4096,
                ..queue
            },
            Cut::Send(2896),
        );
        check(
            minshall,
            Queue {
                unsent: 1200,
                ..queue
            },
            Cut::Wait,
        );
        check(
            minshall,
            Queue {
                unsent: 1200,
                small_in_flight: false,
                ..queue
            },
            Cut::Send(1200),
        );
        check(
            minshall,
            Queue {
                unsent: 1200,
                flush: true,
                ..queue
            },
            Cut::Send(1200),
        );
        let classic = Segmentation {
            nagle: Nagle::Classic,
            ..minshall
        };
        check(
            classic,
            Queue {
                unsent: 1200,
                small_in_flight: false,
                ..queue
            },
            Cut::Wait,
        );
        let nodelay = Segmentation {
            nagle: Nagle::Off,
            ..minshall
        };
        check(
            nodelay,
            Queue {
                unsent: 1200,
                ..queue
            },
            Cut::Send(1200),
        );
        check(
            nodelay,
            Queue {
                unsent: 4096,
                ..queue
            },
            Cut::Send(4096),
        );
    }

    #[test]
    fn a_cork_cuts_the_tail_off_even_with_nodelay() {
        let nodelay = Segmentation {
            nagle: Nagle::Off,
            ..Segmentation::default()
        };
        check(
            nodelay,
            Queue {
                unsent: 4096,
                corked: true,
                ..OPEN
            },
            Cut::Send(2896),
        );
        check(
            nodelay,
            Queue {
                unsent: 1200,
                corked: true,
                ..OPEN
            },
            Cut::Corked,
        );
    }

    #[test]
    fn a_super_segment_is_whole_segments_up_to_the_ceiling() {
        let queue = Queue {
            unsent: 1 << 20,
            ..OPEN
        };
        check(Segmentation::default(), queue, Cut::Send(45 * 1448));
        let off = Segmentation {
            super_segment_bytes_max: 0,
            ..Segmentation::default()
        };
        check(off, queue, Cut::Send(1448));
        check(
            Segmentation::default(),
            Queue {
                cwnd_left: 5000,
                ..queue
            },
            Cut::Send(4344),
        );
    }

    #[test]
    fn silly_windows_are_left_alone() {
        let queue = Queue {
            unsent: 9000,
            in_flight: true,
            ..OPEN
        };
        check(
            Segmentation::default(),
            Queue {
                window_left: 1000,
                ..queue
            },
            Cut::WindowFull,
        );
        check(
            Segmentation::default(),
            Queue {
                window_left: 1000,
                window_max: 1800,
                ..queue
            },
            Cut::Send(1000),
        );
        check(
            Segmentation::default(),
            Queue {
                window_left: 1000,
                flush: true,
                ..queue
            },
            Cut::Send(1000),
        );
        check(
            Segmentation::default(),
            Queue {
                window_left: 0,
                flush: true,
                ..queue
            },
            Cut::WindowFull,
        );
        check(
            Segmentation::default(),
            Queue {
                cwnd_left: 1000,
                ..queue
            },
            Cut::CwndFull,
        );
    }

    #[test]
    fn a_divisor_waits_for_the_window_to_open() {
        let patient = Segmentation {
            window_divisor: 3,
            ..Segmentation::default()
        };
        let queue = Queue {
            unsent: 1 << 20,
            window: 30_000,
            in_flight: true,
            ..OPEN
        };
        check(
            patient,
            Queue {
                cwnd_left: 9000,
                ..queue
            },
            Cut::Wait,
        );
        check(
            patient,
            Queue {
                cwnd_left: 12_000,
                ..queue
            },
            Cut::Send(11_584),
        );
        check(
            patient,
            Queue {
                cwnd_left: 9000,
                in_flight: false,
                ..queue
            },
            Cut::Send(8688),
        );
    }
}
