//! A worker: a thread that sets up its share of the connections, runs traffic, and takes snapshots at the
//! agreed instants. This module has its orders and answers, `thread.rs` the thread.

mod conduct;
mod end;
mod phase;
mod state;
mod thread;

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Instant;

use anyhow::{Context, bail};
use hdrhistogram::Histogram;
use tcpcost_meter::Meter;
use tcpcost_meter::affinity::pin;
use tcpcost_study::{
    Brackets, BuffersFound, CallChains, ConnectionSeries, Counts, FlowGroup, MeterName, Reading,
};
use tcpcost_workload::OperationFound;

pub use self::conduct::EndHandover;
use self::state::Worker;
use crate::backend::{Backend, OpenConnections};
use crate::capture::WireFile;
use crate::lane::{LaneCounts, LaneSettings};
use crate::protocol::{Prepare, Span};

/// Number of a worker, and the devices and meters that it uses.
pub struct WorkerConfig {
    /// Number of this worker, from 0.
    pub index: usize,
    /// Number of workers.
    pub threads: usize,
    /// Base of its stack.
    pub backend: Backend,
    /// The wire in front of our TCP's device, and its counts. `None` if the study sets no wire.
    pub lane: Option<(LaneSettings, Arc<LaneCounts>)>,
    /// Capture file for the packets of its wire.
    pub capture: Option<WireFile>,
    /// Meters of the end that are open already, for the first worker to read.
    pub meters: Vec<Box<dyn Meter + Send>>,
    /// eBPF programs that another host of this machine has loaded: handles by meter.
    pub loaded: BTreeMap<MeterName, String>,
    /// Set if it takes turns with the other end.
    pub handover: Option<EndHandover>,
}

/// Task of a worker.
pub enum Role {
    /// Listens on ports of an address.
    Listen {
        address: IpAddr,
        /// Number of ports.
        ports: usize,
    },
    Connect {
        /// Where the other host listens.
        targets: Vec<SocketAddr>,
    },
    /// Only reads the meters, for a host that forwards.
    Observe,
}

/// Addresses and programs of a worker that listens.
#[derive(Debug, Default)]
pub struct Listening {
    pub addresses: Vec<SocketAddr>,
    /// eBPF programs that it has loaded: handles by meter.
    pub loaded: BTreeMap<MeterName, String>,
}

/// Results of a worker between its two snapshots.
pub struct WorkerReadings {
    pub readings: Vec<Reading>,
    /// Response times of the interval, ns.
    pub response_times: Option<Histogram<u64>>,
    /// Response times of the interval by group, ns.
    pub group_response_times: Vec<Option<Histogram<u64>>>,
    /// Counts and times of the operations of each group's program.
    pub operations: Vec<Vec<OperationFound>>,
    /// Call chains of the interval.
    pub profile: Option<CallChains>,
    /// Totals by connection of the whole end. Set by the worker that reads the end's meters, if they are
    /// wanted.
    pub by_connection: Option<[ConnectionTotals; 2]>,
    /// Keys of its own connections in `by_connection`.
    pub keys: Vec<u64>,
    /// State of its first connection over time.
    pub series: Option<ConnectionSeries>,
    /// Buffers of its first connection.
    pub buffers: Option<BuffersFound>,
    /// Meters that are unavailable, one line each.
    pub warnings: Vec<String>,
    /// Bytes in TCP's queues at the end of the interval.
    pub tcp_bytes: Option<u64>,
    /// Times when the meters were read.
    pub snapshots: Brackets,
    /// Times when TCP_INFO was read.
    pub tcp_info: Option<Brackets>,
    /// Connections refused because they lacked the trial's token.
    pub strangers: u64,
    /// Connections that the workload opened since the trial began. 0 if it opens none.
    pub connections_opened: u64,
}

/// Totals by connection at an instant.
pub struct ConnectionTotals {
    /// Monotonic time, ns.
    pub at_ns: u64,
    /// Counts by [`tcpcost_meter::bpf::connection_key`].
    pub totals: HashMap<u64, Counts>,
}

enum WorkerOrder {
    SetUp(Instant),
    Run(Span),
}

enum WorkerAnswer {
    Listening(Listening),
    Ready(OpenConnections),
    WorkerReadings(Box<WorkerReadings>),
}

