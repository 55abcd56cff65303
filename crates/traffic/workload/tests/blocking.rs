//! Tests of workers with a thread for each connection, over 127.0.0.1.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{TOKEN, limit, settings};
use tcpcost_counts::Counts;
use tcpcost_counts::Quantity as Q;
use tcpcost_knobs::WorkloadSettings;
use tcpcost_stack::{KernelStack, Stack};
use tcpcost_workload::{Worker, WorkloadError, socket_options};

/// Counter of threads that were started.
#[derive(Clone, Default)]
struct Started(Arc<AtomicUsize>);

impl Started {
    fn worker<S: Stack>(&self, worker: Worker<S>) -> Worker<S> {
        let started = Arc::clone(&self.0);
        worker.with_threads(Arc::new(move |_| {
            started.fetch_add(1, Ordering::Relaxed);
        }))
    }
}

fn blocking(knobs: &[(&str, &str)]) -> WorkloadSettings {
    settings(&[&[("io", "blocking-threads"), ("flows", "3")], knobs].concat())
}

fn stack(settings: &WorkloadSettings) -> KernelStack {
    KernelStack::new(&socket_options(settings)).unwrap()
}

/// Runs both ends while `more` is true of the client's counts, then the server until it has
/// received what the client sent.
fn exchange(
    settings: &WorkloadSettings,
    more: impl Fn(&Counts) -> bool,
) -> [Worker<KernelStack>; 2] {
    let (addr, flows, started) = ([127, 0, 0, 1].into(), settings.flows, Started::default());
    let server = Worker::listen(stack(settings), settings, TOKEN, addr, 2, flows).unwrap();
    let targets = server.ports().to_vec();
    let client = Worker::connect(stack(settings), settings, TOKEN, &targets, 0..flows, 1).unwrap();
    let (mut server, mut client) = (started.worker(server), started.worker(client));
    let never = AtomicBool::new(false);
    let sent = AtomicU64::new(u64::MAX);
    let slice = |worker: &mut Worker<KernelStack>| {
        worker.run_until(Instant::now() + Duration::from_millis(5), &never)
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.set_up(limit()).unwrap();
            while sent.load(Ordering::Acquire) == u64::MAX {
                slice(&mut server).unwrap();
            }
        });
        client.set_up(limit()).unwrap();
        let limit = limit();
        while more(&client.totals()) {
            assert!(Instant::now() < limit, "{:?}", client.totals());
            slice(&mut client).unwrap();
        }
        sent.store(0, Ordering::Release);
    });
    assert_eq!(started.0.load(Ordering::Relaxed), 2 * flows);
    [client, server]
}

/// The ends of a trial stop by different clocks; on a busy machine one end may stop later than the
/// other.
#[test]
fn connections_of_an_end_that_has_stopped_stay_for_the_other() {
    for by in ["listener", "connector"] {
        let program = format!(
            r#"[{{ connect = {{}} }}, {{ send = "90B" }}, {{ receive = "90B" }}, {{ close = {{ by = "{by}" }} }}]"#
        );
        let settings = blocking(&[("workload", "program"), ("program", &program)]);
        let (addr, flows, started) = ([127, 0, 0, 1].into(), settings.flows, Started::default());
        let server = Worker::listen(stack(&settings), &settings, TOKEN, addr, 1, flows).unwrap();
        let targets = server.ports().to_vec();
        let client = Worker::connect(stack(&settings), &settings, TOKEN, &targets, 0..flows, 1);
        let (mut server, mut client) = (started.worker(server), started.worker(client.unwrap()));
        let (never, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                client.set_up(limit()).unwrap();
                client.run_until(limit(), &is_over).unwrap();
            });
            server.set_up(limit()).unwrap();
            let limit = limit();
            let slice = |server: &mut Worker<KernelStack>| {
                server.run_until(Instant::now() + Duration::from_millis(5), &never)
            };
            while server.totals()[&Q::PayloadBytesReceived] < 9000 {
                assert!(Instant::now() < limit, "{:?}", server.totals());
                slice(&mut server).unwrap();
            }
            server.end_traffic();
            // Three times the longest time that a thread of the server may take to stop.
            server
                .run_until(Instant::now() + Duration::from_millis(300), &never)
                .unwrap();
            is_over.store(true, Ordering::Relaxed);
        });
    }
}

