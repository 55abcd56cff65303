//! Tests of every kind of traffic by every send call and receive call, over 127.0.0.1.

mod common;

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use common::{TOKEN, exchange, limit, run_while, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_knobs::{ReceiveWith, SendWith};
use tcpcost_stack::KernelStack;
use tcpcost_workload::{Worker, flows_of, socket_options};

/// Runs one kind by all pairs of calls; bytes are checked where the receive call shows them.
fn every_way(kind: &str, more: &[(&str, &str)]) {
    let sends = SendWith::WORDS.iter();
    for send in sends.map(|word| SendWith::from_word(word).unwrap()) {
        let receives = ReceiveWith::WORDS.iter();
        for receive in receives.map(|word| ReceiveWith::from_word(word).unwrap()) {
            let check = if receive == ReceiveWith::Read {
                "on"
            } else {
                "off"
            };
            let mut knobs = vec![
                ("workload", kind),
                ("send_with", send.word()),
                ("receive_with", receive.word()),
                ("check", check),
                ("flows", "3"),
                ("write_size", "20000B"),
            ];
            if send.is_from_files() {
                knobs.push(("file_size", "100000B"));
                if kind != "crr" {
                    knobs.push(("files", "3"));
                }
            }
            knobs.extend_from_slice(more);
            println!("{knobs:?}");
            let settings = settings(&knobs);
            let (count, least) = match kind {
                "rr" | "crr" => (Q::Transactions, 40),
                "stream" => (Q::PayloadBytesSent, 1_000_000),
                _ => (Q::PayloadBytesReceived, 1_000_000),
            };
            let mut ends = exchange(&settings, 2, count, least);
            let (mut client, server) = (ends.client.totals(), ends.server.totals());
            if kind == "maerts" {
                let sent = server[&Q::PayloadBytesSent];
                run_while(&mut ends.client, |totals| {
                    totals[&Q::PayloadBytesReceived] < sent
                })
                .unwrap();
                client = ends.client.totals();
                assert_eq!(client[&Q::PayloadBytesReceived], sent);
                assert!(!client.contains_key(&Q::PayloadBytesSent));
            } else {
                assert_eq!(
                    client[&Q::PayloadBytesSent],
                    server[&Q::PayloadBytesReceived]
                );
            }
            let pages = [ends.client.file_pages(), ends.server.file_pages()];
            for (counts, pages) in [&client, &server].into_iter().zip(pages) {
                let checked = counts.get(&Q::PayloadBytesChecked);
                if check == "on" && kind != "crr" {
                    assert_eq!(checked, counts.get(&Q::PayloadBytesReceived));
                } else if check == "off" {
                    assert_eq!(checked, None);
                }
                // Bytes just written are in the page cache; memory has no file pages.
                let sends_files = send.is_from_files() && counts.contains_key(&Q::PayloadBytesSent);
                assert_eq!(pages.contains_key(&Q::FilePages), sends_files);
                assert_eq!(pages.get(&Q::FilePages), pages.get(&Q::FilePagesCached));
                if let Some(mapped) = counts.get(&Q::PayloadBytesMapped) {
                    assert!(*mapped <= counts[&Q::PayloadBytesReceived]);
                }
            }
            if let Some(times) = ends.client.take_response_times() {
                assert_eq!(times.len(), client[&Q::Transactions]);
                let response = settings.response_bytes as u64;
                assert!(client[&Q::PayloadBytesReceived] >= response * client[&Q::Transactions]);
            }
            ends.client.close();
        }
    }
}

#[test]
fn stream_by_every_way() {
    every_way("stream", &[]);
}

#[test]
fn maerts_by_every_way() {
    every_way("maerts", &[]);
}

#[test]
fn bidirectional_by_every_way() {
    every_way("bidirectional", &[]);
}

#[test]
fn rr_by_every_way() {
    every_way(
        "rr",
        &[
            ("request_size", "30001B"),
            ("response_size", "777B"),
            ("in_flight", "3"),
        ],
    );
}

#[test]
fn crr_by_every_way() {
    every_way(
        "crr",
        &[("request_size", "300B"), ("response_size", "50000B")],
    );
}

#[test]
fn crr_with_requests_too_short_for_the_token() {
    every_way("crr", &[]);
}

#[test]
fn corked_messages_arrive_whole() {
    for cork in ["on", "msg-more"] {
        for kind in ["rr", "crr"] {
            let settings = settings(&[
                ("workload", kind),
                ("cork", cork),
                ("check", "on"),
                ("write_size", "7B"),
                ("request_size", "100B"),
                ("response_size", "50B"),
                ("nodelay", "on"),
            ]);
            let ends = exchange(&settings, 1, Q::Transactions, 20);
            let totals = ends.client.totals();
            // 100 bytes in writes of 7 are 15 calls.
            assert_eq!(
                totals[&Q::SendCalls],
                totals[&Q::PayloadBytesSent] / 100 * 15
            );
        }
        let settings = settings(&[("cork", cork), ("write_size", "1000B"), ("flows", "2")]);
        exchange(&settings, 1, Q::PayloadBytesSent, 100_000);
    }
}

#[test]
fn loopback_copies_what_was_sent_by_reference_and_says_so() {
    let ways = ["zerocopy", "mmap+zerocopy", "uring-send-zc"];
    let kinds = ["stream", "maerts"];
    for (with, kind) in ways.iter().flat_map(|with| kinds.map(|kind| (*with, kind))) {
        println!("{with} {kind}");
        let settings = settings(&[("send_with", with), ("workload", kind)]);
        let (count, least) = match kind {
            "stream" => (Q::ZerocopyCompletions, 10),
            _ => (Q::PayloadBytesReceived, 10_000_000),
        };
        let ends = exchange(&settings, 1, count, least);
        let sender = if kind == "stream" {
            &ends.client
        } else {
            &ends.server
        };
        let totals = sender.totals();
        assert!(totals[&Q::ZerocopyCompletions] > 0, "{totals:?}");
        assert!(totals[&Q::ZerocopyCompletions] <= totals[&Q::SendCalls]);
        assert_eq!(totals[&Q::ZerocopyCopied], totals[&Q::ZerocopyCompletions]);
    }
}

#[test]
fn one_byte_sends_by_reference_run_out_of_notifications_and_go_on() {
    // Each outstanding send counts against net.core.optmem_max, so ENOBUFS comes soon.
    let settings = settings(&[
        ("send_with", "zerocopy"),
        ("write_size", "1B"),
        ("check", "on"),
    ]);
    exchange(&settings, 1, Q::PayloadBytesSent, 20_000);
}

#[test]
fn six_hundred_flows_over_two_ports_all_move() {
    let settings = settings(&[("flows", "600"), ("write_size", "1KiB"), ("check", "on")]);
    let ends = exchange(&settings, 2, Q::PayloadBytesSent, 600 * 2048);
    assert_eq!(ends.client.conns().count(), 600);
    assert_eq!(ends.server.conns().count(), 600);
    assert!(
        ends.client
            .conns()
            .all(|conn| ends.client.stack().fd(conn).is_some())
    );
}

#[test]
fn two_workers_at_each_end_share_the_flows() {
    for kind in ["maerts", "crr"] {
        let settings = settings(&[("workload", kind), ("flows", "51"), ("check", "on")]);
        let stack = || KernelStack::new(&socket_options(&settings)).unwrap();
        let servers: Vec<_> = [0..2, 2..3]
            .into_iter()
            .map(|mine| {
                let (addr, ports) = ([127, 0, 0, 1].into(), mine.len());
                let flows = flows_of(51, 3, mine);
                Worker::listen(stack(), &settings, TOKEN, addr, ports, flows).unwrap()
            })
            .collect();
        let targets: Vec<_> = servers.iter().flat_map(|w| w.ports().to_vec()).collect();
        let clients = [0..20, 20..51]
            .map(|flows| Worker::connect(stack(), &settings, TOKEN, &targets, flows, 1).unwrap());
        let (all_up, stop, clients_left) =
            (Barrier::new(4), AtomicBool::new(false), AtomicUsize::new(2));
        std::thread::scope(|scope| {
            let (all_up, stop, clients_left) = (&all_up, &stop, &clients_left);
            for mut server in servers {
                scope.spawn(move || {
                    server.set_up(limit()).unwrap();
                    all_up.wait();
                    server.run_until(limit(), stop).unwrap();
                    all_up.wait();
                });
            }
            for mut client in clients {
                scope.spawn(move || {
                    client.set_up(limit()).unwrap();
                    all_up.wait();
                    run_while(&mut client, |totals| totals[&Q::PayloadBytesReceived] < 100)
                        .unwrap();
                    if clients_left.fetch_sub(1, Ordering::Relaxed) == 1 {
                        stop.store(true, Ordering::Relaxed);
                    }
                    all_up.wait();
                });
            }
        });
    }
}

#[test]
fn a_fixed_rate_is_never_exceeded() {
    for (kind, knob, value) in [
        ("rr", "transaction_rate", "2000/s"),
        ("crr", "transaction_rate", "2000/s"),
        ("stream", "rate", "16Mbit"),
    ] {
        let settings = settings(&[
            ("workload", kind),
            (knob, value),
            ("flows", "2"),
            ("write_size", "1000B"),
        ]);
        let (count, each) = match kind {
            "stream" => (Q::PayloadBytesSent, 1000),
            _ => (Q::Transactions, 1),
        };
        let start = std::time::Instant::now();
        let ends = exchange(&settings, 1, count, 100 * each);
        let events = ends.client.totals()[&count] / each;
        // 2000 events a second each; the first is due within the first period.
        let at_most = start.elapsed().as_secs_f64() * 2000.0 + 1.0;
        assert!(events as f64 <= at_most, "{kind}: {events} of {at_most}");
    }
}
