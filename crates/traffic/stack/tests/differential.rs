//! Makes the same random calls of an application, by a seed, once with the kernel's TCP at both
//! ends and once with ours at one end, over a TAP. The application at the other end must see the
//! same bytes, end of stream and errors. Needs root; prints that it was skipped without.

#[path = "differential/ends.rs"]
mod ends;
#[path = "differential/program.rs"]
mod program;

use std::process::Command;

use ends::{Bed, Buffers};
use program::Program;
use tcpcost_testbed::{has_program, in_namespace, skip};

/// Programs per bed; the environment variable SEEDS can ask for more.
fn seeds() -> u64 {
    let wanted = std::env::var("SEEDS").ok();
    wanted.and_then(|text| text.parse().ok()).unwrap_or(40)
}

#[test]
fn the_peer_sees_the_same_of_ours_as_of_the_kernels() {
    if !has_program("ip") {
        return;
    }
    for ipv6 in [false, true] {
        for buffers in [
            None,
            Some(Buffers {
                ours: 5000,
                kernels: 4096,
            }),
        ] {
            in_namespace(|| {
                if !std::path::Path::new("/dev/net/tun").exists() {
                    return skip("needs /dev/net/tun");
                }
                let mut bed = Bed::new(ipv6, buffers);
                for seed in 0..seeds() {
                    let program = Program::random(seed);
                    let case = format!("seed {seed}, IPv6 {ipv6}, {buffers:?}: {program:#?}");
                    let kernels = program.run(bed.kernels(&program), &case);
                    let ours = program.run(bed.ours(&program), &case);
                    assert_eq!(ours, kernels, "ours, and the kernel's: {case}");
                }
            });
        }
    }
}

fn ip(arguments: &str) {
    let status = Command::new("ip")
        .args(arguments.split_whitespace())
        .status();
    assert!(status.unwrap().success(), "ip {arguments}");
}
