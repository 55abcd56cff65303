//! Options of `stat`, `trace` and `watch`.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tcpcost_watch::{By, Filter, Form, Wanted};

use super::values::{at_least_one, interval, ip_version, percent};
use crate::format::{Format, Output, StatFormats, TraceFormats, WatchFormats};
use crate::metrics_address::listen_address;

/// `tcpcost stat`.
#[derive(Debug, Args)]
pub struct Stat {
    /// Runs of the command, or of each of two commands.
    #[arg(short = 'n', long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub repetitions: u32,
    /// Regular expression whose first group is a number in the command's output, e.g. '(\d+) requests'. The cost is also given per unit of that number.
    #[arg(long, value_name = "REGEX")]
    pub per: Option<String>,
    /// Run in a new network namespace with lo alone, so that all TCP is the command's.
    #[arg(long)]
    pub fresh_netns: bool,
    /// Measure running processes and all that they start, while the command runs, e.g. `sleep 10`; without a command until Ctrl-C.
    #[arg(
        short,
        long,
        value_name = "PID",
        value_delimiter = ',',
        conflicts_with = "fresh_netns"
    )]
    pub pid: Vec<u32>,
    /// Measure all processes of a cgroup: its directory.
    #[arg(long, value_name = "DIR", conflicts_with = "fresh_netns")]
    pub cgroup: Option<PathBuf>,
    /// Measure all processes in a network namespace: its name (ip netns), its path, or the id of a process in it.
    #[arg(long, value_name = "NAME|PID|PATH", conflicts_with_all = ["fresh_netns", "pid", "cgroup"])]
    pub netns: Option<String>,
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

/// `tcpcost trace`.
#[derive(Debug, Args)]
pub struct Trace {
    /// Captures: pcap, pcapng or tcpdump's text, plain or as .gz, .zst, .lz4 or .xz; `-` is standard input.
    #[arg(required_unless_present = "interface", value_name = "FILE")]
    pub files: Vec<PathBuf>,
    /// Follow a file or pipe as it grows: findings so far each --interval, all findings on Ctrl-C.
    #[arg(long)]
    pub follow: bool,
    /// Follow the packets of this interface (`any` for all), through libpcap.
    #[arg(short, long, value_name = "IFACE", conflicts_with_all = ["files", "join"])]
    pub interface: Option<String>,
    /// Time between two reports while following.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// End after N reports [default: on Ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Take the files as pieces of one capture, in this order.
    #[arg(long)]
    pub join: bool,
    /// Compare two captures: of one transfer at two places, or of a transfer before and after a change.
    #[arg(long, conflicts_with_all = ["follow", "interface", "join", "connection"])]
    pub compare: bool,
    /// Show this connection in depth; of several, as 1,4, a page has the charts side by side.
    #[arg(long, value_name = "N", value_delimiter = ',')]
    pub connection: Vec<usize>,
    /// Only packets from or to this address; may be repeated.
    #[arg(long, value_name = "ADDRESS")]
    pub address: Vec<std::net::IpAddr>,
    /// Only packets from or to this port; may be repeated.
    #[arg(long, value_name = "PORT")]
    pub port: Vec<u16>,
    /// Only packets from this time after the first packet on, e.g. 1.5s; @NS is nanoseconds since the epoch.
    #[arg(long, value_name = "TIME")]
    pub from: Option<String>,
    /// Only packets before this time after the first packet, or before @NS.
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Length of a pause that ends a burst.
    #[arg(long, value_name = "TIME", default_value = "10ms")]
    pub burst_gap: String,
    /// Payload of a full-sized wire segment [default: from the capture].
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u32).range(1..))]
    pub mss: Option<u32>,
    /// Formats of the results. The page (html) charts --connection, else the largest connection (of a pipe or a live capture: the first).
    #[command(flatten)]
    pub output: Output<TraceFormats>,
}

