//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

/// What each kilobyte of TCP costs in CPU, why, and which knob makes it cheaper.
#[derive(Debug, Parser)]
#[command(
    name = "tcpcost",
    version,
    max_term_width = 100,
    after_help = "Exit codes: 0 done, 1 failed, 2 usage or study file, 3 a threshold missed, 4 inconclusive,\n77 a capability is missing on this host, 130 interrupted."
)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Command,
    /// Say more on stderr (-v what is done, -vv with details).
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a study: make its bed, drive traffic, measure, report.
    Run(Run),
    /// List the built-in studies.
    List(Format),
    /// Print a built-in study as a file to copy and change.
    Show {
        /// Name of a built-in study.
        name: String,
    },
    /// List the knobs that a study can set, with what they take and their defaults.
    Knobs,
    /// Draw reports again from the records of earlier runs.
    Report(Report),
    /// Say what can and cannot be measured on this host, why, and what to do.
    Doctor {
        /// One JSON document: schema_version, checks.
        #[arg(long)]
        json: bool,
    },
    /// Show each CPU's load by the work that a spinner cannot do, interrupts and cache damage included.
    Soak(Soak),
    /// Put back what a killed run left changed on this host.
    Restore,
    /// Our own TCP, live on a TAP or TUN of this host: anybody's client can talk to it.
    Peer(Box<crate::peer::Flags>),
    /// One end of a bed, driven by standard input; `tcpcost run` starts it.
    #[command(hide = true)]
    Agent {
        /// Move into a network namespace of its own first.
        #[arg(long)]
        isolate: bool,
        /// Be both ends, joined in memory; lines then begin with the end's name.
        #[arg(long, conflicts_with = "isolate")]
        pair: bool,
    },
}

/// Which form results take on standard output.
#[derive(Debug, Clone, Copy, Args)]
#[group(multiple = false)]
pub struct Format {
    /// One JSON document (docs/records.md).
    #[arg(long)]
    pub json: bool,
    /// One CSV row per cell and quantity.
    #[arg(long)]
    pub csv: bool,
}

/// `tcpcost run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Name of a built-in study, or path of a study file.
    #[arg(required_unless_present = "resume")]
    pub study: Option<String>,
    /// Set a knob in every cell; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Repetitions of each cell at least; without a target also at most.
    #[arg(long, value_name = "N")]
    pub repetitions: Option<u32>,
    /// Length of the measured interval, e.g. 2s.
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Seed of the order of trials and of payload.
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for records and report [default: tcpcost-out/STUDY-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with an interrupted or killed run: no trial is repeated, none lost.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["study", "set", "repetitions", "duration", "seed", "out"])]
    pub resume: Option<PathBuf>,
    /// Print the cells and the estimated time, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// No progress on stderr.
    #[arg(short, long)]
    pub quiet: bool,
    /// Form of the results.
    #[command(flatten)]
    pub format: Format,
}

/// `tcpcost report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Directories of earlier runs.
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Form of the results.
    #[command(flatten)]
    pub format: Format,
}

/// `tcpcost soak`.
#[derive(Debug, Args)]
pub struct Soak {
    /// Time between two lines, in seconds or as in 500ms.
    #[arg(default_value = "1")]
    pub interval: String,
    /// Number of lines; without it, until Ctrl-C.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// CPUs to soak, e.g. 0-3,8 [default: all that are online and allowed].
    #[arg(long, value_name = "LIST")]
    pub cpus: Option<String>,
    /// Cache lines per second that each spinner dirties; 0 for none.
    #[arg(
        long,
        value_name = "N",
        default_value_t = tcpcost_meter::soak::DIRTY_LINES_DEFAULT,
        value_parser = clap::value_parser!(u64).range(..=tcpcost_meter::soak::DIRTY_LINES_MAX)
    )]
    pub dirty_lines: u64,
    /// Length of the calibration at each end, when the host is to be idle.
    #[arg(long, value_name = "TIME", default_value = "1")]
    pub calibrate: String,
    /// One JSON document a line: calibration, intervals, calibration.
    #[arg(long)]
    pub json: bool,
}
