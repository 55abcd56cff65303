//! Tests of two workers that alternate in one thread, and of workers that never poll (`visits`).

mod common;

use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use common::{client, exchange, limit, server, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_knobs::WorkloadSettings;
use tcpcost_stack::KernelStack;
use tcpcost_workload::Worker;

/// Sets up both ends of a workload in this thread.
fn both(settings: &WorkloadSettings) -> [Worker<KernelStack>; 2] {
    let mut server = server(settings, 1);
    let mut client = client(settings, server.ports());
    std::thread::scope(|scope| {
        scope.spawn(|| server.set_up(limit()).unwrap());
        client.set_up(limit()).unwrap();
    });
    [client, server]
}

fn count(worker: &Worker<KernelStack>, of: Q) -> u64 {
    worker.totals().get(&of).copied().unwrap_or(0)
}

#[test]
fn a_turn_of_a_stream_is_one_write_and_its_reads() {
    for io in ["epoll", "visits"] {
        let settings = settings(&[
            ("io", io),
            ("flows", "5"),
            ("send_buffer", "256KiB"),
            ("receive_buffer", "512KiB"),
        ]);
        let [mut client, mut server] = both(&settings);
        let limit = limit();
        for end in [&mut client, &mut server] {
            end.resume(Instant::now());
        }
        for turn in 1..=20 {
            assert!(client.turns(Instant::now()).unwrap());
            assert_eq!(count(&client, Q::SendCalls), turn, "{io}");
            while count(&server, Q::PayloadBytesReceived) < count(&client, Q::PayloadBytesSent) {
                assert!(Instant::now() < limit, "{io}: {:?}", server.totals());
                server.turns(Instant::now()).unwrap();
            }
        }
        assert_eq!(count(&client, Q::PayloadBytesSent), 20 * 64 * 1024, "{io}");
    }
}

#[test]
fn the_clock_is_read_after_some_calls_however_small_they_are() {
    let [mut client, _server] = both(&settings(&[("write_size", "1B")]));
    let stop = AtomicBool::new(false);
    client.run_until_moved(limit(), 1, &stop).unwrap();
    let calls = count(&client, Q::SendCalls);
    assert!((1..=64).contains(&calls), "{calls} calls for one byte");
}

#[test]
fn who_visits_tries_every_connection_and_asks_nobody() {
    let settings = settings(&[("io", "visits"), ("flows", "20")]);
    let [mut client, mut server] = both(&settings);
    let (set_up, limit) = (count(&server, Q::PollCalls), limit());
    for end in [&mut client, &mut server] {
        end.resume(Instant::now());
    }
    while count(&server, Q::PayloadBytesReceived) < 2 << 20 {
        assert!(Instant::now() < limit, "{:?}", server.totals());
        client.turns(Instant::now()).unwrap();
        server.turns(Instant::now()).unwrap();
    }
    assert_eq!(count(&server, Q::PollCalls), set_up);
    // One of 20 connections has been written to.
    let tries = count(&server, Q::ReceiveCalls);
    let nothing = count(&server, Q::WouldBlockCalls);
    assert!(nothing * 10 > tries * 7, "{nothing} of {tries}");
    // A visiting worker with nothing to do sleeps where two workers share a thread.
    server.rest(Duration::from_millis(1)).unwrap();
}

#[test]
fn every_standing_workload_runs_by_visits() {
    for (kind, of, least) in [
        ("stream", Q::PayloadBytesSent, 1_000_000),
        ("bidirectional", Q::PayloadBytesReceived, 1_000_000),
        ("rr", Q::Transactions, 40),
    ] {
        let knobs = [
            ("io", "visits"),
            ("workload", kind),
            ("flows", "3"),
            ("check", "on"),
        ];
        let ends = exchange(&settings(&knobs), 1, of, least);
        assert!(count(&ends.client, of) >= least, "{kind}");
    }
}
