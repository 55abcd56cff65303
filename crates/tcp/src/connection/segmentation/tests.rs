//! Each policy's decisions.

use super::*;

const OPEN: Queue = Queue {
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
        tail: TailRule::Split,
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
        window_divisor: Some(3),
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
