//! Tests of programs and groups, over 127.0.0.1.

mod common;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{client, exchange, exchange_of, limit, run_while, server, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_knobs::WorkloadSettings;
use tcpcost_stack::KernelStack;
use tcpcost_workload::Worker;

fn program(text: &str, more: &[(&str, &str)]) -> WorkloadSettings {
    let knobs = [("workload", "program"), ("program", text), ("flows", "3")];
    settings(&[&knobs[..], more].concat())
}

/// Programs with every operation, each with the payload bytes that a round sends and receives.
const PROGRAMS: [(&str, u64, u64); 9] = [
    (r#"[{ send = "1B" }, { receive = "1B" }]"#, 1, 1),
    (
        r#"[{ send = "200KiB" }, { receive = "300KiB" }]"#,
        204_800,
        307_200,
    ),
    (
        r#"[{ receive = "5B", count = 3 }, { send = "7B", count = 2 }]"#,
        14,
        15,
    ),
    (
        r#"[{ repeat = 3, do = [{ send = "10B" }, { repeat = 2, do = [{ receive = "4B" }] }] }, { send = "1B" }]"#,
        31,
        24,
    ),
    (
        r#"[{ send = "100B", with = "sendfile" }, { receive = "100B" }, { send = "50B" }, { think = "5us" }, { sleep = "5us" }]"#,
        150,
        100,
    ),
    (
        r#"[{ connect = {} }, { send = "300B" }, { receive = "70000B" }, { close = {} }]"#,
        300,
        70_000,
    ),
    (
        r#"[{ connect = {} }, { send = "10B", count = 5 }, { receive = "1B" }, { close = { by = "connector" } }]"#,
        50,
        1,
    ),
    (
        r#"[{ connect = {} }, { send = "9B" }, { repeat = "forever", do = [{ send = "3B" }, { receive = "2B" }] }]"#,
        3,
        2,
    ),
    (
        r#"[{ connect = {} }, { for = "1ms", do = [{ send = "3B" }, { receive = "2B" }] }, { think = "1us" }, { close = { by = "connector" } }]"#,
        3,
        2,
    ),
];

#[test]
fn both_ends_do_the_same_rounds_and_every_byte_is_the_one_sent() {
    for (text, sent, received) in PROGRAMS {
        println!("{text}");
        let settings = program(text, &[("check", "on"), ("nodelay", "on")]);
        let mut ends = exchange(&settings, 2, Q::Transactions, 30);
        let (client, server) = (ends.client.totals(), ends.server.totals());
        assert_eq!(
            client[&Q::PayloadBytesSent],
            server[&Q::PayloadBytesReceived]
        );
        let rounds = client[&Q::Transactions];
        assert!(client[&Q::PayloadBytesSent] >= rounds * sent, "{client:?}");
        assert!(
            client[&Q::PayloadBytesReceived] >= rounds * received,
            "{client:?}"
        );
        assert_eq!(
            server[&Q::PayloadBytesChecked],
            server[&Q::PayloadBytesReceived]
        );
        assert!(!server.contains_key(&Q::Transactions));
        let opens = text.contains("close");
        assert_eq!(client.contains_key(&Q::ConnectionsOpened), opens);
        let times = ends.client.take_response_times().unwrap();
        assert_eq!(times.len(), rounds);
        ends.client.close();
    }
}

#[test]
fn what_receives_nothing_has_rounds_and_no_responses() {
    let settings = program(r#"[{ send = "1MiB" }]"#, &[("check", "on")]);
    let mut ends = exchange(&settings, 1, Q::Transactions, 20);
    assert!(ends.client.take_response_times().is_none());
    let sent = ends.client.totals()[&Q::PayloadBytesSent];
    assert!(sent >= 20 << 20);
    assert_eq!(ends.server.totals()[&Q::PayloadBytesReceived], sent);
}

#[test]
fn both_ends_draw_the_same_sizes() {
    let text = r#"[{ send = ["1B", "20KiB"] }, { receive = ["100B", "3KiB"], count = 2 }]"#;
    let settings = program(text, &[("check", "on")]);
    let ends = exchange(&settings, 2, Q::Transactions, 200);
    let (client, server) = (ends.client.totals(), ends.server.totals());
    assert_eq!(
        client[&Q::PayloadBytesSent],
        server[&Q::PayloadBytesReceived]
    );
    let rounds = client[&Q::Transactions];
    let mean = client[&Q::PayloadBytesSent] / rounds;
    // Expected mean of 200 uniform draws up to 20 KiB: 10 KiB, with a standard error of 420 bytes.
    // The bounds are ten standard errors away.
    assert!((6_000..14_500).contains(&mean), "{mean}");
    let received = client[&Q::PayloadBytesReceived] / (2 * rounds);
    assert!((1_000..2_200).contains(&received), "{received}");
}

#[test]
fn thinking_and_sleeping_take_their_time_and_are_no_part_of_the_response() {
    let text = r#"[{ think = "300us" }, { send = "1B" }, { receive = "1B" }, { sleep = "2ms" }]"#;
    let settings = program(text, &[("flows", "1")]);
    let start = Instant::now();
    let mut ends = exchange(&settings, 1, Q::Transactions, 20);
    let spent = start.elapsed();
    let times = ends.client.take_response_times().unwrap();
    let idle = Duration::from_micros(2_300) * (times.len() as u32 - 1);
    let responses: u64 = times
        .iter_recorded()
        .map(|each| each.value_iterated_to() * each.count_at_value())
        .sum();
    assert!(idle < spent, "{spent:?}");
    // Histograms keep three digits.
    let most = (spent - idle).as_nanos() as u64;
    assert!(responses < most + most / 100, "{responses} of {most}");
}

#[test]
fn a_loops_rate_is_never_exceeded() {
    let text =
        r#"[{ repeat = 100, at_rate = "1000/s", do = [{ send = "1B" }, { receive = "1B" }] }]"#;
    let settings = program(text, &[("flows", "1")]);
    let start = Instant::now();
    let ends = exchange(&settings, 1, Q::PayloadBytesReceived, 50);
    let received = ends.client.totals()[&Q::PayloadBytesReceived];
    let at_most = start.elapsed().as_secs_f64() * 1000.0 + 1.0;
    assert!(received as f64 <= at_most, "{received} of {at_most}");
}

#[test]
fn rounds_have_a_rate_over_all_flows() {
    for text in [PROGRAMS[0].0, PROGRAMS[5].0] {
        let settings = program(text, &[("transaction_rate", "2000/s")]);
        let start = Instant::now();
        let ends = exchange(&settings, 1, Q::Transactions, 60);
        let rounds = ends.client.totals()[&Q::Transactions];
        let at_most = start.elapsed().as_secs_f64() * 2000.0 + 1.0;
        assert!(rounds as f64 <= at_most, "{rounds} of {at_most}");
    }
}

#[test]
fn groups_side_by_side_each_count_their_own() {
    let check = ("check", "on");
    let groups = [
        settings(&[
            ("workload", "rr"),
            ("flows", "3"),
            ("in_flight", "2"),
            check,
        ]),
        settings(&[("workload", "stream"), ("flows", "2"), check]),
        settings(&[
            ("workload", "crr"),
            ("flows", "2"),
            ("request_size", "20B"),
            check,
        ]),
        program(PROGRAMS[4].0, &[check]),
        program(PROGRAMS[5].0, &[check]),
        settings(&[("workload", "maerts"), ("send_with", "sendfile"), check]),
        settings(&[
            ("workload", "rr"),
            ("transaction_rate", "500/s"),
            ("flows", "2"),
        ]),
    ];
    let count = |group: usize| match group {
        1 => (Q::PayloadBytesSent, 100_000),
        5 => (Q::PayloadBytesReceived, 100_000),
        _ => (Q::Transactions, 20),
    };
    let mut ends = exchange_of(&groups, 2, |client| {
        (0..groups.len()).any(|group| {
            let (count, least) = count(group);
            client.group_totals(group)[&count] < least
        })
    });
    let mut sums = [0; 3];
    let counts = [
        Q::PayloadBytesSent,
        Q::PayloadBytesReceived,
        Q::Transactions,
    ];
    for group in 0..groups.len() {
        let (client, server) = (
            ends.client.group_totals(group),
            ends.server.group_totals(group),
        );
        if let Some(sent) = client.get(&Q::PayloadBytesSent) {
            assert_eq!(Some(sent), server.get(&Q::PayloadBytesReceived), "{group}");
        }
        for (sum, count) in sums.iter_mut().zip(counts) {
            *sum += client.get(&count).copied().unwrap_or(0);
        }
        let responses = ends.client.take_group_response_times(group);
        let transactions = client.get(&Q::Transactions).copied();
        assert_eq!(responses.map(|times| times.len()), transactions, "{group}");
    }
    let totals = ends.client.totals();
    assert_eq!(counts.map(|count| totals[&count]), sums);
}

/// Programs of several connections a flow, each with the payload bytes that a round sends and
/// receives.
const SEVERAL: [(&str, u64, u64); 3] = [
    (
        r#"[{ send = "300B", conn = 2 }, { receive = "400B", conn = 3 }, { receive = "7B" }]"#,
        300,
        407,
    ),
    (
        r#"[{ connect = {} }, { connect = { conn = 2 } }, { repeat = "forever", do = [{ send = "70000B" }, { receive = "5B", conn = 2, count = 2 }] }]"#,
        70_000,
        10,
    ),
    (
        r#"[{ accept = {} }, { accept = { conn = 2 } }, { repeat = "forever", do = [{ receive = "10B" }, { send = "20B", conn = 2 }] }]"#,
        10,
        20,
    ),
];

#[test]
fn a_flow_of_several_connections_does_one_program_on_all() {
    for (text, sent, received) in SEVERAL {
        println!("{text}");
        let settings = program(text, &[("check", "on")]);
        let each = settings.connections_each();
        assert!(each > 1);
        let ends = exchange(&settings, 2, Q::Transactions, 30);
        assert_eq!(ends.client.conns().count(), 3 * each);
        let (client, server) = (ends.client.totals(), ends.server.totals());
        let rounds = client[&Q::Transactions];
        // Each of the three flows may be within a round.
        let within = |bytes: u64, of_round: u64| {
            let least = rounds * of_round;
            (least..=least + 3 * of_round).contains(&bytes)
        };
        assert!(within(client[&Q::PayloadBytesSent], sent), "{client:?}");
        assert!(
            within(client[&Q::PayloadBytesReceived], received),
            "{client:?}"
        );
        assert_eq!(
            server[&Q::PayloadBytesChecked],
            client[&Q::PayloadBytesSent]
        );
    }
}

#[test]
fn the_side_that_accepts_takes_the_times_of_its_program() {
    let text = r#"[{ accept = {} }, { send = "10B" }, { receive = "2B" }, { close = {} }]"#;
    let mut ends = exchange(&program(text, &[]), 2, Q::Transactions, 30);
    assert!(ends.client.take_response_times().is_none());
    assert!(ends.client.take_operations(0).is_empty());
    let times = ends.server.take_response_times().unwrap();
    assert!(times.len() >= 27, "{}", times.len());
    // `accept` is an operation of the listener; send, receive and close are those of the
    // connection.
    let counts: Vec<u64> = ends
        .server
        .take_operations(0)
        .iter()
        .map(|one| one.times.len())
        .collect();
    assert_eq!(counts.len(), 4);
    assert_eq!(counts[0], 0, "an event loop does not wait for a connection");
    assert!(counts[1] >= counts[2] && counts[2] >= 27, "{counts:?}");
}

#[test]
fn connecting_alone_is_a_round() {
    for text in [
        "[{ connect = {} }, { close = {} }]",
        r#"[{ connect = {} }, { nop = {} }, { close = { by = "connector" } }]"#,
        "[{ accept = {} }, { close = {} }]",
    ] {
        let ends = exchange(&program(text, &[]), 2, Q::Transactions, 50);
        let totals = ends.client.totals();
        assert!(totals[&Q::ConnectionsOpened] >= 50, "{text}: {totals:?}");
    }
}

#[test]
fn each_operation_has_its_times() {
    let text = r#"[{ connect = {} }, { send = "10B", count = 3 }, { sleep = "1ms" }, { receive = "2B" }, { close = {} }]"#;
    let mut ends = exchange(&program(text, &[("flows", "1")]), 1, Q::Transactions, 20);
    let found = ends.client.take_operations(0);
    let counts: Vec<u64> = found.iter().map(|one| one.times.len()).collect();
    let rounds = ends.client.totals()[&Q::Transactions];
    assert_eq!(counts.len(), 4);
    for (count, of_round) in counts.iter().zip([1, 3, 1, 1]) {
        // The last round may be unfinished.
        let least = (rounds - 1) * of_round;
        assert!(
            (least..=least + 2 * of_round).contains(count),
            "{counts:?} of {rounds}"
        );
    }
    assert!(found.iter().all(|one| one.failed == 0));
    assert!(found.iter().all(|one| one.times.max() > 0));
    assert!(
        ends.client
            .take_operations(0)
            .iter()
            .all(|one| one.times.is_empty())
    );
    assert!(ends.server.take_operations(0).is_empty());
    // The five kinds record none: their loops do no extra work.
    let rr = settings(&[("workload", "rr")]);
    let mut ends = exchange(&rr, 1, Q::Transactions, 20);
    assert!(ends.client.take_operations(0).is_empty());
}

#[test]
fn the_other_side_sleeps_where_the_program_says_so() {
    // Only its own sleep limits the sender.
    let text = r#"[{ receive = "1B" }, { sleep = "2ms", at = "both" }]"#;
    let start = Instant::now();
    let ends = exchange(
        &program(text, &[("flows", "1")]),
        1,
        Q::PayloadBytesReceived,
        10,
    );
    let sent = ends.server.totals()[&Q::PayloadBytesSent];
    let at_most = start.elapsed().as_secs_f64() / 2e-3 + 1.0;
    assert!(sent as f64 <= at_most, "{sent} of {at_most}");
}

#[test]
fn a_connection_that_may_fail_is_counted_and_made_again() {
    let text = r#"[{ connect = { can_fail = true } }, { send = "1B" }, { receive = "1B" }, { close = {} }]"#;
    let settings = program(text, &[("flows", "1")]);
    let mut server = server(&settings, 1);
    let mut client = client(&settings, server.ports());
    let never = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| server.set_up(limit()).unwrap());
        client.set_up(limit()).unwrap();
    });
    std::thread::scope(|scope| {
        let stop = &never;
        let serving = scope.spawn(move || {
            run_while(&mut server, |totals| totals[&Q::PayloadBytesReceived] < 20).unwrap();
            // The listener is gone, and connected clients find a reset.
            server.close();
        });
        let limit = limit();
        let slice = |client: &mut Worker<KernelStack>| {
            assert!(Instant::now() < limit);
            let soon = Instant::now() + Duration::from_millis(2);
            client.run_until(soon, stop).unwrap();
        };
        while !serving.is_finished() {
            slice(&mut client);
        }
        serving.join().unwrap();
        let mut failed = 0;
        while failed < 20 {
            slice(&mut client);
            failed += client
                .take_operations(0)
                .iter()
                .map(|one| one.failed)
                .sum::<u64>();
        }
    });
}
