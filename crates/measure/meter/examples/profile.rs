//! Samples CPU 0 of this host for some seconds and prints the ten functions that ran most. As root: `cargo
//! run --release -p tcpcost-meter --example profile -- 2`.

use std::collections::BTreeMap;
use std::time::Duration;

use tcpcost_meter::Scope;
use tcpcost_meter::bpf::profile::Profile;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let scope = Scope {
        cpus: vec![0],
        ..Scope::default()
    };
    let mut profile = Profile::load(&scope, 999)?;
    profile.start()?;
    std::thread::sleep(Duration::from_secs(seconds.unwrap_or(2)));
    profile.stop()?;
    let chains = profile.chains()?;
    println!("{} samples by {}", chains.samples(), chains.source);
    let mut running: BTreeMap<&str, u64> = BTreeMap::new();
    for chain in &chains.chains {
        if let Some(&innermost) = chain.kernel.last().or(chain.user.last()) {
            *running.entry(chains.name(innermost)).or_default() += chain.samples;
        }
    }
    let mut running: Vec<_> = running.into_iter().collect();
    running.sort_by_key(|&(_, samples)| std::cmp::Reverse(samples));
    for (name, samples) in running.iter().take(10) {
        let percent = *samples as f64 / chains.samples().max(1) as f64 * 100.0;
        println!("{percent:5.1} % {name}");
    }
    Ok(())
}
