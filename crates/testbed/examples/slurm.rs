//! Runs a command on a Slurm of `NODES` nodes: `slurm NODES COMMAND [ARGUMENT]…`, as root.
//!
//! The nodes are namespaces of this machine, and share a directory (`$SLURM_SHARED`). The cluster
//! ends with the command. Use it to see by hand what tests see.

use std::process::{Command, ExitCode};

use tcpcost_testbed::Slurm;

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let nodes = arguments.next().and_then(|nodes| nodes.parse().ok());
    let (Some(nodes), Some(program)) = (nodes, arguments.next()) else {
        eprintln!("slurm NODES COMMAND [ARGUMENT]…");
        return ExitCode::from(2);
    };
    let Some(slurm) = Slurm::start(nodes) else {
        return ExitCode::from(77);
    };
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SLURM_CONF", slurm.configuration())
        .env("SLURM_SHARED", slurm.shared());
    let status = slurm.within(|| command.status().expect("the command starts"));
    match status.success() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}
