//! Each policy's decisions, as tables.

use super::*;
use crate::time::ms;

const DELAY: Duration = Duration::from_millis(40);

/// A receiver of segments of 1000 bytes whose reader takes all at once.
struct Table {
    policy: AckPolicy,
    scheduler: AckScheduler,
    window_bytes: u32,
    unacked_bytes: u32,
    now_ms: u64,
}

impl Table {
    fn new(policy: AckPolicy) -> Self {
        Self {
            policy,
            scheduler: AckScheduler::default(),
            window_bytes: 1 << 20,
            unacked_bytes: 0,
            now_ms: 0,
        }
    }

    /// A unit of so many bytes; an acknowledgement that is due leaves at once, step by step.
    fn unit(&mut self, bytes: u32) -> AckDecision {
        self.unacked_bytes += bytes;
        let arrival = Arrival {
            wire_segments: bytes.div_ceil(1000),
            bytes,
            segment_bytes: bytes.min(1000),
            push: false,
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

    fn nonsense(&mut self, nonsense: Nonsense) {
        self.scheduler.on_nonsense(&self.policy, nonsense, 1 << 20);
    }

    /// Sends what is due; the segments that each acknowledgement covers.
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

    /// The segments that each acknowledgement covers while units of so many bytes arrive.
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
    // As if each had come by itself.
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
    // One segment is not a sign of having overtaken.
    table.run(&[1000]);
    table.timer(1000);
    table.send();
    assert_eq!(table.run(&[1000; 7]), [7]);
}

#[test]
fn avoidance_begins_again_at_an_old_segment() {
    let mut table = Table::new(avoidance(6, 8));
    table.run(&[1000; 2]);
    table.nonsense(Nonsense::OldData);
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
    for policy in [delayed, every(2), avoidance(2, 8), on_read] {
        let mut table = Table::new(policy);
        table.now_ms = 2;
        assert_eq!(table.unit(1000), AckDecision::By(ms(42)), "{policy:?}");
    }
}

#[test]
fn linux_is_quick_at_first_and_then_waits_for_more_than_a_segment() {
    let policy = AckPolicy::LinuxLike {
        delay_max: Duration::from_millis(200),
    };
    let mut expected = vec![1; 16];
    expected.extend([2, 2]);
    check(policy, &[1000; 20], &expected);
    check(policy, &[44_000, 44_000], &[44, 44]);
}

#[test]
fn linux_has_fewer_quick_acks_for_a_small_window() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.window_bytes = 6000;
    assert_eq!(table.run(&[1000; 7]), [1, 1, 1, 2, 2]);
}

#[test]
fn linux_leaves_the_ack_to_a_reader_that_is_behind() {
    let policy = AckPolicy::LinuxLike { delay_max: DELAY };
    let mut table = Table::new(policy);
    table.run(&[1000; 16]);
    table.window_bytes = (1 << 20) + 1;
    assert!(matches!(table.unit(1000), AckDecision::By(_)));
    assert!(matches!(table.unit(1000), AckDecision::By(_)));
    let read = |unacked_bytes| Read {
        unacked_bytes,
        drained: false,
        window_known: 1 << 19,
        window_new: 1 << 19,
        buffer: 1 << 20,
        full_segment_bytes: 1000,
    };
    let decide = |table: &mut Table, bytes| table.scheduler.on_read(&policy, &read(bytes));
    assert_eq!(decide(&mut table, 2000), AckDecision::Now);
    assert_eq!(decide(&mut table, 1000), AckDecision::Nothing);
}

#[test]
fn linux_waits_for_the_answer_of_a_connection_that_goes_to_and_fro() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    assert_eq!(table.unit(1000), AckDecision::Now, "quick");
    table.scheduler.on_sent(true, true, ms(5));
    table.unacked_bytes = 0;
    table.now_ms = 10;
    assert_eq!(table.unit(1000), AckDecision::By(ms(50)), "pingpong");
    // Nobody answers: out of pingpong, and what is left of quick mode counts again.
    table.timer(1000);
    table.send();
    assert_eq!(table.unit(1000), AckDecision::Now);
}

