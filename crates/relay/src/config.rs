//! What a relay is told: every number that a user may change, with its default and the reason.

use std::net::IpAddr;
use std::str::FromStr;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use crate::address::Address;
use crate::allow::Network;
use crate::counters::ConnectionReport;
use crate::proxy::ProxyVersion;

/// How bytes go from one socket to the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Mode {
    /// recv(2) and send(2) through one buffer of the worker.
    Copy,
    /// splice(2) through pipes that are lent while bytes are in them.
    Splice,
    /// Redirected by eBPF in the kernel: refused, with the reason ([`crate::StartError::Unavailable`]).
    Sockmap,
    /// By io_uring, with buffers that the kernel takes when bytes are there.
    IoUring,
    /// Our own TCP on both sides, by reference from queue to queue ([`crate::Relay::start_user`]).
    User,
    /// Copy or splice, by connection and way, as bytes come.
    #[default]
    Auto,
}

impl Mode {
    /// All.
    pub const ALL: [Mode; 6] = [
        Mode::Copy,
        Mode::Splice,
        Mode::Sockmap,
        Mode::IoUring,
        Mode::User,
        Mode::Auto,
    ];

    /// As on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Copy => "copy",
            Mode::Splice => "splice",
            Mode::Sockmap => "sockmap",
            Mode::IoUring => "io-uring",
            Mode::User => "user",
            Mode::Auto => "auto",
        }
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Mode, String> {
        let found = Mode::ALL.into_iter().find(|mode| mode.name() == text);
        found.ok_or_else(|| {
            let names: Vec<&str> = Mode::ALL.iter().map(|mode| mode.name()).collect();
            format!("one of {}", names.join(", "))
        })
    }
}

/// Which upstream the next connection gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Balance {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// The one with the fewest connections.
    LeastConnections,
}

/// All of it.
#[derive(Debug, Clone)]
pub struct Config {
    /// Where to connect to: one at least.
    pub to: Vec<Address>,
    /// How bytes go.
    pub mode: Mode,
    /// Which upstream is next.
    pub balance: Balance,
    /// CPUs that workers run on, each on one: worker N on the Nth, and around. Empty: wherever the scheduler puts them.
    pub cpus: Vec<usize>,
    /// Connections at a time, over all workers. At the limit accepting stops, and who comes waits in the listen queue.
    pub connections_max: usize,
    /// Time for an upstream to take a connection, and for a client to send its PROXY header. Default 5 s: two
    /// retransmissions of a SYN (1 s and 3 s).
    pub connect_timeout: Duration,
    /// Time without a byte either way after which a connection ends. Default none: an idle connection costs less than
    /// one that a client has to make again.
    pub idle_timeout: Option<Duration>,
    /// Idle time before the first keepalive probe on both sides. Default 60 s, below the five minutes of usual NATs.
    pub keepalive: Option<Duration>,
    /// TCP_NODELAY on both sides. Default yes: what one side sent in one piece is not to wait for an ACK of the other.
    pub nodelay: bool,
    /// TCP_CONGESTION of both sides. Default: the host's.
    pub congestion_control: Option<String>,
    /// SO_SNDBUF of both sides, bytes. Default: the kernel's own sizing.
    pub send_buffer: Option<usize>,
    /// SO_RCVBUF of both sides, bytes. Default: the kernel's own sizing.
    pub receive_buffer: Option<usize>,
    /// The worker's buffer, bytes, one for all its connections. Default 64 KiB.
    pub buffer_bytes: usize,
    /// Bytes of a worker that were copied from senders and are waiting for receivers, at most. Above it they are left
    /// in the kernel, for a system call more a piece. Default 16 MiB: 256 buffers.
    pub held_bytes: usize,
    /// What a pipe is asked to hold, bytes. Default 256 KiB.
    pub pipe_bytes: usize,
    /// Pipes of a worker at most. Default 128: with the default size half of what an unprivileged user may have
    /// (pipe-user-pages-soft), and a connection needs one only while its receiver is slower than its sender.
    pub pipes_max: usize,
    /// Whether each connection begins with a PROXY header.
    pub proxy_in: bool,
    /// Whether a PROXY header is sent to the upstream, and which.
    pub proxy_out: Option<ProxyVersion>,
    /// Networks whose clients may connect. Empty: all. Clients of unix sockets always may.
    pub allow: Vec<Network>,
    /// How long an upstream that refused is left out, as long as there is another. Default 10 s.
    pub retry_after: Duration,
    /// How long connections may go on once the relay was asked to stop. Default: as long as they want.
    pub drain_timeout: Option<Duration>,
    /// Who is told of each connection that ended. What does not fit its queue is lost, and counted nowhere else.
    pub ended: Option<SyncSender<ConnectionReport>>,
}

impl Config {
    /// The defaults, to one upstream.
    pub fn new(to: Address) -> Config {
        Config {
            to: vec![to],
            mode: Mode::default(),
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
            pipe_bytes: 256 << 10,
            pipes_max: 128,
            proxy_in: false,
            proxy_out: None,
            allow: Vec::new(),
            retry_after: Duration::from_secs(10),
            drain_timeout: None,
            ended: None,
        }
    }

    /// Whether a client of this address may connect.
    pub(crate) fn allows(&self, source: IpAddr) -> bool {
        self.allow.is_empty() || self.allow.iter().any(|one| one.contains(source))
    }

    /// Descriptors that these workers need at most.
    pub fn descriptors(&self, workers: usize) -> usize {
        // A connection that is being reset slowly, and one that was accepted just before the limit, have theirs still.
        2 * self.connections_max + workers * (2 * self.pipes_max + OWN_DESCRIPTORS) + SPARE
    }
}

/// Without a limit of the user's: what fits the usual limit of 20,000 descriptors and more is rare.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Of a worker: epoll, bell, listeners, the socket that is being accepted.
const OWN_DESCRIPTORS: usize = 16;
/// Standard streams, metrics, logs.
const SPARE: usize = 64;
