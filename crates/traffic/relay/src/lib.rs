//! A TCP relay: accepts connections, opens a connection to an upstream for each, and moves bytes
//! between the two by the method that costs least on this host. Counters of bytes, methods and
//! endings can be read at any time.
//!
//! The crate knows no study and no meter, and prints nothing: the caller reads [`Counters`]. Start
//! with [`Config`], [`bind`] and [`Relay`]. [`Relay::start_user`] runs the relay over our own TCP
//! instead of the kernel's.
//!
//! ```
//! use std::io::{Read, Write};
//! use tcpcost_relay::{Address, Config, Relay, bind};
//!
//! let server = std::net::TcpListener::bind("127.0.0.1:0")?;
//! let config = Config {
//!     connections_max: 100,
//!     ..Config::new(Address::Tcp(server.local_addr()?))
//! };
//! let listeners = bind(&["127.0.0.1:0".parse()?], 1, &config).map_err(|(_, error)| error)?;
//! let local = listeners[0][0].local_addr().unwrap();
//! let relay = Relay::start(listeners, config)?;
//!
//! let mut client = std::net::TcpStream::connect(local)?;
//! client.write_all(b"hello")?;
//! let (mut served, _) = server.accept()?;
//! let mut said = [0; 5];
//! served.read_exact(&mut said)?;
//! assert_eq!(&said, b"hello");
//!
//! let counters = relay.counters();
//! relay.stopper().end();
//! relay.wait()?;
//! assert_eq!(counters.totals().bytes[0].relayed(), 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![deny(unsafe_code)]
#![warn(missing_docs)]

mod address;
mod allow;
mod config;
mod connection_limit;
mod counters;
mod kernel;
mod listener;
mod mover;
mod pipes;
mod proxy;
mod shared;
mod side;
pub mod systemd;
mod upstreams;
mod user;
mod worker;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64};
use std::thread::JoinHandle;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_setaffinity};
use tcpcost_knobs::RelayNeeds;
use tcpcost_link::{Bell, Device};
use tcpcost_stack::{UserStack, Wire, uring_refusal};

pub use address::{Address, AddressError};
pub use allow::{Network, NetworkError};
pub use config::{Balance, CONNECTIONS_MAX, Config};
pub use counters::{Bytes, ConnectionReport, Counters, Direction, Ending, TcpTotals, Totals};
pub use listener::{Listener, bind};
pub use proxy::{Ends, Parsed, ProxyVersion, header as proxy_header, parse as parse_proxy_header};
pub use tcpcost_knobs::RelayMode;

use connection_limit::ConnectionLimit;
use counters::WorkerCounters;
use kernel::Kernel;
use shared::{DRAINING, ENDING, RUNNING, Shared};
use upstreams::Upstreams;
use user::User;
use worker::{Net, Worker};

/// Reason why a relay did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// RLIMIT_NOFILE cannot be raised far enough.
    #[error(
        "{connections} connections need {needed} open files, and {have} are allowed: at most {fit} connections, or raise the hard limit (ulimit -Hn; LimitNOFILE= of a unit)"
    )]
    Descriptors {
        /// Connections that the configuration asks for.
        connections: usize,
        /// Descriptors that these connections need.
        needed: usize,
        /// Hard limit of descriptors.
        have: usize,
        /// Connections that fit within the hard limit.
        fit: usize,
    },
    /// The mode does not work on this host, or not in this way of starting.
    #[error("mode {}: {why}: --mode {} works here", mode.word(), instead.word())]
    Unavailable {
        /// Mode that the configuration asks for.
        mode: RelayMode,
        /// Reason, with the kernel's error if there is one.
        why: String,
        /// A mode that works.
        instead: RelayMode,
    },
    /// A worker could not be made.
    #[error("start a worker: {0}")]
    Worker(#[from] io::Error),
}

/// A running relay.
#[derive(Debug)]
pub struct Relay {
    shared: Arc<Shared>,
    counters: Counters,
    workers: Vec<JoinHandle<io::Result<()>>>,
}

/// Asks a relay to stop. Clones refer to the same relay.
#[derive(Debug, Clone)]
pub struct Stopper(Arc<Shared>);

impl Stopper {
    /// Stops accepting; open connections continue until they end.
    pub fn drain(&self) {
        self.0.set_state(DRAINING);
    }

    /// Resets all connections now.
    pub fn end(&self) {
        self.0.set_state(ENDING);
    }
}

impl Relay {
    /// Starts a worker for each list of listeners, in the network namespace of the caller.
    ///
    /// # Errors
    /// Too few descriptors are allowed, the mode is unavailable, or a worker cannot be made.
    /// Nothing is left running.
    pub fn start(listeners: Vec<Vec<Listener>>, config: Config) -> Result<Relay, StartError> {
        raise_descriptors(&config, listeners.len())?;
        check_mode(&config)?;
        let mut relay = Relay::without_workers(config, listeners.len())?;
        for (index, listeners) in listeners.into_iter().enumerate() {
            for listener in &listeners {
                listener.set_options(&relay.shared.config)?;
            }
            let shared = &relay.shared;
            // If this fails, dropping `relay` ends the workers that were started before.
            let kernel = Kernel::new(listeners, &shared.bells[index], &shared.config)?;
            relay.spawn(index, kernel)?;
        }
        Ok(relay)
    }