#[test]
fn each_kind_moves_what_was_sent() {
    let check = ("check", "on");
    for (knobs, count, least) in [
        (
            &[("workload", "stream"), check][..],
            Q::PayloadBytesSent,
            1_000_000,
        ),
        (
            &[("workload", "maerts"), check],
            Q::PayloadBytesReceived,
            1_000_000,
        ),
        (
            &[("workload", "rr"), ("response_size", "100000B"), check],
            Q::Transactions,
            50,
        ),
        (
            &[("workload", "crr"), ("request_size", "300B"), check],
            Q::Transactions,
            50,
        ),
        (
            &[
                ("workload", "program"),
                (
                    "program",
                    r#"[{ send = ["1B", "9KiB"], count = 2 }, { receive = "3B" }, { sleep = "10us" }]"#,
                ),
                check,
            ],
            Q::Transactions,
            50,
        ),
        (
            &[
                ("workload", "program"),
                (
                    "program",
                    r#"[{ connect = {} }, { for = "1ms", do = [{ send = "1B" }, { receive = "1B" }] }, { close = { by = "connector" } }]"#,
                ),
                check,
            ],
            Q::Transactions,
            50,
        ),
        (
            &[
                ("workload", "program"),
                (
                    "program",
                    r#"[{ connect = {} }, { connect = { conn = 2 } }, { repeat = "forever", do = [{ send = "9KiB" }, { receive = "3B", conn = 2 }] }]"#,
                ),
                check,
            ],
            Q::Transactions,
            50,
        ),
        (
            &[
                ("workload", "program"),
                (
                    "program",
                    r#"[{ accept = {} }, { send = "5B" }, { think = "1us", at = "both" }, { receive = "30B" }, { close = {} }]"#,
                ),
                check,
            ],
            Q::Transactions,
            50,
        ),
    ] {
        println!("{knobs:?}");
        let settings = blocking(knobs);
        let [mut client, server] = exchange(&settings, |totals| totals[&count] < least);
        let totals = client.totals();
        let checked = totals.get(&Q::PayloadBytesChecked).copied().unwrap_or(0);
        assert!(checked <= totals.get(&Q::PayloadBytesReceived).copied().unwrap_or(0));
        let checked = checked
            + server
                .totals()
                .get(&Q::PayloadBytesChecked)
                .copied()
                .unwrap_or(0);
        assert!(checked > 0);
        let rounds = totals.get(&Q::Transactions).copied();
        assert_eq!(rounds.is_some(), count == Q::Transactions);
        if let Some(times) = client.take_response_times() {
            assert!(times.len() >= 50);
        }
        // One after the other: neither may hang alone.
        client.close();
        server.close();
    }
}

#[test]
fn a_rate_is_never_exceeded() {
    let settings = blocking(&[("workload", "rr"), ("transaction_rate", "1000/s")]);
    let start = Instant::now();
    let [client, server] = exchange(&settings, |totals| totals[&Q::Transactions] < 50);
    let rounds = client.totals()[&Q::Transactions];
    // Each connection has its own period, and one extra round at its start.
    let at_most = start.elapsed().as_secs_f64() * 1000.0 + 3.0;
    assert!(rounds as f64 <= at_most, "{rounds} of {at_most}");
    client.close();
    server.close();
}

#[test]
fn a_peer_that_is_gone_is_an_error() {
    let settings = blocking(&[("workload", "rr")]);
    let [mut client, server] = exchange(&settings, |totals| totals[&Q::Transactions] < 5);
    server.close();
    let never = AtomicBool::new(false);
    let error = client.run_until(limit(), &never).unwrap_err();
    assert!(
        matches!(
            error,
            WorkloadError::PeerClosed { .. } | WorkloadError::Connection { .. }
        ),
        "{error}"
    );
    client.close();
}

#[test]
fn the_author_alone_times_its_operations() {
    for (text, author, operations) in [
        (
            r#"[{ connect = {} }, { send = "1B" }, { receive = "2B", count = 2 }, { close = {} }]"#,
            0,
            4,
        ),
        (
            r#"[{ accept = {} }, { receive = "1B" }, { send = "2B" }, { close = {} }]"#,
            1,
            4,
        ),
        (
            r#"[{ accept = {} }, { repeat = "forever", do = [{ receive = "1B" }, { send = "2B" }] }]"#,
            1,
            2,
        ),
    ] {
        println!("{text}");
        let settings = blocking(&[("workload", "program"), ("program", text)]);
        let mut ends = exchange(&settings, |totals| totals[&Q::Transactions] < 50);
        let found = ends[author].take_operations(0);
        assert_eq!(found.len(), operations);
        // At most three rounds are unfinished at the listener.
        assert!(found.iter().all(|one| one.times.len() >= 47), "{found:?}");
        assert!(ends[1 - author].take_operations(0).is_empty());
        assert!(ends[1 - author].take_response_times().is_none());
        assert!(ends[author].take_response_times().is_some());
        let [client, server] = ends;
        client.close();
        server.close();
    }
    let settings = blocking(&[("workload", "rr")]);
    let [mut client, server] = exchange(&settings, |totals| totals[&Q::Transactions] < 5);
    assert!(client.take_operations(0).is_empty());
    client.close();
    server.close();
}

#[test]
fn a_connection_that_may_fail_is_made_again() {
    let text = r#"[{ connect = { can_fail = true } }, { send = "1B" }, { receive = "1B" }, { close = {} }]"#;
    let settings = blocking(&[("workload", "program"), ("program", text)]);
    let [mut client, server] = exchange(&settings, |totals| totals[&Q::Transactions] < 5);
    server.close();
    let (limit, never, mut failed) = (limit(), AtomicBool::new(false), 0);
    while failed < 20 {
        assert!(Instant::now() < limit);
        let soon = Instant::now() + Duration::from_millis(2);
        client.run_until(soon, &never).unwrap();
        let found = client.take_operations(0);
        failed += found.iter().map(|one| one.failed).sum::<u64>();
    }
    client.close();
}
