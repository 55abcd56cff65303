//! State of a worker besides its traffic: its channels and its meters.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};
use std::time::Duration;

use anyhow::anyhow;
use tcpcost_meter::tcp_info::TcpInfo;
use tcpcost_study::{FlowGroup, HostName, Knob, MeterName, Side, WaitsBy};
use tcpcost_workload as workload;

use super::conduct::EndHandover;
use super::{GIVEN_UP, WorkerAnswer, WorkerConfig, WorkerOrder};
use crate::backend::ObservedStack;
use crate::policy::ConnectedOptions;
use crate::protocol::Prepare;
use crate::readings::{self, Meters};
use crate::sampler::Sampler;

/// Longest wait for an order while a stack is kept running; well within the lead of a span.
const KEEP_UP: Duration = Duration::from_millis(1);

/// A worker, on its own thread.
pub(super) struct Worker {
    pub(super) inbox: Receiver<WorkerOrder>,
    pub(super) outbox: Sender<anyhow::Result<WorkerAnswer>>,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) meters: Meters,
    pub(super) sampler: Option<Sampler>,
    pub(super) beside_soak: bool,
    pub(super) by_connection: bool,
    /// True if this worker marks the begin and the end of the measured interval for an emulator
    /// ([`tcpcost_meter::mark`]). The first worker of a host that connects does.
    pub(super) marks: bool,
    /// Time between samples of the first connection.
    pub(super) series_ns: Option<u64>,
    /// `None` if connections come and go.
    pub(super) tcp_info: Option<TcpInfo>,
    pub(super) reads_rusage: bool,
    /// Number of the host's connections if each has a thread, so that its process is measured; else 0.
    pub(super) connection_threads: usize,
    /// Names of the groups; empty for a host that forwards.
    pub(super) groups: Vec<Option<HostName>>,
    pub(super) options: ConnectedOptions,
    /// Knobs that are set for this end.
    pub(super) knobs: Vec<&'static Knob>,
    /// Set if it takes turns with the other end.
    pub(super) handover: Option<EndHandover>,
    pub(super) side: Option<Side>,
}

impl Worker {
    /// Creates a worker that has no meters yet. `channels`: its orders, and its answers.
    pub(super) fn new(
        config: &WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
        channels: (Receiver<WorkerOrder>, Sender<anyhow::Result<WorkerAnswer>>),
        stop: Arc<AtomicBool>,
    ) -> Worker {
        let (inbox, outbox) = channels;
        let wants = |meter| prepare.meters.contains(&meter);
        let all_stand = groups.iter().all(|group| group.settings.stands());
        let is_first = config.index == 0;
        Worker {
            inbox,
            outbox,
            stop,
            meters: Meters::default(),
            sampler: None,
            beside_soak: wants(MeterName::Soak),
            by_connection: prepare.by_connection && all_stand,
            marks: prepare.side == Some(Side::Connects) && is_first,
            // Only the first worker has a series, of its first connection.
            series_ns: prepare.series_ns.filter(|_| is_first),
            tcp_info: (wants(MeterName::TcpInfo) && all_stand).then(TcpInfo::default),
            reads_rusage: wants(MeterName::Rusage),
            connection_threads: match groups[0].settings.io {
                WaitsBy::BlockingThreads => groups.iter().map(|group| group.settings.flows).sum(),
                _ => 0,
            },
            groups: match prepare.side {
                Some(_) => groups.iter().map(|group| group.name).collect(),
                None => Vec::new(),
            },
            options: ConnectedOptions::new(prepare),
            knobs: prepare.knobs.set_at(prepare.host),
            handover: config.handover.clone(),
            side: prepare.side,
        }
    }

    /// Opens the meters of the whole end, if this is the first worker. On the worker's thread, so that their
    /// descriptors are in its file table and end with it.
    pub(super) fn open_meters(
        &mut self,
        config: &mut WorkerConfig,
        prepare: &Prepare,
        groups: &[FlowGroup],
    ) {
        if config.index > 0 {
            return;
        }
        let loaded = std::mem::take(&mut config.loaded);
        let connections = groups.iter().map(|group| group.settings.connections());
        let is_kernel = config.backend.is_kernel();
        self.meters = readings::meters(prepare, is_kernel, connections.sum(), loaded);
        self.sampler = Sampler::load(prepare, &mut self.meters.warnings);
        for meter in config.meters.drain(..) {
            self.meters.observer.add(Ok(meter));
        }
    }

    /// Waits for the next order. `None` once the trial is over. Between set-up and run, a stack that only
    /// this thread moves is kept running, so that a lost packet does not delay the other end's set-up.
    pub(super) fn next_order<S: ObservedStack>(
        &self,
        worker: &mut workload::Worker<S>,
        is_between: bool,
    ) -> anyhow::Result<Option<WorkerOrder>> {
        if !(is_between && S::STANDS_STILL) {
            return Ok(self.inbox.recv().ok());
        }
        loop {
            match self.inbox.try_recv() {
                Ok(order) => return Ok(Some(order)),
                Err(TryRecvError::Disconnected) => return Ok(None),
                Err(TryRecvError::Empty) => worker.keep_up(KEEP_UP)?,
            }
        }
    }

    pub(super) fn send(&self, answer: WorkerAnswer) -> anyhow::Result<()> {
        let sent = self.outbox.send(Ok(answer));
        sent.map_err(|_| anyhow!(GIVEN_UP))
    }
}
