//! Options of `run`, and options that other commands share with it.

use std::path::PathBuf;

use clap::Args;
use tcpcost_console::format::{Output, RunFormats};
use tcpcost_console::values::at_least_one;
use tcpcost_guest::Caches;
use tcpcost_study::Share;

use super::second_clock::SecondClock;

/// `tcpcost run`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("earlier").args(["baseline", "in_turn_with"])))]
pub struct RunArgs {
    /// Name of a built-in study, or path of a study file or of a profile of uperf.
    #[arg(required_unless_present = "resume")]
    pub study: Option<String>,
    /// Run on the nodes of a Slurm job: of the job that this process is in, else of one that is submitted. Options of sbatch follow `--`.
    #[arg(long)]
    pub slurm: bool,
    /// Run only every Nth repetition, from the Kth, K from 0; so several runs share a study. With --resume the share has a folder of its own, which the report of that run includes.
    #[arg(long, value_name = "K/N")]
    pub share: Option<Share>,
    /// Set a knob in every cell; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Minimum of repetitions of each cell; without a target also the maximum.
    #[arg(short = 'n', long, value_name = "N")]
    pub repetitions: Option<u32>,
    /// Length of the measured interval, e.g. 2s.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Seed of the order of trials and of payload.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Meters of each trial, instead of the study's, e.g. exact,netstat; +segments,-soak adds one and takes one away (docs/study-file.md has their names).
    #[arg(long, value_name = "LIST", allow_hyphen_values = true)]
    pub meters: Option<String>,
    /// Measure what each meter costs: trials without meters, and with each meter alone, alternate with those of the study.
    #[arg(long)]
    pub meter_cost: bool,
    /// Capture N further trials of each cell, one without N; 0 captures none. The run's directory has a pcapng file for each end.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub capture: Option<u32>,
    /// Run for a minute at most: shorter intervals, fewer repetitions, and the cells that the study's table "quick" keeps.
    #[arg(long)]
    pub quick: bool,
    /// Directory for records and report [default: tcpcost-out/STUDY-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Continue an interrupted or killed run: no trial is repeated or lost.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["study", "set", "repetitions", "duration", "seed", "meters", "meter_cost", "capture", "quick", "out", "guest"])]
    pub resume: Option<PathBuf>,
    /// Compare each cell with earlier runs of the same study: the directory of a run, or a folder of runs. The change of the other cells is the reference. Exits with 3 if a cell costs more; thresholds with a percentage limit it.
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Run the study K times, each run in its own folder within --out. The same command continues after an interruption.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=999), conflicts_with_all = ["resume", "share", "slurm", "guest", "dry_run"])]
    pub runs: Option<u32>,
    /// With --runs: alternate with K new runs of what is stored in DIR; compares the two (out/before, out/after). DIR: a run, or a folder of runs.
    #[arg(long, value_name = "DIR", requires = "runs")]
    pub in_turn_with: Option<PathBuf>,
    /// The build that makes the earlier runs: tcpcost=PATH. With --baseline both builds make new runs in turn, five of each unless --runs is given; with --in-turn-with [default: this one].
    #[arg(long, value_name = "tcpcost=PATH", requires = "earlier", conflicts_with_all = ["resume", "share", "slurm", "guest", "dry_run"])]
    pub with: Option<String>,
    /// The smallest difference that matters, in percent: with --baseline or --in-turn-with [default: the study's, or 1].
    #[arg(long, value_name = "PERCENT")]
    pub min_effect: Option<f64>,
    /// How hosts of other machines are reached.
    #[command(flatten)]
    pub hosts: HostArgs,
    /// Count instructions, not time: run the study in guests that QEMU emulates, each repetition a snapshot (docs/kernels.md). KERNEL: a package (.deb), a directory with boot/vmlinuz-*, a build tree or an image [default: the one that runs here].
    #[arg(long, value_name = "KERNEL", num_args = 0..=1, require_equals = true)]
    pub guest: Option<Option<PathBuf>>,
    /// Options for the guest's kernel, e.g. mitigations=auto; with --guest: its command line ends with them.
    #[arg(
        long,
        value_name = "OPTIONS",
        requires = "guest",
        allow_hyphen_values = true
    )]
    pub append: Option<String>,
    /// Run a command in each guest before it is saved: with --guest, e.g. "nft -f rules.nft". Its program, libraries and files come from this host; "modprobe NAME…" loads modules of the guest's kernel. There is no shell; may be repeated, in order.
    #[arg(long, value_name = "COMMAND", requires = "guest")]
    pub init: Vec<String>,
    /// Estimate cycles by a model of caches; with --guest: those of each function, by its misses. A guest then takes three times as long. CACHES: host, or those of instructions, of data, the second and the last level, e.g. 32K/8,32K/8,1M/8,32M/16 (size/ways).
    #[arg(long, value_name = "CACHES", requires = "guest")]
    pub caches: Option<Caches>,
    /// Count in instructions what time leaves undecided: in guests, after the trials. WHEN: auto (where QEMU and this host's kernel can be had, not with --quick), never, always (all findings), or a KERNEL as of --guest. TCPCOST_SECOND_CLOCK changes the default.
    #[arg(
        long,
        value_name = "WHEN|KERNEL",
        default_value = "auto",
        hide_default_value = true,
        env = "TCPCOST_SECOND_CLOCK",
        hide_env = true
    )]
    pub second_clock: SecondClock,
    /// Guests at the same time [default: one for each CPU].
    #[arg(short, long, value_name = "N", value_parser = at_least_one)]
    pub jobs: Option<usize>,
    /// Print what would run, and run nothing: the cells, the time and each command. With --slurm also print the job's script.
    #[arg(long)]
    pub dry_run: bool,
    /// Options of sbatch, e.g. --nodes=16 --time=10 --wait; they override those of the script.
    #[arg(
        last = true,
        value_name = "SBATCH OPTION",
        requires = "slurm",
        hide_short_help = true
    )]
    pub sbatch: Vec<String>,
    /// Formats of the results.
    #[command(flatten)]
    pub telling: Telling,
}

/// How the hosts of a study are reached (docs/hosts.md).
#[derive(Debug, Clone, Default, Args)]
pub struct HostArgs {
    /// How the lab's hosts are reached: a file, or one of its lines; may be repeated (docs/hosts.md).
    ///
    /// Lines are NAME=VALUE:
    ///   ssh=COMMAND        the ssh to reach hosts by, with its options [default: ssh in batch mode]
    ///   push=on            copy this program to the hosts, and run it there
    ///   program=COMMAND    tcpcost on the hosts, e.g. sudo -n tcpcost
    ///   silence_max=TIME   time without an answer after which a host is given up [default: 60s]
    ///   NETIF, LOCAL_V4, … of the kernel's driver tests (net.config): the two hosts of a study
    #[arg(long = "hosts", value_name = "FILE|NAME=VALUE", verbatim_doc_comment)]
    pub lab: Vec<String>,
    /// Let commands run that the study names, not this command line. These are `exec:…`, `attach:…`, a program or a kernel of a stored run; --dry-run prints them.
    #[arg(long)]
    pub allow_exec: bool,
    /// Start the agent of a host by another program: its arguments, then tcpcost's own.
    #[arg(long, value_name = "HOST=PROGRAM ARGUMENT…", hide = true)]
    pub launch: Vec<String>,
}

/// How the results of a run are printed.
#[derive(Debug, Clone, Args)]
pub struct Telling {
    /// True for no progress on standard error; `--quiet` of all commands.
    #[arg(skip)]
    pub quiet: bool,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<RunFormats>,
}
