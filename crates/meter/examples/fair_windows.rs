//! scratch
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use tcpcost_counts::{MeterName, Quantity};
use tcpcost_meter::Scope;
use tcpcost_meter::bpf::{self, Idle, Pausable};
use tcpcost_meter::programs::Programs;
use tcpcost_meter::netstat::Netstat;
use tcpcost_meter::Meter;

type Row = BTreeMap<String, f64>;

fn exact(m: &mut Box<dyn Pausable + Send>) -> Row {
    let t = m.snapshot().unwrap().totals;
    t.last().unwrap().counts.iter().map(|(q, n)| (q.name().to_string(), *n as f64)).collect()
}
fn stat(row: &mut Row) {
    let text = std::fs::read_to_string("/proc/stat").unwrap();
    for line in text.lines() {
        let w: Vec<&str> = line.split_whitespace().collect();
        let n = |i: usize| w[i].parse::<f64>().unwrap();
        match w[0] {
            "cpu" => { row.insert("P idle".into(), n(4) * 1e7); row.insert("P iowait".into(), n(5) * 1e7); row.insert("P steal".into(), n(8) * 1e7); }
            "intr" => { row.insert("N intr".into(), n(1)); }
            "ctxt" => { row.insert("N ctxt".into(), n(1)); }
            "softirq" => { for (i, name) in ["hi","timer","tx","rx","block","poll","tasklet","sched","hrtimer","rcu"].iter().enumerate() { row.insert(format!("N {name}"), n(i + 2)); } }
            _ => {}
        }
    }
}
fn look(t: &mut Box<dyn Pausable + Send>, net: &mut Netstat, began: Instant) -> Row {
    let mut row = exact(t);
    stat(&mut row);
    let c = net.snapshot().unwrap().totals;
    row.insert("N packets".into(), c[0].counts[&Quantity::IpPacketsReceived] as f64);
    row.insert("wall".into(), began.elapsed().as_nanos() as f64);
    row.insert("own_cpu".into(), tcpcost_meter::self_cost::thread_cpu_ns() as f64);
    row
}
fn add(to: &mut Row, a: &Row, b: &Row) {
    for (k, v) in b { *to.entry(k.clone()).or_default() += v - a.get(k).unwrap_or(&0.0); }
}

