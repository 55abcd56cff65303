//! Cost of the eBPF meters: one-byte request/response and bulk over loopback, both ends on one
//! CPU, with and without each meter in turn; and ns per run of each program (which include the two
//! clock reads of the kernel's own measuring). What is compared is CPU time of this process per transaction:
//! on a machine that others use it says more than transactions per second. As root:
//! `cargo run --release -p tcpcost-meter --example bpf_cost -- 24`: that many rounds. With `chrt -f 1` no other task interrupts it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use libbpf_rs::query::ProgInfoIter;
use tcpcost_counts::{MeterName, Quantity};
use tcpcost_meter::Meter;
use tcpcost_meter::bpf;
use tcpcost_meter::self_cost::SelfCost;
use tcpcost_meter::{Owners, Scope};

const CPU: usize = 0;
const RUN: Duration = Duration::from_millis(100);
/// Time of one span, and spans of one measurement.
const SPAN: Duration = Duration::from_millis(2);
const SPANS: usize = 30;

fn main() {
    let rounds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let rounds: usize = rounds.unwrap_or(24);
    for (load, request, response) in [("rr", 1, 1), ("bulk", 65_536, 1)] {
        let (mut client, server) = pair(request, response);
        let mut ratios: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        let mut offs = Vec::new();
        cost_ns(&mut client, request, response); // Warm.
        for round in 0..rounds {
            for (case, one, other) in &CASES {
                let mut with = |load: &Load| {
                    let loaded = load();
                    let cost_ns = cost_ns(&mut client, request, response);
                    drop(loaded);
                    cost_ns
                };
                // Both orders, so that a drift does no harm.
                let (off, on) = if round % 2 == 0 {
                    let off = with(one);
                    (off, with(other))
                } else {
                    let on = with(other);
                    (with(one), on)
                };
                ratios.entry(case).or_default().push(on / off);
                offs.push(off);
            }
        }
        println!(
            "{load}: {:.0} ns of CPU per transaction without, {rounds} rounds",
            interval(&mut offs).1
        );
        for (case, mut ratios) in ratios {
            let (low, median, high) = interval(&mut ratios);
            println!("  {case:20} {median:.3} [{low:.3}, {high:.3}] of it");
        }
        for (case, _, load) in &CASES {
            let _loaded = load();
            std::fs::write(STATS, "1").expect("root");
            let before = runs();
            let (transactions, cpu_ns) = run(&mut client, request, response, RUN);
            let after = runs();
            std::fs::write(STATS, "0").expect("root");
            let mut sum_ns = 0;
            for (name, (ns, count)) in &after {
                let (ns_before, count_before) = before.get(name).copied().unwrap_or_default();
                // Another process' programs of the same name may have come and gone.
                let ns = ns.saturating_sub(ns_before);
                let count = count.saturating_sub(count_before);
                sum_ns += ns;
                if count > 0 {
                    let per_transaction = count as f64 / transactions as f64;
                    println!(
                        "  {case:20} {name:16} {:4} ns/run {per_transaction:6.2} runs/transaction",
                        ns / count
                    );
                }
            }
            println!(
                "  {case:20} {:.2} % of the CPU time",
                sum_ns as f64 / cpu_ns as f64 * 100.0
            );
        }
        drop(client);
        server.join().expect("the server ends with its connection");
    }
}

/// Programs as long as this lives.
type Loaded = Vec<Box<dyn Send>>;
type Load = fn() -> Loaded;
/// Name, and the programs loaded without and with what is measured.
const CASES: [(&str, Load, Load); 8] = [
    ("exact", Vec::new, exact),
    ("segments", Vec::new, segments),
    ("owners over exact", following, owners),
    ("holders over exact", exact, holders),
    ("threads over exact", exact, threads),
    ("exact with owners", Vec::new, owners),
    ("exact with holders", Vec::new, holders),
    ("exact with threads", Vec::new, threads),
];

fn exact() -> Loaded {
    vec![meter(MeterName::Exact, Owners::None)]
}

fn segments() -> Loaded {
    vec![meter(MeterName::Segments, Owners::None)]
}

/// Each process with sockets is an owner, as in `tcpcost watch --by`.
fn holders() -> Loaded {
    vec![meter(MeterName::Exact, Owners::Holders)]
}

