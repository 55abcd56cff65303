//! Options of `tcpcost trace`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use tcpcost_console::format::{Output, TraceFormats};
use tcpcost_console::values::interval;

/// `tcpcost trace`.
#[derive(Debug, Args)]
pub struct TraceArgs {
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
