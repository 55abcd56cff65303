//! The command line.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::metrics_address::listen_address;
use crate::output::{Format, RunFormat};
use clap::{Args, Parser, Subcommand};
use tcpcost_study::Share;
use tcpcost_watch::{By, Filter, Form, Wanted};

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
    Run(Box<RunArgs>),
    /// List the built-in studies.
    List(Format),
    /// Print a built-in study as a file to copy and change.
    Show {
        /// Name of a built-in study.
        name: String,
    },
    /// Print a profile of uperf (XML) as a study file, which runs the same.
    Convert {
        /// Path of the profile.
        profile: String,
    },
    /// List the knobs that a study can set, with what they take and their defaults.
    Knobs,
    /// Say whether one thing costs more than another: cells, settings, builds, commands or runs; live ones run in turn until it is known.
    Compare(Box<Compare>),
    /// Say whether one kernel costs more instructions than another: studies in guests of both, on any machine, busy or not.
    Kernels(Kernels),
    /// For `git bisect run`: whether the kernel built in a tree costs more instructions than a run before; 0 no, 1 yes, 125 not to be told.
    Bisect(Bisect),
    /// Draw reports again from the records of earlier runs.
    Report(Report),
    /// Print what Kubernetes is to run so that a study's hosts are pods, and the table of hosts that its study is to have.
    Manifest(crate::manifest::ManifestArgs),
    /// Say what can and cannot be measured on this host, why, and what to do.
    Doctor {
        /// One JSON document: schema_version, checks.
        #[arg(long)]
        json: bool,
    },
    /// Show each CPU's load by the work that a spinner cannot do, interrupts and cache damage included.
    Soak(Soak),
    /// Tell what captures say about ACKs, bursts, splits and stalls.
    Trace(Trace),
    /// Show what TCP costs on this host as it runs, line by line: any application, no benchmark.
    Watch(Watch),
    /// Say what a command costs in CPU, softirqs included, and what its TCP did; or one command against another.
    Stat(Stat),
    /// Put back what a killed run left changed on this host.
    Restore,
    /// Our own TCP, live on a TAP or TUN of this host: anybody's client can talk to it.
    Peer(Box<crate::peer::Flags>),
    /// Relay TCP connections to a service, and tell what was moved and how: by copy, splice or io_uring.
    Relay(Box<crate::relay::Flags>),
    /// netperf's command line for TCP, as `netperf` itself if this program is called by that name (docs/fronts.md).
    #[command(disable_help_flag = true)]
    Netperf {
        /// netperf's own: `tcpcost netperf -h`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        args: Vec<String>,
    },
    /// Answers netperf, on loopback unless addresses are named; as `netserver` itself if called by that name.
    #[command(disable_help_flag = true)]
    Netserver {
        /// netserver's own: `tcpcost netserver -h`.
        #[arg(
            trailing_var_arg = true,
            allow_hyphen_values = true,
            value_name = "OPTION"
        )]
        args: Vec<String>,
    },
    /// A wire with delay and loss between two namespaces; an agent starts it.
    #[command(hide = true)]
    Carry {
        /// The interface here.
        device: String,
        /// The other.
        peer_device: String,
        /// The process in whose network namespace it is.
        peer_pid: u32,
    },
    /// A host of a bed, driven by standard input; `tcpcost run` starts it.
    #[command(hide = true)]
    Agent {
        /// Move into a network namespace of its own first.
        #[arg(long)]
        isolate: bool,
        /// Join the hosts in memory.
        #[arg(long, conflicts_with = "isolate")]
        memory: bool,
        /// Let its two hosts take turns in one thread.
        #[arg(long)]
        one_thread: bool,
        /// Leave, and put back what was changed, if nothing is heard for so long.
        #[arg(long, value_name = "TIME", value_parser = interval)]
        lease: Option<Duration>,
        /// Wait as long as it takes for a command to attach, and end with code 75 when it has gone, to be started anew.
        #[arg(long, conflicts_with_all = ["isolate", "memory", "one_thread"])]
        standing: bool,
        /// Answer for the host of this number alone, from 0.
        #[arg(long, value_name = "NUMBER")]
        only: Option<usize>,
        /// Names of the hosts that it answers for; each line begins with one.
        #[arg(required = true)]
        hosts: Vec<tcpcost_study::HostName>,
    },
}

