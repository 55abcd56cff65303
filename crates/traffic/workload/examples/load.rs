//! Client and server workers in one process or two, each pinned to a CPU, to see by hand what a
//! workload costs: rate, transactions, CPU seconds, percentiles.
//!
//! ```text
//! cargo run --release --example load -- --set flows=200 --set workload=rr --seconds 2
//! ```
//!
//! With `--role server` the program prints its targets, serves until the client closes, and reports
//! on the whole time. The other process is started with `--role client --targets …` and the same
//! knobs.
//!
//! Unlike a study it has a short warm-up, no repetitions and no intervals.

use std::net::{IpAddr, SocketAddr};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use tcpcost_counts::{Counts, Quantity};
use tcpcost_knobs::{Knobs, WorkloadSettings};
use tcpcost_stack::{KernelStack, limits};
use tcpcost_workload::{Worker, flows_of, socket_options};

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Role {
    Both,
    Client,
    Server,
}

#[derive(Parser)]
struct Flags {
    /// End that this process is
    #[arg(long, value_enum, default_value = "both")]
    role: Role,
    /// Listening addresses that the server's process printed
    #[arg(long, value_delimiter = ',')]
    targets: Vec<SocketAddr>,
    /// A knob, e.g. flows=200; see the study's registry
    #[arg(long = "set", value_name = "KNOB=VALUE")]
    knobs: Vec<String>,
    /// CPUs of the client's workers, one worker each
    #[arg(long, value_delimiter = ',', default_value = "0")]
    client_cpus: Vec<usize>,
    /// CPUs of the server's workers, one worker each
    #[arg(long, value_delimiter = ',', default_value = "1")]
    server_cpus: Vec<usize>,
    /// Leave all threads to the scheduler
    #[arg(long)]
    unpinned: bool,
    /// Ports that each server worker listens on
    #[arg(long, default_value_t = 1)]
    ports: usize,
    /// Length of the run
    #[arg(long, default_value_t = 2.0)]
    seconds: f64,
    /// Address of the server
    #[arg(long, default_value = "127.0.0.1")]
    addr: IpAddr,
}

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// Counts of one worker in the interval, with its thread's user and system CPU seconds.
struct Done {
    counts: Counts,
    user_s: f64,
    system_s: f64,
    seconds: f64,
    percentiles_us: Option<[f64; 4]>,
}

fn pin(cpu: usize) -> std::io::Result<()> {
    // SAFETY: cpu_set_t is plain data for which all zeroes is the empty set; CPU_SET checks its
    // index; the set lives through the call; 0 is the calling thread.
    let result = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(std::io::Error::last_os_error())
    }
}

fn cpu_s() -> (f64, f64) {
    // SAFETY: rusage is plain data for which all zeroes is valid, and the kernel fills it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage);
        usage
    };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
    (seconds(usage.ru_utime), seconds(usage.ru_stime))
}

fn growth(after: &Counts, before: &Counts) -> Counts {
    after
        .iter()
        .map(|(quantity, count)| (*quantity, count - before[quantity]))
        .collect()
}

fn drive(
    mut worker: Worker<KernelStack>,
    seconds: f64,
    until_closed: bool,
    barrier: &Barrier,
    stop: &AtomicBool,
) -> Result<Done, Failure> {
    let set_up = worker.set_up(Instant::now() + Duration::from_secs(20));
    barrier.wait();
    if let Err(error) = set_up {
        stop.store(true, Ordering::Relaxed);
        return Err(error.into());
    }
    if !until_closed {
        worker.run_until(Instant::now() + Duration::from_millis(200), stop)?;
    }
    worker.take_response_times();
    let (before, cpu_before, start) = (worker.totals(), cpu_s(), Instant::now());
    let result = worker.run_until(start + Duration::from_secs_f64(seconds), stop);
    if !until_closed {
        result?;
    }
    let (cpu, seconds) = (cpu_s(), start.elapsed().as_secs_f64());
    let done = Done {
        counts: growth(&worker.totals(), &before),
        user_s: cpu.0 - cpu_before.0,
        system_s: cpu.1 - cpu_before.1,
        seconds,
        percentiles_us: worker.take_response_times().map(|times| {
            [50.0, 90.0, 99.0, 99.9].map(|p| times.value_at_percentile(p) as f64 / 1e3)
        }),
    };
    barrier.wait();
    worker.close();
    Ok(done)
}

