//! `slurm NODES COMMAND [ARGUMENT]…`: runs a command on a Slurm of so many nodes, which are namespaces of this machine, in a directory
//! that all see (`$SLURM_SHARED`); the cluster ends with it. To see by hand what tests see: as root.

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
