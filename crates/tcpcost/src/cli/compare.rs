//! Options of `compare` and `kernels`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::run::{HostArgs, Telling};
use super::values::at_least_one;

/// `tcpcost compare`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Examples:\n  tcpcost compare before/ after/                          runs that are stored: two, or two folders of runs\n  tcpcost compare B1 B2 B3 --versus A1 A2 A3              the same, each run named\n  tcpcost compare tour --cells \"CELL\" \"CELL\"             two cells of a study, in turn\n  tcpcost compare tour --cell \"CELL\" --b mtu=9000        a cell against itself with a knob set otherwise\n  tcpcost compare tour --with tcpcost=./target/release/tcpcost   this program against another build\n  tcpcost compare -- ./old --versus -- ./new             two commands\n\nExit codes: 0 improves or equivalent, 3 regresses, 4 inconclusive; else as of run."
)]
pub struct Compare {
    /// Runs before and after a change: two directories, or several before --versus. Or a study, by name or file, whose cells run in turn.
    #[arg(value_name = "DIR|STUDY", num_args = 1.., required_unless_present = "command")]
    pub of: Vec<String>,
    /// Runs after the change.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub versus: Vec<String>,
    /// Two cells of the study, by name.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["cell", "a", "b", "with"])]
    pub cells: Option<Vec<String>>,
    /// Cell of the study that is compared with itself [default: each].
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
    /// Set a knob in the first of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub a: Vec<String>,
    /// Set a knob in the second of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub b: Vec<String>,
    /// Run the second of each pair with agents of another build.
    #[arg(long, value_name = "tcpcost=PATH")]
    pub with: Option<String>,
    /// Set a knob in both of a pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Least difference that matters, in percent; below it they are equivalent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub min_effect: f64,
    /// Measuring time after which an undecided comparison ends.
    #[arg(long, value_name = "TIME", default_value = "2min")]
    pub time: String,
    /// Length of the measured interval of each trial, e.g. 500ms [default: the study's].
    #[arg(long, value_name = "TIME")]
    pub duration: Option<String>,
    /// Seed of the order [default: the study's; of commands by the clock].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for records and report [default: tcpcost-out/compare-STUDY-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// How hosts of other machines are reached.
    #[command(flatten)]
    pub hosts: HostArgs,
    /// Formats of the results.
    #[command(flatten)]
    pub telling: Telling,
    /// Two commands: COMMAND… --versus -- COMMAND…
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "of")]
    pub command: Vec<String>,
}

/// Options of `kernels` that `kernels bisect` has, too.
const OF_BOTH: [&str; 7] = [
    "repetitions",
    "jobs",
    "allow_exec",
    "min_effect",
    "out",
    "format",
    "output",
];

/// `tcpcost kernels`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    mut_args(|arg| if OF_BOTH.contains(&arg.get_id().as_str()) { arg.global(true) } else { arg }),
    after_long_help = "A kernel is a package (.deb), a directory with boot/vmlinuz-*, a build tree, or an image.\n\nExit codes: 0 improves or equivalent, 3 regresses, 4 inconclusive; else as of run."
)]
pub struct Kernels {
    /// The kernel that B is compared with.
    #[arg(required = true)]
    pub a: Option<PathBuf>,
    /// The other kernel.
    #[arg(required = true)]
    pub b: Option<PathBuf>,
    /// Studies, by name or file.
    #[arg(value_name = "STUDY", default_value = "cost-of-tcp")]
    pub studies: Vec<String>,
    /// Boots of each kernel; from four on there is an interval [default: 6, of bisect 4].
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: Option<u32>,
    /// Guests at the same time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub jobs: Option<usize>,
    /// Let commands of the study run in the guests: `exec:…`, `attach:…`.
    #[arg(long)]
    pub allow_exec: bool,
    /// Least difference that matters, in percent [default: 0.2, of bisect the baseline's].
    #[arg(long, value_name = "PERCENT")]
    pub min_effect: Option<f64>,
    /// Set a knob in every cell; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Seed of the boots [default: the study's].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for the records; boots that are there are not repeated [default: tcpcost-out/kernels-TIME, of bisect none].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Formats of the results.
    #[command(flatten)]
    pub telling: Telling,
    /// Another question about kernels.
    #[command(subcommand)]
    pub command: Option<KernelsCommand>,
}

/// Commands of `tcpcost kernels`.
#[derive(Debug, Subcommand)]
pub enum KernelsCommand {
    /// Judge the kernel built in a tree, for `git bisect run`: exits with 0 if it is as good as an earlier run, 1 if it costs more, 125 if undecided.
    Bisect(Box<Bisect>),
}

/// `tcpcost kernels bisect`.
#[derive(Debug, Args)]
#[command(
    after_long_help = "Example, in a kernel tree, v6.12 being good and HEAD bad:\n  make bzImage modules && tcpcost run cost-of-tcp --guest=. --out /tmp/good    at v6.12\n  git bisect start HEAD v6.12\n  git bisect run sh -c 'make -s olddefconfig bzImage modules || exit 125; tcpcost kernels bisect . --baseline /tmp/good'\n\nExit codes: 0 as good, 1 costs more, 125 undecided (no boot, no verdict), 2 usage, 130 interrupted."
)]
pub struct Bisect {
    /// The kernel: its build tree, or another form that `kernels` takes.
    pub tree: PathBuf,
    /// Directory of the run of a good kernel, with --guest.
    #[arg(long, value_name = "DIR")]
    pub baseline: PathBuf,
    /// Judge by this cell alone.
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
}
