//! Tests of `linux-like`: quick-ACK mode, pingpong, the adaptive delay, and compression after a
//! gap.

use super::*;

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
    // No response: pingpong ends and the remaining quick ACKs count again.
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
    table.unacceptable(Unacceptable::OldData);
    assert_eq!(table.run(&[1000; 16]), [1; 16]);
}

#[test]
fn linux_is_quick_again_for_data_that_is_of_no_use_and_for_nothing_else() {
    for (unacceptable, expected) in [
        (Unacceptable::OldData, 1),
        (Unacceptable::BeyondWindow, 1),
        (Unacceptable::Other, 2),
    ] {
        let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
        table.run(&[1000; 16]);
        table.unacceptable(unacceptable);
        assert_eq!(table.run(&[1000; 2])[0], expected, "{unacceptable:?}");
    }
}

#[test]
fn linux_counts_in_quick_mode_only_what_acknowledges_something() {
    let mut table = Table::new(AckPolicy::LinuxLike { delay_max: DELAY });
    table.window_bytes = 6000; // Three quick ACKs.
    assert_eq!(table.run(&[1000]), [1]);
    // Requests, too late to be responses to the segment before.
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

/// Receiver after a gap, out of quick-ACK mode, with segments of 1000 bytes.
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

    /// Decisions about `count` segments as letters: N for `Now`, B for `By`, - for `Nothing`.
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
        .on_unacceptable(&policy, Unacceptable::OldData, 1 << 20);
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
