//! Tests of the same traffic over our own TCP: two stacks on two threads, connected by a pair of
//! devices in memory.

mod common;

use std::collections::VecDeque;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use common::{TOKEN, limit, settings};
use tcpcost_counts::Quantity as Q;
use tcpcost_knobs::{ReceiveWith, SendWith, WorkloadSettings};
use tcpcost_link::memory::{self, Memory};
use tcpcost_link::{Device, Frame, Impaired, Impairment, Offloads, Source};
use tcpcost_stack::{Stack, UserStack, Wire};
use tcpcost_tcp::Config;
use tcpcost_workload::{Worker, socket_options};

/// Send calls with different code paths in our TCP.
const SENDS: [SendWith; 6] = [
    SendWith::Write,
    SendWith::Send,
    SendWith::ReadSend,
    SendWith::MmapSend,
    SendWith::Sendfile,
    SendWith::Zerocopy,
];
const RECEIVES: [ReceiveWith; 3] = [
    ReceiveWith::Read,
    ReceiveWith::RecvTrunc,
    ReceiveWith::Splice,
];

const CLIENT: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

static NEVER: AtomicBool = AtomicBool::new(false);

/// Makes client and server, each with its end of the wire.
fn workers<D: Device<Wire>>(
    settings: &WorkloadSettings,
    ports: usize,
    wire: impl Fn(Memory<Wire>) -> D,
    config: &Config,
    busy_poll: Duration,
) -> [Worker<UserStack<D>>; 2] {
    // Few slots, so that a sender often finds no room.
    let (near, far) = memory::waitable_pair(16).unwrap();
    let stack = |device, address| {
        UserStack::new(wire(device), &[address], config, &socket_options(settings))
            .unwrap()
            .with_busy_poll(busy_poll)
    };
    let (client, server) = (stack(near, CLIENT), stack(far, SERVER));
    let server = Worker::listen(server, settings, TOKEN, SERVER, ports, settings.flows).unwrap();
    let targets = server.ports().to_vec();
    let flows = 0..settings.flows;
    let client = Worker::connect(client, settings, TOKEN, &targets, flows, 1).unwrap();
    [client, server]
}

/// Sets a worker up, and keeps it up until the other is set up.
fn set_up_both<S: Stack>(worker: &mut Worker<S>, not_set_up: &AtomicUsize, limit: Instant) {
    let set_up = worker.set_up(limit);
    not_set_up.fetch_sub(1, Ordering::Relaxed);
    set_up.unwrap();
    while not_set_up.load(Ordering::Relaxed) > 0 {
        worker.keep_up(Duration::from_millis(1)).unwrap();
    }
}

/// Runs both ends until each has done `least`. A user stack stands still while its worker does not
/// run, so neither may stop before the other is done.
fn check(knobs: &[(&str, &str)], wire: Impairment, config: &Config, least: u64) {
    check_with(knobs, wire, config, least, Duration::ZERO);
}

fn check_with(
    knobs: &[(&str, &str)],
    wire: Impairment,
    config: &Config,
    least: u64,
    busy_poll: Duration,
) {
    let (settings, limit) = (settings(knobs), limit());
    let wire = |device| Impaired::new(device, wire, Impairment::default(), 5);
    let [client, server] = workers(&settings, 2, wire, config, busy_poll);
    let not_set_up = AtomicUsize::new(2);
    let unfinished = AtomicUsize::new(2);
    let run = |mut worker: Worker<UserStack<_>>, seen: Q| {
        set_up_both(&mut worker, &not_set_up, limit);
        let mut done = false;
        while unfinished.load(Ordering::Relaxed) > 0 {
            assert!(Instant::now() < limit, "{knobs:?}: {:?}", worker.totals());
            worker
                .run_until(Instant::now() + Duration::from_millis(2), &NEVER)
                .unwrap();
            if !done && worker.totals()[&seen] >= least {
                done = true;
                unfinished.fetch_sub(1, Ordering::Relaxed);
            }
        }
        worker
    };
    let (at_client, at_server) = match knobs[0].1 {
        "stream" => (Q::PayloadBytesSent, Q::PayloadBytesReceived),
        "maerts" => (Q::PayloadBytesReceived, Q::PayloadBytesSent),
        "bidirectional" => (Q::PayloadBytesReceived, Q::PayloadBytesReceived),
        _ => (Q::Transactions, Q::PayloadBytesReceived),
    };
    let (client, server) = std::thread::scope(|scope| {
        let server = scope.spawn(|| run(server, at_server));
        (run(client, at_client), server.join().unwrap())
    });
    let [client, server] = [client, server].map(|worker| {
        let totals = worker.totals();
        worker.close();
        totals
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
            // Requests of `crr` begin with the token, which is counted separately.
            assert!(*checked == received || knobs[0].1 == "crr", "{knobs:?}");
        }
    }
}

