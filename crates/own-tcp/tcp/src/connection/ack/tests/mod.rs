//! Tables of the decisions of each policy.

mod linux;
mod own;

use super::*;
use crate::time::ms;

const DELAY: Duration = Duration::from_millis(40);

/// Receiver of segments of 1000 bytes whose application reads all data at once.
struct Table {
    policy: AckPolicy,
    scheduler: AckScheduler,
    window_bytes: u32,
    unacked_bytes: u32,
    /// True if the units have PSH.
    push: bool,
    now_ms: u64,
}

impl Table {
    fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            scheduler: AckScheduler::default(),
            window_bytes: 1 << 20,
            unacked_bytes: 0,
            push: false,
            now_ms: 0,
        }
    }

    /// Receives a unit of `bytes`.
    fn unit(&mut self, bytes: u32) -> AckDecision {
        self.unacked_bytes += bytes;
        let arrival = Arrival {
            wire_segments: bytes.div_ceil(1000),
            bytes,
            segment_bytes: bytes.min(1000),
            push: self.push,
            full_segment_bytes: 1000,
            unacked_bytes: self.unacked_bytes,
            window_bytes: self.window_bytes,
            window_new: 1 << 20,
            srtt: None,
            now: ms(self.now_ms),
        };
        self.scheduler.on_segment(&self.policy, &arrival)
    }

    fn timer(&mut self, unacked_bytes: u32) -> bool {
        let now = ms(self.now_ms);
        self.scheduler
            .on_timer(&self.policy, unacked_bytes, 1000, now)
    }

    fn unacceptable(&mut self, unacceptable: Unacceptable) {
        self.scheduler
            .on_unacceptable(&self.policy, unacceptable, 1 << 20);
    }

    /// Sends what is due. Returns the number of segments that each acknowledgement covers.
    fn send(&mut self) -> Vec<u32> {
        let mut covered = Vec::new();
        loop {
            let step = self
                .scheduler
                .step_bytes(&self.policy, 1000)
                .filter(|step| *step < self.unacked_bytes);
            let whole = self.scheduler.is_whole();
            self.scheduler.on_sent(false, true, ms(self.now_ms));
            let bytes = step.unwrap_or(self.unacked_bytes);
            covered.push(bytes.div_ceil(1000));
            self.unacked_bytes -= bytes;
            let left = self.unacked_bytes;
            let more = step.is_some()
                && (self
                    .scheduler
                    .on_step(&self.policy, left, self.window_bytes, 1000)
                    || whole);
            if !more {
                return covered;
            }
        }
    }

    /// Receives `units` and returns the number of segments that each acknowledgement covers.
    fn run(&mut self, units: &[u32]) -> Vec<u32> {
        let mut covered = Vec::new();
        for bytes in units {
            if self.unit(*bytes) == AckDecision::Now {
                covered.extend(self.send());
            }
        }
        covered
    }
}

fn check(policy: AckPolicy, units: &[u32], expected: &[u32]) {
    assert_eq!(Table::new(policy).run(units), expected, "{policy:?}");
}

fn every(segments: u32) -> AckPolicy {
    AckPolicy::Every {
        segments,
        delay_max: DELAY,
    }
}

fn avoidance(limit_initial: u32, limit_max: u32) -> AckPolicy {
    AckPolicy::Avoidance {
        limit_initial,
        limit_max,
        delay_max: DELAY,
    }
}

#[test]
fn delayed_is_every_second_full_segment_and_every_super_segment() {
    let policy = AckPolicy::Delayed { delay_max: DELAY };
    check(
        policy,
        &[1000, 1000, 1000, 1000, 44_000, 1000, 1000],
        &[2, 2, 44, 2],
    );
    check(policy, &[500, 500, 500, 500], &[2]);
}

#[test]
fn on_push_is_delayed_but_for_a_segment_with_psh() {
    let policy = AckPolicy::OnPush { delay_max: DELAY };
    let mut table = Table::new(policy);
    assert_eq!(table.run(&[1000; 5]), [2, 2]);
    table.push = true;
    assert_eq!(table.run(&[300]), [2], "with the one that waited");
    assert_eq!(table.run(&[300, 1000, 1000]), [1, 1, 1]);
    assert_eq!(table.run(&[46_000]), [45, 1], "no part of it waits");
    let mut delayed = Table::new(AckPolicy::Delayed { delay_max: DELAY });
    delayed.push = true;
    assert_eq!(delayed.run(&[300, 1000, 1000]), [3]);
}

