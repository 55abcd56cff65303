//! Options of `tcpcost watch`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use clap::Args;
use tcpcost_console::format::{Output, WatchFormats};
use tcpcost_console::values::{at_least_one, interval, listen_address};

use crate::watch::connections::{Filter, Wanted};
use crate::watch::rows::By;

/// `tcpcost watch`.
#[derive(Debug, Args)]
pub struct WatchArgs {
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
    pub by: Vec<By>,
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

impl WatchArgs {
    /// Returns the rows and the filter of connections.
    pub(crate) fn wanted(&self) -> Wanted {
        let rows = self.by.iter().map(|&by| (by, self.top));
        let canonical = self.address.iter().map(IpAddr::to_canonical);
        Wanted {
            rows: rows.collect(),
            filter: Filter {
                ipv6: self.ip.map(|ip| ip == 6),
                ports: self.port.clone(),
                addresses: canonical.collect(),
            },
        }
    }
}

/// Parses a version of IP.
fn ip_version(text: &str) -> Result<u8, String> {
    match text {
        "4" => Ok(4),
        "6" => Ok(6),
        _ => Err("4 or 6".to_string()),
    }
}

/// Parses a percentage of one CPU. 0 would see nothing.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok();
    percent
        .filter(|percent| (0.01..=100.0).contains(percent))
        .ok_or_else(|| "a number from 0.01 to 100".to_string())
}