/// Runs one kind by all pairs of calls; bytes are checked where the receive call shows them.
fn every_way(kind: &str, more: &[(&str, &str)], least: u64) {
    for send in SENDS {
        for receive in RECEIVES {
            let check_bytes = if receive == ReceiveWith::Read {
                "on"
            } else {
                "off"
            };
            let mut knobs = vec![
                ("workload", kind),
                ("send_with", send.word()),
                ("receive_with", receive.word()),
                ("check", check_bytes),
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
            check(&knobs, Impairment::default(), &Config::default(), least);
        }
    }
}

#[test]
fn stream_by_every_way() {
    every_way("stream", &[], 1_000_000);
}

#[test]
fn maerts_by_every_way() {
    every_way("maerts", &[], 1_000_000);
}

#[test]
fn bidirectional_by_every_way() {
    every_way("bidirectional", &[], 1_000_000);
}

#[test]
fn rr_by_every_way() {
    let more = [
        ("request_size", "30001B"),
        ("response_size", "777B"),
        ("in_flight", "3"),
    ];
    every_way("rr", &more, 40);
}

#[test]
fn crr_by_every_way() {
    every_way(
        "crr",
        &[("request_size", "300B"), ("response_size", "50000B")],
        40,
    );
}

#[test]
fn who_looks_on_before_sleeping_has_the_same_traffic() {
    let knobs = [("workload", "rr"), ("check", "on"), ("flows", "2")];
    let looks_on = Duration::from_micros(300);
    check_with(
        &knobs,
        Impairment::default(),
        &Config::default(),
        200,
        looks_on,
    );
}

#[test]
fn corked_messages_arrive_whole() {
    for cork in ["on", "msg-more"] {
        for kind in ["rr", "crr"] {
            for send in ["send", "zerocopy"] {
                let knobs = [
                    ("workload", kind),
                    ("cork", cork),
                    ("send_with", send),
                    ("check", "on"),
                    ("write_size", "7B"),
                    ("request_size", "100B"),
                    ("response_size", "50B"),
                    ("nodelay", "on"),
                ];
                check(&knobs, Impairment::default(), &Config::default(), 20);
            }
        }
    }
}

#[test]
fn a_thousand_connections_at_once() {
    let knobs = [
        ("workload", "rr"),
        ("flows", "1000"),
        ("check", "on"),
        ("request_size", "100B"),
        ("response_size", "3000B"),
    ];
    check(&knobs, Impairment::default(), &Config::default(), 5000);
}

/// A device that loses the first packet with payload.
struct LosesFirst<D> {
    inner: D,
    has_lost: bool,
}

impl<D: Device<Wire>> Device<Wire> for LosesFirst<D> {
    fn offloads(&self) -> Offloads {
        self.inner.offloads()
    }

    fn send(&mut self, frames: &mut VecDeque<Wire>, now: Instant) -> io::Result<()> {
        let first = frames.iter().position(|frame| frame.runs().count() > 1);
        if let Some(first) = first.filter(|_| !self.has_lost) {
            frames.remove(first);
            self.has_lost = true;
        }
        self.inner.send(frames, now)
    }

    fn receive(
        &mut self,
        source: &mut dyn Source<Wire>,
        frames: &mut VecDeque<Wire>,
        most: usize,
        now: Instant,
    ) -> io::Result<()> {
        self.inner.receive(source, frames, most, now)
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        self.inner.descriptor()
    }
}

/// The server's set-up ends with its hello, though the client does not receive it; only the server
/// can send it again.
#[test]
fn hellos_that_are_lost_are_sent_again_before_the_first_run() {
    let (settings, limit) = (settings(&[("workload", "rr")]), limit());
    let wire = |inner| LosesFirst {
        inner,
        has_lost: false,
    };
    let [mut client, mut server] = workers(&settings, 1, wire, &Config::default(), Duration::ZERO);
    let not_set_up = AtomicUsize::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| set_up_both(&mut server, &not_set_up, limit));
        set_up_both(&mut client, &not_set_up, limit);
    });
    for worker in [client, server] {
        let conn = worker.conns().next().unwrap();
        let connection = worker.stack().connection(conn).unwrap();
        assert!(connection.counters().segments_retransmitted > 0);
        worker.close();
    }
}

#[test]
fn over_a_bad_wire_every_byte_is_right() {
    let wire = Impairment {
        loss: 0.01,
        duplicate: 0.01,
        corrupt: 0.0,
        reorder: 0.02,
        reorder_delay: Duration::from_micros(100),
        ..Impairment::default()
    };
    let mut config = Config::default();
    config.segmentation.super_segment_bytes_max = 0;
    for kind in ["stream", "maerts", "bidirectional"] {
        let knobs = [("workload", kind), ("check", "on"), ("flows", "3")];
        check(&knobs, wire, &config, 2_000_000);
    }
}

#[test]
fn programs() {
    for text in [
        r#"[{ send = ["1B", "60KiB"] }, { receive = "30KiB", count = 2 }]"#,
        r#"[{ send = "9KiB", with = "sendfile" }, { receive = "1B" }, { sleep = "10us" }]"#,
        r#"[{ connect = {} }, { send = "100B" }, { receive = "20KiB" }, { close = {} }]"#,
        r#"[{ connect = {} }, { for = "1ms", do = [{ send = "1B" }, { receive = "1B" }] }, { close = { by = "connector" } }]"#,
    ] {
        println!("{text}");
        let program = ("program", text);
        let knobs = [
            ("workload", "program"),
            program,
            ("flows", "3"),
            ("check", "on"),
        ];
        check(&knobs, Impairment::default(), &Config::default(), 20);
    }
}
