//! Tests of every kind of traffic by io_uring, over 127.0.0.1.

mod common;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{TOKEN, limit, settings};
use tcpcost_counts::Counts;
use tcpcost_counts::Quantity as Q;
use tcpcost_stack::{RingStack, uring_refusal};
use tcpcost_testbed::skip;
use tcpcost_workload::{Worker, socket_options};

static NEVER: AtomicBool = AtomicBool::new(false);

/// Runs both ends until each has done `least`, with as many buffers as `buffers` connections need.
/// Each end runs until the other is done too, because a stopped stack does not submit gathered
/// sends. Returns the counts of client and server.
fn exchange(knobs: &[(&str, &str)], buffers: usize, least: u64) -> Option<[Counts; 2]> {
    if let Some(reason) = uring_refusal() {
        skip(&reason);
        return None;
    }
    println!("{knobs:?}");
    let knobs = [&[("io", "io-uring")], knobs].concat();
    let (settings, limit) = (settings(&knobs), limit());
    let stack =
        || RingStack::new(&socket_options(&settings), buffers, settings.read_bytes).unwrap();
    let (addr, flows) = ([127, 0, 0, 1].into(), settings.flows);
    let server = Worker::listen(stack(), &settings, TOKEN, addr, 2, flows).unwrap();
    let targets = server.ports().to_vec();
    let client = Worker::connect(stack(), &settings, TOKEN, &targets, 0..flows, 1).unwrap();
    let [not_set_up, unfinished, running] = [2, 2, 2].map(AtomicUsize::new);
    let run = |mut worker: Worker<RingStack>| {
        worker.set_up(limit).unwrap();
        not_set_up.fetch_sub(1, Ordering::Relaxed);
        while not_set_up.load(Ordering::Relaxed) > 0 {
            worker.keep_up(Duration::from_millis(1)).unwrap();
        }
        let mut done = false;
        while unfinished.load(Ordering::Relaxed) > 0 {
            let totals = worker.totals();
            assert!(Instant::now() < limit, "{knobs:?}: {totals:?}");
            let soon = Instant::now() + Duration::from_millis(2);
            worker.run_until(soon, &NEVER).unwrap();
            let count = |quantity| totals.get(&quantity).copied();
            let seen = count(Q::Transactions)
                .or(count(Q::PayloadBytesReceived))
                .or(count(Q::PayloadBytesSent));
            if !done && seen.is_some_and(|seen| seen >= least) {
                done = true;
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        }
        // A worker that closes while its peer still runs would break the peer's connections.
        running.fetch_sub(1, Ordering::Relaxed);
        while running.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < limit, "{knobs:?}: the other end runs on");
            std::thread::yield_now();
        }
        let times = worker.take_response_times();
        let totals = worker.totals();
        assert_eq!(
            times.map(|times| times.len()),
            totals.get(&Q::Transactions).copied()
        );
        worker.close();
        totals
    };
    let [client, server] = std::thread::scope(|scope| {
        let server = scope.spawn(|| run(server));
        [run(client), server.join().unwrap()]
    });
    for (from, to) in [(&client, &server), (&server, &client)] {
        if let (Some(sent), Some(received)) = (
            from.get(&Q::PayloadBytesSent),
            to.get(&Q::PayloadBytesReceived),
        ) {
            assert!(received <= sent, "{knobs:?}: {received} of {sent}");
        }
        if let Some(checked) = to.get(&Q::PayloadBytesChecked) {
            let received = to[&Q::PayloadBytesReceived];
            // Requests of connections that do not stay open begin with the token, which is counted
            // separately.
            assert!(*checked > 0 && *checked <= received, "{knobs:?}");
        }
    }
    Some([client, server])
}

const CHECK: (&str, &str) = ("check", "on");

#[test]
fn each_kind_moves_what_was_sent() {
    let more = [
        ("flows", "3"),
        ("write_size", "20000B"),
        ("read_size", "3000B"),
        CHECK,
    ];
    for (kind, least) in [
        (&[("workload", "stream")][..], 2_000_000),
        (&[("workload", "maerts")], 2_000_000),
        (&[("workload", "bidirectional")], 2_000_000),
        (
            &[
                ("workload", "rr"),
                ("request_size", "30001B"),
                ("response_size", "777B"),
                ("in_flight", "3"),
            ],
            60,
        ),
        (
            &[
                ("workload", "crr"),
                ("request_size", "300B"),
                ("response_size", "50000B"),
            ],
            60,
        ),
        (&[("workload", "crr")], 60),
    ] {
        exchange(&[kind, &more].concat(), 3, least);
    }
}

#[test]
fn programs_are_done_as_written() {
    for program in [
        r#"[{ send = ["1B", "9KiB"], count = 2 }, { receive = "3B" }, { sleep = "10us" }]"#,
        r#"[{ connect = {} }, { for = "1ms", do = [{ send = "1B" }, { receive = "1B" }] }, { close = { by = "connector" } }]"#,
        r#"[{ connect = {} }, { send = "100KiB" }, { receive = "200KiB" }, { close = {} }]"#,
    ] {
        let knobs = [
            ("workload", "program"),
            ("program", program),
            ("flows", "3"),
            CHECK,
        ];
        exchange(&knobs, 3, 60);
    }
}

#[test]
fn sends_that_find_little_room_are_continued_where_they_stopped() {
    for kind in ["stream", "bidirectional", "rr"] {
        let knobs = [
            ("workload", kind),
            ("flows", "2"),
            ("write_size", "1MiB"),
            ("request_size", "1MiB"),
            ("response_size", "300000B"),
            ("send_buffer", "4608B"),
            ("receive_buffer", "4608B"),
            CHECK,
        ];
        let of_rr =
            |(name, _): &(&str, &str)| !name.ends_with("st_size") && !name.ends_with("se_size");
        match kind {
            "rr" => exchange(&knobs, 2, 4),
            _ => exchange(
                &knobs.into_iter().filter(of_rr).collect::<Vec<_>>(),
                2,
                4_000_000,
            ),
        };
    }
}

#[test]
fn more_connections_than_buffers_lose_nothing() {
    let knobs = [
        ("workload", "rr"),
        ("flows", "300"),
        ("request_size", "5000B"),
        ("response_size", "9000B"),
        ("read_size", "2000B"),
        CHECK,
    ];
    exchange(&knobs, 16, 3000);
}

#[test]
fn messages_cut_in_writes_and_marked_with_more_arrive_whole() {
    let knobs = [
        ("workload", "rr"),
        ("cork", "msg-more"),
        ("write_size", "7B"),
        ("request_size", "100B"),
        ("response_size", "50B"),
        ("nodelay", "on"),
        CHECK,
    ];
    if let Some([client, _]) = exchange(&knobs, 1, 20) {
        // 100 bytes in writes of 7 are 15 calls; the last message may be incomplete.
        let messages = client[&Q::PayloadBytesSent] / 100;
        assert!((messages * 15..messages * 15 + 15).contains(&client[&Q::SendCalls]));
    }
}