#[test]
fn no_ack_covers_more_than_kernel_senders_bear() {
    let (delay_max, late) = (DELAY, [500_000]);
    let delayed = AckPolicy::Delayed { delay_max };
    let requested = AckPolicy::Requested {
        segments: 8,
        delay_max,
    };
    let on_read = AckPolicy::OnRead {
        segments: 8,
        delay_max,
    };
    for policy in [delayed, requested, on_read, every(2)] {
        let covered = Table::new(policy).run(&late);
        assert_eq!(covered[..11], [45; 11], "{policy:?}");
        assert_eq!(covered[11..], [5], "{policy:?}");
    }
    // A policy that counts to more is not limited, and Linux has no such limit.
    check(every(64), &late, &[64; 7]);
    check(every(100), &late, &[100; 5]);
    check(AckPolicy::LinuxLike { delay_max }, &late, &[500]);
}

#[test]
fn every_counts_wire_segments_not_units() {
    check(every(8), &[1000; 17], &[8, 8]);
    check(every(8), &[3000; 6], &[9, 9]);
    check(every(1), &[1000, 44_000], &[1, 44]);
    check(every(2), &[1000, 300], &[2]);
}

#[test]
fn exactly_goes_on_within_a_super_segment() {
    let policy = AckPolicy::Exactly {
        segments: 2,
        delay_max: DELAY,
    };
    check(policy, &[5000, 1000, 1000], &[2, 2, 2]);
    check(policy, &[1000, 300], &[]);
}

#[test]
fn avoidance_grows_with_each_ack_that_it_causes() {
    check(avoidance(1, 22), &[1000; 10], &[1, 2, 3, 4]);
    check(avoidance(0, 22), &[1000; 7], &[1, 1, 2, 3]);
    check(avoidance(1, 3), &[1000; 12], &[1, 2, 3, 3, 3]);
    // Same result as if each segment had arrived alone.
    check(avoidance(1, 22), &[11_000, 4000], &[1, 2, 3, 4, 5]);
}

#[test]
fn avoidance_acknowledges_the_end_of_something() {
    let mut table = Table::new(avoidance(8, 8));
    assert_eq!(table.run(&[1000, 300]), []);
    assert_eq!(
        table.run(&[300]),
        [2],
        "a partial segment behind a partial one"
    );
    assert_eq!(table.run(&[1000; 8]), [8], "which does not move the limit");
}

#[test]
fn avoidance_is_not_moved_by_what_data_carries() {
    let mut table = Table::new(avoidance(3, 22));
    assert_eq!(table.run(&[1000, 1000]), []);
    table.scheduler.on_sent(true, true, ms(0));
    table.unacked_bytes = 0;
    assert_eq!(table.run(&[1000; 7]), [3, 4]);
}

#[test]
fn avoidance_falls_back_when_its_timer_fires() {
    let mut table = Table::new(avoidance(6, 8));
    table.run(&[1000; 5]);
    table.timer(5000);
    assert_eq!(table.send(), [5], "all of it");
    assert_eq!(
        table.run(&[1000; 34]),
        [2, 3, 4, 5, 6, 7, 7],
        "up to one less than before"
    );
    // One segment does not mean that the limit has overtaken the window.
    table.run(&[1000]);
    table.timer(1000);
    table.send();
    assert_eq!(table.run(&[1000; 7]), [7]);
}

#[test]
fn avoidance_begins_again_at_an_old_segment() {
    let mut table = Table::new(avoidance(6, 8));
    table.run(&[1000; 2]);
    table.unacceptable(Unacceptable::OldData);
    table.scheduler.on_mandatory();
    assert_eq!(table.send(), [2]);
    assert_eq!(table.run(&[1000; 3]), [1, 2]);
}