/// `tcpcost run`.
#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("earlier").args(["baseline", "in_turn_with"])))]
pub struct RunArgs {
    /// Name of a built-in study, or path of a study file or of a profile of uperf.
    #[arg(required_unless_present = "resume")]
    pub study: Option<String>,
    /// Have the hosts on nodes of a Slurm job: of this one, inside of a job; else submit one, with the options of sbatch behind `--`.
    #[arg(long)]
    pub slurm: bool,
    /// Do every Nth repetition alone, from the Kth, K from 0; with --resume in a folder of that run of its own, which its report includes. Several runs share a study so.
    #[arg(long, value_name = "K/N")]
    pub share: Option<Share>,
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
    /// Tell what each standing meter costs: trials without them, and with each alone, in turn with the study's.
    #[arg(long)]
    pub meter_cost: bool,
    /// Capture N further trials of each cell [N: 1], or none with 0: a pcapng file per end in the run's directory.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, default_missing_value = "1")]
    pub capture: Option<u32>,
    /// A minute at most: shorter intervals, fewer repetitions, and of the cells those that the study's table "quick" keeps.
    #[arg(long)]
    pub quick: bool,
    /// The two hosts of the kernel's driver tests, for a study that names none: a file net.config with NETIF, LOCAL_V4, REMOTE_V4, REMOTE_TYPE, REMOTE_ARGS.
    #[arg(long, value_name = "FILE")]
    pub net_config: Option<PathBuf>,
    /// Directory for records and report [default: tcpcost-out/STUDY-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Go on with an interrupted or killed run: no trial is repeated, none lost.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["study", "set", "net_config", "repetitions", "duration", "seed", "meter_cost", "capture", "quick", "out", "exact_instructions"])]
    pub resume: Option<PathBuf>,
    /// Compare each cell with earlier runs of the same study, against the other cells: the directory of a run, or a folder of runs. Exits with 3 if a cell costs more; thresholds with a percentage limit it.
    #[arg(long, value_name = "DIR")]
    pub baseline: Option<PathBuf>,
    /// Run the study so many times, each run in a folder of its own within --out. The same command goes on after an interruption.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(1..=999), conflicts_with_all = ["resume", "share", "slurm", "exact_instructions", "dry_run"])]
    pub runs: Option<u32>,
    /// With --runs: alternate with K new runs of what this directory holds, a run or a folder of runs, and compare the two (out/before, out/after).
    #[arg(long, value_name = "DIR", requires = "runs")]
    pub in_turn_with: Option<PathBuf>,
    /// The build that makes the earlier runs: tcpcost=PATH. With --baseline both builds make new runs in turn, five of each unless --runs says; with --in-turn-with [default: this one].
    #[arg(long, value_name = "tcpcost=PATH", requires = "earlier", conflicts_with_all = ["resume", "share", "slurm", "exact_instructions", "dry_run"])]
    pub with: Option<String>,
    /// With --baseline or --in-turn-with: the smallest difference that matters, in percent [default: the study's, or 1].
    #[arg(long, value_name = "PERCENT")]
    pub min_effect: Option<f64>,
    /// How hosts are reached that are not of this machine.
    #[command(flatten)]
    pub hosts: HostArgs,
    /// Count instructions, not time: run the study in guests that QEMU emulates, each repetition a boot of its own (docs/netdev.md).
    #[arg(long)]
    pub exact_instructions: bool,
    /// With --exact-instructions: the guests' kernel, a package (.deb), a directory with boot/vmlinuz-*, a build tree or an image [default: the one that runs here].
    #[arg(long, value_name = "PATH", requires = "exact_instructions")]
    pub kernel: Option<PathBuf>,
    /// With --exact-instructions: guests at the same time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub at_once: Option<usize>,
    /// Print the cells, the estimated time and each command that would run, with --slurm the job's script, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Options of sbatch, e.g. --nodes=16 --time=10 --wait; they win over those of the script.
    #[arg(last = true, value_name = "SBATCH OPTION", requires = "slurm")]
    pub sbatch: Vec<String>,
    /// What is told, and how.
    #[command(flatten)]
    pub telling: Telling,
}