#[derive(Clone)]
struct Variant { name: &'static str, exact: bool, segments: bool, stats: bool, ms: f64, settle_us: f64, spin: bool }
fn main() {
    let args: Vec<String> = std::env::args().collect();
    let get = |i: usize, d: f64| args.get(i).and_then(|a| a.parse().ok()).unwrap_or(d);
    let (n, gap_ms) = (get(1, 300.0) as usize, get(2, 50.0));
    let v = |name, exact, segments, stats, ms, settle_us| Variant { name, exact, segments, stats, ms, settle_us, spin: false };
    let variants = vec![
        v("none", false, false, false, 4.0, 0.0), v("exact", true, false, false, 4.0, 0.0), v("segments", false, true, false, 4.0, 0.0),
        v("both", true, true, false, 4.0, 0.0), v("all", true, true, true, 4.0, 0.0), v("none settle", false, false, false, 4.0, 2000.0), v("all settle", true, true, true, 4.0, 2000.0),
    ];
    let cpus = std::thread::available_parallelism().unwrap().get();
    let scope = Scope { cpus: (0..cpus).collect(), own_pids: vec![std::process::id()], ..Scope::default() };
    let load = |name: MeterName| bpf::load(name, &scope).expect("root");
    let mut truth = load(MeterName::Exact);
    let mut ex = load(MeterName::Exact);
    let mut seg = load(MeterName::Segments);
    let mut stats = Programs::new().unwrap();
    let mut net = Netstat::default();
    let began = Instant::now();
    ex.pause(Idle::Detached); seg.pause(Idle::Detached); stats.pause(Idle::Detached);
    let mut sums: Vec<Row> = vec![Row::new(); variants.len() + 1];
    let mut own: Vec<Row> = vec![Row::new(); variants.len() + 1];
    let mut lists: Vec<Vec<Row>> = vec![vec![]; variants.len()];
    let mut seed = std::process::id() as u64;
    let mut random = || { seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407); (seed >> 33) as f64 / (1u64 << 31) as f64 };
    let mut prev = look(&mut truth, &mut net, began);
    for _ in 0..n {
        let r = random();
        let which = (random() * variants.len() as f64) as usize;
        let var = variants[which].clone();
        std::thread::sleep(Duration::from_secs_f64(gap_ms / 1000.0 * (0.5 + r)));
        let a = look(&mut truth, &mut net, began);
        let last = sums.len() - 1;
        add(&mut sums[last], &prev, &a);
        if var.exact { ex.resume().unwrap() }
        if var.segments { seg.resume().unwrap() }
        if var.stats { stats.resume().unwrap() }
        if var.settle_us > 0.0 { std::thread::sleep(Duration::from_secs_f64(var.settle_us / 1e6)); }
        let s0 = exact(&mut ex);
        let b = look(&mut truth, &mut net, began);
        std::thread::sleep(Duration::from_secs_f64(var.ms / 1000.0));
        let s1 = exact(&mut ex);
        let c = look(&mut truth, &mut net, began);
        add(&mut sums[which], &b, &c);
        let mut one = Row::new(); add(&mut one, &b, &c); lists[which].push(one);
        add(&mut own[which], &s0, &s1);
        if var.exact { ex.pause(Idle::Detached) } if var.segments { seg.pause(Idle::Detached) } if var.stats { stats.pause(Idle::Detached) }
        prev = look(&mut truth, &mut net, began);
    }
    let prices = [("exact_softirq_net_rx_ns", "N rx"), ("exact_softirq_net_rx_ns", "N packets"), ("exact_hardirq_ns", "N intr"), ("exact_softirq_timer_ns", "N timer"), ("exact_softirq_sched_ns", "N sched"), ("exact_softirq_rcu_ns", "N rcu"), ("exact_task_others_ns", "N packets"), ("exact_task_others_ns", "N ctxt"),
      ("exact_task_others_ns", "wall"), ("exact_idle_ns", "wall"), ("exact_hardirq_ns", "wall"), ("exact_softirq_net_rx_ns", "wall"), ("N intr", "wall"), ("N rx", "wall"), ("N packets", "wall"), ("N ctxt", "wall"), ("exact_task_own_ns", "wall")];
    print!("{:36}{:>12}", "", "gap");
    for (v, l) in variants.iter().zip(&lists) { print!("{:>14}", format!("{} {}", v.name, l.len())); }
    println!();
    for (of, by) in prices {
        let p = |row: &Row| row.get(of).unwrap_or(&0.0) / row.get(by).unwrap_or(&0.0) * if by == "wall" { 1000.0 } else { 1.0 };
        print!("{:36}{:12.4}", format!("{} / {}", of.trim_start_matches("exact_"), by), p(&sums[variants.len()]));
        for (i, l) in lists.iter().enumerate() {
            // jackknife error
            let all = p(&sums[i]); let m = l.len() as f64;
            let (sa, sb) = (sums[i].get(of).unwrap_or(&0.0), sums[i].get(by).unwrap_or(&1.0));
            let var: f64 = l.iter().map(|w| { let e = w.get(of).unwrap_or(&0.0) - sa / sb * w.get(by).unwrap_or(&0.0); e * e }).sum::<f64>() * m / (m - 1.0).max(1.0);
            print!("{:>14}", format!("{:.3}±{:.3}", all / p(&sums[variants.len()]), var.sqrt() / sb * if by == "wall" { 1000.0 } else { 1.0 } / p(&sums[variants.len()])));
        }
        println!();
    }
    for g in [variants.len(), 0, 4] { let w = &sums[g]; println!("busy: exact {:.4} proc {:.4} less steal {:.4}", 2.0 - w["exact_idle_ns"] / w["wall"], 2.0 - (w["P idle"] + w["P iowait"]) / w["wall"], 2.0 - (w["P idle"] + w["P iowait"] + w["P steal"]) / w["wall"]); }
    println!("S over T in windows (all): {:?}", own[4].iter().filter(|(_, v)| **v > 0.0).map(|(k, v)| (k.trim_start_matches("exact_").to_string(), (v / sums[4][k] * 1000.0).round() / 1000.0)).collect::<Vec<_>>());
}
