//! Options of `tcpcost stat`.

use std::path::PathBuf;

use clap::Args;
use tcpcost_console::format::{Output, StatFormats};

/// `tcpcost stat`.
#[derive(Debug, Args)]
pub struct StatArgs {
    /// Runs of the command, or of each of two commands.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: u32,
    /// Work that is measured.
    #[command(flatten)]
    pub target: Target,
    /// Count sends, receives and other system calls of the network. Counting the others makes each system call of the machine cost more meanwhile; with --pid, --cgroup or --netns only sends and receives are counted.
    #[arg(long)]
    pub syscalls: bool,
    /// Least difference between two commands that matters, in percent; below it they are equivalent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub min_effect: f64,
    /// Seed of the order of two commands [default: by the clock].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Formats of the results, which are printed on standard error.
    #[command(flatten)]
    pub output: Output<StatFormats>,
    /// The command and its arguments; or two: COMMAND… --versus -- COMMAND…. Options of stat come before the command.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present_any = ["pid", "cgroup", "netns"])]
    pub command: Vec<String>,
}

/// Work on this host: a command, in a network namespace of its own or not; or processes, while a command runs.
#[derive(Debug, Clone, Default, Args)]
pub struct Target {
    /// Regular expression whose first group is a number in the command's output, e.g. '(\d+) requests'. The cost is per unit of that number, too.
    #[arg(long, value_name = "REGEX")]
    pub per: Option<String>,
    /// Run the command in a new network namespace with lo alone, so that all TCP is the command's.
    #[arg(long)]
    pub fresh_netns: bool,
    /// Running processes and all that they start, while the command runs, e.g. `sleep 10`; without a command until Ctrl-C.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "fresh_netns"
    )]
    pub pid: Vec<u32>,
    /// All processes of a cgroup: its directory.
    #[arg(long, value_name = "DIR", conflicts_with = "fresh_netns")]
    pub cgroup: Option<PathBuf>,
    /// All processes in a network namespace: its name (ip netns), its path, or the id of a process in it.
    #[arg(long, value_name = "NAME|PID|PATH", conflicts_with_all = ["fresh_netns", "pid", "cgroup"])]
    pub netns: Option<String>,
}
