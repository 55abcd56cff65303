//! Options of `study`, `report`, `doctor` and `uperf`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::format::{ListFormats, Output, ReportFormats, ShowFormats, TextOrJson};

/// `tcpcost study`.
#[derive(Debug, Subcommand)]
pub enum Study {
    /// List the built-in studies.
    List(Output<ListFormats>),
    /// Print a built-in study as a file to copy and change, or the objects of Kubernetes whose pods are its hosts.
    Show(Show),
    /// List the knobs that a study can set: values, defaults, and support by each TCP.
    Knobs {
        /// This knob alone.
        name: Option<String>,
    },
    /// Print a profile of uperf (XML) as a study file that runs the same.
    Convert {
        /// Path of the profile.
        profile: String,
    },
}

/// `tcpcost study show`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Keys of --pod:\n  image=IMAGE          the image of the pods, with tcpcost (make static) in its PATH; needed\n  attach               the agents are the Job itself, reached by kubectl attach instead of exec\n  host-network         measure the nodes' own devices instead of the pods'\n  capabilities=LIST    capabilities of the pods, or none [default: BPF,PERFMON,NET_ADMIN]\n  tolerate=TAINT       a node taint to tolerate: KEY=VALUE:EFFECT, KEY:EFFECT or KEY; may be repeated\n  namespace=NAME       namespace of the objects [default: kubectl's]\n  deadline=SECONDS     time after which the pods end by themselves [default: 86400]"
)]
pub struct Show {
    /// Name of a built-in study; with --format manifest also the path of a study file.
    pub name: String,
    /// Format of the study.
    #[command(flatten)]
    pub output: Output<ShowFormats>,
    /// With --format manifest: image=IMAGE, and other properties of the pods; may be repeated.
    #[arg(long, value_name = "KEY=VALUE")]
    pub pod: Vec<String>,
}

/// `tcpcost doctor`.
#[derive(Debug, Args)]
pub struct Doctor {
    /// Restore what a killed run left changed on this host, and check nothing.
    #[arg(long)]
    pub restore: bool,
    /// Format of the checks.
    #[command(flatten)]
    pub output: Output<TextOrJson>,
}

/// `tcpcost uperf`.
#[derive(Debug, Args)]
pub struct Uperf {
    /// The profile (XML), with its variables in the environment: h=server tcpcost uperf -m iperf.xml.
    #[arg(short = 'm', value_name = "PROFILE")]
    pub profile: String,
    /// Print all statistics: percentiles of each flowop.
    #[arg(short = 'a')]
    pub all: bool,
    /// Options of tcpcost run, after `--`.
    #[arg(last = true, value_name = "RUN OPTION")]
    pub run: Vec<String>,
}

/// `tcpcost report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Directories of earlier runs.
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Cell of --format flame, by its name or by its number in --dry-run. Two cells: the difference of the second to the first.
    #[arg(long, value_name = "CELL")]
    pub cell: Vec<String>,
    /// Formats of the results.
    #[command(flatten)]
    pub output: Output<ReportFormats>,
}
