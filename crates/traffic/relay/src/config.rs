//! Configuration of a relay: every number that a user may change, with its default and the reason.

use std::net::IpAddr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use tcpcost_knobs::RelayMode;

use crate::address::Address;
use crate::allow::Network;
use crate::counters::ConnectionReport;
use crate::proxy::ProxyVersion;

/// Choice of the upstream for the next connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// Each upstream in turn.
    #[default]
    RoundRobin,
    /// The upstream with the fewest connections.
    LeastConnections,
}

/// Configuration of a relay.
#[derive(Debug, Clone)]
pub struct Config {
    /// Upstreams to connect to; at least one.
    pub to: Vec<Address>,
    /// Method of moving bytes. Default `auto`.
    pub mode: RelayMode,
    /// Choice of the next upstream.
    pub balance: Balance,
    /// CPUs to pin workers to: worker N runs on CPU number N modulo the length of this list. Empty:
    /// the scheduler places workers.
    pub cpus: Vec<usize>,
    /// Limit of open connections, over all workers. At the limit accepting stops, and new
    /// connections wait in the listen queue.
    pub connections_max: usize,
    /// Time within which an upstream must accept a connection, and a client must send its PROXY
    /// header. Default 5 s: two retransmissions of a SYN (1 s and 3 s).
    pub connect_timeout: Duration,
    /// Time without a byte in either direction after which a connection ends. Default `None`: an
    /// idle connection costs less than one that a client must open again.
    pub idle_timeout: Option<Duration>,
    /// Idle time before the first keepalive probe on both sides. Default 60 s, below the five
    /// minutes of usual NATs.
    pub keepalive: Option<Duration>,
    /// TCP_NODELAY on both sides. Default yes: bytes that one side sent in one piece should not
    /// wait for an ACK of the other.
    pub nodelay: bool,
    /// TCP_CONGESTION of both sides. Default: the host's.
    pub congestion_control: Option<String>,
    /// SO_SNDBUF of both sides, bytes. Default: the kernel's own sizing.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF of both sides, bytes. Default: the kernel's own sizing.
    pub receive_buffer: Option<usize>,
    /// Size of a worker's copy buffer, bytes, shared by all its connections. Default 64 KiB.
    pub buffer_bytes: usize,
    /// Limit of bytes in a worker's memory that were read from senders and wait for receivers.
    /// Above the limit bytes stay in the kernel, which costs one more system call a piece. Default
    /// 16 MiB: 256 buffers.
    pub held_bytes: usize,
    /// Pipe size to ask the kernel for, bytes. Default 512 KiB: bulk costs 5 to 9 % less than with 256 KiB (bench/README.md).
    pub pipe_bytes: usize,
    /// Limit of pipes of a worker. Default 128. With the default size this is all that an
    /// unprivileged user may have (pipe-user-pages-soft), and a connection needs a pipe only while
    /// its receiver is slower than its sender.
    pub pipes_max: usize,
    /// True if each connection begins with a PROXY header.
    pub proxy_in: bool,
    /// Version of the PROXY header that is sent to the upstream. `None`: no header.
    pub proxy_out: Option<ProxyVersion>,
    /// Networks whose clients may connect. Empty: all. Clients of unix sockets always may.
    pub allow: Vec<Network>,
    /// Time for which an upstream that refused is not chosen while another is available. Default:
    /// 10 s.
    pub retry_after: Duration,
    /// Time that connections may continue after the relay was asked to stop. Default: no limit.
    pub drain_timeout: Option<Duration>,
    /// Receiver of a report of each connection that ended. A report that does not fit the queue is
    /// lost and not counted.
    pub ended: Option<SyncSender<ConnectionReport>>,
}

impl Config {
    /// Configuration with one upstream, otherwise defaults.
    pub fn new(to: Address) -> Config {
        Config {
            to: vec![to],
            mode: RelayMode::Auto,
            balance: Balance::default(),
            cpus: Vec::new(),
            connections_max: CONNECTIONS_MAX,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: None,
            keepalive: Some(Duration::from_secs(60)),
            nodelay: true,
            congestion_control: None,
            send_buffer: None,
            receive_buffer: None,
            buffer_bytes: 64 << 10,
            held_bytes: 16 << 20,
            pipe_bytes: 512 << 10,
            pipes_max: 128,
            proxy_in: false,
            proxy_out: None,
            allow: Vec::new(),
            retry_after: Duration::from_secs(10),
            drain_timeout: None,
            ended: None,
        }
    }

    /// True if a client of this address may connect.
    pub(crate) fn allows(&self, source: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|one| one.contains(source))
    }

    /// Limit of descriptors that `workers` workers need.
    pub fn descriptors(&self, workers: usize) -> usize {
        // A connection that waits for its reset, and one that was accepted just before the limit,
        // still hold descriptors.
        2 * self.connections_max + workers * (2 * self.pipes_max + OWN_DESCRIPTORS) + SPARE
    }
}

/// Default limit of connections. These need 20,000 descriptors, which fit the usual limit; more
/// connections are rare.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Descriptors of a worker itself: epoll, eventfd, listeners, the socket that is being accepted.
const OWN_DESCRIPTORS: usize = 16;
/// Descriptors of the process: standard streams, metrics, logs.
const SPARE: usize = 64;
