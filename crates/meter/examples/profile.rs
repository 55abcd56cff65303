//! Where the CPU time of this host's CPU 0 goes for so many seconds: by layer, and the ten functions that
//! were running most. As root: `cargo run --release -p tcpcost-meter --example profile -- 2`.

use std::time::Duration;

use tcpcost_meter::bpf::Scope;
use tcpcost_meter::bpf::profile::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let scope = Scope {
        cpus: vec![0],
        own_pids: Vec::new(),
    };
    let mut profile = Profile::load(&scope, 999)?;
    profile.start()?;
    std::thread::sleep(Duration::from_secs(seconds.unwrap_or(2)));
    profile.stop()?;
    let chains = profile.chains()?;
    let percent = |count: u64| count as f64 / chains.samples().max(1) as f64 * 100.0;
    println!("{} samples by {}", chains.samples(), profile.source());
    for (layer, &count) in &chains.layers {
        println!("{:5.1} % {layer}", percent(count));
    }
    let mut functions: Vec<_> = chains.functions().into_iter().collect();
    functions.sort_by_key(|(_, samples)| std::cmp::Reverse(samples.exclusive));
    for (name, samples) in functions.iter().take(10) {
        let (own, all) = (percent(samples.exclusive), percent(samples.inclusive));
        println!("{own:5.1} % of itself, {all:5.1} % with what it calls: {name}");
    }
    Ok(())
}