#[test]
fn linux_adapts_its_timeout_to_the_time_between_segments() {
    let policy = AckPolicy::LinuxLike {
        delay_max: Duration::from_millis(200),
    };
    let mut table = Table::new(policy);
    table.scheduler.linux_like().pingpong = true;
    let mut wait = |at_ms| {
        table.now_ms = at_ms;
        let AckDecision::By(deadline) = table.unit(10) else {
            return 0;
        };
        table.scheduler.on_sent(false, true, ms(at_ms));
        table.unacked_bytes = 0;
        (deadline - ms(at_ms)).as_millis() as u64
    };
    assert_eq!(wait(0), 40, "at first");
    assert_eq!(wait(30), 50, "half of it and the 30 ms between them");
    assert_eq!(wait(70), 65);
    assert_eq!(wait(75), 52, "back towards 40 when they come close");
    assert_eq!(wait(76), 46);
}

#[test]
fn linux_is_quick_again_after_a_mark_or_a_duplicate() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.run(&[1000; 16]);
    assert!(matches!(table.unit(1000), AckDecision::By(_)));
    table.scheduler.on_congestion_mark(&table.policy, 1 << 20);
    assert_eq!(table.run(&[1000; 3]), [2, 1], "two of them");
    table.send();
    table.nonsense(Nonsense::OldData);
    assert_eq!(table.run(&[1000; 16]), [1; 16]);
}

#[test]
fn linux_is_quick_again_for_data_that_is_of_no_use_and_for_nothing_else() {
    for (nonsense, expected) in [
        (Nonsense::OldData, 1),
        (Nonsense::BeyondWindow, 1),
        (Nonsense::Other, 2),
    ] {
        let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
        table.run(&[1000; 16]);
        table.nonsense(nonsense);
        assert_eq!(table.run(&[1000; 2])[0], expected, "{nonsense:?}");
    }
}

#[test]
fn linux_counts_in_quick_mode_only_what_acknowledges_something() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.window_bytes = 6000; // Three quick ones.
    assert_eq!(table.run(&[1000]), [1]);
    // Requests, too late after what came to be answers to it.
    for _ in 0..5 {
        table.scheduler.on_sent(true, false, ms(150));
    }
    assert_eq!(table.run(&[1000; 4]), [1, 1, 2]);
}

#[test]
fn linux_believes_short_segments_when_two_follow_each_other() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.run(&[1000; 16]);
    assert_eq!(table.run(&[600, 1000]), [2]);
    assert_eq!(table.run(&[600]), [], "not in a row");
    table.send();
    assert_eq!(
        table.run(&[400, 300]),
        [],
        "700 bytes are no more than a segment"
    );
    assert_eq!(table.run(&[600]), [2]);
    assert_eq!(table.run(&[600]), [], "in a row");
    assert_eq!(table.run(&[300]), [1], "900 bytes are more than one of 600");
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

/// A receiver out of quick mode, of segments of 1000 bytes, behind a gap.
struct Behind {
    scheduler: AckScheduler,
    settings: LinuxAcks,
    nxt: u32,
    untold_ranges: usize,
}

impl Behind {
    fn new(settings: LinuxAcks) -> Self {
        let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
        table.run(&[1000; 16]);
        Self {
            scheduler: table.scheduler,
            settings,
            nxt: 1,
            untold_ranges: 1,
        }
    }

    fn decide(&mut self, unacked_bytes: u32, srtt: Option<Duration>) -> AckDecision {
        let gap = Gap {
            nxt: crate::SeqNum::new(self.nxt),
            segment_bytes: 1000,
            push: false,
            unacked_bytes,
            reader_keeps_up: true,
            untold_ranges: self.untold_ranges,
            srtt,
            now: ms(0),
        };
        let policy = AckPolicy::LinuxLike { delay_max: DELAY };
        let decision = self.scheduler.on_gap(&policy, &self.settings, &gap);
        if decision == AckDecision::Now {
            self.scheduler.on_sent(false, true, ms(0));
        }
        decision
    }

    /// What is decided about so many segments: Now, By a time, or nothing.
    fn run(&mut self, count: usize) -> String {
        let letter = |decision| match decision {
            AckDecision::Now => 'N',
            AckDecision::By(_) => 'B',
            AckDecision::Nothing => '-',
        };
        (0..count).map(|_| letter(self.decide(0, None))).collect()
    }
}