/// The handle of a worker thread. Dropping it ends the thread and its connections.
pub struct WorkerThread {
    orders: Option<Sender<WorkerOrder>>,
    answers: Receiver<anyhow::Result<WorkerAnswer>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl WorkerThread {
    /// Starts a worker on its CPU. Only the first worker reads the meters that count for the whole end.
    pub fn start(
        mut config: WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
        role: Role,
    ) -> std::io::Result<WorkerThread> {
        let (orders, inbox) = channel();
        let (outbox, answers) = channel();
        let (is_opening, opened) = channel::<()>();
        let stop = Arc::new(AtomicBool::new(false));
        let channels = (inbox, outbox.clone());
        let mut worker = Worker::new(&config, prepare, groups, channels, Arc::clone(&stop));
        let cpu = prepare.cpus[config.index % prepare.cpus.len()];
        let has_owner = prepare.cpu_owner.is_some();
        let (prepare, groups) = (prepare.clone(), groups.to_vec());
        let thread = std::thread::Builder::new()
            .name(format!("{}-{}", prepare.host, config.index))
            .spawn(move || {
                // Two ends in one thread share a file table.
                let own = if config.handover.is_some() {
                    Ok(())
                } else {
                    own_files()
                };
                let ready = own.and_then(|()| Ok(pin(cpu)?));
                worker.open_meters(&mut config, &prepare, &groups);
                drop(is_opening);
                let outcome = ready.and_then(|()| worker.serve(config, &prepare, &groups, role));
                if let Err(error) = outcome {
                    // Fails if the trial has been aborted; then the reason does not matter.
                    let _ = outbox.send(Err(error));
                }
            })?;
        // A socket gets an owner only if it is made after the programs are loaded.
        if has_owner {
            let _ = opened.recv();
        }
        Ok(WorkerThread {
            orders: Some(orders),
            answers,
            stop,
            thread: Some(thread),
        })
    }

    fn answer(&self) -> anyhow::Result<WorkerAnswer> {
        self.answers.recv().context("a worker thread ended")?
    }

    fn order(&self, order: WorkerOrder) {
        // If the thread is gone, the next answer says why.
        let _ = self
            .orders
            .as_ref()
            .expect("open until dropped")
            .send(order);
    }

    /// Waits for the addresses that the worker listens on.
    pub fn listening(&self) -> anyhow::Result<Listening> {
        match self.answer()? {
            WorkerAnswer::Listening(listening) => Ok(listening),
            _ => bail!(OUT_OF_TURN),
        }
    }

    pub fn set_up(&self, deadline: Instant) {
        self.order(WorkerOrder::SetUp(deadline));
    }

    /// Waits until its connections are up.
    pub fn ready(&self) -> anyhow::Result<OpenConnections> {
        match self.answer()? {
            WorkerAnswer::Ready(ready) => Ok(ready),
            _ => bail!(OUT_OF_TURN),
        }
    }

    pub fn run(&self, span: Span) {
        self.order(WorkerOrder::Run(span));
    }

    /// Waits for the end of the span.
    pub fn found(&self) -> anyhow::Result<WorkerReadings> {
        match self.answer()? {
            WorkerAnswer::WorkerReadings(found) => Ok(*found),
            _ => bail!(OUT_OF_TURN),
        }
    }
}

impl Drop for WorkerThread {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.orders = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed already, and the missing answer has failed the trial.
            let _ = thread.join();
        }
    }
}

/// Gives the calling thread a file table of its own. Then RLIMIT_NOFILE counts for each worker separately,
/// and a call on a socket takes no atomic reference, as in a process of one thread.
#[allow(
    unsafe_code,
    reason = "unshare can take files from under others; these are in both tables"
)]
fn own_files() -> anyhow::Result<()> {
    // SAFETY: takes no pointers; files opened before stay open in both tables.
    match unsafe { libc::unshare(libc::CLONE_FILES) } {
        0 => Ok(()),
        _ => bail!(
            "give a thread its own file table: {}",
            std::io::Error::last_os_error()
        ),
    }
}

/// Error of a worker whose trial has been aborted.
const GIVEN_UP: &str = "the trial was given up";
/// Error of a worker that sends another answer than the one that its order asks for.
const OUT_OF_TURN: &str = "a worker answered out of turn";
