//! Tests of the decisions of each policy.

use super::*;

const OPEN: SendView = SendView {
    unsent: 0,
    window_left: 1 << 20,
    window_max: 1 << 20,
    cwnd_left: 1 << 20,
    window: 1 << 20,
    cwnd: 1 << 20,
    paced_rate: None,
    ack_is_near: true,
    mss: 1448,
    in_flight: false,
    small_in_flight: false,
    corked: false,
    closed: false,
    flush: false,
};

/// Rule that sends at most two segments at once, and only while no more than four are in flight.
#[derive(Debug)]
struct Pairs;

impl OwnCut for Pairs {
    fn cut(&self, bytes: u32, view: &SendView) -> u32 {
        if view.cwnd - view.cwnd_left > 4 * view.mss {
            0
        } else {
            bytes.min(2 * view.mss + 1)
        }
    }
}

#[test]
fn a_rule_of_somebody_elses_sends_less_in_whole_segments_and_cannot_stop_the_last() {
    let own = Segmentation {
        own: Some(OwnSegmentation(&Pairs)),
        ..Segmentation::default()
    };
    let unsent = |unsent, in_flight| SendView {
        unsent,
        in_flight: in_flight > 0,
        cwnd_left: OPEN.cwnd - in_flight,
        ..OPEN
    };
    check(own, unsent(100_000, 0), Cut::Send(2896));
    check(own, unsent(100, 0), Cut::Send(100));
    check(own, unsent(1500, 0), Cut::Send(1500));
    check(own, unsent(100_000, 5 * 1448), Cut::Wait);
    let stuck = SendView {
        in_flight: false,
        ..unsent(100_000, 5 * 1448)
    };
    check(own, stuck, Cut::Send(1448));
}

fn check(segmentation: Segmentation, queue: SendView, expected: Cut) {
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
        tail: TailRule::Split,
        ..after
    };
    let write = SendView {
        unsent: 4096,
        ..OPEN
    };
    check(after, write, Cut::Send(4096));
    check(before, write, Cut::Send(2896));
    check(
        before,
        SendView {
            unsent: 1200,
            in_flight: true,
            ..OPEN
        },
        Cut::Send(1200),
    );
}

#[test]
fn a_partial_tail_stays_behind_while_another_partial_is_in_flight() {
    let queue = SendView {
        in_flight: true,
        small_in_flight: true,
        ..OPEN
    };
    let minshall = Segmentation::default();
    check(
        minshall,
        SendView {
            unsent: 4096,
            ..queue
        },
        Cut::Send(2896),
    );
    check(
        minshall,
        SendView {
            unsent: 1200,
            ..queue
        },
        Cut::Wait,
    );
    check(
        minshall,
        SendView {
            unsent: 1200,
            small_in_flight: false,
            ..queue
        },
        Cut::Send(1200),
    );
    check(
        minshall,
        SendView {
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
        SendView {
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
        SendView {
            unsent: 1200,
            ..queue
        },
        Cut::Send(1200),
    );
    check(
        nodelay,
        SendView {
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
        SendView {
            unsent: 4096,
            corked: true,
            ..OPEN
        },
        Cut::Send(2896),
    );
    check(
        nodelay,
        SendView {
            unsent: 1200,
            corked: true,
            ..OPEN
        },
        Cut::Corked,
    );
}

#[test]
fn a_super_segment_is_whole_segments_up_to_the_ceiling() {
    let queue = SendView {
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
        SendView {
            cwnd_left: 5000,
            ..queue
        },
        Cut::Send(4344),
    );
}

#[test]
fn silly_windows_are_left_alone() {
    let queue = SendView {
        unsent: 9000,
        in_flight: true,
        ..OPEN
    };
    check(
        Segmentation::default(),
        SendView {
            window_left: 1000,
            ..queue
        },
        Cut::WindowFull,
    );
    check(
        Segmentation::default(),
        SendView {
            window_left: 1000,
            window_max: 1800,
            ..queue
        },
        Cut::Send(1000),
    );
    check(
        Segmentation::default(),
        SendView {
            window_left: 1000,
            flush: true,
            ..queue
        },
        Cut::Send(1000),
    );
    check(
        Segmentation::default(),
        SendView {
            window_left: 0,
            flush: true,
            ..queue
        },
        Cut::WindowFull,
    );
    check(
        Segmentation::default(),
        SendView {
            cwnd_left: 1000,
            ..queue
        },
        Cut::CwndFull,
    );
}

#[test]
fn a_divisor_waits_for_the_window_to_open() {
    let patient = Segmentation {
        window_divisor: Some(3),
        ..Segmentation::default()
    };
    let queue = SendView {
        unsent: 1 << 20,
        window: 30_000,
        in_flight: true,
        ..OPEN
    };
    check(
        patient,
        SendView {
            cwnd_left: 9000,
            ..queue
        },
        Cut::Wait,
    );
    check(
        patient,
        SendView {
            cwnd_left: 12_000,
            ..queue
        },
        Cut::Send(11_584),
    );
    check(
        patient,
        SendView {
            cwnd_left: 9000,
            in_flight: false,
            ..queue
        },
        Cut::Send(8688),
    );
}

#[test]
fn two_super_segments_are_in_a_window_that_is_halved() {
    let half = Segmentation {
        rules: SegmentationRules::Linux,
        ..Segmentation::default()
    };
    let queue = |segments: u32| SendView {
        unsent: 100_000,
        mss: 1000,
        cwnd: segments * 1000,
        cwnd_left: segments * 1000,
        ..OPEN
    };
    check(half, queue(10), Cut::Send(5000));
    check(half, queue(7), Cut::Send(3000));
    check(half, queue(1), Cut::Send(1000));
    let narrow = SendView {
        window_max: 5840,
        ..queue(10)
    };
    check(half, narrow, Cut::Send(2000));
    check(Segmentation::default(), queue(10), Cut::Send(10_000));
}