/// How the hosts of a study are reached (docs/fleet.md).
#[derive(Debug, Clone, Default, Args)]
pub struct HostArgs {
    /// Copy this program to the hosts of a study that are reached by ssh or another program, into ~/.cache/tcpcost there, and run it from there.
    #[arg(long)]
    pub push: bool,
    /// The ssh to reach hosts by, with its options, e.g. "ssh -F lab.conf" [default: ssh, in batch mode, which gives a silent connection up after 15 s].
    #[arg(long, value_name = "COMMAND")]
    pub ssh: Option<String>,
    /// tcpcost on the hosts that are reached by ssh or another program, with words before it, e.g. "sudo -n tcpcost" [default: tcpcost, as their shell finds it].
    #[arg(long, value_name = "COMMAND", conflicts_with = "push")]
    pub host_program: Option<String>,
    /// Let commands run that the study names, not this command line: `exec:…`, `attach:…`, a program or a kernel of a stored run. --dry-run prints them.
    #[arg(long)]
    pub allow_exec: bool,
    /// A host that does not answer for so long is given up, and one behind another program that hears nothing for so long puts back what was changed [default: 60s].
    #[arg(long, value_name = "TIME")]
    pub silence_max: Option<String>,
    /// Start the agent of a host by another program: its arguments, then tcpcost's own.
    #[arg(long, value_name = "HOST=PROGRAM ARGUMENT…", hide = true)]
    pub launch: Vec<String>,
}

/// What is told of a run, and how.
#[derive(Debug, Clone, Args)]
pub struct Telling {
    /// No progress on stderr.
    #[arg(short, long)]
    pub quiet: bool,
    /// Print all tables: whose CPU, methods beside each other, ACKs, response times, functions, captures.
    #[arg(long, conflicts_with = "RunFormat")]
    pub details: bool,
    /// Write the results to a file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Form of the results.
    #[command(flatten)]
    pub format: RunFormat,
}

/// `tcpcost stat`.
#[derive(Debug, Args)]
pub struct Stat {
    /// Runs of the command, or of each of two.
    #[arg(short, long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repeat: u32,
    /// A regular expression of a number in the command's output, its first group: what it did, e.g. '(\d+) requests'. The cost is told per unit of it.
    #[arg(long, value_name = "REGEX")]
    pub per: Option<String>,
    /// Run in a fresh network namespace that has nothing but lo, so that all TCP is the command's.
    #[arg(long)]
    pub fresh_netns: bool,
    /// Measure processes that run already, and all that they start, while the command runs, e.g. `sleep 10`; without a command until Ctrl-C.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "fresh_netns"
    )]
    pub pid: Vec<u32>,
    /// The same of all processes of a cgroup: its directory.
    #[arg(long, value_name = "DIR", conflicts_with = "fresh_netns")]
    pub cgroup: Option<PathBuf>,
    /// The same of all processes in a network namespace: its name (ip netns), its path, or the id of a process in it.
    #[arg(long, value_name = "NAME|PID|PATH", conflicts_with_all = ["fresh_netns", "pid", "cgroup"])]
    pub netns: Option<String>,
    /// Count sends, receives and the network's other system calls, too. The latter make each system call of the machine cost more meanwhile; with --pid, --cgroup or --netns only sends and receives are counted.
    #[arg(long)]
    pub syscalls: bool,
    /// Of two commands: the least difference that matters, in percent; within it they are equivalent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub min_effect: f64,
    /// Seed of the order of two commands [default: by the clock].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Write the results to a file instead of standard error.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Form of the results.
    #[command(flatten)]
    pub format: Format,
    /// The command and its arguments; or two: COMMAND… --versus -- COMMAND…. Options of stat come before the command.
    #[arg(trailing_var_arg = true, value_name = "COMMAND", required_unless_present_any = ["pid", "cgroup", "netns"])]
    pub command: Vec<String>,
}