#[test]
fn a_request_is_followed_and_without_one_every_second() {
    let policy = AckPolicy::Requested {
        segments: 8,
        delay_max: DELAY,
    };
    let mut table = Table::new(policy);
    assert_eq!(table.run(&[1000; 4]), [2, 2]);
    table.scheduler.on_request(4);
    assert_eq!(table.run(&[1000; 9]), [4, 4]);
    table.scheduler.on_request(0);
    assert_eq!(table.run(&[1000]), [2]);
}

#[test]
fn none_but_linux_leaves_more_than_half_the_window() {
    let policies = [
        every(100),
        AckPolicy::Exactly {
            segments: 100,
            delay_max: DELAY,
        },
        avoidance(22, 22),
        AckPolicy::OnRead {
            segments: 64,
            delay_max: DELAY,
        },
    ];
    for policy in policies {
        let mut table = Table::new(policy);
        table.window_bytes = 8000;
        assert_eq!(table.run(&[1000; 9]), [4, 4], "{policy:?}");
    }
}

#[test]
fn the_odd_one_waits_for_the_delay() {
    let on_read = AckPolicy::OnRead {
        segments: 8,
        delay_max: DELAY,
    };
    let delayed = AckPolicy::Delayed { delay_max: DELAY };
    let on_push = AckPolicy::OnPush { delay_max: DELAY };
    for policy in [delayed, every(2), avoidance(2, 8), on_read, on_push] {
        let mut table = Table::new(policy);
        table.now_ms = 2;
        assert_eq!(table.unit(1000), AckDecision::By(ms(42)), "{policy:?}");
    }
}

fn on_read(policy: AckPolicy, window_known: u32, window_new: u32) -> AckDecision {
    let read = Read {
        unacked_bytes: 1,
        drained: false,
        window_known,
        window_new,
        buffer: 64_000,
        full_segment_bytes: 1000,
    };
    AckScheduler::default().on_read(&policy, &read)
}

#[test]
fn a_reopened_window_is_told_at_once_whatever_the_policy() {
    let delay_max = DELAY;
    for policy in [
        AckPolicy::Delayed { delay_max },
        AckPolicy::LinuxLike { delay_max },
        every(64),
        avoidance(22, 22),
        AckPolicy::OnRead {
            segments: 64,
            delay_max,
        },
        AckPolicy::OnPush { delay_max },
        AckPolicy::Requested {
            segments: 64,
            delay_max,
        },
    ] {
        assert_eq!(on_read(policy, 0, 1000), AckDecision::Now, "{policy:?}");
        assert_eq!(on_read(policy, 0, 999), AckDecision::Nothing, "{policy:?}");
        assert_eq!(
            on_read(policy, 40_000, 40_500),
            AckDecision::Nothing,
            "{policy:?}"
        );
    }
    let on_read_64 = AckPolicy::OnRead {
        segments: 64,
        delay_max,
    };
    assert_eq!(
        on_read(on_read_64, 1000, 2000),
        AckDecision::Nothing,
        "a window of one segment is open"
    );
}

#[test]
fn a_wider_window_is_told_when_it_has_doubled() {
    let delayed = AckPolicy::Delayed { delay_max: DELAY };
    let check = |known, new, expected| {
        assert_eq!(on_read(delayed, known, new), expected, "{known} to {new}");
    };
    check(10_000, 19_999, AckDecision::Nothing);
    check(10_000, 20_000, AckDecision::Now);
    check(40_000, 64_000, AckDecision::Nothing);
}

#[test]
fn a_read_of_two_segments_acknowledges() {
    let policy = AckPolicy::OnRead {
        segments: 64,
        delay_max: DELAY,
    };
    assert_eq!(on_read(policy, 60_000, 61_999), AckDecision::Nothing);
    assert_eq!(on_read(policy, 60_000, 62_000), AckDecision::Now);
    check(policy, &[1000; 10], &[]);
    check(policy, &[1000; 64], &[64]);
}

#[test]
fn avoidance_tells_of_a_window_that_holds_its_sender_back() {
    let tells = |known, new| on_read(avoidance(22, 22), known, new) == AckDecision::Now;
    assert!(tells(21_000, 22_000));
    assert!(!tells(21_000, 21_999));
    assert!(!tells(22_000, 64_000));
}
