//! Prints the current core distance of two CPUs: the round trip of a cache line, ns. Prints nothing if one of
//! them is not free.
//!
//!     core_to_core 0 1

use std::process::ExitCode;

fn main() -> ExitCode {
    let cpus: Vec<usize> = std::env::args()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let [from, to] = cpus[..] else {
        eprintln!("core_to_core: expected two CPUs, e.g. core_to_core 0 1");
        return ExitCode::from(2);
    };
    match tcpcost_meter::core_to_core::round_trip_ns([from, to]) {
        Ok(Some(ns)) => println!("{ns}"),
        Ok(None) => {}
        Err(error) => {
            eprintln!("core_to_core: {error}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