/// `tcpcost compare`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  tcpcost compare before/ after/                          runs that are stored: two, or two folders of runs\n  tcpcost compare B1 B2 B3 --versus A1 A2 A3              the same, each run named\n  tcpcost compare tour --cells \"CELL\" \"CELL\"             two cells of a study, in turn\n  tcpcost compare tour --cell \"CELL\" --b mtu=9000        a cell against itself with a knob set otherwise\n  tcpcost compare tour --with tcpcost=./target/release/tcpcost   this program against another build\n  tcpcost compare -- ./old --versus -- ./new             two commands\n\nExit codes: 0 improves or equivalent, 3 regresses, 4 inconclusive; else as of run."
)]
pub struct Compare {
    /// Runs before a change, then runs after it: two directories, or several before --versus; or a study, by name or file, whose cells are run in turn.
    #[arg(value_name = "DIR|STUDY", num_args = 1.., required_unless_present = "command")]
    pub of: Vec<String>,
    /// Runs after the change.
    #[arg(long, value_name = "DIR", num_args = 1..)]
    pub versus: Vec<String>,
    /// Two cells of the study, by name.
    #[arg(long, num_args = 2, value_names = ["A", "B"], conflicts_with_all = ["cell", "a", "b", "with"])]
    pub cells: Option<Vec<String>>,
    /// The one cell of the study that is compared with itself [default: each].
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
    /// Set a knob in the first of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub a: Vec<String>,
    /// Set a knob in the second of each pair; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub b: Vec<String>,
    /// The hosts of the second are agents of another build: tcpcost=PATH.
    #[arg(long, value_name = "tcpcost=PATH")]
    pub with: Option<String>,
    /// Set a knob in both; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// The least difference that matters, in percent: within it they are equivalent.
    #[arg(long, value_name = "PERCENT", default_value_t = 1.0)]
    pub min_effect: f64,
    /// Measuring time after which what is not decided stays so.
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
    /// How hosts are reached that are not of this machine.
    #[command(flatten)]
    pub hosts: HostArgs,
    /// What is told, and how.
    #[command(flatten)]
    pub telling: Telling,
    /// Two commands: COMMAND… --versus -- COMMAND…
    #[arg(last = true, value_name = "COMMAND", conflicts_with = "of")]
    pub command: Vec<String>,
}

/// `tcpcost kernels`.
#[derive(Debug, Args)]
#[command(
    after_help = "A kernel is a package (.deb), a directory with boot/vmlinuz-*, a build tree, or an image.\n\nExit codes: 0 improves or equivalent, 3 regresses, 4 inconclusive; else as of run."
)]
pub struct Kernels {
    /// The kernel that the other is held against.
    pub a: PathBuf,
    /// The other.
    pub b: PathBuf,
    /// Studies, by name or file.
    #[arg(value_name = "STUDY", default_value = "cost-of-tcp")]
    pub studies: Vec<String>,
    /// Boots of each kernel: four at least have an interval.
    #[arg(long, value_name = "N", default_value_t = 6, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub boots: u32,
    /// Guests at the same time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub at_once: Option<usize>,
    /// Let commands run that the study names, not this command line (`exec:…`, `attach:…`), in the guests.
    #[arg(long)]
    pub allow_exec: bool,
    /// The least difference that matters, in percent.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.2)]
    pub min_effect: f64,
    /// Set a knob in every cell; may be repeated.
    #[arg(long, value_name = "KNOB=VALUE")]
    pub set: Vec<String>,
    /// Seed of the boots [default: the study's].
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Directory for both kernels' records; what is there already is not done again [default: tcpcost-out/kernels-TIME].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is told, and how.
    #[command(flatten)]
    pub telling: Telling,
}

/// `tcpcost bisect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example, in a kernel tree, v6.12 being good and HEAD bad:\n  make bzImage modules && tcpcost run cost-of-tcp --exact-instructions --kernel . --out /tmp/good    at v6.12\n  git bisect start HEAD v6.12\n  git bisect run sh -c 'make -s olddefconfig bzImage modules || exit 125; tcpcost bisect . --baseline /tmp/good'\n\nExit codes: 0 as good, 1 dearer, 125 not to be told (no boot, no verdict), 2 usage, 130 interrupted."
)]
pub struct Bisect {
    /// The kernel: its build tree, or what `kernels` takes.
    pub tree: PathBuf,
    /// The run that it is held against, of a good kernel, with --exact-instructions: its directory.
    #[arg(long, value_name = "DIR")]
    pub baseline: PathBuf,
    /// Judge by this cell alone.
    #[arg(long, value_name = "NAME")]
    pub cell: Option<String>,
    /// Boots: four at least have an interval.
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub boots: u32,
    /// Guests at the same time [default: one for each CPU].
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub at_once: Option<usize>,
    /// Let commands run that the study names, not this command line (`exec:…`, `attach:…`), in the guests.
    #[arg(long)]
    pub allow_exec: bool,
    /// The least difference that matters, in percent [default: the baseline's].
    #[arg(long, value_name = "PERCENT")]
    pub min_effect: Option<f64>,
    /// Directory for the records [default: none is kept].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// What is told, and how.
    #[command(flatten)]
    pub telling: Telling,
}