/// `tcpcost watch`.
#[derive(Debug, Args)]
pub struct Watch {
    /// Time between lines, e.g. 1s, 500ms; a plain number is seconds.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
    /// Lines to show [default: until Ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub count: Option<u64>,
    /// Format of the lines (docs/watch.md).
    #[command(flatten)]
    pub output: Output<WatchFormats>,
    /// Show rows of this kind below each line; may be repeated. A row has bytes, segments and CPU time in user mode, system, softirqs
    /// and hard interrupts; a connection has no CPU time.
    #[arg(long, value_name = "WHAT")]
    pub by: Vec<WatchBy>,
    /// Rows of each --by: those with the most CPU time or, without it, the most bytes.
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = at_least_one)]
    pub top: usize,
    /// Watch another network namespace: its name (ip netns), its path, or the id of a process in it.
    #[arg(long, value_name = "NAME|PID|PATH")]
    pub netns: Option<String>,
    /// Only IPv4 or IPv6 connections. An IPv4 peer on an IPv6 socket is IPv4. Filters are for the rows of --by, not for CPU time.
    #[arg(long, value_name = "4|6", value_parser = ip_version)]
    pub ip: Option<u8>,
    /// Only connections with this port at either end; may be repeated.
    #[arg(long)]
    pub port: Vec<u16>,
    /// Only connections with this address at either end; may be repeated.
    #[arg(long)]
    pub address: Vec<IpAddr>,
    /// Serve counters to Prometheus at http://ADDR/metrics; a port alone is on 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = listen_address)]
    pub metrics: Option<SocketAddr>,
    /// Answer requests for metrics under this host name, too; may be repeated. Addresses and the host's own name need no option.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// Show each CPU's load by what it leaves to an idle-priority spinner, interrupts and cache damage included (Morton 2001); LIST: these CPUs, e.g. 0-3,8.
    #[arg(long, value_name = "LIST", num_args = 0..=1, require_equals = true, default_missing_value = "", conflicts_with_all = ["by", "top", "netns", "ip", "port", "address", "metrics", "self_max"])]
    pub soak: Option<String>,
    /// With --soak: cache lines per second that each spinner dirties; 0 for none.
    #[arg(
        long,
        value_name = "N",
        requires = "soak",
        default_value_t = tcpcost_meter::soak::DIRTY_LINES_DEFAULT,
        value_parser = clap::value_parser!(u64).range(..=tcpcost_meter::soak::DIRTY_LINES_MAX)
    )]
    pub dirty_lines: u64,
    /// With --soak: length of the calibration at each end, when the host must be idle; after Ctrl-C at most half a second.
    #[arg(long, value_name = "TIME", requires = "soak", default_value = "1s", value_parser = interval)]
    pub calibrate: Duration,
    /// Sample if the eBPF programs would take more than this share of one CPU; 100 never samples.
    #[arg(long, value_name = "PERCENT", default_value_t = 0.6, value_parser = percent)]
    pub self_max: f64,
}

/// Kind of rows of `watch`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WatchBy {
    Connection,
    Process,
    Cgroup,
    Netns,
    /// The port of the service: the local port if this host listens on it, else the remote port.
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
    /// Returns the options of the watch.
    pub fn options(&self) -> tcpcost_watch::Options {
        let rows = self.by.iter().map(|&by| (by.into(), self.top));
        let canonical = self.address.iter().map(IpAddr::to_canonical);
        tcpcost_watch::Options {
            interval: self.interval,
            count: self.count,
            form: if self.output.has(Format::Json) {
                Form::Json
            } else if self.output.has(Format::Lines) {
                Form::Lines
            } else {
                Form::Screen
            },
            wanted: Wanted {
                rows: rows.collect(),
                filter: Filter {
                    ipv6: self.ip.map(|ip| ip == 6),
                    ports: self.port.clone(),
                    addresses: canonical.collect(),
                },
            },
            prometheus: self.metrics,
            names: self.metrics_host.clone(),
            netns: self.netns.clone(),
            self_max: self.self_max / 100.0,
        }
    }
}
