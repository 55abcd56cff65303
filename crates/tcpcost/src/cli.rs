//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use tcpcost_conduct::RunArgs;
use tcpcost_console::values::interval;
use tcpcost_observe::{DoctorArgs, StatArgs, WatchArgs};

use crate::advise::AdviseArgs;
use crate::compare::CompareArgs;
use crate::explain::ExplainArgs;
use crate::kernels::KernelsArgs;
use crate::model::ModelArgs;
use crate::report::ReportArgs;
use crate::study::StudyCommand;
use crate::trace::TraceArgs;

/// Measures how much CPU each kilobyte of TCP costs, why, and which knob makes it cheaper.
#[derive(Debug, Parser)]
#[command(name = "tcpcost", version, max_term_width = 100)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Print more on standard error: -v each step, -vv details.
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Print no progress on standard error.
    #[arg(short, long, global = true)]
    pub quiet: bool,
}

impl Cli {
    /// Returns the subcommand, which knows about `--quiet`.
    pub fn into_command(mut self) -> Command {
        let telling = match &mut self.command {
            Command::Run(args) => Some(&mut args.telling),
            Command::Compare(args) => Some(&mut args.telling),
            Command::Kernels(args) => Some(&mut args.telling),
            Command::Model(args) => {
                args.quiet = self.quiet;
                None
            }
            _ => None,
        };
        if let Some(telling) = telling {
            telling.quiet = self.quiet;
        }
        self.command
    }
}

/// The subcommands. `screen.rs` groups them.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a study: make its bed, drive traffic, measure, report.
    Run(Box<RunArgs>),
    /// Compare two cells, settings, builds, commands or stored runs: which costs more?
    Compare(Box<CompareArgs>),
    /// Measure what a command costs in CPU, softirqs included, and what its TCP did.
    Stat(StatArgs),
    /// Show what TCP costs on this host as it runs: any application, no benchmark.
    Watch(Box<WatchArgs>),
    /// Explain where the CPU time of any work goes, by the prices of this host.
    Explain(Box<ExplainArgs>),
    /// Advise which knob would lower the CPU of a workload, by how much, and how to prove it.
    Advise(Box<AdviseArgs>),
    /// Measure this host's prices: CPU time of a byte, an skb, a call, a sleep, a connection.
    Model(ModelArgs),
    /// Analyse captures: ACKs, bursts, splits and stalls.
    Trace(TraceArgs),
    /// Run our own TCP on a TAP or TUN of this host; any client can talk to it.
    Peer(Box<tcpcost_peer::Flags>),
    /// Relay TCP connections by copy, splice, io_uring or our own TCP, and count both.
    Relay(Box<crate::relay::Flags>),
    /// Benchmarks with the command lines of netperf and uperf; also by link name.
    #[command(disable_help_flag = true)]
    Netperf {
        /// Options of netperf: `tcpcost netperf --help`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        args: Vec<String>,
    },
    /// Answer netperf, on loopback unless addresses are named.
    #[command(disable_help_flag = true)]
    Netserver {
        /// Options of netserver: `tcpcost netserver --help`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        args: Vec<String>,
    },
    /// Run a profile of uperf (XML): master, slave, or both ends as a study.
    #[command(disable_help_flag = true)]
    Uperf {
        /// Options of uperf: `tcpcost uperf --help`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        args: Vec<String>,
    },
    /// Built-in studies and their knobs: list, show, knobs, convert.
    #[command(subcommand)]
    Study(StudyCommand),
    /// Print stored runs again, and rewrite their pages.
    Report(ReportArgs),
    /// Compare two kernels by instructions, in guests, on any machine, busy or not.
    Kernels(Box<KernelsArgs>),
    /// Say what can be measured on this host, and what to do for the rest; restore it.
    Doctor(DoctorArgs),
    /// Print man pages, completions or docs/commands.md, for packages of this program.
    #[command(subcommand, hide = true)]
    Generate(GenerateCommand),
    /// A wire with delay and loss between two namespaces; an agent starts it.
    #[command(hide = true)]
    Carry {
        /// Interface in this network namespace.
        device: String,
        /// Interface in the other network namespace.
        peer_device: String,
        /// Process in the other network namespace.
        peer_pid: u32,
    },
    /// A host of a bed, driven by standard input; `tcpcost run` starts it.
    #[command(hide = true)]
    Agent {
        /// Move into a new network namespace first.
        #[arg(long)]
        isolate: bool,
        /// Join the hosts in memory.
        #[arg(long, conflicts_with = "isolate")]
        memory: bool,
        /// Run both hosts in one thread, in turn.
        #[arg(long)]
        one_thread: bool,
        /// End and restore the host if the command is silent for this time.
        #[arg(long, value_name = "TIME", value_parser = interval)]
        lease: Option<Duration>,
        /// Wait without limit for a command to attach, and end with code 75 when that command has gone, to be started again.
        #[arg(long, conflicts_with_all = ["isolate", "memory", "one_thread"])]
        standing: bool,
        /// Answer only for the host with this number, from 0.
        #[arg(long, value_name = "NUMBER")]
        only: Option<usize>,
        /// Names of the hosts that this agent answers for; each line begins with a name.
        #[arg(required = true)]
        hosts: Vec<tcpcost_study::HostName>,
    },
}

/// Commands of `tcpcost generate`.
#[derive(Debug, Subcommand)]
pub enum GenerateCommand {
    /// Write a manual page for each command into a directory, which is made if it is missing.
    Man {
        /// The directory.
        directory: PathBuf,
    },
    /// Print completions for bash.
    Bash,
    /// Print completions for zsh.
    Zsh,
    /// Print completions for fish.
    Fish,
    /// Print docs/commands.md.
    Commands,
}
