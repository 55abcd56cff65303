//! Measures the cost of starting and stopping the eBPF programs, as `tcpcost watch` does for each window: CPU
//! time of the thread that does it, and interrupts of other CPUs, which patching the running kernel needs. As
//! root, with the number of windows (10 ms apart): `cargo run --release -p tcpcost-meter --example windows --
//! 200`.

use std::time::{Duration, Instant};

use tcpcost_counts::{MeterName, Quantity};
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Idle, METERS};
use tcpcost_meter::self_cost;

fn main() {
    let windows = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let windows: usize = windows.unwrap_or(200);
    let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let scope = Scope {
        cpus: (0..cpus).collect(),
        ..Scope::default()
    };
    for names in [&METERS[..1], &METERS[1..], METERS] {
        let load = |name: &MeterName| bpf::load(*name, &scope).expect("root");
        let mut meters: Vec<_> = names.iter().map(load).collect();
        // Observes the effect of the other meter on the CPUs.
        let mut exact = (*names == METERS[1..]).then(|| load(&MeterName::Exact));
        let mut hardirq_ns = || {
            let totals = exact.as_mut()?.snapshot().ok()?.totals;
            Some(totals.last()?.counts[&Quantity::ExactHardirqNs])
        };
        let (mut quiet_ns, mut between_ns) = (0, 0);
        meters
            .iter_mut()
            .for_each(|meter| meter.pause(Idle::Detached));
        let mut quiet = 0;
        let mut between = 0;
        let (mut cpu_ns, mut took) = (Vec::new(), Vec::new());
        for _ in 0..windows {
            let before = (interrupts(), hardirq_ns());
            std::thread::sleep(Duration::from_millis(10));
            let hardirq = hardirq_ns();
            let began = (interrupts(), self_cost::thread_cpu_ns(), Instant::now());
            for meter in &mut meters {
                meter.resume().expect("they could be attached before");
            }
            meters
                .iter_mut()
                .for_each(|meter| meter.pause(Idle::Detached));
            took.push(began.2.elapsed().as_nanos() as u64);
            cpu_ns.push(self_cost::thread_cpu_ns() - began.1);
            quiet += began.0 - before.0;
            between += interrupts() - began.0;
            if let (Some(before), Some(now), Some(after)) = (before.1, hardirq, hardirq_ns()) {
                quiet_ns += now - before;
                between_ns += after - now;
            }
        }
        let per_cpu = |sum: u64| sum as f64 / windows as f64 / cpus as f64;
        println!(
            "{names:?}: {} us of CPU, {} us of time (medians of {windows}), {:.1} calls by other CPUs per CPU and window \
             ({:.1} in 10 ms without)",
            median(&mut cpu_ns) / 1000,
            median(&mut took) / 1000,
            per_cpu(between),
            per_cpu(quiet)
        );
        if between_ns > 0 {
            println!(
                "  {} ns a call in hard interrupts ({:.0} ns of these in 10 ms without)",
                between_ns / between.max(1),
                quiet_ns as f64 / windows as f64
            );
        }
    }
}

/// Number of function calls on other CPUs so far, over all CPUs.
fn interrupts() -> u64 {
    let text = std::fs::read_to_string("/proc/interrupts").expect("procfs");
    let line = text.lines().find(|line| line.trim().starts_with("CAL:"));
    let counts = line.unwrap_or_default().split_whitespace().skip(1);
    counts.map_while(|count| count.parse::<u64>().ok()).sum()
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values[values.len() / 2]
}