/// Both ends' threads are owners, as in `tcpcost netperf`.
fn threads() -> Loaded {
    let mut threads = bpf::Threads::load(&[CPU]).expect("root");
    for end in &ENDS {
        threads.name(end.load(Ordering::SeqCst)).expect("room");
    }
    vec![Box::new(threads)]
}

fn meter(name: MeterName, owners: Owners) -> Box<dyn Send> {
    Box::new(bpf::load(name, &scope(owners)).expect("root"))
}

/// This process and its sockets are the command's, as in `tcpcost stat`.
fn following() -> Loaded {
    follow(Owners::None)
}

fn owners() -> Loaded {
    follow(Owners::Command)
}

fn follow(owners: Owners) -> Loaded {
    let (meter, follower) = bpf::load_following(&scope(owners)).expect("root");
    follower.follow(std::process::id(), true).expect("room");
    follower.adopt_open_sockets().expect("root");
    vec![Box::new(meter)]
}

fn scope(owners: Owners) -> Scope {
    Scope {
        cpus: vec![CPU],
        own_pids: match owners {
            Owners::Command => vec![],
            _ => vec![std::process::id()],
        },
        owners,
        ..Scope::default()
    }
}

/// CPU time of both ends per transaction: the first quartile of short spans. Other work of the machine makes some of them cost more.
fn cost_ns(client: &mut TcpStream, request: usize, response: usize) -> f64 {
    let mut span = || {
        let (transactions, cpu_ns) = run(client, request, response, SPAN);
        cpu_ns as f64 / transactions as f64
    };
    let mut spans = [(); SPANS].map(|()| span());
    spans.sort_by(f64::total_cmp);
    spans[SPANS / 4]
}

/// Transactions of one run, and the CPU time of both ends.
fn run(client: &mut TcpStream, request: usize, response: usize, span: Duration) -> (u64, u64) {
    let mut buffer = vec![0; request.max(response)];
    let (started, cpu_ns) = (Instant::now(), cpu_ns());
    let mut transactions = 0;
    while started.elapsed() < span {
        client
            .write_all(&buffer[..request])
            .expect("the server reads");
        client
            .read_exact(&mut buffer[..response])
            .expect("the server answers");
        transactions += 1;
    }
    (transactions, self::cpu_ns() - cpu_ns)
}

/// CPU time of this process.
fn cpu_ns() -> u64 {
    let mut meter = SelfCost;
    let snapshot = meter.snapshot().expect("a clock");
    snapshot.totals[0].counts[&Quantity::SelfCpuNs]
}

/// A connection whose both ends' threads are pinned to [`CPU`].
fn pair(request: usize, response: usize) -> (TcpStream, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port on loopback");
    let address = listener.local_addr().expect("a bound address");
    let server = thread::spawn(move || {
        pin(0);
        let (mut stream, _) = listener.accept().expect("a connection");
        stream.set_nodelay(true).expect("a socket");
        let mut buffer = vec![0; request.max(response)];
        while stream.read_exact(&mut buffer[..request]).is_ok() {
            if stream.write_all(&buffer[..response]).is_err() {
                break;
            }
        }
    });
    pin(1);
    let client = TcpStream::connect(address).expect("a connection");
    client.set_nodelay(true).expect("a socket");
    (client, server)
}

/// Ids of the threads of both ends.
static ENDS: [AtomicU32; 2] = [const { AtomicU32::new(0) }; 2];

/// Pins the thread of this end to [`CPU`].
fn pin(end: usize) {
    let id = rustix::thread::gettid().as_raw_pid().cast_unsigned();
    ENDS[end].store(id, Ordering::SeqCst);
    // SAFETY: an all-zero set is a valid one, CPU is below its size, the kernel only reads it.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(CPU, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set);
    }
}

/// Median, and the interval that holds the true one with some 95 %.
fn interval(values: &mut [f64]) -> (f64, f64, f64) {
    values.sort_by(f64::total_cmp);
    let n = values.len();
    let low = (n as f64 / 2.0 - 0.98 * (n as f64).sqrt()).floor().max(0.0) as usize;
    (values[low], values[n / 2], values[n - 1 - low])
}

/// Time and runs of each loaded tracing program.
fn runs() -> BTreeMap<String, (u64, u64)> {
    ProgInfoIter::default()
        .map(|program| {
            (
                program.name.to_string_lossy().into_owned(),
                (program.run_time_ns, program.run_cnt),
            )
        })
        .collect()
}

const STATS: &str = "/proc/sys/kernel/bpf_stats_enabled";