fn report(end: &str, all: &[Done]) {
    let sum = |quantity| -> Option<u64> {
        all.iter()
            .map(|done| done.counts.get(&quantity).copied())
            .sum()
    };
    let seconds = all.iter().map(|done| done.seconds).fold(0.0, f64::max);
    let user_s: f64 = all.iter().map(|done| done.user_s).sum();
    let system_s: f64 = all.iter().map(|done| done.system_s).sum();
    let bytes = sum(Quantity::PayloadBytesSent).unwrap_or(0)
        + sum(Quantity::PayloadBytesReceived).unwrap_or(0);
    let gb = bytes as f64 / 1e9;
    print!(
        "{end}: {:.2} Gbit/s, user {:.4} + system {:.4} CPU s per GB",
        gb * 8.0 / seconds,
        user_s / gb,
        system_s / gb
    );
    if let Some(transactions) = sum(Quantity::Transactions) {
        print!(
            ", {:.0} transactions/s, user {:.3} + system {:.3} us each",
            transactions as f64 / seconds,
            user_s * 1e6 / transactions as f64,
            system_s * 1e6 / transactions as f64
        );
    }
    println!();
    for done in all {
        if let Some(us) = done.percentiles_us {
            println!("  response time us p50, 90, 99, 99.9: {us:.1?}");
        }
    }
    let totals: Vec<String> = Quantity::ALL
        .iter()
        .filter_map(|&quantity| Some(format!("{quantity} {}", sum(quantity)?)))
        .collect();
    println!("  {}", totals.join(", "));
}

fn main() -> Result<(), Failure> {
    let flags = Flags::parse();
    let mut knobs = Knobs::default();
    for pair in &flags.knobs {
        let (name, value) = pair.split_once('=').ok_or("--set wants KNOB=VALUE")?;
        tcpcost_study::set_knob(&mut knobs, name, value)?;
    }
    let settings = WorkloadSettings::from_knobs(&knobs)?;
    limits::raise_open_files(2 * settings.flows + 64)?;
    let token = *b"the load example";
    let (clients, servers) = (flags.client_cpus.len(), flags.server_cpus.len());
    let ports = servers * flags.ports;
    let mut targets = Vec::new();
    let mut workers = Vec::new();
    for (index, &cpu) in flags.server_cpus.iter().enumerate() {
        if flags.role == Role::Client {
            targets.clone_from(&flags.targets);
            break;
        }
        let mine = index * flags.ports..(index + 1) * flags.ports;
        let flows = flows_of(settings.flows, ports, mine);
        let stack = KernelStack::new(&socket_options(&settings))?;
        let worker = Worker::listen(stack, &settings, token, flags.addr, flags.ports, flows)?;
        targets.extend_from_slice(worker.ports());
        workers.push((cpu, worker));
    }
    if flags.role == Role::Server {
        let targets: Vec<String> = targets.iter().map(SocketAddr::to_string).collect();
        println!("--targets {}", targets.join(","));
    }
    for (index, &cpu) in flags.client_cpus.iter().enumerate() {
        if flags.role == Role::Server {
            break;
        }
        let share = |index: usize| index * settings.flows / clients;
        let flows = share(index)..share(index + 1);
        let stack = KernelStack::new(&socket_options(&settings))?;
        let worker = Worker::connect(stack, &settings, token, &targets, flows, 1)?;
        workers.push((cpu, worker));
    }
    let barrier = Barrier::new(workers.len());
    let stop = AtomicBool::new(false);
    let results: Vec<Result<Done, Failure>> = std::thread::scope(|scope| {
        let (barrier, stop, flags) = (&barrier, &stop, &flags);
        let threads: Vec<_> = workers
            .into_iter()
            .map(|(cpu, worker)| {
                scope.spawn(move || {
                    if !flags.unpinned {
                        pin(cpu)?;
                    }
                    let serve = flags.role == Role::Server;
                    drive(worker, flags.seconds, serve, barrier, stop)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker does not panic"))
            .collect()
    });
    let mut done = results.into_iter().collect::<Result<Vec<_>, _>>()?;
    let client = done.split_off(if flags.role == Role::Client {
        0
    } else {
        servers
    });
    for (end, done) in [("client", client), ("server", done)] {
        if !done.is_empty() {
            report(end, &done);
        }
    }
    Ok(())
}