    /// Starts a mode of our own TCP: a worker for each of the given instances, which listens at its
    /// addresses. Also returns the addresses of each worker's listeners, with the ports that were
    /// chosen for port 0.
    ///
    /// Socket options are those of the stacks. PROXY headers and unix sockets are not supported.
    ///
    /// # Errors
    /// The configuration asks for what our TCP does not support, or an address cannot be listened
    /// on. Nothing is left running.
    pub fn start_user<D: Device<Wire> + Send + 'static>(
        workers: Vec<(UserStack<D>, Vec<SocketAddr>)>,
        config: Config,
    ) -> Result<(Relay, Vec<Vec<SocketAddr>>), StartError> {
        user::check(&config)?;
        let mut relay = Relay::without_workers(config, workers.len())?;
        let mut local = Vec::new();
        for (index, (stack, listen)) in workers.into_iter().enumerate() {
            let shared = &relay.shared;
            let bell = &shared.bells[index];
            let (user, listens) = User::new(stack, &listen, bell, &shared.config)?;
            local.push(listens);
            relay.spawn(index, user)?;
        }
        Ok((relay, local))
    }

    fn without_workers(config: Config, workers: usize) -> io::Result<Relay> {
        let bells: io::Result<Vec<Bell>> = (0..workers).map(|_| Bell::new()).collect();
        let counters = (0..workers).map(|_| Arc::new(WorkerCounters::default()));
        Ok(Relay {
            counters: Counters(Arc::new(counters.collect())),
            shared: Arc::new(Shared {
                upstreams: Upstreams::new(&config.to, config.balance, config.retry_after),
                limit: ConnectionLimit::new(config.connections_max),
                bells: bells?,
                state: AtomicU8::new(RUNNING),
                next_id: AtomicU64::new(1),
                config,
            }),
            workers: Vec::new(),
        })
    }

    fn worker<N: Net>(&self, index: usize, net: N) -> io::Result<Worker<N>> {
        let counters = Arc::clone(&self.counters.0[index]);
        Worker::new(index, Arc::clone(&self.shared), counters, net)
    }

    /// Runs a worker on a thread of its own, pinned to its CPU. If the worker fails, all workers
    /// end.
    fn spawn<N>(&mut self, index: usize, net: N) -> io::Result<()>
    where
        N: Net + Send + 'static,
        N::Side: Send,
        N::Flows: Send,
    {
        let worker = self.worker(index, net)?;
        let all = Arc::clone(&self.shared);
        let cpus = &all.config.cpus;
        let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
        let run = move || {
            let outcome = cpu.map_or(Ok(()), pin).and_then(|()| worker.run());
            if outcome.is_err() {
                all.set_state(ENDING);
            }
            outcome
        };
        let thread = std::thread::Builder::new().name(format!("relay-{index}"));
        self.workers.push(thread.spawn(run)?);
        Ok(())
    }

    /// Counters of the relay. They remain readable after the relay has ended.
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    /// Handle that stops the relay, from any thread.
    pub fn stopper(&self) -> Stopper {
        Stopper(Arc::clone(&self.shared))
    }

    /// Waits until all workers have ended: after [`Stopper::drain`], [`Stopper::end`], or the
    /// failure of a worker, which ends the others.
    ///
    /// # Errors
    /// The error of the first worker, by index, that failed.
    pub fn wait(mut self) -> io::Result<Totals> {
        let mut outcome = Ok(());
        for worker in std::mem::take(&mut self.workers) {
            let ended = worker
                .join()
                .unwrap_or_else(|_| Err(io::Error::other("a worker panicked")));
            outcome = outcome.and(ended);
        }
        outcome.map(|()| self.counters.totals())
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if !self.workers.is_empty() {
            self.stopper().end();
            for worker in std::mem::take(&mut self.workers) {
                let _ = worker.join();
            }
        }
    }
}

/// Checks, before connections are accepted, that the kernel supports the mode.
fn check_mode(config: &Config) -> Result<(), StartError> {
    let unavailable = |why: String| StartError::Unavailable {
        mode: config.mode,
        why,
        instead: RelayMode::Auto,
    };
    match config.mode.row().needs {
        RelayNeeds::Sockets => Ok(()),
        RelayNeeds::IoUring => uring_refusal().map_or(Ok(()), |why| Err(unavailable(why))),
        RelayNeeds::OwnTcp => Err(unavailable(NO_INTERFACE.to_string())),
        RelayNeeds::Refused(why) => Err(unavailable(why.to_string())),
    }
}

/// Reason to refuse our own TCP in [`Relay::start`], whose listeners are the kernel's.
const NO_INTERFACE: &str = "our own TCP needs an interface and an address of its own";

fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(io::Error::other(format!("there is no CPU {cpu}")));
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set)
        .map_err(|error| io::Error::other(format!("run on CPU {cpu}: {error}")))
}

/// Connections at a time that the limit of open files allows this process; not more than
/// `connections_max` of the configuration.
pub fn connections_allowed(config: &Config, workers: usize) -> usize {
    match raise_descriptors(config, workers) {
        Err(StartError::Descriptors { fit, .. }) => fit,
        _ => config.connections_max,
    }
}

/// Raises the soft limit of open files of this process, and the hard limit if permitted.
fn raise_descriptors(config: &Config, workers: usize) -> Result<(), StartError> {
    let needed = config.descriptors(workers);
    let have = getrlimit(Resource::Nofile);
    let is_enough = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed as u64);
    if is_enough(have.current) {
        return Ok(());
    }
    let raised = |maximum: Option<u64>| Rlimit {
        current: Some(needed as u64),
        maximum,
    };
    let outcome = match is_enough(have.maximum) {
        true => setrlimit(Resource::Nofile, raised(have.maximum)),
        false => setrlimit(Resource::Nofile, raised(Some(needed as u64))),
    };
    outcome.map_err(|_| {
        let have = have.maximum.unwrap_or(0) as usize;
        let rest = needed - 2 * config.connections_max;
        StartError::Descriptors {
            connections: config.connections_max,
            needed,
            have,
            fit: have.saturating_sub(rest) / 2,
        }
    })
}
