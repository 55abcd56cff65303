//! Runs a program in a guest of another kernel, without KVM. Run as `program KERNEL SECONDS PROGRAM [ARGUMENT…]`.
//!
//! KERNEL is as of `tcpcost run --guest`. PROGRAM is tcpcost, or another that calls [`tcpcost_guest::init`] first. The guest has two
//! CPUs, a clock that tells time, and loopback. Prints what the program printed, and exits with its exit code; with 124 and the
//! reason if the guest had not ended after SECONDS, with 125 and the reason if it ended before its program did.

use std::net::Ipv4Addr;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use tcpcost_guest::{BootEnd, Guest, Image, Kernel, Limit, Line, Machine, Setup, Task};

type Failure = Box<dyn std::error::Error>;

/// Modules of the namespaces and qdiscs that a study makes.
const MODULES: [&str; 5] = ["veth", "sch_tbf", "sch_ingress", "cls_bpf", "act_bpf"];
/// Exit codes of timeout(1).
const LATE: u8 = 124;
const FAILED: u8 = 125;

fn main() -> ExitCode {
    run().unwrap_or_else(|error| {
        eprintln!("program: {error}");
        ExitCode::from(FAILED)
    })
}

fn run() -> Result<ExitCode, Failure> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [kernel, seconds, program, arguments @ ..] = &words[..] else {
        return Err("usage: program KERNEL SECONDS PROGRAM [ARGUMENT…]".into());
    };
    let kernel = Kernel::find(Some(Path::new(kernel)))?;
    let image = Image::make(Path::new(program), &kernel, &MODULES, &Setup::default())?;
    let guest = Guest::new(kernel, image)?;
    let task = Task {
        arguments: arguments.to_vec(),
        addresses: vec![("lo".to_string(), Ipv4Addr::LOCALHOST, 8)],
        ..Task::default()
    };
    let limit = Limit {
        wall: Duration::from_secs(seconds.parse()?),
        ..Limit::default()
    };
    let boot = guest.boot(&Machine::with_time(2), &task, limit, &|| false)?;
    for line in &boot.lines {
        if let Line::Printed(text) = line {
            println!("{text}");
        }
    }
    if let Some(failure) = boot.failure() {
        eprintln!("program: {failure}");
    }
    Ok(ExitCode::from(match boot.ended {
        BootEnd::Done(code) => u8::try_from(code).unwrap_or(FAILED),
        BootEnd::Late => LATE,
        BootEnd::Killed(_) | BootEnd::Early | BootEnd::Stopped => FAILED,
    }))
}