/// `tcpcost report`.
#[derive(Debug, Args)]
pub struct Report {
    /// Directories of earlier runs.
    #[arg(required = true, value_name = "DIR")]
    pub directories: Vec<PathBuf>,
    /// Print the flame graph of a cell, an SVG. A cell is named, or numbered as --dry-run numbers it.
    #[arg(long, value_name = "CELL", conflicts_with = "RunFormat")]
    pub flame: Option<String>,
    /// Print a differential flame graph, an SVG: what CELL costs more and less than FIRST.
    #[arg(long, num_args = 2, value_names = ["FIRST", "CELL"], conflicts_with_all = ["RunFormat", "flame"])]
    pub flame_diff: Option<Vec<String>>,
    /// Print all tables: whose CPU, methods beside each other, ACKs, response times, functions, captures.
    #[arg(long, conflicts_with_all = ["RunFormat", "flame", "flame_diff"])]
    pub details: bool,
    /// Form of the results.
    #[command(flatten)]
    pub format: RunFormat,
}

/// `tcpcost soak`.
#[derive(Debug, Args)]
pub struct Soak {
    /// Time between two lines, e.g. 1s, 500ms; a plain number is seconds.
    #[arg(default_value = "1s", value_parser = interval)]
    pub interval: Duration,
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
    /// Length of the calibration at each end, when the host must be idle; after Ctrl-C at most half a second.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub calibrate: Duration,
    /// One JSON document a line: calibration, intervals, calibration.
    #[arg(long)]
    pub json: bool,
}

/// `tcpcost trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Captures: pcap, pcapng or tcpdump's text, plain or as .gz, .zst, .lz4 or .xz; `-` is standard input.
    #[arg(required_unless_present = "interface", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Go on as the file (or pipe) grows: what was found so far each --interval, all of it on Ctrl-C.
    #[arg(long)]
    pub follow: bool,
    /// Follow what passes this interface (`any` for all), through libpcap.
    #[arg(short, long, value_name = "IFACE", conflicts_with_all = ["files", "join"])]
    pub interface: Option<String>,
    /// Time between two looks while following.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// End after so many looks [default: on Ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Take the files as pieces of one capture, in this order.
    #[arg(long)]
    pub join: bool,
    /// Hold two captures against each other: of one transfer at two places, or of the same thing before
    /// and after a change.
    #[arg(long, conflicts_with_all = ["follow", "interface", "join", "html", "connection", "csv"])]
    pub compare: bool,
    /// Show this connection in depth; of several, as 1,4, the charts of a page stand beside each other.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub connection: Vec<usize>,
    /// Only what one end with this address sent or received; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Vec<std::net::IpAddr>,
    /// Only what one end with this port sent or received; may be repeated.
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// Only from this time after the first packet on, e.g. 1.5s; @NS is nanoseconds since the epoch.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only before this time after the first packet, or before @NS.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// A pause that ends a burst.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub burst_gap: String,
    /// Payload of a full-sized wire segment, in place of what the capture tells.
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub mss: Option<u32>,
    /// Write a page with charts of --connection, or else of the largest (of a pipe or a live capture: the first), into this file.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Form of the results.
    #[command(flatten)]
    pub format: Format,
}

/// `tcpcost watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Time between lines, e.g. 1s, 500ms; a plain number is seconds.
    #[arg(default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Lines to show; without it until Ctrl-C.
    #[arg(value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// One JSON object a line (docs/watch.md).
    #[arg(long)]
    pub json: bool,
    /// Lines on a terminal too, not a screen.
    #[arg(long)]
    pub lines: bool,
    /// Show rows of this below each line: bytes and segments, and CPU time in user mode, system, softirqs and hard interrupts (of
    /// a connection there is no CPU time). May be repeated.
    #[arg(long, value_name = "WHAT")]
    pub by: Vec<WatchBy>,
    /// Rows of each; the ones that took the most CPU time or, without that, moved the most bytes.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub rows: usize,
    /// Watch another network namespace: its name (ip netns), its path, or the id of a process in it.
    #[arg(long, value_name = "NAME|PID|PATH")]
    pub netns: Option<String>,
    /// Only IPv4 connections; as all filters, for the rows of `--by`, and not for their CPU time.
    #[arg(short = '4', conflicts_with = "ipv6")]
    pub ipv4: bool,
    /// Only IPv6 connections; one with an IPv4 peer on an IPv6 socket counts as IPv4.
    #[arg(short = '6')]
    pub ipv6: bool,
    /// Only connections with this port at either end; may be repeated.
    #[arg(long)]
    pub port: Vec<u16>,
    /// Only connections with this address at either end; may be repeated.
    #[arg(long)]
    pub address: Vec<IpAddr>,
    /// Serve base-unit counters to Prometheus at http://ADDR/metrics; a port alone is of 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub prometheus: Option<SocketAddr>,
    /// Answer requests for metrics by this name of the host, too; addresses and its own name go without. May be repeated.
    #[arg(long, value_name = "NAME", requires = "prometheus")]
    pub metrics_host: Vec<String>,
    /// Sample once the eBPF programs would take more than so many percent of one CPU; 100 is never.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.6, value_parser = percent)]
    pub self_max: f64,
}

