//! Command line of `tcpcost relay`.

mod user;

use std::net::SocketAddr;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use tcpcost_console::exit::usage;
use tcpcost_console::format::{Format, Output, TextOrJson};
use tcpcost_console::set::{Set, switch};
use tcpcost_host::cpus;
use tcpcost_relay::{Address, Balance, Config, Network, ProxyVersion, RelayMode};
use tcpcost_study::units;

use tcpcost_console::values::{YEAR, amount};
use tcpcost_peer::PolicyFlags;
use user::UserFlags;

/// `tcpcost relay`.
#[derive(Debug, Args)]
pub struct Flags {
    /// Address to listen on: IP:PORT (IPv6 in brackets), unix:/PATH; may be repeated. Not needed with the sockets of a service manager (LISTEN_FDS).
    #[arg(long, value_name = "ADDR")]
    pub listen: Vec<Address>,
    /// Address of the upstream: as --listen, or NAME:PORT; several upstreams share the connections.
    #[arg(long, value_name = "ADDR", required = true, num_args = 1..)]
    pub to: Vec<Address>,
    // The help is made of the rows of the modes.
    #[arg(long, default_value = "auto", help = modes())]
    pub mode: RelayMode,
    /// Which upstream the next connection gets.
    #[arg(long, value_name = "HOW", default_value = "round-robin")]
    pub balance: BalanceFlag,
    /// Threads, each with its own connections [default: one for each of --cpus, else 1].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub workers: Option<u16>,
    /// CPUs that the workers are pinned to, e.g. 2,3.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub cpus: Vec<usize>,
    /// Limit of connections at a time; further ones wait in the listen queue [default: 10000, or what the limit of open files allows].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub max_connections: Option<u32>,
    /// Each connection begins with a PROXY header, version 1 or 2.
    #[arg(long)]
    pub proxy_in: bool,
    /// Send the upstream a PROXY header.
    #[arg(long, value_name = "VERSION")]
    pub proxy_out: Option<ProxyFlag>,
    /// Networks whose clients may connect, e.g. 10.0.0.0/8; may be repeated [default: all].
    #[arg(long, value_name = "CIDR")]
    pub allow: Vec<Network>,
    /// Serve counters to Prometheus at http://ADDR/metrics; a port alone is on 127.0.0.1.
    #[arg(long, value_name = "ADDR", value_parser = tcpcost_console::values::listen_address)]
    pub metrics: Option<SocketAddr>,
    /// Answer requests for metrics under this host name, too; may be repeated. Addresses and the host's own name need no option.
    #[arg(long, value_name = "NAME", requires = "metrics")]
    pub metrics_host: Vec<String>,
    /// Format of the lines: JSON has one for each connection that ended, and one for the totals (docs/records.md).
    #[command(flatten)]
    pub output: Output<TextOrJson>,
    /// Time between two lines of totals [default: totals at the end].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub interval: Option<Duration>,
    /// With --format json and --interval: a line for each open connection, too.
    #[arg(long, requires = "interval")]
    pub each: bool,
    /// Interface and addresses of modes user and user-copy.
    #[command(flatten)]
    pub user: UserFlags,
    /// Settings of connections and buffers; in modes user and user-copy also of our TCP.
    #[command(flatten)]
    pub set: Set<Settings>,
}

/// Settings of `tcpcost relay`, for `--set`.
#[derive(Debug, Clone, Args)]
pub struct Settings {
    /// Time for an upstream to take a connection, and for a client to send its PROXY header.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    pub connect_timeout: Duration,
    /// Time without a byte after which a connection is reset [default: never].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub idle_timeout: Option<Duration>,
    /// Idle time before keepalive probes, in whole seconds; 0s sends none.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = keepalive)]
    pub keepalive: Duration,
    /// Send small segments at once (TCP_NODELAY).
    #[arg(long, value_name = "on|off", action = ArgAction::Set, default_value = "on", value_parser = switch)]
    pub nodelay: bool,
    /// SO_SNDBUF of both sides, e.g. 256KiB [default: as the kernel sizes it].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF of both sides [default: as the kernel sizes it].
    #[arg(long, value_name = "SIZE", value_parser = size)]
    pub receive_buffer: Option<usize>,
    /// Buffer of a worker, one for all its connections.
    #[arg(long, value_name = "SIZE", default_value = "64KiB", value_parser = size)]
    pub buffer: usize,
    /// Limit of a worker's pipes; without a free pipe bytes are copied.
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub pipes: u32,
    /// Size of a pipe.
    #[arg(long, value_name = "SIZE", default_value = "512KiB", value_parser = size)]
    pub pipe_size: usize,
    /// Time for which an upstream that refused is skipped while there is another.
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    pub retry_after: Duration,
    /// Time that connections have after SIGTERM [default: until they end].
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub drain_timeout: Option<Duration>,
    /// Knobs of our TCP, in modes user and user-copy.
    #[command(flatten)]
    pub policies: PolicyFlags,
}