#[test]
fn behind_a_gap_linux_compresses_from_the_fourth_ack_on() {
    let mut behind = Behind::new(LinuxAcks::default());
    assert_eq!(behind.run(6), "NNNB--");
    assert!(
        behind.scheduler.on_sent(false, true, ms(1)),
        "they are told"
    );
    assert!(!behind.scheduler.on_sent(false, true, ms(1)), "once");
    assert_eq!(behind.run(3), "B--", "the three were for this gap");
    behind.nxt += 1000;
    assert_eq!(behind.run(5), "NNNB-", "another gap, or less of it");
}

#[test]
fn linux_leaves_out_so_many_acks_and_no_more() {
    let settings = |comp_sack_nr| LinuxAcks {
        comp_sack_nr,
        ..LinuxAcks::default()
    };
    assert_eq!(Behind::new(settings(2)).run(10), "NNNB-NB-NB");
    assert_eq!(Behind::new(settings(0)).run(6), "NNNNNN");
    let of_44 = Behind::new(LinuxAcks::default()).run(49);
    assert_eq!(of_44.rfind('N'), Some(3 + 44));
}

#[test]
fn compressed_acks_wait_for_a_share_of_the_round_trip() {
    let wait = |settings: LinuxAcks, srtt_us: u64| {
        let mut behind = Behind::new(settings);
        behind.run(3);
        match behind.decide(0, Some(Duration::from_micros(srtt_us))) {
            AckDecision::By(deadline) => (deadline - ms(0)).as_micros(),
            other => panic!("{other:?}"),
        }
    };
    let default = LinuxAcks::default();
    assert_eq!(wait(default, 10_000), 500 + 100, "5 % and the slack");
    assert_eq!(wait(default, 100_000), 1000 + 100, "1 ms at most");
    assert_eq!(wait(default, 0), 100);
    let third = LinuxAcks {
        comp_sack_rtt_percent: 33,
        comp_sack_delay: Duration::from_millis(5),
        comp_sack_slack: Duration::ZERO,
        ..default
    };
    assert_eq!(wait(third, 10_000), 3300);
}

#[test]
fn what_linux_acknowledges_at_once_it_does_not_compress() {
    let mut behind = Behind::new(LinuxAcks::default());
    assert_eq!(behind.run(4), "NNNB");
    behind.untold_ranges = 3;
    assert_eq!(behind.run(1), "N", "more than two ranges to tell");
    behind.untold_ranges = 1;
    assert_eq!(behind.run(1), "B");
    assert_eq!(
        behind.decide(1001, None),
        AckDecision::Now,
        "data before the gap"
    );
    let policy = AckPolicy::LinuxLike { delay_max: DELAY };
    behind
        .scheduler
        .on_nonsense(&policy, Nonsense::OldData, 1 << 20);
    assert_eq!(behind.run(18), "NNNNNNNNNNNNNNNNB-", "quick mode");
}

#[test]
fn the_timer_of_compressed_acks_says_nothing_about_answers() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.run(&[1000; 16]);
    assert_eq!(table.unit(1000), AckDecision::By(ms(40)));
    assert!(table.timer(1000), "nobody answered");
    let mut behind = Behind::new(LinuxAcks::default());
    assert_eq!(behind.run(4), "NNNB");
    let policy = AckPolicy::LinuxLike { delay_max: DELAY };
    assert!(!behind.scheduler.on_timer(&policy, 0, 1000, ms(1)));
}

#[test]
fn none_but_linux_waits_behind_a_gap() {
    for policy in [
        AckPolicy::Delayed { delay_max: DELAY },
        every(64),
        avoidance(8, 8),
    ] {
        let mut behind = Behind::new(LinuxAcks::default());
        behind.scheduler = AckScheduler::default();
        let gap = Gap {
            nxt: crate::SeqNum::new(1),
            segment_bytes: 1000,
            push: false,
            unacked_bytes: 0,
            reader_keeps_up: true,
            untold_ranges: 1,
            srtt: None,
            now: ms(0),
        };
        for _ in 0..8 {
            let decision = behind.scheduler.on_gap(&policy, &behind.settings, &gap);
            assert_eq!(decision, AckDecision::Now, "{policy:?}");
            assert!(behind.scheduler.is_whole());
        }
    }
}
