//! Reads a capture and prints the speed: `measure FILE`. It does the work of `tcpcost trace`
//! without printing.

use std::time::Instant;

use tcpcost_trace::{Analysis, Settings, read};

fn main() -> std::io::Result<()> {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: measure FILE");
        std::process::exit(2);
    };
    let started = Instant::now();
    let mut analysis = Analysis::new(Settings::default());
    let (reading, outcome) = read(std::fs::File::open(path)?, &mut analysis);
    let (connections, ()) = analysis.finish();
    let seconds = started.elapsed().as_secs_f64();
    println!(
        "{} connections, {:.2} M packets/s, {:.0} MB/s{}",
        connections.len(),
        reading.packets as f64 / seconds / 1e6,
        reading.bytes as f64 / seconds / 1e6,
        outcome
            .err()
            .map_or(String::new(), |error| format!(", broken {error}"))
    );
    Ok(())
}