/// [`Balance`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum BalanceFlag {
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
}

/// [`ProxyVersion`] on the command line.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ProxyFlag {
    /// A line of text.
    V1,
    /// Binary.
    V2,
}

impl Flags {
    /// Number of worker threads: `--workers`, else one for each of `--cpus`, else one. A second
    /// thread is worth its CPU only if a CPU is free.
    pub fn workers(&self) -> usize {
        match self.workers {
            Some(workers) => workers.into(),
            None => self.cpus.len().max(1),
        }
    }

    /// Checks that the workers may run on `--cpus`. A worker that cannot would end a relay that
    /// already has connections.
    fn check_cpus(&self) -> anyhow::Result<()> {
        if self.cpus.is_empty() {
            return Ok(());
        }
        let usable = cpus::allowed()?;
        match self.cpus.iter().find(|cpu| !usable.contains(cpu)) {
            None => Ok(()),
            Some(cpu) => Err(usage(format!(
                "--cpus: CPU {cpu} is offline or not allowed here; usable: {usable:?}"
            ))),
        }
    }

    /// Returns the relay's configuration. `is_handed`: the service manager passed sockets.
    ///
    /// # Errors
    /// The first mistake on the command line.
    pub fn config(&self, is_handed: bool) -> anyhow::Result<Config> {
        if self.listen.is_empty() && !is_handed {
            return Err(usage("--listen ADDR is needed: the address to listen on"));
        }
        if self.each && !self.output.has(Format::Json) {
            return Err(usage(
                "--each needs --format json: connections have no lines of text",
            ));
        }
        self.check_cpus()?;
        let defaults = Config::new(self.to[0].clone());
        Ok(Config {
            to: self.to.clone(),
            mode: self.mode,
            balance: match self.balance {
                BalanceFlag::RoundRobin => Balance::RoundRobin,
                BalanceFlag::LeastConnections => Balance::LeastConnections,
            },
            cpus: self.cpus.clone(),
            connections_max: match self.max_connections {
                Some(connections) => connections as usize,
                None => defaults.connections_max,
            },
            connect_timeout: self.set.connect_timeout,
            idle_timeout: self.set.idle_timeout,
            keepalive: (!self.set.keepalive.is_zero()).then_some(self.set.keepalive),
            nodelay: self.set.nodelay,
            send_buffer: self.set.send_buffer,
            receive_buffer: self.set.receive_buffer,
            buffer_bytes: self.set.buffer,
            pipe_bytes: self.set.pipe_size,
            pipes_max: self.set.pipes as usize,
            proxy_in: self.proxy_in,
            proxy_out: self.proxy_out.map(|version| match version {
                ProxyFlag::V1 => ProxyVersion::V1,
                ProxyFlag::V2 => ProxyVersion::V2,
            }),
            allow: self.allow.clone(),
            retry_after: self.set.retry_after,
            drain_timeout: self.set.drain_timeout,
            ..defaults
        })
    }
}

/// Help of `--mode`.
fn modes() -> String {
    let modes = RelayMode::ALL.iter().filter(|mode| !mode.is_refused());
    let modes: Vec<String> = modes
        .map(|mode| format!("{}: {}", mode.word(), mode.row().doc))
        .collect();
    format!("How bytes are moved (docs/live.md). {}.", modes.join("; "))
}

/// Parses a time from 1 ms to a year.
fn time(text: &str) -> anyhow::Result<Duration> {
    let fits = |time: &Duration| (Duration::from_millis(1)..=YEAR).contains(time);
    amount(text, units::duration, fits, "1ms to a year")
}

/// Parses a time in whole seconds, 0 to 32767 s: the kernel's limit (MAX_TCP_KEEPIDLE).
fn keepalive(text: &str) -> anyhow::Result<Duration> {
    let fits = |time: &Duration| time.subsec_nanos() == 0 && time.as_secs() <= 32_767;
    let expected = "whole seconds, at most 32767s; 0s for none";
    amount(text, units::duration, fits, expected)
}

/// Parses the size of a buffer or pipe: 4 KiB (a page) to 1 GiB.
fn size(text: &str) -> anyhow::Result<usize> {
    let fits = |bytes: &u64| (4096..=1 << 30).contains(bytes);
    amount(text, units::bytes, fits, "a size from 4KiB to 1GiB")
}
