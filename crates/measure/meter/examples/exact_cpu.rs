//! Prints totals of one CPU by context: `exact_cpu CPU [PID…]` prints a line of JSON, ns by context, for each
//! line of its input. Tasks of the given processes are `exact_task_own_ns`. Needs root; for scripts such as
//! bench/relay.

use std::io::BufRead;

use tcpcost_counts::{CountOwner, MeterName};
use tcpcost_meter::{Scope, bpf};

fn main() {
    let mut args = std::env::args().skip(1);
    let mut number = || {
        args.next()
            .map(|text| text.parse::<u32>().expect("a number"))
    };
    let cpu = number().expect("a CPU") as usize;
    let scope = Scope {
        cpus: vec![cpu],
        own_pids: std::iter::from_fn(number).collect(),
        ..Scope::default()
    };
    let mut meter = bpf::load(MeterName::Exact, &scope).expect("root");
    for line in std::io::stdin().lock().lines() {
        line.expect("standard input");
        let snapshot = meter.snapshot().expect("it is loaded");
        let totals = snapshot.totals.iter();
        let of_cpu = totals.filter(|totals| totals.whose == CountOwner::Cpu(cpu));
        let counts = of_cpu.flat_map(|totals| &totals.counts);
        let fields: Vec<String> = counts
            .map(|(quantity, ns)| format!("\"{}\": {ns}", quantity.name()))
            .collect();
        println!("{{{}}}", fields.join(", "));
    }
}
