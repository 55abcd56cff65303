//! Measures the cost of a packet of each attack: `hostile PACKETS...`. The cost is quadratic if the
//! time grows by 16 when the packets grow by 4.

#[path = "../tests/common/hostile.rs"]
mod hostile;

use std::time::Instant;

use hostile::Attack;
use tcpcost_trace::{Analysis, Settings, Sink, read};

fn main() {
    let counts: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    for attack in Attack::ALL {
        print!("{:<11}", format!("{attack:?}"));
        for &count in &counts {
            let mut analysis = Analysis::new(Settings::default());
            let started = Instant::now();
            attack.segments(count).for_each(|s| analysis.segment(&s));
            print!("  {:>8.3} s", started.elapsed().as_secs_f64());
        }
        println!();
    }
    print!("{:<11}", "Names");
    for &count in &counts {
        let line = |n: u64| format!("IP h{n}.a.80 > B.80: Flags [.], ack 1, win 9, length 0\n");
        let capture: String = (0..count).map(line).collect();
        let started = Instant::now();
        let _ = read(capture.as_bytes(), &mut Analysis::new(Settings::default()));
        print!("  {:>8.3} s", started.elapsed().as_secs_f64());
    }
    println!();
}
