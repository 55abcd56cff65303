//! A client and a server worker over 127.0.0.1, run until a count is reached, never for a time.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tcpcost_counts::{Counts, Quantity};
use tcpcost_knobs::{Knobs, WorkloadSettings};
use tcpcost_stack::KernelStack;
use tcpcost_workload::{Worker, WorkloadError, socket_options};

pub const TOKEN: [u8; 16] = *b"a trial of tests";

/// Returns the time, a minute from now, at which a test has hung and fails.
pub fn limit() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

pub fn settings(knobs: &[(&str, &str)]) -> WorkloadSettings {
    let mut set = Knobs::default();
    for (name, text) in knobs {
        tcpcost_study::set_knob(&mut set, name, text).unwrap();
    }
    WorkloadSettings::from_knobs(&set).unwrap()
}

pub fn server(settings: &WorkloadSettings, ports: usize) -> Worker<KernelStack> {
    server_of(std::slice::from_ref(settings), ports)
}

pub fn client(settings: &WorkloadSettings, targets: &[SocketAddr]) -> Worker<KernelStack> {
    client_of(std::slice::from_ref(settings), targets)
}

/// Makes a server with several groups, each with `ports` ports.
pub fn server_of(groups: &[WorkloadSettings], ports: usize) -> Worker<KernelStack> {
    let (first, more) = groups.split_first().unwrap();
    let stack = KernelStack::new(&socket_options(first)).unwrap();
    let addr = [127, 0, 0, 1].into();
    let mut worker = Worker::listen(stack, first, TOKEN, addr, ports, first.flows).unwrap();
    for group in more {
        worker.also_listen(group, addr, ports, group.flows).unwrap();
    }
    worker
}

/// Makes the client of [`server_of`].
pub fn client_of(groups: &[WorkloadSettings], targets: &[SocketAddr]) -> Worker<KernelStack> {
    let (first, more) = groups.split_first().unwrap();
    let mut targets = targets.chunks(targets.len() / groups.len());
    let stack = KernelStack::new(&socket_options(first)).unwrap();
    let own = targets.next().unwrap();
    let mut worker = Worker::connect(stack, first, TOKEN, own, 0..first.flows, 1).unwrap();
    for (group, own) in more.iter().zip(targets) {
        worker.also_connect(group, own, 0..group.flows, 1).unwrap();
    }
    worker
}

/// Runs in short slices while `more` is true.
pub fn run_while(
    worker: &mut Worker<KernelStack>,
    mut more: impl FnMut(&Counts) -> bool,
) -> Result<(), WorkloadError> {
    let (limit, never) = (limit(), AtomicBool::new(false));
    while more(&worker.totals()) {
        assert!(Instant::now() < limit, "{:?}", worker.totals());
        worker.run_until(Instant::now() + Duration::from_millis(2), &never)?;
    }
    Ok(())
}

pub struct Ends {
    pub client: Worker<KernelStack>,
    pub server: Worker<KernelStack>,
}

/// Sets both up, runs both until the client's `count` is `least`, then the server alone until it
/// has received all that the client sent.
pub fn exchange(settings: &WorkloadSettings, ports: usize, count: Quantity, least: u64) -> Ends {
    exchange_of(std::slice::from_ref(settings), ports, |client| {
        client.totals()[&count] < least
    })
}

/// Does the same with several groups, while `more` is true of the client.
pub fn exchange_of(
    groups: &[WorkloadSettings],
    ports: usize,
    more: impl Fn(&Worker<KernelStack>) -> bool,
) -> Ends {
    let mut server = server_of(groups, ports);
    let mut client = client_of(groups, server.ports());
    let client_sent = AtomicU64::new(u64::MAX);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            server.set_up(limit()).unwrap();
            run_while(&mut server, |totals| {
                let sent = client_sent.load(Ordering::Acquire);
                let received = totals.get(&Quantity::PayloadBytesReceived);
                sent == u64::MAX || received.is_some_and(|&received| received < sent)
            })
            .unwrap();
        });
        client.set_up(limit()).unwrap();
        let (limit, never) = (limit(), AtomicBool::new(false));
        while more(&client) {
            assert!(Instant::now() < limit, "{:?}", client.totals());
            let soon = Instant::now() + Duration::from_millis(2);
            client.run_until(soon, &never).unwrap();
        }
        let sent = client.totals().get(&Quantity::PayloadBytesSent).copied();
        client_sent.store(sent.unwrap_or(0), Ordering::Release);
    });
    Ends { client, server }
}