/// What rows of `watch` are of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchBy {
    Connection,
    Process,
    Cgroup,
    Netns,
    /// The port of the service: here where it is listened on, else at the other end.
    Port,
}

impl From<WatchBy> for By {
    fn from(by: WatchBy) -> By {
        match by {
            WatchBy::Connection => By::Connection,
            WatchBy::Process => By::Process,
            WatchBy::Cgroup => By::Cgroup,
            WatchBy::Netns => By::Namespace,
            WatchBy::Port => By::Port,
        }
    }
}

impl Watch {
    /// What it asks for.
    pub fn options(&self) -> tcpcost_watch::Options {
        let rows = self.by.iter().map(|&by| (by.into(), self.rows));
        let canonical = self.address.iter().map(IpAddr::to_canonical);
        tcpcost_watch::Options {
            interval: self.interval,
            count: self.count,
            form: match (self.json, self.lines) {
                (true, _) => Form::Json,
                (false, true) => Form::Lines,
                (false, false) => Form::Screen,
            },
            wanted: Wanted {
                rows: rows.collect(),
                filter: Filter {
                    ipv6: (self.ipv4 || self.ipv6).then_some(self.ipv6),
                    ports: self.port.clone(),
                    addresses: canonical.collect(),
                },
            },
            prometheus: self.prometheus,
            names: self.metrics_host.clone(),
            netns: self.netns.clone(),
            self_max: self.self_max / 100.0,
        }
    }
}

/// An interval of `watch`, `soak` and `trace --follow`: at least 10 ms, a tick of /proc/stat, below which a line costs
/// more than it shows.
fn interval(text: &str) -> Result<Duration, String> {
    const EXPECTED: &str = "a time such as 1s, 500ms, or plain seconds; at least 10ms";
    let parsed = match text.parse::<f64>() {
        Ok(seconds) => Duration::try_from_secs_f64(seconds).ok(),
        Err(_) => tcpcost_study::units::duration(text).ok(),
    };
    // A year is as good as never, and fits every clock.
    const YEAR: Duration = Duration::from_secs(365 * 86_400);
    parsed
        .filter(|interval| (Duration::from_millis(10)..=YEAR).contains(interval))
        .ok_or_else(|| EXPECTED.to_string())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number >= 1);
    number.ok_or_else(|| "a whole number from 1".to_string())
}

/// Of one CPU; 0 would see nothing.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.01..=100.0).contains(percent))
        .ok_or_else(|| "a number from 0.01 to 100".to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Limit on the options of all commands together. Lower it when one goes.
    const OPTIONS_MAX: usize = 297;

    /// Options of a command and of those below it, as `run --set`. Not `--help` and `--version`.
    fn options(command: &clap::Command, path: &str, list: &mut Vec<String>) {
        let visible = command.get_arguments().filter(|arg| !arg.is_positional());
        for arg in visible.filter(|arg| !arg.is_hide_set()) {
            let name = match (arg.get_long(), arg.get_short()) {
                (Some(long), _) => format!("--{long}"),
                (None, short) => format!("-{}", short.expect("an option has a name")),
            };
            list.push(format!("{path}{name}"));
        }
        for below in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            options(below, &format!("{path}{} ", below.get_name()), list);
        }
    }

    #[test]
    fn there_are_few_options() {
        let mut list = Vec::new();
        options(&<Cli as clap::CommandFactory>::command(), "", &mut list);
        println!("{}", list.join("\n"));
        let count = list.len();
        assert_eq!(count, OPTIONS_MAX, "options:\n{}", list.join("\n"));
    }

    #[test]
    fn an_interval_has_a_unit_or_is_in_seconds() {
        assert_eq!(interval("1s"), Ok(Duration::from_secs(1)));
        assert_eq!(interval("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(interval("2"), Ok(Duration::from_secs(2)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "-1", "1ms", "nan", "inf", "1e300", "1h", "", "s"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
    }
}
